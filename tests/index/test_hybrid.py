from __future__ import annotations

import math

import numpy as np
import pytest

from interlingua.data import encyclopedia
from interlingua.data.collections import load_collection
from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.index import Index, search
from interlingua.index import ranking as hybrid
from interlingua.index.local.store import LocalView
from interlingua.index.metadata import Question, load_to_encode
from interlingua.index.ranking import fuse, lexical_shares, meaning_weight, share_of_own
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.run import docid_order


def fused(lexical, meanings, weight, share=1.0):
    return fuse(np.array(lexical), [np.array(held) for held in meanings], weight, share).tolist()


def test_words_are_two_shares_and_meaning_is_brought_to_0_to_1():
    lexical, dense = [0.5, 0.25, 0.0], [-0.5, 0.5, 1.5]
    shares = [0.5, 0.25 / 2, 0]  # of the most there could be · of the best candidate's score
    assert fused(lexical, [dense], 1.0) == pytest.approx([(shares[0] + 0) / 2, (shares[1] + 0.5) / 2, 0.5])
    assert fused(lexical, [[0.3] * 3], 1.0) == pytest.approx([(share + 0.5) / 2 for share in shares])
    assert fused([1.0, 0.5, 0.0], [dense], 3.0) == pytest.approx([0.25, 0.4375, 0.75])


def test_the_fewer_of_the_words_occur_the_less_do_they_count():
    dense = [0.1, 0.9]
    assert fused([1.0, 0.0], [dense], 1.0) == pytest.approx([0.5, 0.5])
    few = fused([0.5, 0.0], [dense], 1.0)  # as many words again that nobody has
    assert few[1] > few[0]
    none = fused([0.0, 0.0], [dense], 1.0)  # a question without a term
    assert none[1] > none[0]


def test_where_no_passage_is_in_the_language_of_the_question_few_words_count_for_more():
    own, half, none = (fused([0.25, 0.125], [[0.5, 0.5]], 1.0, share)[0] for share in (1.0, 0.5, 0.0))
    assert (own, half, none) == pytest.approx([(part + 0.5) / 2 for part in (0.25, 0.25**0.75, 0.5)])
    assert fused([0.25, 0.125], [[0.5, 0.5]], 1.0, 0.0)[1] == pytest.approx((0.5 / 4 + 0.5) / 2)  # a quarter of that


def test_scores_that_are_not_finite_cannot_be_fused():
    for bad in (math.inf, -math.inf, math.nan):
        with pytest.raises(BadInput, match="a hybrid search: a score is infinite"):
            fused([0.0, 0.0], [[0.5, bad]], 1.0)
    assert fused([], [[]], 1.0) == []


def ranked(langs, words, share=0.0, weight=hybrid.FOREIGN, subwords=None):
    """The names of candidates that have nothing but tokens apart, best first, and the scores by name."""
    names, equal = list(langs), np.full(len(langs), 0.5)
    given = subwords or {name: name for name in names}
    found = hybrid.hybrid(
        "q",
        docid_order(names),
        list(langs.values()),
        np.zeros(len(names)),
        equal,
        weight,
        share,
        words,
        lambda places: [given[names[place]] for place in places],
    )
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    return [names[place] for place in found.order], {names[place]: score for place, score in found.tokens.items()}


def test_a_candidate_that_was_not_matched_gets_the_lowest_score_of_those_that_were(monkeypatch):
    monkeypatch.setattr(hybrid, "MATCHED", 2)
    scores = {"a": 0.2, "b": 0.6, "c": 0.2}
    found = hybrid.hybrid(
        "q",
        docid_order("abc"),
        ["en"] * 3,
        np.zeros(3),
        np.array([1.0, 0.5, 0.0]),
        1.0,
        0.0,
        Words(scores),
        lambda places: ["abc"[place] for place in places],
    )
    assert found.tokens == pytest.approx({0: 0.2, 1: 0.6})
    assert found.order.tolist() == [1, 0, 2]
    assert found.scores.tolist() == pytest.approx([0.375, 0.25, 0.0])


