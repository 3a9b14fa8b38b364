from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, InterlinguaError, NotFound, Stale
from interlingua.index import Hit, Index
from interlingua.index import metadata as index_encoder
from interlingua.index import metadata as index_questions
from interlingua.index import store as index_store
from interlingua.index.local import search as local_search
from interlingua.index.local import store
from interlingua.index.local.table import PassageTable, newest_version


class LetterEncoder:
    """Counts of letters: a text is near texts with the same letters."""

    similarity = "cosine"

    def __init__(self, letters="abcdefghijklmnopqrstuvwxyzéß"):
        self.letters = letters

    def encode_query(self, sentences, **options):
        return np.array([[text.count(letter) + 0.01 for letter in self.letters] for text in sentences])

    def encode_document(self, sentences, **options):
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])


PASSAGES = [
    Passage("1", "a cat sat", lang="en"),
    Passage("2", "die katze saß", "Katze", "de"),
    Passage("3", "le chat était assis\u2028là", lang="fr"),
    Passage("4", "a cat sat", lang="en"),
]


@pytest.fixture
def index(tmp_path):
    return Index.build(LetterEncoder(), iter(PASSAGES), tmp_path / "idx")


def test_a_folder_that_was_moved_gives_the_same_hits(index, tmp_path):
    hits = index.search("cat sat", k=3)
    assert [hit.passage.id for hit in hits] == ["4", "1", "3"]  # a tie: docid descending
    assert isinstance(hits[0], Hit)
    shutil.move(tmp_path / "idx", tmp_path / "elsewhere")
    again = Index.open(tmp_path / "elsewhere", LetterEncoder())
    assert again.search("cat sat", k=3) == hits
    assert [again.passage(str(i)) for i in range(1, 5)] == PASSAGES
    assert again.languages == {"de": 1, "en": 2, "fr": 1}
    assert again.info().dim == 28
    with pytest.raises(InterlinguaError, match="has no passage '5'"):
        again.passage("5")


def test_results_can_be_limited_to_languages(index):
    assert [hit.passage.id for hit in index.search("cat sat", langs=["de", "fr"])] == ["3", "2"]
    assert [hit.passage.id for hit in index.search("cat sat", k=100)] == ["4", "1", "3", "2"]
    with pytest.raises(InterlinguaError, match="no passage in language 'da'"):
        index.search("cat", langs=["da"])


def test_an_unknown_language_is_not_listed_as_an_empty_name(tmp_path):
    index = Index.build(LetterEncoder(), [*PASSAGES, Passage("5", "12 %")], tmp_path / "idx")
    with pytest.raises(InterlinguaError) as error:
        index.search("cat", langs=["zu"])
    assert str(error.value).endswith(
        "has no passage in language 'zu'. Known: de, en, fr. Of 1 passages the language is unknown."
    )


def test_passages_are_encoded_in_chunks(index, tmp_path, monkeypatch):
    monkeypatch.setattr(index_store, "CHUNK", 3)
    again = Index.build(LetterEncoder(), PASSAGES, tmp_path / "chunked")
    assert again.search("cat sat", lang="en") == index.search("cat sat", lang="en")


def test_parts_are_the_scores_of_each_search(index):
    [hit] = index.search("sat", 1, lang="en")
    dense, lexical = (index.search("sat", 1, mode=mode, lang="en")[0] for mode in ("dense", "lexical"))
    assert hit.parts == {"dense": dense.score, "lexical": lexical.score}
    assert (dense.parts, lexical.parts) == ({"dense": dense.score}, {"lexical": lexical.score})
    assert hit.parts["lexical"] < hit.score < 1.0  # more than its share of words, since it is the nearest too


def test_lexical_search_needs_no_model(index, tmp_path):
    assert Index.open(tmp_path / "idx").search("katze", mode="lexical")[0].passage.id == "2"


