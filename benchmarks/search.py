"""Exact search in int8 and in float32 against a plain product with topk, and against tuned FAISS where it is installed.

    python benchmarks/search.py --passages 1000000                     # random vectors
    python benchmarks/search.py --model runs/…/model --file texts.txt  # those of a trained model, one text a line

Prints how many times as long as int8 search each took: the median of the rounds' ratios, in brackets the smallest and
the largest, elapsed and processor time. Rounds interleave the ways, so that other load meets all alike. Says whether
int8 search found exactly what float32 search finds, and how far FAISS's top k agrees.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice, product
from statistics import median

import numpy as np
import torch

from common import in_turn, options, ratio
from interlingua.files import read_lines
from interlingua.models.dual import DualEncoder
from interlingua.retrieval import search_exact
from interlingua.retrieval.dense.int8 import Int8Matrix, kernel
from machine import say_least

Way = Callable[[], tuple[np.ndarray, np.ndarray]]


def plain(queries: torch.Tensor, passages: torch.Tensor, k: int) -> Way:
    """One product with all passages, then topk: what most code does. Ties fall as they may."""

    def way() -> tuple[np.ndarray, np.ndarray]:
        best = (queries @ passages.T).topk(k, dim=1)
        return best.indices.cpu().numpy(), best.values.cpu().numpy()

    return way


def faiss_flat(queries: np.ndarray, passages: np.ndarray, k: int) -> Way | None:
    """FAISS's exact index at the fastest of several settings, or None without FAISS (`pip install faiss-cpu`)."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(passages.shape[1])
    index.add(passages)

    def way(least: int, block: int) -> Way:
        def search() -> tuple[np.ndarray, np.ndarray]:
            faiss.cvar.distance_compute_blas_threshold, faiss.cvar.distance_compute_blas_database_bs = least, block
            scores, indices = index.search(queries, k)
            return indices, scores

        return search

    # with BLAS and without, in blocks of several sizes
    ways = {(least, block): way(least, block) for least, block in product((1, 1 << 30), (1024, 4096, 16_384))}
    times = {name: median(s.processor for s in taken[1:]) for name, taken in in_turn(ways, 3).items()}
    best = min(times, key=lambda name: times[name])
    print(f"      FAISS at BLAS from {best[0]:,} queries, blocks of {best[1]:,}: the fastest of {len(ways)} settings")
    return ways[best]


def encoded(model: str, file: str, passages: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the first texts of `file` as questions, and of the others as passages; at unit length."""
    texts = [line for _, line in islice(read_lines(file), passages + queries)]
    encoder = DualEncoder.load(model, device="cpu")
    sides = (encoder.encode_query(texts[:queries]), encoder.encode_document(texts[queries:]))
    return tuple(side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)


def main() -> None:
    """Measure."""
    parser = options(__doc__, passages=200_000, dim=384, k=10, repeat=5)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 64], help="default: 1 64")
    parser.add_argument("--device", default="cpu", help="of float32 search and of the plain product")
    parser.add_argument("--model", help="a trained model, with --file")
    parser.add_argument("--file", help="texts to encode, one a line")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rng = np.random.default_rng(0)
    if given.model:
        asked, passages = encoded(given.model, given.file, given.passages, max(given.queries))
    else:
        asked, passages = (
            rng.standard_normal((n, given.dim), dtype=np.float32) for n in (max(given.queries), given.passages)
        )
    start = time.process_time()
    matrix = Int8Matrix.build(passages)
    print(
        f"{len(passages):,} passages x {passages.shape[1]}, top {given.k}, {torch.get_num_threads()} threads, "
        f"{given.repeat} rounds; as int8 in {time.process_time() - start:.1f} s of processor time"
    )
    there = torch.from_numpy(passages).to(given.device)
    for count in given.queries:
        queries = asked[:count]
        on_device = torch.from_numpy(queries).to(given.device)
        ways: dict[str, Way] = {
            "int8": lambda q=queries: matrix.search(q, passages, given.k),
            "float32": lambda q=on_device: search_exact(q, there, given.k),
            "plain": plain(on_device, there, given.k),
        }
        print(f"{count:5} queries")
        if faiss := faiss_flat(queries, passages, given.k):
            ways["FAISS"] = faiss
        found = {name: way() for name, way in ways.items()}  # warms up
        matrix.counts.clear()
        times = in_turn(ways, given.repeat)
        for name, taken in times.items():
            print(
                f"      {name:8} {median(s.elapsed for s in taken) * 1e3:8.1f} ms, processor "
                f"{median(s.processor for s in taken) * 1e3:8.1f} ms; / int8: {ratio(taken, times['int8'])}"
            )
            if name == "int8" and (compiled := kernel()) is not None and compiled.BYTES:
                read, products = matrix.packed.nbytes + 16 * len(passages), passages.size * count
                say_least(min(one.elapsed for one in taken), read, products, whole=True)
        same = all((a == b).all() for a, b in zip(found["int8"], found["float32"], strict=True))
        print(
            f"      int8 = float32, indices and bits of scores: {same}; rescored "
            f"{matrix.counts['rescored'] // given.repeat:,} rows, {matrix.counts['float32']} queries left to float32"
        )
        if faiss:
            pairs = zip(found["int8"][0].tolist(), found["FAISS"][0].tolist(), strict=True)
            alike = [len({*ours} & {*theirs}) / len(ours) for ours, theirs in pairs]
            print(
                f"      top {given.k} in common with FAISS: {sum(alike) / len(alike):.4f}, scores within "
                f"{np.abs(found['int8'][1] - found['FAISS'][1]).max():.1e}"
            )


if __name__ == "__main__":
    main()
