"""A server under load: right answers and flat memory with many clients, an orderly end whenever it is asked to stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server: .venv/bin/pip install -e '.[serve]'")

from interlingua import Encoder, Index, load_collection
from interlingua.data.passages import read_sources
from interlingua.data.records import Passage

pytestmark = pytest.mark.slow
CLIENTS = 64
LANGUAGES = ("en", "ar", "fi", "ja", "sw", "th")
TOKEN = "a-token-for-writing"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encyclopedia in six languages."""
    path = tmp_path_factory.mktemp("load") / "idx"
    passages = read_sources([f"encyclopedia:{lang}" for lang in LANGUAGES])
    Index.build(Encoder.load("default"), passages, path, model_path="default").close()
    return path


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    return [
        {"query": query.text, "lang": lang, "k": 5, "highlight": number % 4 == 0, "mode": mode}
        for lang in LANGUAGES
        for number, query in enumerate(load_collection(f"encyclopedia:{lang}").queries[:8])
        for mode in ("hybrid", "dense", "lexical")
    ]


def ask(connection: HTTPConnection, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def hits(answer: tuple[int, Any]) -> tuple[list[str], list[float]]:
    """The passages of an answer, and their scores."""
    status, body = answer
    assert status == 200, body
    return [hit["id"] for hit in body["hits"]], [hit["score"] for hit in body["hits"]]


def alike(found: tuple[list[str], list[float]], expected: tuple[list[str], list[float]]) -> bool:
    """Whether two answers are one: a batch's product differs from that of one question in its last digits, so that two
    neighbours of nearly one score may be swapped."""
    ids, scores = expected
    return found[1] == pytest.approx(scores, abs=1e-5) and all(
        any(other == id for other, near in zip(ids, scores, strict=True) if abs(near - score) < 1e-5)
        or score < scores[-1] + 1e-5
        for id, score in zip(*found, strict=True)
    )


def memory(process: Any) -> int:
    """Bytes that a process holds."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def drained(stream: Iterable[str]) -> tuple[threading.Thread, list[str]]:
    """What a process says: it would wait for a reader."""
    said: list[str] = []
    thread = threading.Thread(target=said.extend, args=(stream,))
    thread.start()
    return thread, said


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, which tells what memory is held")
def test_many_clients_are_answered_as_one_is_and_memory_stays_flat(
    running: Callable[..., Any],
    place: Path,
    questions: list[dict[str, Any]],
    drawn: Random,
    trials: Callable[..., range],
) -> None:
    requests = len(trials(f"requests of {CLIENTS} clients", 600))
    with running("-m", "interlingua", "serve", str(place), "--port", "0") as (process, port):
        reading, said = drained(process.stderr)
        single = HTTPConnection("127.0.0.1", port, timeout=60)
        expected = [hits(ask(single, "/search", question)) for question in questions]

        def client(seed: int, share: int) -> None:
            mine, connection = Random(seed), HTTPConnection("127.0.0.1", port, timeout=60)
            for _ in range(share):
                number = mine.randrange(len(questions))
                found = hits(ask(connection, "/search", questions[number]))
                assert alike(found, expected[number]), (questions[number], found, expected[number])
            connection.close()

        with ThreadPoolExecutor(CLIENTS) as clients:

            def send(total: int) -> int:
                seeds = [drawn.randrange(1 << 32) for _ in range(CLIENTS)]
                list(clients.map(client, seeds, [-(-total // CLIENTS)] * CLIENTS))
                return memory(process)

            held = send(2_000)  # what is kept for later comes with the first
            assert send(requests) < held * 1.05
        single.close()
        process.terminate()
        process.process.join(60)
        reading.join(60)
    assert process.returncode == 0
    assert sum('"status": 200' in line for line in said) >= requests
    assert not [line for line in said if "Traceback" in line]


def until_it_stops(
    port: int, writes: bool, names: Iterator[int], acknowledged: set[str], go: Callable[[], Any]
) -> None:
    """A client that writes or searches until the server has stopped. `go` is called after each write."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    while True:
        name = f"n{next(names)}"
        request = ("/search", {"query": "who wrote the book?", "lang": "en"})
        if writes:
            request = ("/passages", {"passages": [{"id": name, "text": f"A passage called {name}.", "lang": "en"}]})
        try:
            status, answer = ask(connection, *request, Authorization=f"Bearer {TOKEN}")
        except (OSError, HTTPException):
            return
        if status == 503:  # it is stopping
            return
        assert status == 200, answer
        if writes:
            acknowledged.add(name)
            go()


def test_it_is_stopped_while_it_is_searched_and_written(
    running: Callable[..., Any],
    tiny_static: Callable[..., Any],
    sentences: list[str],
    tmp_path: Path,
    drawn: Random,
    trials: Callable[..., range],
) -> None:
    """Each write that was acknowledged is there, none that was not, and each answer is whole."""
    model = tmp_path / "model"
    tiny_static().save(model)
    encoder = Encoder.load(model)
    for trial in trials("stops of a server under load"):
        path = tmp_path / f"{trial}"
        Index.build(encoder, [Passage("first", sentences[0], lang="en")], path, model_path=str(model)).close()
        acknowledged: set[str] = set()
        left = threading.Semaphore(0)
        command = ["-m", "interlingua", "serve", str(path), "--port", "0"]
        with running(*command, INTERLINGUA_TOKEN=TOKEN) as (process, port):
            reading, said = drained(process.stderr)
            with ThreadPoolExecutor(12) as clients:
                shared = (count(), acknowledged, left.release)
                ends = [clients.submit(until_it_stops, port, number < 6, *shared) for number in range(12)]
                for _ in range(drawn.randrange(1, 40)):
                    assert left.acquire(timeout=120)
                process.terminate()
                for end in ends:
                    end.result(120)
            process.process.join(60)
            reading.join(60)
        assert process.returncode == 0, said
        assert said[-1] == "stopped.\n"
        index = Index.open(path, encoder)
        held = {hit.passage.id for hit in index.search("passage", 10_000, mode="dense")}
        assert held == acknowledged | {"first"}
        index.close()
