"""Tokens with names and scopes, the limit of requests a second, and the audit lines of writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from interlingua.cli import main
from interlingua.errors import BadInput
from interlingua.serving.access import RateLimit, Token, network, read_tokens
from interlingua.serving.service import ServeSettings

Serving = Callable[..., Any]
SEARCH = {"query": "a book", "lang": "en", "highlight": False}
WRITE = {"passages": [{"id": "n", "text": "new", "lang": "en"}]}
FILE = """\
# name    scopes        token
page      search        secret-of-the-page
crawler   search,write  secret-of-the-crawler

uploads   write         secret-of-the-uploads
monitor   metrics       secret-of-the-monitor
root      admin         secret-of-the-root
"""


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Token, ...]:
    file = tmp_path / "tokens"
    file.write_text(FILE)
    return read_tokens(file)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret-of-the-{name}"} if name else {}


def statuses(client: TestClient, name: str) -> list[int]:
    """Of a search, a passage, a write, a deletion, the metrics."""
    headers = bearer(name)
    return [
        client.post("/search", json=SEARCH, headers=headers).status_code,
        client.get("/passages/p/0", headers=headers).status_code,
        client.post("/passages", json=WRITE, headers=headers).status_code,
        client.delete("/passages/n", headers=headers).status_code,
        client.get("/metrics", headers=headers).status_code,
    ]


def test_a_route_is_guarded_however_its_path_is_written(
    serving: Serving, tokens: tuple[Token, ...], index: Any
) -> None:
    with serving(token="", tokens=tokens) as client:
        for path in ("/passages%0A", "/search%0A", "/rerank%0A"):
            assert client.post(path, json=WRITE).status_code == 401, path
        assert client.get("/indexes%0A").status_code == 401
        assert client.get("/passages%0A").status_code == 401
        behind = TestClient(client.app, root_path="/ir")
        assert behind.delete("/ir/passages/p/0").status_code == 401
        assert behind.get("/ir/metrics").status_code == 401
        assert behind.post("/ir/rerank", json={"query": "a", "documents": ["b"]}).status_code == 401
        assert behind.get("/ir/metrics", headers=bearer("monitor")).status_code == 200
    assert "p/0" in index.passages


@pytest.mark.slow
def test_a_token_may_do_what_its_scopes_say(serving: Serving, tokens: tuple[Token, ...]) -> None:
    with serving(token="", tokens=tokens) as client:
        assert statuses(client, "page") == [200, 200, 403, 403, 403]
        assert statuses(client, "crawler") == [200, 200, 200, 200, 403]
        assert statuses(client, "uploads") == [403, 403, 200, 200, 403]
        assert statuses(client, "monitor") == [403, 403, 403, 403, 200]
        assert statuses(client, "root") == [200] * 5
        assert statuses(client, "nobody") == statuses(client, "") == [401] * 5
        assert client.get("/health").status_code == client.get("/").status_code == 200
        said = {
            name: client.post("/search", json=SEARCH, headers=bearer(name)).json()["error"] for name in ("", "nobody")
        }
        assert said[""]["message"] == "this needs the header Authorization: Bearer TOKEN."
        assert said["nobody"]["message"] == "the token is none of this server's."
        bare = client.post("/search", json=SEARCH, headers={"Authorization": "secret-of-the-page"})
        assert (bare.status_code, bare.json()["error"]["message"]) == (401, said[""]["message"])
        odd = {"passages": [*WRITE["passages"], {"id": "odd", "text": "A text.", "lang": "klingon"}]}
        refused = client.post("/passages", json=odd, headers=bearer("crawler"))
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith("passages.1.lang: 'klingon' is not a language code")
        refused = client.post("/passages", json=WRITE, headers=bearer("page"))
        assert refused.json()["error"] == {
            "code": "forbidden",
            "message": "this needs a token with the scope write, which 'page' has not.",
        }


def test_requests_without_a_token_may_do_what_the_line_for_them_says(
    serving: Serving, tokens: tuple[Token, ...], tmp_path: Path
) -> None:
    file = tmp_path / "with-everybody"
    file.write_text(FILE + "everybody search -\n")
    with serving(token="", tokens=read_tokens(file)) as client:
        assert statuses(client, "") == statuses(client, "nobody") == [200, 200, 401, 401, 401]
        assert statuses(client, "uploads") == [403, 403, 200, 200, 403]
    with serving(token="old", read_token="reader", tokens=tokens) as client:  # the older options beside it
        for token, write in (("old", 200), ("reader", 403)):
            headers = {"Authorization": f"Bearer {token}"}
            assert client.post("/search", json=SEARCH, headers=headers).status_code == 200
            assert client.get("/metrics", headers=headers).status_code == 200
            assert client.post("/passages", json=WRITE, headers=headers).status_code == write


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no token"),
        ("# nothing\n\n", "no token"),
        ("page search", "line 1: 2 words instead of three"),
        ("page search a secret", "line 1: 4 words instead of three"),
        ("page secret search", "line 1: scopes are some of search, write, metrics, admin"),
        ("page search, secret", "line 1: scopes are"),
        ("pa/ge search secret", "line 1: a name has"),
        ("page search secr\u00e9t", "line 1: 'token': a token is of printable ASCII characters"),
        ("page search secret\npage write other", "line 2: another line has this name"),
        ("page search secret\nother write secret", "line 2: another line has this token"),
    ],
)
def test_a_wrong_file_of_tokens_is_told_without_the_tokens(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens"
    file.write_text(text, encoding="utf-8")
    assert main(["serve", "no-index", "--port", "0", "--tokens", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert str(file) in line
    assert "secret" not in line.partition("python -c")[0]
    assert "secr\u00e9t" not in line


def test_tokens_are_in_no_log_and_no_description(
    serving: Serving, tokens: tuple[Token, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(token="", tokens=tokens) as client:
        for name in ("page", "root", "nobody"):
            statuses(client, name)
        said = capsys.readouterr()
        assert "secret" not in said.err + said.out
    assert "secret" not in repr(ServeSettings(tokens=tokens)) + repr(tokens)
    with pytest.raises(BadInput, match="no two tokens"):
        ServeSettings(token="secret-of-the-page", tokens=tokens)


def test_a_rate_is_kept_on_average_and_bursts_are_allowed() -> None:
    now = 0.0
    limit = RateLimit(rate=2.0, burst=3, clock=lambda: now)
    assert [limit.wait("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limit.wait("a") == limit.wait("a") == pytest.approx(0.5)  # asking in vain does not put it off
    assert limit.wait("b") == 0.0
    now = 0.5
    assert limit.wait("a") == 0.0
    assert limit.wait("a") == pytest.approx(0.5)
    now = 1_000.0
    assert [limit.wait("a") > 0 for _ in range(5)] == [False, False, False, True, True]
    allowed = 0
    for step in range(1_000):
        now = 2_000.0 + step / 100
        allowed += limit.wait("c") == 0.0
    assert allowed == pytest.approx(2 * 10 + 3, abs=1)


@pytest.mark.slow
def test_the_rate_of_a_token_harms_no_other(serving: Serving, tokens: tuple[Token, ...]) -> None:
    with serving(token="", tokens=tokens, rate=0.001, burst=2) as client:
        answers = [client.post("/search", json=SEARCH, headers=bearer("page")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[-1].json()["error"]["code"] == "too_many_requests"
        assert 900 < int(answers[-1].headers["retry-after"]) <= 1_000
        assert client.post("/search", json=SEARCH, headers=bearer("crawler")).status_code == 200
        # guesses count for the address; the page and /health do not count
        assert [client.get("/metrics", headers=bearer(f"guess-{n}")).status_code for n in range(3)] == [401, 401, 429]
        assert [client.get("/health").status_code for _ in range(3)] == [200] * 3
    with serving() as client:
        assert {client.post("/search", json=SEARCH).status_code for _ in range(30)} == {200}  # no limit by default


def test_an_address_is_that_of_a_client() -> None:
    assert network("192.0.2.7") == network("::ffff:192.0.2.7") == "192.0.2.7"
    assert network("2001:db8::1") == network("2001:db8::ffff") != network("2001:db8:0:1::1")
    assert network("fe80::1%eth0") == network("fe80::2")
    assert network("testclient") == "testclient"


def test_every_write_and_every_try_has_an_audit_line(
    serving: Serving, tokens: tuple[Token, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    many = {"passages": [{"id": f"m/{number}", "text": "private text"} for number in range(12)]}
    with serving(token="", tokens=tokens) as client:
        capsys.readouterr()
        client.post("/search", json=SEARCH, headers=bearer("page"))
        client.post("/passages", json=many, headers=bearer("crawler"))
        client.post("/passages", json={"passages": [{"id": "x"}]}, headers=bearer("crawler"))
        client.delete("/passages/m/0", headers=bearer("uploads"))
        client.delete("/passages/m/0", headers=bearer("page"))
        client.delete("/passages/m/0", headers=bearer("nobody"))
        client.delete("/passages/none", headers=bearer("root"))
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    audits = [line for line in said if "audit" in line]
    assert all(line.pop("time").endswith("+00:00") for line in audits)
    assert audits == [
        {
            "audit": "write",
            "token": "crawler",
            "passages": 12,
            "ids": [f"m/{number}" for number in range(10)],
            "changed": 12,
            "status": 200,
        },
        {"audit": "write", "token": "crawler", "status": 422},
        {"audit": "delete", "token": "uploads", "ids": ["m/0"], "changed": 1, "status": 200},
        {"audit": "delete", "token": "page", "ids": ["m/0"], "status": 403},
        {"audit": "delete", "token": None, "ids": ["m/0"], "status": 401},
        {"audit": "delete", "token": "root", "ids": ["none"], "changed": 0, "status": 404},
    ]
    assert [line["token"] for line in said if line.get("path") == "/search"] == ["page"]
    assert "private text" not in json.dumps(said)