def test_the_language_of_a_question_is_detected(index, monkeypatch):
    asked = []
    monkeypatch.setattr(index_questions, "detect_language", lambda text: asked.append(text) or "de")
    found = index.search_many(["katzen", "katzen", "katzen"], mode="lexical", lang=[None, "de", ""])
    assert asked == ["katzen", "katzen"]
    assert found[0] == found[1] == found[2] != []


def test_a_reranker_orders_what_was_found(index, tiny_static):
    class Backwards(LetterEncoder):
        def encode_query(self, sentences, **options):
            return -super().encode_query(sentences)

        def encode_document(self, sentences, **options):
            return -self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])

    for mode in ("dense", "hybrid"):
        first, again = (
            index.search("cat sat", 4, mode=mode, reranker=model, lang="en") for model in (None, Backwards())
        )
        assert sorted(hit.passage.id for hit in first) == sorted(hit.passage.id for hit in again)
        assert again[-1].passage.id == "1"  # of the two best, which tie, the second
        assert all(hit.score == hit.parts["reranker"] == pytest.approx(-hit.parts["dense"]) for hit in again)


def test_a_reranker_reads_the_first_hundred_however_many_are_wanted(tiny_static, tmp_path):
    read = []

    class Counted(LetterEncoder):
        def encode_document(self, sentences, **options):
            read.extend(sentences)
            return super().encode_document(sentences, **options)

    passages = [Passage(f"{n}", f"a book {n}", "", "en", {"kind": f"{n % 9}"}) for n in range(150)]
    index = Index.build(tiny_static(), passages, tmp_path / "many")
    for options in ({}, {"group_by": "kind"}, {"distinct": True}):
        for mode in ("dense", "lexical", "hybrid"):
            read.clear()
            assert len(index.search("a book", 120, mode=mode, reranker=Counted(), lang="en", **options)) <= 100
            assert len(read) == 100


def test_another_model_is_refused(index, tmp_path):
    with pytest.raises(InterlinguaError, match="made with another model"):
        Index.open(tmp_path / "idx", LetterEncoder("abcdefghijklmnopqrstuvwxyz"))
    dot = LetterEncoder()
    dot.similarity = "dot"
    with pytest.raises(InterlinguaError, match="similarity 'cosine', the model says 'dot'"):
        Index.open(tmp_path / "idx", dot)


def test_the_model_is_loaded_by_its_name_at_the_first_search(tmp_path, monkeypatch):
    Index.build(LetterEncoder(), PASSAGES, tmp_path / "idx", model_path="letters")
    monkeypatch.setattr(index_encoder, "load_to_encode", lambda name, _: {"letters": LetterEncoder()}[name])
    assert Index.open(tmp_path / "idx").search("cat sat", k=1)[0].passage.id == "4"


def test_without_a_model_the_error_says_what_to_pass(index, tmp_path):
    with pytest.raises(InterlinguaError, match=r"--model .*pass encoder="):
        Index.open(tmp_path / "idx").search("cat")


def test_a_model_that_has_gone_is_asked_for(tmp_path):
    (tmp_path / "model").mkdir()
    Index.build(LetterEncoder(), PASSAGES, tmp_path / "idx", model_path=tmp_path / "model")
    (tmp_path / "model").rmdir()
    with pytest.raises(InterlinguaError, match=r"not there any more\. Say where it is with --model"):
        Index.open(tmp_path / "idx").search("cat")
    assert Index.open(tmp_path / "idx", LetterEncoder()).search("cat sat", k=1)[0].passage.id == "4"


def every_file(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


@pytest.mark.slow
def test_a_cache_that_was_cut_or_changed_is_made_again(index, tmp_path, capsys):
    expected = index.search("cat sat", lang="en")
    [cache] = (tmp_path / "idx/caches").iterdir()
    names = every_file(cache)
    assert {"cache.json", "vectors.npy", "passages.arrow", "terms.npy", "int8/packed.npy"} <= set(names)
    for name in names:
        for kept in (None, 0, -2):
            [cache] = (tmp_path / "idx/caches").iterdir()
            content = (cache / name).read_bytes()
            (cache / name).unlink()
            if kept is not None:
                (cache / name).write_bytes(content[:kept])
            capsys.readouterr()
            assert Index.open(tmp_path / "idx", LetterEncoder()).search("cat sat", lang="en") == expected, (name, kept)
            said = capsys.readouterr().err
            assert said.count("its cache is made again from its passages") == 1
            assert every_file(cache) == names


def test_without_caches_an_index_is_whole(index, tmp_path, capsys):
    expected = index.search("cat sat", lang="en")
    shutil.rmtree(tmp_path / "idx/caches")
    assert Index.open(tmp_path / "idx", LetterEncoder()).search("cat sat", lang="en") == expected
    assert "made again" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [None, 0, 40])
