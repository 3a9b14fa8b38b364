"""Exact dense search in a quarter of the memory traffic: bounds from int8 vectors, scores from float32 ones.

Each row x is held as x − m ≈ s·u, with the centre m of all rows, 8-bit integers u and one scale s. A query is
q = c·d + r with d = m/|m|, and r ≈ t·v with integers v. Up to q·m, which is the same for all rows,

    q·x = c·(d·(x − m)) + t·s·(v·u)  ±  |t·v|·|x − m − s·u| + |r − t·v|·|x − m|          (Cauchy and Schwarz)

Only v·u is computed for every row, exactly, in integers. The k-th largest lower bound then rules out the rows whose
upper bound does not reach it, and `search_exact` ranks the rest. The bounds have room for all rounding in float32, that
of `search_exact` too. Without the centre they would rule out nothing where all vectors point much the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import isqrt
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.errors import BadInput
from interlingua.lazy import compiled_module
from interlingua.models.inference import machine
from interlingua.progress import track

if TYPE_CHECKING:
    from interlingua.retrieval.dense.exact import Matrix


ROWS = 16  # rows laid out together: the lanes of a vector of sums
STEP = 4  # components of a row side by side
BLOCK = 4096  # rows rounded at a time, a multiple of ROWS
SAMPLE = 16_384  # rows, at least, whose mean is the centre
UP = 1 + 1e-6  # makes up for rounding a bound to float32

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def centre_of(vectors: Matrix) -> Floats:
    """The mean of a sample of the rows, [dim]. Any centre is right; one in the middle makes the bounds narrow."""
    sample = as_float32(vectors[:: max(1, vectors.shape[0] // SAMPLE)]).astype(np.float64)
    sample = sample[np.isfinite(sample).all(axis=1)]
    return (sample.mean(axis=0) if len(sample) else np.zeros(vectors.shape[1])).astype(np.float32)


def direction_of(centre: Floats) -> tuple[Doubles, float]:
    """The centre at unit length (zeros if it is zero), and its length."""
    length = float(np.linalg.norm(centre.astype(np.float64)))
    return centre.astype(np.float64) / (length or 1.0), length


def rounded_rows(vectors: Matrix, centre: Floats, bounds: Floats) -> Iterator[NDArray[np.int8]]:
    """`vectors` [rows, dim] around `centre` as int8, in blocks laid out by `laid_out`, some at a time.

    Fills in `bounds` [4, rows of whole blocks]: scale, product with the centre's direction, norm of the error of
    rounding (−inf for the rows that fill the last block) and norm of the row, both around the centre. Raises
    BadInput naming the first row with NaN or infinity.
    """
    direction, _ = direction_of(centre)
    for start in track(range(0, vectors.shape[0], BLOCK), f"int8 ({BLOCK:,} vectors at a time)"):
        block = as_float32(vectors[start : start + BLOCK]).astype(np.float64)
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            raise BadInput(
                f"vector {start + int(finite.argmin())} holds NaN or infinity. The model or its "
                "number format is at fault: try float32."
            )
        block -= centre
        whole, scales = whole_numbers(block, 127)
        error = np.linalg.norm(block - whole * scales[:, None].astype(np.float64), axis=1)
        part = bounds[:, start : start + BLOCK]
        part[:] = np.array([0, 0, -np.inf, 0])[:, None]
        with np.errstate(over="ignore"):
            part[:, : len(block)] = scales, block @ direction, UP * error, UP * np.linalg.norm(block, axis=1)
        yield laid_out(whole.astype(np.int8))


def whole_numbers(exact: Doubles, most: int) -> tuple[Doubles, Floats]:
    """Whole numbers up to `most` and a scale for each row: their product is about `exact` [rows, dim]."""
    with np.errstate(over="ignore"):
        scales = (np.abs(exact).max(axis=1) / most).astype(np.float32)
    scales[(scales == 0) | ~np.isfinite(scales)] = 1
    return np.rint(exact / scales[:, None].astype(np.float64)).clip(-most, most), scales


def laid_out(whole: NDArray[np.int8]) -> NDArray[np.int8]:
    """[rows, dim] as [blocks, dim / STEP, STEP · ROWS]: a block of ROWS rows, STEP components of each side by side.
    Filled up with zeros."""
    rows, dim = whole.shape
    padded = np.zeros((rows + -rows % ROWS, dim + -dim % STEP), dtype=np.int8)
    padded[:rows, :dim] = whole
    steps = padded.shape[1] // STEP
    blocks = padded.reshape(-1, ROWS, steps, STEP).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(blocks).reshape(-1, steps, STEP * ROWS)


def as_float32(matrix: Matrix) -> Floats:
    """`matrix` as an array of float32; what is too large becomes infinity."""
    if not isinstance(matrix, np.ndarray):
        matrix = matrix.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):
        return np.asarray(matrix, dtype=np.float32)


LAYOUT = Layout("int8", 3, "int8 vectors")
GROUP = 64  # queries searched together
HELD = 1 << 22  # candidates of a group in memory: 64 MiB
CROWDED = 0.5  # share of the rows above which float32 products of all are as fast as those of the candidates
SCATTERED = 3  # rows in int8 that take as long as one in float32
SHARE = 1 << 20  # components of rows below which another thread is not worth its start
RUN = 64  # blocks that are read in a row
ROUNDING = float(np.finfo(np.float32).eps)
TINY, HUGE = 1e-32, 1e30  # beyond, products in float32 may underflow, overflow

Indices = NDArray[np.int64]


class Int8Matrix:
    """Vectors [rows, dim] as int8, and the same search as `search_exact` on the vectors they were made from.

    `packed` int8 [blocks, dim / 4, 64] holds blocks of 16 rows, four components of each row side by side. `bounds`
    float32 [4, 16 · blocks] has for each row its scale, its offset d·(x − m), its error |x − m − s·u| (−inf for the
    rows that fill the last block) and its norm |x − m|; `centre` is float32 [dim]. An `ArrayFolder` holds all three.

    `counts` says how many "queries" were searched, how many rows were "rescored" for them, and how many queries were
    answered in "float32" because too many rows came close, few rows far apart were asked for, or numba is missing.
    """

    def __init__(self, packed: NDArray[np.int8], bounds: Floats, centre: Floats, rows: int) -> None:
        self.packed, self.bounds, self.centre, self.rows = packed, bounds, centre, rows
        self.counts: Counter[str] = Counter()
        self._lock = Lock()
        self._direction, self._length = direction_of(centre)
        self._reach = self._length + float(bounds[3].max(initial=0))
        self._all = _spread(np.arange(len(packed)))

    @classmethod
    def build(cls, vectors: Matrix, path: str | Path | None = None) -> Int8Matrix:
        """Round `vectors` [rows, dim] to int8: in memory, or streamed into a folder at `path`, which appears whole or
        not at all; an older one is replaced. An array, memory map or tensor of any floating type, read in blocks.

        Raises BadInput for another shape, for NaN and infinity (naming the row), and for a `path` that holds
        something else.
        """
        if vectors.ndim != 2 or not vectors.shape[1]:
            raise BadInput(f"vectors of shape {tuple(vectors.shape)} cannot be held as int8: [rows, dim] is needed.")
        rows, dim = vectors.shape
        centre = centre_of(vectors)
        shape = (-(-rows // ROWS), -(-dim // STEP), STEP * ROWS)
        bounds: Floats = np.empty((4, shape[0] * ROWS), dtype=np.float32)
        parts = rounded_rows(vectors, centre, bounds)
        if path is None:
            packed: NDArray[np.int8] = np.empty(shape, dtype=np.int8)
            for start, part in zip(range(0, len(packed), BLOCK // ROWS), parts, strict=True):
                packed[start : start + len(part)] = part
            return cls(packed, bounds, centre, rows)
        with ArrayFolder.write(path, LAYOUT) as folder:
            folder.add("packed", np.empty((0, *shape[1:]), dtype=np.int8))
            for part in parts:
                folder.add("packed", part)
            folder.add("bounds", bounds)
            folder.add("centre", centre)
            folder.facts |= {"rows": rows, "dim": dim}
        return cls.load(path)

    @classmethod
    def load(cls, path: str | Path) -> Int8Matrix:
        """Open a folder, memory-mapped. Raises NotFound for one that is none, Damaged for one of another format and
        where a file is not as it was written."""
        with ArrayFolder.open(path, LAYOUT) as folder:
            rows, dim = (int(folder.facts[key]) for key in ("rows", "dim"))
            blocks = -(-rows // ROWS)
            return cls(
                folder.array("packed", "int8", (blocks, -(-dim // STEP), STEP * ROWS)),
                folder.array("bounds", "float32", (4, blocks * ROWS)),
                folder.array("centre", "float32", (dim,)),
                rows,
            )

    def __len__(self) -> int:
        return self.rows

    def search(
        self, queries: Matrix, vectors: Matrix, k: int, *, rows: Indices | None = None, tie_order: Indices | None = None
    ) -> tuple[Indices, Floats]:
        """The result of `search_exact(queries, vectors, k, rows=rows, tie_order=tie_order)`, faster. `vectors` must be
        those that this matrix was built from.

        `search_exact` itself ranks and scores the candidates, batch by batch (64 to 127 queries, or all when they are
        fewer). So scores are equal to the last bit where a matrix product sums alike whatever the number of passages,
        and of queries from 64 up; elsewhere to rounding. Uses as many threads as torch may, but no more than
        `NUMBA_NUM_THREADS`.

        Raises BadInput as `search_exact` does, and for vectors of another shape than those built from.
        """
        from interlingua.retrieval.dense.exact import search_exact

        if tuple(vectors.shape) != (self.rows, len(self.centre)):
            raise BadInput(
                f"vectors of shape {tuple(vectors.shape)} are not those of an int8 matrix of shape "
                f"{(self.rows, len(self.centre))}. Build it again from these."
            )
        query_vectors = as_float32(queries)
        if query_vectors.ndim != 2 or query_vectors.shape[1] != len(self.centre) or not len(query_vectors) or k < 1:
            return search_exact(query_vectors, vectors, k, rows=rows, tie_order=tie_order)  # which says what is wrong
        blocks, errors = self._where(rows)
        results = []
        for part in np.array_split(query_vectors, max(1, len(query_vectors) // GROUP)):
            near = self._candidates(part, k, blocks, errors)
            with self._lock:
                self.counts.update(
                    {
                        "queries": len(part),
                        "rescored": 0 if near is None else len(near),
                        "float32": len(part) if near is None else 0,
                    }
                )
            results.append(search_exact(part, vectors, k, rows=rows if near is None else near, tie_order=tie_order))
        indices, scores = zip(*results, strict=True)
        return np.concatenate(indices), np.concatenate(scores)

    def candidates(self, queries: Floats, k: int, rows: Indices | None = None) -> Indices | None:
        """The rows, in order, that may be among the `k` best of some query: all others of `rows` (None: of all) are
        ruled out. None where that cannot be told, and where to multiply all of them in float32 is no slower. Needs no
        torch, and no more than a hundred `queries` at once are of use."""
        return self._candidates(queries, k, *self._where(rows))

    def _where(self, rows: Indices | None) -> tuple[Indices, Floats]:
        """The blocks to scan (none where float32 is faster), in an order that soon meets rows from everywhere, and the
        errors of their rows, −inf for rows that are not asked for."""
        if rows is None:
            return self._all, self.bounds[2]
        mask = np.zeros(self.rows, dtype=bool)
        mask[rows] = True
        mask = np.pad(mask, (0, -self.rows % ROWS))
        blocks = np.flatnonzero(mask.reshape(-1, ROWS).any(axis=1))
        if len(blocks) * ROWS > SCATTERED * len(rows):
            return blocks[:0], self.bounds[2]
        return _spread(blocks), np.where(mask, self.bounds[2], np.float32(-np.inf))

    def _candidates(self, queries: Floats, k: int, blocks: Indices, errors: Floats) -> Indices | None:
        """The rows that may be among the k best of some query, in order; None where they are too many to be worth it,
        or cannot be told."""
        compiled, total = kernel(), len(blocks) * ROWS
        args = None if compiled is None or not total else self._asked(queries, compiled)
        if compiled is None or args is None:
            return None
        threads = max(1, min(machine.threads(), compiled.MOST_THREADS, total * len(self.centre) // SHARE))
        capacity = min(total, HELD // (threads * len(queries)))
        if capacity < 4 * k:
            return None
        scales, offsets, _, norms = self.bounds
        arrays = [self.packed.view(), *(array.reshape(-1, ROWS) for array in (scales, offsets, errors, norms)), *args]
        for array in arrays:
            array.flags.writeable = False  # one type, compiled once, for what is a memory map and what is not

        def share(part: Indices) -> list[tuple[Indices, Floats, Floats]] | None:
            rows = np.empty((len(queries), capacity), dtype=np.int64)
            highest, lowest = (np.empty(rows.shape, dtype=np.float32) for _ in range(2))
            counts = np.zeros(len(queries), dtype=np.int64)
            if not compiled.scan(part, *arrays, k, rows, highest, lowest, counts):
                return None
            return [(rows[i, :n], highest[i, :n], lowest[i, :n]) for i, n in enumerate(counts.tolist())]

        if threads == 1:
            shares = [share(blocks)]
        else:
            with ThreadPoolExecutor(threads) as pool:
                shares = list(pool.map(share, np.array_split(blocks, threads)))
        complete = [part for part in shares if part is not None]
        if len(complete) < len(shares):
            return None
        mask = np.zeros(self.rows, dtype=bool)
        for parts in zip(*complete, strict=True):
            mask[reaching(parts, k)] = True
        return np.flatnonzero(mask) if mask.sum() <= CROWDED * total else None

    def _asked(self, queries: Floats, compiled: ModuleType) -> tuple[NDArray[Any], Floats, NDArray[np.int32]] | None:
        """`queries`, the terms of their bounds, and how much their products are too large, as the kernel takes them;
        None where a score might overflow."""
        exact = queries.astype(np.float64)
        lengths = np.linalg.norm(exact, axis=1)
        if not (lengths * max(1.0, self._reach) < HUGE).all() or not self._reach < HUGE:
            return None
        dim = len(self.centre)
        along = (exact @ self._direction).astype(np.float32)
        rest = exact - along[:, None] * self._direction
        limit = min(compiled.MOST, (2**31 - 1) // ((127 + compiled.ZERO) * dim))  # sums stay within int32
        whole, steps = whole_numbers(rest, limit)
        rounded = whole * steps[:, None].astype(np.float64)
        rounding = ROUNDING * (dim + 64) * lengths  # of float32 sums, relative to the norm of a row
        size = compiled.QUERIES if len(queries) > 1 else 1
        places = -(-len(queries) // size) * size
        terms: Floats = np.zeros((places, 5), dtype=np.float32)
        shifts = np.zeros(places, dtype=np.int32)
        shifts[: len(queries)] = compiled.ZERO * whole.sum(axis=1)
        terms[: len(queries)].T[:] = (
            steps,
            along,
            UP * np.linalg.norm(rounded, axis=1),
            UP * (np.linalg.norm(rest - rounded, axis=1) + rounding),
            UP * (rounding * self._length + TINY * (1 + lengths)),
        )
        padded = np.pad(whole, ((0, places - len(queries)), (0, -dim % STEP)))
        numbers = padded.astype(np.int8 if compiled.BYTES else np.int16).reshape(places, -1, STEP)
        numbers = numbers.take(compiled.ORDER, axis=2)
        return numbers if size > 1 else numbers[0], terms, shifts


@cache
def kernel() -> ModuleType | None:
    """The module of numba's kernel, or None without numba (`pip install 'interlingua[index]'`)."""
    return compiled_module("retrieval.dense.int8_kernel", "dense search multiplies in float32")


def _spread(blocks: Indices) -> Indices:
    """`blocks` in runs from everywhere: passages that come in order of score, or all of one kind together, do not
    raise the bar one by one."""
    runs = [blocks[start : start + RUN] for start in range(0, len(blocks), RUN)]
    step = isqrt(len(runs)) + 1
    return np.concatenate([blocks[:0], *(run for start in range(step) for run in runs[start::step])])


def reaching(parts: Iterable[tuple[Indices, Floats, Floats]], k: int) -> Indices:
    """The candidates of one query, from all threads, whose highest value reaches the k-th largest lowest value."""
    rows, highest, lowest = (np.concatenate(column) for column in zip(*parts, strict=True))
    last = len(rows) - min(k, len(rows))
    return rows[highest >= np.partition(lowest, last)[last]] if len(rows) else rows