def test_meaning_weighs_more_the_fewer_passages_are_in_the_language_of_the_question():
    own, foreign = hybrid.OWN, hybrid.FOREIGN
    assert own < foreign
    assert meaning_weight(1.0) == pytest.approx(own)
    assert meaning_weight(0.0) == pytest.approx(foreign)
    assert meaning_weight(0.5) == pytest.approx((own * foreign) ** 0.5)
    assert own < meaning_weight(1.0, states=True) == hybrid.OWN_STATES
    assert foreign < meaning_weight(0.0, states=True) == hybrid.FOREIGN_STATES
    assert meaning_weight(1.0, known=False) == pytest.approx((own * foreign) ** 0.5)
    assert meaning_weight(0.0, known=False) == hybrid.UNKNOWN > foreign


@pytest.mark.parametrize(
    ("lang", "languages", "share"),
    [
        ("fi", {"fi": 10}, 1.0),
        ("eng", {"en": 10}, 1.0),
        ("fi", {"en": 10}, 0.0),
        ("fi", {"fi": 5, "en": 15}, 0.25),
        ("", {"fi": 10}, 1.0),
        ("", {"fi": 5, "en": 15}, 0.25**2 + 0.75**2),
        ("", {"en": 5, "eng": 5, "fi": 10}, 0.5),
        ("fi", {}, 0.5),
    ],
)
def test_the_share_of_passages_in_the_language_of_the_question(lang, languages, share):
    assert share_of_own(lang, languages) == share


class Words:
    """Scores that are given, in place of a static encoder's."""

    def __init__(self, scores):
        self.given = scores

    def question(self, text):
        return text

    def scores(self, question, passages):
        return np.array([self.given[name] for name in passages], dtype=np.float32)


def test_a_match_counts_by_how_much_it_is_better_than_others_in_its_language():
    langs = {"en1": "en", "en2": "en", "fi1": "fi", "fi2": "fi"}
    scores = {"en1": 0.9, "en2": 0.8, "fi1": 0.7, "fi2": 0.1}  # English asks: all English passages are near
    names, tokens = ranked(langs, Words(scores))
    assert names == ["fi1", "en1", "en2", "fi2"]
    assert tokens == pytest.approx(scores)
    del langs["fi2"]  # the only one in its language is above all the same
    assert ranked(langs, Words({**scores, "fi1": 0.99}))[0][0] == "fi1"
    one_language = dict.fromkeys(("en1", "en2", "fi1", "fi2"), "en")
    assert ranked(one_language, Words(scores))[0] == ["en1", "en2", "fi1", "fi2"]


def test_equal_scores_are_ordered_by_name_descending():
    names, _ = ranked({"p1": "en", "p3": "en", "p2": "en"}, Words(dict.fromkeys(("p1", "p2", "p3"), 0.5)))
    assert names == ["p3", "p2", "p1"]


def test_long_passages_must_match_better_in_the_language_of_the_question():
    langs = dict.fromkeys(("short", "longer"), "en")
    scores = {"short": 0.5, "longer": 0.6}

    class Matched(Words):
        def scores(self, question, passages):
            return super().scores(question, ["short" if len(held) == 10 else "longer" for held in passages])

    def best(share):
        subwords = {"short": range(10), "longer": range(40)}
        names, tokens = ranked(langs, Matched(scores), share, meaning_weight(share), subwords)
        assert tokens == pytest.approx(scores)
        return names[0]

    assert (best(0.0), best(1.0)) == ("longer", "short")
    turn = 0.1 / (hybrid.SHORTER * math.log(4))
    assert (best(turn - 0.01), best(turn + 0.01)) == ("longer", "short")


def test_the_most_that_terms_could_give_counts_those_that_no_passage_has(tmp_path, tiny_static):
    passages = [Passage("1", "cat cat dog", lang="en"), Passage("2", "cat", lang="en"), Passage("3", "bird", lang="en")]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    idf = {found: math.log(1 + (3 - found + 0.5) / (found + 0.5)) for found in range(4)}
    question = Question("cat dog dog unseen unseen unseen", "en")
    [matches] = index.refresh().lexical([question.terms(["en"])], 10)
    assert matches.weights == pytest.approx({"cat": idf[2], "dog": idf[1], "unseen": idf[0]})
    [share] = lexical_shares(question, ["en"], matches.weights, [2.0], [9.0], ["en"])
    assert share == pytest.approx(2.0 / (idf[2] + 2 * idf[1] + 3 * idf[0]))


