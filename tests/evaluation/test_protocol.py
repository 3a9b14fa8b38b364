from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.evaluation import evaluate, evaluate_on, language_bias, language_matrix, results_table
from interlingua.retrieval import Run, retrieve

WORDS = {
    "en": ["cat", "dog", "sun", "sea"],
    "de": ["katze", "hund", "sonne", "meer"],
    "th": ["แมว", "หมา", "แดด", "ทะเล"],
}


class DictionaryEncoder:
    """Knows what the words mean, and lets the language shine through by `accent`. Counts what it encodes."""

    similarity = "dot"

    def __init__(self, accent=0.0):
        self.accent, self.seen, self.told = accent, Counter(), {}

    def encode_query(self, sentences, *, lang, **options):
        self.told |= zip((("query", text) for text in sentences), lang, strict=True)
        self.seen.update(("query", text) for text in sentences)
        return self.vectors(sentences)

    def encode_document(self, sentences, *, lang, **options):
        self.told |= zip((("passage", text) for text in sentences), lang, strict=True)
        self.seen.update(("passage", text) for text in sentences)
        return self.vectors(sentences)

    def vectors(self, sentences):
        rows = []
        for text in sentences:
            lang = next(lang for lang, words in WORDS.items() if text.split()[0] in words)
            meaning = [float(text.split().count(word)) for word in WORDS[lang]]
            rows.append(meaning + [self.accent * (lang == other) for other in WORDS])
        return np.array(rows, dtype=np.float32).reshape(len(rows), 7)


def in_language(lang):
    words = WORDS[lang]
    passages = [Passage(f"p{i}", f"{word} {word} {words[i - 1]}", lang=lang) for i, word in enumerate(words)]
    return Collection(
        f"toy_{lang}",
        passages,
        [Query(f"q{i}", word, lang) for i, word in enumerate(words)],
        {f"q{i}": {f"p{i}": 1} for i in range(4)},
    )


COLLECTIONS = {lang: in_language(lang) for lang in WORDS}


def test_results_are_those_of_retrieve_and_evaluate_in_the_order_given():
    results = evaluate_on(DictionaryEncoder(), COLLECTIONS.values(), ["RR@10"], depth=10)
    assert [found.collection for found in results] == ["toy_en", "toy_de", "toy_th"]
    assert [found.lang for found in results] == ["en", "de", "th"]
    for found, collection in zip(results, COLLECTIONS.values(), strict=True):
        run = retrieve(DictionaryEncoder(), collection, depth=10)
        assert found.run == run
        assert found.scores == evaluate(run, collection.qrels, ["RR@10"])


def test_the_encoder_is_told_the_language_of_every_text():
    german, english = COLLECTIONS["de"], COLLECTIONS["en"]
    pool = [*german.passages, Passage("x", "แมว")]  # one whose language nobody knows
    mixed = Collection("mixed", pool, [*english.queries[:1], Query("t", "หมา", "th")], {"q0": {"p0": 1}, "t": {}})
    encoder = DictionaryEncoder()
    evaluate_on(encoder, [mixed], ["RR@10"], depth=10)
    expected = {("passage", passage.text): "de" for passage in german.passages} | {
        ("passage", "แมว"): None,
        ("query", "cat"): "en",
        ("query", "หมา"): "th",
    }
    assert encoder.told == expected
    again = DictionaryEncoder()
    retrieve(again, mixed, depth=10)
    assert again.told == expected


def test_passages_shared_by_collections_are_encoded_once():
    english = COLLECTIONS["en"]
    asked_in = [
        Collection(f"en_asked_in_{lang}", list(english.passages), other.queries, other.qrels)
        for lang, other in COLLECTIONS.items()
    ]
    other = Collection("other", [Passage("p0", "cat"), *english.passages[1:]], english.queries, english.qrels)
    encoder = DictionaryEncoder()
    results = evaluate_on(encoder, [asked_in[0], other, *asked_in[1:]], ["RR@10"], depth=10)
    assert all(encoder.seen["passage", passage.text] == 1 for passage in english.passages[:1])
    assert encoder.seen["passage", english.passages[1].text] == 2  # once for each of the two pools
    assert [found.collection for found in results] == ["en_asked_in_en", "other", "en_asked_in_de", "en_asked_in_th"]


