"""A run: for each query, its passages in rank order. Every ranking is ordered here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interlingua.errors import BadInput
from interlingua.files import atomic_write, read_lines

Vectors = NDArray[np.float32]


def gold_ranks(
    queries: Vectors,
    passages: Vectors,
    golds: Sequence[NDArray[np.int64]],
    tie_order: NDArray[np.int64],
    *,
    block: int = 256,
) -> list[NDArray[np.int64]]:
    """For each query the ranks (from 1, ascending) of its gold passages among ALL passages.

    `queries` [queries, dim] and `passages` [passages, dim] are float32; `golds[i]` holds the indices of the
    gold passages of query i (none is allowed); `tie_order` [passages] is the project's tie order
    (`interlingua.retrieval.dense.exact.tie_ranks`). Score matrices are held for `block` queries at a time. Equal
    passages have equal scores, to the last bit.
    """
    if not len(golds) == len(queries) or len(tie_order) != len(passages):
        raise BadInput(
            f"{len(queries)} queries with {len(golds)} gold lists, {len(passages)} passages with "
            f"{len(tie_order)} tie ranks: the numbers must agree."
        )
    # a product may round equal rows in different ways, as they lie in another place: it is made of each once
    first: dict[bytes, int] = {}
    inverse = np.array([first.setdefault(passage.tobytes(), len(first)) for passage in passages], dtype=np.int64)
    distinct = passages[np.unique(inverse, return_index=True)[1]]
    ranks: list[NDArray[np.int64]] = []
    for start in range(0, len(queries), block):
        scores = (queries[start : start + block] @ distinct.T)[:, inverse]
        for row, gold in zip(scores, golds[start : start + block], strict=True):
            ahead = [int((row > row[g]).sum() + ((row == row[g]) & (tie_order < tie_order[g])).sum()) for g in gold]
            ranks.append(np.sort(np.array(ahead, dtype=np.int64)) + 1)
    return ranks


def average_precision(ranks: NDArray[np.int64]) -> float:
    """Average precision of one query from the ranks (from 1, ascending) of ALL its relevant passages; 0 without any."""
    if not len(ranks):
        return 0.0
    return float((np.arange(1, len(ranks) + 1) / ranks).mean())


def docid_order(ids: Sequence[str]) -> NDArray[np.int64]:
    """Positions of `ids` in docid-descending order, the order in which trec_eval breaks ties.

    trec_eval compares bytes. UTF-8 was made so that bytes and code points order alike, and Python
    compares strings by code point: no encoding is needed.
    """
    return np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), dtype=np.int64)


def ranking_order(scores: Vectors, docids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of `scores` [documents] as trec_eval ranks them; `docids` is the `docid_order` of the documents."""
    order: NDArray[np.int64] = docids[np.argsort(-scores[docids], kind="stable")]
    return order


class _Unnamed(NamedTuple):
    """Passages of a query by their places in `names`."""

    names: Sequence[str]
    rows: NDArray[np.int64]


