"""Requests a second of `interlingua serve` for many clients: micro-batching against one request at a time.

    python benchmarks/serve.py --on xquad_en xquad_th                       # a random transformer
    python benchmarks/serve.py --on xquad_en xquad_th --model runs/…/model  # a trained one
    python benchmarks/serve.py --on xquad_en xquad_th --model multilingual-e5-small --precision int8

Two servers over one index, with --max-batch 64 and --max-batch 1, asked in turns by the same clients (threads with an
open connection each, every one asking its next question when it has its answer); and the first of them by one client.
Prints the requests a second, in brackets the server's processor time for one; and how many times as long one at a time
takes, and one client: the median of the rounds' ratios, in brackets the smallest and the largest; elapsed time, and
processor time of the server, which other load hardly changes.

Then half as many requests a second as the first server answered, each due at a time of its own: how long their answers
took from that time on (p50, p99), also where all clients were still waiting then. Meanwhile a process of its own asks
for /health, for which no model is needed, every `BEAT` seconds: how long the event loop let it wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from itertools import count, islice
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from common import Seconds, options, ratio
from interlingua.data.collections import load_collection
from interlingua.index.index import Index
from interlingua.index.metadata import load_to_encode
from interlingua.models.dual import DualEncoder
from interlingua.training.backbones import build_encoder

BEAT = 0.005


class Server(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    port: int

    def processor(self) -> float:
        """Seconds of processor time that it has had."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(index: Path, threads: int, *arguments: str) -> Iterator[Server]:
    """A server over `index`, from its first answer to its end."""
    command = [sys.executable, "-m", "interlingua", "serve", str(index), "--port", "0", *arguments]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
        try:
            while True:
                log.seek(0)
                said = [line for line in log.read().splitlines() if line.startswith("http://")]
                if said:
                    break
                if process.poll() is not None:
                    log.seek(0)
                    sys.exit(log.read())
                time.sleep(0.1)
            log.seek(0, os.SEEK_END)
            yield Server(process, int(said[0].split()[0].rpartition(":")[2]))
        finally:
            process.terminate()
            process.wait()


def answered(connection: HTTPConnection) -> None:
    """Read the answer; end where it is an error."""
    answer = connection.getresponse()
    found = answer.read()
    if answer.status != 200:
        raise SystemExit(found.decode())


def load(server: Server, path: str, bodies: list[dict[str, Any]], clients: int) -> Seconds:
    """The time in which `clients` have asked all of this."""

    def client(number: int) -> None:
        connection = HTTPConnection("127.0.0.1", server.port)
        for body in bodies[number::clients]:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answered(connection)
        connection.close()

    start, busy = time.perf_counter(), server.processor()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return Seconds(time.perf_counter() - start, server.processor() - busy)


def steadily(server: Server, path: str, bodies: list[dict[str, Any]], clients: int, rate: float) -> list[float]:
    """The seconds from the time when each of these is to be sent, `rate` a second, to its answer."""
    start, numbers, waits = time.perf_counter() + 0.1, count(), list[float]()

    def client(_: int) -> None:
        connection = HTTPConnection("127.0.0.1", server.port)
        while (number := next(numbers)) < len(bodies):
            due = start + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.request("POST", path, json.dumps(bodies[number]), {"Content-Type": "application/json"})
            answered(connection)
            waits.append(time.perf_counter() - due)
        connection.close()

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return waits


def beats(port: int, seconds: float) -> list[float]:
    """The seconds that each answer of /health took."""
    connection, waits, end = HTTPConnection("127.0.0.1", port), list[float](), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        connection.request("GET", "/health")
        answered(connection)
        waits.append(time.perf_counter() - start)
        time.sleep(BEAT)
    connection.close()
    return waits


def percentile(values: list[float], share: float) -> float:
    """In milliseconds: the value that this share of `values` does not exceed."""
    return 1e3 * sorted(values)[ceil(share * len(values)) - 1]


