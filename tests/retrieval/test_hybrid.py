from __future__ import annotations

import pytest

from interlingua.retrieval.index_search import dense_weight, fuse


def test_a_ranking_is_the_weighted_mean_of_both_scores_brought_to_0_to_1():
    lexical, dense = {"a": 6.0, "b": 3.0, "c": 0.0}, {"a": -0.5, "b": 0.5, "c": 1.5}
    assert dict(fuse(lexical, dense, 1.0)["q"]) == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.5})
    assert dict(fuse(lexical, dense, 3.0)["q"]) == pytest.approx({"a": 0.25, "b": 0.5, "c": 0.75})
    assert dict(fuse(lexical, dict.fromkeys(lexical, 0.3), 1.0)["q"]) == pytest.approx({"a": 0.75, "b": 0.5, "c": 0.25})


def test_meaning_weighs_more_the_fewer_passages_are_in_the_language_of_the_question():
    assert dense_weight("fi", {"fi": 10}) == pytest.approx(0.5)
    assert dense_weight("fi", {"en": 10}) == pytest.approx(2.0)
    assert dense_weight("fi", {"fi": 5, "en": 5}) == dense_weight("", {"fi": 10}) == pytest.approx(1.0)
    assert dense_weight("eng", {"en": 10}) == pytest.approx(0.5)
