"""Words looked up one by one have the ids that the tokenizer gives to the whole text."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from interlingua.models import word_cache
from interlingua.models.subwords import Subwords
from interlingua.models.tokenizer import train_tokenizer
from interlingua.models.word_cache import WordCache

STRANGE = [chr(code) for code in (*range(1, 0x180), 0x301, 0x308, 0x37A, 0x3C2, 0x640, 0x200B, 0x200D, 0x2028, 0x2581,
                                  0x3000, 0xFDFA, 0xFE49, 0xFEFF, 0xAD, 0x1F600, 0xE0001)]


@pytest.fixture(scope="module")
def tokenizer(sentences: list[str]) -> Tokenizer:
    return train_tokenizer(sentences, 600, lowercase=True, byte_fallback=True).backend_tokenizer


def whole(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def test_every_text_has_the_ids_of_the_tokenizer(tokenizer: Tokenizer, sentences: list[str]) -> None:
    draw = random.Random(1)
    parts = [*STRANGE, *" " * 150, *["<s>", "</s>", "<mask>", "▁"] * 4, *(" ".join(sentences).split() * 2)]
    texts = [*sentences, *("".join(draw.choices(parts, k=draw.randint(0, 40))) for _ in range(5_000))]
    cache = WordCache(tokenizer)
    assert cache(texts) == whole(tokenizer, texts)
    assert cache(texts) == whole(tokenizer, texts)  # from memory
    assert [ids for text in texts[:200] for ids in cache([text])] == whole(tokenizer, texts[:200])


@pytest.mark.parametrize("most", [0, 3])
def test_memory_that_is_full_changes_nothing(
        tokenizer: Tokenizer, sentences: list[str], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MOST", most)
    cache = WordCache(tokenizer)
    for text in sentences * 2:
        assert cache([text]) == whole(tokenizer, [text])


def test_a_new_word_is_shown_to_the_tokenizer_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    real = WordCache._ids
    monkeypatch.setattr(WordCache, "_ids", lambda self, texts: shown.extend(texts) or real(self, texts))
    cache = WordCache(tokenizer)
    cache(["one two two", "two one"])
    cache(["two three one"])
    assert sorted(word for text in shown for word in text.split()) == ["one", "three", "two"]


@pytest.mark.parametrize("change", [
    pre_tokenizers.Metaspace(split=False), pre_tokenizers.Metaspace(prepend_scheme="first"),
    pre_tokenizers.Whitespace()], ids=["no split", "first", "whitespace"])
def test_other_tokenizers_are_left_alone(tokenizer: Tokenizer, change: Any) -> None:
    other = Tokenizer.from_str(tokenizer.to_str())
    other.pre_tokenizer = change
    assert WordCache.of(other) is None
    assert WordCache.of(tokenizer) is not None
    text = "Ein  Text mit Wörtern"
    assert Subwords(other, special=False)([text]) == whole(other, [text])


@pytest.mark.parametrize("token", [AddedToken("of the", normalized=False), AddedToken("the", normalized=True),
                                   AddedToken("the", single_word=True, normalized=False)],
                         ids=["two words", "normalized", "single word"])
def test_tokens_that_are_found_across_words_too(tokenizer: Tokenizer, token: AddedToken) -> None:
    other = Tokenizer.from_str(tokenizer.to_str())
    other.add_tokens([token])
    assert WordCache.of(other) is None


def test_a_normalizer_that_looks_across_words_is_noticed(tokenizer: Tokenizer) -> None:
    other = Tokenizer.from_str(tokenizer.to_str())
    other.normalizer = normalizers.Sequence([normalizers.Replace(" ½", "½"), tokenizer.normalizer])
    assert WordCache.of(other) is None
