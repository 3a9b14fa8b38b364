"""BM25's parameters, chosen on a development set by trying a grid of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.progress import track
from interlingua.retrieval.bm25 import BM25, K1, B
from interlingua.retrieval.run import Run

K1_GRID = tuple(step / 10 for step in range(1, 17))
B_GRID = tuple(step / 10 for step in range(1, 11))


@dataclass(frozen=True)
class Tuned:
    """`bm25` has the best parameters; `grid` holds what `metric` gave for each (k1, b), in the order tried."""

    bm25: BM25
    grid: dict[tuple[float, float], float]

    @property
    def best(self) -> tuple[float, float]:
        """k1 and b."""
        return self.bm25.k1, self.bm25.b

    @property
    def value(self) -> float:
        """What `metric` gave for the best."""
        return self.grid[self.best]


def tune_bm25(
    passages: Iterable[Passage], queries: Sequence[Query], metric: Callable[[Run], float], *,
    k1: Sequence[float] = K1_GRID, b: Sequence[float] = B_GRID, depth: int = 100, analyzer: str | None = None,
) -> Tuned:
    """Search `queries` with every k1 and b, and keep the pair for whose run `metric` is highest.

    `metric` takes a run of `depth` passages a query, for example `lambda run: evaluate(run, qrels, ["RR@100"])
    ["RR@100"]`. Passages are analysed once. Between equal values the pair nearest Lucene's (0.9, 0.4) wins. Use the
    development queries: tuned on the test queries, a number says nothing.
    Raises InterlinguaError for no queries, an empty grid, and what `BM25.build` raises it for.
    """
    if not queries or not k1 or not b:
        raise InterlinguaError(f"{len(queries)} queries, {len(k1)} values of k1, {len(b)} of b: to tune needs some of "
                               "each.")
    first = BM25.build(passages, k1=k1[0], b=b[0], analyzer=analyzer)
    pairs = [(float(one), float(other)) for one in k1 for other in b]
    grid = {pair: metric(first.weighted(*pair).search(queries, depth)) for pair in track(pairs, "tune k1 and b")}
    best = max(pairs, key=lambda pair: (grid[pair], -(abs(pair[0] - K1) + abs(pair[1] - B))))
    return Tuned(first.weighted(*best), grid)
