"""A set of keys that takes little memory, for what must not occur twice among millions."""

from __future__ import annotations

from array import array

from xxhash import xxh3_128_intdigest

LOW = (1 << 64) - 1
SMALLEST = 1 << 10


class Keys:
    """A set of pairs of texts, such as source and id. Of each it holds a digest of 16 bytes (XXH3, 128 bits) in a table
    with open addressing: 27 to 53 bytes a pair, whatever its length. Two of a billion pairs have the same digest with
    a probability of 10⁻²¹."""

    def __init__(self) -> None:
        self._count = 0
        self._low, self._high = _table(SMALLEST), _table(SMALLEST)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return self._low[self._place(*_digest(pair))] != 0

    def add(self, pair: tuple[str, str]) -> bool:
        """Add a pair; whether it was not there."""
        low, high = _digest(pair)
        slot = self._place(low, high)
        if self._low[slot]:
            return False
        self._low[slot], self._high[slot] = low, high
        self._count += 1
        if self._count * 5 > len(self._low) * 3:
            self._grow()
        return True

    def _place(self, low: int, high: int) -> int:
        """The place where a digest is, or is to be put."""
        lows, highs, mask = self._low, self._high, len(self._low) - 1
        slot = low & mask
        while (entry := lows[slot]) and not (entry == low and highs[slot] == high):
            slot = slot + 1 & mask
        return slot

    def _grow(self) -> None:
        lows, highs = self._low, self._high
        self._low, self._high = _table(2 * len(lows)), _table(2 * len(lows))
        for old_slot, low in enumerate(lows):
            if low:
                slot = self._place(low, highs[old_slot])
                self._low[slot], self._high[slot] = low, highs[old_slot]


def _table(size: int) -> array[int]:
    return array("Q", bytes(8 * size))


def _digest(pair: tuple[str, str]) -> tuple[int, int]:
    """Two numbers below 2⁶⁴, the first of them not 0, which marks a free place."""
    number = xxh3_128_intdigest(f"{len(pair[0])} {pair[0]}{pair[1]}".encode("utf-8", "surrogatepass"))
    return number & LOW or 1, number >> 64
