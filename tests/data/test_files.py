from __future__ import annotations

import os
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from interlingua.data.encyclopedia import topics
from interlingua.data.files import Report, Scope, SourceNames, read_files, whole
from interlingua.data.files import chunks as blocks
from interlingua.data.files import encoding as check
from interlingua.data.files import markdown as plain_text
from interlingua.data.files import pages as web_page
from interlingua.data.passages import is_collection, read_passages, read_sources
from interlingua.data.records import Passage, QuestionPassage, decode, encode
from interlingua.data.store import RecordStore
from interlingua.errors import InterlinguaError


def make(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def ids(*paths: Path | str, report: Report | None = None, **options: object) -> list[str]:
    return [one.id for one in read_files(paths, **{"lang": "en", "report": report or Report(), **options})]


# --- folders


def test_a_folder_is_walked_in_sorted_order(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "b.txt": "B.",
            "a.md": "A.",
            "Z.txt": "Z.",
            "sub/c.html": "C.",
            "sub/deep/d.txt": "D.",
            "a-sub/e.txt.gz": "E.",
            "sub/t.jsonl": '{"text": "T."}\n{"text": "U.", "id": "u"}\n',
        },
    )
    found = [
        name if name == "u" else f"{tmp_path.name}/{name}"
        for name in (
            "Z.txt#1",
            "a.md#1",
            "b.txt#1",
            "a-sub/e.txt.gz#1",
            "sub/c.html#1",
            "sub/t.jsonl:1",
            "u",
            "sub/deep/d.txt#1",
        )
    ]
    assert ids(tmp_path) == ids(str(tmp_path) + "/") == found
    sources = {one.source for one in read_files(tmp_path, lang="en", report=Report())}
    assert sources == {one.partition("#")[0].partition(":")[0] for one in found} - {"u"}


def test_an_index_in_a_folder_is_no_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = {"index.json": "{}", "passages.lance/x.txt": "X.", "checksums.jsonl": "{}"}
    make(
        tmp_path / "f", {"a.txt": "A.", **{f"idx/{name}": text for name, text in index.items()}, "site/index.json": "{"}
    )
    assert [one.id for one in read_files(tmp_path / "f")] == ["f/a.txt#1"]
    said = capsys.readouterr().err
    assert "not read: an index (1: f/idx)\n" in said
    assert ".json file (1: f/site/index.json)" in said


def test_what_is_not_read_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = make(tmp_path / "outside", {"secret.txt": "Secret.", "more/x.txt": "X."})
    folder = make(
        tmp_path / "folder",
        {
            "a.txt": "A text in English, long enough to tell.",
            ".hidden.txt": "x",
            ".git/b.txt": "x",
            "empty.txt": " \n",
            "p.png": b"\x89PNG",
            "q.png": b"\x89PNG",
            "Makefile": "x",
            "package.json": "{",
            "script.html": "<script>x</script>",
            "..data/real.txt": "Real.",
        },
    )
    (folder / "out.txt").symlink_to(outside / "secret.txt")
    (folder / "out").symlink_to(outside)
    (folder / "up").symlink_to(folder)
    (folder / "twin.txt").symlink_to("a.txt")
    (folder / "real.txt").symlink_to("..data/real.txt")
    (folder / "nowhere.txt").symlink_to("not-there.txt")
    os.mkfifo(folder / "pipe.txt")
    assert [one.id for one in read_files(folder)] == ["folder/a.txt#1", "folder/real.txt#1"]
    said = capsys.readouterr().err
    assert "2 files, 2 passages: en 1, unknown 1" in said
    for line in (
        "hidden (3, such as folder/..data)",
        "link that leaves the folder (2, such as folder/out)",
        "link to a folder (1: folder/up)",
        "link to a file of the folder (2, such as folder/nowhere.txt)",
        "empty file (1: folder/empty.txt)",
        ".png file (2, such as folder/p.png)",
        "file without a suffix (1: folder/Makefile)",
        ".json file (1: folder/package.json)",
        "file without text (1: folder/script.html)",
        "no regular file (1: folder/pipe.txt)",
    ):
        assert f"not read: {line}\n" in said
    assert "Secret" not in said