class Run(Mapping[str, list[tuple[str, float]]]):
    """Query id → `[(passage id, score), …]`, best first, ordered as trec_eval orders:
    score as a 32-bit float descending, ties by docid descending, cut only after sorting.

    A query may have an empty list: it is in the run, and nothing was found. Two runs are equal when they
    hold the same queries (in any order) with the same ids and the same float32 scores in the same order.
    """

    def __init__(self) -> None:
        self._ids: dict[str, list[str] | _Unnamed] = {}
        self._scores: dict[str, NDArray[np.float32]] = {}

    @classmethod
    def from_scores(cls, scores: Mapping[str, Mapping[str, float]]) -> Run:
        """A run from query id → passage id → score (the nested dict of ir-measures and pytrec_eval)."""
        run = cls()
        for query_id, results in scores.items():
            run.add(query_id, list(results), list(results.values()))
        return run

    @classmethod
    def joined(cls, runs: Iterable[Run], queries: Iterable[str], depth: int | None = None) -> Run:
        """One run with these `queries` (ids) of `runs` over different passages, the `depth` best of each query where it
        is given. A run is let go before the next one is taken."""
        results: dict[str, list[tuple[str, float]]] = {name: [] for name in queries}

        def best(name: str) -> Run:
            run = cls()
            run.add(name, [passage for passage, _ in results[name]], [score for _, score in results[name]])
            return run if depth is None else run.truncate(depth)

        for run in runs:
            for name in run.keys() & results.keys():
                results[name] += run[name]
                if depth is not None and len(results[name]) > depth:
                    results[name] = best(name)[name]
        union = cls()
        for name in results:
            best_run = best(name)
            union._ids[name], union._scores[name] = best_run._ids[name], best_run._scores[name]
        return union

    def add(self, query_id: str, ids: Sequence[str], scores: ArrayLike) -> None:
        """Add the results of one query, in any order; they are sorted here.

        Raises BadInput for a query added twice, unequal lengths, a document that occurs twice, NaN.
        """
        self._new(query_id)
        ids = list(ids)
        values = np.array(scores, dtype=np.float32)  # a copy: a caller may fill one buffer again and again
        if values.shape != (len(ids),):
            raise BadInput(f"query '{query_id}': {len(ids)} documents but scores of shape {values.shape}.")
        if len(set(ids)) != len(ids):
            repeat = next(name for name in ids if ids.count(name) > 1)
            raise BadInput(f"query '{query_id}': document '{repeat}' occurs twice. Keep one score for each document.")
        if np.isnan(values).any():
            name = ids[int(np.isnan(values).argmax())]
            raise BadInput(
                f"query '{query_id}': the score of document '{name}' is NaN. Look for NaN in the vectors or the model."
            )
        positions = np.flatnonzero(values[1:] >= values[:-1]).tolist()
        if any(values[i + 1] > values[i] or ids[i + 1] > ids[i] for i in positions):
            order = ranking_order(values, docid_order(ids))
            ids, values = [ids[i] for i in order], values[order]
        self._ids[query_id], self._scores[query_id] = ids, values

    def add_rows(
        self, query_id: str, rows: NDArray[np.int64], scores: NDArray[np.float32], names: Sequence[str]
    ) -> None:
        """Add the results of one query by their places in `names`, which must be distinct and in the order of the run.
        They are named when they are read, so `names` must not change.

        Raises BadInput for a query added twice.
        """
        self._new(query_id)
        self._ids[query_id], self._scores[query_id] = _Unnamed(names, rows), scores

    def _new(self, query_id: str) -> None:
        if query_id in self._ids:
            raise BadInput(f"query '{query_id}': already has results in this run. Merge them before adding.")

    def __getitem__(self, query_id: str) -> list[tuple[str, float]]:
        return list(zip(self._named(query_id), self._scores[query_id].tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, query_id: object) -> bool:
        return query_id in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return self.keys() == other.keys() and all(
            self._named(query_id) == other._named(query_id) and np.array_equal(scores, other._scores[query_id])
            for query_id, scores in self._scores.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Run: {len(self):,} queries, {sum(map(len, self._scores.values())):,} results>"

    def ids(self, query_id: str) -> list[str]:
        """The passage ids of one query, best first."""
        return list(self._named(query_id))

    def _named(self, query_id: str) -> list[str]:
        ids = self._ids[query_id]
        if isinstance(ids, _Unnamed):
            ids = self._ids[query_id] = list(map(ids.names.__getitem__, ids.rows.tolist()))
        return ids

    def rows(self) -> Iterator[tuple[str, str, int, float]]:
        """`(query id, passage id, rank from 1, score)` of every result, in rank order."""
        for query_id in self:
            for rank, (passage_id, score) in enumerate(self[query_id], 1):
                yield query_id, passage_id, rank, score

    def truncate(self, depth: int) -> Run:
        """A run with the first `depth` results of each query."""
        if depth < 0:
            raise BadInput(f"depth {depth}: must not be negative.")
        shorter = Run()
        shorter._ids = {
            query_id: _Unnamed(ids.names, ids.rows[:depth]) if isinstance(ids, _Unnamed) else ids[:depth]
            for query_id, ids in self._ids.items()
        }
        shorter._scores = {query_id: scores[:depth] for query_id, scores in self._scores.items()}
        return shorter

    @classmethod
    def read_trec(cls, path: str | Path) -> Run:
        """Read `query Q0 document rank score tag` lines, gzipped or not.

        The rank column is ignored, as trec_eval ignores it. Blank lines are allowed.
        Raises BadInput naming file, line and reason.
        """
        from interlingua.data.readers.rows import BadRow, BadRows

        scores: dict[str, dict[str, float]] = {}

        def parse(line: str) -> None:
            fields = line.split()
            if len(fields) != 6:
                raise BadRow(f"{len(fields)} fields")
            query_id, _, passage_id, _, text, _ = fields
            try:
                score = float(text)
            except ValueError:
                raise BadRow(f"the score '{text}' is not a number") from None
            if score != score:
                raise BadRow("the score is NaN")
            documents = scores.setdefault(query_id, {})
            if passage_id in documents:
                raise BadRow(f"document '{passage_id}' occurs twice for query '{query_id}'")
            documents[passage_id] = score

        lines = ((number, line) for number, line in read_lines(path) if line.strip())
        advice = "A TREC run has 6 fields (query Q0 document rank score tag), and each document of a query once."
        for _ in BadRows(advice=advice).parsed(Path(path), lines, parse):
            pass
        return cls.from_scores(scores)

    def write_trec(self, path: str | Path, tag: str = "interlingua") -> None:
        """Write a TREC run file (gzipped when the name ends in .gz), whole or not at all.

        Scores have 9 significant digits: reading them back gives the same float32. The format has no
        line for a query without results; such a query is absent from the file (and scores 0 all the same).
        Raises BadInput for an id or tag that is empty or holds white space.
        """
        check_word(tag, "tag")
        with atomic_write(path) as stream:
            for query_id, passage_id, rank, score in self.rows():
                check_word(query_id, "query id")
                check_word(passage_id, "document id")
                stream.write(f"{query_id} Q0 {passage_id} {rank} {score:.9g} {tag}\n")


def check_word(word: str, what: str) -> None:
    """Raise BadInput for what cannot be a field of a TREC run or qrels."""
    if word.split() != [word]:
        raise BadInput(f"{what} {word!r}: a TREC run separates fields by white space. Use one without spaces.")
