from __future__ import annotations

import gzip
import json

import pytest

from interlingua.data.irds import AnsweredQuery, is_prediction, read_answered, read_predictions
from interlingua.data.passages import read_passages
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError

QUESTION = {"id": "-7", "question": "Missä?", "lang": "fi", "answers": ["London", "yes"], "split": "dev"}


def test_questions_with_answers(tmp_path):
    path = tmp_path / "xor_dev.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.write(json.dumps(QUESTION) + "\n\n" + json.dumps({**QUESTION, "id": 8, "lang": "te", "answers": []}))
    assert read_answered(path) == [
        AnsweredQuery("-7", "Missä?", "fi", ("London", "yes")),
        AnsweredQuery("8", "Missä?", "te", ()),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**QUESTION, "answers": ["London", " "]}, r"q\.jsonl, line 2: 'answers' holds a text that is empty"),
        ({**QUESTION, "answers": "London"}, "line 2: 'answers' must be a list of texts"),
        ({key: QUESTION[key] for key in ("id", "question", "lang")}, "line 2: 'answers' must be a list of texts"),
        ({key: QUESTION[key] for key in ("id", "question", "answers")}, "line 2: no 'lang'"),
        (QUESTION, "line 2: the question id '-7' occurs twice"),
    ],
)
def test_bad_questions(tmp_path, row, said):
    (tmp_path / "q.jsonl").write_text(json.dumps(QUESTION) + "\n" + json.dumps({"id": "x"} | row), encoding="utf-8")
    with pytest.raises(InterlinguaError, match=said):
        read_answered(tmp_path / "q.jsonl")


def test_predictions_in_the_official_form(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps([{"id": "-7", "lang": "fi", "ctxs": ["b", "", "a"]}, {"id": "8", "ctxs": []}]))
    assert read_predictions(path) == {"-7": ("b", "", "a"), "8": ()}
    assert is_prediction(path)
    (tmp_path / "a.run").write_text("q Q0 p 1 0.5 tag\n")
    assert not is_prediction(tmp_path / "a.run")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            '[{"id": "1", "ctxs": ["a"]},\n{"id": "1", "ctxs": ["a"]}]',
            r"p\.json, line 2: the question id '1' occurs twice",
        ),
        ('[{"id": "1", "ctxs": [{"text": "a"}]}]', "line 1: 'ctxs' must be a list of texts"),
        ('[{"id": "1", "ctxs"', "line 1: an element that is not JSON"),
    ],
)
def test_bad_predictions(tmp_path, rows, said):
    (tmp_path / "p.json").write_text(rows)
    with pytest.raises(InterlinguaError, match=said):
        read_predictions(tmp_path / "p.json")


ROWS = '1\t"He said ""no"", and\tleft."\tA "B" C\n2\tplain "text" here\t\n'


@pytest.mark.parametrize("header", ["id\ttext\ttitle\n", ""])
def test_passages_of_dpr(tmp_path, header):
    (tmp_path / "psgs_w100.tsv").write_text(header + ROWS, encoding="utf-8")
    assert list(read_passages(tmp_path / "psgs_w100.tsv", "en")) == [
        Passage("1", 'He said "no", and\tleft.', 'A "B" C', "en"),
        Passage("2", 'plain "text" here', "", "en"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id\ttitle\ttext\n1\tA\tb\n", r"p\.tsv, line 1: the columns are id, title, text"),
        ("1\ta\tA\n2\tb\n", "line 2: 2 column"),
        ("1\ta\tA\n2\t \tB\n", "line 2: 3 column.*only the title may be empty"),
        ("1\ta\tA\n1\tb\tB\n", "line 2: the passage id '1' occurs twice"),
        ('1\ta\tA\n2\t"a" b\tB\n', "line 2: .*expected after"),
        ('1\t"a\tA\n2\tb\tB\n', "unexpected end of data"),
        ("", "is empty"),
    ],
)
def test_bad_passages_of_dpr(tmp_path, text, said):
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(InterlinguaError, match=said):
        list(read_passages(tmp_path / "p.tsv"))
