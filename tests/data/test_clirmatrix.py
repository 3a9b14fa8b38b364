"""CLIRMatrix: pairs of grade 6 become linked documents, from local files and through ir_datasets alike."""

import gzip
import io
import json
import sys
from types import SimpleNamespace

import pytest
from ir_datasets.formats import CLIRMatrixQrels, GenericDoc

from interlingua.data.datasets import DataSpec, open_store, open_stream, read
from interlingua.data.linked import read_linked
from interlingua.data.readers import read_questions
from interlingua.data.records import Document, LinkedDocuments
from interlingua.errors import InterlinguaError

ENGLISH = {
    "12": "Anarchism is a philosophy. It has many schools.",
    "25": "A river. It is long.",
    "39": "Albedo.",
    "88": "Nobody asks for this one.",
}
CHINESE = {"73": "无政府主义是一种哲学。它有许多流派。", "80": "一条河。", "91": "反照率。", "99": " "}
ROWS = [
    {"src_id": "12", "src_query": "Anarchism", "tgt_results": [["73", 6], ["80", 5], ["91", 0]]},
    {"src_id": "25", "src_query": "River", "tgt_results": [["80", 6], ["73", "6"], ["91", 1]]},
    {"src_id": "39", "src_query": "Albedo", "tgt_results": [["404", 6], ["99", 6], ["91", 6]]},
    {"src_id": "500", "src_query": "Gone", "tgt_results": [["91", 6]]},
]
PAIRS = [("12", "73"), ("25", "80"), ("25", "73"), ("39", "91")]


@pytest.fixture
def files(tmp_path):
    with gzip.open(tmp_path / "en.zh.train.jl.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    for name, texts in (("en.tsv", ENGLISH), ("zh.tsv.gz", CHINESE)):
        text = "".join(f"{key}\t{value}\n" for key, value in texts.items())
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return tmp_path


def local(root, name="en.zh.train.jl.gz", **changes):
    options = {
        "source_documents": str(root / "en.tsv"),
        "target_documents": str(root / "zh.tsv.gz"),
        "target_lang": "zh",
        **changes,
    }
    return list(read_linked(root / name, **options))


def ids(linked):
    return [(one.source.id, one.target.id) for one in linked]


def test_a_blank_line_of_the_documents_is_no_row(files):
    (files / "en.tsv").write_text("\n" + (files / "en.tsv").read_text() + "\n\n")
    assert ids(local(files)) == PAIRS


def test_the_best_grade_links_documents(files, capsys):
    found = local(files)
    assert ids(found) == PAIRS
    assert found[0] == LinkedDocuments(
        Document(("Anarchism is a philosophy.", "It has many schools."), "en", "12", "", "clirmatrix:en:12"),
        Document(("无政府主义是一种哲学。", "它有许多流派。"), "zh", "73", "", "clirmatrix:en:12"),
    )
    assert "3 pairs with a document that has no text" in capsys.readouterr().err
    assert ids(local(files, grade=5)) == [PAIRS[0], ("12", "80"), *PAIRS[1:]]
    assert local(files, target_documents=[str(files / "zh.tsv.gz")]) == found


class Data:
    """A data set of ir_datasets in memory; judgements are parsed by the package itself."""

    def __init__(self, texts, qrels=None):
        self.texts, self.qrels, self.asked = texts, qrels, []

    def qrels_iter(self):
        unpacked = io.BytesIO(gzip.decompress(self.qrels.read_bytes()))
        return CLIRMatrixQrels(SimpleNamespace(stream=lambda: unpacked), {}).qrels_iter()

    def docs_handler(self):
        return self

    def docs_store(self):
        return self

    def get_many_iter(self, wanted):
        self.asked.append(len(wanted))
        return (GenericDoc(key, self.texts[key]) for key in wanted if key in self.texts)


@pytest.fixture
def installed(files, monkeypatch):
    sets = {
        "clirmatrix/en": Data(ENGLISH),
        "clirmatrix/zh/bi139-full/en/train": Data(CHINESE, files / "en.zh.train.jl.gz"),
    }
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=lambda name: sets[name]))
    return sets


ID = "ir_datasets:clirmatrix/zh/bi139-full/en/train"


