"""Postings: which passages hold each term, and how often; the weights of BM25; BM25 as sparse vectors.

The score of a passage, Lucene's BM25 (Kamphuis et al. 2020), with N passages of which df hold the term t:

    Σ over terms t of both   [count of t in the query · idf(t)]  ·  [tf / (tf + k1 · (1 − b + b · length / mean))]

    idf(t) = ln(1 + (N − df + ½) / (df + ½))

Lengths are exact (Lucene keeps them in one byte). As sparse vectors the first factor is the query's and the second the
passage's. So inverse document frequencies are as fresh as the counts, and a passage's vector holds the mean length at
the time when it was written.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.array_folder import ArrayFolder, ArrayWriter, write_array
from interlingua.text.phonetic import is_phonetic

Keys = NDArray[np.uint64]
Ints = NDArray[np.int32]
Places = NDArray[np.int64]
Weights = NDArray[np.float32]


def digest(term: str) -> bytes:
    """8 bytes that stand for a term, the same everywhere."""
    return blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def keys_of(terms: Iterable[str]) -> Keys:
    """The key of each term, 64 bits of a hash, the same everywhere. Among ten million terms two share one with a
    probability of 3 in a million; they then count as one term."""
    return np.frombuffer(b"".join(map(digest, terms)), dtype="<u8").astype(np.uint64)


def length_of(terms: Sequence[str]) -> int:
    """The length of a passage in terms, repetitions included. Its phonetic keys, which stand after them, do not make it
    longer."""
    length = len(terms)
    while length and is_phonetic(terms[length - 1]):
        length -= 1
    return length


def inverse_frequency(found_in: Any, passages: int) -> Any:
    """Lucene's idf of terms that `found_in` (a number or an array) of the passages hold, float32; never below 0, also
    while the two counts are being changed."""
    return np.log(1 + np.maximum(passages - found_in + 0.5, 0.0) / (found_in + 0.5)).astype(np.float32)


def length_norms(lengths: Any, mean: float, k1: float, b: float) -> Any:
    """k1 · (1 − b + b · length / mean length) of one length or an array; k1 where nothing has a term, so that the mean
    is 0."""
    return k1 * (1 - b + b * lengths / mean) if mean else k1 + 0.0 * lengths


def term_weights(idf: Any, counts: Any, norms: Any) -> Weights:
    """The weights of a term in passages that hold it `counts` times and have these `length_norms`."""
    weights: Weights = (idf * (counts / (counts + norms))).astype(np.float32)
    return weights


AT_A_TIME = 1 << 24  # postings whose weights are computed together


@dataclass(frozen=True)
class Postings:
    """The postings of term t are those at `starts[t]` to `starts[t + 1]`.

    `terms` uint64 [terms]: the key of each (`keys_of`), ascending; `passages` int32 [postings]: the passage, ascending
    within a term; `counts` int32 [postings]: how often it holds the term; `starts` int64 [terms + 1]; `lengths` int32
    [passages]: terms of each passage (`length_of`).
    """

    terms: Keys
    passages: Ints
    counts: Ints
    starts: Places
    lengths: Ints

    @classmethod
    def of(cls, passages: Iterable[Sequence[str]]) -> Postings:
        """The postings of `passages`, each given as its terms."""
        buffer = _Numbered()
        for passage in passages:
            buffer.add(passage)
        return buffer.postings()

    def numbers(self, terms: Sequence[str]) -> list[int]:
        """The number of each term that some passage holds, in order; the others are left out."""
        if not len(self.terms) or not terms:
            return []
        keys = keys_of(terms)
        places = np.minimum(self.terms.searchsorted(keys), len(self.terms) - 1)
        numbers: list[int] = places[self.terms[places] == keys].tolist()
        return numbers

    def part(self, number: int) -> slice:
        """The range of the postings of a term."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def weights(self, k1: float, b: float) -> Weights:
        """[postings]: what each adds to the score of its passage."""
        frequencies = np.diff(self.starts)
        idf = inverse_frequency(frequencies, len(self.lengths)).repeat(frequencies)
        norms = length_norms(self.lengths, float(self.lengths.mean()), k1, b)
        weights = np.empty(len(self.counts), dtype=np.float32)
        for start in range(0, len(weights), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            weights[part] = term_weights(idf[part], self.counts[part], norms[self.passages[part]])
        return weights

    def write(self, folder: ArrayWriter) -> None:
        """Add the arrays to a folder."""
        for name, values in vars(self).items():
            folder.add(name, values)

    @classmethod
    def read(cls, folder: ArrayFolder, passages: int) -> Postings:
        """The postings of a number of passages in a folder, memory-mapped."""
        terms, rows = folder.array("terms", "uint64", (None,)), folder.array("passages", "int32", (None,))
        starts = folder.array("starts", "int64", (len(terms) + 1,))
        counts, lengths = folder.array("counts", "int32", rows.shape), folder.array("lengths", "int32", (passages,))
        if starts[0] != 0 or starts[-1] != len(rows):
            raise ValueError("its arrays do not belong together")
        return cls(terms, rows, counts, starts, lengths)

    def check(self) -> None:
        """Read all numbers. Raises ValueError for one that compiled code would take for the address of something
        else."""
        valid = (np.diff(self.starts) >= 0).all() and (self.terms[1:] > self.terms[:-1]).all()
        if len(self.passages):
            rows = self.passages.min(), self.passages.max()
            valid = valid and rows[0] >= 0 and rows[1] < len(self.lengths) and self.counts.min() > 0
        if not valid:
            raise ValueError("its arrays do not belong together")


class _Numbered:
    """Some passages, with numbers for their terms that count for these passages alone."""

    def __init__(self) -> None:
        self.flat, self.ends, self.lengths = array("i"), array("q", [0]), array("i")
        self.numbers: defaultdict[str, int] = defaultdict(count().__next__)  # no cycle: it goes when it is let go

    def add(self, terms: Sequence[str]) -> None:
        self.flat.extend([self.numbers[term] for term in terms])
        self.ends.append(len(self.flat))
        self.lengths.append(length_of(terms))

    def postings(self) -> Postings:
        from scipy.sparse import csr_array

        keys, places = np.unique(keys_of(self.numbers), return_inverse=True)
        terms, lengths = places.astype(np.int32)[np.asarray(self.flat)], np.array(self.lengths, dtype=np.int32)
        ones = np.ones(len(terms), dtype=np.int32)
        matrix = csr_array((ones, terms, np.array(self.ends)), shape=(len(lengths), len(keys))).tocsc()
        matrix.sum_duplicates()
        rows, starts = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64)
        return Postings(keys, rows, matrix.data, starts, lengths)


