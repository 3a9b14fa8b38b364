"""After any sequence of writes an index gives what a fresh one over the same passages gives, to the last bit."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.index import Index
from interlingua.index.local import caches
from interlingua.index.local import search as local_search
from interlingua.index.local import store as local_store
from interlingua.index.local.backup import backup, restore
from interlingua.index.local.caches import cache_files, readers_folder, remove_later_caches
from interlingua.index.local.check import check_folder
from interlingua.index.local.rows import among
from interlingua.index.local.table import PassageTable
from interlingua.index.metadata import Question
from interlingua.retrieval.bm25.bm25 import BM25

WORDS = {
    "en": "cat dog house river storm keeper wrote book lighthouse small blue the a".split(),
    "de": "katze hund haus fluss sturm wärter schrieb buch leuchtturm klein blau der die".split(),
    "ru": "кот собака дом река буря смотритель писал книга маяк маленький синий".split(),
    "": "cat кот 42 x1 x2".split(),
}
QUESTIONS = [
    ("cat in the house", "en"),
    ("катце кот и река", "ru"),
    ("der leuchtturm 42", "de"),
    ("storm буря", ""),
    ("nothing of this", "en"),
    ("katzen und häuser", None),
]


class HashEncoder:
    """Words have random vectors of small whole numbers, so that many passages tie."""

    similarity = "dot"

    def __init__(self):
        self.encoded = 0

    def encode_query(self, sentences, **options):
        return np.array([sum((self._word(word) for word in text.split()), np.ones(8)) for text in sentences])

    def encode_document(self, sentences, **options):
        self.encoded += len(sentences)
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])

    def _word(self, word):
        return np.random.default_rng(list(word.encode())).integers(-2, 3, 8).astype(float) / 8


def some(rng, name):
    lang = rng.choice(list(WORDS))
    words = rng.choices(WORDS[lang], k=rng.randint(1, 6))
    title = rng.choice(["", "", rng.choice(WORDS[lang])])
    return Passage(name, " ".join(words), title, lang, {"part": str(rng.randint(0, 2)), "quote": 'it\'s "x"'})


def results(index, k=7):
    """Everything that can be asked: modes, languages, metadata, one by one and together."""
    found = []
    for mode in ("dense", "lexical", "hybrid"):
        for langs in (None, sorted(index.languages)[:2]):
            for where in (None, {"part": "1"}, {"part": "2", "quote": 'it\'s "x"'}):
                found.append(
                    index.search_many(
                        [q for q, _ in QUESTIONS],
                        k,
                        lang=[lang for _, lang in QUESTIONS],
                        mode=mode,
                        langs=langs,
                        where=where,
                    )
                )
        assert [index.search(q, k, lang=lang, mode=mode) for q, lang in QUESTIONS] == found[-6]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("few", "stale"), [(12, 0.1), (3, 0.5)])
def test_any_sequence_of_writes_equals_a_fresh_index(tmp_path, monkeypatch, seed, few, stale):
    """The cache is made anew now and then by itself; with the second numbers, its supplement in between."""
    monkeypatch.setattr(local_store, "FEW", few)
    monkeypatch.setattr(local_store, "STALE", stale)
    rng, encoder = random.Random(seed), HashEncoder()
    names = [f"p{number}" for number in range(60)]
    held = {name: some(rng, name) for name in names[:40]}
    index = Index.build(encoder, held.values(), tmp_path / "idx")
    reader, caches, supplements = Index.open(tmp_path / "idx", encoder), {index.info().cache}, set()
    for step in range(8):
        action = rng.choice(["add", "replace", "replace", "delete", "delete", "compact"])
        chosen = [some(rng, name) for name in rng.sample(names, 5)]
        if action == "add":
            new = [passage for passage in chosen if passage.id not in held]
            assert index.add(iter(new)) == len(new)
            held |= {passage.id: passage for passage in new}
        elif action == "replace":
            same = rng.sample(sorted(held), 1)
            changed = [passage for passage in chosen if held.get(passage.id) != passage and passage.id not in same]
            before = encoder.encoded
            assert index.replace([*changed, held[same[0]]]) == len(changed)
            assert encoder.encoded - before == len(changed)
            held |= {passage.id: passage for passage in changed}
        elif action == "delete":
            gone = [passage.id for passage in chosen]
            assert index.delete([*gone, "nobody"]) == len([held.pop(name) for name in gone if name in held])
        else:
            index.compact()
        caches.add(index.info().cache)
        supplements |= {path.name for path in (tmp_path / "idx" / "caches").glob("*+*")}
        if step % 2:
            assert len(reader.search("cat", 60, mode="dense")) == len(held)
        if step in (3, 7):
            fresh = Index.build(encoder, rng.sample(list(held.values()), len(held)), tmp_path / f"fresh{step}")
            assert (len(index), index.languages) == (len(held), fresh.languages)
            assert results(index) == results(fresh)
            assert results(Index.open(tmp_path / "idx", encoder)) == results(reader) == results(fresh)
            assert not [finding for finding in check_folder(tmp_path / "idx") if finding.advice]
            assert all(index.passage(name) == passage for name, passage in held.items())
    assert len(caches) > 1
    assert bool(supplements) == (few == 3)


@pytest.mark.parametrize("small", [local_search.SMALL, 600, 0])
def test_search_is_a_sort_of_all_scores(tmp_path, monkeypatch, small):
    """By NumPy alone; by int8 and NumPy, or torch where many are left; by int8 and torch."""
    monkeypatch.setattr(local_search, "SMALL", small)
    rng, encoder = random.Random(9), HashEncoder()
    passages = [some(rng, f"p{number}") for number in range(150)]
    index = Index.build(encoder, passages[:100], tmp_path / "idx")
    index.add(passages[100:])
    bm25 = BM25.build(passages)
    for text, lang in QUESTIONS[:3]:
        vector = encoder.encode_query([text])[0].astype(np.float32)
        scored = [
            (float(np.float32(encoder.encode_document([(p.title, p.text) if p.title else p.text])[0] @ vector)), p.id)
            for p in passages
        ]
        for k in (1, 10, 149, 500):
            hits = index.search(text, k, mode="dense", lang=lang)
            assert [(hit.score, hit.passage.id) for hit in hits] == sorted(scored, reverse=True)[:k]
        expected = bm25.search([Query("q", text, lang)], 200)["q"]
        hits = index.search(text, 200, mode="lexical", lang=lang)
        assert {hit.passage.id: hit.score for hit in hits} == dict(expected)  # to the last bit


def test_a_tie_that_is_cut_is_cut_by_id(tmp_path):
    same = [Passage(f"p{number:03}", "cat dog", lang="en") for number in range(300)]
    index = Index.build(HashEncoder(), same[:200], tmp_path / "idx")
    index.add(same[200:])
    for mode in ("dense", "lexical", "hybrid"):
        assert [hit.passage.id for hit in index.search("cat", 5, mode=mode)] == [f"p{299 - i}" for i in range(5)], mode


@pytest.mark.slow
def test_metadata_and_ids_are_never_part_of_a_condition(tmp_path):
    hostile = ["' OR 1=1 --", "x'; DROP TABLE passages", "\\", '"', "number", "it's"]
    passages = [Passage(name, "cat", lang="en", metadata={name: name}) for name in hostile]
    index = Index.build(HashEncoder(), passages, tmp_path / "idx")
    index.replace([replace(passages[0], text="dog")])
    for name in hostile:
        assert [hit.passage.id for hit in index.search("cat", where={name: name}, mode="dense")] == [name]
        assert not index.search("cat", where={name: "' OR 1=1 --x"})
        assert index.passage(name).id == name
    assert index.delete([hostile[0], "' OR '1'='1"]) == 1
    assert len(index) == 5


def test_an_id_that_is_there_is_not_added_and_nothing_else_either(tmp_path):
    index = Index.build(HashEncoder(), [Passage("1", "cat", lang="en")], tmp_path / "idx")
    version = index.info().version
    with pytest.raises(InterlinguaError, match="has a passage '1' already"):
        index.add([Passage("2", "dog", lang="en"), Passage("1", "dog", lang="en")])
    for write in (index.add, index.replace):
        with pytest.raises(InterlinguaError, match="'2' occurs twice"):
            write([Passage("2", "dog", lang="en"), Passage("2", "cat", lang="en")])
    with pytest.raises(InterlinguaError, match="valid Unicode"):
        index.add([Passage("2", "half \ud83d", lang="en")])
    assert (len(index), index.info().version) == (1, version)


@pytest.mark.slow
def test_an_index_may_become_empty_and_grow_again(tmp_path):
    encoder = HashEncoder()
    index = Index.build(encoder, [Passage("1", "cat", lang="en")], tmp_path / "idx")
    assert index.delete("1") == 1
    for _ in range(2):
        assert (len(index), index.languages) == (0, {})
        for mode in ("dense", "lexical", "hybrid"):
            assert index.search("cat", mode=mode) == []
        index.compact()
    index = Index.open(tmp_path / "idx", encoder)
    index.add([Passage("1", "dog", lang="de")])
    assert [hit.passage.text for hit in index.search("dog")] == ["dog"]


@pytest.mark.slow
def test_a_reader_sees_what_another_process_wrote(tmp_path):
    encoder = HashEncoder()
    writer = Index.build(encoder, [Passage("1", "cat", lang="en")], tmp_path / "idx")
    reader = Index.open(tmp_path / "idx", encoder)
    writer.add([Passage("2", "cat", lang="fi")])
    assert [hit.passage.id for hit in reader.search("cat", lang="en")] == ["2", "1"]
    writer.compact()
    assert (reader.info().newer, reader.languages) == (0, {"en": 1, "fi": 1})
    Index.build(encoder, [Passage("9", "cat", lang="en")], tmp_path / "idx", overwrite=True)
    assert [hit.passage.id for hit in reader.search("cat", lang="en")] == ["9"]


class Negative(HashEncoder):
    """Another model with vectors of the same size."""

    def _word(self, word):
        return -super()._word(word)


def test_a_reader_never_searches_vectors_of_another_model(tmp_path):
    encoder = HashEncoder()
    Index.build(encoder, [Passage("1", "cat", lang="en")], tmp_path / "idx")
    reader = Index.open(tmp_path / "idx", encoder)
    Index.build(Negative(), [Passage("1", "cat", lang="en")], tmp_path / "idx", overwrite=True)
    for _ in range(2):  # not only the first time
        with pytest.raises(InterlinguaError, match="made with another model"):
            reader.search("cat", lang="en")


def test_a_search_goes_on_while_a_writer_removes_its_cache(tmp_path):
    encoder = HashEncoder()
    writer = Index.build(encoder, [Passage("1", "cat", lang="en")], tmp_path / "idx")
    reader = Index.open(tmp_path / "idx", encoder)
    before = reader.refresh()
    writer.add([Passage("2", "cat", lang="en")])
    writer.compact()
    [matches] = before.lexical([Question("cat", "en").terms(["en"])], 10)
    [score] = matches.best.values()
    assert 0 < score < matches.weights["cat"]


TOUCHED = 12
"""Passages that are changed and added."""


@pytest.fixture
def rng():
    return random.Random(4)


@pytest.fixture
def held(rng):
    return {name: some(rng, name) for name in (f"p{number}" for number in range(90))}


@pytest.fixture
def place(tmp_path, monkeypatch, rng, held):
    """An index of `held` with a supplement: rows that were replaced, added and deleted."""
    monkeypatch.setattr(local_store, "FEW", 3)
    monkeypatch.setattr(local_store, "STALE", 0.5)
    index = Index.build(HashEncoder(), held.values(), tmp_path / "idx")
    new = [some(rng, f"p{number}") for number in range(84, 84 + TOUCHED)]
    index.replace(new)
    held |= {passage.id: passage for passage in new}
    gone = ["p85", *(f"p{number}" for number in range(7))]
    index.delete(gone)
    for name in gone:
        del held[name]
    assert supplements(tmp_path / "idx")
    return tmp_path / "idx"


@pytest.fixture
def fresh(tmp_path, held):
    return results(Index.build(HashEncoder(), held.values(), tmp_path / "fresh"))


def supplements(place):
    return [path for path in cache_files(place) if "+" in path.name]


def test_a_search_reads_cache_and_supplement_and_not_the_table(place, held, monkeypatch, fresh):
    def read(*arguments, **options):
        raise AssertionError("the table was read")

    for name in ("numbers", "batches", "near"):
        monkeypatch.setattr(PassageTable, name, read)
    index = Index.open(place, HashEncoder())
    assert results(index) == fresh
    assert {name for name in held if index.passage(name) == held[name]} == set(held)


def test_a_write_after_a_supplement_makes_a_later_one(place, held, rng):
    (before,) = supplements(place)
    reader, index = Index.open(place, HashEncoder()), Index.open(place, HashEncoder())
    for start in range(100, 116, 4):
        new = [some(rng, f"p{number}") for number in range(start, start + 4)]
        index.add(new)
        held |= {passage.id: passage for passage in new}
        assert {hit.passage.id for hit in reader.search("cat", 500, mode="dense")} == set(held)
    (after,) = supplements(place)
    assert int(after.name.partition("+")[2]) > int(before.name.partition("+")[2])
    assert not [finding for finding in check_folder(place) if finding.advice]
    index.compact()
    assert not supplements(place)
    assert {hit.passage.id for hit in reader.search("cat", 500, mode="dense")} == set(held)


def test_where_all_is_gone_a_supplement_has_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(local_store, "FEW", 3)
    monkeypatch.setattr(local_store, "STALE", 2.0)
    there = [Passage(f"p{number}", "cat dog", lang="en") for number in range(20)]
    index = Index.build(HashEncoder(), there, tmp_path / "idx")
    index.delete([passage.id for passage in there])
    assert supplements(tmp_path / "idx")
    for one in (index, Index.open(tmp_path / "idx", HashEncoder())):
        assert [one.search("cat", mode=mode, lang="en") for mode in ("dense", "lexical", "hybrid")] == [[], [], []]
        assert len(one) == 0


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_supplement_is_passed_over(place, fresh, damage, caplog):
    (supplement,) = supplements(place)
    file = supplement / "vectors.npy"
    whole = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(whole[:-100] if damage == "cut" else whole[:-100] + b"x" + whole[-99:])
    assert results(Index.open(place, HashEncoder())) == fresh
    assert f"{supplement.name}: is not used" in caplog.text
    index, before = Index.open(place, HashEncoder()), len(caplog.records)
    assert index.search("cat") == index.search("cat")
    assert len(caplog.records) == before  # it is not tried again
    (found,) = [finding for finding in check_folder(place) if finding.advice]
    assert (found.part, found.derived) == (f"caches/{supplement.name}", True)
    Index.open(place, HashEncoder()).store.repair()
    assert not [finding for finding in check_folder(place) if finding.advice]
    assert results(Index.open(place, HashEncoder())) == fresh


def test_a_damaged_supplement_that_comes_later_is_tried_once(place, fresh, caplog):
    (supplement,) = supplements(place)
    supplement.rename(place / "away")
    reader = Index.open(place, HashEncoder())
    file = place / "away" / "vectors.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    (place / "away").rename(supplement)
    assert results(reader) == fresh
    assert caplog.text.count("is not used") == 1


def test_a_supplement_with_rows_of_others_is_told(place):
    """Its checksums fit, and it calls rows gone that are there."""
    index = Index.open(place, HashEncoder())
    index.store.repair()
    other = place.with_name("other")
    shutil.copytree(place, other)
    Index.open(other, HashEncoder()).delete(["p13", "p14", "p15", "p16"])
    (made,) = supplements(other)
    shutil.copytree(made, place / "caches" / made.name)
    index.add([Passage("z", "cat", lang="en")])  # the version that the other index gave to its deletion
    (found,) = [finding for finding in check_folder(place) if finding.advice]
    assert (found.part, found.derived) == (f"caches/{made.name}", True)


def test_a_row_that_is_gone_and_not_named_is_told(place, monkeypatch):
    index = Index.open(place, HashEncoder())
    index.store.repair()
    monkeypatch.setattr(caches, "among", lambda numbers, live: among(numbers, live) | (numbers == numbers.min()))
    index.delete([f"p{number}" for number in range(7, 17)])
    monkeypatch.undo()
    (found,) = [finding for finding in check_folder(place) if finding.advice]
    assert "1 passages that are gone are not named in it" in found.said


def test_a_compaction_that_makes_no_version_is_seen(tmp_path, monkeypatch):
    """Lance rewrites nothing where few rows of a file are deleted."""
    monkeypatch.setattr(local_store, "FEW", 3)
    monkeypatch.setattr(local_store, "STALE", 0.5)
    held = {name: Passage(name, "cat", lang="en") for name in (f"p{number:03}" for number in range(200))}
    index = Index.build(HashEncoder(), held.values(), tmp_path / "idx")
    reader = Index.open(tmp_path / "idx", HashEncoder())
    index.delete(["p000", "p001", "p002", "p003", "p004"])
    assert supplements(tmp_path / "idx")
    assert len(reader.search("cat", 300, mode="dense")) == 195
    index.compact()
    for one in (index, reader):
        assert len(one.search("cat", 300, mode="dense")) == 195
        assert (one.info().cache, one.info().deleted) == (one.info().version, 0)


def test_what_a_writer_that_was_killed_left_goes_with_the_next_supplement(place):
    left = place / "caches" / ".2+3.abcdefgh.part"
    left.mkdir()
    Index.open(place, HashEncoder()).delete([f"p{number}" for number in range(7, 17)])
    assert not left.exists()


def test_a_backup_has_the_supplement(place, tmp_path, fresh):
    backup(place, tmp_path / "idx.tar")
    restore(tmp_path / "idx.tar", tmp_path / "again")
    assert [path.name for path in supplements(tmp_path / "again")] == [path.name for path in supplements(place)]
    assert results(Index.open(tmp_path / "again", HashEncoder())) == fresh


def test_after_a_power_cut_later_supplements_go(place):
    (supplement,) = supplements(place)
    cache, version = map(int, supplement.name.split("+"))
    remove_later_caches(place / "caches", version)
    assert supplements(place)
    remove_later_caches(place / "caches", version - 1)
    assert [path.name for path in cache_files(place)] == [str(cache)]


def test_one_question_among_many_passages_needs_no_torch(tmp_path, monkeypatch):
    """Which takes seconds to load; int8 rules out all but a few passages."""
    monkeypatch.setattr(local_search, "SMALL", 600)

    def loaded(*arguments, **options):
        raise AssertionError("torch is needed")

    passages = [some(random.Random(number), f"p{number}") for number in range(400)]
    index = Index.build(HashEncoder(), passages, tmp_path / "idx")
    expected = index.search("cat storm", 3, mode="dense")
    monkeypatch.setattr("interlingua.retrieval.dense.exact.search_exact", loaded)
    assert index.search("cat storm", 3, mode="dense") == expected


@pytest.fixture
def users(tmp_path, monkeypatch):
    """Makes a user of the index, with a cache folder of its own: one who may write, and a reader who may not."""

    def become(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        monkeypatch.setattr("os.access", lambda path, mode, real=os.access: name != "reader" and real(path, mode))

    return become


def opened_by_a_reader(place, users):
    """An index of which a reader has made a cache, since it had none."""
    users("reader")
    (place / "caches").rename(place / "away")
    reader = Index.open(place, HashEncoder())
    (place / "away").rename(place / "caches")
    assert list(readers_folder(place).iterdir())
    users("writer")
    return reader


def test_a_reader_does_not_take_its_cache_for_that_of_a_version_with_the_same_number(tmp_path, users):
    """The version that it was made from was not synced, and a power cut took it."""
    users("writer")
    place = tmp_path / "idx"
    Index.build(HashEncoder(), [Passage("p", "cat", lang="en")], place)
    versions = place / "passages.lance/_versions"
    held = set(versions.iterdir())
    Index.open(place, HashEncoder(), durability="process").add([Passage("lost", "cat", lang="en")])
    opened_by_a_reader(place, users)
    for manifest in set(versions.iterdir()) - held:
        manifest.unlink()
    Index.open(place, HashEncoder(), durability="process").add([Passage("new", "cat", lang="en")])
    users("reader")
    found = Index.open(place, HashEncoder()).search("cat", 5, mode="dense")
    assert {hit.passage.id for hit in found} == {"p", "new"}


def test_a_reader_takes_a_cache_that_was_repaired(tmp_path, users, monkeypatch, caplog):
    monkeypatch.setattr(local_store, "FEW", 3)
    users("writer")
    place, rng = tmp_path / "idx", random.Random(1)
    index = Index.build(HashEncoder(), [some(rng, f"p{number}") for number in range(20)], place)
    reader = opened_by_a_reader(place, users)
    index.add([some(rng, f"q{number}") for number in range(9)])
    file = place / "caches" / str(index.info().cache) / "vectors.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    users("reader")
    for _ in range(3):
        assert len(reader.search("cat", 50, mode="dense")) == 29
    assert caplog.text.count("is not used, since it is damaged") == 1
    users("writer")
    Index.open(place, HashEncoder()).store.repair()
    users("reader")
    assert len(reader.search("cat", 50, mode="dense")) == 29
    assert reader.info().cache == index.info().cache
