"""Exact search against a plain product with topk, and against FAISS where it is installed.

    PYTHONPATH=src python benchmarks/search.py [--passages 200000] [--dim 384] [--k 100] [--device cpu|cuda]

Prints the median time of each, measured in turn so that other load meets all alike, and the ratio to ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from interlingua.retrieval import search_exact


def plain(queries: torch.Tensor, passages: torch.Tensor, k: int) -> Callable[[], object]:
    """One product with all passages, then topk: what most code does. Ties fall as they may."""
    return lambda: tuple(part.cpu() for part in (queries @ passages.T).topk(k, dim=1))


def faiss_flat(queries: np.ndarray, passages: np.ndarray, k: int) -> Callable[[], object] | None:
    """FAISS's exact index, or None without FAISS (`pip install faiss-cpu`)."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(passages.shape[1])
    index.add(passages)
    return lambda: index.search(queries, k)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    passages = rng.standard_normal((options.passages, options.dim), dtype=np.float32)
    there = torch.from_numpy(passages).to(options.device)
    print(f"{options.passages:,} passages x {options.dim}, top {options.k}, {options.device}, "
          f"{torch.get_num_threads()} threads; median of {options.repeat}")
    for count in (1, 64, 1024):
        queries = rng.standard_normal((count, options.dim), dtype=np.float32)
        asked = torch.from_numpy(queries).to(options.device)
        ways: dict[str, Callable[[], object] | None] = {
            "interlingua": lambda q=asked: search_exact(q, there, options.k),
            "torch": plain(asked, there, options.k),
            "faiss": faiss_flat(queries, passages, options.k) if options.device == "cpu" else None,
        }
        times: dict[str, list[float]] = {name: [] for name, way in ways.items() if way}
        for _ in range(options.repeat + 1):
            for name in times:
                start = time.perf_counter()
                ways[name]()  # type: ignore[misc]
                times[name].append(time.perf_counter() - start)
        ours = median(times["interlingua"][1:])
        cells = [f"{name} {median(found[1:]) * 1e3:.1f} ms (x{median(found[1:]) / ours:.2f})"
                 for name, found in times.items()]
        print(f"{count:5} queries: {', '.join(cells)}")


if __name__ == "__main__":
    main()
