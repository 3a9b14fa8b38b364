"""Whatever is sent: no 500, every refusal in the one form, no file changed, no memory kept."""

from __future__ import annotations

import gc
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server: .venv/bin/pip install -e '.[serve]'")

from starlette.testclient import TestClient

from interlingua.data.records import Passage
from interlingua.index.index import Index
from interlingua.models.dual import DualEncoder
from interlingua.serving.app import create_app
from interlingua.serving.service import ServeSettings
from interlingua.subprocesses import return_memory

TOKEN = "a-token-for-writing"
BODIES: dict[str, Any] = {
    "/search": {
        "query": "who wrote the book?",
        "k": 3,
        "mode": "hybrid",
        "langs": ["en"],
        "where": {"kind": "sea"},
        "lang": "en",
        "highlight": True,
        "rerank": False,
        "lang_of_results": "any",
        "min_score": 0.1,
    },
    "/v1/embeddings": {"input": ["a", "b"], "model": "tiny", "dimensions": 8, "encoding_format": "float"},
    "/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True},
    "/passages": {"passages": [{"id": "n", "text": "t", "title": "", "lang": "en", "metadata": {"a": "b"}}]},
}
STRINGS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "😀\ud83d",
    "x" * 1_000_000,
    "x" * 9_999,
    "\u200b" * 500,
    "\u200b\u200d\ufeff",
    "\u202eabc\u202c عربي \u2066x\u2069",
    "a" + "\u0301" * 4_000,
    "👩‍👩‍👧‍👦" * 300,
    "\ufffe\uffff",
    "' OR 1=1 --",
    "x' OR 'a'='a",
    "`id` = 'p'",
    "a.b[0]",
    "%",
    "\\",
    "../../etc/passwd",
    "/etc/passwd",
    "file:///",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "\r\nX: y",
    "ก" * 3_000,
    "漢" * 3_000,
    "1" * 5_000,
    "\U0010ffff",
    "ﷺ" * 500,
    "ß" * 500,
    "İ" * 500,
    "en",
    "zz",
    "xx-yy",
    "EN_us",
    "e\u0301n",
)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    10**6,
    10**400,
    -(2**63),
    1e308,
    0.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [{}],
    {"": ""},
    {"a": {"a": {"a": 1}}},
    ["a"] * 300,
    {str(key): "x" for key in range(100)},
    [1, "a", None],
)
RAW = (
    b"",
    b"{",
    b"[" * 50_000,
    b'{"query":' * 20_000,
    b'{"query": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b"\xff\xfe{",
    b"\x00",
    b'{"query": "\xed\xa0\x80"}',
    b'{"query": "\xff"}',
    '{"query": "a"}'.encode("utf-16"),
    b"null",
    b"1",
    b'"a"',
    b'{"query": "a", "query": 1}',
    b'{"query": NaN}',
    b'{"k": 1' + b"0" * 10_000 + b', "query": "a"}',
    b"\x1f\x8b\x08",
    b'{"__proto__": {}, "query": "a"}',
    b"query=a",
    b" " * 100_000 + b'{"query": "a"}',
    b"x" * 5_000_000,
)
PATHS = (
    "/",
    "/info",
    "/health",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/passages/p/0",
    "/passages/",
    "/passages",
    "/passages/%00",
    "/passages/%FF%FE",
    "/passages/..%2F..%2Fetc%2Fpasswd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/search/",
    "/..%5C..%5Cx",
    "/style.css%00",
    "/index.html/x",
    "/page/../app.py",
    "//etc/passwd",
    "/" + "a" * 5_000,
    "/%E2%80%AE",
    "/search%00",
    "/v1/models",
    "/v1/embeddings/%ED%A0%80",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
HEADERS = (
    {},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "multipart/form-data; boundary=" + "x" * 500},
    {"Content-Type": "ÿ"},
    {"Content-Encoding": "gzip"},
    {"Host": "["},
    {"Host": "a\tb"},
    {"Authorization": "Bearer ÿ"},
    {"Authorization": "x" * 5_000},
    {"Origin": "null"},
    {"Accept": "image/png"},
    {"Range": "bytes=-1"},
    {"Transfer-Encoding": "chunked"},
    {"Content-Length": "-1"},
    {"Content-Length": "1e9"},
    {"Expect": "a"},
)


