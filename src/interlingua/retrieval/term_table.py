"""The terms of an index as a sorted file of numbers: found by halving, without reading any into memory first."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


def digest(term: str) -> bytes:
    """8 bytes that stand for a term, the same everywhere."""
    return blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def keys_of(terms: Iterable[str]) -> Keys:
    """The key of each term, 64 bits of a hash, the same everywhere. Among ten million terms two share one with a
    probability of 3 in a million."""
    return np.frombuffer(b"".join(map(digest, terms)), dtype="<u8").astype(np.uint64)


class TermTable:
    """The number of a term is the place of its key among `keys`, which are sorted."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def get(self, term: str) -> int | None:
        """Its number, None where no passage has it."""
        key = keys_of([term])[0]
        place = int(np.searchsorted(self._keys, key))
        return place if place < len(self._keys) and self._keys[place] == key else None