def random_model(given: Any, texts: list[str]) -> DualEncoder:
    """A random transformer with a vocabulary of these texts."""
    return DualEncoder(
        build_encoder(
            {
                "scratch": {
                    "vocab_size": 16_000,
                    "layers": given.layers,
                    "hidden": given.hidden,
                    "heads": given.hidden // 32,
                    "intermediate": 4 * given.hidden,
                }
            },
            texts=iter(texts),
            device="cpu",
        )
    )


def main() -> None:
    """Measure."""
    parser = options(__doc__, passages=500, requests=320, clients=16, repeat=3, layers=6, hidden=384)
    parser.add_argument("--on", nargs="+", required=True, metavar="COLLECTION", help="passages and questions")
    parser.add_argument("--model", help="a model folder; without it a random transformer")
    parser.add_argument("--precision", default="float32", help="of the model: float32, int8, bfloat16 or auto")
    given = parser.parse_args()
    collections = [load_collection(one) for one in given.on]
    each = -(-given.passages // len(collections))
    passages = [
        replace(passage, id=f"{one.name}/{passage.id}") for one in collections for passage in islice(one.passages, each)
    ]
    questions = [query.text for one in collections for query in one.queries][:: len(collections)]
    asked = (questions * -(-given.requests // len(questions)))[: given.requests]
    kinds = {"/v1/embeddings": [{"input": text, "input_type": "query"} for text in asked]} | {
        f"/search {mode}": [{"query": text, "mode": mode, "highlight": False} for text in asked]
        for mode in ("dense", "hybrid", "lexical")
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = given.model or str(Path(folder, "model"))
        if not given.model:
            random_model(given, [one.text for one in passages]).save(model)
        encoder: Any = load_to_encode(model, precision=given.precision)
        Index.build(encoder, passages, Path(folder, "index"), model_path=model)
        batched, single = (
            stack.enter_context(running(Path(folder, "index"), given.threads, "--max-batch", size))
            for size in ("64", "1")
        )
        tokens = sum(map(len, getattr(encoder, "query", encoder).tokenize(asked, "query"))) / len(asked)
        print(
            f"{len(passages):,} passages, {tokens:.1f} tokens a question, {len(asked):,} requests of "
            f"{given.clients} clients, {given.threads} threads, {given.repeat} rounds"
        )
        for kind, bodies in kinds.items():
            path = kind.split()[0]
            ways = {
                "together": (batched, given.clients),
                "one at a time": (single, given.clients),
                "one client": (batched, 1),
            }
            found: dict[str, list[Seconds]] = {name: [] for name in ways}
            for number in range(given.repeat + 1):
                for name, (server, clients) in ways.items():
                    taken = load(server, path, bodies, clients)
                    if number:  # the first round warms up
                        found[name].append(taken)
            rates = ", ".join(
                f"{name} {len(asked) / median(one.elapsed for one in taken):.0f}/s "
                f"({1e3 * median(one.processor for one in taken) / len(asked):.1f} ms)"
                for name, taken in found.items()
            )
            print(f"{kind:16} {rates}")
            for name in ("one at a time", "one client"):
                print(f"{'':16} {name} takes {ratio(found[name], found['together'])} times")
            rate = len(asked) / median(one.elapsed for one in found["together"]) / 2
            with ProcessPoolExecutor(1, get_context("spawn")) as probe:
                probe.submit(percentile, [0.0], 0).result()  # it has started
                watched = probe.submit(beats, batched.port, len(asked) * given.repeat / rate)
                waits = steadily(batched, path, bodies * given.repeat, given.clients, rate)
                lags = watched.result()
            print(
                f"{'':16} {rate:.0f} a second: p50 {percentile(waits, 0.5):.1f} ms, p99 {percentile(waits, 0.99):.1f} "
                f"ms; /health p50 {percentile(lags, 0.5):.1f} ms, p99 {percentile(lags, 0.99):.1f} ms, at most "
                f"{percentile(lags, 1):.1f} ms"
            )


if __name__ == "__main__":
    main()
