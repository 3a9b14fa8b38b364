"""WikiMatrix (Schwenk et al. 2019): mined sentence pairs, `margin <tab> source <tab> target`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from pathlib import Path

from interlingua.data.permutation import mix
from interlingua.data.readers.bad_rows import BadRow, BadRows
from interlingua.data.readers.pairing import languages_of
from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError, suggestion
from interlingua.files import read_lines

SELECTIONS = ("random", "top")


def matches(path: Path, start: str) -> bool:
    lines = start.split("\n")
    return all(line.count("\t") == 2 and _margin(line) is not None for line in (lines[:-1] or lines)[:20])


def read(path: Path, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         threshold: float = 1.04, select: str = "random", limit: int | None = 50_000, seed: int = 0,
         ) -> Iterator[ParallelPair]:
    """At most `limit` pairs with a margin of `threshold` or more, in the order of the file.

    select="top" takes those with the highest margin (short and boilerplate-heavy), "random" a seeded sample in which
    a smaller limit gives a subset of a larger one. Holds `limit` pairs, never the file. Rows under the threshold
    and rows not drawn are counted. Hu et al. 2023 sample 50,000 pairs per language and do not say how.
    """
    if select not in SELECTIONS:
        raise InterlinguaError(f"select='{select}' is unknown.{suggestion(select, SELECTIONS)}")
    source, target = languages_of(path, source_lang, target_lang)
    if limit is None:
        yield from (pair for _, pair in _above(path, bad, source, target, threshold))
        return
    # A heap of the `limit` best rows; the row number breaks ties and the pair itself is never compared.
    heap: list[tuple[float, int, ParallelPair]] = []
    for number, pair in _above(path, bad, source, target, threshold):
        value = float(pair.score or 0) if select == "top" else float(mix(seed, number))
        entry = (value, -number, pair)
        if len(heap) < limit:
            heapq.heappush(heap, entry)
        else:
            if limit:
                heapq.heappushpop(heap, entry)
            bad.passed_over(path, f"rows over the limit of {limit:,} not taken (select={select})")
    for _, _, pair in sorted(heap, key=lambda entry: -entry[1]):
        yield pair


def _above(path: Path, bad: BadRows, source: str, target: str, threshold: float) -> Iterator[tuple[int, ParallelPair]]:
    def parse(row: tuple[int, str]) -> tuple[int, ParallelPair]:
        cells = row[1].split("\t")
        if len(cells) != 3:
            raise BadRow(f"{len(cells)} column(s), 3 are needed: margin, source, target")
        margin = _margin(row[1])
        if margin is None:
            raise BadRow(f"the margin '{cells[0]}' is no number")
        if not cells[1].strip() or not cells[2].strip():
            raise BadRow("an empty side")
        return row[0], ParallelPair(cells[1], cells[2], source, target, score=margin)

    for number, pair in bad.parsed(path, ((number, (number, line)) for number, line in read_lines(path)), parse):
        if pair.score is not None and pair.score >= threshold:
            yield number, pair
        else:
            bad.passed_over(path, f"rows under the margin {threshold} not taken")


def _margin(line: str) -> float | None:
    try:
        value = float(line.split("\t", 1)[0])
    except ValueError:
        return None
    return value if math.isfinite(value) else None
