from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from interlingua.data.collections import load_collection
from interlingua.data.readers import questions as json_array
from interlingua.data.readers import read_questions
from interlingua.data.readers.questions import as_row
from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import BadInput, InterlinguaError

FIXTURES = Path(__file__).parent / "fixtures"
QUESTIONS = FIXTURES / "questions"
BROKEN = FIXTURES / "broken"


def test_dpr_puts_the_gold_passage_first() -> None:
    first, second = read_questions(QUESTIONS / "dpr.json")
    assert first.question == "who built the lighthouse"
    assert [passage.id for passage in first.positives] == ["34", "12"]
    assert first.positives[0] == Passage("34", "The lighthouse was built by Ada.", "Lighthouse", "en")
    assert [passage.id for passage in first.negatives] == ["56"]
    assert second.positives[0].id == "78"
    assert second.negatives == ()


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_dpr_is_streamed_over_any_chunk(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole = list(read_questions(QUESTIONS / "dpr.json"))
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    assert list(read_questions(QUESTIONS / "dpr.json")) == whole
    lines = [line for line, _ in json_array.json_array(QUESTIONS / "dpr.json")]
    text = (QUESTIONS / "dpr.json").read_text().split("\n")
    assert [text[line - 1] for line in lines] == ["    {", "    {"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"positive_ctxs": [1, 2}]', "line 1: an element that is not JSON or is cut off"),
        ('[\n{"positive_ctxs": []}\n', "line 3: ',' or ']' after an element is needed"),
        ('[{"positive_ctxs": []}] 7', "text after the end of the array"),
        ('["positive_ctxs"]', "the array must consist of objects"),
    ],
)
def test_broken_json_array(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "dpr.json").write_text(text)
    with pytest.raises(InterlinguaError, match=r"dpr\.json, line") as caught:
        list(json_array.json_array(tmp_path / "dpr.json"))
    assert reason in str(caught.value)


def test_dpr_without_positive_is_a_bad_row(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InterlinguaError, match=r"line 43: the question 'how deep is the lake' has no positive passage"):
        list(read_questions(BROKEN / "dpr_without_positive.json"))
    kept = list(read_questions(BROKEN / "dpr_without_positive.json", on_bad_row="skip"))
    assert [record.question for record in kept] == ["who built the lighthouse"]
    assert "1 bad row left out" in capsys.readouterr().err


def test_tevatron() -> None:
    first, second = read_questions(QUESTIONS / "tevatron.jsonl", lang="sw")
    assert (first.id, first.lang, first.positives[0].id, len(first.negatives)) == ("1", "sw", "8#0", 2)
    assert second.positives == (Passage("5#3", "Mnara ulijengwa na Ada.", "Mnara", "sw"),)


def test_squad_makes_every_paragraph_a_passage(capsys: pytest.CaptureFixture[str]) -> None:
    records = list(read_questions(QUESTIONS / "squad.json"))
    assert [record.id for record in records] == ["a1", "a2", "a4"]
    assert records[0].positives == records[1].positives != records[2].positives
    assert records[2].positives[0].text == "Fish live in it."
    assert "1 questions without an answer" in capsys.readouterr().err


def test_a_bad_question_of_squad_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    skipped, bad = {"id": "1", "question": "why", "is_impossible": True}, {"id": "2", "question": " "}
    paragraph = {"context": "It is deep.", "qas": [skipped, bad]}
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"title": "Lake", "paragraphs": [paragraph]}]}))
    with pytest.raises(BadInput, match=r"squad.json, data\[0\].paragraphs\[0\].qas\[1\]: 'question' is empty"):
        list(read_questions(path))
    with pytest.raises(BadInput, match=r"squad.json, data\[0\].paragraphs\[0\]: 'question' is empty. Mend the coll"):
        load_collection(path, lang="en")


def test_plain_rows_name_their_language_and_equal_passages_share_an_id() -> None:
    english, german, again = read_questions(QUESTIONS / "plain.jsonl")
    assert (english.lang, german.lang, again.lang) == ("en", "de", "en")
    assert english.positives[0].id == again.positives[0].id != german.positives[0].id
    assert english.id == "x-0"


def test_triples() -> None:
    first, second = read_questions(QUESTIONS / "triples.tsv")
    assert first.question == "how deep is the lake"
    assert [p.text for p in second.negatives] == ["Ada built a lighthouse.", "Fish live here."]
    with pytest.raises(InterlinguaError, match="these are ids, the texts are needed"):
        list(read_questions(BROKEN / "triples_of_ids.tsv"))


