from __future__ import annotations

import math
import random
import sys
from collections import Counter

import bm25s
import numpy as np
import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import Damaged, InterlinguaError
from interlingua.lazy import LateKernel
from interlingua.retrieval.bm25 import kernel
from interlingua.retrieval.bm25 import search as bm25_search
from interlingua.retrieval.bm25.bm25 import BM25
from interlingua.retrieval.bm25.postings import Postings, length_norms
from interlingua.retrieval.bm25.search import TermSearch
from interlingua.retrieval.run import Run


def random_texts(seed, count=60, words=12, longest=8):
    """Few words and short texts, empty ones too: equal texts, and equal scores, are common."""
    rng = random.Random(seed)
    return [" ".join(rng.choices("abcdefghijkl"[:words], k=rng.randrange(longest))) for _ in range(count)]


def passages_of(texts, seed=0):
    names = [f"p{i}" for i in range(len(texts))]
    random.Random(seed).shuffle(names)
    return [Passage(name, text, lang="en") for name, text in zip(names, texts, strict=True)]


def queries_of(texts):
    return [Query(f"q{i}", text, "en") for i, text in enumerate(texts)]


def lucene(passages, text, k1, b):
    """Lucene's formula, term by term and passage by passage."""
    held = [passage.text.split() for passage in passages]
    mean = sum(map(len, held)) / len(held)
    scores = {}
    for passage, words in zip(passages, held, strict=True):
        total = 0.0
        for term, asked in Counter(text.split()).items():
            df = sum(term in other for other in held)
            tf = words.count(term)
            if not tf:
                continue
            idf = math.log(1 + (len(held) - df + 0.5) / (df + 0.5))
            total += asked * idf * tf / (tf + k1 * (1 - b + b * len(words) / mean))
        if total > 0:
            scores[passage.id] = total
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (0.0, 0.0), (1.6, 1.0), (2.5, 0.75)])
def test_scores_are_lucenes_formula(k1, b):
    passages, queries = passages_of(random_texts(1)), queries_of(random_texts(2, 20))
    run = BM25.build(passages, k1=k1, b=b, analyzer="whitespace").search(queries, 100)
    assert list(run) == [query.id for query in queries]
    for query in queries:
        expected = lucene(passages, query.text, k1, b)
        assert dict(run[query.id]) == pytest.approx(expected, rel=2e-6)
    assert any(len(run[query.id]) > len({score for _, score in run[query.id]}) for query in queries)  # ties occur


def is_the_full_ranking(monkeypatch, loaded, block=64, seed=3):
    """`loaded` gives the kernel for some work, or None."""
    monkeypatch.setattr(bm25_search, "BLOCK", block)
    monkeypatch.setattr(bm25_search, "KERNEL", loaded)
    passages, queries = passages_of(random_texts(seed, 150, 9, 6)), queries_of(random_texts(4, 30, 9, 7))
    index = BM25.build(passages, analyzer="whitespace")
    everything = index.score(queries, {query.id: [p.id for p in passages] for query in queries})
    found = Run.from_scores({name: {d: s for d, s in everything[name] if s > 0} for name in everything})
    for depth in (1, 2, 5, 20, 37, 149, 150, 1000):
        assert index.search(queries, depth) == found.truncate(depth), (block, depth)


@pytest.mark.parametrize("block", [1, 3, 64])
def test_the_best_are_those_of_the_full_ranking_also_where_a_tie_is_cut(block, monkeypatch):
    is_the_full_ranking(monkeypatch, lambda work: None, block)


@pytest.mark.parametrize("looked_up", [0, 1, 1000])
@pytest.mark.parametrize(("first", "window", "group"), [(1, 1, 1), (2, 8, 2), (16, 64, 16)])
def test_so_they_are_by_the_kernel(first, window, group, looked_up, monkeypatch):
    """Its loops run in Python here, with windows so small that lists are left out."""
    monkeypatch.setattr(kernel, "FIRST", first)
    monkeypatch.setattr(kernel, "WINDOW", window)
    monkeypatch.setattr(kernel, "GROUP", group)
    monkeypatch.setattr(kernel, "LOOKED_UP", looked_up)
    monkeypatch.setattr(kernel, "WORTH", 0)
    monkeypatch.setattr(kernel, "_standing", kernel._standing.py_func)
    monkeypatch.setattr(kernel, "best", kernel.best.py_func)
    is_the_full_ranking(monkeypatch, lambda work: kernel, seed=first)


