from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from interlingua.data import (
    Document,
    LinkedDocuments,
    MemoryStore,
    ParallelPair,
    Passage,
    QuestionPassage,
    RecordStore,
    Sentence,
)
from interlingua.errors import Damaged, InterlinguaError

PAIRS = [
    ParallelPair(f"lause {i}\n\u2028", f"sentence {i}", lang, "en", score=i / 7, group=f"g{i}")
    for i, lang in enumerate(["fi", "th", "fi", "ar", "th", "fi"])
]
DOCUMENT = Document(("A.", "B."), "en", "d", "T", "g")
OTHERS = [
    QuestionPassage("q?", (Passage("p", "text", "title", "en"), Passage("p2", "x")), (Passage("n", "no"),), "en", "1"),
    Sentence("湖は深い。", "ja"),
    DOCUMENT,
    LinkedDocuments(DOCUMENT, Document(("ก",), "th")),
]


def test_a_store_gives_back_what_was_put_in(tmp_path: Path) -> None:
    store = RecordStore.build(tmp_path / "s", iter(PAIRS), ParallelPair, "f")
    assert len(store) == 6
    assert [store[i] for i in range(6)] == PAIRS
    assert store[np.int64(-1)] == PAIRS[-1]
    with pytest.raises(IndexError):
        store[6]
    assert {code: indices.tolist() for code, indices in store.languages.items()} == {
        "ar": [3],
        "fi": [0, 2, 5],
        "th": [1, 4],
    }
    assert isinstance(store.languages["fi"].base.base, np.memmap)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("record", OTHERS, ids=lambda record: type(record).__name__)
def test_every_kind_of_record(tmp_path: Path, record: object) -> None:
    store: RecordStore = RecordStore.build(tmp_path / "s", [record])  # type: ignore[type-var]
    assert store[0] == record == MemoryStore([record])[0]  # type: ignore[type-var]


def test_memory_and_disk_agree(tmp_path: Path) -> None:
    on_disk, in_memory = RecordStore.build(tmp_path / "s", PAIRS), MemoryStore(PAIRS)
    assert list(on_disk.languages) == list(in_memory.languages)
    for code, indices in in_memory.languages.items():
        assert on_disk.languages[code].tolist() == indices.tolist()


def _never() -> Iterator[ParallelPair]:
    raise AssertionError("the records were read")
    yield


def test_a_store_is_used_again_when_the_fingerprint_is_the_same(tmp_path: Path) -> None:
    RecordStore.build(tmp_path / "s", PAIRS, ParallelPair, "one")
    assert len(RecordStore.build(tmp_path / "s", _never(), ParallelPair, "one")) == 6
    assert len(RecordStore.build(tmp_path / "s", PAIRS[:2], ParallelPair, "two")) == 2
    assert len(RecordStore.open(tmp_path / "s")) == 2
    RecordStore.build(tmp_path / "s", PAIRS, ParallelPair)
    with pytest.raises(AssertionError, match="were read"):
        RecordStore.build(tmp_path / "s", _never(), ParallelPair)


def test_a_failed_build_leaves_the_old_store(tmp_path: Path) -> None:
    def broken() -> Iterator[ParallelPair]:
        yield PAIRS[0]
        raise KeyboardInterrupt

    RecordStore.build(tmp_path / "s", PAIRS, ParallelPair, "one")
    with pytest.raises(KeyboardInterrupt):
        RecordStore.build(tmp_path / "s", broken(), ParallelPair, "two")
    assert RecordStore.open(tmp_path / "s").fingerprint == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_errors(tmp_path: Path) -> None:
    for build in (lambda: RecordStore.build(tmp_path / "s", []), lambda: MemoryStore([])):
        with pytest.raises(InterlinguaError, match="no records"):
            build()
    with pytest.raises(InterlinguaError, match="no such folder of records"):
        RecordStore.open(tmp_path / "s")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InterlinguaError, match="exists and is not an earlier save"):
        RecordStore.build(tmp_path / "mine", PAIRS)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    with pytest.raises(TypeError, match="a Sentence in a store of ParallelPair"):
        RecordStore.build(tmp_path / "t", [PAIRS[0], Sentence("a", "en")])  # type: ignore[list-item]


def test_a_damaged_store_is_built_again_from_its_records(tmp_path: Path) -> None:
    RecordStore.build(tmp_path / "s", PAIRS, ParallelPair, "one")
    with open(tmp_path / "s" / "records.jsonl", "ab") as stream:
        stream.write(b"{}\n")
    with pytest.raises(Damaged, match=r"records\.jsonl has .* bytes in place of"):
        RecordStore.open(tmp_path / "s")
    assert len(RecordStore.build(tmp_path / "s", PAIRS[:3], ParallelPair, "one")) == 3
    assert len(RecordStore.open(tmp_path / "s")) == 3


def test_a_language_never_becomes_a_path(tmp_path: Path) -> None:
    store = RecordStore.build(tmp_path / "a" / "s", [Sentence("x", "../../evil")])
    assert list(store.languages) == ["../../evil"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "a",
        "offsets.npy",
        "order.npy",
        "records.jsonl",
        "s",
        "store.json",
    ]
