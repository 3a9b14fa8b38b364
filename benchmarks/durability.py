"""The cost of writes that a power cut cannot undo: durability full against process.

    python benchmarks/durability.py --sizes 1 100 10000 --repeat 3

Two copies of an index of synthetic passages, with vectors that cost nothing to compute, take the same `Index.add` of
each size in turns; then two servers over two more, with the bundled model, take the same writes of one passage by 1 and
by 16 clients. Prints for both the median time of an add and the writes a second, and how many times as long "full"
takes: the median of the rounds' ratios, in brackets the smallest and the largest. The disk is that of --folder;
--requests 0 leaves the servers out.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from common import Seconds, in_turn, options, ratio
from interlingua.data.records import Passage
from interlingua.index.index import Index
from interlingua.models.dual import DualEncoder
from serve import Server, running

WAYS = ("full", "process")
TOKEN = "a-token-of-the-benchmark"


class Noise:
    """Vectors of a normal distribution."""

    similarity = "dot"

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Random vectors of questions, the same at each call, as the model's fingerprint is made from them."""
        return np.random.default_rng(0).standard_normal((len(sentences), self.dim), np.float32)

    encode_document = encode_query


def passages(first: int, count: int) -> list[Passage]:
    """Some passages of thirty words."""
    words = [f"word{number}" for number in range(5_000)]
    return [
        Passage(f"p{number}", " ".join(np.random.default_rng(number).choice(words, 30)), "", "en")
        for number in range(first, first + count)
    ]


def adds(folder: Path, sizes: list[int], held: int, repeat: int, dim: int) -> None:
    """`Index.add` of each size."""
    Index.build(Noise(dim), passages(0, held), folder / "idx")
    for way in WAYS:
        shutil.copytree(folder / "idx", folder / way)
    indexes = {way: Index.open(folder / way, Noise(dim), durability=way) for way in WAYS}
    first = held
    for size in sizes:
        found: dict[str, list[Seconds]] = {way: [] for way in WAYS}
        for number in range(repeat + 1):
            new = passages(first, size)
            for way, taken in in_turn({way: partial(indexes[way].add, new) for way in WAYS}, 1).items():
                found[way] += taken if number else []  # the first round warms up
            first += size
        times = ", ".join(f"{way} {1000 * median(one.elapsed for one in taken):.1f} ms" for way, taken in found.items())
        print(f"add {size:>6,}  {times}; full takes {ratio(found['full'], found['process'])} times", flush=True)


def written(server: Server, first: int, count: int, clients: int) -> Seconds:
    """The time in which `clients` have each had their writes of one passage acknowledged, `count` in all."""
    bodies = [
        json.dumps({"passages": [{"id": one.id, "text": one.text, "lang": "en"}]}) for one in passages(first, count)
    ]

    def client(number: int) -> None:
        connection = HTTPConnection("127.0.0.1", server.port)
        for body in bodies[number::clients]:
            connection.request(
                "POST", "/passages", body, {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
            )
            answer = connection.getresponse()
            if (said := answer.read()) and answer.status != 200:
                raise SystemExit(said.decode())
        connection.close()

    start, busy = time.perf_counter(), server.processor()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    return Seconds(time.perf_counter() - start, server.processor() - busy)


def requests(folder: Path, held: int, count: int, repeat: int, threads: int) -> None:
    """HTTP writes of one passage."""
    os.environ["INTERLINGUA_TOKEN"] = TOKEN
    Index.build(DualEncoder.load("default"), passages(0, held), folder / "served", model_path="default")
    first = held
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for way in WAYS:
            shutil.copytree(folder / "served", folder / f"served-{way}")
            servers[way] = stack.enter_context(running(folder / f"served-{way}", threads, "--durability", way))
        for clients in (1, 16):
            found: dict[str, list[Seconds]] = {way: [] for way in WAYS}
            for number in range(repeat + 1):
                for way, server in servers.items():
                    taken = written(server, first, count, clients)
                    found[way] += [taken] if number else []
                first += count
            rates = ", ".join(
                f"{way} {count / median(one.elapsed for one in taken):.0f}/s" for way, taken in found.items()
            )
            cost = ratio(found["full"], found["process"])
            print(f"{clients:>2} clients  {rates}; full takes {cost} times", flush=True)


def main() -> None:
    """Measure."""
    parser = options(__doc__, held=10_000, dim=384, requests=64, repeat=3)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 100, 10_000], help="passages of an add")
    parser.add_argument("--folder", help="on the disk to measure; without it where temporary files are")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        adds(Path(folder), given.sizes, given.held, given.repeat, given.dim)
        if given.requests:
            requests(Path(folder), given.held, given.requests, given.repeat, given.threads)


if __name__ == "__main__":
    main()
