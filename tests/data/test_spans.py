"""Documents become pairs without loss unsaid; a draw decides a span; a stream of them resumes exactly."""

import json
from collections import Counter

import numpy as np
import pytest

from interlingua.data.datasets import DataSpec, open_store, open_stream, read, texts_of
from interlingua.data.linked import SpanPair, cut, link, span_pair
from interlingua.data.records import Document, LinkedDocuments
from interlingua.data.store import MemoryStore
from interlingua.data.stream import Stream
from interlingua.errors import InterlinguaError


def document(lang, group, text="One. Two."):
    return Document((f"{text} {group}", lang), lang, group=group)


DOCUMENTS = [
    document("de", "a"),
    document("en", "a"),
    document("sw", "b"),
    document("fr", "a"),
    document("en", "b"),
    document("de", "c"),
    document("fr", "c"),
    document("en", "d"),
    document("th", ""),
    document("de", "a", "X"),
]


def names(linked):
    return [(one.source.lang, one.target.lang, one.source.group) for one in linked]


def test_english_is_linked_with_every_other_language(capsys):
    linked = list(link(DOCUMENTS))
    assert names(linked) == [("en", "de", "a"), ("en", "fr", "a"), ("en", "sw", "b")]
    assert linked[0] == LinkedDocuments(DOCUMENTS[1], DOCUMENTS[0])  # the first German one, whole
    said = capsys.readouterr().err
    assert said == (
        "linked documents: 5 of 10 documents have no partner and were left out (2 in a group without 'en', "
        "1 without a group, 1 repeated in their group and language, 1 alone in their group)\n"
    )


def test_another_source_and_any_two():
    assert names(link(DOCUMENTS, source="de")) == [("de", "en", "a"), ("de", "fr", "a"), ("de", "fr", "c")]
    assert names(link(DOCUMENTS, source="any")) == [
        ("en", "de", "a"),
        ("en", "fr", "a"),
        ("de", "fr", "a"),
        ("en", "sw", "b"),
        ("de", "fr", "c"),
    ]


def test_languages_are_kept_beside_the_source():
    assert names(link(DOCUMENTS, langs=["fr", "th"])) == [("en", "fr", "a")]
    assert names(link(DOCUMENTS, source="any", langs=["fr", "de"])) == [("de", "fr", "a"), ("de", "fr", "c")]


def test_what_is_linked_already_passes():
    linked = [LinkedDocuments(document("en", ""), document("zh", "")), LinkedDocuments(*DOCUMENTS[:2])]
    assert list(link(linked)) == linked
    assert list(link(linked, langs=["zh"])) == linked[:1]


def test_a_language_that_is_none():
    with pytest.raises(InterlinguaError, match="not a language code"):
        list(link(DOCUMENTS, source="xyzzy"))


def test_a_pair_holds_the_texts_and_two_draws():
    random = np.random.default_rng(0)
    linked = LinkedDocuments(Document(("A b.", "C d."), "en", group="g"), Document(("甲。", "乙。"), "zh"))
    first = span_pair(linked, 7, random)
    assert (first.source, first.target, first.lang, first.group) == ("A b. C d.", "甲。乙。", "zh", "g")
    assert 0 <= first.source_draw < 1
    assert first.source_draw != first.target_draw
    again = span_pair(LinkedDocuments(document("de", ""), document("fr", "")), 7, random)
    assert (again.lang, again.group) == ("de-fr", "#7")
    assert again.source_draw != first.source_draw


def test_a_span_begins_anywhere_with_equal_chance():
    draws = (np.arange(6000) + 0.5) / 6000
    spans = Counter((one.start, one.stop) for one in (cut(10, 5, draw) for draw in draws))
    assert spans == {(start, start + 5): 1000 for start in range(6)}
    assert cut(10, 5, 1 - 1e-16).stop == 10


def test_tiles_cover_the_text_once():
    draws = (np.arange(6000) + 0.5) / 6000
    tiles = Counter((one.start, one.stop) for one in (cut(13, 5, draw, "tiled") for draw in draws))
    assert tiles == {(0, 5): 2000, (5, 10): 2000, (10, 13): 2000}
    assert {cut(13, 5, draw, "tiled", least=4).start for draw in draws} == {0, 5}
    assert {cut(10, 5, draw, "tiled").start for draw in draws} == {0, 5}


@pytest.mark.parametrize("mode", ["uniform_start", "tiled"])
def test_a_short_text_is_its_span(mode):
    assert cut(5, 5, 0.9, mode) == cut(5, 180, 0.9, mode) == slice(0, 5)


@pytest.fixture
def file(tmp_path):
    rows = [
        {"group": f"g{number}", "lang": lang, "sentences": [f"Text {number} {lang}.", "More."]}
        for number in range(6)
        for lang in (("en", "de", "sw") if number < 2 else ("en", "de"))
    ]
    path = tmp_path / "documents.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_a_recipes_entry_becomes_a_stream_that_resumes(file, tmp_path):
    spec = DataSpec(kind="linked", path=str(file), batch=3, alpha=0.0)
    store = open_store("linked", spec, tmp_path)
    assert {lang: len(numbers) for lang, numbers in store.languages.items()} == {"de": 6, "sw": 2}
    stream = open_stream("linked", store, spec, 1)
    before = [next(stream) for _ in range(4)]
    state = json.loads(json.dumps(stream.state_dict()))
    after = [next(stream) for _ in range(4)]
    resumed = open_stream("linked", open_store("linked", spec, tmp_path), spec, 1)
    resumed.load_state_dict(state)
    assert [next(resumed) for _ in range(4)] == after
    records = [record for batch in before + after for record in batch]
    assert all(isinstance(record, SpanPair) for record in records)
    assert len({record.source_draw for record in records}) == 24
    # equal chance for both languages, though one has three times as many documents
    assert Counter(record.lang for record in (r for _ in range(40) for r in next(stream)))["sw"] > 40


def test_options_and_languages_of_an_entry(file):
    def langs(**options):
        return {
            (one.source.lang, one.target.lang)
            for one in read("linked", DataSpec(kind="linked", path=str(file), **options))
        }

    assert langs() == {("en", "de"), ("en", "sw")}
    assert langs(langs=["sw"]) == {("en", "sw")}
    assert langs(options={"source": "any"}) == {("en", "de"), ("en", "sw"), ("de", "sw")}
    with pytest.raises(InterlinguaError, match="gave no records in fi"):
        langs(langs=["fi"])


def test_a_group_of_one_language_gives_no_records(tmp_path, capsys):
    path = tmp_path / "one.jsonl"
    path.write_text('{"group": "g", "lang": "en", "sentences": ["A."]}\n', encoding="utf-8")
    with pytest.raises(InterlinguaError, match=r"data.linked: .* gave no records"):
        list(read("linked", DataSpec(path=str(path))))
    assert "1 alone in their group" in capsys.readouterr().err


def test_both_texts_teach_the_vocabulary():
    store = MemoryStore([LinkedDocuments(Document(("A.", "B."), "en"), Document(("C.",), "de"))])
    assert list(texts_of(store, 5)) == ["A.", "B.", "C."]
    assert isinstance(next(Stream(store, 1, seed=0))[0], LinkedDocuments)