def spoilt(value: Any, dice: random.Random) -> Any:
    """`value` with one thing in it replaced by something nobody expects."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        if (way := dice.random()) < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if way < 0.2:
            return {**value, dice.choice(STRINGS): dice.choice(OTHERS)}
        return {**value, key: spoilt(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.6:
        place = dice.randrange(len(value))
        return [*value[:place], spoilt(value[place], dice), *value[place + 1 :]]
    return dice.choice(STRINGS if dice.random() < 0.6 else OTHERS)


def hostile(count: int, seed: int, token: bool) -> Iterator[tuple[str, str, bytes, dict[str, str]]]:
    """Method, path, body, headers."""
    dice = random.Random(seed)
    may = {"Authorization": f"Bearer {TOKEN}"} if token else {}
    for _ in range(count):
        path = dice.choice(list(BODIES))
        plain = {"Content-Type": "application/json", **may}
        if (way := dice.random()) < 0.8:
            body = BODIES[path]
            for _ in range(dice.choice((1, 1, 2, 3))):
                body = spoilt(body, dice)
            yield "POST", path, json.dumps(body).encode(), plain
        elif way < 0.9:
            yield "POST", path, dice.choice(RAW), plain
        else:
            yield (
                dice.choice(METHODS),
                dice.choice((*PATHS, *BODIES)),
                dice.choice((b"", b"{}")),
                {**plain, **{key: value.encode("latin-1") for key, value in dice.choice(HEADERS).items()}},
            )


def attack(client: TestClient, count: int, seed: int, token: bool = False) -> Counter[int]:
    """How many answers had which status. None is a 500, and every refusal is told in the one form."""
    seen: Counter[int] = Counter()
    for method, path, body, headers in hostile(count, seed, token):
        answer = client.request(method, path, content=body, headers=headers)
        seen[answer.status_code] += 1
        assert answer.status_code < 500, (method, path, body[:300], headers, answer.text)
        if answer.status_code >= 400 and method != "HEAD":
            assert set(answer.json()["error"]) == {"code", "message"}, (method, path, answer.text)
            assert "function-" not in answer.text  # names of the inside
    return seen


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Any) -> Any:
    return DualEncoder(tiny_encoder(pooling="mean", hidden=16))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def real(place: Path, encoder: Any, sentences: list[str]) -> Index:
    return Index.build(
        encoder,
        [
            Passage(f"p/{number}", text, lang="en", metadata={"kind": "sea"})
            for number, text in enumerate(sentences[:3])
        ],
        place / "index",
    )


@pytest.fixture(scope="module")
def served(real: Index) -> Iterator[TestClient]:
    with TestClient(create_app(real, ServeSettings(token=TOKEN, delay=0.0)), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def writable(tmp_path: Path, encoder: Any, sentences: list[str]) -> Iterator[TestClient]:
    """A server of its own, whose index requests with a token change."""
    index = Index.build(encoder, [Passage(f"p{n}", text) for n, text in enumerate(sentences)], tmp_path / "index")
    settings = ServeSettings(token=TOKEN, delay=0.0)
    with TestClient(create_app(index, settings), raise_server_exceptions=False) as client:
        yield client


def files(place: Path) -> dict[str, tuple[int, str]]:
    """Every file: when it was changed, and what is in it."""
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def memory() -> int:
    """Bytes that this process holds, without what was freed: the C library keeps more or less of that."""
    gc.collect()
    return_memory()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_hostile_requests(served: TestClient, place: Path) -> None:
    before = files(place)
    seen = attack(served, 300, seed=1)
    assert files(place) == before
    assert seen[200] > 10  # odd, but possible
    assert seen[401] > 30
    assert seen[422] > 50
    assert served.post("/search", json=BODIES["/search"]).status_code == 200


@pytest.mark.slow
def test_hostile_passages_are_refused_or_kept_as_they_are(served: TestClient, real: Index) -> None:
    may = {"Authorization": f"Bearer {TOKEN}"}
    kept = []
    for number, text in enumerate(one for one in STRINGS if len(one) <= 10_000):
        passage = {
            "id": f"{text[:300]}#{number}",
            "text": f"{text} book",
            "title": text[:100],
            "metadata": {text[:100] or "-": text[:100]},
        }
        answer = served.post(
            "/passages",
            content=json.dumps({"passages": [passage]}),
            headers={**may, "Content-Type": "application/json"},
        )
        assert answer.status_code in (200, 409, 422), answer.text
        if answer.status_code == 200:
            found = real.passage(passage["id"])
            assert (found.text, found.title, dict(found.metadata)) == (
                passage["text"],
                passage["title"],
                passage["metadata"],
            )
            where = {"query": "book", "where": passage["metadata"], "lang": "en"}
            hits = served.post("/search", json=where).json()["hits"]
            assert [hit["id"] for hit in hits] == [passage["id"]]
            kept.append(passage["id"])
    assert len(kept) > 20
    assert real.delete(kept) == len(kept)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/search", "/v1/embeddings", "/rerank", "/info", "/health", "/metrics"])
def test_the_openapi_page_tells_the_truth(served: TestClient, path: str) -> None:
    conform(served, path, 40)


def conform(client: TestClient, path: str, count: int) -> None:
    """Requests that schemathesis makes of the OpenAPI page, good and bad; answers are as the page says."""
    import schemathesis  # here, since the import takes seconds
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    operation = next(iter(schemathesis.openapi.from_dict(client.get("/openapi.json").json())[path].values()))
    wanted = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    statuses: dict[Any, Counter[int]] = {mode: Counter() for mode in schemathesis.GenerationMode}

    def each(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://testserver")
        sent = {"content" if name == "data" else name: value for name, value in sent.items() if name != "cookies"}
        answer = client.request(**sent)
        statuses[mode][answer.status_code] += 1
        case.validate_response(answer, checks=wanted)

    for mode in schemathesis.GenerationMode if operation.body else [schemathesis.GenerationMode.POSITIVE]:
        limits = settings(
            max_examples=count,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        limits(given(case=operation.as_strategy(generation_mode=mode))(each))()
    assert statuses[schemathesis.GenerationMode.POSITIVE][200] > 0


@pytest.mark.slow
def test_hostile_requests_leave_no_trace(
    served: TestClient,
    place: Path,
    writable: TestClient,
    capfd: pytest.CaptureFixture[str],
    drawn: random.Random,
    trials: Callable[..., range],
) -> None:
    reading, writing = len(trials("hostile requests", 200)), len(trials("hostile requests that may write", 50))
    # Of these, a few in a hundred are odd, but possible. How many varies with the seed.
    assert attack(writable, max(500, writing), seed=3, token=True)[200] > 15
    attack(served, reading // 2, seed=2)  # what is kept for later comes with the first
    capfd.readouterr()
    before, held = files(place), memory()
    attack(served, reading, seed=drawn.randrange(1 << 32))
    assert memory() - held < 16 << 20
    attack(writable, writing, seed=drawn.randrange(1 << 32), token=True)
    assert files(place) == before
    # other libraries may say something of their own
    said = capfd.readouterr().err.splitlines()
    assert sum(line.startswith('{"time"') for line in said) == reading + writing
