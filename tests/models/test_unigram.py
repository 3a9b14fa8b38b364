"""The mapped Unigram tokenizer gives the ids of `tokenizers`."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from interlingua.models.inference import unigram
from interlingua.models.inference.unigram import MappedSubwords, Trie, keep
from interlingua.models.subwords import Subwords

TEXTS = [
    "Where was Alan Turing born?",
    "",
    " ",
    "  Missä   Alan\tTuring syntyi?\n",
    "Где родился Алан Тьюринг? アラン・チューリング 艾伦·图灵 \U0001f600\U0001f601 \U0001f600",
    "hahahahahaha ...... ▁▁ a▁b ﬁ e\u0301 a\u0000b",
    "Turing " * 40 + "\u4e00\u4e01\u4e02" * 10,
]


@pytest.fixture(scope="module")
def pair(tiny_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    tokenizer = tiny_tokenizer().backend_tokenizer
    tokenizer.save(str(folder / "tokenizer.json"))
    about = json.loads(json.dumps(keep(tokenizer, folder)))
    return folder, about, Subwords(tokenizer, special=True)


@pytest.mark.parametrize("few", [unigram.FEW, -1])
def test_ids_are_those_of_the_tokenizer_which_is_not_read(few, pair, monkeypatch):
    monkeypatch.setattr(unigram, "FEW", few)  # −1: the search is compiled
    if few < 0:
        pytest.importorskip("numba")
    folder, about, whole = pair
    subwords = MappedSubwords(folder, about)
    monkeypatch.setattr(unigram, "Tokenizer", None)
    for options in ({}, {"prompt": "query: "}, {"max_length": 7}):
        assert subwords(TEXTS, **options) == whole(TEXTS, **options)


def test_what_only_the_tokenizer_knows_is_left_to_it(pair, monkeypatch):
    folder, about, whole = pair
    for texts in (["a <mask> b"], [("Turing", "was born")]):
        assert MappedSubwords(folder, about)(texts, template="pair") == whole(texts, template="pair")
    monkeypatch.setattr(unigram, "FEW", -1)
    monkeypatch.setattr(unigram, "_compiled", lambda: None)
    subwords = MappedSubwords(folder, about)
    assert subwords(TEXTS) == whole(TEXTS)
    assert subwords.spans(TEXTS[0]) == whole.spans(TEXTS[0])


def test_the_tokenizer_that_was_asked_for_is_the_one_that_cuts(pair):
    subwords = MappedSubwords(*pair[:2])
    before = subwords(["Turing"])
    subwords.tokenizer.normalizer = None
    subwords.tokenizer.add_tokens(["Turing"])
    assert subwords(["Turing"]) != before


def test_a_trie_holds_every_piece_and_no_other():
    pieces = ["a", "ab", "abc", "b", "ca", "", "ab", "\U0001f600x", "z" * 40]
    trie = Trie.of([(piece, float(-number)) for number, piece in enumerate(pieces)])

    def walk(node, before):
        for child in range(trie.starts[node], trie.starts[node + 1]):
            text = before + chr(trie.characters[child])
            if trie.pieces[child] >= 0:
                yield text, int(trie.pieces[child])
            yield from walk(child, text)

    assert dict(walk(0, "")) == {piece: number for number, piece in enumerate(pieces) if piece}
    assert trie.scores.dtype == np.float64
    assert len(trie.starts) == len(trie.characters) + 1


def test_another_kind_of_tokenizer_is_left_to_the_library(tmp_path):
    assert keep(Tokenizer(WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]")), tmp_path) is None