@pytest.fixture
def candidates(monkeypatch):
    """What each hybrid search of the test ranks: the names and the dense scores of its candidates, of which each kind
    of search gives two."""
    seen = []

    names, docid_order_of = [], LocalView.docid_order

    def named(view, rows):
        names[:] = view.ids(rows)
        return docid_order_of(view, rows)

    def watched(text, docids, langs, lexical, dense, *rest):
        seen.append(dict(zip(names, dense.tolist(), strict=True)))
        return hybrid.hybrid(text, docids, langs, lexical, dense, *rest)

    monkeypatch.setattr(LocalView, "docid_order", named)
    monkeypatch.setattr(search, "DEPTH", 2)
    monkeypatch.setattr(search, "hybrid", watched)
    return seen


def test_candidates_that_are_equal_at_the_cut_are_chosen_by_name(tmp_path, candidates, tiny_static):
    passages = [Passage(f"p{number}", text, lang="en") for number, text in enumerate(["cat"] * 5 + ["dog"])]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    assert [hit.passage.id for hit in index.search("cat", 2, lang="en")] == ["p4", "p3"]
    assert [sorted(names) for names in candidates] == [["p3", "p4"]]


def test_a_score_that_is_nan_is_an_error_in_every_mode(tmp_path, monkeypatch, tiny_static, sentences):
    passages = [Passage(f"p{number}", text, lang="en") for number, text in enumerate(sentences[:4])]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    monkeypatch.setattr(LocalView, "dense", lambda view, vectors, depth: [{(0, 0): 0.5, (0, 2): math.nan}])
    with pytest.raises(BadInput, match=r"the score of passage 'p2' is NaN"):
        index.search(sentences[0], mode="dense")
    with pytest.raises(BadInput, match="NaN"):
        index.search(sentences[0], mode="hybrid")


def test_a_candidate_that_words_found_has_its_dense_score(tmp_path, monkeypatch, candidates, tiny_static, sentences):
    dense = LocalView.dense

    def no_more(self, vectors, depth):
        return [
            dict(sorted(scores.items(), key=lambda pair: -pair[1])[:depth]) for scores in dense(self, vectors, depth)
        ]

    passages = [Passage(f"p{number}", text, lang="en") for number, text in enumerate(sentences)]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    with monkeypatch.context() as patch:
        patch.setattr(LocalView, "dense", no_more)
        index.search_many(sentences, 2, lang="en")
    assert max(map(len, candidates)) > 2  # the two searches do not find the same
    for text, scores in zip(sentences, candidates, strict=True):
        hits = index.search(text, len(passages), mode="dense")
        assert scores.items() <= {hit.passage.id: hit.score for hit in hits}.items()


def test_the_languages_of_the_passages_are_those_that_count(tmp_path, monkeypatch, tiny_static, sentences):
    passages = [Passage(f"p{n}", text, lang=("en", "fi", "th")[n % 3]) for n, text in enumerate(sentences)]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    before = index.search(sentences[0], 9, lang="en")
    monkeypatch.setattr(LocalView, "langs", lambda self, rows: ["en"] * len(rows))
    assert [hit.score for hit in index.search(sentences[0], 9, lang="en")] != [hit.score for hit in before]


def test_the_first_candidates_are_matched_subword_by_subword(tmp_path, monkeypatch, tiny_static, sentences):
    encoder = tiny_static()
    passages = [Passage(f"p{number}", text) for number, text in enumerate(sentences)]
    index, words = Index.build(encoder, passages, tmp_path / "idx"), StaticMaxSim.of(encoder)
    [question] = [words.question(text) for text in sentences[:1]]
    whole = index.search(sentences[0], len(passages), lang="en")
    assert [hit.parts["tokens"] for hit in whole] == words.scores(
        question, words.subwords([hit.passage for hit in whole])
    ).tolist()
    monkeypatch.setattr(hybrid, "MATCHED", 3)
    assert ["tokens" in hit.parts for hit in index.search(sentences[0], len(passages), lang="en")].count(True) == 3
    monkeypatch.setattr(hybrid, "MATCHED", 0)
    assert not any("tokens" in hit.parts for hit in index.search(sentences[0], lang="en"))


