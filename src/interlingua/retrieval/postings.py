"""Which passages hold each term, and how often: what BM25's weights are computed from, whatever its parameters."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError

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
        """What `save` wrote. Raises InterlinguaError for a file that is missing, cut or changed, or that is not about
        this number of passages and terms: wrong numbers would read memory that is not theirs."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            held: dict[str, NDArray[Any]] = load_file(str(file))
        except (OSError, ValueError, SafetensorError) as error:
            raise InterlinguaError(f"{file}: is damaged ({error}). Build the index again.") from error
        kinds = {"passages": np.int32, "counts": np.int32, "starts": np.int64, "lengths": np.int32}
        whole = {name: array.dtype for name, array in held.items()} == kinds and all(a.ndim == 1 for a in held.values())
        if not whole or not _fits(postings := cls(**held), passages, terms):
            raise InterlinguaError(f"{file}: is damaged (its arrays do not belong together). Build the index again.")
        return postings


def _fits(postings: Postings, passages: int, terms: int) -> bool:
    starts, size = postings.starts, len(postings.passages)
    return bool(
        len(starts) == terms + 1 and starts[0] == 0 and starts[-1] == size and (np.diff(starts) >= 0).all()
        and len(postings.counts) == size and len(postings.lengths) == passages
        and (size == 0 or (postings.passages.min() >= 0 and postings.passages.max() < passages
                           and postings.counts.min() > 0)))
