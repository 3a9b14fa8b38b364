"""Passages of one's own files: ids and fields by any usual name, a text or a title, one policy for bad rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interlingua.data.files.tables import USUAL
from interlingua.data.passages import read_passages, read_sources
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("key", [*USUAL["id"], "ID"])
def test_an_id_is_found_by_each_of_its_names(tmp_path: Path, key: str) -> None:
    file = jsonl(tmp_path / "p.jsonl", {key: "a", "text": "x"}, {key: 7, "text": "y"}, {"text": "z"})
    assert [one.id for one in read_passages(file)] == ["a", "7", "p.jsonl:3"]


def test_a_collection_without_a_test_split_has_passages(tmp_path: Path) -> None:
    miracl = Path(__file__).parent / "fixtures/collections/miracl_sw"
    assert len(list(read_passages(miracl))) == len(list(read_sources([miracl]))) == 2
    (tmp_path / "beir/qrels").mkdir(parents=True)
    jsonl(tmp_path / "beir/corpus.jsonl", {"_id": "p", "text": "A lake.", "lang": "en"})
    jsonl(tmp_path / "beir/queries.jsonl", {"_id": "q", "text": "What is it?", "lang": "en"})
    for split in ("train", "dev"):
        (tmp_path / f"beir/qrels/{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp\t1\n")
    assert [one.id for one in read_passages(tmp_path / "beir")] == ["p"]


def test_a_folder_of_rows_and_other_files_is_read_whole(tmp_path: Path) -> None:
    jsonl(tmp_path / "faq.jsonl", {"id": "1", "text": "A lake."})
    assert [one.id for one in read_passages(tmp_path)] == ["1"]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/faq.tsv").write_text("question\tanswer\nHow?\tSo.\n")
    assert [one.text for one in read_passages(tmp_path / "tables", "en")] == ["So."]
    (tmp_path / "tables/faq.tsv").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/guide.md").write_text("# Guide\n\nPress it.\n")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG")
    assert {one.text for one in read_passages(tmp_path, "en")} == {"A lake.", "Press it."}


def test_fields_have_the_names_that_an_index_knows(tmp_path: Path) -> None:
    rows = (
        {"docid": "1", "contents": "Lake\n\nIt is deep.\n\nVery."},
        {"docid": "2", "contents": "No title."},
        {"docid": "3", "contents": "It is deep.", "title": "Lake"},
        {"uid": "4", "body": "Es ist tief.", "headline": "See", "language": "deu"},
    )
    assert list(read_passages(jsonl(tmp_path / "p.jsonl", *rows), lang="en")) == [
        Passage("1", "It is deep.\n\nVery.", "Lake", "en"),
        Passage("2", "No title.", "", "en"),
        Passage("3", "It is deep.", "Lake", "en"),
        Passage("4", "Es ist tief.", "See", "de"),
    ]


ROWS = (
    {"_id": "p1", "title": "", "text": "Ein Text"},
    {"_id": "p2", "title": "Nur ein Titel", "text": ""},
    {"_id": "p3", "title": " ", "text": ""},
    {"_id": "p4", "title": "Titel"},
    {"_id": "p1", "title": "", "text": "Noch einer"},
)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (ROWS[2], "line 3: neither a text nor a title"),
        (ROWS[3], r"line 3: no 'text' \(there is: _id, title\)"),
        (ROWS[4], "line 3: the passage id 'p1' occurs twice"),
    ],
)
def test_a_passage_needs_a_text_or_a_title(tmp_path: Path, bad: dict[str, str], reason: str) -> None:
    file = jsonl(tmp_path / "p.jsonl", *ROWS[:2], bad)
    with pytest.raises(InterlinguaError, match=rf"p\.jsonl, {reason}\. Mend the row or take it out") as error:
        list(read_passages(file))
    assert "collection" not in str(error.value)
    assert [one.title for one in read_passages(file, on_bad_row="skip")] == ["", "Nur ein Titel"]


def test_bad_rows_are_left_out_and_listed_of_all_kinds_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jsonl(tmp_path / "p.jsonl", *ROWS)
    (tmp_path / "q.tsv").write_text("\nid\ttext\ttitle\n1\tA lake.\t\n\n2\t \tLake\n3\tA tower.\tTower\n")
    (tmp_path / "r.csv").write_text("text,id\nA tree.,t\none,two,three\n")
    with pytest.raises(InterlinguaError, match=r"q\.tsv, line 5: 3 column\(s\)"):
        list(read_passages(tmp_path / "q.tsv"))
    with pytest.raises(InterlinguaError, match=r"r\.csv, line 3: 3 column\(s\)"):
        list(read_passages(tmp_path / "r.csv"))
    found = [one.id for name in ("p.jsonl", "q.tsv", "r.csv") for one in read_passages(tmp_path / name, "en", "skip")]
    assert found == ["p1", "p2", "1", "3", "t"]
    said = capsys.readouterr().err
    assert "3 bad rows left out:" in said
    assert f"{tmp_path}/p.jsonl, line 5: the passage id 'p1' occurs twice" in said
    assert f"{tmp_path}/q.tsv, line 5: " in said
    assert "r.csv, line 3: " in said


def test_columns_in_another_order_are_an_error_whatever_is_done_with_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("id\ttitle\ttext\n1\tLake\tA lake.\n")
    with pytest.raises(InterlinguaError, match=r"p\.tsv, line 1: the columns are id, title, text; they must be"):
        list(read_passages(tmp_path / "p.tsv", on_bad_row="skip"))