BLOCK = 1 << 20
"""Terms of passages sorted at a time."""
JOINED = 1 << 22
"""Postings joined at a time."""
ALL_KEYS = 1 << 64


def write_blocks(passages: Iterable[Sequence[str]], first: int, place: Path) -> None:
    """Write the postings of consecutive passages, each given as its terms, into the new folder `place`, for
    `join_blocks`. `first` is the number of the first passage. Holds about `BLOCK` terms."""
    place.mkdir()
    buffer, number = _Numbered(), 0
    for passage in passages:
        buffer.add(passage)
        if len(buffer.flat) >= BLOCK or len(buffer.lengths) >= BLOCK:
            _Block.write(place / str(number), first, buffer)
            buffer, first, number = _Numbered(), first + len(buffer.lengths), number + 1
    if buffer.lengths:
        _Block.write(place / str(number), first, buffer)


def join_blocks(places: Iterable[Path], folder: ArrayWriter) -> None:
    """Add the arrays of the `Postings` of all passages to a folder, from what `write_blocks` wrote into `places`, which
    are in the order of the passages.

    Keys are spread evenly, so they are taken a range at a time, and what is held in memory does not grow with the
    passages. The disk has to hold the postings twice meanwhile.
    """
    blocks = [_Block(path) for place in places for path in sorted(place.iterdir(), key=lambda path: int(path.name))]
    for name, dtype in (("lengths", np.int32), ("terms", np.uint64), ("passages", np.int32), ("counts", np.int32)):
        folder.add(name, np.empty(0, dtype=dtype))
    folder.add("starts", np.zeros(1, dtype=np.int64))
    for block in blocks:
        folder.add("lengths", block.array("lengths"))
    total = 0
    ranges = 1 + sum(len(block.array("passages")) for block in blocks) // JOINED
    for number in range(ranges):
        parts = [block.part(number * ALL_KEYS // ranges, (number + 1) * ALL_KEYS // ranges) for block in blocks]
        terms = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *(part.keys for part in parts)]))
        frequencies = np.zeros(len(terms), dtype=np.int64)
        for part in parts:
            frequencies[np.searchsorted(terms, part.keys)] += np.diff(part.starts)
        starts = np.concatenate([[0], np.cumsum(frequencies)])
        folder.add("terms", terms)
        folder.add("starts", total + starts[1:])
        total += int(starts[-1])
        for first, last in _ranges(starts):
            rows, counts = _joined(blocks, terms[first:last], frequencies[first:last])
            folder.add("passages", rows)
            folder.add("counts", counts)


