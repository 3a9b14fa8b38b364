"""BM25 against bare bm25s with the same terms: indexing and searching.

    python benchmarks/bm25.py
    python benchmarks/bm25.py --passages 200000 --queries 1000 --repeat 5
    python benchmarks/bm25.py --passages 2000000 --sentences DATA/train/parallel*/*.tsv.gz

Passages are made of words drawn by Zipf's law; the analyzer only splits them, and so does the peer. The peer searches
with its numba kernel, ours with its own; both are compiled before a round counts. Ours also sorts equal scores by id,
where the cut goes through a tie too, and gives a Run, which names the passages when it is read; the peer gives their
places. The rounds run in turn; a ratio is the median of the rounds' ratios, ours / bare. Stops if the scores are not
the same.

With --sentences passages are the distinct sentences of pairs of languages (xx-yy.tsv.gz), cut by the analyzers of their
languages, and questions are ten words of other sentences, one at a time. The peer has the same postings and weights
(its `index` would take much longer), and only its search is timed. An index computes the weights of the postings that
it reads, as its passages change: "counts" is its search, "by NumPy" the same without numba. Printed is how long one
question takes.
"""

from __future__ import annotations

import gzip
import resource
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from common import in_turn, options, ratio
from interlingua.data.records import Passage, Query
from interlingua.retrieval.bm25 import search as bm25_search
from interlingua.retrieval.bm25.bm25 import BM25, K1, B
from interlingua.retrieval.bm25.postings import inverse_frequency, length_norms

WORDS = 300_000
WORDS_ASKED = 10


def texts(count: int, shortest: int, longest: int, rng: np.random.Generator) -> list[str]:
    """Texts of random words: the word of rank r is drawn with probability about 1 / (r + 3)."""
    lengths = rng.integers(shortest, longest + 1, count)
    chances = 1 / (np.arange(WORDS) + 3.0)
    words = rng.choice(WORDS, lengths.sum(), p=chances / chances.sum())
    names = np.char.add("w", words.astype(str)).tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(names[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def sentences(files: Sequence[Path]) -> Iterator[Passage]:
    """The distinct sentences of files of pairs, one from each file in turn."""
    seen = set[tuple[str, str]]()
    with ExitStack() as held:
        pairs = [held.enter_context(gzip.open(file, "rt", encoding="utf-8")) for file in files]
        langs = [file.name.split(".")[0].split("-") for file in files]
        for lines in zip_longest(*pairs, fillvalue=""):
            for two, line in zip(langs, lines, strict=True):
                for lang, text in zip(two, line.rstrip("\n").split("\t"), strict=False):
                    if text.strip() and (lang, text) not in seen:
                        seen.add((lang, text))
                        yield Passage(str(len(seen)), text, lang=lang)


def one_at_a_time(texts: Iterator[Passage], given: Namespace) -> None:
    """Build BM25 of sentences, and print how long a question takes."""
    asked: list[Query] = []
    passages: list[Passage] = []
    for passage in texts:
        words = passage.text.split()
        if len(words) >= WORDS_ASKED and len(asked) < given.queries:
            asked.append(Query(passage.id, " ".join(words[:WORDS_ASKED]), passage.lang))
        elif len(passages) < given.passages:
            passages.append(passage)
        else:
            break
    start = time.perf_counter()
    made = BM25.build(passages)
    built = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 1_000_000
    peer, postings = bm25s.BM25(method="lucene", backend="numba"), made._indexed.postings
    peer.scores = {"data": postings.weights(K1, B), "indices": postings.passages, "indptr": postings.starts}
    peer.scores["num_docs"] = len(made)
    peer.vocab_dict, peer.unique_token_ids_set, peer.nonoccurrence_array = {}, range(len(postings.terms)), None
    terms = [postings.numbers(made.analyzers[query.lang](query.text)) for query in asked]
    norms = length_norms(postings.lengths, float(postings.lengths.mean()), K1, B)
    index, ties = bm25_search.TermSearch(postings, postings.counts, norms), made._indexed.ties

    def counted(numbers: list[int], worth: float) -> list[float]:
        bm25_search.KERNEL.worth = worth
        found = [int(postings.starts[number + 1] - postings.starts[number]) for number in numbers]
        idfs = [float(inverse_frequency(count, len(made))) for count in found]
        scores: list[float] = index.matches(numbers, idfs).best(given.depth, ties)[1].tolist()
        return scores

    def bare(numbers: list[int]) -> list[float]:
        scores = peer.retrieve([numbers], k=given.depth, show_progress=False).scores[0] if numbers else np.empty(0)
        positive: list[float] = scores[scores > 0].tolist()
        return positive

    ways: dict[str, Callable[[Query, list[int]], list[float]]] = {
        "counts by NumPy": lambda query, numbers: counted(numbers, np.inf),
        "counts": lambda query, numbers: counted(numbers, 0),
        "BM25": lambda query, numbers: [score for _, score in made.search([query], given.depth)[query.id]],
        "bm25s": lambda query, numbers: bare(numbers),
    }
    taken: dict[str, list[float]] = {}
    first: list[list[float]] = []
    for way, search in ways.items():
        for _ in range(2):  # the first time compiles, and finds the highest weights of frequent terms
            taken[way], found = [], []
            for query, numbers in zip(asked, terms, strict=True):
                start = time.perf_counter()
                found.append(search(query, numbers))
                taken[way].append(1000 * (time.perf_counter() - start))
        first = first or found
        same = all(np.allclose(one, other, rtol=1e-5) for one, other in zip(first, found, strict=True))
        assert same, f"{way}: the scores are not the same"
    print(
        f"{len(made):,} sentences in {len(made.analyzers)} languages, {len(asked):,} questions of "
        f"{np.mean([len(numbers) for numbers in terms]):.1f} terms, depth {given.depth}, one thread\n"
        f"built in {built:,.0f} s, {len(made) / built:,.0f} a second; peak memory {memory:,} MB"
    )
    for way, times in taken.items():
        middle, p95, p99 = np.percentile(times, [50, 95, 99])
        print(f"{way:16} a question, ms: median {middle:.2f}, p95 {p95:.2f}, p99 {p99:.2f}")


def main() -> None:
    """Measure."""
    parser = options(__doc__, passages=200_000, queries=500, depth=100, repeat=5)
    parser.add_argument("--sentences", type=Path, nargs="+", metavar="FILE", help="pairs of sentences, xx-yy.tsv.gz")
    given = parser.parse_args()
    bm25_search.KERNEL.worth = 0
    if given.sentences:
        one_at_a_time(sentences(given.sentences), given)
        return
    rng = np.random.default_rng(0)
    passages = [Passage(f"p{i}", text, lang="en") for i, text in enumerate(texts(given.passages, 30, 110, rng))]
    queries = [Query(f"q{i}", text, "en") for i, text in enumerate(texts(given.queries, 4, 10, rng))]
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
