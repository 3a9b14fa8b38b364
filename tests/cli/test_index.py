"""`interlingua index` and `interlingua search` on a person's own files."""

from __future__ import annotations

import io
import json
import sys

import pytest

from interlingua.cli import main, search
from interlingua.index.index import Index
from interlingua.index.local.table import synced_version
from interlingua.models.dual import DualEncoder
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.models.static.encoder import StaticEncoder


@pytest.fixture
def place(tmp_path, tiny_static, monkeypatch):
    """A model, files and an index, in the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    tiny_static().save(tmp_path / "model")
    (tmp_path / "books").mkdir()
    (tmp_path / "books/keeper.md").write_text(
        "---\nlang: en\n---\n# Keeper\n\nThe lighthouse keeper wrote every storm into a small blue book.\n"
        "# Rivers\n\nTwo rivers meet below the old town.\n",
        encoding="utf-8",
    )
    (tmp_path / "faq.csv").write_text(
        "name,answer,topic,lang\nq1,Смотритель маяка записывал каждую бурю.,storm,ru\n"
        "q2,Majakanvartija kirjoitti jokaisen myrskyn.,storm,fi\n",
        encoding="utf-8",
    )
    assert main("index model books faq.csv --out idx --columns text=answer id=name".split()) == 0
    return tmp_path


def said(capsys, *argv):
    """Standard output and standard error of a command that must work."""
    capsys.readouterr()
    assert main(list(argv)) == 0
    return capsys.readouterr()


def found(capsys, *argv):
    """The results of a search, as JSON."""
    return [json.loads(line) for line in said(capsys, "search", "idx", *argv, "--json").out.splitlines()]


def test_durability_is_chosen_for_changes(place, capsys):
    before = synced_version(place / "idx")
    said(capsys, "delete", "idx", "q1", "--durability", "process")
    assert synced_version(place / "idx") == before
    said(capsys, "delete", "idx", "q2", "--durability", "full")
    assert synced_version(place / "idx") == before + 2


@pytest.mark.slow
def test_an_index_is_changed_in_place(place, capsys):
    assert Index.open("idx").languages == {"en": 2, "fi": 1, "ru": 1}
    (place / "more.jsonl").write_text('{"id": "x", "text": "A bridge crosses both rivers.", "lang": "en"}\n')
    err = said(capsys, "add", "idx", "more.jsonl").err
    assert "idx: 1 passages added; 5 passages: en 3, fi 1, ru 1" in err
    assert main(["add", "idx", "more.jsonl"]) == 2
    assert "has a passage 'x' already. Replace it with `interlingua replace`" in capsys.readouterr().err
    (place / "more.jsonl").write_text('{"id": "x", "text": "Uusi.", "lang": "fi"}\n{"id": "y", "text": "Y."}\n')
    assert "2 passages added or changed; 6 passages" in said(capsys, "replace", "idx", "more.jsonl", "--lang", "fi").err
    assert "0 passages added or changed" in said(capsys, "replace", "idx", "more.jsonl", "--lang", "fi").err
    assert "idx: 1 passages deleted; 5 passages" in said(capsys, "delete", "idx", "q1", "nobody").err
    for option in ([], ["--approximate"], ["--exact"]):
        assert "is compact; 5 passages: fi 3, en 2" in said(capsys, "compact", "idx", *option).err
    info = json.loads(said(capsys, "info", "idx", "--json").out)
    assert (info["passages"], info["newer"], info["deleted"]) == (5, 0, 0)
    shown = said(capsys, "info", "idx").out
    assert shown.splitlines()[0].split() == ["passages", "5"]
    assert "fi/char4" in shown
    assert str(place / "model") in shown


@pytest.mark.slow
def test_an_index_is_synced_with_its_files(place, capsys):
    sync = "sync idx books faq.csv --columns text=answer id=name".split()
    assert "idx: 0 added, 0 replaced, 0 deleted, 4 unchanged; 4 passages: " in said(capsys, *sync).err
    (place / "books/new.txt").write_text("A new book in English, long enough to tell its language.")
    table = (place / "faq.csv").read_text()
    (place / "faq.csv").write_text(table.rpartition("q2")[0])
    err = said(capsys, *sync, "--dry-run").err
    assert "books/new.txt: 1 added\nfaq.csv: 1 deleted\n" in err
    assert "idx: 1 added, 0 replaced, 1 deleted, 3 unchanged (nothing is written: --dry-run)" in err
    assert len(Index.open("idx")) == 4
    (place / "faq.csv").write_text(table.replace(",fi", ",fi,more"))
    assert main(sync) == 2
    err = capsys.readouterr().err
    assert "faq.csv, line 3: 5 column(s), the header has 4" in err
    assert "1 of the sources could not be read as a whole (faq.csv): 1 passages of theirs that were not found" in err
    assert ids() == [
        *(("books/keeper.md", f"books/keeper.md#{number}") for number in (1, 2)),
        *[("books/new.txt", "books/new.txt#1"), ("faq.csv", "q1"), ("faq.csv", "q2")],
    ]
    assert "1 kept" in said(capsys, *sync, "--on-bad-row", "skip").err
    assert main([*sync, "--on-bad-row", "error"]) == 2
    (place / "books").rename(place / "elsewhere")
    assert main(sync[:3]) == 2
    assert "--allow-empty" in capsys.readouterr().err
    assert "books/keeper.md: 2 deleted" in said(capsys, *sync[:3], "--allow-empty").err


@pytest.mark.slow
def test_the_name_of_a_file_is_no_command_to_the_terminal(place, capsys):
    (place / "books/\x1b[31mred\nidx: 9 deleted.txt").write_text("A book in English, long enough to tell its language.")
    err = said(capsys, *"sync idx books faq.csv --columns text=answer id=name".split()).err
    assert "books/\\x1b[31mred idx: 9 deleted.txt: 1 added\n" in err
    assert "\x1b" not in err


def test_passages_are_deleted_by_source_and_by_metadata(place, capsys):
    delete = ["delete", "idx"]
    assert (
        "2 passages would be deleted; 4 passages" in said(capsys, *delete, "--filter", "topic=storm", "--dry-run").err
    )
    found = said(capsys, *delete, "--source", "books/", "--filter", "topic=storm").err
    assert "0 passages deleted" in found
    assert "no passage to delete is from 'books/'. None of it fits the filter.\n" in found
    for name, near in (("bocks/", " Did you mean 'books/'?"), ("faq.cvs", " Did you mean 'faq.csv'?"), ("xyz", "")):
        found = said(capsys, *delete, "--source", name).err
        assert f"idx: no passage to delete is from '{name}'.{near}\n" in found
        assert "0 passages deleted" in found
    found = said(capsys, *delete, "--source", "books/", "bocks/").err  # one of two names is wrong
    assert "idx: no passage to delete is from 'bocks/'. Did you mean 'books/'?\n" in found
    assert "'books/'. " not in found
    assert "2 passages deleted; 2 passages" in found
    assert "0 passages deleted" in said(capsys, *delete, "--source", "faq.csv", "--filter", "topic!=storm").err
    for wrong, error in (
        (["q1", "--source", "faq.csv"], "not both at once"),
        (["--filter", "topic=storm", "x=y"], "idx: no passage has metadata 'x'. There are: 'source', 'topic'."),
        ([], "say what to delete"),
    ):
        assert main([*delete, *wrong]) == 2
        assert error in capsys.readouterr().err


def ids(index="idx"):
    """Source and id of all passages of an index."""
    return sorted(hit.passage.key for hit in Index.open(index).search("river", 500, mode="dense"))


@pytest.mark.slow
def test_files_have_the_same_names_in_every_command(place, capsys):
    """The sequence of docs/update.md: several sources first, then one of them."""
    (place / "books").rename("handbook")
    (place / "news.jsonl").write_text('{"id": "n", "text": "A storm came.", "lang": "en"}\n')
    said(capsys, *"index model handbook/ faq.csv encyclopedia:en --out two --columns text=answer id=name".split())
    before = ids("two")
    assert ("handbook/keeper.md", "handbook/keeper.md#2") in before
    assert {source for source, _ in before} == {"handbook/keeper.md", "faq.csv", "encyclopedia:en"}
    assert "1 passages added" in said(capsys, *"add two news.jsonl".split()).err
    added = ids("two")
    assert added == sorted([*before, ("news.jsonl", "n")])
    for argument in ("handbook/", "handbook", "./handbook/.", "handbook/keeper.md"):
        assert "0 passages added or changed" in said(capsys, "replace", "two", argument).err, argument
    with open("handbook/keeper.md", "a", encoding="utf-8") as stream:
        stream.write("# Bridges\n\nA bridge crosses both rivers here.\n")
    assert "1 passages added or changed" in said(capsys, "replace", "two", "handbook/keeper.md").err
    assert "0 passages added or changed" in said(capsys, "replace", "two", "handbook/", "news.jsonl").err
    assert ids("two") == sorted([*added, ("handbook/keeper.md", "handbook/keeper.md#3")])
    assert "2 passages deleted" in said(capsys, *"delete two handbook/keeper.md#3 faq.csv:q1".split()).err


@pytest.mark.slow
def test_versions_of_a_page_share_an_index(place, capsys):
    for lang, texts in (("en", ["A storm at sea.", "A blue book."]), ("fi", ["Myrsky merellä.", "Sininen kirja."])):
        rows = [json.dumps({"id": str(number), "text": text, "lang": lang}) for number, text in enumerate(texts, 1)]
        (place / f"{lang}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    said(capsys, *"index model en.jsonl fi.jsonl encyclopedia:en encyclopedia:sw --out pages".split())
    assert len(Index.open("pages")) == 4 + 2 * 112
    hits = [
        json.loads(line)
        for line in said(
            capsys, *"search pages sininen kirja --mode lexical --lang fi --json -k 1".split()
        ).out.splitlines()
    ]
    assert [(hit["id"], hit["source"], hit["lang"]) for hit in hits] == [("2", "fi.jsonl", "fi")]
    (place / "fi.jsonl").write_text('{"id": "2", "text": "Punainen kirja.", "lang": "fi"}\n')
    assert "1 passages added or changed" in said(capsys, *"replace pages fi.jsonl".split()).err
    index = Index.open("pages")
    assert [index.passage(f"{lang}.jsonl:2").text for lang in ("en", "fi")] == ["A blue book.", "Punainen kirja."]
    assert "1 passages deleted" in said(capsys, *"delete pages fi.jsonl:2".split()).err
    assert "3 passages deleted" in said(capsys, *"delete pages en.jsonl:2 1 fi.jsonl:9".split()).err
    assert main("add pages encyclopedia:sw".split()) == 2
    assert "already" in capsys.readouterr().err


@pytest.mark.slow
def test_two_folders_of_one_name_and_one_that_moved(place, capsys):
    for folder, text in (("a", "A storm."), ("b", "A river.")):
        (place / folder / "handbook").mkdir(parents=True)
        (place / folder / "handbook/guide.txt").write_text(text)
    said(capsys, *"index model a/handbook --out two --lang en".split())
    said(capsys, *"add two b/handbook --lang en".split())
    names = [("b/handbook/guide.txt", "b/handbook/guide.txt#1"), ("handbook/guide.txt", "handbook/guide.txt#1")]
    assert ids("two") == names
    assert json.loads((place / "two/sources.json").read_text())["names"] == {
        "handbook": str(place / "a/handbook"),
        "b/handbook": str(place / "b/handbook"),
    }
    (place / "moved").mkdir()
    for name in ("a", "b", "two", "model"):
        (place / name).rename(place / "moved" / name)
    for argument in ("b/handbook/guide.txt", "b/handbook", "a/handbook"):
        err = said(capsys, "replace", "moved/two", f"moved/{argument}", "--lang", "en", "--model", "moved/model").err
        assert "0 passages added or changed" in err, argument
    (place / "moved/b/handbook/guide.txt").write_text("A lake.")
    said(capsys, *"replace moved/two moved/b/handbook --lang en --model moved/model".split())
    index = Index.open("moved/two", DualEncoder.load("moved/model"))
    assert (len(index), index.passage("b/handbook/guide.txt#1").text) == (2, "A lake.")
    assert index.passage("handbook/guide.txt#1").text == "A storm."


@pytest.mark.slow
def test_a_beir_folder_is_indexed_and_measured_as_it_comes(place, capsys):
    (place / "scifact/qrels").mkdir(parents=True)
    texts = ["The lighthouse keeper wrote every storm into a small blue book.", "Two rivers meet below the old town."]
    (place / "scifact/corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": str(number), "title": "", "text": text, "metadata": {}}) + "\n"
            for number, text in enumerate(texts)
        )
    )
    (place / "scifact/queries.jsonl").write_text('{"_id": "q", "text": "Where do the two rivers meet?"}\n')
    (place / "scifact/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    (place / "scifact/README.md").write_text("# SciFact\n")
    said(capsys, *"index model scifact --out science".split())
    assert ids("science") == [("scifact", "0"), ("scifact", "1")]
    assert Index.open("science").languages == {"en": 2}
    said(capsys, *"index model scifact --out german --lang de".split())
    assert Index.open("german").languages == {"de": 2}
    evaluated = "evaluate --pipeline bm25 --on scifact --measures RR@10 --no-intervals --format json".split()
    assert '"en"' in said(capsys, *evaluated).out
    assert '"fi"' in said(capsys, *evaluated, "--lang", "fi").out
    assert main("evaluate model --tatoeba faq.csv --lang fi".split()) == 2
    assert "--lang is for collections" in capsys.readouterr().err


@pytest.mark.slow
def test_files_are_cut_and_read_as_asked(place, capsys):
    said(capsys, "index", "model", "books", "--out", "cut", "--chunk-chars", "20", "--overlap", "0", "--lang", "en")
    assert len(Index.open("cut")) == 6
    (place / "bad.jsonl").write_text('{"id": "1", "text": "a"}\nnonsense\n')
    assert main("index model bad.jsonl --out bad --on-bad-row error".split()) == 2
    assert "bad.jsonl, line 2: not JSON" in capsys.readouterr().err
    assert "1 bad row" in said(capsys, *"index model bad.jsonl --out bad".split()).err


@pytest.mark.slow
def test_a_folder_of_mixed_files_does_not_stop_at_the_first_table(place, capsys):
    (place / "mixed/sub").mkdir(parents=True)
    for name, content in {
        "a.csv": "name,number\nno text here,1\n",
        "b.csv": "Question,Answer,Link\nHow long?,Five days.,https://example.com/b\n",
        "c.csv": "Frage;Antwort\nWie lange?;Fünf Tage.\n".encode("cp1252"),
        "sub/d.md": "---\ntitle: Storms\nteam: sea\n---\nThe keeper writes.",
        "e.txt": b"half \xff\0",
    }.items():
        (place / "mixed" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    options = "--lang en --url-base https://example.com/help/ --columns c.csv:text=Antwort c.csv:title=Frage".split()
    err = said(capsys, *"index model mixed --out mix".split(), *options).err
    assert "2 bad rows or files left out:" in err
    assert "a.csv: no column of text; the columns are name, number" in err
    assert "e.txt, line 1: a NUL" in err
    assert "read as cp1252, as it seems (1: mixed/c.csv)" in err
    passages = {one.source: one for part, _ in Index.open("mix").vectors() for one in part}
    assert {source: (one.title, one.text, one.metadata.get("url")) for source, one in passages.items()} == {
        "mixed/b.csv": ("How long?", "Five days.", "https://example.com/b"),
        "mixed/c.csv": ("Wie lange?", "Fünf Tage.", None),
        "mixed/sub/d.md": ("Storms", "The keeper writes.", "https://example.com/help/sub/d.md"),
    }
    assert main("index model mixed --out strict --on-bad-row error".split()) == 2
    (place / "mixed/b.csv").unlink()
    assert main(["sync", "mix", "mixed", *options]) == 2
    assert "mixed/b.csv: 1 deleted" in capsys.readouterr().err
    assert main(["sync", "mix", "mixed/sub/d.md", *options]) == 0  # by itself it has the same name and link
    assert "1 unchanged" in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_model_the_one_that_comes_along_is_used(place, capsys, monkeypatch):
    loaded = []
    real = DualEncoder.load
    monkeypatch.setattr(StaticEncoder, "load", loaded.append)  # gives None, as for a transformer
    monkeypatch.setattr(DualEncoder, "load", lambda name, **_: loaded.append(name) or real("model"))
    for command in (
        "index books --out a",
        "index books faq.csv --out b --columns text=answer",
        "index encyclopedia:fi faq.csv --out c --columns text=answer",
        "index model books --out d",
    ):
        said(capsys, *command.split())
    assert loaded == [name for name in ("default", "default", "default", "model") for _ in range(2)]
    assert Index.open("a").metadata.model == "default"


def test_results_are_narrowed(place, capsys):
    question = "lighthouse маяка majakanvartija storm"
    assert {hit["id"] for hit in found(capsys, question)} == {"books/keeper.md#1", "books/keeper.md#2", "q1", "q2"}
    assert {hit["id"] for hit in found(capsys, question, "--filter", "topic=storm")} == {"q1", "q2"}
    assert [
        hit["id"]
        for hit in found(capsys, question, "--filter", "topic=storm", "source=faq.csv", "--lang-of-results", "ru")
    ] == ["q1"]
    assert [hit["id"] for hit in found(capsys, question, "--lang", "fi", "--lang-of-results", "same")] == ["q2"]
    hits = found(capsys, "lighthouse", "--mode", "lexical", "--lang", "en")
    assert [(hit["id"], set(hit["parts"]), hit["metadata"]["source"]) for hit in hits] == [
        ("books/keeper.md#1", {"lexical"}, "books/keeper.md")
    ]
    best = found(capsys, question, "--mode", "dense")
    least = ["--min-score", str(best[1]["score"])]
    assert found(capsys, question, "--mode", "dense", *least) == best[:2]
    assert set(found(capsys, question, "--rerank", "model")[0]["parts"]) == {"dense", "lexical", "tokens", "reranker"}
    assert said(capsys, "search", "idx", "zzzz", "--mode", "lexical").out == "nothing found.\n"


@pytest.mark.slow
def test_token_vectors_are_kept_for_a_reranker(place, capsys, tiny_encoder):
    LateInteractionEncoder.start(tiny_encoder(), dim=8, query_length=12, document_length=24).save("late")
    before = found(capsys, "lighthouse", "--rerank", "late")
    assert "4 passages encoded by late" in said(capsys, *"tokens idx late".split()).err
    assert "0 passages encoded by late" in said(capsys, *"tokens idx late".split()).err
    after = found(capsys, "lighthouse", "--rerank", "late")
    assert [hit["score"] for hit in after] == pytest.approx([hit["score"] for hit in before], abs=0.05)
    assert main("tokens idx model".split()) == 2
    assert "one vector a text" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_words_are_bold_on_a_terminal_and_control_characters_are_gone(place, capsys, monkeypatch):
    (place / "evil.jsonl").write_text(
        json.dumps(
            {"id": "evil", "text": "a \x1b[2J lighthouse\u202e\nhere", "title": "\x1b]0;owned\x07", "lang": "en"}
        )
        + "\n"
    )
    said(capsys, "add", "idx", "evil.jsonl")
    argv = ["search", "idx", "lighthouse keepers", "--lang", "en", "--mode", "lexical"]
    plain = said(capsys, *argv).out
    assert "\x1b" not in plain
    assert "The lighthouse keeper wrote" in plain
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(argv) == 0
    shown = sys.stdout.getvalue()
    assert "The \x1b[1mlighthouse\x1b[0m \x1b[1mkeeper\x1b[0m wrote" in shown
    assert "a  [2J \x1b[1mlighthouse \x1b[0m here" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(argv) == 0
    assert sys.stdout.getvalue() == plain


def test_printable_keeps_every_place():
    text = "a\x00b\u2028\u200dc\U0001f469\u200d\U0001f680"
    assert len(search.printable(text)) == len(text)
    assert search.printable(text) == "a b \u200dc\U0001f469\u200d\U0001f680"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("index model books", "are required: --out"),
        ("index --out new", "are required: FILE"),
        ("add idx", "are required: FILE"),
        ("delete idx", "say what to delete: ids, --source or --filter"),
        ("tokens idx", "its model has no token states to keep"),
        ("compact idx books", "'books' is one argument too many"),
        ("compact idx --approximate --exact", "not allowed with"),
        ("compact idx --durability process", "unknown option '--durability'"),
        ("info idx --approximate", "unknown option '--approximate'"),
        ("delete nowhere a", "no such index folder"),
        ("index model faq.csv --out new --columns answer", "write text=COLUMN"),
        ("index model faq.csv --out new --columns txet=answer", "txet"),
        ("search idx a --filter topic", "write KEY=VALUE"),
        ("search idx 1234 --lang-of-results same", "Say it with --lang"),
        ("search idx 1234 --lang-of-results=", "--lang-of-results '': a code is missing"),
        ("search idx 1234 --lang-of-results en,", "--lang-of-results 'en,': a code is missing"),
        ("search idx a --lang klingon", "'klingon' is not a language code"),
        ("search idx a --mode fuzzy", "fuzzy"),
    ],
)
def test_mistakes_are_one_line(place, capsys, command, message):
    capsys.readouterr()
    try:
        code = main(command.split())
    except SystemExit as stopped:
        code = stopped.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert message in lines[-1]
    assert lines[-1].startswith("interlingua: ")


def test_a_build_that_is_stopped_says_that_the_same_command_goes_on(place, capsys, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("interlingua.index.build_index", stopped)
    assert main(["index", "model", "faq.csv", "--columns", "text=answer", "--out", "stopped"]) == 130
    assert capsys.readouterr().err.endswith("interlingua: stopped. The same command goes on with what is encoded.\n")
