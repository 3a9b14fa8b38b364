"""Text to subword ids: prompts, titles, truncation; SentencePiece for large calls.

A tokenizer spends its time on normalisation and on the search for the most probable cut (Kudo 2018). Python normalises
a text as a whole, and SentencePiece searches with the tokenizer's pieces and their log probabilities.
"""

from __future__ import annotations

import json
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import chain, islice, repeat
from math import isfinite
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import NFKC, Lowercase, Normalizer, Replace, Strip
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import Metaspace

from interlingua.data.records import batched
from interlingua.errors import BadInput
from interlingua.models.inference.machine import threads
from interlingua.text.languages import nfkc

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def normalizer(lowercase: bool) -> Normalizer:
    """The normaliser of a tokenizer: NFKC, single spaces, and perhaps lower case."""
    steps: list[Normalizer] = [NFKC(), Replace(Regex(r"\s+"), " "), Strip()]
    return NormalizerSequence([*steps, Lowercase()] if lowercase else steps)


def normalised(text: str, lowercase: bool) -> str:
    """The same by Python, which takes a tenth of the time. It may differ in characters that only one of the two knows,
    and in control characters."""
    plain = " ".join(nfkc(text).split())
    return plain.replace("Σ", "σ").lower() if lowercase else plain  # Python would write the last one of a word as ς


NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Kinds of pieces, as SentencePiece numbers them."""
UNIGRAM = 1
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The pieces of kind `BYTE`."""


