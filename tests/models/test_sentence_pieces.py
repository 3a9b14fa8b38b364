"""Texts that SentencePiece cuts have the ids that the tokenizer gives them."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from interlingua.data.collections import load_collection
from interlingua.errors import InterlinguaError
from interlingua.models import subwords as sentence_pieces
from interlingua.models.encoder import Encoder
from interlingua.models.subwords import SentencePieces, Subwords
from interlingua.training.backbones import train_tokenizer, unigram_tokenizer

# of many scripts: marks, capitals with other small letters, ligatures, white space, control characters, emoji, newer
# letters and marks than Unicode 3.2
STRANGE = [
    chr(code)
    for code in (
        *range(1, 0x250),
        *range(0x300, 0x370),
        0x37A,
        0x3A3,
        0x3C2,
        0x640,
        0x9CE,
        0xE33,
        0x102B,
        0x103A,
        0x1100,
        0x1161,
        0x11A8,
        0x1B06,
        0x1B35,
        *range(0x2000, 0x2070),
        0x2581,
        0x3000,
        0xFDFA,
        0xFE49,
        0xFEFF,
        0x1F600,
        0x11131,
        0xE0001,
    )
]
KINDS = {"plain": {}, "lower case": {"lowercase": True}, "bytes": {"lowercase": True, "byte_fallback": True}}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, sentences: list[str]) -> Tokenizer:
    return train_tokenizer(sentences, 700, **KINDS[request.param]).backend_tokenizer


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_pieces, "MANY", 0)


def whole(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def made(tokenizer: Tokenizer) -> SentencePieces:
    found = SentencePieces.of(tokenizer)
    assert found is not None
    return found


def count_left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the tokenizer has cut itself."""
    left: list[str] = []
    real = SentencePieces._by_tokenizer
    monkeypatch.setattr(SentencePieces, "_by_tokenizer", lambda self, texts: left.extend(texts) or real(self, texts))
    return left


@pytest.mark.slow
def test_every_text_has_the_ids_of_the_tokenizer(tokenizer: Tokenizer, sentences: list[str]) -> None:
    draw = random.Random(1)
    parts = [
        *STRANGE,
        *" " * 150,
        *["<s>", "</s>", "<mask>", "<0x41>", "▁", "Σ", "ΑΣ "] * 4,
        *(" ".join(sentences).split() * 4),
    ]
    texts = [*sentences, *("".join(draw.choices(parts, k=draw.randint(0, 40))) for _ in range(5_000))]
    pieces = made(tokenizer)
    assert pieces(texts) == whole(tokenizer, texts)
    assert [pieces([text])[0] for text in texts[:200]] == whole(tokenizer, texts[:200])


