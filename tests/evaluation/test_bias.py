from __future__ import annotations

import numpy as np
import pytest

from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.evaluation import language_bias, language_matrix, languages, mirror_page
from interlingua.evaluation.languages import MergedPool, _kruskal, between, peer, probe, rank_agreement
from interlingua.evaluation.plots import bias_rows
from interlingua.evaluation.projection import principal_plane

LANGS = ("en", "fi", "th")


class Marked:
    """A text is "lang number": its vector says the number, and the language as loudly as `accent`."""

    similarity = "cosine"

    def __init__(self, accent, seed=0):
        random = np.random.default_rng(seed)
        self.accent, self.langs, self.topics = accent, random.normal(size=(3, 16)), random.normal(size=(40, 16))
        self.noise = random

    def encode_query(self, sentences, **options):
        found = []
        for lang, number in (text.split() for text in sentences):
            noise = np.random.default_rng([LANGS.index(lang), int(number), len(sentences)]).normal(size=16)
            found.append(self.topics[int(number)] + self.accent * self.langs[LANGS.index(lang)] + 0.3 * noise)
        return np.array(found)

    encode_document = encode_query


def collections(count=20):
    return {
        lang: Collection(
            lang,
            [Passage(f"p{i}", f"{lang} {i}", lang=lang) for i in range(count)],
            [Query(f"q{i}", f"{lang} {i}", lang) for i in range(0, count, 2)],
            {f"q{i}": {f"p{i}": 1} for i in range(0, count, 2)},
        )
        for lang in LANGS
    }


@pytest.mark.parametrize("accent", [0.0, 0.7, 5.0])
def test_numbers_are_those_of_a_sort_by_hand(accent):
    encoder, given = Marked(accent), collections()
    found, matrix = language_bias(encoder, given), language_matrix(encoder, given)
    names = [(lang, p.id) for lang, one in given.items() for p in one.passages]
    pool = np.concatenate([encoder.encode_document([p.text for p in one.passages]) for one in given.values()])
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    for row, asked in enumerate(LANGS):
        vectors = encoder.encode_query([q.text for q in given[asked].queries])
        counted, behind, target, fair, own_first, worst = np.zeros(3), [], [], [], [], []
        for query, vector in zip(given[asked].queries, vectors, strict=True):
            order = [names[i] for i in np.argsort(-(pool @ vector), kind="stable")]
            gold = f"p{query.id[1:]}"
            for lang, _ in order[:10]:
                counted[LANGS.index(lang)] += 1
            ranks = [order.index((lang, gold)) + 1 for lang in LANGS]
            behind.append([rank - ranks[row] for rank in ranks])
            own_first.append(ranks[row] == min(ranks))
            worst.append(max(ranks))
            target.append(
                [
                    1 / (1 + sum(one != (lang, gold) and one[1] != gold for one in order[: rank - 1]))
                    for lang, rank in zip(LANGS, ranks, strict=True)
                ]
            )
            fair.append(
                peer(
                    [" ".join(one) for one in order],
                    {" ".join(one): one[0] for one in names},
                    {f"{lang} {gold}": 1 for lang in LANGS},
                )
            )
        assert found.preference[row] == pytest.approx(counted / counted.sum())
        assert found.displacement[row].tolist() == np.median(behind, axis=0).tolist()
        assert found.target[row] == pytest.approx(np.mean(target, axis=0))
        assert found.peer[row] == pytest.approx(np.mean(fair))
        assert found.own_first[row] == pytest.approx(np.mean(own_first))
        assert found.worst_rank[row] == pytest.approx(np.mean(worst))
    assert dict(zip(LANGS, found.pool_map, strict=True)) == pytest.approx(matrix.pool_map)
    assert dict(zip(LANGS, found.peer, strict=True)) == pytest.approx(matrix.pool_peer)
    assert found.same_language_rate == pytest.approx(np.mean(list(matrix.same_language_rate.values())))
    plane, _ = principal_plane(pool)
    assert np.concatenate([found.plane[lang] for lang in LANGS]) == pytest.approx(plane, abs=1e-5)