def model_file(pieces: Iterable[tuple[str, float, int]], unknown: int, bytes_: bool) -> bytes:
    """The bytes of a Unigram model of `pieces`: each its text, log probability and kind.

    The one at `unknown` stands for characters that have none; with `bytes_`, those of their UTF-8 do, which must all be
    pieces. Text is cut as it is, with "▁" for blanks. A protocol buffer of pieces (1), trainer (2) and normaliser (3).
    """
    parts = [
        _bytes(1, _bytes(1, piece.encode()) + b"\x15" + pack("<f", score) + _number(3, kind))
        for piece, score, kind in pieces
    ]
    parts.append(_bytes(2, _number(3, UNIGRAM) + _number(35, bytes_) + _number(40, unknown)))
    parts.append(_bytes(3, _number(3, False) + _number(4, False) + _number(5, True)))
    return b"".join(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


@cache
def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first, the highest bit set on all but the last."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes(groups + bytes([value]))


MANY = 400_000
"""Characters of a call from which on SentencePiece cuts. To make it takes a third of a second, which it saves with the
first two million characters; fewer than these are cut by the tokenizer."""
TOGETHER = 256  # texts that a thread cuts at a time
TAKEN = re.compile(r"(?: ?[^ ]+| ){1,16}")
"""Words that are cut together."""
SHORT, LONGEST = 64, 256
"""Characters from which on such words are taken apart where no piece can go on, and the most there may be."""
ADDED = 64  # the most added tokens, as each is looked for in each text
MARK = "▁"


class SentencePieces:
    """The ids of texts, without special tokens around them: those that the tokenizer gives.

    SentencePiece adds up float32 numbers, the tokenizer float64. So it is given a few words at a time, that rounding
    stays small. Whatever the tokenizer may treat in another way is left to it, and so are most texts in which cuts are
    equally probable since they repeat something (`.` and `...`, or `...` and `.`). Where one is not noticed
    (`hahahahaha`), the ids may come in another order. Make one with `of`. Safe to use from several threads.
    """

    def __init__(self, tokenizer: Tokenizer, lowercase: bool | None) -> None:
        """`lowercase`: which of our own normalisers the tokenizer has; None: another."""
        self._tokenizer, self._lowercase = tokenizer, lowercase
        self._alike = np.full(sys.maxunicode + 1, -1, dtype=np.int8)  # of each character, −1 until it is first met
        self._size = tokenizer.get_vocab_size()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SentencePieces | None:
        """One for `tokenizer` if that is a Unigram model that cuts at spaces before all else; None otherwise."""
        first, own = tokenizer.pre_tokenizer, tokenizer.normalizer
        if not (
            isinstance(tokenizer.model, Unigram)
            and isinstance(first, Metaspace)
            and first.split
            and first.prepend_scheme == "always"
            and first.replacement == MARK
            and len(tokenizer.get_added_tokens_decoder()) <= ADDED
        ):
            return None
        return cls(tokenizer, next((lower for lower in (True, False) if repr(own) == repr(normalizer(lower))), None))

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        if sum(map(len, texts)) < MANY or self._made is None or self._tokenizer.get_vocab_size() != self._size:
            return self._by_tokenizer(texts)  # a tokenizer of another size was given more tokens
        model = self._made
        batches = [texts[start : start + TOGETHER] for start in range(0, len(texts), TOGETHER)]
        if (workers := min(threads(), len(batches))) == 1:
            return self._cut(texts, model)
        with ThreadPoolExecutor(workers) as pool:
            return list(chain.from_iterable(pool.map(self._cut, batches, repeat(model))))

    def _cut(self, texts: Sequence[str], model: _Made) -> list[list[int]]:
        parts = list(map(self._parts, texts, self._are_alike(texts), repeat(model)))
        part_ids = iter(model.cutter.encode(list(chain.from_iterable(parts)), num_threads=1))
        cuts = [list(chain.from_iterable(islice(part_ids, len(text_parts)))) for text_parts in parts]
        remaining = [number for number, text_parts in enumerate(parts) if not text_parts] + _tied(cuts, model.units)
        for number, ids in zip(remaining, self._by_tokenizer([texts[number] for number in remaining]), strict=True):
            cuts[number] = ids
        return cuts

    def _by_tokenizer(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _parts(self, text: str, alike: bool, model: _Made) -> list[str]:
        """The input of SentencePiece for a text, part by part; nothing if SentencePiece would treat the text otherwise
        than the tokenizer does."""
        if not alike:
            return []
        normal = self._by_own(text) if self._lowercase is None else normalised(text, self._lowercase)
        if not normal or any(special in text or special in normal for special in model.special):
            return []
        parts: list[str] = TAKEN.findall(normal if normal.startswith(" ") else " " + normal)
        if max(map(len, parts)) <= LONGEST:
            return parts
        parts = [part for words in parts for part in model.apart(words)]
        return parts if max(map(len, parts)) <= LONGEST else []

    def _are_alike(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text holds nothing that `normalised` may treat otherwise than the tokenizer."""
        if self._lowercase is None:
            return [True] * len(texts)
        characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        for code in np.unique(characters[self._alike[characters] < 0]).tolist():
            self._alike[code] = self._is_alike(chr(code))
        alike = np.ones(len(texts), dtype=bool)
        alike[_holders(np.flatnonzero(self._alike[characters] == 0), texts)] = False
        return list(alike.tolist())

    def _is_alike(self, character: str) -> bool:
        """Whether the tokenizer normalises a character as `normalised` does, wherever it stands.

        One that does so once does it always, but for marks, which join the letter before them: of these only the ones
        of Unicode 3.2, which all versions know and which none may join in another way.
        """
        kind, sample = unicodedata.category(character), f"a{character}b"
        if kind.startswith("M"):
            kind = unicodedata.ucd_3_2_0.category(character)
        if kind in ("Cn", "Co", "Cs") or (kind == "Cc" and not character.isspace()):
            return False
        return normalised(sample, bool(self._lowercase)) == self._by_own(sample)

    def _by_own(self, text: str) -> str:
        own = self._tokenizer.normalizer
        return text if own is None else str(own.normalize_str(text))

    @cached_property
    def _made(self) -> _Made | None:
        """Make the cutter; None where SentencePiece would cut otherwise than the tokenizer, or not at all."""
        from sentencepiece import SentencePieceProcessor

        model = json.loads(self._tokenizer.to_str())["model"]
        pieces, unknown = model["vocab"], model["unk_id"]
        names = [name for name, _ in pieces]
        added = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        if unknown is None or not _is_usual(model, names) or any(MARK in token and token != MARK for token in added):
            return None
        kinds = [
            UNKNOWN
            if number == unknown
            else BYTE
            if model["byte_fallback"] and name in BYTES
            else CONTROL
            if name in added
            else NORMAL
            for number, name in enumerate(names)
        ]
        scores = [score for _, score in pieces]
        if min(scores) < min(score for score, kind in zip(scores, kinds, strict=True) if kind == NORMAL):
            return None  # what an unknown character costs depends on it
        special = {MARK, "<0x", names[unknown], *added, *map(self._by_own, added)}
        units = [name[: (name + name).find(name, 1)] for name in names]
        numbers = {unit: place for place, unit in enumerate(dict.fromkeys(units))}
        pairs = {name[at : at + 2] for name in names for at in range(len(name) - 1)}
        file = model_file(zip(names, scores, kinds, strict=True), unknown, model["byte_fallback"])
        return _Made(
            SentencePieceProcessor(model_proto=file),
            np.array([numbers[unit] for unit in units]),
            frozenset(names),
            frozenset(pairs),
            frozenset(special),
        )


class _Made(NamedTuple):
    cutter: Any  # SentencePiece's processor
    units: NDArray[np.int64]  # of each piece, a number for what it repeats; itself, if it is not as `...` or `lala`
    names: frozenset[str]
    pairs: frozenset[str]  # of neighbouring characters in a piece
    special: frozenset[str]  # what only the tokenizer may find in a text

    def apart(self, text: str) -> list[str]:
        """`text` in parts of `SHORT` characters or a little more: between two characters that no piece has side by
        side there is a cut, if the first is no unknown one, which could be one with the next."""
        parts, start = [], 0
        for at in range(1, len(text)):
            if at - start >= SHORT and text[at - 1 : at + 1] not in self.pairs and text[at - 1] in self.names:
                parts.append(text[start:at])
                start = at
        return [*parts, text[start:]]


def _is_usual(model: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether a Unigram model cuts in the one best way, and is one that SentencePiece can be told."""
    drawn = model.get("alpha") is not None or model.get("nbest_size") is not None  # a cut is drawn at random
    vocabulary = set(names)
    return (
        not drawn
        and len(vocabulary) == len(names)
        and MARK in vocabulary
        and "" not in vocabulary
        and not any(MARK in name[1:] or "\0" in name for name in names)
        and (not model["byte_fallback"] or vocabulary.issuperset(BYTES))
        and all(score is not None and isfinite(score) for _, score in model["vocab"])
    )


def _tied(cuts: Sequence[Sequence[int]], units: NDArray[np.int64]) -> list[int]:
    """Find the texts with neighbouring pieces that spell the same the other way round. Three and more may do so, too:
    that is rare, and not looked for."""
    ids = np.fromiter(chain.from_iterable(cuts), np.int64)
    piece_units = units[ids]
    return list(_holders(np.flatnonzero((piece_units[1:] == piece_units[:-1]) & (ids[1:] != ids[:-1])), cuts).tolist())


def _holders(places: NDArray[np.int64], sequences: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
    """In which of `sequences`, laid end to end, the elements at `places` are: each number once."""
    ends = np.cumsum([len(sequence) for sequence in sequences])
    numbers: NDArray[np.int64] = np.unique(np.searchsorted(ends, places, side="right"))
    return numbers


Text = str | tuple[str, str]
"""A plain text, or a passage as `(title, text)`."""

PAIR = "pair"
DEFAULT_TEMPLATE = "{title} {text}"


def check_template(template: str) -> str:
    """`template` if it is "pair" or a format string of exactly {title} and {text}, else BadInput."""
    try:
        fields = [field for _, field, spec, conversion in string.Formatter().parse(template) if field is not None]
        plain = not any(spec or conversion for _, _, spec, conversion in string.Formatter().parse(template))
    except ValueError:
        fields, plain = [], False
    if template == PAIR or (sorted(fields) == ["text", "title"] and plain):
        return template
    raise BadInput(
        f"title template {template!r}: use '{PAIR}', or a text that holds {{title}} and {{text}} "
        f"once each, such as '{DEFAULT_TEMPLATE}'."
    )


def plain_text(text: Text, template: str = DEFAULT_TEMPLATE) -> str:
    """One string: `(title, text)` through the template, the text alone where the title is empty."""
    if isinstance(text, str):
        return text
    if not text[0]:
        return text[1]
    return (DEFAULT_TEMPLATE if template == PAIR else template).format(title=text[0], text=text[1])


@contextmanager
def _unicode() -> Iterator[None]:
    try:
        yield
    except (TypeError, UnicodeEncodeError) as error:  # strings they are all
        raise BadInput(
            "a text holds half a surrogate pair, so it is not valid Unicode. Was it read as UTF-8?"
        ) from error


class Subwords:
    """A fast tokenizer used without state: no padding, no truncation set on it, so that threads may share it.

    `special` adds the tokenizer's own template (`<s> A </s>`, for pairs `<s> A </s></s> B </s>`). Truncation keeps
    the closing special token and cuts from the end, which is the text: a title or question in front is kept.
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool) -> None:
        self._known: Tokenizer | None = tokenizer
        self._reset()
        self.special = special
        mask = tokenizer.encode("a", add_special_tokens=special).special_tokens_mask
        self._closing = next((count for count, flag in enumerate(reversed(mask)) if not flag), 0)
        self._overhead = sum(mask)
        self._pieces = None if special else SentencePieces.of(tokenizer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer itself."""
        if self._known is None:
            self._known = self._load()
        return self._known

    def _load(self) -> Tokenizer:
        raise NotImplementedError  # of a kind that is made without one

    def __call__(
        self,
        texts: Sequence[Text],
        *,
        prompt: str = "",
        template: str = DEFAULT_TEMPLATE,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Token ids of each text, `prompt` in front, at most `max_length` long with special tokens.

        Raises BadInput for anything that is neither a string nor a pair of strings.
        """
        if max_length is not None and max_length <= self._overhead:
            raise BadInput(f"max_length {max_length}: must be larger than the {self._overhead} special tokens.")
        self._reset()
        inputs = [self._input(number, text, prompt, template) for number, text in enumerate(texts)]
        with _unicode():
            return [self._cut(ids, max_length) for ids in self._ids(inputs)]

    def spans(self, text: str) -> list[tuple[int, tuple[int, int]]]:
        """The ids of a text, without special tokens, each with the characters that it stands for."""
        self._reset()
        with _unicode():
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return list(zip(encoding.ids, encoding.offsets, strict=True))

    def _ids(self, inputs: Sequence[str | tuple[str, str]]) -> list[list[int]]:
        if self._pieces is not None:  # not special, so all of them are strings
            return self._pieces([text for text in inputs if isinstance(text, str)])
        encodings = self.tokenizer.encode_batch_fast(inputs, add_special_tokens=self.special)
        return [encoding.ids for encoding in encodings]

    def _reset(self) -> None:
        # A call of the transformers tokenizer that wraps this one leaves its truncation and padding behind.
        tokenizer = self._known
        if tokenizer is not None and tokenizer.truncation is not None:
            tokenizer.no_truncation()
        if tokenizer is not None and tokenizer.padding is not None:
            tokenizer.no_padding()

    def _input(self, number: int, text: Text, prompt: str, template: str) -> str | tuple[str, str]:
        if isinstance(text, str):
            return prompt + text
        if not (isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text)):
            raise BadInput(
                f"text {number}: {str(text)[:60]!r} is {type(text).__name__}. "
                "Give a string or a (title, text) pair of strings."
            )
        if template == PAIR and text[0] and self.special:
            return prompt + text[0], text[1]
        return prompt + plain_text((text[0], text[1]), template)

    def _cut(self, ids: list[int], max_length: int | None) -> list[int]:
        if max_length is None or len(ids) <= max_length:
            return ids
        return ids[: max_length - self._closing] + ids[len(ids) - self._closing :]


def token_counts(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[int]:
    """Count the token ids in `texts`, whole and without special tokens."""
    whole = Tokenizer.from_str(tokenizer.to_str())
    whole.no_truncation()
    whole.no_padding()
    counts: Counter[int] = Counter()
    for batch in batched(texts, 10_000):
        for encoding in whole.encode_batch_fast(batch, add_special_tokens=False):
            counts.update(encoding.ids)
    return counts


def punctuation(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """The tokens that are punctuation alone (Unicode's, and ASCII's symbols as ColBERT has them), whether they begin a
    word or not. A byte-level vocabulary shows only ASCII."""
    texts = {token: token.lstrip("▁Ġ") for token in tokenizer.get_vocab()}
    return tuple(sorted(token for token, text in texts.items() if text and all(map(_is_mark, text))))


def _is_mark(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