def test_a_name_does_not_depend_on_what_else_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("x/docs", "y/docs", "y/more"):
        make(tmp_path / folder, {"a.txt": "A.", "b/a.txt": "B."})
    x, y, more = tmp_path / "x/docs", tmp_path / "y/docs", tmp_path / "y/more"
    docs = ["docs/a.txt#1", "docs/b/a.txt#1"]
    assert ids(x) == ids(y) == docs
    assert ids(x, more) == [*docs, "more/a.txt#1", "more/b/a.txt#1"]
    assert ids(x / "a.txt", x / "b") == ["a.txt#1", "b/a.txt#1"]
    monkeypatch.chdir(x)
    assert ids(".") == ids("b/..") == ids("../docs/") == docs
    assert ids("*/a.txt") == ["a.txt#1"]


def test_of_two_with_one_name_the_second_is_called_by_more_of_its_path(tmp_path: Path) -> None:
    for folder in ("x/docs", "y/docs", "y/more", "z/y"):
        make(tmp_path / folder, {"a.txt": "A.", "b/a.txt": "B."})
    x, y, more = tmp_path / "x/docs", tmp_path / "y/docs", tmp_path / "y/more"
    assert ids(x, y, more)[::2] == ["docs/a.txt#1", "y/docs/a.txt#1", "more/a.txt#1"]
    assert ids(x / "a.txt", y / "a.txt", more / "b/a.txt") == ["a.txt#1", "docs/a.txt#1", "b/a.txt#1"]
    # a folder `y` with `docs` in it would have the names that `y/docs` has
    assert ids(x, y, tmp_path / "z/y")[4:] == ["z/y/a.txt#1", "z/y/b/a.txt#1"]


def test_what_is_known_keeps_its_name(tmp_path: Path) -> None:
    for folder in ("x/docs", "y/docs"):
        make(tmp_path / folder, {"a.txt": "A.", "b/a.txt": "B."})
    x, y = tmp_path / "x/docs", tmp_path / "y/docs"
    first = SourceNames()
    ids(x, y, names=first)
    assert first.known == {"docs": str(x), "y/docs": str(y)}

    def later(*paths: Path) -> list[str]:
        return ids(*paths, names=SourceNames(first.known))

    assert later(y) == ["y/docs/a.txt#1", "y/docs/b/a.txt#1"]
    assert later(y / "b/a.txt", x / "a.txt", x / "b") == ["y/docs/b/a.txt#1", "docs/a.txt#1", "docs/b/a.txt#1"]
    assert later(tmp_path / "y") == ["y/docs/a.txt#1", "y/docs/b/a.txt#1"]  # found inside another folder
    assert later(tmp_path) == ["docs/a.txt#1", "docs/b/a.txt#1", "y/docs/a.txt#1", "y/docs/b/a.txt#1"]
    (tmp_path / "link").symlink_to(x)
    assert later(tmp_path / "link" / "a.txt") == ["docs/a.txt#1"]


def test_a_folder_that_moved_keeps_its_name(tmp_path: Path) -> None:
    for folder in ("x/docs", "y/docs"):
        make(tmp_path / "old" / folder, {"a.txt": "A."})
    first = SourceNames()
    ids(tmp_path / "old/x/docs", tmp_path / "old/y/docs", names=first)
    (tmp_path / "old").rename(tmp_path / "new")
    x, y = tmp_path / "new/x/docs", tmp_path / "new/y/docs"
    for paths in ((x, y), (y, x), (y / "a.txt", x / "a.txt")):
        names = SourceNames(first.known)
        assert sorted(ids(*paths, names=names)) == ["docs/a.txt#1", "y/docs/a.txt#1"]
        assert names.known == {"docs": str(x), "y/docs": str(y)}


