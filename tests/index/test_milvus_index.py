from __future__ import annotations

import re
from contextlib import closing

import numpy as np
import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.index import Index
from interlingua.index.milvus.collection import Address, literal
from interlingua.index.milvus.version import IndexVersion
from interlingua.retrieval.bm25.bm25 import BM25
from interlingua.retrieval.fusion import rrf
from interlingua.retrieval.run import Run
from interlingua.text import phonetic

pytest.importorskip("milvus_lite")

HOSTILE = [
    '" or 1 == 1 or id == "',
    '"] or number >= 0 or id in ["',
    "' or '1'=='1",
    "a\\",
    'a\\" or number >= 0 or "',
    "new\nline\r\ttab",
    "{x} %s",
    "\x00\x01",
    "𝔘\u202e\u200b",
    "",
]
WORDS = "river bridge storm book blue star town keeper light sea book river book".split()


class LetterEncoder:
    """Counts of letters: a text is near texts with the same letters."""

    similarity = "cosine"

    def __init__(self, letters="abcdefghijklmnopqrstuvwxyzéß"):
        self.letters, self.encoded = letters, 0

    def encode_query(self, sentences, **options):
        return np.array([[text.count(letter) + 0.01 for letter in self.letters] for text in sentences])

    def encode_document(self, sentences, **options):
        self.encoded += len(sentences)
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])


def collection(count=300, seed=0):
    """Short passages over few words, so that both kinds of scores tie often; one has no term, some share a text."""
    random = np.random.default_rng(seed)
    made = [
        Passage(
            f"p{i}",
            " ".join(random.choice(WORDS, random.integers(1, 9))),
            title="Titel" * (i % 7 == 0),
            lang=("en", "de", "fi")[i % 3],
            metadata={"shelf": str(i % 4), "a=b": "c"} if i % 2 else {},
        )
        for i in range(count)
    ]
    return [*made, Passage("none", "...", lang="en"), Passage('quo"te', 'blue sea \\ "star"\n', lang="de")]


QUESTIONS = ["blue book of the river", "storm", "keeper bridge light light", "xylophone", "the star town sea"]


def collections(index):
    """What Milvus holds."""
    return index.store.view.collections


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    passages = collection()
    local = Index.build(LetterEncoder(), passages, folder / "idx")
    stored = Index.build(LetterEncoder(), iter(passages), f"milvus:{folder}/lite.db/docs")
    yield local, stored
    stored.close()


