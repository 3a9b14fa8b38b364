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
    with pytest.raises(InterlinguaError, match="Pass encoder="):
        Index.open(tmp_path / "idx").search("cat")


def test_a_failed_build_leaves_what_was_there(index, tmp_path):
    with pytest.raises(InterlinguaError, match="already exists"):
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
    ("about", "message"), [('{"format": 99}', "format 99"), ("{", "cannot be read"), ("[]", "cannot be read")]
)
def test_an_unknown_format_is_refused(index, tmp_path, about, message):
    (tmp_path / "idx" / "index.json").write_text(about)
    with pytest.raises(InterlinguaError, match=message):
        Index.open(tmp_path / "idx")


def test_the_folder_holds_no_pickle(index, tmp_path):
    names = {path.name for path in (tmp_path / "idx").iterdir()}
    assert names == {"index.json", "passages.jsonl", "offsets.npy", "vectors.npy", "languages.npy", "ties.npy"}
    assert json.loads((tmp_path / "idx" / "index.json").read_text())["passages"] == 4
