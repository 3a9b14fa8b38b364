from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from interlingua.data.irds import AnsweredQuery
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.evaluation import recall_at_tokens, results_table, xor_results
from interlingua.evaluation.xor import TOKENISED, first_tokens, measure_name, nltk_tokenizer, run_texts
from interlingua.retrieval.run import Run


def tokenize(text):
    """Like a treebank tokeniser where it matters here: a possessive and closing punctuation become tokens."""
    return re.findall(r"'s|[.,]|[^\s.,']+", text)


def asked(name, lang, *answers):
    return AnsweredQuery(name, "?", lang, answers)


PASSAGES = [
    Passage("p1", "Gordon Moore's law was stated in 1965.", "Intel", "en"),
    Passage("p2", "Ada Lovelace wrote the first program.", "", "en"),
    Passage("p3", "London lies on the Thames.", "Paris", "en"),
]
RUN = Run.from_scores(
    {
        "ar1": {"p1": 3, "p2": 2, "p3": 1},
        "ar2": {"p3": 2, "p1": 1},
        "fi1": {"p2": 1},
        "fi2": {"p3": 1},
        "fi3": {"p3": 1},
        "elsewhere": {"p1": 1},
    }
)
QUESTIONS = [
    asked("ar1", "ar", "Ada Lovelace"),
    asked("ar2", "ar", "Moore's law"),
    asked("fi1", "fi", "no", "program"),
    asked("fi2", "fi", "thames", "Paris"),
    asked("fi3", "fi", "yes"),
]


def test_by_hand():
    # ar1: tokens 1-9 are p1's (Gordon Moore 's law was stated in 1965 .), 10 and 11 are Ada Lovelace.
    # ar2: "London lies on the Thames . Gordon Moore 's law": the answer as it is never occurs.
    # fi1: "no" is left out, "program" is the sixth token. fi2: case counts, and titles are no text. fi3 is not counted.
    run = recall_at_tokens(RUN, PASSAGES, QUESTIONS, 11, tokenize=tokenize)
    assert run == {"ar": 50.0, "fi": 50.0, "mean": 50.0}
    assert recall_at_tokens(RUN, PASSAGES, QUESTIONS, 10, tokenize=tokenize)["ar"] == 0.0
    assert recall_at_tokens(RUN, PASSAGES, QUESTIONS, 10, tokenize=tokenize, normalize_answers=True)["ar"] == 50.0
    assert recall_at_tokens(RUN, PASSAGES, QUESTIONS, 9, tokenize=tokenize, normalize_answers=True)["ar"] == 0.0
    assert recall_at_tokens(RUN, PASSAGES, QUESTIONS, 5, tokenize=tokenize)["fi"] == 0.0


def test_a_tokenised_answer_only_adds():
    # alone, the answer ends in a full stop that the tokeniser parts; inside the passage it may not
    words = str.split
    texts = {"q": ["Smith Jr. was here"]}
    (result,) = xor_results(
        texts,
        [asked("q", "ko", "Smith Jr.")],
        (4,),
        tokenize=lambda text: words(text[:-1] + " .") if text.endswith(".") else words(text),
    )
    assert dict(result.scores) == {"R@4t": 100.0, "R@4t" + TOKENISED: 100.0}


def test_languages_count_the_same():
    questions = [*(asked(f"t{i}", "te", "yes.") for i in range(3)), asked("r", "ru", "x")]
    run = Run.from_scores({"t0": {"a": 1}, "r": {"a": 1}})
    found = recall_at_tokens(run, [Passage("a", "yes. y")], questions, 2, tokenize=str.split)
    # "yes." is an answer, not the word that is left out; t1 and t2 have no results and miss
    assert found == {"ru": 0.0, "te": pytest.approx(100 / 3), "mean": pytest.approx(100 / 6)}


def test_more_tokens_never_find_less():
    text = " ".join(f"w{i}" for i in range(60))
    texts = {f"q{i}": [text[i:], text] for i in range(40)}
    questions = [asked(f"q{i}", "ja", f"w{3 * i % 60} ", f"w{7 * i % 60}x") for i in range(40)]
    budgets = list(range(1, 90, 4))
    (result,) = xor_results(texts, questions, budgets, tokenize=str.split)
    for how in ("", TOKENISED):
        values = [result.scores[measure_name(budget) + how] for budget in budgets]
        assert values == sorted(values)
        assert values[0] < values[-1]
    for budget in budgets:
        assert result.scores[measure_name(budget)] <= result.scores[measure_name(budget) + TOKENISED]