def test_the_agreement_of_ranks_is_spearmans():
    scipy = pytest.importorskip("scipy.stats")
    encoder, given = Marked(0.7), collections()
    found = language_bias(encoder, given)
    pool = np.concatenate([encoder.encode_document([p.text for p in one.passages]) for one in given.values()])
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    asked = [encoder.encode_query([q.text for q in one.queries]) @ pool.T for one in given.values()]
    for a in range(3):
        for b in range(3):
            by_question = [scipy.spearmanr(x, y).statistic for x, y in zip(asked[a], asked[b], strict=True)]
            assert found.agreement[a, b] == pytest.approx(np.mean(by_question), abs=1e-4)
    others = [found.agreement[a, b] for a in range(3) for b in range(3) if a != b]
    assert found.rank_correlation == pytest.approx(np.mean(others))
    same = rank_agreement([np.eye(2, 3, dtype=np.float32)] * 2, np.ones((4, 3), np.float32))  # all passages alike
    assert same.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_ranks_of_some_questions_stand_for_those_of_very_many(monkeypatch):
    monkeypatch.setattr(languages, "RANKED", 3)
    seen = []
    monkeypatch.setattr(
        languages, "rank_agreement", lambda queries, passages: seen.append(len(queries[0])) or np.eye(3)
    )
    language_bias(Marked(0.0), collections())  # of ten questions each fourth
    assert seen == [3]


def test_translations_of_a_question_are_told_by_their_passage_and_of_a_sentence_by_their_id(monkeypatch):
    """XQuAD's languages number their questions each in its own way, and LAReQA's their sentences."""
    monkeypatch.setattr(languages, "rank_agreement", lambda queries, passages: seen.append(queries) or np.eye(2))
    encoder, seen = Marked(0.0), []
    one, other = list(collections().values())[:2]
    turned = {query.id: f"q{90 - number}" for number, query in enumerate(other.queries)}
    xquad = Collection(
        other.name,
        other.passages,
        [Query(turned[query.id], query.text, query.lang) for query in other.queries],
        {turned[name]: grades for name, grades in other.qrels.items()},
    )
    language_bias(encoder, dict(zip(LANGS, (one, other), strict=False)))
    language_bias(encoder, dict(zip(LANGS, (one, xquad), strict=False)))
    assert [len(queries[0]) for queries in seen] == [len(one.queries)] * 2
    np.testing.assert_array_equal(seen[0], seen[1])


def test_sentences_of_lareqa_are_right_as_their_own_language_judges_them():
    def lareqa(lang, sentences, right):
        return Collection(
            f"lareqa_{lang}",
            [Passage(f"p0.s{number}", f"{lang} {number}", lang=lang) for number in range(sentences)],
            [Query("a", f"{lang} {right}", lang)],
            {"a": {f"p0.s{right}": 1}},
        )

    encoder, given = Marked(0.0), {"en": lareqa("en", 5, 4), "th": lareqa("th", 3, 2)}
    matrix = language_matrix(encoder, given)
    run = matrix.scores["en", "th"]
    vectors = encoder.encode_document([one.text for one in given["th"].passages])
    rank = 1 + int((vectors @ encoder.encode_query(["en 4"])[0] > vectors[2] @ encoder.encode_query(["en 4"])[0]).sum())
    assert run[matrix.measure] == pytest.approx(1 / rank)
    assert MergedPool(
        given, {lang: encoder.encode_document([p.text for p in one.passages]) for lang, one in given.items()}
    ).golds("en")[1] == {"en": [["en:p0.s4"]], "th": [["th:p0.s2"]]}


def test_a_judged_passage_that_is_missing_is_no_gold_of_the_pool():
    given = collections()
    asked = next(iter(given.values()))
    asked.qrels[asked.queries[0].id]["gone"] = 1
    assert language_bias(Marked(0.0), given).pool_map == pytest.approx(
        language_bias(Marked(0.0), collections()).pool_map
    )


def test_questions_that_no_language_shares_are_said():
    given = collections()
    for place, one in enumerate(given.values()):
        one.queries[:] = one.queries[place : place + 1]
    with pytest.raises(InterlinguaError, match="no question is asked in every language"):
        language_bias(Marked(0.0), given)


def test_an_accent_is_seen_in_every_number():
    plain, loud = (language_bias(Marked(accent), collections()) for accent in (0.0, 5.0))
    assert loud.same_language_rate > 0.9 > 0.5 > plain.same_language_rate
    assert (loud.probe, loud.chance) == (1.0, pytest.approx(1 / 3))
    assert plain.probe < 0.6
    assert loud.between > 0.8 > 0.1 > plain.between
    assert loud.pool_map.mean() < plain.pool_map.mean()
    assert loud.displacement[0, 1] > plain.displacement[0, 1]
    assert loud.distances[0, 1] > plain.distances[0, 1]
    assert loud.own_first.mean() > 0.9 > 0.6 > plain.own_first.mean()
    assert loud.worst_rank.mean() > 2 * plain.worst_rank.mean()
    assert loud.rank_correlation < 0.1 < 0.5 < plain.rank_correlation


