"""Where a text that is too long can be cut."""

from __future__ import annotations

import regex  # type: ignore[import-untyped]

ALONE = r"(?![\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}])"
"""No mark follows, which would belong to what is before it."""
SENTENCE_END = regex.compile(rf"(?:[.!?…][\"'”’»)\]]*\s|[。！？｡।॥؟۔።។]|\n){ALONE}")
LINE_END = regex.compile(rf"(?<!\r)\r?\n{ALONE}")
SPACE = regex.compile(rf"(?<!\r)[^\S\u00a0\u2007\u202f]{ALONE}")
CLUSTER = regex.compile(r"\X")
"""What a reader takes for one character: a letter with its marks, an emoji of several parts (Unicode annex 29)."""
NEAR = 1_000
"""Characters around a place in which clusters are looked for."""


def cut(text: str, limit: int, start: int = 0) -> int:
    """The place to cut at so that at most `limit` characters lie between `start` and it; the end, if no more are left.

    The last line break in the second half of them, else the last space there, else between two grapheme clusters. A
    first cluster that alone is longer than the limit stays whole.
    """
    end = start + limit
    if len(text) <= end:
        return len(text)
    for gap in (LINE_END, SPACE):
        # one character more, so that a mark after the gap is seen
        found = [one.start() for one in gap.finditer(text, start + limit // 2, end + 2)]
        places: list[int] = [place for place in found if start < place <= end]
        if places:
            return places[-1]
    return _cut_between_clusters(text, start, end)


def _cut_between_clusters(text: str, start: int, end: int) -> int:
    begin, reach = max(start, end - NEAR), NEAR
    while True:
        window = text[begin : end + reach]
        ends: list[int] = [begin + one.end() for one in CLUSTER.finditer(window)]
        fits = [place for place in ends if place <= end]
        if fits or ends[0] < begin + len(window) or end + reach >= len(text):
            return fits[-1] if fits else ends[0]
        reach *= 16  # nothing but marks so far


def cut_after_sentence(text: str, limit: int) -> int:
    """`cut`, but after what looks like the end of a sentence in the second half if there is one."""
    ends = [one.end() for one in SENTENCE_END.finditer(text, limit // 2, limit + 1)]
    places: list[int] = [place for place in ends if place <= limit]
    return places[-1] if places else cut(text, limit)