def test_a_name_that_is_no_unicode_can_be_written(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xe9.txt"))).write_text("Text.")
    (found,) = ids(tmp_path)
    assert found == f"{tmp_path.name}/b\\xe9.txt#1"
    assert found.encode()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["nothing"], r"nothing: no such file \(the nearest folder"),
        (["empty"], r"empty: no passage to read \(there is no file\)\. What can be read: \.jsonl.*\.md"),
        (["hidden"], r"hidden: no passage to read \(not read: hidden \(1: hidden/\.a\.txt\)\)"),
        (["folder/p.png"], r"p\.png: passages are read from jsonl"),
        (["folder/c.jsonl.zst"], r"c\.jsonl\.zst: passages are read .*\. Decompress it first \(`zstd -d`\)"),
        (["folder", "folder/sub"], r"sub: lies in .*folder, which is given too"),
        (["folder/a.txt", "folder/a.txt"], r"a\.txt: a second file called '.*a\.txt'\. Give each file once"),
        (["folder/*.doc"], r"\*\.doc: no file matches"),
        ([], "no path of passages is given"),
    ],
)
def test_bad_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], says: str) -> None:
    make(
        tmp_path,
        {
            "folder/a.txt": "A.",
            "folder/sub/b.txt": "B.",
            "folder/p.png": b"x",
            "folder/c.jsonl.zst": b"x",
            "hidden/.a.txt": "A.",
        },
    )
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InterlinguaError, match=says):
        ids(*given)


def test_bad_options(tmp_path: Path) -> None:
    make(tmp_path, {"a.txt": "A."})
    for options, says in (
        ({"chunk_chars": 0}, "chunk_chars=0"),
        ({"overlap": -1}, "overlap=-1"),
        ({"on_bad_row": "ignore"}, "on_bad_row='ignore' is unknown"),
        ({"lang": "klingon"}, "'klingon' is not a language code"),
    ):
        with pytest.raises(InterlinguaError, match=says):
            ids(tmp_path, **options)


def test_skipping_counts_and_lists(tmp_path: Path) -> None:
    make(
        tmp_path / "f",
        {
            "a.txt": "éé caf".encode() + b"\xe9",
            "b.txt": "Good.",
            "c.csv": "text,id\nx,1\ny\nz,1\nw,2\n",
            "d.csv": "a,b\n1,2\n",
            "e.csv": 'text\nfirst\n"second\n',
            "f.jsonl": "[1]\n" * 20 + '{"text": "ok"}\n',
        },
    )
    report = Report()
    assert ids(tmp_path / "f", report=report, on_bad_row="skip") == ["f/b.txt#1", "1", "2", "f/f.jsonl:21"]
    assert (report.files, report.passages, report.bad, report.languages) == (3, 4, 25, {"en": 4})
    said = str(report)
    assert "25 bad rows or files left out:" in said
    for line in (
        "a.txt, line 1: not UTF-8",
        "c.csv, line 3: 1 column",
        "d.csv: no column of text",
        "c.csv, line 4: the passage id '1' occurs twice",
        "e.csv, line 3: unexpected end",
        "f.jsonl, line 1: a JSON object is needed",
        "… and 15 more",
    ):
        assert line in said
    assert not report.skipped
    with pytest.raises(InterlinguaError, match=r"a\.txt, line 1: not UTF-8 .*byte 8.*on_bad_row='skip'"):
        ids(tmp_path / "f")
    with pytest.raises(InterlinguaError, match=r"no passage to read \(1 bad row or file left out: .*: no column"):
        ids(tmp_path / "f/d.csv", on_bad_row="skip")


# --- languages


def test_each_document_and_paragraph_in_its_language(tmp_path: Path) -> None:
    some = list(topics())[:8]
    for lang in ("sw", "th", "ja", "en"):
        make(tmp_path / "f", {f"{lang}.txt": "\n\n".join(topic.text(lang) for topic in some)})
    mixed = "\n\n".join(topic.text(lang) for topic in some[:4] for lang in ("en", "ar", "fi"))
    make(tmp_path / "f", {"mixed.txt": mixed})
    for one in read_files(tmp_path / "f", chunk_chars=400, report=Report()):
        source = one.metadata["source"]
        if source != "f/mixed.txt":
            assert one.lang == source[2:4]
        else:
            assert sum(topic.text(one.lang).find(one.text[:20]) >= 0 for topic in some) == 1


def test_a_short_text_is_in_the_language_of_its_document(tmp_path: Path) -> None:
    long = next(iter(topics())).text("fi")
    make(tmp_path / "f", {"a.md": f"# A\n{long}\n# B\nOK no.\n# C\n42 %", "t.csv": "text\nOK no.\n"})
    assert [(one.id, one.lang) for one in read_files(tmp_path / "f", report=Report())] == [
        ("f/a.md#1", "fi"),
        ("f/a.md#2", "fi"),
        ("f/a.md#3", "fi"),
        ("f/t.csv:2", ""),
    ]


