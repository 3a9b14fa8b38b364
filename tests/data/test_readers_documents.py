from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from interlingua.data.readers import read_documents, read_sentences
from interlingua.data.records import Document, Sentence
from interlingua.errors import InterlinguaError

DOCUMENTS = Path(__file__).parent / "fixtures" / "documents"


def test_documents_with_sentences_and_with_text() -> None:
    english, japanese = read_documents(DOCUMENTS / "documents.jsonl")
    assert english == Document(("The lake is deep.", "Fish live here.", "It is cold."), "en", "", "Lake", "g1")
    assert japanese.sentences == ("湖は深い。", "魚がいる。")
    assert japanese.id == "d2"


def test_a_text_is_split_by_the_rules_of_its_language(tmp_path: Path) -> None:
    row = {"title": "Berlin", "text": "Am 21. November schneite es.\n\nDann kam Tau."}
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({**row, **more}) + "\n" for more in ({"lang": "deu"}, {})))
    german, english = read_documents(tmp_path / "d.jsonl", lang="en")
    assert german == Document(("Am 21. November schneite es.", "Dann kam Tau."), "de", title="Berlin")
    assert english.sentences == ("Am 21.", "November schneite es.", "Dann kam Tau.")


def test_sentences_of_documents_and_of_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert [s.lang for s in read_sentences(DOCUMENTS / "documents.jsonl")] == ["en", "en", "en", "ja", "ja"]
    expected = [Sentence("Ziwa ni refu.", "sw"), Sentence("Samaki wanaishi hapa.", "sw")]
    assert list(read_sentences(DOCUMENTS / "sw.txt")) == expected
    assert "1 blank lines" in capsys.readouterr().err


def test_the_language_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("A line.\n")
    with pytest.raises(InterlinguaError, match=r"Give lang\."):
        list(read_sentences(tmp_path / "notes.txt"))
    assert [s.lang for s in read_sentences(tmp_path / "notes.txt", lang="en-GB")] == ["en"]
    (tmp_path / "notes.txt").write_text('{"text": "A line."}\n')
    with pytest.raises(InterlinguaError, match="no 'lang', and no language was given"):
        list(read_documents(tmp_path / "notes.txt"))


def test_a_table_is_not_plain_text(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("A line.\nA\ttable\n")
    with pytest.raises(InterlinguaError, match="none of the formats"):
        read_sentences(tmp_path / "en.txt")
    with pytest.raises(InterlinguaError, match=r"line 2: a tab.*side='source'"):
        list(read_sentences(tmp_path / "en.txt", format="text"))


def test_empty_sentences_are_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"lang": "en", "sentences": ["A.", " "]}\n')
    with pytest.raises(InterlinguaError, match=r"sentences\[1\] is empty"):
        list(read_documents(tmp_path / "d.jsonl"))


def test_importing_the_data_floor_loads_no_torch() -> None:
    code = "import sys, interlingua.data; assert not {'torch', 'transformers', 'ir_datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ccnets_rows_are_split_as_the_option_names(tmp_path: Path) -> None:
    row = {"url": "http://x.org", "digest": "sha1:A", "title": "Lac", "language": "fr", "bucket": "head"}
    row["raw_content"] = "Le lac est profond. Il pleut.\n\nUn titre\n"
    (tmp_path / "fr_head_0000.json.gz").write_bytes(gzip.compress((json.dumps(row) + "\n").encode()))
    (by_rules,) = read_documents(tmp_path / "fr_head_0000.json.gz")
    assert by_rules == Document(("Le lac est profond.", "Il pleut.", "Un titre"), "fr", "sha1:A", "Lac")
    (by_lines,) = read_documents(tmp_path / "fr_head_0000.json.gz", format="ccnet", split="lines")
    assert by_lines.sentences == ("Le lac est profond. Il pleut.", "Un titre")
    assert [one.text for one in read_sentences(tmp_path / "fr_head_0000.json.gz")] == list(by_rules.sentences)
    with pytest.raises(InterlinguaError, match="split"):
        list(read_documents(tmp_path / "fr_head_0000.json.gz", split="words"))