def assert_same_to_within_ties(found, expected):
    """Equal scores in every place, and equal passages but where the last score is shared with some that were cut."""
    assert np.allclose([hit.score for hit in found], [hit.score for hit in expected], rtol=1e-5, atol=1e-6)
    last = expected[-1].score if expected else 0.0
    for one, other in ((found, expected), (expected, found)):
        above = {hit.passage.id for hit in one if hit.score > last + 1e-5}
        assert above <= {hit.passage.id for hit in other}
    wanted = {hit.passage.id: hit for hit in expected}
    for hit in found:
        if hit.passage.id in wanted:
            assert hit.passage == wanted[hit.passage.id].passage
            assert hit.parts == pytest.approx(wanted[hit.passage.id].parts, rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
@pytest.mark.parametrize(
    "narrowed",
    [{}, {"langs": ["de", "fi"]}, {"where": {"shelf": "1", "a=b": "c"}}, {"langs": ["fi"], "where": {"shelf": "3"}}],
)
def test_results_are_those_of_the_local_index(both, mode, narrowed):
    local, stored = both
    for text in QUESTIONS:
        options = {"k": 7, "mode": mode, "lang": "en", **narrowed}
        assert_same_to_within_ties(stored.search(text, **options), local.search(text, **options))
    many = stored.search_many(QUESTIONS, 7, mode=mode, lang="en", **narrowed)
    for hits, text in zip(many, QUESTIONS, strict=True):
        assert_same_to_within_ties(hits, stored.search(text, 7, mode=mode, lang="en", **narrowed))


def test_the_sparse_product_is_bm25(both):
    _, stored = both
    bm25 = BM25.build(collection())
    for text in QUESTIONS:
        expected = dict(bm25.search([Query("q", text, "en")], 400)["q"])
        hits = stored.search(text, 302, mode="lexical", lang="en")
        assert {hit.passage.id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_server_fuses_by_reciprocal_rank(tmp_path):
    random = np.random.default_rng(7)
    words = ["".join(random.choice(list("abcdefghij"), 4)) for _ in range(60)]
    passages = [Passage(f"p{i}", " ".join(random.choice(words, 5 + i))) for i in range(120)]  # all lengths differ
    local = Index.build(LetterEncoder(), passages, tmp_path / "idx")
    stored = Index.build(LetterEncoder(), passages, f"milvus:{tmp_path}/lite.db/docs?fusion=rrf")
    texts = [" ".join(random.choice(words, 3)) for _ in range(6)] + ["xylophone"]
    for text, hits in zip(texts, stored.search_many(texts, 10, lang="en"), strict=True):
        found = [
            {hit.passage.id: hit.score for hit in local.search(text, 100, mode=mode, lang="en")}
            for mode in ("dense", "lexical")
        ]
        assert all(len(set(scores.values())) == len(scores) for scores in found)  # ties may be ranked either way
        expected = rrf([Run.from_scores({"q": scores}) for scores in found if scores])["q"]
        assert {hit.passage.id: hit.score for hit in hits} == pytest.approx(dict(expected[:10]), rel=1e-5)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for hit in hits:
            if hit.passage.id in found[0]:
                assert hit.parts["dense"] == pytest.approx(found[0][hit.passage.id], rel=1e-5)
    stored.close()


@pytest.mark.slow
def test_nothing_in_a_question_or_filter_becomes_a_condition(both):
    _, stored = both
    for text in HOSTILE:
        assert stored.search("blue", where={"shelf": text}) == []
        with pytest.raises(InterlinguaError, match="no passage has metadata"):
            stored.search("blue", where={text: "1"})
        assert stored.search("blue", where={"all": [{"shelf": [text, "x"]}, {"not": {"shelf": text}}]}) == []
        assert stored.delete([text]) == 0
        with pytest.raises(InterlinguaError, match="has no passage in language"):
            stored.search("blue", langs=[text])
        with pytest.raises(InterlinguaError, match="has no passage"):
            stored.passage(text)
        if text.strip():
            assert len(stored.search(text, 400, mode="dense")) == 302
    assert len(stored) == 302
    assert stored.passage('quo"te').text == 'blue sea \\ "star"\n'


@pytest.mark.slow
def test_hostile_ids_and_metadata_are_kept_as_they_are(tmp_path):
    with pytest.raises(InterlinguaError, match="not valid Unicode"):
        literal("\ud800")
    for text in HOSTILE:  # one string from its first quote to its last
        assert re.fullmatch(r'"(?:[^"\\\n\r]|\\["\\nrt])*"', literal(text))
    passages = [
        Passage(f"id {text}", f"blue {text}", title=text, lang="en", metadata={f"k{text}": text}) for text in HOSTILE
    ]
    index = Index.build(
        LetterEncoder(), [*passages, Passage("other", "blue", lang="en")], f"milvus:{tmp_path}/lite.db/docs"
    )
    for passage in passages:
        assert index.passage(passage.id) == passage
        found = index.search("blue", 20, mode="dense", where=dict(passage.metadata))
        assert [hit.passage for hit in found] == [passage]
    for left, passage in enumerate(reversed(passages), 1):
        assert index.delete([passage.id]) == 1
        assert len(index) == collections(index).rows() == len(passages) + 1 - left
    index.close()


@pytest.mark.slow
def test_writing_keeps_the_counts_exact_and_compact_the_mean_length(tmp_path):
    first, later = collection(120), collection(200)[120:-2]
    stored = Index.build(LetterEncoder(), first, f"milvus:{tmp_path}/lite.db/docs")
    assert stored.add(later) == 80
    assert stored.delete(["p3", "p4", "p5", "nowhere"]) == 3
    changed = [Passage("p0", "river " * 9, lang="fi"), Passage("p1", later[0].text, lang="sv"), first[2]]
    before = stored.encoder.encoded
    assert stored.replace(changed) == 2  # the third is there exactly so
    assert stored.encoder.encoded == before + 2
    now = {passage.id: passage for passage in [*first, *later]}
    for name in ("p3", "p4", "p5"):
        del now[name]
    now |= {passage.id: passage for passage in changed}
    local = Index.build(LetterEncoder(), now.values(), tmp_path / "idx")
    assert stored.languages == local.languages
    assert len(stored) == len(local) == collections(stored).rows()

    def numbers(index):
        return [[(hit.passage.id, hit.score) for hit in index.search(text, 5, mode="dense")] for text in QUESTIONS]

    assert numbers(stored) == numbers(local)
    fresh = Index.build(LetterEncoder(), now.values(), f"milvus:{tmp_path}/lite.db/fresh")
    counts = [
        {
            row["number"]: row["found_in"]
            for row in index.store.client.query(
                collections(index).terms, filter="number > 0 and found_in > 0", output_fields=["number", "found_in"]
            )
        }
        for index in (stored, fresh)
    ]
    assert counts[0] == counts[1]
    assert stored.store.view.about["mean_length"] != fresh.store.view.about["mean_length"]
    stored.compact()
    assert stored.store.view.about["mean_length"] == pytest.approx(mean := fresh.store.view.about["mean_length"])
    fresh.delete(list(now))
    fresh.compact()
    assert fresh.store.view.about["mean_length"] == pytest.approx(mean)  # passages that come are long or short by it
    for text in QUESTIONS:
        for mode in ("lexical", "hybrid"):
            assert_same_to_within_ties(
                stored.search(text, 9, mode=mode, lang="en"), local.search(text, 9, mode=mode, lang="en")
            )
    stored.close()


@pytest.mark.slow
def test_a_build_that_was_stopped_goes_on_and_is_not_seen_before_it_is_whole(tmp_path, monkeypatch):
    from interlingua.index import store as index_store
    from interlingua.index.milvus import version as milvus_version
    from interlingua.index.milvus import write as milvus_writer

    monkeypatch.setattr(index_store, "CHUNK", 64)
    monkeypatch.setattr(milvus_version, "SLICE", 16)
    monkeypatch.setattr(milvus_writer, "SLICE", 16)
    address, passages = f"milvus:{tmp_path}/lite.db/docs", collection()

    class Dies(LetterEncoder):
        def encode_document(self, sentences, **options):
            if self.encoded > 150:
                raise KeyboardInterrupt
            return super().encode_document(sentences, **options)

    with pytest.raises(KeyboardInterrupt):
        Index.build(Dies(), passages, address)
    with pytest.raises(InterlinguaError, match="there is no such index"):
        Index.open(address)
    encoder = LetterEncoder()
    stored = Index.build(encoder, passages, address)
    assert 0 < encoder.encoded <= 302 - 128 + 1 + 16
    assert len(stored) == collections(stored).rows() == 302
    local = Index.build(LetterEncoder(), passages, tmp_path / "idx")
    for text in QUESTIONS:
        assert_same_to_within_ties(stored.search(text, lang="en"), local.search(text, lang="en"))
    # other passages begin anew, and the index that is there stays until then
    with pytest.raises(KeyboardInterrupt):
        Index.build(Dies(), passages[:250], address, overwrite=True)
    assert len(Index.open(address)) == 302
    again = Index.build(LetterEncoder(), passages[:200], address, overwrite=True)
    assert len(again) == collections(again).rows() == 200
    assert sorted(again.store.client.list_collections()) == [collections(again).place, collections(again).terms]
    stored.close()


@pytest.mark.slow
def test_an_index_that_is_built_anew_during_a_search_is_searched_as_it_is_then(tmp_path):
    class Meanwhile(LetterEncoder):
        build = None

        def encode_query(self, sentences, **options):
            build, self.build = self.build, None
            if build:
                build().close()
            return super().encode_query(sentences)

    address, encoder = f"milvus:{tmp_path}/lite.db/docs", Meanwhile()
    Index.build(LetterEncoder(), collection(20), address).close()
    reader = Index.open(address, encoder)
    for mode in ("dense", "hybrid"):
        new = [Passage(f"new {mode}", "storm", lang="en"), *collection(20)]
        encoder.build = lambda new=new: Index.build(LetterEncoder(), new, address, overwrite=True)
        assert f"new {mode}" in [hit.passage.id for hit in reader.search("storm", 50, mode=mode, lang="en")]
    reader.close()


@pytest.mark.slow
def test_a_writer_that_was_stopped_is_told_and_mended(tmp_path, monkeypatch, capsys):
    address = f"milvus:{tmp_path}/lite.db/docs"
    stored = Index.build(LetterEncoder(), collection(50), address)

    def dies(version, change):
        raise KeyboardInterrupt

    monkeypatch.setattr(IndexVersion, "add_counts", dies)
    with pytest.raises(KeyboardInterrupt):
        stored.add([Passage("new", "storm storm", lang="en")])
    monkeypatch.undo()
    stored.close()
    again = Index.open(address, LetterEncoder())
    assert "was stopped" in capsys.readouterr().err
    assert again.passage("new").text == "storm storm"
    again.compact()
    assert len(again) == collections(again).rows() == 53
    local = Index.build(LetterEncoder(), [*collection(50), Passage("new", "storm storm", lang="en")], tmp_path / "idx")
    assert_same_to_within_ties(again.search("storm", 5, mode="lexical"), local.search("storm", 5, mode="lexical"))
    assert again.add([Passage("newer", "sea", lang="en")]) == 1  # gets a number of its own
    assert collections(again).rows() == 54
    again.close()


@pytest.mark.slow
def test_another_model_and_other_faults_are_told(tmp_path):
    address = f"milvus:{tmp_path}/lite.db/docs"
    stored = Index.build(LetterEncoder(), collection(9), address, model_path="letters")
    with pytest.raises(InterlinguaError, match="made with another model"):
        Index.open(address, LetterEncoder("abc"))
    with pytest.raises(InterlinguaError, match=r"already exists.*--overwrite"):
        Index.build(LetterEncoder(), collection(9), address)
    with pytest.raises(InterlinguaError, match="has a passage 'p1' already"):
        stored.add([Passage("p1", "x")])
    with pytest.raises(InterlinguaError, match="'q' occurs twice"):
        stored.add([Passage("q", "x"), Passage("q", "y")])
    with pytest.raises(InterlinguaError, match=r"passage 'long': its text has 70,000 bytes"):
        stored.add([Passage("long", "x" * 70_000)])
    with pytest.raises(InterlinguaError, match="k=0"):
        stored.search("x", k=0)
    with pytest.raises(InterlinguaError, match="mode 'lexcal' is unknown"):
        stored.search("x", mode="lexcal")
    assert len(stored) == collections(stored).rows() == 11
    info = stored.info()
    assert (info.passages, info.model, info.dim, info.similarity) == (11, "letters", 28, "cosine")
    stored.store.client.create_collection("mine", dimension=4)
    with pytest.raises(InterlinguaError, match="is a collection, but not an index"):
        Index.build(LetterEncoder(), collection(9), f"milvus:{tmp_path}/lite.db/mine", overwrite=True)
    stored.close()
    with pytest.raises(InterlinguaError, match="no such file"):
        Index.open(f"milvus:{tmp_path}/nowhere.db/docs")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("milvus://localhost/docs", Address("http://localhost:19530", "docs", False)),
        ("milvus://10.0.0.7:1953/d_2?fusion=rrf", Address("http://10.0.0.7:1953", "d_2", False, "rrf")),
        ("milvus:https://x.y.com/docs", Address("https://x.y.com:443", "docs", False)),
        ("milvus:some/where.db/docs", Address("some/where.db", "docs", True)),
        ("milvus:/abs/w.db/docs", Address("/abs/w.db", "docs", True)),
    ],
)
def test_addresses(text, expected):
    assert Address.parse(text) == expected
    assert Address.parse(f"{expected}?fusion={expected.fusion}") == expected  # what messages call it can be typed


