"""What every retriever answers: `interlingua.retrieval.retriever.Retriever`."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput
from interlingua.index import Index
from interlingua.models.encode import TokenVectors
from interlingua.retrieval import BM25, DenseRetriever, LateInteractionRetriever, MaxP
from interlingua.retrieval.late_interaction.retriever import passage_tokens
from interlingua.retrieval.late_interaction.token_store import TokenStore
from interlingua.retrieval.pipeline.grammar import parse_pipeline
from interlingua.retrieval.pipeline.run import RetrieverPool
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.retriever import OnDemand, Retriever
from interlingua.retrieval.run import Run

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from own_retriever import FullText


def vector(word):
    return np.random.default_rng(zlib.crc32(word.encode())).integers(-2, 3, 8).astype(np.float32)


def words(text):
    return (text if isinstance(text, str) else " ".join(text)).split()


class Sums:
    """A text is the sum of its words' vectors, of small whole numbers, so that products are exact."""

    similarity = "dot"

    def encode_query(self, sentences, **options):
        return np.stack([sum(map(vector, words(text)), np.zeros(8, np.float32)) for text in sentences])

    encode_document = encode_query


class Tokens:
    """A vector for each word."""

    similarity = "maxsim"

    def encode_query(self, sentences, **options):
        rows = [vector(word) for text in sentences for word in words(text)]
        return TokenVectors(torch.from_numpy(np.stack(rows)), [len(words(text)) for text in sentences])

    encode_document = encode_query