def test_folder_glob_and_gzip_read_the_same(tmp_path: Path) -> None:
    for name in ("tevatron.jsonl", "plain.jsonl"):
        with gzip.open(tmp_path / f"{name}.gz", "wb") as packed:
            packed.write((QUESTIONS / name).read_bytes())
    (tmp_path / ".hidden").write_text("not a question")
    expected = [*read_questions(QUESTIONS / "plain.jsonl"), *read_questions(QUESTIONS / "tevatron.jsonl")]
    assert list(read_questions(tmp_path)) == expected
    assert list(read_questions(str(tmp_path / "*.jsonl.gz"))) == expected


def test_bad_rows_stop_or_are_counted_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InterlinguaError, match=r"plain_questions\.jsonl, line 2: not JSON .*`on_bad_row: skip` in"):
        list(read_questions(BROKEN / "plain_questions.jsonl"))
    kept = list(read_questions(BROKEN / "plain_questions.jsonl", on_bad_row="skip"))
    assert [record.question for record in kept] == ["A?", "G?"]
    said = capsys.readouterr().err
    assert "4 bad rows left out" in said
    for reason in (
        "line 2: not JSON",
        "line 3: 'question' is empty",
        "line 4: 'klingon' is not a language code",
        "line 5: no 'passage' (there is: question)",
    ):
        assert reason in said


def test_many_bad_rows_are_counted_and_ten_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.dumps({"question": "A?", "passage": "B."})
    (tmp_path / "q.jsonl").write_text("\n".join([good, *["{}"] * 25]))
    assert len(list(read_questions(tmp_path / "q.jsonl", on_bad_row="skip"))) == 1
    said = capsys.readouterr().err
    assert "25 bad rows left out" in said
    assert said.count("no 'passage'") == 10
    assert "and 15 more" in said


def test_bad_rows_are_reported_when_the_reader_is_closed_early(capsys: pytest.CaptureFixture[str]) -> None:
    reader = read_questions(BROKEN / "plain_questions.jsonl", on_bad_row="skip")
    next(reader), next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert "4 bad rows left out" in capsys.readouterr().err


def test_errors_before_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n \n")
    (tmp_path / "prose.md").write_text("Some prose.\n")
    for call, message in (
        (lambda: read_questions(tmp_path / "empty.jsonl"), "is empty"),
        (lambda: read_questions(tmp_path / "prose.md"), "none of the formats that are read here"),
        (lambda: read_questions(tmp_path / "nothing"), "no such file"),
        (lambda: read_questions(str(tmp_path / "*.xml")), "no file matches"),
        (lambda: read_questions(QUESTIONS / "dpr.json", format="drp"), "Did you mean 'dpr'"),
        (lambda: read_questions(QUESTIONS / "dpr.json", on_bad_row="skp"), "Did you mean 'skip'"),
        (lambda: read_questions(QUESTIONS / "dpr.json", treshold=2), "has no option 'treshold'"),
        (lambda: read_questions(QUESTIONS / "dpr.json", lang="xyz"), "not a language code"),
    ):
        with pytest.raises(InterlinguaError, match=message):
            call()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InterlinguaError, match="the folder holds no file"):
        read_questions(tmp_path / "folder")


def test_a_named_format_is_not_guessed(tmp_path: Path) -> None:
    shutil.copy(QUESTIONS / "plain.jsonl", tmp_path / "q")
    with pytest.raises(InterlinguaError, match="no 'query'"):
        list(read_questions(tmp_path / "q", format="tevatron"))


def test_plain_questions_bring_hard_negatives(tmp_path: Path) -> None:
    row = {"question": "A?", "passage": "B.", "negatives": ["C.", {"passage": "D.", "title": "d"}, " ", {"text": "E."}]}
    (tmp_path / "q.jsonl").write_text(json.dumps(row))
    (found,) = read_questions(tmp_path / "q.jsonl")
    assert [(one.title, one.text) for one in found.negatives] == [("", "C."), ("d", "D."), ("", "E.")]
    (tmp_path / "q.jsonl").write_text(json.dumps(row | {"negatives": "C."}))
    with pytest.raises(InterlinguaError, match="'negatives' must be a list"):
        list(read_questions(tmp_path / "q.jsonl"))


def test_a_blank_line_of_triples_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("Where?\tHere.\tThere.\n\n \nWhen?\tNow.\n")
    with pytest.raises(InterlinguaError, match=r"line 4: 2 column\(s\)"):
        list(read_questions(tmp_path / "t.tsv", format="triples"))
    assert len(list(read_questions(tmp_path / "t.tsv", format="triples", on_bad_row="skip"))) == 1