def test_a_probe_never_sees_translations_of_what_it_tells():
    vectors = np.eye(40, dtype=np.float32)  # nothing but the passage itself could be learnt
    assert probe(vectors, np.arange(40) % 2, [str(i // 2) for i in range(40)]) == pytest.approx(0.5)


def test_variance_between_languages_is_that_of_their_means():
    random = np.random.default_rng(0)
    vectors, langs = random.normal(size=(30, 4)).astype(np.float32), random.integers(0, 3, 30)
    means = np.array([vectors[langs == lang].mean(0) for lang in langs])
    assert between(vectors, langs) == pytest.approx(means.var(0).sum() / vectors.var(0).sum(), rel=1e-5)
    assert between(np.ones((4, 2), np.float32), np.array([0, 1, 0, 1])) == 0.0


def test_peer_is_the_mean_of_kruskal_wallis_over_the_levels():
    scipy = pytest.importorskip("scipy.stats")
    ranking = ["a1", "b1", "a2", "b2", "a3", "c1", "b3", "c2"]
    langs = {name: name[0] for name in [*ranking, "c3", "c4"]}
    grades = {"a1": 1, "b2": 1, "a3": 1, "c3": 1}
    relevant = scipy.kruskal([1, 5], [4], [(7 + 1 + 10) / 2]).pvalue
    other = scipy.kruskal([3], [2, 7], [6]).pvalue
    assert peer(ranking, langs, grades, top=7) == pytest.approx((relevant + other) / 2)
    assert peer(ranking, langs, grades, top=7, weights={1: 1.0}) == pytest.approx(relevant)
    assert peer(ranking, langs, grades, top=7, weights={1: 3.0, 0: 1.0}) == pytest.approx((3 * relevant + other) / 4)
    one_each = {"a1": 1, "b1": 1, "c1": 1}  # nothing can be seen in one document a language
    assert peer(ranking, langs, one_each, top=7) == pytest.approx(scipy.kruskal([3, 5], [4, 7]).pvalue)
    assert peer(["a1", "b1"], langs, {"a1": 1, "b1": 1}, top=2) == 1.0
    assert peer(["a1", "a2"], langs, {"a1": 1}, top=2) == 1.0  # one language only
    assert peer(ranking, langs, {}, top=6, weights={1: 1.0}) == 1.0  # nothing at that level
    for options in ({"top": 0}, {"weights": {1: -1.0}}, {"weights": {1: 0.0}}):
        with pytest.raises(InterlinguaError):
            peer(ranking, langs, grades, **options)


def test_what_cannot_be_asked_is_said():
    with pytest.raises(InterlinguaError, match="needs two"):
        language_bias(Marked(1.0), {"en": collections()["en"]})
    with pytest.raises(InterlinguaError, match="has no passage in 'fi'"):
        language_bias(Marked(1.0), {**collections(), "fi": Collection("none", [], [])})
    given = collections()
    given["fi"].qrels.clear()
    given["fi"].passages[:] = given["fi"].passages[1:2]
    with pytest.raises(InterlinguaError):
        language_bias(Marked(1.0), given)


def test_the_page_needs_nothing_else_and_escapes_names():
    found = {"<b>plain": language_bias(Marked(0.0), collections()), "loud": language_bias(Marked(5.0), collections())}
    page = mirror_page(found, "A & B")
    assert "<h1>A &amp; B</h1>" in page
    assert "<b>" not in page
    assert not any(mark in page for mark in ("http:", "https:", "<script", "src=", "@import", "url("))
    assert page.count("<svg") == 2
    assert page.count("<circle") == 2 * 60
    assert "Finnish (fi)" in page
    for name, fair, values in bias_rows(found):
        assert f"<th>{name.replace(chr(39), '&#x27;')}</th><td>{fair}</td><td>{values[0]:.3f}</td>" in page


def test_the_test_of_peer_is_that_of_scipy():
    from scipy.stats import kruskal

    draw = np.random.default_rng(3)
    for _ in range(50):
        groups = [draw.integers(1, 9, draw.integers(1, 7)).astype(float).tolist() for _ in range(draw.integers(2, 6))]
        if len({rank for group in groups for rank in group}) > 1:
            assert _kruskal(groups) == pytest.approx(kruskal(*groups).pvalue, abs=1e-12)
