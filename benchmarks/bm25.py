"""BM25 against bare bm25s with the same terms: indexing and searching.

    python benchmarks/bm25.py
    python benchmarks/bm25.py --passages 200000 --queries 1000 --repeat 5

Passages are made of words drawn by Zipf's law; the analyzer only splits them, and so does the peer. Both search with
bm25s's numba kernel, compiled before a round counts. Ours also sorts equal scores by id, where the cut goes through a
tie too, and gives a Run of ids. The rounds run in turn; a ratio is the median of the rounds' ratios, ours / bare. Stops
if the scores are not the same.
"""

from __future__ import annotations

from typing import Any

import bm25s
import numpy as np

from common import in_turn, options, ratio
from interlingua.data.records import Passage, Query
from interlingua.retrieval.bm25 import bm25 as bm25_engine
from interlingua.retrieval.bm25.bm25 import BM25, K1, B

WORDS = 300_000


def texts(count: int, shortest: int, longest: int, rng: np.random.Generator) -> list[str]:
    """Texts of random words: the word of rank r is drawn with probability about 1 / (r + 3)."""
    lengths = rng.integers(shortest, longest + 1, count)
    chances = 1 / (np.arange(WORDS) + 3.0)
    words = rng.choice(WORDS, lengths.sum(), p=chances / chances.sum())
    names = np.char.add("w", words.astype(str)).tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(names[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def main() -> None:
    """Measure."""
    given = options(__doc__, passages=200_000, queries=500, depth=100, repeat=5).parse_args()
    rng = np.random.default_rng(0)
    passages = [Passage(f"p{i}", text, lang="en") for i, text in enumerate(texts(given.passages, 30, 110, rng))]
    queries = [Query(f"q{i}", text, "en") for i, text in enumerate(texts(given.queries, 4, 10, rng))]
    bm25_engine.WORTH_COMPILING = 0
    made: dict[str, Any] = {}

    def ours() -> None:
        made["ours"] = BM25.build(passages, analyzer="whitespace")

    def bare() -> None:
        made["bare"] = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numba")
        made["bare"].index([passage.text.split() for passage in passages], show_progress=False)

    indexing = in_turn({"interlingua": ours, "bm25s": bare}, given.repeat)

    def find() -> None:
        made["run"] = made["ours"].search(queries, given.depth)

    def bare_find() -> None:
        asked = [query.text.split() for query in queries]
        made["found"] = made["bare"].retrieve(asked, k=given.depth, show_progress=False)

    searching = in_turn({"interlingua": find, "bm25s": bare_find}, given.repeat + 1)
    print(f"{given.passages:,} passages, {given.queries:,} queries, depth {given.depth}, one thread")
    warm = {name: rounds[1:] for name, rounds in searching.items()}
    for what, taken in (("indexing", indexing), ("searching", warm)):
        best = {name: min(seconds.elapsed for seconds in rounds) for name, rounds in taken.items()}
        print(
            f"{what:10} {', '.join(f'{name} {seconds:.2f} s' for name, seconds in best.items())}; "
            f"ours / bare: {ratio(taken['interlingua'], taken['bm25s'])}"
        )
    for query, scores in zip(queries, made["found"].scores, strict=True):
        mine = [score for _, score in made["run"][query.id]]
        assert np.allclose(mine, scores[scores > 0], rtol=1e-5), "the scores are not the same"


if __name__ == "__main__":
    main()
