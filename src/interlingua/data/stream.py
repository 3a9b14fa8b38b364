"""Streams: endless, seeded, language-balanced batches that can be resumed at any step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from interlingua.data.store import Store
from interlingua.errors import BadInput, suggestion

_MASK = (1 << 64) - 1
ROUNDS = 6


def mix(key: int, value: int) -> int:
    """64 well-mixed bits of two integers (SplitMix64's finaliser, Steele et al. 2014): the same everywhere."""
    z = (value * 0x9E3779B97F4A7C15 + key) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ (z >> shift)) * factor) & _MASK
        z = (z ^ (key << 1)) & _MASK
    return z ^ (z >> 31)


def key_of(*parts: object) -> int:
    """A 64-bit key from anything with a stable text form: seeds, names, epochs."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


class Permutation:
    """A bijection of {0, …, n−1}: `Permutation(n, key)[i]` is where the i-th draw lands.

    A balanced Feistel network (Luby & Rackoff 1988) on the smallest power of four that holds n, walked until the
    value falls under n (Black & Rogaway 2002); that takes fewer than four steps on average. Every key gives another
    order; nothing is stored.
    """

    def __init__(self, n: int, key: int) -> None:
        if n < 1:
            raise ValueError(f"a permutation of {n} things")
        self.n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._low = (1 << self._half) - 1
        self._keys = [mix(key, number + 1) for number in range(ROUNDS)]

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.n:
            raise IndexError(index)
        while True:
            left, right = index >> self._half, index & self._low
            for key in self._keys:
                left, right = right, left ^ (mix(key, right) & self._low)
            index = left << self._half | right
            if index < self.n:
                return index


Record = TypeVar("Record")
View = Callable[[Any, int, np.random.Generator], Any]
"""A function applied to a record each time it is drawn: of the record, its number in the store, and randomness."""


class Stream(Generic[Record]):
    """`next(stream)` is a list of `batch_size` records, for ever.

    The language of each row (of the whole batch with `one_language_per_batch`) is drawn with p ∝ n^alpha over the
    numbers n of records per language: alpha=1 samples as from the concatenation of all, 0 treats languages alike, 0.3
    is XLM-R's. Within a language records come without replacement, in an order shuffled anew every epoch.

    What batch t holds depends on the seed, t, and how many records of each language went before; that is the whole
    state. A batch larger than a language holds some of its records more than once.

    `limit_per_lang` takes a seeded sample of each language, in which a smaller limit gives a subset of a larger one.
    `langs` draws from these languages only. `view` makes what the batch holds out of each record drawn, a new one
    every time (two sentences of a document); its randomness, too, depends on the seed and t alone.
    """

    def __init__(
        self,
        store: Store[Record],
        batch_size: int,
        *,
        seed: int,
        alpha: float = 0.5,
        limit_per_lang: int | None = None,
        one_language_per_batch: bool = False,
        langs: Iterable[str] | None = None,
        view: View | None = None,
    ) -> None:
        if batch_size < 1 or (limit_per_lang is not None and limit_per_lang < 1) or seed < 0:
            raise BadInput(
                f"a stream needs batch_size ≥ 1, limit_per_lang ≥ 1 and seed ≥ 0, not {batch_size}, "
                f"{limit_per_lang} and {seed}."
            )
        self.store, self.batch_size, self.seed, self.alpha = store, batch_size, seed, alpha
        self.one_language_per_batch, self.view = one_language_per_batch, view
        self.langs = sorted(store.languages if langs is None else set(langs))
        for lang in self.langs:
            if lang not in store.languages:
                raise BadInput(
                    f"a stream of '{lang}', of which there are no records.{suggestion(lang, store.languages)}"
                )
        limit = len(store) if limit_per_lang is None else limit_per_lang
        self.sizes = {lang: min(len(store.languages[lang]), limit) for lang in self.langs}
        if not self.sizes:
            raise BadInput("a stream over no records. Check the source.")
        self._subsets = {
            lang: Permutation(len(store.languages[lang]), key_of(seed, "subset", lang))
            for lang in self.langs
            if self.sizes[lang] < len(store.languages[lang])
        }
        weights = np.array([self.sizes[lang] for lang in self.langs], dtype=np.float64) ** alpha
        self.probabilities = dict(zip(self.langs, (weights / weights.sum()).tolist(), strict=True))
        self._cumulative = np.cumsum(weights / weights.sum())
        self.step = 0
        self._cursors = dict.fromkeys(self.langs, 0)
        self._orders: dict[str, tuple[int, Permutation]] = {}

    def __iter__(self) -> Stream[Record]:
        return self

    def __next__(self) -> list[Record]:
        # Philox is counter-based: the numbers of step t are computed from t, not reached by drawing those before.
        random = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, self.step, 0, 0]))
        draws = random.random(1 if self.one_language_per_batch else self.batch_size)
        last = len(self.langs) - 1  # the cumulative sum may end a rounding error below a draw
        rows = [min(int(number), last) for number in np.searchsorted(self._cumulative, draws, side="right")]
        if self.one_language_per_batch:
            rows *= self.batch_size
        numbers = [self._draw(self.langs[number]) for number in rows]
        batch: list[Any] = [self.store[number] for number in numbers]
        if self.view is not None:
            random = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, self.step, 1, 0]))
            batch = [self.view(record, number, random) for record, number in zip(batch, numbers, strict=True)]
        self.step += 1
        return batch

    def _draw(self, lang: str) -> int:
        """The number, in the store, of the next record of a language."""
        epoch, place = divmod(self._cursors[lang], self.sizes[lang])
        self._cursors[lang] += 1
        order = self._orders.get(lang)
        if order is None or order[0] != epoch:
            order = epoch, Permutation(self.sizes[lang], key_of(self.seed, "epoch", lang, epoch))
            self._orders[lang] = order
        index = order[1][place]
        if lang in self._subsets:
            index = self._subsets[lang][index]
        return int(self.store.languages[lang][index])

    def rows(self) -> Iterator[int]:
        """The numbers, in the store, of all records that it draws, language after language."""
        for lang, size in self.sizes.items():
            subset, numbers = self._subsets.get(lang), self.store.languages[lang]
            yield from (int(numbers[index if subset is None else subset[index]]) for index in range(size))

    def state_dict(self) -> dict[str, Any]:
        """The position, as small JSON: the step and how many records of each language were drawn; and the seed, the
        sizes and what else `load_state_dict` knows the stream again by."""
        return {"step": self.step, "cursors": dict(self._cursors), **self._identity()}

    def _identity(self) -> dict[str, Any]:
        """Everything but the position that decides which records a batch holds."""
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "sizes": dict(self.sizes),
            "content": getattr(self.store, "digest", ""),
            "alpha": self.alpha,
            "one_language_per_batch": self.one_language_per_batch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken: the same batches follow as would have without a stop.

        Raises BadInput when the state is of a stream with another seed, batch size, mixture of languages or other data.
        """
        for key, current in self._identity().items():
            # older states do not say how languages were mixed
            if state.get(key, current if key in ("alpha", "one_language_per_batch") else None) != current:
                what = "number of records" if key == "sizes" else key
                raise BadInput(
                    f"the stream has another {what} than when the run began ({state.get(key)}, now {current}). "
                    "Continue with the data and settings of the start, or start anew with another --out."
                )
        self.step = int(state["step"])
        self._cursors = {lang: int(state["cursors"][lang]) for lang in self.langs}
