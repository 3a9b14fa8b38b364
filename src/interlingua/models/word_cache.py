"""Subword ids looked up word by word, for tokenizers that cut at spaces first: text repeats its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Metaspace

MOST = 500_000
"""Words that are remembered; beyond that, remembering begins anew."""
LONGEST = 24
"""Characters of a word that is worth remembering: longer ones are sentences in scripts without spaces."""
TOGETHER = 256  # new words that are shown to the tokenizer as one text, which is quicker than one by one
PROBES = ("Ärger a  B\tc\n d\u00a0e\u3000f ", " \u0301x ´y ﷺ ½ a\u0301 ΣΑΣ \u200d", "<s> a<mask> b </s>", "",
          "\n \u2003")


class WordCache:
    """The ids of a text are those of its words, one after another. Exactly those of the tokenizer: see `of`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._mark: str = tokenizer.pre_tokenizer.replacement
        self._known: dict[str, bytes] = {}  # int32 numbers, which join quickly
        # whether a subword is the beginning of a word, −1 until it is first met
        self._begins = np.full(tokenizer.get_vocab_size(), -1, dtype=np.int8)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> WordCache | None:
        """A cache for `tokenizer` if it cuts at spaces before all else, treats each word alike wherever it stands, and
        shows so with texts where others would not; else None."""
        first = tokenizer.pre_tokenizer
        if not (isinstance(first, Metaspace) and first.split and first.prepend_scheme == "always"):
            return None
        added = tokenizer.get_added_tokens_decoder().values()
        if any(token.normalized or token.single_word or " " in token.content for token in added):
            return None
        whole = [encoding.ids for encoding in tokenizer.encode_batch(list(PROBES), add_special_tokens=False)]
        made = cls(tokenizer)
        return made if made(PROBES) == whole else None

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens around it."""
        # a space mark in the text itself is no beginning of a word: such a text is taken whole
        words = [[text] if self._mark in text else text.split(" ") for text in texts]
        joined = [self._joined(held, self._known) for held in words]
        missed = [number for number, ids in enumerate(joined) if ids is None]
        if missed:
            found = self._found({word for number in missed for word in words[number]})
            for number in missed:
                joined[number] = self._joined(words[number], found)
        return [np.frombuffer(ids or b"", np.int32).tolist() for ids in joined]

    @staticmethod
    def _joined(words: list[str], known: dict[str, bytes]) -> bytes | None:
        try:
            return b"".join(map(known.__getitem__, words))
        except KeyError:
            return None

    def _found(self, words: set[str]) -> dict[str, bytes]:
        """The ids of each word, which are remembered from now on."""
        known = self._known  # the same one until the end, whatever another thread does
        found = {word: known[word] for word in words if word in known}
        fresh = {word: np.array(ids, np.int32).tobytes() for word, ids in self._encoded(list(words - found.keys()))}
        if len(known) + len(fresh) > MOST:
            self._known = known = {}
        known.update((word, ids) for word, ids in fresh.items() if len(word) <= LONGEST)
        return found | fresh

    def _encoded(self, words: list[str]) -> Iterator[tuple[str, list[int]]]:
        """Each word with its ids. Words that surely are one word to the tokenizer too are encoded together."""
        simple = [word for word in words if self._is_simple(word)]
        parts = [simple[start : start + TOGETHER] for start in range(0, len(simple), TOGETHER)]
        alone = set(words).difference(simple)
        for part, ids in zip(parts, self._ids([" ".join(part) for part in parts]), strict=True):
            starts = self._starts(np.array(ids)).tolist()
            if len(starts) == len(part):
                yield from zip(part, (ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)),
                               strict=True)
            else:
                alone.update(part)
        one_by_one = list(alone)
        yield from zip(one_by_one, self._ids(one_by_one), strict=True)

    def _is_simple(self, word: str) -> bool:
        return (0 < len(word) <= LONGEST and word.isprintable() and self._mark not in word
                and (word.isascii() or " " not in normalize("NFKC", word)) and not self._special.search(word))

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """Finds the added tokens, which the tokenizer cuts out of words."""
        return re.compile("|".join(re.escape(t.content) for t in self._tokenizer.get_added_tokens_decoder().values())
                          or "(?!)")

    def _starts(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in `ids` words begin."""
        for new in np.unique(ids[self._begins[ids] < 0]).tolist():
            self._begins[new] = (self._tokenizer.id_to_token(new) or "").startswith(self._mark)
        return np.flatnonzero(self._begins[ids])