class _Part(NamedTuple):
    """The terms of a block in a range of keys; the postings of each begin and end at `starts`."""

    keys: Keys
    starts: Places


class _Block:
    """Postings of some passages on disk; passages count from the first of all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def write(path: Path, first: int, buffer: _Numbered) -> None:
        postings = buffer.postings()
        path.mkdir()
        for name, values in (vars(postings) | {"passages": postings.passages + np.int32(first)}).items():
            with open(path / f"{name}.npy", "wb") as stream:
                write_array(stream, values)

    def array(self, name: str) -> NDArray[Any]:
        """One of the arrays, mapped anew each time: what was read of it does not stay in memory."""
        return np.asarray(np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False))

    def part(self, low: int, high: int) -> _Part:
        """The terms whose keys are `low` or more and below `high`."""
        keys = self.array("terms")
        first, last = (
            len(keys) if key >= ALL_KEYS else int(np.searchsorted(keys, np.uint64(key))) for key in (low, high)
        )
        return _Part(np.array(keys[first:last]), np.array(self.array("starts")[first : last + 1]))


def _ranges(starts: Places) -> Iterator[tuple[int, int]]:
    """Runs of terms with about `JOINED` postings, one term at least."""
    first, terms = 0, len(starts) - 1
    while first < terms:
        last = int(np.searchsorted(starts, starts[first] + JOINED, side="right")) - 1
        last = min(max(last, first + 1), terms)
        yield first, last
        first = last


def _joined(blocks: Sequence[_Block], terms: Keys, frequencies: Places) -> tuple[Ints, Ints]:
    """The postings of some consecutive `terms`, in the order of the blocks for each; `frequencies`: their numbers."""
    free = np.concatenate([[0], np.cumsum(frequencies)])[:-1]  # where the next posting of each term goes
    rows, counts = (np.empty(int(frequencies.sum()), dtype=np.int32) for _ in range(2))
    for block in blocks:
        keys, starts = block.part(int(terms[0]), int(terms[-1]) + 1)
        indices = np.searchsorted(terms, keys)
        sizes = np.diff(starts)
        places = np.arange(starts[0], starts[-1]) + np.repeat(free[indices] - starts[:-1], sizes)
        rows[places] = block.array("passages")[starts[0] : starts[-1]]
        counts[places] = block.array("counts")[starts[0] : starts[-1]]
        free[indices] += sizes
    return rows, counts


LARGEST = 2**32 - 2
"""The highest dimension of a sparse vector in Milvus."""
NONE = 0
"""The dimension of passages without a term, which no term has: Milvus takes no empty vector."""


def term_number(term: str) -> int:
    """The dimension of a term, from 1 to `LARGEST`, the same everywhere: a hash, so that many writers need no common
    list. Of a million terms about 230 share theirs with another one (n / 2³² of n)."""
    return 1 + int.from_bytes(digest(term), "big") % LARGEST


def document_vector(terms: Sequence[str], mean_length: float, k1: float, b: float) -> dict[int, float]:
    """The passage's side for its `terms`, repetitions included; `{NONE: 1}` where it has none."""
    norm = length_norms(length_of(terms), mean_length, k1, b)
    counts = Counter(map(term_number, terms))
    return {number: count / (count + norm) for number, count in counts.items()} or {NONE: 1.0}


def query_vector(terms: Iterable[str], found_in: Mapping[int, int], passages: int) -> dict[int, float]:
    """The question's side: `found_in` says how many of the `passages` hold each term's dimension. Terms that none holds
    are left out, so it may be empty."""
    counts = Counter(map(term_number, terms))
    return {
        number: count * float(inverse_frequency(found_in[number], passages))
        for number, count in counts.items()
        if found_in.get(number, 0) > 0
    }