def test_parts_of_a_word_that_one_analyzer_finds_count_no_more_than_the_word():
    """Indonesian has a stemmer, Finnish n-grams; the language of so short a question is not known."""
    question, langs = Question("Apa kegunaan huruf Braille?", ""), ["id", "fi"]
    weights = dict.fromkeys(question.terms(["fi", "id"]), 1.0)
    terms = {lang: question.counts(lang) for lang in langs}
    assert "braille" in terms["id"]
    assert {"brai", "ille"} <= terms["fi"].keys()
    lexical = [float(len(terms["id"])), 4.0]  # all words of the one, four parts of one word of the other
    shares = lexical_shares(question, ["fi", "id"], weights, lexical, [0.0, 0.0], langs)
    assert shares.tolist() == pytest.approx([1.0, 4.0 / len(terms["fi"])])
    known = Question("Apa kegunaan huruf Braille?", "id")
    assert lexical_shares(known, ["fi", "id"], weights, lexical, [0.0, 0.0], langs)[1] == 1.0  # read by one analyzer


class Blind:
    """An encoder to which all texts are alike."""

    similarity = "cosine"

    def encode_query(self, sentences, **options):
        return np.ones((len(sentences), 4), dtype=np.float32) / 2

    encode_document = encode_query


NAMES = [
    Passage("z", "Nobody is named here.", lang="en"),
    Passage("m", "The church had asked Luther to come.", lang="en"),
    Passage("a", "Church, church and church again.", lang="en"),
]


def test_passages_in_no_known_language_are_found_by_a_question_in_a_known_one(tmp_path, tiny_static):
    passages = [Passage(f"p{n}", text) for n, text in enumerate(["Running shoes", "Hiking boots", "Opening hours"])]
    passages += [Passage("en", "The keeper wrote every storm into a blue book.", lang="en")]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    question = Question("Do you sell running shoes and hiking boots?", "en")
    assert {hit.passage.id for hit in index.search(question, mode="lexical")} == {"p0", "p1"}
    hits = {hit.passage.id: hit.parts["lexical"] for hit in index.search(question)}
    assert min(hits["p0"], hits["p1"]) > hits["p2"] == hits["en"] == 0
    assert [hit.passage.id for hit in index.search("Who wrote the books?", lang="en", mode="lexical")] == ["en"]


def test_bokmål_is_norwegian(tmp_path, tiny_static):
    passages = [Passage("b", "Boken ligger på bordet.", lang="nb"), Passage("n", "Boka ligg på bordet.", lang="nn")]
    index = Index.build(tiny_static(), [*passages, Passage("e", "A book.", lang="en")], tmp_path / "idx")
    for name in ("no", "nb", "nob", "nor"):
        assert [hit.passage.id for hit in index.search("boken", langs=[name])] == ["b"]
    question = Question("Hvor ligger boken?", "no")
    assert [question.is_foreign(lang) for lang in ("nb", "no", "nn", "en", "")] == [False, False, True, True, True]
    assert share_of_own("no", {"nb": 1, "nn": 1, "en": 2}) == 0.25
    assert question.sought(["nb", "nn"], index.languages) == {"nb": "nb", "nn": "nb"}


def test_an_option_of_single_calls_builds_no_index(tmp_path, tiny_static):
    for option in ({"truncate_dim": 8}, {"prompt": "passage: "}, {"prompt_name": "document"}, {"lang": "fi"}):
        with pytest.raises(BadInput, match=f"{next(iter(option))}: passages that are added later"):
            Index.build(tiny_static(), [Passage("a", "text")], tmp_path / "idx", **option)


