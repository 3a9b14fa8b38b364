"""Bitext mining against the way LASER mines: FAISS's exact index searched in both directions, then the margins.

    python benchmarks/mine.py
    python benchmarks/mine.py --sentences 20000 --dim 384 --threads 1 --repeat 3

The vectors are random, in clusters, with 2% of planted near-copies. Each way runs in a
process of its own, in turn, on arrays in memory; prints the medians of elapsed and of processor time, the ratios to
ours, and the memory that mining takes beyond the arrays. Stops if the pairs or the scores are not the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from common import options

K = 4
Mined = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def make(folder: Path, sentences: int, dim: int) -> None:
    """Save two sides of as many vectors around shared centres, of which 2% are near-copies of one another."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((max(1, sentences // 50), dim), dtype=np.float32)
    x, y = (
        centres[rng.integers(0, len(centres), sentences)]
        + np.float32(1.2) * rng.standard_normal((sentences, dim), dtype=np.float32)
        for _ in range(2)
    )
    gold = rng.permutation(sentences)[: sentences // 50]
    y[rng.permutation(sentences)[: len(gold)]] = x[gold] + np.float32(0.5) * rng.standard_normal(
        (len(gold), dim), dtype=np.float32
    )
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


def ours(x: NDArray[np.float32], y: NDArray[np.float32], threads: int) -> Callable[[], Mined]:
    """`mine_bitext`."""
    import torch

    from interlingua.alignment import mine_bitext

    torch.set_num_threads(threads)

    def mine() -> Mined:
        found = mine_bitext(x, y, K, device="cpu")
        return found.x, found.y, found.scores

    return mine


def laser_style(x: NDArray[np.float32], y: NDArray[np.float32], threads: int) -> Callable[[], Mined]:
    """Two exact FAISS searches, ratio margins of the neighbours (all at once here), the best of each, one to one."""
    import faiss

    faiss.omp_set_num_threads(threads)

    def search(questions: NDArray[np.float32], answers: NDArray[np.float32]) -> tuple[NDArray, NDArray]:
        index = faiss.IndexFlatIP(answers.shape[1])
        index.add(answers)
        return index.search(questions, K)

    def mine() -> Mined:
        sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y)]
        of_x, near_x = search(sides[0], sides[1])
        of_y, near_y = search(sides[1], sides[0])
        mean_x, mean_y = of_x.mean(axis=1), of_y.mean(axis=1)
        score_x = of_x / ((mean_x[:, None] + mean_y[near_x]) / 2)
        score_y = of_y / ((mean_y[:, None] + mean_x[near_y]) / 2)
        rows_x, rows_y = np.arange(len(x)), np.arange(len(y))
        best_x, best_y = score_x.argmax(axis=1), score_y.argmax(axis=1)
        left = np.concatenate([rows_x, near_y[rows_y, best_y]])
        right = np.concatenate([near_x[rows_x, best_x], rows_y])
        scores = np.concatenate([score_x[rows_x, best_x], score_y[rows_y, best_y]])
        taken_x, taken_y, kept = set(), set(), []
        for place in np.argsort(-scores):
            i, j = int(left[place]), int(right[place])
            if i not in taken_x and j not in taken_y:
                taken_x.add(i)
                taken_y.add(j)
                kept.append(place)
        return left[kept], right[kept], scores[kept]

    return mine


WAYS = {"interlingua": ours, "laser-style": laser_style}


def one(way: str, folder: Path, threads: int) -> None:
    """Measure one way in this process and leave what it found in `folder`."""
    x, y = (np.load(folder / f"{side}.npy", allow_pickle=False) for side in "xy")
    mine = WAYS[way](x, y, threads)
    small = WAYS[way](x[:200], y[:200], threads)
    small()  # whatever is loaded or tuned at the first call
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, used = time.perf_counter(), time.process_time()
    found = mine()
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for name, column in zip(("x", "y", "scores"), found, strict=True):
        np.save(folder / f"{way}.{name}.npy", column)
    print(json.dumps({"seconds": seconds, "processor": processor, "MiB": memory / 1024}))


def compare(folder: Path) -> tuple[int, int, float]:
    """Pairs of ours, pairs that only one way has, and the largest difference between the scores of the same pair."""
    mined = []
    for way in WAYS:
        i, j, scores = (np.load(folder / f"{way}.{name}.npy", allow_pickle=False) for name in ("x", "y", "scores"))
        mined.append(dict(zip(zip(i.tolist(), j.tolist(), strict=True), scores.tolist(), strict=True)))
    both = mined[0].keys() & mined[1].keys()
    return len(mined[0]), len(mined[0].keys() ^ mined[1].keys()), max(abs(mined[0][p] - mined[1][p]) for p in both)


def main() -> None:
    """Measure."""
    parser = options(__doc__, sentences=100_000, dim=384, repeat=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        way, place = given.one[0], Path(given.one[1])
        if way == "make":
            make(place, given.sentences, given.dim)
        else:
            one(way, place, given.threads)
        return
    with tempfile.TemporaryDirectory() as folder:

        def child(way: str) -> bytes:
            """Not here, since a new process starts with its parent's peak of memory (Linux)."""
            numbers = [f"--{name}={getattr(given, name)}" for name in ("sentences", "dim", "threads")]
            return subprocess.run(
                [sys.executable, __file__, *numbers, "--one", way, folder], check=True, stdout=subprocess.PIPE
            ).stdout

        child("make")
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(given.repeat):
            for way in WAYS:
                runs[way].append(json.loads(child(way)))
        pairs, only_one, difference = compare(Path(folder))
    print(
        f"{given.sentences:,} x {given.sentences:,} sentences x {given.dim}, k = {K}, ratio, max, "
        f"{given.threads} thread(s); median of {given.repeat}"
    )
    middle = {way: {key: median(run[key] for run in found) for key in found[0]} for way, found in runs.items()}
    for way, values in middle.items():
        ratios = [values[key] / middle["interlingua"][key] for key in ("seconds", "processor")]
        print(
            f"{way:12} {values['seconds']:8.2f} s (x{ratios[0]:.2f})   processor {values['processor']:8.2f} s "
            f"(x{ratios[1]:.2f})   memory {values['MiB']:,.0f} MiB"
        )
    print(f"{pairs:,} pairs, of which {only_one} in one way only; scores differ by {difference:.1g} at most")
    # two margins may lie closer than float32 rounds: then either is right
    assert only_one <= 2 + pairs // 5_000, "the pairs are not the same"
    assert difference < 1e-5, "the scores are not the same"


if __name__ == "__main__":
    main()
