"""Every reader gives the same records whatever the bytes come through, and says so where it cannot.

A file, a file without a last line end, with CRLF, with a BOM, gzipped, an empty one, a named pipe (FIFO), a pipe
(`/dev/fd/N`, as a shell's `<(…)`), `/dev/stdin` and `-`.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import signal
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from interlingua import files
from interlingua.alignment.mining import CorpusSide
from interlingua.alignment.texts import sample_texts, translations
from interlingua.data import linked
from interlingua.data.collections import load_collection
from interlingua.data.files import read_files, reading
from interlingua.data.irds import read_answered, read_predictions
from interlingua.data.layouts import jsonl_passages, read_qrels, tsv_queries
from interlingua.data.passages import read_passages
from interlingua.data.readers import (
    DOCUMENTS,
    PARALLEL,
    QUESTIONS,
    SENTENCES,
    read_documents,
    read_parallel,
    read_questions,
    read_sentences,
    source_fingerprint,
)
from interlingua.data.readers import bitext as bucc
from interlingua.data.readers.rows import BadRows
from interlingua.data.readers.source import expand, head
from interlingua.data.readers.triples import TRIPLES, id_passages, id_queries, read_id_triples
from interlingua.data.records import Passage
from interlingua.errors import BadInput, InterlinguaError
from interlingua.files import open_raw, read_lines
from interlingua.index import export as vector_files
from interlingua.pipes import forget_pipes
from interlingua.retrieval.pipeline.run import read_translations
from interlingua.retrieval.run import Run
from interlingua.training.recipe import raw_recipe

sys.path.append(str(Path(__file__).parent))
from office_files import book, pdf, slides, word

HERE = Path(__file__).parent / "fixtures"
NUMBER = 700  # of the open file that a pipe is given as: no text below holds it
NAMED = "passages are read from jsonl.*A pipe must give jsonl"


@dataclass(frozen=True)
class Reader:
    """`read(path, folder)` of a file called `name` in a folder that also holds `beside`. `empty`: the error for an
    empty file, "" where it has no records and that is no error. `unnamed`: the error for a pipe whose name tells
    nothing; None where the files are found in a folder, so that no pipe can be given."""

    name: str
    text: str | bytes
    read: Callable[..., Any]
    empty: str = "is empty"
    unnamed: str | None = ""
    packed: str = ""
    beside: dict[str, str] = field(default_factory=dict)


def fixture(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def questions(name: str, text: str) -> Reader:
    return Reader(name, text, listed(read_questions))


def parallel(name: str, text: str, **options: Any) -> Reader:
    return Reader(name, text, listed(read_parallel, **options))


def own(name: str, text: str | bytes, unnamed: str = NAMED, **more: Any) -> Reader:
    return Reader(name, text, listed(read_files, lang="en"), unnamed=unnamed, **more)


def listed(read: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda path, _, **more: list(read(path, **{**options, **more}))


def whole(collection: Any) -> Any:
    return collection.passages, collection.queries, collection.qrels


def in_folder(name: str, text: str, **beside: str) -> Reader:
    others = {key.replace("_", "."): value for key, value in beside.items()}
    return Reader(name, text, lambda _, folder: whole(load_collection(folder, lang="en")), unnamed=None, beside=others)


def table(columns: dict[str, list[str]]) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()


def jsonl(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def vectors() -> bytes:
    passages = [Passage("p1", "a book", "", "en"), Passage("p2", "a star", "", "en")]
    with tempfile.TemporaryDirectory() as folder:
        vector_files.write_parquet(f"{folder}/v", [(passages, np.eye(2, dtype=np.float32))])
        return Path(folder, "v").read_bytes()


LINES = "The lake is deep.\nFish live here.\n"
ROWS = jsonl({"id": "p1", "text": "a book", "lang": "en"}, {"id": "p2", "text": "a star", "title": "Sky", "lang": "en"})
QRELS = "q1 0 p1 1\nq1 0 p2 0\nq2 0 p2 1\n"
QUERIES = "q1\twhat is read?\nq2\twhat shines?\n"
CCNET = jsonl(
    {"url": "x", "digest": "1", "raw_content": "Järvi on syvä.\nTorni.", "language": "fi"},
    {"url": "y", "digest": "2", "raw_content": "Sataa. Tuulee.", "language": "fi"},
)
CLIRMATRIX = jsonl({"src_id": "12", "src_query": "River", "tgt_results": [["73", 6], ["80", 5]]})

READERS: dict[str, Reader] = {
    "questions/dpr": questions("q.json", fixture("questions/dpr.json") + "\n"),
    "questions/squad": questions("q.json", fixture("questions/squad.json") + "\n"),
    "questions/tevatron": questions("q.jsonl", fixture("questions/tevatron.jsonl")),
    "questions/jsonl": questions("q.jsonl", fixture("questions/plain.jsonl")),
    "questions/triples": questions("q.tsv", fixture("questions/triples.tsv")),
    # two files are told by their names, and so are FIFOs
    "parallel/moses": Reader(
        "x.fi",
        "Järvi.\nTorni.\n",
        lambda path, folder, **more: list(read_parallel([path, folder / "x.en"], **more)),
        unnamed="one side of a parallel corpus",
        beside={"x.en": "A lake.\nA tower.\n"},
    ),
    "parallel/tmx": parallel("m.tmx", fixture("parallel/memory.tmx")),
    "parallel/xliff": parallel("m.xlf", fixture("parallel/one.xlf")),
    "parallel/po": parallel("m.po", fixture("parallel/fi.po")),
    "parallel/documents": parallel(
        "d.jsonl",
        jsonl(
            {"group": "g", "lang": "en", "sentences": ["A lake.", "A tower."]},
            {"group": "g", "lang": "fi", "sentences": ["Järvi.", "Torni."]},
        ),
        pairs=["fi-en"],
    ),
    "parallel/jsonl": parallel("p.jsonl", fixture("parallel/plain.jsonl")),
    "parallel/wikimatrix": parallel(
        "w.tsv", fixture("parallel/WikiMatrix.en-fi.tsv"), source_lang="en", target_lang="fi"
    ),
    "parallel/tsv": parallel("t.tsv", fixture("parallel/ara-eng.tsv"), source_lang="ar", target_lang="en"),
    "documents/jsonl": Reader("d.jsonl", fixture("documents/documents.jsonl"), listed(read_documents)),
    "documents/ccnet": Reader("fi_head_0000.json", CCNET, listed(read_documents)),
    "sentences/jsonl": Reader("d.jsonl", fixture("documents/documents.jsonl"), listed(read_sentences)),
    "sentences/ccnet": Reader("fi_head_0000.json", CCNET, listed(read_sentences)),
    "sentences/text": Reader("s.txt", fixture("documents/sw.txt"), listed(read_sentences, lang="sw")),
    "sentences/passages": Reader(
        "docs.jsonl", b'{"id": "1#0", "contents": "Title\\n\\nText."}\n' * 3, listed(read_sentences, lang="sw")
    ),
    "linked/clirmatrix": Reader(
        "c.jsonl",
        CLIRMATRIX,
        lambda path, folder: list(
            linked.read_linked(
                path, source_documents=str(folder / "en.tsv"), target_documents=str(folder / "zh.tsv"), target_lang="zh"
            )
        ),
        beside={"en.tsv": "12\tA river.\n", "zh.tsv": "73\t一条河。\n"},
    ),
    "linked/documents": Reader(
        "zh.tsv",
        "73\t一条河。\n74\t湖。\n",
        lambda path, folder: list(
            linked.read_linked(
                folder / "c.jsonl",
                source_documents=str(folder / "en.tsv"),
                target_documents=str(path),
                target_lang="zh",
            )
        ),
        empty="none of the 1 documents wanted is in it",
        beside={"en.tsv": "12\tA river.\n", "c.jsonl": CLIRMATRIX},
    ),
    "triples/jsonl": Reader(
        "t.jsonl", jsonl(["q1", "p1", "p2"], ["q2", "p2", "p1"]), listed(read_id_triples, bad=BadRows())
    ),
    "triples/qrels": Reader("t.qrels", QRELS, listed(read_id_triples, bad=BadRows())),
    "triples/tsv": Reader("t.tsv", "q1\tp1\tp2\nq2\tp2\tp1\n", listed(read_id_triples, bad=BadRows())),
    "triples/passages": Reader(
        "p.tsv", "p1\tBook\ta book\np2\tSky\ta star\n", listed(id_passages, bad=BadRows(), lang="en")
    ),
    "triples/queries": Reader("q.tsv", QUERIES, listed(id_queries, bad=BadRows(), lang="en")),
    "collection/squad": Reader(
        "c.json", fixture("questions/squad.json") + "\n", lambda path, _: whole(load_collection(path, lang="en"))
    ),
    "collection/folder": in_folder("passages.jsonl", ROWS, queries_tsv=QUERIES, qrels_txt=QRELS),
    "collection/beir": in_folder(
        "corpus.jsonl",
        ROWS.replace('"id"', '"_id"'),
        **{
            "queries_jsonl": jsonl({"_id": "q1", "text": "what is read?"}, {"_id": "q2", "text": "what shines?"}),
            "qrels/test_tsv": "query-id\tcorpus-id\tscore\nq1\tp1\t1\nq2\tp2\t1\n",
        },
    ),
    "collection/mrtydi": in_folder("docs.jsonl", ROWS, topic_test_tsv=QUERIES, qrels_test_txt=QRELS),
    "collection/passages": Reader("p.jsonl", ROWS, listed(jsonl_passages, lang="en")),
    "collection/queries": Reader("q.tsv", QUERIES, listed(tsv_queries, lang="en")),
    "collection/qrels": Reader("q.qrels", QRELS, lambda path, _: read_qrels(path)),
    "xor/questions": Reader(
        "x.jsonl", jsonl({"id": "1", "question": "Missä?", "lang": "fi", "answers": ["London"]}), listed(read_answered)
    ),
    "xor/predictions": Reader(
        "x.json",
        '[{"id": "1", "ctxs": ["a"]},\n{"id": "2", "ctxs": []}]\n',
        lambda path, _: read_predictions(path),
        empty="a JSON array is needed",
    ),
    "bucc/folder": Reader(
        "fr-en.training.fr",
        "fr-1\tUn lac.\nfr-2\tUne tour.\n",
        lambda _, folder: bucc.read_bucc(folder, "fr-en"),
        unnamed=None,
        empty="1 ids are not in",
        beside={"fr-en.training.en": "en-1\tA lake.\n", "fr-en.training.gold": "fr-1\ten-1\n"},
    ),
    "bucc/gold": Reader(
        "x.gold", "fr-1\ten-1\nfr-2\ten-2\n", lambda path, _: sorted(bucc.read_gold(path)), empty="holds no pair"
    ),
    "files/.txt": own("f.txt", "The lake is deep.\nFish live here.\n\nIt is cold.\n"),
    "files/.md": own("f.md", "# Lake\n\nThe lake is deep.\n\n```\ncode\n```\nIt is cold.\n"),
    "files/.html": own("f.html", "<html><title>Lake</title>\n<h1>Deep</h1>\n<p>Fish live\nhere.</p><pre>a\nb</pre>\n"),
    "files/.csv": own("f.csv", 'text;kind\n"a; book\nof bees";1\na star;2\n'),
    "files/.tsv": own("f.tsv", "text\tkind\na book\t1\na star\t2\n"),
    "files/.jsonl": own("f.jsonl", jsonl({"text": "a book", "kind": 1}, {"text": "a star"}), unnamed=""),
    "files/.parquet": own(
        "f.parquet",
        table({"text": ["a book", "a star"]}),
        empty="cannot be read as Parquet",
        packed="cannot be read as Parquet",
    ),
    "files/.pdf": own("f.pdf", pdf(["A book of bees."]), empty="cannot be read as PDF"),
    "files/.docx": own("f.docx", word(), empty="is no DOCX"),
    "files/.pptx": own("f.pptx", slides(), empty="is no PPTX"),
    "files/.epub": own("f.epub", book(), empty="is no EPUB"),
    "passages/jsonl": Reader(
        "p.jsonl", jsonl({"text": "a book"}, {"text": "a star", "id": "s"}), listed(read_passages, lang="en")
    ),
    "passages/tsv": Reader(
        "p.tsv",
        'id\ttext\ttitle\n1\t"a ""b""\tbook"\tBook\n2\ta star\t\n',
        listed(read_passages, lang="en"),
        unnamed=NAMED,
    ),
    "run": Reader(
        "a.run", "q1 Q0 p1 1 2.5 t\nq1 Q0 p2 2 1.5 t\n", lambda path, _: dict(Run.read_trec(path)), empty=""
    ),  # a run that found nothing
    "translations": Reader("t.tsv", QUERIES, lambda path, _: read_translations(path)),
    "lines of encode": Reader("s.txt", LINES, listed(read_lines), empty=""),  # the command itself says it
    "sides of mine": Reader("s.txt", LINES, lambda path, _: CorpusSide.read(path)),
    "sides of mine with ids": Reader("s.tsv", "a\tA lake.\nb\tA tower.\n", lambda path, _: CorpusSide.read(path)),
    "texts of calibrate": Reader("s.txt", LINES, lambda path, _: sample_texts([f"en={path}"], 5)),
    "pairs of calibrate": Reader(
        "p.jsonl", fixture("parallel/plain.jsonl"), lambda path, _: translations([str(path)], "en", 5)
    ),
    "recipe": Reader(
        "r.yaml",
        "model:\n  backbone: x\ntraining: {steps: 3}\n",
        lambda path, _: raw_recipe(path),
        empty="a recipe is a mapping",
    ),
    "vectors": Reader(
        "v.parquet",
        vectors(),
        lambda path, _: [(passages, vectors.tolist()) for passages, vectors in vector_files.read_parquet(path)],
        empty="is damaged, or not a file of vectors",
        packed="is damaged, or not a file of vectors",
    ),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No copy of another test, and an error in place of a reader that waits for ever."""

    def late(*_: object) -> None:
        raise TimeoutError("a reader hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    forget_pipes()


def fill(target: int | Path, content: bytes) -> threading.Thread:
    """A thread that writes `content` into an open file, or into a named pipe as soon as somebody opens it."""

    def write() -> None:
        with suppress(BrokenPipeError), open(target, "wb") as stream:
            stream.write(content)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


@contextmanager
def pipe(content: bytes) -> Iterator[Path]:
    """A pipe that gives `content`, as the shell names it."""
    first, into = os.pipe()
    number = fcntl.fcntl(first, fcntl.F_DUPFD, NUMBER)
    os.close(first)
    thread = fill(into, content)
    try:
        yield Path(f"/dev/fd/{number}")
    finally:
        os.close(number)
        thread.join()


StandardInput = Callable[[int], AbstractContextManager[None]]


def nameless(records: Any, path: Path) -> str:
    """The records without the name of their source."""
    text = repr(records)
    for name in (str(path), path.name, path.name.removesuffix(".gz")) if str(path) != "-" else ("/dev/stdin", "stdin"):
        text = text.replace(name, "NAME")
    return text.replace("'-'", "'NAME'")


@pytest.mark.parametrize("key", READERS)
def test_every_reader_reads_the_same_from_everything(key: str, tmp_path: Path, standard_input: StandardInput) -> None:
    reader = READERS[key]
    text = reader.text
    content = text.encode() if isinstance(text, str) else text
    folders = iter(range(99))

    def place(suffix: str = "") -> Path:
        folder = tmp_path / str(next(folders)) / "set"
        for name, other in reader.beside.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(other, encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / (reader.name + suffix)

    def found(path: Path, folder: Path | None = None) -> str:
        return nameless(reader.read(path, folder or path.parent), path)

    def saved(content: bytes, suffix: str = "") -> Path:
        path = place(suffix)
        path.write_bytes(content)
        return path

    def refused(path: Path, says: str, folder: Path | None = None) -> None:
        with pytest.raises(InterlinguaError, match=says) as error:
            reader.read(path, folder or path.parent)
        assert path.name in str(error.value)

    expected = found(saved(content))
    assert len(expected) > 20

    if isinstance(text, str):
        assert text.endswith("\n")
        assert found(saved(content[:-1])) == expected, "no end of the last line"
        assert found(saved(content.replace(b"\n", b"\r\n"))) == expected, "CRLF"
        assert found(saved(b"\xef\xbb\xbf" + content)) == expected, "BOM"
    if reader.packed:
        refused(saved(gzip.compress(content), ".gz"), reader.packed)
    else:
        assert found(saved(gzip.compress(content), ".gz")) == expected, "gzip"
        assert found(saved(gzip.compress(content))) == expected, "gzip by content"
    if reader.empty:
        refused(saved(b""), reader.empty)
    else:
        assert not reader.read(saved(b""), tmp_path)

    folder = place().parent
    for given in ("/dev/fd", "/dev/stdin", "-") if reader.unnamed is not None else ():
        with pipe(content) as path, standard_input(int(path.name)):
            path = path if given == "/dev/fd" else Path(given)
            if reader.unnamed:
                with pytest.raises(InterlinguaError, match=reader.unnamed):
                    reader.read(path, folder)
            else:
                assert found(path, folder) == expected, given

    for packed in (content, *([] if reader.packed else [gzip.compress(content)])):
        path = place()
        os.mkfifo(path)
        thread = fill(path, packed)
        assert found(path) == expected, "a named pipe"
        thread.join()


def test_every_format_is_in_the_table() -> None:
    for kind, formats in (
        ("questions", QUESTIONS),
        ("parallel", PARALLEL),
        ("documents", DOCUMENTS),
        ("sentences", SENTENCES),
        ("triples", TRIPLES),
    ):
        assert {f"{kind}/{one.name}" for one in formats} <= READERS.keys()
    known = {**reading.DOCUMENTS, **reading.TABLES}
    assert {known[key.removeprefix("files/")] for key in READERS if key.startswith("files/")} == set(known.values())


@dataclass(frozen=True)
class Bad:
    """A row of a sample made bad: `text` stands where `good` did. It is found at `place`, for a `reason`, and `left` of
    the records are read without it."""

    good: str
    text: str
    place: str
    reason: str
    left: int


BAD = {
    "questions/dpr": Bad('"positive_ctxs"', '"no_ctxs"', "line 2", "'positive_ctxs' must be a list", 1),
    "questions/squad": Bad(
        '"question": "Where does it lie?"', '"question": ""', "data[0].paragraphs[0].qas[1]", "'question' is empty", 2
    ),
    "questions/tevatron": Bad('"query": "nani', '"quer": "nani', "line 2", "no 'query'", 1),
    "questions/jsonl": Bad('"question": "Deep?"', '"question": 1.5', "line 4", "'question' must be text", 2),
    "questions/triples": Bad("\tFish live here.", "\t", "line 2", "an empty column", 1),
    "parallel/moses": Bad("Torni.", " ", "line 2", "an empty side", 1),
    "parallel/tmx": Bad('<tuv xml:lang="de"><seg>Schl', "<tuv><seg>Schl", "line 12", "a variant without xml:lang", 2),
    "parallel/xliff": Bad("<source>Not yet</source>", "<source></source>", "line 6", "without a source text", 1),
    "parallel/po": Bad('msgstr "Avaa tiedosto"', 'msgstr " "', "line 7", "an empty side", 1),
    "parallel/documents": Bad('"A lake."', '""', "line 1", "is empty or no text", 0),
    "parallel/jsonl": Bad('"score": 1.2', '"score": "high"', "line 1", "'score' must be a finite number", 0),
    "parallel/wikimatrix": Bad("1.2\t", "high\t", "line 2", "the margin 'high' is no number", 6),
    "parallel/tsv": Bad("\tThe tower is high.", "", "line 2", r"1 column\(s\), 2 or 3 are needed", 1),
    "documents/jsonl": Bad('"Fish live here."', "3", "line 1", "is empty or no text", 1),
    "documents/ccnet": Bad('"raw_content": "Sataa.', '"raw": "Sataa.', "line 2", "no 'raw_content'", 1),
    "sentences/jsonl": Bad('"lang": "ja"', '"lang": "qqq"', "line 2", "qqq", 3),
    "sentences/ccnet": Bad('"raw_content": "Sataa.', '"raw": "Sataa.', "line 2", "no 'raw_content'", 2),
    "sentences/text": Bad("Samaki ", "Samaki\t", "line 3", "a tab: this looks like a table", 1),
    "sentences/passages": Bad("Text.", "", "line 1", "a passage without text", 2),
    "triples/jsonl": Bad('"p1", "p2"', '"p1", ["p2"]', "line 1", "is no id", 1),
    "triples/qrels": Bad("p2 1\n", "p2\n", "line 3", "'p2' is no score", 1),
    "triples/tsv": Bad("q2\tp2\tp1", "q2\tp2", "line 2", r"2 column\(s\), at least 3 are needed", 1),
}


@pytest.mark.parametrize(
    ("key", "old", "new", "says"),
    [
        ("parallel/jsonl", '"score": 1.2', f'"score": 1{"0" * 400}', "'score' must be a finite number"),
        ("triples/jsonl", '"p1", "p2"', f'["p1", 1{"0" * 400}], ["p2", 1]', "is no score"),
        ("collection/qrels", QRELS, f"q1 0 p1 {'1' * 5000}\n", "is no judgement"),
    ],
)
def test_a_number_with_hundreds_of_digits_is_a_bad_row(key, old, new, says, tmp_path: Path) -> None:
    reader = READERS[key]
    assert isinstance(reader.text, str)
    assert old in reader.text
    (tmp_path / reader.name).write_text(reader.text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput, match=says):
        list(reader.read(tmp_path / reader.name, "error") or ())


@pytest.mark.parametrize("key", BAD)
def test_a_bad_row_is_an_error_that_names_it_or_is_left_out_and_counted(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, bad = READERS[key], BAD[key]
    text = reader.text if isinstance(reader.text, str) else reader.text.decode()
    assert bad.good in text
    for name, other in reader.beside.items():
        (tmp_path / name).write_text(other, encoding="utf-8")
    path = tmp_path / reader.name
    path.write_text(text.replace(bad.good, bad.text, 1), encoding="utf-8")
    with pytest.raises(BadInput, match=bad.reason) as error:
        reader.read(path, tmp_path, format=key.partition("/")[2])
    assert f"{path}, {bad.place}: " in str(error.value)
    skipped = BadRows("skip")
    own = {"bad": skipped} if key.startswith("triples") else {"on_bad_row": "skip"}
    with caplog.at_level("WARNING"):
        assert len(reader.read(path, tmp_path, format=key.partition("/")[2], **own)) == bad.left
    if key.startswith("triples"):  # whoever gives the policy reports
        assert skipped.total == 1
        skipped.report()
    assert "1 bad row left out:" in caplog.text
    assert f"{path}, {bad.place}: " in caplog.text


def test_every_format_has_a_bad_row() -> None:
    kinds = {"questions": QUESTIONS, "parallel": PARALLEL, "documents": DOCUMENTS, "sentences": SENTENCES}
    kinds["triples"] = TRIPLES
    assert {f"{kind}/{one.name}" for kind, formats in kinds.items() for one in formats} == BAD.keys()


def test_a_pipe_without_a_writer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.pipes.PATIENCE", 0.0)
    fifo = tmp_path / "s.txt"
    os.mkfifo(fifo)
    for read in (
        lambda: list(read_lines(fifo)),
        lambda: head(fifo),
        lambda: read_sentences(fifo, lang="en"),
        lambda: load_collection(fifo),
        lambda: list(read_files(fifo)),
    ):
        with pytest.raises(InterlinguaError, match=r"s\.txt: nothing writes to this pipe\. Start the program"):
            read()
    monkeypatch.undo()
    thread = fill(fifo, b"A lake.\n")  # it may come later
    assert [text for _, text in read_lines(fifo)] == ["A lake."]
    thread.join()


def test_a_writer_that_is_slow_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.pipes.PATIENCE", 0.0)
    fifo, found = tmp_path / "s.txt", []
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    reader = threading.Thread(target=lambda: found.extend(read_lines(fifo)), daemon=True)
    reader.start()
    for part in (b"A la", b"ke.\nA to"):
        os.write(writer, part)
        while fcntl.ioctl(writer, 0x541B, b"\0" * 4) != b"\0" * 4:  # FIONREAD: the reader took it all
            assert reader.is_alive()
    os.write(writer, b"wer.\n")
    os.close(writer)
    reader.join(60)
    assert found == [(1, "A lake."), (2, "A tower.")]


def test_a_writer_that_comes_right_after_a_look_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo, real, writers = tmp_path / "s.txt", os.read, []
    os.mkfifo(fifo)

    def read(number: int, size: int) -> bytes:
        part = real(number, size)
        if not writers:  # the first look found no writer; now one comes, writes and goes
            writers.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            os.write(writers[0], b"A lake.\n")
            os.close(writers[0])
        return part

    monkeypatch.setattr(os, "read", read)
    assert list(read_lines(fifo)) == [(1, "A lake.")]


def test_a_writer_that_says_nothing_leaves_an_empty_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.txt")
    thread = fill(tmp_path / "s.txt", b"")
    with pytest.raises(InterlinguaError, match=r"s\.txt: is empty"):
        head(tmp_path / "s.txt")
    thread.join()


def test_one_pipe_is_read_once_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standard_input: StandardInput
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = "".join(f"line {number} of a text that is longer than any buffer\n" for number in range(20_000))
    with pipe(text.encode()) as path, standard_input(int(path.name)):
        streams = [read_lines(name) for name in (path, f"/proc/self/fd/{path.name}", "/dev/stdin", "-")]
        for number, rows in enumerate(zip(*streams, strict=True), 1):
            assert len(set(rows)) == 1
            assert rows[0][0] == number
        assert number == 20_000
        with open_raw("-") as stream:
            assert stream.seek(-5, os.SEEK_END) == len(text) - 5
            assert (stream.read(), stream.seek(5), stream.read(2)) == (b"ffer\n", 5, b"0 ")
    assert list(tmp_path.iterdir()) == []  # the copy has no name that could be left


def test_a_named_pipe_is_read_anew_only_when_it_is_forgotten(tmp_path: Path) -> None:
    fifo = tmp_path / "s.txt"
    os.mkfifo(fifo)
    for text in ("one", "two"):
        thread = fill(fifo, text.encode())
        assert list(read_lines(fifo)) == list(read_lines(fifo)) == [(1, text)]
        thread.join()
        forget_pipes()
    os.mkfifo(tmp_path / "other")
    fill(fifo, b"three")
    assert list(read_lines(fifo)) == [(1, "three")]
    fifo.unlink()
    os.mkfifo(fifo)  # most file systems would give it the number of the one before
    fill(fifo, b"four")
    assert list(read_lines(fifo)) == [(1, "four")]


def test_standard_input_from_a_file_begins_where_it_stands(tmp_path: Path, standard_input: StandardInput) -> None:
    (tmp_path / "s.txt").write_text("head\nA lake.\nA tower.\n")
    for read, expected in ((0, ["head", "A lake.", "A tower."]), (5, ["A lake.", "A tower."])):
        with open(tmp_path / "s.txt", "rb", buffering=0) as stream, standard_input(stream.fileno()):
            os.read(0, read)
            for _ in range(2):
                assert [text for _, text in read_lines("-")] == expected
        forget_pipes()


def test_a_terminal_is_told_that_text_is_expected(
    capsys: pytest.CaptureFixture[str], standard_input: StandardInput
) -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"A lake.\nA tower.\n\x04")
    with standard_input(terminal):
        assert [text for _, text in read_lines("-")] == ["A lake.", "A tower."]
    assert capsys.readouterr().err == "/dev/stdin: type text, a line each; Ctrl-D ends it\n"
    os.close(keyboard)
    os.close(terminal)


def test_a_copy_that_failed_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    with pipe(b"A lake.\n") as path:
        with monkeypatch.context() as patched:
            patched.setattr(files.tempfile, "TemporaryFile", Full)
            with pytest.raises(InterlinguaError, match=r"cannot be copied to /.* \(No space left on device\).*TMPDIR"):
                list(read_lines(path))
        with pytest.raises(InterlinguaError, match="stopped half way, and a pipe gives its text only once"):
            list(read_lines(path))


def test_training_data_may_not_be_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fi-en.tsv")
    with pytest.raises(InterlinguaError, match=r"fi-en\.tsv: is a pipe\. Training must find the same data"):
        source_fingerprint(tmp_path / "fi-en.tsv")


def test_what_a_folder_or_glob_holds_beside_files_is_said_or_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("A lake.\n")
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to("nowhere")
    assert expand(tmp_path) == [tmp_path / "a.txt"]
    assert "not read, as they are no regular files: b.txt, c.txt" in capsys.readouterr().err
    assert [path.name for path in expand(str(tmp_path / "*.txt"))] == ["a.txt", "b.txt", "c.txt"]
    with pytest.raises(InterlinguaError, match=r"c\.txt: no such file"):
        list(read_lines(tmp_path / "c.txt"))


@pytest.mark.parametrize("key", ["questions/dpr", "parallel/tmx", "lines of encode", "files/.txt"])
def test_a_broken_gzip_file_is_named(tmp_path: Path, key: str) -> None:
    reader = READERS[key]
    packed = gzip.compress(str(reader.text).encode() * 50)
    for broken in (packed[:40], packed[:30] + bytes(8) + packed[38:]):
        (tmp_path / reader.name).write_bytes(broken)
        with pytest.raises(InterlinguaError, match=rf"{reader.name}.*cannot be read"):
            reader.read(tmp_path / reader.name, tmp_path)


def test_a_line_that_would_fill_the_memory_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("interlingua.files.LONGEST_LINE", 4 << 20)
    with gzip.open(tmp_path / "bomb.txt.gz", "wb", compresslevel=1) as stream:
        stream.write(b"a line\n" + b"\0" * (64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=r"bomb.txt.gz, line 2: has more than 4 MiB"):
            list(read_lines(tmp_path / "bomb.txt.gz"))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