def test_a_table_that_was_cut_is_an_error(index, tmp_path, kept):
    for name in every_file(tmp_path / "idx/passages.lance"):
        shutil.copytree(tmp_path / "idx", tmp_path / "cut")
        shutil.rmtree(tmp_path / "cut/caches")
        file = tmp_path / "cut/passages.lance" / name
        content = file.read_bytes()
        file.unlink()
        if kept is not None:
            file.write_bytes(content[:kept])
        if file.suffix in (".lance", ".manifest"):
            with pytest.raises(InterlinguaError, match="table of passages cannot be read"):
                Index.open(tmp_path / "cut")
        else:  # hints and logs: not needed to read
            assert len(Index.open(tmp_path / "cut")) == 4
        shutil.rmtree(tmp_path / "cut")


def test_the_names_of_manifests_tell_the_newest_version(index, tmp_path):
    """A reader that has not opened the table goes by them; LanceDB itself must agree."""
    for change in (
        lambda: None,
        lambda: index.add([Passage("5", "new", lang="en")]),
        lambda: index.delete(["1"]),
        index.compact,
        lambda: index.replace([Passage("5", "other", lang="en")]),
    ):
        change()
        assert newest_version(index.path) == PassageTable.open(index.path).version
    versions = index.path / "passages.lance/_versions"
    last = PassageTable.open(index.path).version
    for manifest in versions.glob("*.manifest"):  # as older tables name them
        manifest.rename(versions / f"{(1 << 64) - 1 - int(manifest.stem)}.manifest")
    assert newest_version(index.path) == PassageTable.open(index.path).version == last
    (versions / f"{last + 1}.manifest").write_bytes((versions / f"{last}.manifest").read_bytes()[:-9])
    assert newest_version(index.path) is None  # cut: what can be read is for LanceDB to say
    (versions / f"{last + 1}.manifest").rename(versions / f"{(1 << 64) - 1 - last - 1}.manifest")
    assert newest_version(index.path) is None  # names of both kinds
    assert newest_version(tmp_path) is None


def test_a_reader_that_opened_no_table_sees_what_others_write(index, tmp_path):
    reader = Index.open(index.path, LetterEncoder())
    assert reader.search("dog", mode="lexical") == []
    index.add([Passage("5", "a dog", lang="en")])
    index.delete(["1"])
    assert [hit.passage.id for hit in reader.search("dog", mode="lexical")] == ["5"]
    assert reader.info() == index.info()
    late = Index.open(index.path, LetterEncoder())
    late_hits, hits = (one.search("a cat sat", lang="en") for one in (late, index))
    assert late_hits == hits
    index.compact()  # removes the version that the late reader has
    assert late.search("a cat sat", lang="en") == hits


@pytest.mark.parametrize("key", ["format", "model", "fingerprint", "similarity", "dim", "k1", "b", "made"])
def test_index_json_without_a_key_is_damaged(index, tmp_path, key):
    file = tmp_path / "idx/index.json"
    about = json.loads(file.read_text(encoding="utf-8"))
    del about[key]
    file.write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(InterlinguaError, match=rf"index\.json: is damaged .*'{key}'"):
        Index.open(tmp_path / "idx")


