"""Which pairs of a batch say the same thing: they share a sentence or a multi-way parallel group."""

from __future__ import annotations

from collections.abc import Sequence

from interlingua.data.records import ParallelPair
from interlingua.text.normalise import text_key


def same_meaning(pairs: Sequence[ParallelPair]) -> list[int]:
    """One group number a pair, equal for pairs linked (directly or through others) by an equal sentence on
    either side, whatever its case and spacing, or by an equal non-empty `group` (METHODS: false negatives)."""
    leader = list(range(len(pairs)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    first: dict[tuple[str, str], int] = {}
    for i, pair in enumerate(pairs):
        keys = [("text", text_key(pair.source)), ("text", text_key(pair.target))]
        if pair.group:
            keys.append(("group", pair.group))
        for key in keys:
            leader[find(i)] = find(first.setdefault(key, i))
    return [find(i) for i in range(len(pairs))]