def test_a_passage_may_be_a_title_alone(tmp_path: Path) -> None:
    record = QuestionPassage("Who?", (Passage("p", "", "Ada", "en"),), (Passage("n", "", "Bob", "en"),), "en", "1")
    (tmp_path / "q.jsonl").write_text(json.dumps(as_row(record)))
    assert list(read_questions(tmp_path / "q.jsonl")) == [record]
    (tmp_path / "q.jsonl").write_text(json.dumps(as_row(replace(record, positives=(Passage("p", "", " ", "en"),)))))
    with pytest.raises(InterlinguaError, match="'text' is empty"):
        list(read_questions(tmp_path / "q.jsonl"))
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "title": "Ada", "passage": ""}\n')
    assert [one.positives[0].title for one in read_questions(tmp_path / "q.jsonl")] == ["Ada"]


def test_the_name_of_a_file_tells_the_language_of_its_questions(tmp_path: Path) -> None:
    row = json.dumps(
        {"query_id": "1", "query": "Missä?", "positive_passages": [{"docid": "1", "title": "", "text": "Täällä."}]}
    )
    for name, given, lang in (
        ("train.fi.jsonl", None, "fi"),
        ("train-fin.jsonl", None, "fi"),
        ("train.fi.jsonl", "sv", "sv"),
        ("train.jsonl", None, "en"),
    ):
        (tmp_path / name).write_text(row, encoding="utf-8")
        assert [one.lang for one in read_questions(tmp_path / name, lang=given)] == [lang]


HALVES = {
    "dpr.json": [
        {"question": "\ud800", "answers": [], "positive_ctxs": [{"title": "", "text": "a"}], "negative_ctxs": []}
    ],
    "squad.json": {
        "data": [{"title": "", "paragraphs": [{"context": "a \udc00", "qas": [{"id": "1", "question": "b"}]}]}]
    },
}


@pytest.mark.parametrize("name", HALVES)
def test_half_a_character_is_a_bad_row(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps(HALVES[name]))
    with pytest.raises(BadInput, match=r"line 1|paragraph"):
        list(read_questions(tmp_path / name))
    assert list(read_questions(tmp_path / name, on_bad_row="skip")) == []
    if name == "squad.json":
        with pytest.raises(BadInput, match="half a surrogate pair"):
            load_collection(tmp_path / name)


def test_questions_without_an_answer_are_counted_in_a_collection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qas = [{"id": "1", "question": "a"}, {"id": "2", "question": "b", "is_impossible": True}]
    (tmp_path / "a.en.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": qas}]}]}))
    assert [query.id for query in load_collection(tmp_path / "a.en.json").queries] == ["1"]
    assert "1 questions without an answer not read" in capsys.readouterr().err


def test_languages_of_tydi_qa_and_mlqa_are_those_of_ids_and_names(tmp_path: Path) -> None:
    def squad(name: str, id: str) -> Path:
        qas = [{"id": id, "question": "Mikä?", "answers": [{"text": "a", "answer_start": 0}]}]
        data = {"data": [{"title": "t", "paragraphs": [{"context": "a b", "qas": qas}]}]}
        (tmp_path / name).write_text(json.dumps(data))
        return tmp_path / name

    (tydi,) = read_questions(squad("tydiqa-goldp-v1.1-train.json", "finnish-81-3"))
    assert (tydi.lang, tydi.positives[0].lang) == ("fi", "fi")
    (mlqa,) = read_questions(squad("test-context-ar-question-de.json", "a1b2"))
    assert (mlqa.lang, mlqa.positives[0].lang) == ("de", "ar")


def test_the_language_of_a_row_of_dpr_wins(tmp_path: Path) -> None:
    rows = [{"question": "q", "lang": "ja", "positive_ctxs": [{"title": "", "text": "t", "passage_id": "1"}]}]
    (tmp_path / "d.json").write_text(json.dumps(rows))
    assert [one.lang for one in read_questions(tmp_path / "d.json")] == ["ja"]


@pytest.mark.parametrize("row", ["1185869\tmsmarco_passage_00_1\tmsmarco_passage_07_9", "PLAIN-1\tMED-2427\t2"])
def test_ids_with_letters_are_no_texts_either(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.tsv").write_text(f"{row}\n")
    with pytest.raises(InterlinguaError, match="these are ids, the texts are needed"):
        list(read_questions(tmp_path / "a.tsv"))