def test_a_failed_build_leaves_what_was_there(index, tmp_path):
    with pytest.raises(InterlinguaError, match=r"already exists.*--overwrite .*overwrite=True"):
        Index.build(LetterEncoder(), PASSAGES, tmp_path / "idx")
    with pytest.raises(InterlinguaError, match="'1' occurs twice"):
        Index.build(LetterEncoder(), [PASSAGES[0], PASSAGES[0]], tmp_path / "idx", overwrite=True)
    with pytest.raises(InterlinguaError, match="no passage"):
        Index.build(LetterEncoder(), [], tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["idx"]
    assert len(Index.open(tmp_path / "idx")) == 4
    assert len(Index.build(LetterEncoder(), PASSAGES[:2], tmp_path / "idx", overwrite=True)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["idx"]


def test_only_an_index_is_opened_or_overwritten(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(InterlinguaError, match="not an index"):
        Index.open(tmp_path / "photos")
    with pytest.raises(InterlinguaError, match="not overwritten"):
        Index.build(LetterEncoder(), PASSAGES, tmp_path / "photos", overwrite=True)
    with pytest.raises(InterlinguaError, match="photos: is not an index"):
        Index.build(LetterEncoder(), PASSAGES, tmp_path / "photos")
    with pytest.raises(InterlinguaError, match="no such index folder"):
        Index.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("about", "message"), [('{"format": 99}', "format 99"), ("{", "is damaged"), ("[]", "is damaged")]
)
def test_an_unknown_format_is_refused(index, tmp_path, about, message):
    (tmp_path / "idx" / "index.json").write_text(about)
    with pytest.raises(InterlinguaError, match=message):
        Index.open(tmp_path / "idx")


def test_parameters_of_bm25_are_kept(tmp_path):
    index = Index.build(LetterEncoder(), PASSAGES, tmp_path / "idx", k1=2.0, b=0.0)
    info = Index.open(tmp_path / "idx").info()
    assert (info.k1, info.b, info.passages, info.newer, info.deleted) == (2.0, 0.0, 4, 0, 0)
    assert info.analyzers["de"].startswith("de/mixed")
    other = Index.build(LetterEncoder(), PASSAGES, tmp_path / "other")
    assert index.search("katze", mode="lexical")[0].score != other.search("katze", mode="lexical")[0].score
    with pytest.raises(InterlinguaError, match="k1 must be"):
        Index.build(LetterEncoder(), PASSAGES, tmp_path / "bad", k1=-1.0)


def test_modes_and_numbers_are_checked(index):
    for options, message in [
        ({"mode": "fuzzy"}, "mode 'fuzzy' is unknown"),
        ({"k": 0}, "k=0"),
        ({"k": 2.0}, "k=2.0: must be a whole number"),
        ({"min_score": "high"}, "min_score='high': must be a number"),
        ({"min_score": float("nan")}, "min_score=nan: must be a number"),
        ({"k": float("nan")}, "k=nan"),
        ({"lang": ["en", "de"]}, "2 languages for 1 questions"),
    ]:
        with pytest.raises(InterlinguaError, match=message):
            index.search_many(["cat"], **options)
    assert index.search_many([]) == []
    assert index.search_many(text for text in ("cat", "cat sat")) == index.search_many(["cat", "cat sat"])
    assert index.search("cat", k=np.int64(2)) == index.search("cat", k=2)


def test_the_folder_of_an_index_that_is_gone_is_not_made_anew(tmp_path):
    with pytest.raises(NotFound, match="gone: is not there any more"):
        PassageTable.open(tmp_path / "gone")
    (tmp_path / "empty").mkdir()  # as where it goes between the look and the connection
    with pytest.raises(Damaged):
        PassageTable.open(tmp_path / "empty")
    assert not list(tmp_path.iterdir())


def test_what_is_no_question_id_or_passage_is_named(index, tmp_path):
    for text, kind in ((None, "NoneType"), (["cat"], "list")):
        with pytest.raises(BadInput, match=f"a question is a text, this is a {kind}"):
            index.search(text)
    for call in (index.passage, index.versions, lambda id: index.delete([id])):
        with pytest.raises(BadInput, match="3 is no id of a passage: an id is a text"):
            call(3)
    for call in (index.add, index.replace):
        with pytest.raises(BadInput, match="a dict is no passage"):
            call([{"id": "x", "text": "t"}])
        for passage in (
            Passage(7, "t"),
            Passage("x", None),
            Passage("x", "t", 5),
            Passage("x", "t", "", 5),
            Passage(7, "t", "", None),
        ):
            with pytest.raises(BadInput, match="its id, text, title and language must be strings, not "):
                call([passage])
        for metadata in (None, "source", {"source": 5}, {2: "source"}):
            with pytest.raises(BadInput, match="its metadata must be strings by name, not "):
                call([Passage("x", "t", metadata=metadata)])
    assert len(index) == 4
    with pytest.raises(BadInput, match="a dict is no passage"):
        Index.build(LetterEncoder(), [{"id": "x", "text": "t"}], tmp_path / "of-dicts")
    built = Index.build(LetterEncoder(), [Passage("1", "cat", lang=None)], tmp_path / "unknown")
    assert built.languages == {"": 1}


def test_one_passage_may_be_given_as_it_is_and_an_index_says_what_it_is(index):
    assert index.add(Passage("one", "a cat alone", lang="en")) == 1
    assert index.replace(Passage("one", "a dog alone", lang="en")) == 1
    assert index.passage("one").text == "a dog alone"
    assert repr(index) == f"<Index {index.path}: 5 passages by a model without a name>"


@pytest.fixture(params=["abcdefgh", "abcdefghi"], ids=["bits", "floats"])
def many(request, tmp_path):
    random = np.random.default_rng(0)
    texts = {"".join(random.choice(list(request.param), size=random.integers(3, 30))) for _ in range(600)}
    return Index.build(
        LetterEncoder(request.param),
        [Passage(text, text, lang="en" if "a" in text else "de", metadata={"end": text[-1]}) for text in sorted(texts)],
        tmp_path / "many",
    )


@pytest.fixture
def asked(monkeypatch):
    """How often Lance's index is asked."""
    calls, real = [], PassageTable.near
    monkeypatch.setattr(PassageTable, "near", lambda self, *args: calls.append(args) or real(self, *args))
    return calls


def test_approximate_search_finds_most_with_exact_scores(many, asked):
    questions = ["abc", "ddddddde", "ffffffggggghab"]
    exact = [many.search(text, 10, mode="dense", lang="en") for text in questions]
    filtered = many.search("abc", 10, ["de"], mode="dense", lang="en", where={"end": "c"})
    many.compact(approximate=True)
    opened = Index.open(many.path, many.encoder)
    for text, best in zip(questions, exact, strict=True):
        for index in (many, opened):
            found = index.search(text, 10, mode="dense", lang="en")
            assert len({hit.passage.id for hit in found} & {hit.passage.id for hit in best}) >= 8
            scores = {hit.passage.id: hit.score for hit in best}
            assert all(hit.score == scores.get(hit.passage.id, hit.score) for hit in found)
            assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert len(asked) == 6
    assert many.search("abc", 10, ["de"], mode="dense", lang="en", where={"end": "c"}) == filtered  # always exact
    many.compact(approximate=False)
    assert [many.search(text, 10, mode="dense", lang="en") for text in questions] == exact
    assert len(asked) == 6


@pytest.mark.slow
def test_a_writer_may_compact_before_a_reader_opens_the_approximate_index(many, monkeypatch):
    many.compact(approximate=True)
    reader = Index.open(many.path, many.encoder)
    many.add([Passage("first", "abcabc" * 4, lang="en")])
    real = store.dense_search_of

    def late(table, snapshot):
        monkeypatch.setattr(store, "dense_search_of", real)
        many.add([Passage("second", "abcabc" * 5, lang="en")])
        many.compact()
        return real(table, snapshot)

    monkeypatch.setattr(store, "dense_search_of", late)
    found = {hit.passage.id for hit in reader.search("abcabc", 20, mode="dense", lang="en")}
    assert {"first", "second"} <= found
    with pytest.raises(Stale, match="a writer has removed version 1 of its table"):
        PassageTable.open(many.path, 1)


@pytest.mark.slow
def test_approximate_search_sees_what_is_written(many, asked):
    many.compact(approximate=True)
    gone = many.search("abcabc", 1, mode="dense", lang="en")[0].passage.id
    many.delete([gone])
    many.add([Passage("new", "abcabc" * 5, lang="en")])
    found = [hit.passage.id for hit in many.search("abcabc", 20, mode="dense", lang="en")]
    assert found[0] == "new"
    assert gone not in found
    many.compact()
    assert many.search("abcabc", 1, mode="dense", lang="en")[0].passage.id == "new"
    assert len(asked) == 3


def test_a_cache_that_does_not_say_so_may_have_an_approximate_index(many, asked):
    many.compact(approximate=True)
    [file] = (many.path / "caches").glob("*/cache.json")
    about = json.loads(file.read_text(encoding="utf-8"))
    assert about["facts"].pop("approximate") is True
    file.write_text(json.dumps(about), encoding="utf-8")
    Index.open(many.path, many.encoder).search("abc", 1, mode="dense", lang="en")
    assert len(asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"langs": ["de"]}, {"where": {"end": "c"}}], ids=str)