def halves(passages):
    """Each passage as its first and its second half."""
    texts = [words(passage.text) for passage in passages]
    cuts = [(text[: len(text) // 2 + 1], text[len(text) // 2 :]) for text in texts]
    return [
        [Passage(one.id, " ".join(part), one.title, one.lang) for part in parts]
        for one, parts in zip(passages, cuts, strict=True)
    ]


def dense(passages):
    return DenseRetriever(Sums(), passages)


def held_elsewhere(passages):
    """Token vectors of every second passage are in another store, in another order and under other ids."""
    chunks = passage_tokens(Tokens(), [Passage(f"row {one.id}", one.text) for one in passages[::-2]])
    store = TokenStore.build(chunks)
    kept = {name.removeprefix("row "): (store, row) for row, name in enumerate(store.ids)}
    return LateInteractionRetriever(Tokens(), passages, kept=kept)


def stage(notation):
    """The retriever of a pipeline's stage."""
    return lambda passages: RetrieverPool(passages, {"sums": Sums(), "tokens": Tokens()}.__getitem__).retriever(
        parse_pipeline(notation)
    )


MADE = {
    "BM25": BM25.build,
    "dense": dense,
    "late interaction": lambda passages: LateInteractionRetriever(Tokens(), passages),
    "late interaction, vectors held elsewhere": held_elsewhere,
    "on demand": lambda passages: OnDemand(dense, passages),
    "windows": lambda passages: MaxP(dense, passages, halves),
    "one's own": FullText,
    "lexical stage": stage("bm25(k1=0.5)"),
    "stage of a model": stage("sums"),
    "stage of token vectors": stage("tokens"),
}
RANDOM = np.random.default_rng(0)
# copies have equal scores, and ids whose order is not that of the passages
TEXTS = [" ".join(f"w{number}" for number in RANDOM.integers(0, 25, size)) for size in RANDOM.integers(2, 9, 20)]
PASSAGES = [Passage(f"p{number * 7 % 60:02}", TEXTS[number % 20], lang="en") for number in range(60)]
QUERIES = [Query(f"q{number}", TEXTS[number] + " w3", "en") for number in range(6)]


@pytest.fixture(params=MADE)
def retriever(request) -> Retriever:
    return MADE[request.param](PASSAGES)


def of_pipeline(notation):
    """The search of a pipeline, whose scores belong to its lists; `{run}` in it is a run file."""

    def made(folder):
        whole = BM25.build(PASSAGES).search(QUERIES, 40)
        whole.write_trec(folder / "bm25.run")
        pool = RetrieverPool(PASSAGES, {"sums": Sums(), "tokens": Tokens()}.__getitem__)
        pipeline = notation.format(run=folder / "bm25.run")
        return lambda queries, depth: pool.run(pipeline, queries, depth)

    return made


def of_index(mode):
    """The search of an index, its hits as a run."""

    def made(folder):
        index = Index.build(Sums(), PASSAGES, folder / "idx")

        def search(queries, depth):
            found = index.search_many([query.text for query in queries], k=depth, mode=mode, lang="en")
            run = Run()
            for query, hits in zip(queries, found, strict=True):
                run.add(query.id, [hit.passage.id for hit in hits], [hit.score for hit in hits])
                assert run.ids(query.id) == [hit.passage.id for hit in hits]  # they came in the order of runs
            return run

        return search

    return made


SEARCHED = {
    **{
        notation: of_pipeline(notation)
        for notation in (
            "run({run})",
            "bm25 + 2*sums",
            "rrf(bm25, sums)",
            "bm25 % 20 >> tokens",
            "(bm25 % 30 >> tokens) + run({run})",
        )
    },
    **{f"index, {mode}": of_index(mode) for mode in ("dense", "lexical")},
}


@pytest.mark.parametrize("made", SEARCHED.values(), ids=SEARCHED)
def test_pipelines_runs_and_indexes_search_as_retrievers_do(made, tmp_path):
    search = made(tmp_path)
    whole = search(QUERIES, len(PASSAGES) + 5)
    assert list(whole) == [query.id for query in QUERIES]
    for depth in (1, 4, 10, len(PASSAGES)):
        assert search(QUERIES, depth) == whole.truncate(depth)
    assert list(search([*QUERIES[:1], Query("none", "xylophone", "en")], 3)) == ["q0", "none"]


def test_a_shallow_search_is_the_beginning_of_a_deep_one(retriever):
    whole = retriever.search(QUERIES, len(PASSAGES) + 5)
    assert list(whole) == [query.id for query in QUERIES]
    assert any(len({score for _, score in found}) < len(found) for found in whole.values())  # there are ties
    for depth in (1, 4, 10, len(PASSAGES)):
        assert retriever.search(QUERIES, depth) == whole.truncate(depth)


def test_a_query_without_results_is_in_the_run(retriever):
    found = retriever.search([Query("q", "xylophone", "en")], 3)
    assert list(found) == ["q"]
    assert len(found["q"]) <= 3


def test_scores_are_those_of_a_search_whatever_was_scored_before(retriever):
    some = {"q4": ["p07", "p00"], "q1": ["p21", "p07", "p59"]}
    scored = retriever.score(QUERIES, some)
    assert {name: set(scored.ids(name)) for name in scored} == {name: set(ids) for name, ids in some.items()}
    found = retriever.search(QUERIES, len(PASSAGES))
    candidates = {query.id: [passage.id for passage in PASSAGES] for query in reversed(QUERIES)}
    everything = retriever.score(QUERIES, candidates)
    assert list(everything) == list(candidates)
    for run in (found, scored):
        for name in run:
            scores = dict(everything[name])
            assert [(id, scores[id]) for id in run.ids(name)] == run[name]
    for query in QUERIES:  # what a search leaves out shares nothing with the query
        assert {score for id, score in everything[query.id] if id not in dict(found[query.id])} <= {0.0}


def test_what_is_not_there_is_not_scored(retriever):
    with pytest.raises(BadInput, match=r"no passage|not among|not\s+indexed"):
        retriever.score(QUERIES, {"q0": ["p00", "nowhere"]})
    with pytest.raises(BadInput, match="no text, the first is 'q9'"):
        retriever.score(QUERIES, {"q9": ["p00"]})


def test_it_reranks(retriever):
    first = Run.from_scores({query.id: {f"p{number:02}": -float(number) for number in range(9)} for query in QUERIES})
    ranked = rerank(first, QUERIES, retriever, 5)
    assert {name: sorted(ranked.ids(name)) for name in ranked} == {
        query.id: [f"p{number:02}" for number in range(5)] for query in QUERIES
    }
