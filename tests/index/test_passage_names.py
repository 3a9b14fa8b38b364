"""Passages of several sources with equal ids: searched, changed and named, in a folder and in Milvus alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from interlingua.data.files import SourceNames
from interlingua.data.passages import read_sources
from interlingua.data.records import Passage
from interlingua.errors import BadInput, InterlinguaError
from interlingua.index import Index
from interlingua.index.index import build_index, check_index, open_index
from interlingua.index.local.backup import backup, restore
from interlingua.models.late_interaction import LateInteractionEncoder

WORDS = {"en": "storm book river star bridge".split(), "fi": "myrsky kirja joki tähti silta".split()}


class LetterEncoder:
    """Counts of letters: a text is near texts with the same letters."""

    similarity = "cosine"

    def __init__(self):
        self.given = []

    def encode_query(self, sentences, **options):
        return np.array([[text.count(letter) + 0.01 for letter in "abdegikmorst"] for text in sentences])

    def encode_document(self, sentences, **options):
        self.given += sentences
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])


def page(number, lang, text=None, source="{lang}.jsonl"):
    """Passage `number`, whose id is the same in all languages."""
    metadata = {"source": source.format(lang=lang)} if source else {}
    return Passage(str(number), text or WORDS[lang][number], "", lang, metadata)


PAGES = [page(number, lang) for lang in WORDS for number in range(5)]


@pytest.fixture(params=["folder", "milvus"])
def place(request, tmp_path):
    if request.param == "milvus":
        pytest.importorskip("milvus_lite")
        return f"milvus:{tmp_path}/lite.db/docs"
    return tmp_path / "idx"


@pytest.fixture
def index(place):
    made = build_index(LetterEncoder(), PAGES, place)
    yield made
    made.close()


@pytest.fixture(scope="module", params=["folder", "milvus"])
def built(request, tmp_path_factory):
    """An index that is only read."""
    place = tmp_path_factory.mktemp("built")
    if request.param == "milvus":
        pytest.importorskip("milvus_lite")
    made = build_index(LetterEncoder(), PAGES, place / "idx" if request.param == "folder" else f"milvus:{place}/l.db/d")
    yield made
    made.close()


def keys(hits):
    return [hit.passage.key for hit in hits]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_every_version_is_found_with_its_own_text(built, mode):
    for text, lang, number in (("river", "en", 2), ("joki", "fi", 2), ("silta", "fi", 4)):
        best = built.search(text, 10, mode=mode, lang=lang)
        assert best[0].passage == page(number, lang)
        assert len(set(keys(best))) == len(best) == (1 if mode == "lexical" else 10)
    many = built.search_many(["river", "joki"], 10, mode=mode, lang=["en", "fi"])
    assert [hits[0].passage for hits in many] == [page(2, "en"), page(2, "fi")]
    assert many[0] == built.search("river", 10, mode=mode, lang="en")
    assert [hit.passage for hit in built.search("joki", 1, mode=mode, where={"source": "fi.jsonl"})] == [page(2, "fi")]


@pytest.mark.slow
def test_ties_are_ordered_by_id_then_source_descending(place):
    same = [page(number, "en", "river", source) for source in ("a", "", "c", "b") for number in (1, 2, 0)]
    index = build_index(LetterEncoder(), same[:7], place)
    index.add(same[7:])
    expected = [(source, str(number)) for number in (2, 1, 0) for source in ("c", "b", "a", "")]
    for mode in ("dense", "lexical", "hybrid"):
        for k in (12, 5):
            assert keys(index.search("river", k, mode=mode, lang="en")) == expected[:k], mode
    index.compact()
    for mode in ("dense", "lexical", "hybrid"):
        assert keys(index.search("river", 5, mode=mode, lang="en")) == expected[:5], mode


def test_a_passage_is_had_by_its_id_or_with_its_source(index):
    index.add([Passage("only", "star", lang="en", metadata={"source": "a:b"}), Passage("x:0", "star", lang="en")])
    assert index.passage("only").text == index.passage("a:b:only").text == "star"
    assert index.passage("x:0") == index.passage(":x:0") == Passage("x:0", "star", lang="en")
    for lang in WORDS:
        assert index.passage(f"{lang}.jsonl:3") == page(3, lang)
    with pytest.raises(
        InterlinguaError,
        match=r"has 2 passages with the id '3'\. Name one of them: 'en\.jsonl:3', "
        r"'fi\.jsonl:3'\.",
    ):
        index.passage("3")
    for name in ("nobody", "de.jsonl:3", "en.jsonl:9", "b:only"):
        with pytest.raises(InterlinguaError, match=f"has no passage '{name}'"):
            index.passage(name)


def test_a_name_that_two_passages_have_deletes_neither(index):
    for source, id in (("a:b", "c"), ("a", "b:c")):
        index.add(Passage(id, "star", lang="en", metadata={"source": source}))
    for call in (index.passage, index.versions, lambda name: index.delete([name])):
        with pytest.raises(BadInput, match=r"'a:b:c' means the id 'b:c' in 'a' and the id 'c' in 'a:b'"):
            call("a:b:c")
    assert index.delete(["b:c"]) == 1
    assert index.passage("a:b:c").id == "c"


@pytest.mark.slow
def test_an_id_deletes_all_versions_and_with_its_source_one(index):
    assert index.delete(["fi.jsonl:3", "de.jsonl:3", "nobody"]) == 1
    assert index.passage("3") == page(3, "en")
    assert index.delete(["2", "en.jsonl:2"]) == 2
    assert index.delete("4") == 2
    assert len(index) == 5
    assert sorted(keys(index.search("river", 10, mode="dense"))) == sorted(
        one.key for one in PAGES if one.id in "01" or one.key == ("en.jsonl", "3")
    )


def test_replacing_one_version_leaves_the_others(index):
    index.encoder.given.clear()
    assert index.replace([page(2, "fi", "meri"), page(1, "en"), page(2, "sw", "mto")]) == 2
    assert index.encoder.given == ["meri", "mto"]
    assert len(index) == 11
    assert (index.passage("fi.jsonl:2").text, index.passage("en.jsonl:2").text) == ("meri", "river")
    assert index.languages == {"en": 5, "fi": 5, "sw": 1}


@pytest.mark.slow
def test_a_passage_without_a_source_replaces_the_only_one_with_its_id(index):
    assert index.delete("fi.jsonl:0") == 1
    given = Passage("0", "flood", lang="en", metadata={"author": "Ada"})
    assert index.replace([given]) == 1
    assert index.passage("0") == replace(given, metadata={"author": "Ada", "source": "en.jsonl"})
    assert index.replace([given]) == 0
    assert len(index) == 9
    with pytest.raises(InterlinguaError, match=r"has 2 passages with the id '1', from 'en\.jsonl', 'fi\.jsonl'\. Say"):
        index.replace([Passage("1", "flood", lang="en")])
    assert index.replace([Passage("new", "flood", lang="en")]) == 1
    assert index.replace([Passage("new", "book", lang="en")]) == 1
    assert (len(index), index.passage("new")) == (10, Passage("new", "book", lang="en"))
    # an exact match is no matter of doubt, whatever else has the id
    index.add([page("new", "fi", "kirja")])
    assert index.replace([Passage("new", "star", lang="en")]) == 1
    assert (index.passage(":new").text, index.passage("fi.jsonl:new").text) == ("star", "kirja")


def test_what_is_there_is_not_added(index):
    for twin, says in (
        (page(1, "fi", "x"), "has a passage '1' already"),
        (Passage("1", "x", lang="en"), r"has a passage '1' already, from 'en\.jsonl', 'fi\.jsonl'"),
    ):
        with pytest.raises(InterlinguaError, match=says):
            index.add([twin])
    for write in (index.add, index.replace):
        with pytest.raises(InterlinguaError, match=r"'9' occurs twice in 'en\.jsonl'"):
            write([page(9, "en", "a"), page(9, "fi", "b"), page(9, "en", "c")])
        with pytest.raises(InterlinguaError, match=r"'9' occurs twice\."):
            write([page(9, "en", "a", ""), page(9, "en", "c", "")])
    assert len(index) == 10
    assert index.add([page(1, "en", "x", "sw.jsonl")]) == 1


@pytest.mark.slow
def test_an_index_remembers_the_names_of_its_sources(place, tmp_path):
    for folder in "ab":
        (tmp_path / folder / "handbook").mkdir(parents=True)
        (tmp_path / folder / "handbook/guide.txt").write_text(f"river {folder}")

    def told(write, path, *arguments):
        names = SourceNames()
        return write(*arguments[:1], read_sources([tmp_path / path], "en", names), *arguments[1:], names=names)

    index = told(build_index, "a/handbook", LetterEncoder(), place)
    assert told(index.add, "b/handbook") == 1
    index.close()
    again = open_index(place, LetterEncoder())
    for path in ("b/handbook/guide.txt", "a/handbook", "b"):
        assert told(again.replace, path) == 0, path
    assert again.passage("b/handbook/guide.txt#1").text == "river b"
    assert again.passage("handbook/guide.txt#1").text == "river a"
    again.close()


def test_an_index_of_versions_may_be_built_in_any_order(tmp_path):
    first = Index.build(LetterEncoder(), PAGES[:3], tmp_path / "a")
    first.add(PAGES[3:8])
    first.replace([replace(one, text="x") for one in PAGES[6:8]] + PAGES[8:])
    first.replace(PAGES[6:8])
    fresh = Index.build(LetterEncoder(), reversed(PAGES), tmp_path / "b")
    for mode in ("dense", "lexical", "hybrid"):
        texts = ["storm book", "joki silta", "tähti star"]
        assert first.search_many(texts, 10, mode=mode) == fresh.search_many(texts, 10, mode=mode)


def test_a_build_that_was_stopped_goes_on_with_each_version(tmp_path, monkeypatch):
    from interlingua.index import store as index_store
    from interlingua.index.local import build as index_build

    monkeypatch.setattr(index_store, "CHUNK", 3)

    def stopped():
        yield from PAGES[:7]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.build(LetterEncoder(), stopped(), tmp_path / "idx")
    encoder = LetterEncoder()
    index = Index.build(encoder, [*PAGES[:6], *PAGES[7:]], tmp_path / "idx")
    assert encoder.given[-3:] == [one.text for one in PAGES[7:]]
    assert not {one.text for one in PAGES[:6]} & set(encoder.given)
    assert sorted(keys(index.search("river", 20, mode="dense"))) == sorted(
        one.key for one in PAGES if one.key != PAGES[6].key
    )
    assert not (tmp_path / "idx" / index_build.STARTED).exists()


def test_what_a_stopped_build_with_another_model_left_is_gone(tmp_path, tiny_static, monkeypatch):
    from interlingua.index import store as index_store

    def stopped():
        yield from PAGES[:7]
        raise KeyboardInterrupt

    monkeypatch.setattr(index_store, "CHUNK", 6)
    with pytest.raises(KeyboardInterrupt):  # after it has written and synced some
        Index.build(tiny_static(seed=1), stopped(), tmp_path / "idx")
    Index.build(tiny_static(seed=2), PAGES[:4], tmp_path / "idx")
    assert [finding for finding in check_index(tmp_path / "idx") if finding.advice] == []
    backup(tmp_path / "idx", tmp_path / "idx.tar")
    assert restore(tmp_path / "idx.tar", tmp_path / "again") == 4


def test_a_passage_without_a_source_is_placed_whatever_the_order(tmp_path):
    def page(text, source=""):
        return Passage("x", text, "", "en", {"source": source} if source else {})

    for number, sources in enumerate((["a"], ["a", "b"])):
        index = Index.build(LetterEncoder(), [page("old", source) for source in sources], tmp_path / str(number))
        for call in ([page("new", "a"), page("stray")], [page("stray"), page("new", "a")]):
            with pytest.raises(BadInput, match=r"occurs twice|has 2 passages with the id 'x'"):
                index.replace(call)
            assert {one.text for one in index.versions("x")} == {"old"}


@pytest.fixture
def reranker(tiny_encoder):
    return LateInteractionEncoder.start(tiny_encoder(), dim=16, query_length=12, document_length=24)


def test_reranking_scores_each_version_by_its_own_text(built, reranker):
    queries = ["river book", "joki kirja"]
    alone = {one.key: reranker_score(reranker, queries, one) for one in PAGES}
    for hits, number in zip(built.search_many(queries, 10, lang="en", reranker=reranker), (0, 1), strict=True):
        assert {hit.passage.key: hit.score for hit in hits} == pytest.approx(
            {key: scores[number] for key, scores in alone.items()}, abs=1e-5
        )
        assert all(hit.parts["reranker"] == hit.score for hit in hits)


def test_kept_tokens_are_those_of_each_version(tmp_path, reranker):
    index = Index.build(LetterEncoder(), PAGES, tmp_path / "idx")
    fresh = index.search("joki kirja", 10, lang="fi", reranker=reranker)
    assert index.keep_tokens(reranker) == 10
    encode, given = reranker.encode_document, []
    reranker.encode_document = lambda texts, **options: given.extend(texts) or encode(texts, **options)
    kept = index.search("joki kirja", 10, lang="fi", reranker=reranker)
    assert not given
    assert {hit.passage.key: hit.score for hit in kept} == pytest.approx(
        {hit.passage.key: hit.score for hit in fresh}, abs=0.05
    )  # int8
    index.replace([page(2, "fi", "meri")])
    index.search("joki kirja", 10, lang="fi", reranker=reranker)
    assert given == ["meri"]


def reranker_score(reranker, queries, passage):
    from interlingua.data.records import Query
    from interlingua.retrieval.rerank import model_retriever

    asked = [Query(str(number), text, "en") for number, text in enumerate(queries)]
    run = model_retriever(reranker, [passage]).search(asked, 1)
    return [run[query.id][0][1] for query in asked]