def test_a_language_that_is_said_is_not_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlingua.data.files import chunks as languages
    from interlingua.data.files import reader

    def never(text: str) -> str:
        raise AssertionError("detected")

    monkeypatch.setattr(languages, "detect_in_bulk", never)
    monkeypatch.setattr(reader, "detect_in_bulk", never)
    make(tmp_path / "f", {"a.txt": "Text.", "b.html": "<html lang=sw><p>Text.", "c.csv": "text,lang\nx,fi\ny,\n"})
    found = {one.id: one.lang for one in read_files(tmp_path / "f", lang="deu", report=Report())}
    assert found == {"f/a.txt#1": "de", "f/b.html#1": "sw", "f/c.csv:2": "fi", "f/c.csv:3": "de"}


# --- the whole


def test_passages_share_whole_sentences_and_the_ids_are_stable(tmp_path: Path) -> None:
    text = "\n\n".join(topic.text("en") for topic in topics())
    make(tmp_path / "f", {"a.txt": text})
    found = list(read_files(tmp_path / "f", report=Report()))
    assert [one.id for one in found] == [f"f/a.txt#{i}" for i in range(1, len(found) + 1)]
    assert [one.metadata["chunk"] for one in found] == [str(i) for i in range(1, len(found) + 1)]
    assert all(200 < len(one.text) <= 800 for one in found[:-1])
    assert all(one.text in text for one in found)
    for one, following in pairwise(found):
        shared = max((n for n in range(len(one.text)) if following.text.startswith(one.text[-n:])), default=0)
        assert shared
        assert text.find(following.text) == text.find(one.text) + len(one.text) - shared
    assert list(read_files(tmp_path / "f", report=Report())) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "after"), [("line.txt", ""), ("paragraphs.txt", "\n\n"), ("lines.md", "\n"), ("page.html", "<br>")]
)
def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: str
) -> None:
    monkeypatch.setattr(check, "CHUNK", 500)
    monkeypatch.setattr(check, "SAMPLE", 1_000)
    monkeypatch.setattr(whole, "IN_MEMORY", 1_000)
    monkeypatch.setattr(blocks, "LONGEST", 2_000)
    monkeypatch.setattr(plain_text, "LINE", 500)
    monkeypatch.setattr(plain_text, "PART", 500)
    monkeypatch.setattr(web_page, "PART", 500)
    sentence = "This sentence stands in a file that is far too long to be held in memory. "

    def peak(sentences: int) -> int:
        (tmp_path / name).write_text((sentence + after) * sentences)
        tracemalloc.start()
        for _ in read_files(tmp_path / name, lang="en", report=Report()):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)  # what is loaded at the first call
    assert peak(3_000) < peak(500) + 80_000 < len(sentence) * 2_500


# --- where passages go


def test_metadata_are_compared_not_hashed_and_stored() -> None:
    plain, rich = Passage("1", "t"), Passage("1", "t", metadata={"a": "b"})
    assert plain != rich
    assert hash(plain) == hash(rich)
    record = QuestionPassage("q?", (rich,), (plain,), "en")
    line = encode(record)
    assert decode(QuestionPassage, line) == record
    assert line.count("metadata") == 1
    assert decode(
        QuestionPassage,
        '{"question":"q?","positives":[{"id":"1","text":"t","title":"","lang":""}],"negatives":[],"lang":"en","id":""}',
    ).positives == (plain,)


def test_a_store_keeps_metadata(tmp_path: Path) -> None:
    passages = [Passage("1", "t", metadata={"source": "a.txt", "chunk": "1"}), Passage("2", "u")]
    store: RecordStore[Passage] = RecordStore.build(tmp_path / "s", passages, Passage)
    assert [store[i] for i in range(2)] == passages