@pytest.mark.parametrize(
    ("collections", "options", "message"),
    [
        ([COLLECTIONS["en"], COLLECTIONS["en"]], {}, "two collections"),
        ([COLLECTIONS["en"]], {"depth": 50}, "deeper than depth=50"),
        ([Collection("c", [], [Query("q", "x")], {"q": {}})], {}, "has no passages"),
        ([Collection("c", COLLECTIONS["en"].passages, [Query("q", "x")])], {}, "has no qrels"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(collections, options, message):
    with pytest.raises(InterlinguaError, match=message):
        evaluate_on(DictionaryEncoder(), collections, **options)


def test_table_of_results():
    systems = {
        name: evaluate_on(DictionaryEncoder(accent), COLLECTIONS.values(), ["RR@100"])
        for name, accent in (("fair", 0.0), ("partial", 5.0))
    }
    table = results_table(systems, "MRR@100", expected={"fair": {"en": 0.9}})
    assert table.columns == ["en", "de", "th"]
    assert table.counts == {"en": 4, "de": 4, "th": 4}
    assert "avg w/o en" in table.render()
    assert {row["interval"] for row in table.records() if row["column"] == "avg"} == {
        "bootstrap over queries within each language"
    }
    same = {"x": [systems["fair"][0], systems["fair"][0].__class__("second", "en", Run(), systems["fair"][0].scores)]}
    assert results_table(same, "RR@100").columns == ["toy_en", "second"]


def test_a_table_of_different_queries_is_refused():
    whole = evaluate_on(DictionaryEncoder(), [COLLECTIONS["en"]])
    part = Collection("toy_en", COLLECTIONS["en"].passages, COLLECTIONS["en"].queries, {"q0": {"p0": 1}})
    with pytest.raises(InterlinguaError, match="1 queries for b but 4 for another"):
        results_table({"a": whole, "b": evaluate_on(DictionaryEncoder(), [part])}, "RR@100")


def test_matrix_of_an_encoder_that_knows_no_language():
    encoder = DictionaryEncoder()
    matrix = language_matrix(encoder, COLLECTIONS, "MRR@10", depth=10)
    assert matrix.values.tolist() == [[1.0] * 3] * 3
    assert (matrix.monolingual, matrix.crosslingual) == (1.0, 1.0)
    assert matrix.pool_map == {"en": 1.0, "de": 1.0, "th": 1.0}
    assert matrix.same_language_share == {"en": 1 / 3, "de": 1 / 3, "th": 1 / 3}
    assert set(encoder.seen.values()) == {1}
    assert len(encoder.seen) == 24


def test_matrix_shows_a_preference_for_the_language_of_the_question():
    matrix = language_matrix(DictionaryEncoder(accent=2.0), COLLECTIONS, "RR@10", depth=10)
    assert matrix.monolingual == 1.0  # inside one language all passages gain alike
    assert all(rate == pytest.approx(4 / 10) for rate in matrix.same_language_rate.values())  # all four come first
    # gold first, then three wrong ones of the same language, then the two translations of the gold
    assert matrix.pool_map["de"] == pytest.approx((1 / 1 + 2 / 5 + 3 / 6) / 3)
    assert "pool mAP" in matrix.render()
    assert matrix.render("markdown").startswith("|")
    assert matrix.render("tsv").splitlines()[0].split("\t") == ["measure", "questions", "passages", "value", "queries"]
    assert len(matrix.records()) == 9 + 3 + 3
    assert matrix.records()[-1]["value"] == 0.4


def test_records_of_the_pool_count_its_questions():
    """Of four questions in English one has a passage in German."""
    german = COLLECTIONS["de"]
    one = Collection("de", german.passages[:1], german.queries[:1], {"q0": {"p0": 1}})
    matrix = language_matrix(DictionaryEncoder(), {"en": COLLECTIONS["en"], "de": one}, "RR@10", depth=10)
    counted = {(row["measure"], row["questions"]): row["queries"] for row in matrix.records()}
    assert counted["AP", "en"] == 1
    assert matrix.scores["en", "en"].queries == 4


def test_pool_map_is_average_precision_of_the_merged_run():
    encoder = DictionaryEncoder(accent=0.5)
    pool = [Passage(f"{lang}:{p.id}", p.text, lang=lang) for lang, c in COLLECTIONS.items() for p in c.passages]
    for lang, collection in COLLECTIONS.items():
        qrels = {
            name: {f"{other}:{p}": 1 for other in WORDS for p in grades} for name, grades in collection.qrels.items()
        }
        run = retrieve(encoder, Collection("pool", pool, collection.queries), depth=len(pool))
        expected = evaluate(run, qrels, ["AP"])["AP"]
        assert language_matrix(encoder, COLLECTIONS).pool_map[lang] == pytest.approx(expected)


def test_a_pool_counts_the_questions_with_a_gold_passage_in_every_language(monkeypatch):
    monkeypatch.setattr("interlingua.evaluation.languages.TOP", 3)
    thai = COLLECTIONS["th"]
    fewer = Collection(
        thai.name,
        [passage for passage in thai.passages if passage.id != "p1"],
        thai.queries,
        {query: grades for query, grades in thai.qrels.items() if query != "q1"},
    )
    lacking, encoder = {**COLLECTIONS, "th": fewer}, DictionaryEncoder(accent=0.5)
    matrix, bias = language_matrix(encoder, lacking), language_bias(encoder, lacking)
    pool = [Passage(f"{lang}:{p.id}", p.text, lang=lang) for lang, c in lacking.items() for p in c.passages]
    for row, (lang, collection) in enumerate(lacking.items()):
        counted = [query for query in collection.queries if query.id != "q1"]
        run = retrieve(encoder, Collection("pool", pool, counted), depth=len(pool))
        qrels = {query.id: {f"{other}:p{query.id[1:]}": 1 for other in WORDS} for query in counted}
        expected = evaluate(run, qrels, ["AP"])["AP"]
        assert matrix.pool_map[lang] == pytest.approx(expected)
        assert bias.pool_map[row] == pytest.approx(expected)
        first = [name for query in counted for name in run.ids(query.id)[:3]]
        assert matrix.same_language_rate[lang] == sum(name.startswith(f"{lang}:") for name in first) / len(first)
        assert matrix.same_language_rate[lang] == bias.preference[row, row]
    assert matrix.scores["en", "de"].per_query["RR@100"].keys() == {"q0", "q1", "q2", "q3"}  # no pool, all questions


def test_a_pool_without_a_question_that_has_all_golds_is_an_error():
    def with_passages(lang, *ids):
        one = COLLECTIONS[lang]
        qrels = {query: grades for query, grades in one.qrels.items() if grades.keys() <= set(ids)}
        return Collection(one.name, [passage for passage in one.passages if passage.id in ids], one.queries, qrels)

    held = {"en": ("p0", "p1"), "de": ("p1", "p2"), "th": ("p2", "p0")}  # any two languages share one
    apart = {lang: with_passages(lang, *ids) for lang, ids in held.items()}
    for measure in (language_matrix, language_bias):
        with pytest.raises(InterlinguaError, match="no question in 'en' has a relevant passage in every language"):
            measure(DictionaryEncoder(), apart)


def test_a_matrix_needs_two_languages():
    with pytest.raises(InterlinguaError, match="needs two"):
        language_matrix(DictionaryEncoder(), {"en": COLLECTIONS["en"]})
