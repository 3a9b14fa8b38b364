"""The subwords of passages as rows of Arrow, in the batches of `PassageRows`: in memory, or mapped from a file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.retrieval.passage_rows import BATCH, arrow

COLUMN = "subwords"
SHORT = 1 << 16
"""Vocabularies up to this size take two bytes a subword, others four."""


def subword_type(vocabulary: int) -> Any:
    """The type of the column for subwords of a vocabulary of this size, 0 for an encoder whose subwords say nothing."""
    pa = arrow()
    return pa.list_(pa.uint16() if vocabulary <= SHORT else pa.int32())


def subword_column(subwords: Sequence[NDArray[np.int64]], kind: Any) -> Any:
    """The column that holds the subwords of each passage."""
    pa = arrow()
    ends = np.cumsum([0, *map(len, subwords)]).astype(np.int32)
    flat = np.concatenate([np.empty(0, dtype=np.int64), *subwords])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat.astype(kind.value_type.to_pandas_dtype())))


class SubwordRows:
    """Columns of subwords, all but the last of `BATCH` rows."""

    def __init__(self, columns: Sequence[Any]) -> None:
        # views; `to_numpy` would import pandas, which takes long
        self._columns = [(np.from_dlpack(column.offsets), np.from_dlpack(column.values)) for column in columns]

    @classmethod
    def of(cls, subwords: Sequence[NDArray[np.int64]]) -> SubwordRows:
        """Rows in memory."""
        kind = subword_type(SHORT + 1)
        return cls([subword_column(subwords[start : start + BATCH], kind) for start in range(0, len(subwords), BATCH)])

    @classmethod
    def open(cls, file: Path) -> SubwordRows:
        """The rows of an Arrow file, read when they are needed. Raises ValueError for other columns or batches."""
        pa = arrow()
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        if reader.schema.names != [COLUMN] or not pa.types.is_list(reader.schema.field(0).type):
            raise ValueError(f"{file.name}: other columns")
        rows = cls([reader.get_batch(number).column(0) for number in range(reader.num_record_batches)])
        if any(len(ends) != BATCH + 1 for ends, _ in rows._columns[:-1]):
            raise ValueError(f"{file.name}: batches of another size")
        return rows

    def __len__(self) -> int:
        return sum(len(ends) - 1 for ends, _ in self._columns)

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        """The subwords of a passage."""
        ends, flat = self._columns[row // BATCH]
        found: NDArray[np.int64] = flat[ends[row % BATCH] : ends[row % BATCH + 1]].astype(np.int64)
        return found


def subwords_of(batch: Any) -> list[NDArray[np.int64]]:
    """The subwords of each row of a batch of the store."""
    column = batch.column(COLUMN)
    ends, flat = column.offsets.to_numpy(), column.values.to_numpy().astype(np.int64)
    return [flat[start:end] for start, end in pairwise(ends)]