def test_sources_are_collections_and_files(tmp_path: Path) -> None:
    rows = '{"id": "1", "text": "a book", "lang": "en"}\n'
    make(
        tmp_path,
        {
            "mine/a.txt": "Mine.",
            "good_en/passages.jsonl": rows,
            "good_en/queries.tsv": "q\twhat?\n",
            "good_en/qrels.txt": "q 0 1 1\n",
            "loose/docs/docs.jsonl": rows.replace("1", "2"),
        },
    )
    assert is_collection(tmp_path / "good_en")
    assert not any(is_collection(tmp_path / name) for name in ("mine", "loose", "nothing"))
    assert is_collection("encyclopedia:sw")
    sources = [tmp_path / "mine", tmp_path / "good_en", tmp_path / "loose"]
    assert [one.id for one in read_sources(sources, "en")] == ["1", "mine/a.txt#1", "2"]
    assert len(list(read_sources(["encyclopedia:sw"]))) == len(list(read_passages("encyclopedia:sw")))
    with pytest.raises(InterlinguaError, match="no path of passages"):
        list(read_sources([]))


def test_a_file_of_squad_is_a_collection(tmp_path: Path) -> None:
    squad = Path(__file__).parent / "fixtures/questions/squad.json"
    assert is_collection(squad)
    found = list(read_sources([squad]))
    assert [one.id for one in found] == [f"p{number}" for number in range(len(found))]
    assert {one.metadata["source"] for one in found} == {"squad.json"}
    assert [one.text for one in found] == [one.text for one in read_passages(squad)]
    (tmp_path / "rows.json").write_text('{"text": "A row."}\n')
    assert not is_collection(tmp_path / "rows.json")
    (tmp_path / "bad.json").write_text("{}\n")
    with pytest.raises(InterlinguaError, match=r"\(1 bad row or file left out: .*bad\.json, line 1: no 'text'\)"):
        list(read_sources([tmp_path / "bad.json"], on_bad_row="skip"))


def test_read_passages_reads_jsonl_as_it_is_and_other_files_too(tmp_path: Path) -> None:
    make(
        tmp_path,
        {
            "a.jsonl": '{"text": "This is an English sentence.", "year": 1}\n',
            "b/a.txt": "Some text.",
            "c.csv": "text\nSome text.\n",
        },
    )
    assert list(read_passages(tmp_path / "a.jsonl")) == [Passage("a.jsonl:1", "This is an English sentence.")]
    assert [one.id for one in read_passages(tmp_path / "b", "en")] == ["b/a.txt#1"]
    assert [one.id for one in read_passages(tmp_path / "c.csv", "en")] == ["c.csv:2"]


def test_cycles_of_links_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    make(tmp_path / "f", {"a/x.txt": "One.", "b/y.txt": "Two."})
    (tmp_path / "f/a/up").symlink_to(tmp_path / "f")
    (tmp_path / "f/a/over").symlink_to(tmp_path / "f/b")
    (tmp_path / "f/b/over").symlink_to(tmp_path / "f/a")
    (tmp_path / "f/self").symlink_to(tmp_path / "f/self")
    (tmp_path / "f/one.txt").symlink_to(tmp_path / "f/two.txt")
    (tmp_path / "f/two.txt").symlink_to(tmp_path / "f/one.txt")
    report = Report()
    assert ids(tmp_path / "f", report=report) == ["f/a/x.txt#1", "f/b/y.txt#1"]
    assert report.skipped == {"link to a folder": 3, "link in a cycle": 3}


def test_an_unreadable_file_among_many_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "f", {f"{number}.txt": f"Text {number}." for number in range(300)})
    opened = check.open_input

    def refusing(path: Path) -> object:
        if path.name == "7.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr(check, "open_input", refusing)
    report, scope = Report(), Scope()
    found = ids(tmp_path / "f", report=report, on_bad_row="skip", scope=scope)
    assert (len(found), report.bad, scope.unread) == (299, 1, {"f/7.txt"})
    assert "7.txt: cannot be read" in str(report)
    with pytest.raises(InterlinguaError, match=r"7\.txt: cannot be read"):
        ids(tmp_path / "f")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_line_that_would_fill_the_memory_is_named_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(check, "LONGEST_LINE", 1 << 20)
    with open(make(tmp_path, {"f/b.txt": "Good."}) / "f" / name, "w") as file:
        for _ in range(2_000):
            file.write("A long line. " * 1_000)
    report = Report()
    ids(tmp_path / "f/b.txt")
    tracemalloc.start()
    found = ids(tmp_path / "f", report=report, on_bad_row="skip")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found, report.bad) == (["f/b.txt#1"], 1)
    assert f"{name}, line 1: a line of more than 1 MiB" in str(report)
    assert most < 8 << 20  # the file has 26 MB