def test_few_and_many_passages_are_searched_alike(many, monkeypatch, options):
    texts = ["abc", "ddddddde", "ffffffggggghab", "h"]

    def search(k):
        return many.search_many(texts, k, mode="dense", lang="en", **options)

    few = [search(k) for k in (1, 10, 1_000)]
    monkeypatch.setattr(local_search, "SMALL", 0)
    assert [search(k) for k in (1, 10, 1_000)] == few


def test_approximate_search_for_more_than_it_looks_into(many):
    many.compact(approximate=True)
    assert len(many.search("abcabc", len(many), mode="dense", lang="en")) == len(many)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_writer_during_an_approximate_search_takes_nothing_away(many, mode, monkeypatch):
    many.compact(approximate=True)
    writer = Index.open(many.path, LetterEncoder(many.encoder.letters))
    passages = [many.passage(hit.passage.id) for hit in many.search("abc", 600, mode="dense", lang="en")]
    wanted = [hit.passage.id for hit in many.search("abcabc", 10, mode="dense", lang="en")]
    real = LetterEncoder.encode_query

    def slowly(self, sentences, **options):
        if self is many.encoder and passages:
            changed = [dataclasses.replace(passage, title="b") for passage in passages]
            passages.clear()
            writer.replace(changed)
            writer.compact()
            many.refresh()  # as another thread may
        return real(self, sentences, **options)

    monkeypatch.setattr(LetterEncoder, "encode_query", slowly)
    found = many.search("abcabc", 10, mode=mode, lang="en")
    assert len(found) == 10
    if mode == "dense":
        assert len(set(wanted) & {hit.passage.id for hit in found}) >= 8


@pytest.mark.slow
def test_many_passages_get_an_approximate_index_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(local_search, "APPROXIMATE_FROM", 3)
    index = Index.build(LetterEncoder(), PASSAGES[:2], tmp_path / "idx")
    assert not PassageTable.open(index.path).approximate
    index.add(PASSAGES[2:])
    index.compact()
    assert PassageTable.open(index.path).approximate
    assert PassageTable.open(Index.build(LetterEncoder(), PASSAGES, tmp_path / "other").path).approximate
    assert [hit.passage.id for hit in index.search("die katze saß", 1, mode="dense", lang="de")] == ["2"]


def test_an_index_that_a_killed_build_set_aside_is_not_replaced_unasked(tmp_path):
    Index.build(LetterEncoder(), [Passage("1", "cat")], tmp_path / "idx").close()
    (tmp_path / "idx").rename(tmp_path / ".idx.building.old")
    with pytest.raises(BadInput, match="overwrite"):
        Index.build(LetterEncoder(), [Passage("2", "dog")], tmp_path / "idx")
    assert Index.open(tmp_path / "idx", LetterEncoder()).passage("1").text == "cat"