def test_tokenising_stops_when_there_are_enough():
    read = []

    def reading(text):
        read.append(text)
        return text.split()

    assert first_tokens(["a b", "c", "d e", "f"], 3, reading) == ["a", "b", "c"]
    assert read == ["a b", "c"]
    assert first_tokens(["a b", "c d"], 3, str.split) == ["a", "b", "c"]
    assert first_tokens(["a"], 3, str.split) == ["a"]


def test_what_is_short_missing_or_unknown_is_said(capsys):
    texts = {"q1": ["one two"], "else": ["x"]}
    xor_results(
        texts, [asked("q1", "ar", "one"), asked("q2", "ar", "two"), asked("q3", "ar", "no")], (3,), tokenize=str.split
    )
    assert capsys.readouterr().err.splitlines() == [
        "1 question(s) have no results: each counts as a miss",
        "1 question(s) have fewer than 3 tokens retrieved: give more passages (--depth)",
        "1 result(s) for questions that are not among those given: left out",
    ]


def test_results_make_tables_by_language():
    systems = {"m": xor_results(run_texts(RUN, PASSAGES), QUESTIONS, (11,), tokenize=tokenize)}
    rows = {row["column"]: row for row in results_table(systems, "R@11t").records()}
    assert {column: (row["value"], row["queries"]) for column, row in rows.items()} == {
        "ar": (50.0, 2),
        "fi": (50.0, 2),
        "avg w/o en": (50.0, None),
    }
    assert rows["ar"]["low"] <= 50.0 <= rows["ar"]["high"]


def test_names_of_measures():
    assert [measure_name(tokens) for tokens in (2000, 5000, 1500, 999)] == ["R@2kt", "R@5kt", "R@1500t", "R@999t"]


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InterlinguaError, match=r"1 passage\(s\) that are not among the passages given, 'p3'"):
        recall_at_tokens(RUN, PASSAGES[:2], QUESTIONS, tokenize=tokenize)
    with pytest.raises(InterlinguaError, match="no question has an answer other than yes or no"):
        recall_at_tokens(RUN, PASSAGES, QUESTIONS[4:], tokenize=tokenize)
    with pytest.raises(InterlinguaError, match="token budgets"):
        xor_results({}, QUESTIONS, (0,), tokenize=tokenize)


def word_tokenize_without_data(text):
    raise LookupError(text)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, r"pip install interlingua\[eval\]"),
        (SimpleNamespace(word_tokenize=word_tokenize_without_data), "python -m nltk.downloader punkt_tab"),
    ],
)
def test_without_nltk_or_its_data_the_error_says_what_to_do(monkeypatch, module, said):
    monkeypatch.setitem(sys.modules, "nltk", module)
    monkeypatch.setitem(sys.modules, "nltk.tokenize", module)
    with pytest.raises(InterlinguaError, match=said):
        nltk_tokenizer()


@pytest.mark.slow
def test_nltk_parts_sentences_first():
    try:
        words = nltk_tokenizer()
    except InterlinguaError as error:
        pytest.skip(str(error))
    assert words("It is Moore's law. In the U.S. too.") == [
        "It",
        "is",
        "Moore",
        "'s",
        "law",
        ".",
        "In",
        "the",
        "U.S.",
        "too",
        ".",
    ]


def test_nltk_puts_a_space_into_a_possessive_and_none_into_an_abbreviation():
    treebank = pytest.importorskip("nltk.tokenize").NLTKWordTokenizer().tokenize  # needs no downloaded data
    texts = {"q": ["It is Moore's law in the U.S. and elsewhere."]}
    found = [
        xor_results(texts, [asked("q", "ar", answer)], (2000,), tokenize=treebank)[0].scores
        for answer in ("Moore's law", "the U.S. and")
    ]
    assert [[scores["R@2kt"], scores["R@2kt" + TOKENISED]] for scores in found] == [[0.0, 100.0], [100.0, 100.0]]
    assert all("R@2kt" in scores for scores in found)
