"""Postings of any number of passages, written to files in bounded memory: sorted in blocks, then joined by term."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from interlingua.retrieval.postings import Postings
from interlingua.retrieval.term_table import Keys, keys_of

BLOCK = 1 << 20
"""Terms of passages sorted at a time, and postings joined at a time."""
ENTRY = 4  # bytes of an int32

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


def write_postings(passages: Iterable[Sequence[str]], folder: Path) -> None:
    """Write the postings of `passages`, each given as its terms, to `folder`: `terms.npy`, the sorted keys of all terms
    (see `TermTable`), and `passages.npy`, `counts.npy`, `starts.npy` and `lengths.npy`, which are `Postings`.

    What is held in memory does not grow with the passages, but for 8 bytes a passage and 16 a term. The disk has to
    hold the postings twice meanwhile.
    """
    with TemporaryDirectory(dir=folder, prefix="blocks") as name:
        blocks = [_Block.write(Path(name) / str(number), first, terms)
                  for number, (first, terms) in enumerate(_blocks(passages, folder))]
        terms = np.empty(0, dtype=np.uint64)
        for block in blocks:
            terms = np.union1d(terms, block.keys)
        found = np.zeros(len(terms), dtype=np.int64)
        for block in blocks:
            found[np.searchsorted(terms, block.keys)] += np.diff(block.starts)
        starts = np.concatenate([[0], np.cumsum(found)])
        np.save(folder / "terms.npy", terms)
        np.save(folder / "starts.npy", starts)
        with (open(folder / "passages.npy", "wb") as rows, open(folder / "counts.npy", "wb") as counts):
            for stream in (rows, counts):
                np.lib.format.write_array_header_1_0(
                    stream, {"descr": "<i4", "fortran_order": False, "shape": (int(starts[-1]),)})
            for first, last in _ranges(starts):
                joined = _joined(blocks, terms[first:last], found[first:last])
                for stream, array in zip((rows, counts), joined, strict=True):
                    stream.write(array.tobytes())


def _blocks(passages: Iterable[Sequence[str]], folder: Path) -> Iterator[tuple[int, _Numbered]]:
    """Runs of passages with about `BLOCK` terms, and the number of the first of each; the length of every passage is
    written in the end."""
    lengths: list[Ints] = []
    held, first = _Numbered(), 0
    for passage in passages:
        held.add(passage)
        if held.size >= BLOCK or len(held.passages) >= BLOCK:
            lengths.append(held.lengths())
            yield first, held
            held, first = _Numbered(), first + len(held.passages)
    lengths.append(held.lengths())
    if held.passages:
        yield first, held
    np.save(folder / "lengths.npy", np.concatenate(lengths))


class _Numbered:
    """Some passages, with numbers for their terms that count for these passages alone."""

    def __init__(self) -> None:
        self.passages: list[Ints] = []
        self.size = 0
        self.numbers: defaultdict[str, int] = defaultdict()
        self.numbers.default_factory = self.numbers.__len__  # a new term gets the next number

    def add(self, terms: Sequence[str]) -> None:
        self.passages.append(np.array([self.numbers[term] for term in terms], dtype=np.int32))
        self.size += len(terms)

    def lengths(self) -> Ints:
        return np.array([len(passage) for passage in self.passages], dtype=np.int32)


class _Block:
    """Postings of some passages on disk, sorted by the key of the term; passages count from the first of all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def write(cls, path: Path, first: int, held: _Numbered) -> _Block:
        keys = keys_of(held.numbers)
        order = np.argsort(keys)
        places = np.empty(len(keys), dtype=np.int32)
        places[order] = np.arange(len(keys), dtype=np.int32)
        made = Postings.of(places[passage].tolist() for passage in held.passages)
        path.mkdir()
        np.save(path / "keys.npy", keys[order])
        np.save(path / "starts.npy", made.starts)
        (made.passages + np.int32(first)).tofile(path / "passages")
        made.counts.astype(np.int32).tofile(path / "counts")
        return cls(path)

    @property
    def keys(self) -> Keys:
        keys: Keys = np.load(self.path / "keys.npy", mmap_mode="r")
        return keys

    @property
    def starts(self) -> Places:
        starts: Places = np.load(self.path / "starts.npy", mmap_mode="r")
        return starts

    def part(self, name: str, first: int, last: int) -> Ints:
        return np.fromfile(self.path / name, dtype=np.int32, count=last - first, offset=ENTRY * first)


def _ranges(starts: Places) -> Iterator[tuple[int, int]]:
    """Runs of terms with about `BLOCK` postings, one term at least."""
    first, terms = 0, len(starts) - 1
    while first < terms:
        last = int(np.searchsorted(starts, starts[first] + BLOCK, side="right")) - 1
        last = min(max(last, first + 1), terms)
        yield first, last
        first = last


def _joined(blocks: Sequence[_Block], terms: Keys, found: Places) -> tuple[Ints, Ints]:
    """The postings of some consecutive `terms`, in the order of the blocks for each; `found` are their numbers."""
    free = np.concatenate([[0], np.cumsum(found)])[:-1]  # where the next posting of each term goes
    rows, counts = (np.empty(int(found.sum()), dtype=np.int32) for _ in range(2))
    for block in blocks:
        keys = block.keys
        first, last = int(np.searchsorted(keys, terms[0])), int(np.searchsorted(keys, terms[-1], side="right"))
        here = np.searchsorted(terms, keys[first:last])
        starts = np.array(block.starts[first : last + 1])
        sizes = np.diff(starts)
        places = np.arange(starts[0], starts[-1]) + np.repeat(free[here] - starts[:-1], sizes)
        rows[places] = block.part("passages", int(starts[0]), int(starts[-1]))
        counts[places] = block.part("counts", int(starts[0]), int(starts[-1]))
        free[here] += sizes
    return rows, counts
