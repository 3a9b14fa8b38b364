"""Postings: which passages hold each term, and how often; BM25 as sparse vectors.

Σ over terms t of both   [count of t in the question · idf(t)]  ·  [tf / (tf + k1 · (1 − b + b · length / mean))]
                              the question's vector                     the passage's vector

The inverse document frequencies are on the side of the question, where they are as fresh as the counts. The passage's
side holds the mean length at the time it was written.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import Damaged

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


AT_A_TIME = 1 << 24  # postings whose weights are computed together


@dataclass(frozen=True)
class Postings:
    """The postings of term t are those at `starts[t]` to `starts[t + 1]`.

    `passages` int32 [postings]: the passage, ascending within a term; `counts` int32 [postings]: how often it holds
    the term; `starts` int64 [terms + 1]; `lengths` int32 [passages]: terms of each passage, repetitions included.
    """

    passages: NDArray[np.int32]
    counts: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, passages: Iterable[Sequence[int]]) -> Postings:
        """The postings of `passages`, each given as the numbers of its terms. Numbers count up from 0 without gaps."""
        from scipy.sparse import csr_array

        flat, lengths = array("i"), array("i")
        for passage in passages:
            flat.extend(passage)
            lengths.append(len(passage))
        terms, sizes = np.array(flat, dtype=np.int32), np.array(lengths, dtype=np.int32)
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        ones = np.ones(len(terms), dtype=np.int32)
        matrix = csr_array((ones, terms, ends), shape=(len(sizes), int(terms.max(initial=-1)) + 1)).tocsc()
        matrix.sum_duplicates()
        return cls(matrix.indices.astype(np.int32), matrix.data, matrix.indptr.astype(np.int64), sizes)

    def weights(self, k1: float, b: float) -> NDArray[np.float32]:
        """[postings]: what each adds to the score of its passage, Lucene's BM25 (Kamphuis et al. 2020):

            ln(1 + (N − df + ½) / (df + ½)) · tf / (tf + k1 · (1 − b + b · length / mean length))

        with N passages, of which df hold the term. Lengths are exact (Lucene keeps them in one byte).
        """
        found = np.diff(self.starts)
        idf = np.log(1 + (len(self.lengths) - found + 0.5) / (found + 0.5)).astype(np.float32).repeat(found)
        mean = max(float(self.lengths.mean()), np.finfo(float).tiny)  # no terms at all: nothing to weigh
        norms = k1 * (1 - b + b * self.lengths / mean)
        weights = np.empty(len(self.counts), dtype=np.float32)
        for start in range(0, len(weights), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            counts = self.counts[part].astype(np.float64)
            weights[part] = idf[part] * (counts / (counts + norms[self.passages[part]]))
        return weights

    def save(self, file: Path) -> None:
        """Write all four arrays to a safetensors file."""
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(array) for name, array in vars(self).items()}, str(file))

    @classmethod
    def load(cls, file: Path, passages: int, terms: int) -> Postings:
        """What `save` wrote. Raises BadInput for a file that is missing, cut or changed, or that is not about
        this number of passages and terms: wrong numbers would read memory that is not theirs."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            held: dict[str, NDArray[Any]] = load_file(str(file))
        except (OSError, ValueError, SafetensorError) as error:
            raise Damaged(f"{file}: is damaged ({error}). Build the index again.") from error
        kinds = {"passages": np.int32, "counts": np.int32, "starts": np.int64, "lengths": np.int32}
        whole = {name: array.dtype for name, array in held.items()} == kinds and all(a.ndim == 1 for a in held.values())
        if not whole or not _fits(postings := cls(**held), passages, terms):
            raise Damaged(f"{file}: is damaged (its arrays do not belong together). Build the index again.")
        return postings


def _fits(postings: Postings, passages: int, terms: int) -> bool:
    starts, size = postings.starts, len(postings.passages)
    return bool(
        len(starts) == terms + 1
        and starts[0] == 0
        and starts[-1] == size
        and (np.diff(starts) >= 0).all()
        and len(postings.counts) == size
        and len(postings.lengths) == passages
        and (
            size == 0
            or (postings.passages.min() >= 0 and postings.passages.max() < passages and postings.counts.min() > 0)
        )
    )


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
        blocks = [
            _Block.write(Path(name) / str(number), first, terms)
            for number, (first, terms) in enumerate(_blocks(passages, folder))
        ]
        terms = np.empty(0, dtype=np.uint64)
        for block in blocks:
            terms = np.union1d(terms, block.keys)
        found = np.zeros(len(terms), dtype=np.int64)
        for block in blocks:
            found[np.searchsorted(terms, block.keys)] += np.diff(block.starts)
        starts = np.concatenate([[0], np.cumsum(found)])
        np.save(folder / "terms.npy", terms)
        np.save(folder / "starts.npy", starts)
        with open(folder / "passages.npy", "wb") as rows, open(folder / "counts.npy", "wb") as counts:
            for stream in (rows, counts):
                np.lib.format.write_array_header_1_0(
                    stream, {"descr": "<i4", "fortran_order": False, "shape": (int(starts[-1]),)}
                )
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
    norm = k1 * (1 - b + b * len(terms) / mean_length) if mean_length else k1
    counts = Counter(map(term_number, terms))
    return {number: count / (count + norm) for number, count in counts.items()} or {NONE: 1.0}


def query_vector(terms: Iterable[str], found_in: Mapping[int, int], passages: int) -> dict[int, float]:
    """The question's side: `found_in` says how many of the `passages` hold each term's dimension. Terms that none holds
    are left out, so it may be empty."""
    counts = Counter(map(term_number, terms))
    return {
        number: count * inverse_frequency(found_in[number], passages)
        for number, count in counts.items()
        if found_in.get(number, 0) > 0
    }


def most(terms: Iterable[str], found_in: Mapping[int, int], passages: int) -> float:
    """What a passage could score at the most, all `terms` counted, also those that no passage has."""
    return sum(inverse_frequency(found_in.get(term_number(term), 0), passages) for term in terms)


def inverse_frequency(found_in: int, passages: int) -> float:
    """Lucene's idf, ln(1 + (N − df + ½) / (df + ½)); never below 0, also while the two counts are being changed."""
    return log(1 + max(0.0, passages - found_in + 0.5) / (found_in + 0.5))
