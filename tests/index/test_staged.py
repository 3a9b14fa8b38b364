"""A write that was stopped: what it encoded is not encoded again, and the index is as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlingua.data.files import Scope
from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.index import Index, check_index
from interlingua.index import store as any_store
from interlingua.index.local import staged
from interlingua.models import folder
from interlingua.models.late_interaction import load_any

sys.path.append(str(Path(__file__).parent))
from letter_encoder import Letters


def passages(count, text="text"):
    return [Passage(str(n), f"{text} {n}", lang="en", metadata={"source": "a.txt"}) for n in range(count)]


def stopped(some, after):
    """The passages, of which the reader fails `after` so many."""
    yield from some[:after]
    raise BadInput("the disk is gone")


def content(index):
    pairs = (pair for part, vectors in index.vectors() for pair in zip(part, vectors, strict=True))
    return {(passage.id, passage.text): tuple(vector) for passage, vector in pairs}


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.setattr(staged, "CHUNK", 20)
    monkeypatch.setattr(any_store, "CHUNK", 10)
    Index.build(Letters(), passages(5), tmp_path / "idx").close()
    index = Index.open(tmp_path / "idx", Letters())
    Letters.encoded = 0
    return index


def sync(index, some):
    return index.sync(iter(some), Scope(["a.txt"]))


def test_a_sync_that_was_stopped_goes_on(tmp_path, index):
    before = content(index)
    with pytest.raises(BadInput, match="the disk is gone"):
        sync(index, stopped(passages(100), 66))
    assert content(index) == before
    assert Letters.encoded == 55  # 60 in whole chunks, of which 5 were there
    other = passages(100)
    other.insert(7, Passage("new", "a new text", lang="en", metadata={"source": "a.txt"}))
    other[31] = Passage(other[31].id, "another text", lang="en", metadata={"source": "a.txt"})
    again = Index.open(tmp_path / "idx", Letters())
    assert str(sync(again, other)) == "96 added, 0 replaced, 0 deleted, 5 unchanged"
    assert Letters.encoded == 55 + 40 + 2
    fresh = Index.build(Letters(), other, tmp_path / "fresh")
    assert content(again) == content(fresh)
    assert not (tmp_path / "idx/staged").exists()
    assert not [finding for finding in check_index(tmp_path / "idx") if finding.advice]


def test_what_another_model_encoded_is_not_taken(tmp_path, index, monkeypatch):
    with pytest.raises(BadInput):
        sync(index, stopped(passages(100), 66))
    (part, *_) = sorted((tmp_path / "idx/staged").iterdir())
    monkeypatch.setattr(folder, "fingerprint", lambda encoder: {"another": 1})
    sync(index, passages(100))
    assert Letters.encoded == 55 + 95
    assert not part.exists()


def test_a_part_that_is_damaged_is_not_taken(tmp_path, index):
    with pytest.raises(BadInput):
        sync(index, stopped(passages(100), 66))
    parts = sorted((tmp_path / "idx/staged").iterdir())
    assert len(parts) == 3
    parts[0].write_bytes(parts[0].read_bytes()[:-1000] + b"x" * 1000)
    parts[1].write_bytes(b"")
    sync(index, passages(100))
    assert Letters.encoded == 55 + 95 - 10  # the last part had what was left
    assert content(index) == content(Index.build(Letters(), passages(100), tmp_path / "fresh"))


def test_small_writes_keep_nothing(tmp_path, index):
    with pytest.raises(BadInput):
        sync(index, stopped(passages(30), 25))
    assert not (tmp_path / "idx/staged").exists()


def test_a_disk_without_room_for_parts_stops_nothing(tmp_path, index, monkeypatch):
    monkeypatch.setattr(staged, "make_folder", lambda folder: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert str(sync(index, passages(100))) == "95 added, 0 replaced, 0 deleted, 5 unchanged"


def test_a_disk_that_fills_up_takes_no_vector_that_was_kept(tmp_path, index, monkeypatch):
    with pytest.raises(BadInput):
        sync(index, stopped(passages(60), 45))
    assert list((tmp_path / "idx" / "staged").glob("*.arrow"))
    monkeypatch.setattr(staged, "CHUNK", 1)
    monkeypatch.setattr(any_store, "CHUNK", 100)  # kept ones and new ones in one chunk
    monkeypatch.setattr(staged, "make_folder", lambda folder: (_ for _ in ()).throw(OSError(28, "No space left")))
    sync(index, passages(60))
    fresh = Index.build(index.encoder, passages(60), tmp_path / "fresh")
    assert content(index) == content(fresh)


def test_subwords_go_on_too(tmp_path, monkeypatch):
    monkeypatch.setattr(staged, "CHUNK", 20)
    monkeypatch.setattr(any_store, "CHUNK", 10)
    model = load_any("default")
    Index.build(model, passages(5), tmp_path / "idx").close()
    index = Index.open(tmp_path / "idx", model)
    with pytest.raises(BadInput):
        sync(index, stopped(passages(50), 45))
    sync(index, passages(50))
    fresh = Index.build(model, passages(50), tmp_path / "fresh")
    assert content(index) == content(fresh)
    question = "what does text 33 say?"
    assert [(hit.passage.id, hit.score) for hit in index.search(question)] == [
        (hit.passage.id, hit.score) for hit in fresh.search(question)
    ]
