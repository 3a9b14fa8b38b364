"""Postings of any number of passages, written to files in bounded memory: sorted in blocks, then joined by term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from interlingua.retrieval.postings import Postings

BLOCK = 1 << 22
"""Terms of passages sorted at a time, and postings joined at a time."""
ENTRY = 4  # bytes of an int32


def write_postings(passages: Iterable[Sequence[int]], folder: Path) -> None:
    """Write `passages.npy`, `counts.npy`, `starts.npy` and `lengths.npy` to `folder`: `Postings.of(passages)`, the same
    to the last bit. Beside the vocabulary, what is held in memory does not grow with the passages, but for 8 bytes
    each. The disk has to hold the postings twice meanwhile."""
    with TemporaryDirectory(dir=folder, prefix="blocks") as name:
        blocks = [_Block.write(Path(name) / str(number), first, terms)
                  for number, (first, terms) in enumerate(_blocks(passages, folder))]
        found = np.zeros(max((block.terms for block in blocks), default=0), dtype=np.int64)
        for block in blocks:
            found[: block.terms] += np.diff(block.starts(0, block.terms))
        starts = np.concatenate([[0], np.cumsum(found)])
        np.save(folder / "starts.npy", starts)
        with (open(folder / "passages.npy", "wb") as rows, open(folder / "counts.npy", "wb") as counts):
            for stream in (rows, counts):
                np.lib.format.write_array_header_1_0(
                    stream, {"descr": "<i4", "fortran_order": False, "shape": (int(starts[-1]),)})
            for first, last in _ranges(starts):
                for stream, joined in zip((rows, counts), _joined(blocks, first, last, found[first:last]), strict=True):
                    stream.write(joined.tobytes())


def _blocks(passages: Iterable[Sequence[int]], folder: Path) -> Iterator[tuple[int, list[Sequence[int]]]]:
    """Runs of passages with about `BLOCK` terms, and the number of the first of each; the length of every passage is
    written meanwhile."""
    lengths: list[NDArray[np.int32]] = []
    held: list[Sequence[int]] = []
    first = size = 0
    for passage in passages:
        held.append(passage)
        size += len(passage)
        if size >= BLOCK or len(held) >= BLOCK:
            lengths.append(np.array([len(one) for one in held], dtype=np.int32))
            yield first, held
            first, held, size = first + len(held), [], 0
    lengths.append(np.array([len(one) for one in held], dtype=np.int32))
    if held:
        yield first, held
    np.save(folder / "lengths.npy", np.concatenate(lengths))


class _Block:
    """Sorted postings of some passages on disk; passages count from the first of all."""

    def __init__(self, path: Path, terms: int) -> None:
        self.path, self.terms = path, terms

    @classmethod
    def write(cls, path: Path, first: int, passages: Sequence[Sequence[int]]) -> _Block:
        made = Postings.of(passages)
        path.mkdir()
        made.starts.tofile(path / "starts")
        (made.passages + np.int32(first)).tofile(path / "passages")
        made.counts.astype(np.int32).tofile(path / "counts")
        return cls(path, len(made.starts) - 1)

    def starts(self, first: int, last: int) -> NDArray[np.int64]:
        """The starts of the terms from `first` to `last`, that one included; terms it does not know have nothing."""
        known = min(last, self.terms)
        if known < first:
            return np.zeros(last - first + 1, dtype=np.int64)
        read = np.fromfile(self.path / "starts", dtype=np.int64, count=known - first + 1, offset=8 * first)
        return np.concatenate([read, np.full(last - known, read[-1])])

    def part(self, name: str, first: int, last: int) -> NDArray[np.int32]:
        return np.fromfile(self.path / name, dtype=np.int32, count=last - first, offset=ENTRY * first)


def _ranges(starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of terms with about `BLOCK` postings, one term at least."""
    first, terms = 0, len(starts) - 1
    while first < terms:
        last = int(np.searchsorted(starts, starts[first] + BLOCK, side="right")) - 1
        last = min(max(last, first + 1), terms)
        yield first, last
        first = last


def _joined(blocks: Sequence[_Block], first: int, last: int, found: NDArray[np.int64]
            ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The postings of the terms from `first` to before `last`, in the order of the blocks for each; `found` are their
    numbers."""
    free = np.concatenate([[0], np.cumsum(found)])[:-1]  # where the next posting of each term goes
    rows, counts = (np.empty(int(found.sum()), dtype=np.int32) for _ in range(2))
    for block in blocks:
        starts = block.starts(first, last)
        sizes = np.diff(starts)
        places = np.arange(starts[0], starts[-1]) + np.repeat(free - starts[:-1], sizes)
        rows[places] = block.part("passages", int(starts[0]), int(starts[-1]))
        counts[places] = block.part("counts", int(starts[0]), int(starts[-1]))
        free += sizes
    return rows, counts
