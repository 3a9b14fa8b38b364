"""Exact against approximate dense search: time of a question and what is found, by the number of passages.

    python benchmarks/approximate.py --parallel "DATA/train/parallel/*.tsv.gz" --passages 100000 300000 600000

Sentences of both sides of parallel text, encoded by the bundled model (--model), are put into an index with their
vectors alone; 200 of them, cut to their first eight words, are the questions. Prints the median and the 95th
percentile of the time of one question in milliseconds, and of approximate search the share of the exact 10 and 100
best that it finds, and how long its index takes to make.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from index import passages

QUESTIONS, WORDS, DEPTH = 200, 8, 100


def timed(near: Any, snapshot: Any, queries: Any) -> tuple[list[dict[Any, float]], np.ndarray[Any, Any]]:
    """The results of `near` for each question, and the milliseconds it takes."""
    found, times = [], []
    for query in queries:
        start = time.perf_counter()
        found += near(snapshot, query[None], DEPTH, [None] * len(snapshot.segments))
        times.append(1000 * (time.perf_counter() - start))
    return found, np.array(times)


def share(found: Sequence[dict[Any, float]], exact: Sequence[dict[Any, float]], depth: int) -> float:
    """The share of the exact `depth` best that were found."""

    def best(scores: dict[Any, float]) -> set[Any]:
        return set(sorted(scores, key=lambda place: -scores[place])[:depth])

    return float(np.mean([len(best(one) & best(other)) / depth for one, other in zip(found, exact, strict=True)]))


def one(encoder: Any, texts: list[str], vectors: Any, queries: Any) -> dict[str, Any]:
    """One size."""
    from interlingua.data.records import Passage
    from interlingua.index.local.caches import write_cache
    from interlingua.index.local.rows import to_rows
    from interlingua.index.local.search import approximately, exactly
    from interlingua.index.local.snapshot import Snapshot
    from interlingua.index.local.table import PassageTable

    with TemporaryDirectory() as name:
        folder = Path(name)
        store = PassageTable.create(folder, vectors.shape[1])
        for start in range(0, len(texts), 50_000):
            rows = to_rows([Passage(str(number), "x") for number in range(start, min(start + 50_000, len(texts)))])
            store.add(store.batch(store.next_number(), rows, vectors[start : start + 50_000]))
        store.compact()
        start_time = time.perf_counter()
        store.index_vectors(True)
        made = time.perf_counter() - start_time
        write_cache(store, folder)
        snapshot = Snapshot.take(store, folder)
        for near in (exactly, approximately(store)):  # both have read their files
            timed(near, snapshot, queries[:10])
        exact, slow = timed(exactly, snapshot, queries)
        found, quick = timed(approximately(store), snapshot, queries)
    return {
        "passages": f"{len(texts):,}",
        "exact p50": np.median(slow),
        "p95": np.quantile(slow, 0.95),
        "approximate p50": np.median(quick),
        "its p95": np.quantile(quick, 0.95),
        "of the best 10": share(found, exact, 10),
        "of the best 100": share(found, exact, DEPTH),
        "made in s": made,
    }


def main() -> None:
    """Encode the most, then measure each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--parallel", required=True, help="files of sentence pairs, a glob")
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000, 300_000, 600_000])
    arguments = parser.parse_args()
    from tabulate import tabulate

    from interlingua.models.late_interaction import load_any

    encoder = load_any(arguments.model)
    texts = [passage.text for passage in passages(sorted(glob(arguments.parallel)), max(arguments.passages))]
    vectors = encoder.encode_document(texts)
    random = np.random.default_rng(0)
    rows = []
    for count in arguments.passages:
        chosen = random.choice(min(count, len(texts)), QUESTIONS, replace=False)
        queries = encoder.encode_query([" ".join(texts[row].split()[:WORDS]) for row in chosen])
        rows.append(one(encoder, texts[:count], vectors[:count], queries))
    print(tabulate(rows, headers="keys", floatfmt=",.3g"))


if __name__ == "__main__":
    main()
