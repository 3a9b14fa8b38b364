from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.retrieval import Hit, Index, index_writer


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
    Passage("1", "a cat sat", lang="en"), Passage("2", "die katze saß", "Katze", "de"),
    Passage("3", "le chat était assis\u2028là", lang="fr"), Passage("4", "a cat sat", lang="en"),
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
    assert [again[i] for i in range(len(again))] == PASSAGES
    assert again.languages == {"de": 1, "en": 2, "fr": 1}
    assert again.about["dim"] == 28


def test_results_can_be_limited_to_languages(index):
    assert [hit.passage.id for hit in index.search("cat sat", langs=["de", "fr"])] == ["3", "2"]
    assert [hit.passage.id for hit in index.search("cat sat", k=100)] == ["4", "1", "3", "2"]
    with pytest.raises(InterlinguaError, match="no passage in language 'da'"):
        index.search("cat", langs=["da"])


def test_vectors_are_written_in_chunks(index, tmp_path, monkeypatch):
    monkeypatch.setattr(index_writer, "CHUNK", 3)
    assert np.array_equal(Index.build(LetterEncoder(), PASSAGES, tmp_path / "chunked").vectors, index.vectors)


def test_another_model_is_refused(index, tmp_path):
    with pytest.raises(InterlinguaError, match="made with another model"):
        Index.open(tmp_path / "idx", LetterEncoder("abcdefghijklmnopqrstuvwxyz"))
    dot = LetterEncoder()
    dot.similarity = "dot"
    with pytest.raises(InterlinguaError, match="similarity 'cosine', the model says 'dot'"):
        Index.open(tmp_path / "idx", dot)


def test_the_model_is_loaded_by_its_name_at_the_first_search(tmp_path, monkeypatch):
    Index.build(LetterEncoder(), PASSAGES, tmp_path / "idx", model_path="letters")
    monkeypatch.setattr(DualEncoder, "load", {"letters": LetterEncoder()}.__getitem__)
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


ARRAYS = ("vectors", "offsets", "languages", "ties")
CUTS = [(f"{name}.npy", kept) for name in ARRAYS for kept in (0, 40, -1)]


@pytest.mark.parametrize(("name", "kept"), [*CUTS, ("passages.jsonl", 0), ("passages.jsonl", -5)])
def test_a_file_that_was_cut_is_damaged(index, tmp_path, name, kept):
    file = tmp_path / "idx" / name
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(InterlinguaError, match=r"is damaged .*Build it again with --overwrite\.") as caught:
        Index.open(tmp_path / "idx")
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in ARRAYS), "passages.jsonl"])
@pytest.mark.parametrize("content", [None, b"\x80\x04K\x01." * 99, b"PK\x03\x04" + bytes(99)])
def test_a_file_that_is_missing_or_something_else_is_damaged(index, tmp_path, name, content):
    (tmp_path / "idx" / name).unlink()
    if content is not None:
        (tmp_path / "idx" / name).write_bytes(content)
    with pytest.raises(InterlinguaError, match="is damaged"):
        Index.open(tmp_path / "idx").search("cat")


def test_arrays_of_another_index_are_damage(index, tmp_path):
    Index.build(LetterEncoder(), PASSAGES[:3], tmp_path / "other")
    for name in ARRAYS:
        shutil.copytree(tmp_path / "idx", tmp_path / name)
        shutil.copy(tmp_path / "other" / f"{name}.npy", tmp_path / name)
        with pytest.raises(InterlinguaError, match=rf"{name}\.npy: is damaged"):
            Index.open(tmp_path / name)


def test_a_line_broken_in_the_middle_is_damage(index, tmp_path):
    file = tmp_path / "idx/passages.jsonl"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    with pytest.raises(InterlinguaError, match=r"passages\.jsonl: is damaged"):
        Index.open(tmp_path / "idx")[0]


@pytest.mark.parametrize("key", ["format", "model", "fingerprint", "similarity", "passages", "dim", "languages"])
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
    with pytest.raises(InterlinguaError, match="no such index folder"):
        Index.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("about", "message"), [('{"format": 99}', "format 99"), ("{", "is damaged"), ("[]", "is damaged")]
)
def test_an_unknown_format_is_refused(index, tmp_path, about, message):
    (tmp_path / "idx" / "index.json").write_text(about)
    with pytest.raises(InterlinguaError, match=message):
        Index.open(tmp_path / "idx")


def test_the_folder_holds_no_pickle(index, tmp_path):
    names = {path.name for path in (tmp_path / "idx").iterdir()}
    assert names == {"index.json", "passages.jsonl", "offsets.npy", "vectors.npy", "languages.npy", "ties.npy"}
    assert json.loads((tmp_path / "idx" / "index.json").read_text())["passages"] == 4