def test_a_name_is_found_by_its_sound_in_another_script(tmp_path):
    index = Index.build(Blind(), NAMES, tmp_path / "idx")
    for question, lang in (
        ("Когда жил Лютер?", "ru"),
        ("लूथर कब जीवित थे?", "hi"),
        ("متى عاش لوثر؟", "ar"),
        ("Лютер", ""),
    ):
        hits = index.search(question, 3, lang=lang)
        assert hits[0].passage.id == "m", question
        assert hits[0].parts["phonetic"] > 0 == hits[0].parts["lexical"]
        assert "phonetic" not in hits[1].parts
    assert not index.search("Когда жил Лютер?", lang="ru", mode="lexical")  # BM25 is about words


def test_sounds_count_for_nothing_where_the_languages_are_the_same(tmp_path):
    passages = [*NAMES, Passage("r", "Лютера попросила прийти церковь.", lang="ru")]
    index = Index.build(Blind(), passages, tmp_path / "idx")
    hits = index.search("Luthor's churches", lang="en")  # the key of Luther, but another word
    assert "phonetic" not in next(hit.parts for hit in hits if hit.passage.id == "m")
    assert next(hit.parts["phonetic"] for hit in hits if hit.passage.id == "r") > 0
    assert hits[0].passage.id == "a"


def test_a_passage_that_only_its_sound_finds_is_a_candidate(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "DEPTH", 1)
    monkeypatch.setattr(LocalView, "dense", lambda view, vectors, depth: [{(0, 0): 1.0}])
    index = Index.build(Blind(), NAMES, tmp_path / "idx")
    assert {hit.passage.id for hit in index.search("Когда жил Лютер?", 3, lang="ru")} == {"z", "m"}


def test_passages_in_the_language_of_the_question_do_not_stand_before_those_found_by_sound(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "DEPTH", 2)
    own = [Passage(f"r{number}", "литр молока", lang="ru") for number in range(6)]
    index = Index.build(Blind(), [*NAMES, *own], tmp_path / "idx")
    by_id = {hit.passage.id: hit for hit in index.search("Когда жил Лютер?", 4, lang="ru")}
    assert by_id["m"].parts["phonetic"] > 0
    assert not any("phonetic" in hit.parts for id, hit in by_id.items() if id != "m")


def test_keys_do_not_count_against_passages_that_have_none():
    question, langs = Question("Luther", "en"), ["fr", "zh", "en"]
    weights = dict.fromkeys([*question.terms(["en"]), *question.sounds], 1.0)
    assert lexical_shares(question, langs, weights, [1.0] * 3, [0.0] * 3, langs).tolist() == [0.5, 1.0, 1.0]
    assert lexical_shares(question, langs, weights, [0.0] * 3, [1.0, 0.0, 1.0], langs).tolist() == [0.5, 0.0, 0.0]


def test_a_long_question_has_its_first_keys_and_says_so():
    question = Question("Washington " * 500 + "Norman")
    assert len(question.sounds) == 2
    assert not question.is_cut
    letters = "bdglmnrs"
    many = Question(
        " ".join(f"{a}a{b}a{c}a{d}" for a in letters for b in letters for c in letters for d in letters[:2])
    )
    assert len(many.sounds) == 500
    assert many.is_cut


def test_keys_do_not_make_a_passage_longer(tmp_path):
    index = Index.build(
        Blind(), [Passage("1", "Norman Luther", lang="en"), Passage("2", "to be", lang="fi")], tmp_path / "idx"
    )
    [segment] = index.refresh().snapshot.segments
    assert segment.postings.lengths.tolist() == [2, 2]
    assert len(segment.postings.passages) == 6


@pytest.mark.slow
def test_a_passage_with_the_words_of_the_question_comes_before_its_translations(tmp_path):
    passages = [
        Passage(f"{lang}:{passage.id}", passage.text, passage.title, lang)
        for lang in encyclopedia.languages()
        for passage in load_collection(f"encyclopedia:{lang}").passages
    ]
    index = Index.build(load_to_encode("default"), passages, tmp_path / "idx")
    assert index.search("Apa kegunaan huruf Braille?", 1)[0].passage.id == "id:braille"