def test_so_they_are_where_the_kernel_is_compiled(monkeypatch):
    is_the_full_ranking(monkeypatch, lambda work: kernel)


def long_lists(count, rng):
    """Postings of four terms, of which two are in most passages, with counts and lengths."""
    sizes = (9, count // 9, count - 5, count)
    held = [np.sort(rng.choice(count, size, replace=False)).astype(np.int32) for size in sizes]
    starts = np.cumsum([0, *map(len, held)])
    counts = rng.integers(1, 9, starts[-1]).astype(np.int32)
    lengths = rng.integers(1, 90, count).astype(np.int32)
    return Postings(np.arange(4, dtype=np.uint64), np.concatenate(held), counts, starts, lengths)


@pytest.mark.parametrize("of_counts", [False, True])
def test_the_kernel_finds_the_same_bits_in_long_lists(of_counts, monkeypatch):
    rng = np.random.default_rng(5)
    postings = long_lists(40_000, rng)
    ties, chosen = rng.permutation(40_000), rng.random(40_000) < 0.3
    norms = length_norms(postings.lengths, 45.0, 0.9, 0.4) if of_counts else None
    search = TermSearch(postings, postings.counts if of_counts else postings.weights(0.9, 0.4), norms)
    terms, idfs, times = np.array([3, 1, 2, 3, 0]), np.array([0.02, 2.5, 0.03, 0.02, 7.5]), np.array([1, 2, 1, 1, 1])
    for part in (slice(None), slice(1), slice(1, 2), slice(2, 4), slice(0)):
        asked = (terms[part], idfs[part] if of_counts else (), times[part])
        for depth in (1, 10, 400, 10_000):
            for those in (None, chosen):
                monkeypatch.setattr(bm25_search, "KERNEL", lambda work: None)
                rows, scores = search.matches(*asked).best(depth, ties, those)
                monkeypatch.setattr(bm25_search, "KERNEL", lambda work: kernel)
                matches = search.matches(*asked)
                found, same = matches.best(depth, ties, those)
                assert dict(zip(found.tolist(), same.tolist(), strict=True)) == dict(
                    zip(rows.tolist(), scores.tolist(), strict=True)
                )
                assert (np.diff(same) <= 0).all()
                assert (matches.of(found) == same).all()
                assert "scores" not in vars(matches)  # it was the kernel that found them


def test_equal_passages_are_ordered_by_id_descending():
    passages = [Passage(str(i), "same words", lang="en") for i in range(50)]
    run = BM25.build(passages).search([Query("q", "same", "en")], 3)
    assert run.ids("q") == ["9", "8", "7"]


def test_numba_is_not_needed(monkeypatch):
    late = LateKernel("retrieval.bm25.kernel", "slowly", worth=0)
    monkeypatch.delitem(sys.modules, "interlingua.retrieval.bm25.kernel")
    monkeypatch.setitem(sys.modules, "numba", None)
    assert late(0) is None
    is_the_full_ranking(monkeypatch, late)


def test_weights_are_those_of_bm25s():
    texts = random_texts(5, 300)
    tokens = [text.split() for text in texts]
    postings = Postings.of(tokens)
    vocabulary = {word: postings.numbers([word])[0] for word in "abcdefghijkl"}
    numbers = [[vocabulary[word] for word in words] for words in tokens]
    peer = bm25s.BM25(method="lucene", k1=0.7, b=0.3)
    peer.index((numbers, vocabulary), show_progress=False, create_empty_token=False)
    assert (postings.weights(0.7, 0.3) == peer.scores["data"]).all()
    assert (postings.passages == peer.scores["indices"]).all()
    assert (postings.starts == peer.scores["indptr"]).all()
    assert postings.counts.sum() == postings.lengths.sum() == sum(map(len, tokens))


def test_weights_are_computed_in_parts(monkeypatch):
    postings = Postings.of(["abb", "bc", "", "aaac"])
    expected = postings.weights(0.9, 0.4)
    monkeypatch.setattr("interlingua.retrieval.bm25.postings.AT_A_TIME", 2)
    assert (postings.weights(0.9, 0.4) == expected).all()


def test_other_parameters_need_no_new_index():
    passages, queries = passages_of(random_texts(6)), queries_of(random_texts(7, 10))
    index = BM25.build(passages, analyzer="whitespace")
    other = index.weighted(0.3, 0.8)
    assert (other.k1, other.b) == (0.3, 0.8)
    built = BM25.build(passages, k1=0.3, b=0.8, analyzer="whitespace")
    assert other.search(queries, 10) == built.search(queries, 10) != index.search(queries, 10)


def test_title_and_text_are_one():
    titled = [Passage("1", "b", "a", "en"), Passage("2", "c", lang="en")]
    joined = [Passage("1", "a\nb", lang="en"), Passage("2", "c", lang="en")]
    queries = queries_of(["a", "b", "a b"])
    run = BM25.build(titled, analyzer="whitespace").search(queries, 5)
    assert run == BM25.build(joined, analyzer="whitespace").search(queries, 5)
    assert run.ids("q0") == ["1"]


def test_a_query_without_a_known_term_finds_nothing():
    index = BM25.build([Passage("1", "cats", lang="en"), Passage("2", "", lang="en")])
    run = index.search([Query("none", "dogs", "en"), Query("one", "Cats!", "en"), Query("empty", "", "en")], 5)
    assert {name: run.ids(name) for name in run} == {"none": [], "one": ["1"], "empty": []}
    assert index.search([], 5) == Run()
    assert index.search([Query("none", "dogs", "en")], 5)["none"] == []


def test_candidates_get_exactly_their_scores():
    index = BM25.build(passages_of(random_texts(8)), analyzer="whitespace")
    queries = queries_of(["a b", "zzz", "c"])
    run = index.score(queries, {"q2": ["p3", "p1"], "q1": ["p5", "p2"], "q0": []})
    assert list(run) == ["q2", "q1", "q0"]
    assert run["q1"] == [("p5", 0.0), ("p2", 0.0)]
    assert run["q0"] == []
    found = dict(index.search(queries, 100)["q2"])
    assert dict(run["q2"]) == {name: found.get(name, 0.0) for name in ("p3", "p1")}
    with pytest.raises(InterlinguaError, match="query 'q0': 1 of its 2 candidates are not indexed, the first is 'x'"):
        index.score(queries, {"q0": ["p1", "x"]})
    with pytest.raises(InterlinguaError, match="q9"):
        index.score(queries, {"q9": ["p1"]})


def test_each_passage_is_cut_in_its_own_language_and_a_query_in_its_own_if_it_is_there():
    passages = [Passage("de", "die Häuser", lang="de"), Passage("en", "die cities", lang="en")]
    index = BM25.build(passages, analyzer="language")
    assert sorted(index.analyzers) == ["de", "en"]

    def ids(text, lang):
        return index.search([Query("q", text, lang)], 5).ids("q")

    assert ids("die", "de") == []  # a German stopword
    assert ids("die", "en") == ["en"]
    assert ids("Haus", "de") == ["de"]
    assert ids("city", "de") == []
    for lang in ("fr", ""):  # in no language of the passages: every analyzer is tried
        assert set(ids("Haus city", lang)) == {"de", "en"}


def test_passages_without_a_language_hide_none_and_are_found():
    german = [Passage("g", "die Häuser der Stadt", lang="de"), Passage("h", "ein Fluss", lang="de")]
    index = BM25.build([*german, Passage("u", "Häuser und Dächer")])
    for lang in ("de", ""):
        assert set(index.search([Query("q", "Häuser", lang)], 9).ids("q")) == {"g", "u"}


def test_a_term_that_several_analyzers_find_counts_once():
    both = BM25.build([Passage("1", "1999 haus", lang="de"), Passage("2", "1999 city", lang="en")], analyzer="language")
    other, own = (both.search([Query("q", "1999", lang)], 5)["q"] for lang in ("fr", "en"))
    assert other == own
    twice = both.search([Query("q", "1999 1999", "fr")], 5)["q"]
    assert [score for _, score in twice] == pytest.approx([2 * score for _, score in own])


def test_a_fallback_is_announced_once(capsys):
    BM25.build([Passage("1", "a"), Passage("2", "b", lang="klingon"), Passage("3", "c", lang="en")])
    said = capsys.readouterr().err
    assert said.count("und/ngram") == 1
    assert "no language is given" in said
    BM25.build([Passage("1", "a"), Passage("2", "b", lang="klingon")], analyzer="char4")
    assert capsys.readouterr().err == ""


def test_passages_without_any_term():
    index = BM25.build([Passage("1", ""), Passage("2", "!?")])
    assert len(index) == 2
    assert index.search([Query("q", "a")], 5)["q"] == []
    assert index.score([Query("q", "a")], {"q": ["1", "2"]})["q"] == [("2", 0.0), ("1", 0.0)]


def test_passages_may_come_once():
    assert len(BM25.build(iter(passages_of(random_texts(9))))) == 60


@pytest.mark.parametrize(
    ("passages", "options", "message"),
    [
        ([], {}, "no passage"),
        ([Passage("1", "a"), Passage("1", "b")], {}, "'1' occurs twice"),
        ([Passage("1", "a")], {"k1": -1}, "k1=-1"),
        ([Passage("1", "a")], {"b": 1.1}, "b=1.1"),
        ([Passage("1", "a")], {"k1": math.nan}, "k1=nan"),
        ([Passage("1", "a")], {"analyzer": "char"}, "unknown analyzer"),
        ([Passage("1", "a", lang="en")], {"analyzer": "jieba"}, "is for 'zh'"),
    ],
)
def test_bad_input_is_refused(passages, options, message):
    with pytest.raises(InterlinguaError, match=message):
        BM25.build(passages, **options)


def test_depth_is_at_least_one():
    with pytest.raises(InterlinguaError, match="depth 0"):
        BM25.build([Passage("1", "a")]).search([Query("q", "a")], 0)


def test_a_query_twice_is_refused():
    with pytest.raises(InterlinguaError, match="already has results"):
        BM25.build([Passage("1", "a")]).search([Query("q", "a"), Query("q", "b")], 1)


def test_the_same_passages_make_the_same_postings():
    one, other = (Postings.of(["ab", "bcc"]) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))
    held = {
        term: (one.passages[one.part(i)].tolist(), one.counts[one.part(i)].tolist())
        for term in "abc"
        for i in one.numbers([term])
    }
    assert held == {"a": ([0], [1]), "b": ([0, 1], [1, 1]), "c": ([1], [2])}
    assert one.numbers(["c", "no such term", "a", "c"]) == [
        *one.numbers(["c"]),
        *one.numbers(["a"]),
        *one.numbers(["c"]),
    ]
    assert Postings.of([[], []]).numbers(["a"]) == Postings.of([]).numbers([]) == []


def test_no_torch_is_loaded():
    import subprocess

    code = "import sys; from interlingua.retrieval.bm25.bm25 import tune_bm25; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("place", "row"), [(20, 7_000_000), (20, -9), (21, 0)])
def test_damaged_postings_are_not_written_by(place, row, monkeypatch):
    monkeypatch.setattr(bm25_search, "KERNEL", lambda work: kernel)
    postings = long_lists(400, np.random.default_rng(6))
    postings.passages[place] = row
    search = TermSearch(postings, postings.counts.astype(np.float32))
    with pytest.raises(Damaged, match="postings of BM25 are damaged"):
        search.matches([0, 1, 2]).best(3, np.arange(400))