def test_ordinary_text_is_not_left_to_the_tokenizer(
    tokenizer: Tokenizer, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = count_left(monkeypatch)
    pieces = made(tokenizer)
    pieces([*sentences, "Ἡ ὁδός. ΟΔΟΣ, İzmir!", "ওঠা হঠাৎ", "จะทำอะไร", "ﬁne ½ Ⅷ", "two\nlines\tand so on"])
    assert left == []
    strange = ["\x00", "မြန်မာ", "<s>", "＜s＞", "a▁b", "<0x41>", ""]
    pieces(strange)
    assert left == strange


def test_equally_probable_cuts_are_the_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    units = ["a", "aa", "aaa", "aaaaaa", "la", "lala", "lalala", ".", "...", ".....", "b", "l"]
    tokenizer = unigram_tokenizer([(piece, -draw.uniform(2, 9)) for piece in ["▁", *units]]).backend_tokenizer
    texts = [unit * count for unit in ("a", "la", ".", "ab", "aab") for count in range(1, 60)]
    left = count_left(monkeypatch)
    assert made(tokenizer)(texts) == whole(tokenizer, texts)
    assert 0 < len(left) < len(texts)


def test_any_normalizer_will_do(tokenizer: Tokenizer, sentences: list[str]) -> None:
    texts = [*sentences, "  two  blanks ", " ", "", "É"]
    for other in (None, normalizers.NFD(), normalizers.Replace("e", " ▁"), normalizers.Prepend(" ")):
        changed = Tokenizer.from_str(tokenizer.to_str())
        if other is not None:
            changed.normalizer = other
        assert made(changed)(texts) == whole(changed, texts)


def test_few_characters_are_cut_by_the_tokenizer(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_pieces, "MANY", 10)
    left = count_left(monkeypatch)
    pieces = made(tokenizer)
    pieces(["four", "five5"])
    assert left == ["four", "five5"]
    pieces(["four", "sixsix"])
    assert left == ["four", "five5"]


def test_threads_and_copies_change_nothing(tokenizer: Tokenizer, sentences: list[str]) -> None:
    pieces = made(tokenizer)
    texts = (sentences * 600)[:600]
    assert pieces(texts) == whole(tokenizer, texts)
    assert copy.deepcopy(pieces)(texts) == whole(tokenizer, texts)


@pytest.mark.parametrize(
    "change",
    [
        pre_tokenizers.Metaspace(split=False),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        pre_tokenizers.Metaspace(replacement="_"),
        pre_tokenizers.Whitespace(),
    ],
    ids=["no split", "first", "other mark", "white space"],
)
def test_other_tokenizers_are_left_alone(tokenizer: Tokenizer, change: Any) -> None:
    other = Tokenizer.from_str(tokenizer.to_str())
    other.pre_tokenizer = change
    assert SentencePieces.of(other) is None
    text = "Ein  Text mit Wörtern"
    assert Subwords(other, special=False)([text]) == whole(other, [text])


def test_other_models_are_left_alone() -> None:
    other = Tokenizer(models.WordLevel({"▁a": 0, "<unk>": 1}, unk_token="<unk>"))
    other.pre_tokenizer = pre_tokenizers.Metaspace()
    assert SentencePieces.of(other) is None


@pytest.mark.slow
def test_long_texts_are_cut_as_exactly_as_short_ones() -> None:
    tokenizer = Encoder.load("default").backbone.subwords.tokenizer
    draw = random.Random(3)
    passages = [
        one.text
        for lang in ("en", "fi", "ru", "te", "ja", "th", "ar", "ko")
        for one in load_collection(f"encyclopedia:{lang}").passages
    ]
    words = " ".join(passages).split()
    texts = [" ".join(draw.choices(words, k=1_500)) for _ in range(40)]
    texts += ["".join(draw.choices([word for word in words if word > "๛"], k=150)) for _ in range(40)]
    pieces = made(tokenizer)
    assert pieces(passages) == whole(tokenizer, passages)
    assert pieces(texts) == whole(tokenizer, texts)


def test_words_without_an_end_are_left_to_the_tokenizer(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    left = count_left(monkeypatch)
    texts = ["☃" * (sentence_pieces.LONGEST + 1), "☃ ☃ " * sentence_pieces.LONGEST]
    assert made(tokenizer)(texts) == whole(tokenizer, texts)
    assert left == texts[:1]


UNUSUAL = {
    "across words": [("▁", -1.0), ("a", -2.0), ("a▁b", -1.0), ("b", -3.0)],
    "two marks": [("▁", -1.0), ("a", -2.0), ("▁▁", -1.0), ("b", -3.0)],
    "twice": [("▁", -1.0), ("a", -2.0), ("a", -1.0), ("b", -3.0)],
    "no mark": [("a", -2.0), ("▁b", -1.0), ("b", -3.0)],
    "zero": [("▁", -1.0), ("a", -2.0), ("a\0", -1.0), ("b", -3.0)],
    "infinite": [("▁", -1.0), ("a", -2.0), ("b", float("-inf"))],
}


@pytest.mark.parametrize("pieces", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_pieces_are_left_to_the_tokenizer(
    pieces: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *pieces], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    left = count_left(monkeypatch)
    texts = ["a b", "a  b", "ab ba", "☃ ☃"]
    assert made(tokenizer)(texts) == whole(tokenizer, texts)
    assert left == texts


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({}, [("▁", -1.0), ("a", -2.0)]),  # no unknown token
        # what is unknown costs by the lowest score
        ({"unk_id": 0}, [("low", -100.0), ("▁", -1.0), ("xa", -20.0), ("a", -20.0), ("aaaaa", -1.0)]),
        ({"unk_id": 0, "byte_fallback": True}, [("<unk>", 0.0), ("<0x41>", 0.0), ("▁", -1.0), ("a", -2.0)]),
    ],
    ids=["no unknown", "low", "not all bytes"],
)
def test_unusual_models_are_left_to_the_tokenizer(options: dict[str, Any], pieces: list[tuple[str, float]]) -> None:
    tokenizer = Tokenizer(models.Unigram(pieces, **options))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = ["abc", "xaaaaa", "Å a", "A", "a<unk>a", "low"] if options else ["aa", "a a"]
    assert made(tokenizer)(texts) == whole(tokenizer, texts)


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("of the", normalized=False),
        AddedToken("the", normalized=True),
        AddedToken("the", single_word=True, normalized=False),
        AddedToken("THE-9", normalized=True),
    ],
    ids=["two words", "normalized", "single word", "not in normal form"],
)
def test_added_tokens_are_found_as_before(tokenizer: Tokenizer, token: AddedToken) -> None:
    other = Tokenizer.from_str(tokenizer.to_str())
    other.add_tokens([token])
    texts = ["one of the others", "of  the", "THE other", "the", "bathe", "the-9", "THE-9."]
    assert made(other)(texts) == whole(other, texts)
    pieces = made(other)
    pieces(texts)  # now it is made
    other.add_tokens(["others"])
    assert pieces(texts) == whole(other, texts)


def test_half_a_surrogate_pair_is_an_error(tokenizer: Tokenizer) -> None:
    other = Tokenizer.from_str(tokenizer.to_str())
    other.normalizer = normalizers.NFD()
    for one in (tokenizer, other):
        subwords = Subwords(one, special=False)
        with pytest.raises(InterlinguaError, match="not valid Unicode"):
            subwords(["good", "bad \ud800"])
        with pytest.raises(InterlinguaError, match="not valid Unicode"):
            subwords.spans("bad \ud800")


def test_an_added_token_that_begins_a_word_leaves_all_to_the_tokenizer(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁a", -2.0), ("a", -3.0)], unk_id=0))
    other.pre_tokenizer = pre_tokenizers.Metaspace()
    other.add_tokens([AddedToken("▁a", normalized=False)])
    left = count_left(monkeypatch)
    assert made(other)(["a a", "aa"]) == whole(other, ["a a", "aa"])
    assert left == ["a a", "aa"]


@pytest.mark.slow
def test_repeated_words_have_the_same_subwords_in_any_order() -> None:
    tokenizer = Encoder.load("default").backbone.subwords.tokenizer
    units = ("ha", "an", "la", "たび", "しゃん", "นิต", "jari", "alas")
    texts = ["x" + unit * count for unit in units for count in range(2, 30)]
    assert list(map(sorted, made(tokenizer)(texts))) == list(map(sorted, whole(tokenizer, texts)))
