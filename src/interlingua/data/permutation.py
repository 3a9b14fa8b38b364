"""A seeded random order of n things in O(1) memory."""

from __future__ import annotations

import hashlib

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

    def __len__(self) -> int:
        return self.n

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
