"""Exact search against a plain product with topk, and against FAISS where it is installed.

    python benchmarks/search.py --passages 200000 --device cpu

Prints the median time of each, measured in turn so that other load meets all alike, and the ratio to ours.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from common import in_turn, options
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
    parser = options(__doc__, passages=200_000, dim=384, k=100, repeat=5)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rng = np.random.default_rng(0)
    passages = rng.standard_normal((given.passages, given.dim), dtype=np.float32)
    there = torch.from_numpy(passages).to(given.device)
    print(f"{given.passages:,} passages x {given.dim}, top {given.k}, {given.device}, "
          f"{torch.get_num_threads()} threads; median of {given.repeat}")
    for count in (1, 64, 1024):
        queries = rng.standard_normal((count, given.dim), dtype=np.float32)
        asked = torch.from_numpy(queries).to(given.device)
        ways = {"interlingua": lambda q=asked: search_exact(q, there, given.k), "torch": plain(asked, there, given.k)}
        if given.device == "cpu" and (faiss := faiss_flat(queries, passages, given.k)):
            ways["faiss"] = faiss
        times = {name: median(seconds.elapsed for seconds in taken[1:])  # the first round warms up
                 for name, taken in in_turn(ways, given.repeat + 1).items()}
        cells = [f"{name} {taken * 1e3:.1f} ms (x{taken / times['interlingua']:.2f})" for name, taken in times.items()]
        print(f"{count:5} queries: {', '.join(cells)}")


if __name__ == "__main__":
    main()