@pytest.mark.parametrize(
    "text",
    [
        "milvus://localhost",
        "milvus://localhost/",
        "milvus://user:secret@localhost/docs",
        "milvus://localhost/a/b",
        "milvus://localhost/do cs",
        "milvus://localhost/1docs",
        "milvus:x.sqlite/docs",
        "milvus://localhost/docs?fusion=max",
        "milvus://localhost/docs?token=x",
        'milvus:x.db/do"cs',
        "http://localhost/docs",
        "milvus://localhost:port/docs",
    ],
)
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(InterlinguaError):
        Address.parse(text)


def test_passages_that_other_versions_have_cut_are_told_until_all_are_cut_again(tmp_path, monkeypatch, caplog):
    place = f"milvus:{tmp_path}/lite.db/docs"
    Index.build(LetterEncoder(), [Passage("1", "Luther", lang="en"), Passage("2", "star", lang="de")], place).close()
    monkeypatch.setattr(phonetic, "VERSION", "next")
    with closing(Index.open(place, LetterEncoder())) as index:
        assert "other versions of the analyzers" in caplog.text
        index.add([Passage("3", "Norman", lang="en"), Passage("4", "Luther", lang="fi")])
    caplog.clear()
    with closing(Index.open(place, LetterEncoder())) as index:
        assert "other versions of the analyzers" in caplog.text
        index.compact()
    caplog.clear()
    Index.open(place, LetterEncoder()).close()
    assert "other versions" not in caplog.text
