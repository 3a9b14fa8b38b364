from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.dense.exact import DenseRetriever, retrieve
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.retriever import OnDemand
from interlingua.retrieval.run import Run


class Backwards:
    """Scores a passage by its number, and remembers what it was asked. Not able to search."""

    def __init__(self, lose=0, add=()):
        self.lose, self.added, self.asked = lose, add, {}

    def score(self, queries, candidates):
        self.asked = {query.id: list(candidates[query.id]) for query in queries}
        assert set(self.asked) == set(candidates)
        return Run.from_scores(
            {
                query: {**{name: float(name[1:]) for name in ids[self.lose :]}, **dict.fromkeys(self.added, 0.0)}
                for query, ids in candidates.items()
            }
        )


class Hashed:
    """Bags of words as vectors. Counts what it encodes."""

    def __init__(self, similarity="dot", dim=64):
        self.similarity, self.dim, self.seen = similarity, dim, Counter()

    def encode_query(self, sentences, **options):
        return self.vectors(sentences)

    def encode_document(self, sentences, **options):
        self.seen.update(sentences)
        return self.vectors(sentences)

    def vectors(self, sentences):
        rows = np.zeros((len(sentences), self.dim), dtype=np.float32)
        for row, text in zip(rows, sentences, strict=True):
            for word in (text if isinstance(text, str) else " ".join(text)).split():
                row[random.Random(word).randrange(self.dim)] += 1
        return rows


PASSAGES = [Passage(f"p{i}", f"w{i} w{i % 7} w{i % 5}") for i in range(40)]
QUERIES = [Query(f"q{i}", f"w{i} w{i % 5}") for i in range(9)]


def first_stage(length=10):
    rng = random.Random(3)
    return Run.from_scores(
        {query.id: {passage.id: rng.random() for passage in rng.sample(PASSAGES, length)} for query in QUERIES}
    )


def test_a_permutation_of_exactly_the_candidates():
    run = first_stage()
    reranked = rerank(run, QUERIES, Backwards())
    for query in run:
        assert reranked.ids(query) == sorted(run.ids(query), key=lambda name: float(name[1:]), reverse=True)
    assert reranked.keys() == run.keys()


def test_the_first_of_each_list_are_reranked_and_the_rest_is_said(capsys):
    run = first_stage(10)
    scorer = Backwards()
    reranked = rerank(run, QUERIES, scorer, depth=4)
    assert scorer.asked == {query: run.ids(query)[:4] for query in run}
    assert {query: set(reranked.ids(query)) for query in run} == {query: set(run.ids(query)[:4]) for query in run}
    assert "the first 4 results of each query: 54 results of 9 queries lie deeper" in capsys.readouterr().err
    assert rerank(run, QUERIES, Backwards(), depth=5000) == rerank(run, QUERIES, Backwards())
    assert not capsys.readouterr().err


def test_an_empty_list_stays_and_is_never_scored():
    run = Run.from_scores({"q0": {"p1": 1.0, "p2": 0.5}, "q1": {}})
    scorer = Backwards()
    assert rerank(run, QUERIES, scorer) == Run.from_scores({"q0": {"p1": 1.0, "p2": 2.0}, "q1": {}})
    assert scorer.asked == {"q0": ["p1", "p2"]}
    assert rerank(Run.from_scores({"q1": {}}), QUERIES, None) == Run.from_scores({"q1": {}})
    assert rerank(Run(), QUERIES, None) == Run()


@pytest.mark.parametrize("scorer", [Backwards(lose=1), Backwards(add=["p99"]), Backwards(lose=1, add=["p99"])])
def test_a_scorer_that_loses_or_adds_is_refused(scorer):
    with pytest.raises(InterlinguaError, match=r"query 'q0': the scorer gave \d+ scores for 10 candidates"):
        rerank(first_stage(), QUERIES, scorer)


def test_what_cannot_be_reranked():
    with pytest.raises(InterlinguaError, match="1 queries of the first stage have no text, the first is 'q9'"):
        rerank(Run.from_scores({"q9": {"p1": 1.0}}), QUERIES, Backwards())
    with pytest.raises(InterlinguaError, match="depth 0: must be at least 1"):
        rerank(Run(), QUERIES, Backwards(), depth=0)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("whole", ["dense", "on demand"])
def test_dense_scores_are_those_of_exact_search(similarity, whole):
    expected = retrieve(Hashed(similarity), Collection("c", PASSAGES, QUERIES), depth=len(PASSAGES))
    encoder = Hashed(similarity)
    dense = DenseRetriever(encoder, PASSAGES)
    if whole == "on demand":
        dense = OnDemand(lambda passages: DenseRetriever(encoder, passages), PASSAGES)
    candidates = {query: first_stage().ids(query) for query in ("q4", "q2", "q7")}
    scored = dense.score(QUERIES, candidates)
    assert {*scored} == {*candidates}
    for query, ids in candidates.items():
        assert dict(scored[query]) == pytest.approx({name: dict(expected[query])[name] for name in ids}, abs=1e-6)
    assert dense.search(QUERIES, 7) == expected.truncate(7)
    assert dense.search(QUERIES, 1000) == expected
    assert dense.score(QUERIES, {"q0": []}) == Run.from_scores({"q0": {}})


@pytest.mark.parametrize("whole", ["dense", "on demand"])
def test_candidates_alone_are_encoded_and_once(whole):
    encoder = Hashed()
    dense = DenseRetriever(encoder, PASSAGES)
    if whole == "on demand":
        dense = OnDemand(lambda passages: DenseRetriever(encoder, passages), PASSAGES)
    run = first_stage(5)
    text = {passage.id: passage.text for passage in PASSAGES}
    rerank(run, QUERIES, dense, depth=3)
    needed = {text[name] for query in run for name in run.ids(query)[:3]}
    assert encoder.seen == dict.fromkeys(needed, 1)
    assert len(needed) < len(PASSAGES)
    rerank(run, QUERIES, dense)
    dense.search(QUERIES, 2)
    dense.search(QUERIES, 2)
    assert encoder.seen == dict.fromkeys(text.values(), 1)


def test_passages_on_disk_are_asked_for_by_id():
    class Stored(list):
        def by_id(self, ids):
            self.asked = list(ids)
            return {name: PASSAGES[int(name[1:])] for name in ids if name != "p99"}

    passages = Stored()  # nothing is ever read from front to back
    dense = DenseRetriever(Hashed(), passages)
    dense.score(QUERIES, {"q1": ["p3", "p4"], "q2": ["p4"]})
    assert passages.asked == ["p3", "p4"]
    dense.score(QUERIES, {"q2": ["p4", "p9"]})
    assert passages.asked == ["p9"]
    with pytest.raises(InterlinguaError, match=r"1 of 1 candidates are no passages of the collection.*'p99'"):
        dense.score(QUERIES, {"q2": ["p4", "p99"]})
