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


CONTENTS = {"id": "{i}#0", "contents": "Title {i}\n\nText {i}.\n\nMore."}
FIELDS = {"docid": "{i}#0", "title": "Title {i}", "text": "Text {i}.\n\nMore."}


def collection(folder: Path, layout: dict[str, str], count: int) -> Path:
    """Mr.TyDi's own layout (`{id, contents}`) or that of its copy on the Hugging Face hub (`{docid, title, text}`)."""
    folder.mkdir(parents=True)
    rows = ({key: value.format(i=i) for key, value in layout.items()} for i in range(count))
    name = "docs.jsonl.gz" if "contents" in layout else "corpus.jsonl.gz"
    with gzip.open(folder / name, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


@pytest.mark.parametrize("layout", [CONTENTS, FIELDS], ids=["contents", "fields"])
def test_passages_of_a_collection_are_sampled_in_the_language_of_its_folder(
    tmp_path: Path, layout: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = collection(tmp_path / "mrtydi-v1.1-thai/collection", layout, 40)
    every = list(read_sentences(folder, limit=None))
    assert every == [Sentence(f"Text {i}.\n\nMore.", "th") for i in range(40)]
    some = list(read_sentences(folder, limit=10))
    assert "30 passages over the limit of 10 not taken" in capsys.readouterr().err
    assert len(some) == 10
    assert some != every[:10]
    assert [one for one in every if one in some] == some  # in the order of the file
    assert set(read_sentences(folder, limit=4)) < set(some)
    assert list(read_sentences(folder, limit=10, seed=1)) != some
    assert {one.lang for one in read_sentences(folder, lang="sw")} == {"sw"}


def test_passages_need_a_language_and_a_text(tmp_path: Path) -> None:
    folder = collection(tmp_path / "passages/collection", CONTENTS, 2)
    with pytest.raises(InterlinguaError, match="no 'lang', and no language was given"):
        list(read_sentences(folder))
    (folder / "docs.jsonl.gz").unlink()
    (folder / "docs.jsonl").write_text('{"id": "1", "contents": "Title\\n\\n "}\n')
    with pytest.raises(InterlinguaError, match="line 1: a passage without text"):
        list(read_sentences(folder, lang="th"))


def test_plain_text_beside_the_foreign_side_of_parallel_files(tmp_path: Path) -> None:
    """WikiMatrix has no Thai: Thai sentences stand beside the foreign sides of its files."""
    (tmp_path / "WikiMatrix.en-sw.tsv").write_text("1.1\tThe lake is deep.\tZiwa ni refu.\n", encoding="utf-8")
    (tmp_path / "th.txt").write_text("ทะเลสาบลึก\n", encoding="utf-8")
    files = [tmp_path / "WikiMatrix.en-sw.tsv", tmp_path / "th.txt"]
    found = [Sentence("Ziwa ni refu.", "sw"), Sentence("ทะเลสาบลึก", "th")]
    assert list(read_sentences(files, side="foreign")) == found
    assert list(read_sentences(files[1], side="foreign")) == found[1:]
    with pytest.raises(InterlinguaError, match="has no option 'lang'"):
        read_sentences(files, side="foreign", lang="th")


def test_the_language_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("A line.\n")
    with pytest.raises(InterlinguaError, match=r"Name it so, or give `lang`\."):
        list(read_sentences(tmp_path / "notes.txt"))
    assert [s.lang for s in read_sentences(tmp_path / "notes.txt", lang="en-GB")] == ["en"]
    (tmp_path / "notes.txt").write_text('{"text": "A line."}\n')
    with pytest.raises(InterlinguaError, match="no 'lang', and no language was given"):
        list(read_documents(tmp_path / "notes.txt"))


def test_a_table_is_not_plain_text(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("A line.\nA\ttable\n")
    for options in ({}, {"format": "text"}):
        with pytest.raises(InterlinguaError, match=r"line 2: a tab.*side='source'"):
            list(read_sentences(tmp_path / "en.txt", **options))
    (tmp_path / "en.txt").write_text("One\ttable\nA line.\nA\ttable\n")
    with pytest.raises(InterlinguaError, match=r"looks like parallel text \(tsv\)"):
        read_sentences(tmp_path / "en.txt")


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