def test_ir_datasets_gives_the_same(files, installed, capsys):
    assert list(read_linked(ID)) == local(files)
    assert f"{ID}: 3 pairs with a document that has no text" in capsys.readouterr().err
    assert ids(read_linked(ID, grade=5)) == ids(local(files, grade=5))
    with pytest.raises(InterlinguaError, match=r"grade.*integer"):
        list(read_linked(ID, grade="best"))
    assert installed["clirmatrix/en"].asked == [4, 4]  # each document is asked for once a chunk


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        (ID, {"limit": 3}, "takes no option 'limit'"),
        (ID + "x", {}, "ir_datasets knows no such id"),
        ("ir_datasets:msmarco-passage/train", {}, "not known to hold linked documents"),
    ],
)
def test_ids_that_cannot_be_read(installed, path, options, reason):
    with pytest.raises(InterlinguaError, match=reason):
        list(read_linked(path, **options))


def test_an_entry_of_a_recipe(files, installed):
    spec = DataSpec(kind="linked", path=ID, batch=3)
    store = open_store("linked", spec, files / "data")
    assert [store[i] for i in range(4)] == local(files)
    assert {span.group for span in next(open_stream("linked", store, spec, 0))} <= {
        f"clirmatrix:en:{i}" for i in ENGLISH
    }
    options = {
        "source_documents": str(files / "en.tsv"),
        "target_documents": str(files / "zh.tsv.gz"),
        "target_lang": "zh",
    }
    spec = DataSpec(kind="linked", path=str(files / "en.zh.train.jl.gz"), options=options)
    assert list(read("linked", spec)) == local(files)
    open_store("linked", spec, files / "local")
    (files / "en.tsv").write_text("12\tAnother text.\n")
    assert len(open_store("linked", spec, files / "local")) == 1


def test_documents_of_groups_are_read_as_before(tmp_path):
    rows = [{"lang": lang, "group": "g", "sentences": [lang]} for lang in ("en", "sw")]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [one.lang for one in read_linked(tmp_path / "d.jsonl")] == ["en", "sw"]
    assert len(list(read("linked", DataSpec(path=str(tmp_path / "d.jsonl"))))) == 1


@pytest.mark.parametrize(
    ("rows", "changes", "reason"),
    [
        (ROWS, {"target_lang": None}, "CLIRMatrix needs source_documents=…"),
        (ROWS, {"grade": 7}, "no result has the grade"),
        (ROWS, {"target_documents": "en.tsv", "target_lang": "de"}, "none of the 5 documents wanted is in it"),
        ([{"src_id": "1", "tgt_results": [["1"]]}], {}, "line 1: 'tgt_results' must be a list"),
        (
            [{"src_id": "1", "tgt_results": [["1", "six"]]}],
            {},
            r"line 1: \['1', 'six'\] is no document id with a grade",
        ),
        ([{"src_id": "1\n2", "tgt_results": [["1", 6]]}], {}, "white space"),
        ([{"src_id": "", "tgt_results": []}], {}, "'src_id' is empty"),
    ],
)
def test_what_cannot_be_read_is_named(files, rows, changes, reason):
    (files / "bad.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if "target_documents" in changes:
        changes = {**changes, "target_documents": str(files / changes["target_documents"])}
    with pytest.raises(InterlinguaError, match=reason) as caught:
        local(files, "bad.jsonl", **changes)
    assert len(str(caught.value).splitlines()) == 1


def test_a_bad_row_is_skipped_and_its_format_is_no_kind_of_questions(files, capsys):
    (files / "bad.jsonl").write_text(json.dumps(ROWS[0]) + "\n{}\n")
    assert ids(local(files, "bad.jsonl", on_bad_row="skip")) == PAIRS[:1]
    assert "bad.jsonl, line 2: no 'src_id'" in capsys.readouterr().err
    (files / "one.tsv").write_text("12\n")
    with pytest.raises(InterlinguaError, match=r"one\.tsv, line 1: 1 column, 2 are needed"):
        local(files, source_documents=str(files / "one.tsv"))
    with pytest.raises(InterlinguaError, match="none of the formats that are read here"):
        read_questions(files / "bad.jsonl")
