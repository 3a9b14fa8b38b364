"""`Index.sync`: an index is brought to what files and folders hold, and nothing is deleted by mistake."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from interlingua.data.files import Scope, SourceNames, walk
from interlingua.data.passages import read_sources
from interlingua.errors import BadInput, NotFound
from interlingua.index import Index

sys.path.append(str(Path(__file__).parent))
from letter_encoder import Letters, content, write

FILES = {
    "handbook/keeper.md": "# Keeper\n\nThe keeper writes a book.\n\n# Storm\n\nA storm at sea.\n",
    "handbook/rivers/town.txt": "Two rivers meet below the old town.",
    "handbook/old.txt": "An old text.",
    "faq.csv": "id,text\n1,Blue star\n2,Red light\n",
}


def read(*paths, **options):
    """Arguments of `Index.sync`: passages of these paths, and what their reader says about them."""
    scope, names = Scope(), SourceNames()
    options = {"lang": "en", "on_bad_row": "skip", **options}
    return read_sources(paths, names=names, scope=scope, **options), scope, names


def built(place, *paths):
    """A new index of these paths, opened again."""
    passages, _, names = read(*paths)
    Index.build(Letters(), passages, place, names=names).close()
    return Index.open(place, Letters())


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {**FILES, "other.txt": "Another text."})
    return tmp_path


@pytest.fixture
def index(place):
    return built("idx", "handbook", "faq.csv", "other.txt")


def test_an_index_is_brought_to_what_the_files_hold(place, index):
    assert not index.sync(*read("handbook", "faq.csv"))
    (place / "handbook/old.txt").unlink()
    write(place, {"handbook/rivers/new.txt": "A new text.", "faq.csv": "id,text\n1,Blue star\n3,Green light\n"})
    write(place, {"handbook/keeper.md": "# Keeper\n\nThe keeper reads a book.\n"})
    (place / "other.txt").unlink()  # not given, so it stays
    before, Letters.encoded = content(index), 0
    planned = index.sync(*read("handbook/", "faq.csv"), dry_run=True)
    assert (content(index), Letters.encoded) == (before, 0)
    done = index.sync(*read("handbook/", "faq.csv"))
    assert str(planned) == str(done) == "2 added, 1 replaced, 3 deleted, 2 unchanged"
    assert done.by_source() == [
        "faq.csv: 1 added, 1 deleted",
        "handbook/keeper.md: 1 replaced, 1 deleted",
        "handbook/old.txt: 1 deleted",
        "handbook/rivers/new.txt: 1 added",
    ]
    assert Letters.encoded == 3
    fresh = Index.build(Letters(), read("handbook", "faq.csv")[0], "fresh")
    assert content(index) == sorted([*content(fresh), ("other.txt", "other.txt#1", "", "Another text.")])
    assert not index.sync(*read("handbook", "faq.csv"))


def test_a_file_that_is_gone_is_named(place, index):
    (place / "faq.csv").unlink()
    (place / "handbook/old.txt").unlink()
    assert index.sync(*read("faq.csv", "handbook/old.txt")).by_source() == [
        "faq.csv: 2 deleted",
        "handbook/old.txt: 1 deleted",
    ]
    assert not index.sync(*read("faq.csv", "handbook/old.txt"))  # the same command again
    with pytest.raises(
        NotFound, match=r"nowhere\.csv: does not exist, and idx has no passage from it\. Check the path"
    ):
        index.sync(*read("handbook", "nowhere.csv"))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("handbook/keeper.md", b"# Keeper\0"),
        ("handbook/old.txt", b"\xff\xff\xff\xfe\x00\x01"),
        ("faq.csv", "id,text\n1,Blue star,more\n3,Green light\n"),
        ("faq.csv", 'id,text\n1,"Blue star\n'),
        ("faq.csv", "nothing,of,this\n1,2,3\n"),
    ],
)
def test_a_file_that_cannot_be_read_loses_nothing(place, index, name, broken):
    lost = {name: sum(source == name for source, *_ in content(index))}
    before = [one for one in content(index) if one[0] == name]
    write(place, {name: broken})
    (place / "handbook/rivers/town.txt").unlink()
    arguments = read("handbook", "faq.csv")
    done = index.sync(*arguments)
    assert arguments[1].unread == {name}
    assert (done.deleted, done.kept) == ({"handbook/rivers/town.txt": 1}, lost)
    assert set(before) <= set(content(index))
    write(place, {"handbook/aaa.txt": "Read first."})
    left = content(index)
    with pytest.raises(BadInput, match=name.rpartition("/")[2]):
        index.sync(*read("handbook", "faq.csv", on_bad_row="error"))
    assert content(index) == left


def test_a_folder_that_cannot_be_read_loses_nothing(place, index, monkeypatch):
    scandir = os.scandir

    def refusing(folder):
        if str(folder).endswith("rivers"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    arguments = read("handbook")
    assert index.sync(*arguments).kept == {"handbook/rivers/town.txt": 1}
    assert arguments[1].unread == {"handbook/rivers/"}


def test_a_file_that_goes_while_the_folder_is_read_is_gone(place, index):
    passages, scope, names = read("handbook")

    def reading():
        for passage in passages:
            (place / "handbook/old.txt").unlink(missing_ok=True)  # the folder was listed before its first file was read
            yield passage

    assert index.sync(reading(), scope, names).by_source() == ["handbook/old.txt: 1 deleted"]


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "other files"])
def test_a_folder_without_files_is_an_error_unless_it_is_confirmed(place, index, left):
    before = content(index)
    (place / "handbook").rename(place / "elsewhere")
    if left != "nothing":
        (place / "handbook").mkdir()
    if left == "other files":
        write(place, {"handbook/picture.png": "x", "handbook/.git/a.md": "x"})
    what = "does not exist" if left == "nothing" else "holds nothing to read"
    with pytest.raises(BadInput, match=f"handbook: {what}, but idx has 4 passages from it, and all would be deleted"):
        index.sync(*read("handbook", "faq.csv"))
    assert content(index) == before
    assert index.sync(*read("handbook", "faq.csv"), allow_empty=True).deleted.total() == 4
    assert {source for source, *_ in content(index)} == {"faq.csv", "other.txt"}
    assert not index.sync(*read("handbook", "faq.csv"))


def test_a_file_that_was_given_by_itself_once_is_part_of_its_folder(place):
    index = built("two", "handbook/old.txt")
    assert {source for source, *_ in content(index)} == {"old.txt"}
    assert str(index.sync(*read("handbook"))) == "3 added, 0 replaced, 0 deleted, 1 unchanged"
    (place / "handbook/old.txt").unlink()
    assert index.sync(*read("handbook")).deleted == {"old.txt": 1}


def test_sources_that_rows_name_themselves_are_not_deleted_from(place, index, caplog):
    write(place, {"tickets.csv": "id,text,source\n1,Blue star,desk\n2,Red light,desk\n"})
    index.sync(*read("tickets.csv"))
    write(place, {"tickets.csv": "id,text,source\n1,Green star,desk\n"})
    done = index.sync(*read("tickets.csv"))
    assert (done.replaced, done.deleted) == ({"desk": 1}, {})
    assert "sources are named by rows themselves, such as 'desk'" in caplog.text
    assert index.delete(sources=["desk"]) == 2


def test_what_was_renamed_is_told_once(place, index, caplog):
    (place / "handbook").rename("manual")
    (place / "other.txt").rename("more.txt")
    index.sync(*read("faq.csv"))
    assert not caplog.text  # nothing new has come in the place of what is gone
    index.sync(*read("manual", "more.txt"))
    for name, count in (("handbook/", 4), ("other.txt", 1)):
        told = f"{place / name.rstrip('/')}: is not there any more, and idx keeps {count} passages from it."
        assert f"{told} If they are to go: interlingua delete idx --source {name}" in caplog.text
    caplog.clear()
    index.sync(*read("manual", "more.txt"))
    assert not caplog.text
    assert index.delete(sources=["handbook/", "other.txt"]) == 5
    write(place, {f"{number} old.txt": f"Text {number}." for number in range(5)})
    index.sync(*read(*(f"{number} old.txt" for number in range(5))))
    for number in range(5):
        (place / f"{number} old.txt").rename(f"{number} new.txt")
    caplog.clear()
    index.sync(*read("0 new.txt"))
    assert "delete idx --source '0 old.txt'" in caplog.text
    assert "… and 2 more sources are not there any more" in caplog.text
    assert "handbook" not in caplog.text  # of which nothing is left


def test_a_pipe_is_refused(place, index):
    os.mkfifo("pipe.txt")
    with pytest.raises(BadInput, match="is a pipe, which may end before it gave all"):
        index.sync(*read("handbook", "pipe.txt"))


def test_a_collection_is_synced_as_one_source(place, index):
    assert index.sync(*read("encyclopedia:fi")).added == {"encyclopedia:fi": 112}
    assert not index.sync(*read("encyclopedia:fi", "other.txt"))


def part(folder, *changed):
    """Arguments of `Index.sync` for what changed inside a folder."""
    scope, names = Scope(), SourceNames()
    scope.only = frozenset(os.path.realpath(one) for one in changed)
    return read_sources([folder], names=names, scope=scope, lang="en", on_bad_row="skip"), scope, names


def test_only_what_changed_in_a_folder_is_looked_at(place, index):
    write(place, {"handbook/rivers/town.txt": "Three rivers meet.", "handbook/keeper.md": "# Keeper\n\nAnother.\n"})
    write(place, {"handbook/new/deep/one.txt": "One.", "handbook/new/two.txt": "Two.", "handbook/.hidden/x.txt": "X."})
    (place / "handbook/old.txt").unlink()
    done = index.sync(*part("handbook", "handbook/rivers/town.txt", "handbook/old.txt", "handbook/new"))
    assert done.by_source() == [
        "handbook/new/deep/one.txt: 1 added",
        "handbook/new/two.txt: 1 added",
        "handbook/old.txt: 1 deleted",
        "handbook/rivers/town.txt: 1 replaced",
    ]
    assert not index.sync(*part("handbook", "handbook/.hidden", "handbook/.hidden/x.txt", "handbook/new/nothing.txt"))
    (place / "handbook/new").rename(place / "away")
    write(place, {"handbook/three.txt": "Three."})
    done = index.sync(*part("handbook", "handbook/new", "handbook/three.txt"))
    assert (done.added.total(), done.deleted.total()) == (1, 2)


def test_a_part_of_a_folder_in_which_all_is_gone_is_an_error(place, index):
    before = content(index)
    (place / "handbook/old.txt").unlink()
    with pytest.raises(BadInput, match="all would be deleted"):
        index.sync(*part("handbook", "handbook/old.txt"))
    assert content(index) == before


def test_a_link_to_the_folder_itself_stands_for_nothing_in_it(place, index):
    (place / "handbook/loop").symlink_to(place / "handbook")
    scope, names = Scope(), SourceNames()
    scope.only = frozenset([os.path.join(os.path.realpath("handbook"), "loop")])
    read = read_sources(["handbook"], names=names, scope=scope, lang="en", on_bad_row="skip")
    assert not index.sync(read, scope, names)


def test_a_collection_whose_folder_is_gone_is_an_error_unless_it_is_confirmed(place):
    """Its disk may only be unmounted."""
    folder = place / "disk/mine_fi"
    folder.mkdir(parents=True)
    write(
        folder,
        {"passages.jsonl": '{"id": "1", "text": "talo"}\n', "queries.tsv": "q\ttalo?\n", "qrels.txt": "q 0 1 1\n"},
    )
    index = built("of-a-collection", "disk/mine_fi")
    folder.rename(place / "elsewhere")
    with pytest.raises(BadInput, match="all would be deleted"):
        index.sync(*read("disk/mine_fi"))
    assert len(index) == 1
    assert index.sync(*read("disk/mine_fi"), allow_empty=True).deleted.total() == 1


@pytest.mark.parametrize("name", ["report [1].md", "a*b.md"])
def test_a_name_with_the_signs_of_a_pattern_is_a_name(place, name):
    write(place, {name: "A report."})
    index = built("of-names", name, "other.txt")
    (place / name).unlink()
    assert index.sync(*read(name, "other.txt")).deleted.total() == 1


def test_what_had_a_name_of_its_own_moves_with_its_folder(place):
    write(place, {"a/guide/faq.csv": "id,text\n1,Blue star\n", "a/guide/one.md": "One text."})
    index = built("of-a-guide", "a/guide/faq.csv")
    index.sync(*read("a/guide"))
    before = content(index)
    (place / "b").mkdir()
    (place / "a/guide").rename(place / "b/guide")
    assert not index.sync(*read("b/guide"))
    assert content(index) == before


def test_what_had_a_name_of_its_own_stays_where_its_folder_cannot_be_read(place, monkeypatch):
    write(place, {"a/guide/faq.csv": "id,text\n1,Blue star\n", "a/one.md": "One text."})
    index = built("of-a-guide", "a/guide/faq.csv")
    index.sync(*read("a"))
    entries = walk._entries

    def unreadable(folder):
        if folder.name == "guide":
            raise BadInput("cannot be read")
        return entries(folder)

    monkeypatch.setattr(walk, "_entries", unreadable)
    assert not index.sync(*read("a")).deleted
    assert len(index) == 2


def test_an_index_may_have_a_colon_in_its_name(place):
    index = built("docs:v2", "faq.csv")
    write(place, {"faq.csv": "id,text\n1,Blue star\n3,Green light\n"})
    assert index.sync(*read("faq.csv")).added.total() == 1
    assert len(Index.open("docs:v2", Letters())) == 2
