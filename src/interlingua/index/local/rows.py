"""Passages and their subwords as rows of Arrow: what the table keeps and caches map into memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound

Rows = NDArray[np.int64]
BATCH = 4096
"""Rows of every batch but the last, so that a row is found without searching."""
PASSAGE = ("id", "lang", "title", "text", "metadata")
"""The columns that a passage is made of."""
TEXTS = ("id", "source", *PASSAGE[1:])
"""The columns of text in a table. `source` repeats an entry of `metadata`: with `id` it tells passages apart."""


def rows_of(wanted: Sequence[int] | Rows, numbers: Rows, order: Rows) -> Rows:
    """The row of each of the `wanted` among `numbers`, which `order` sorts; −1 for one that is not there."""
    if not len(numbers):
        return np.full(len(wanted), -1, dtype=np.int64)
    rows = order[np.searchsorted(numbers, wanted, sorter=order).clip(max=len(numbers) - 1)]
    return np.where(numbers[rows] == wanted, rows, -1)


def arrow() -> Any:
    """pyarrow, which the extra `index` brings."""
    try:
        import pyarrow  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise NotFound("an index needs lancedb and pyarrow: pip install 'interlingua[index]'") from None
    return pyarrow


def compute() -> Any:
    """pyarrow's functions over columns."""
    arrow()
    import pyarrow.compute as functions  # type: ignore[import-untyped, unused-ignore]

    return functions


def text_schema() -> Any:
    """`TEXTS` with their types. `metadata` is a list of keys and values, in the order of its keys."""
    pa = arrow()
    pair = pa.struct([("key", pa.string()), ("value", pa.string())])
    return pa.schema([(name, pa.string()) for name in TEXTS[:-1]] + [("metadata", pa.list_(pair))])


def to_rows(passages: Sequence[Passage]) -> Any:
    """A record batch of `text_schema`. Raises BadInput for text that is no Unicode (half a surrogate pair)."""
    pa = arrow()
    columns = {name: [getattr(passage, name) for passage in passages] for name in TEXTS[:-1]}
    pairs = [[{"key": key, "value": value} for key, value in sorted(passage.metadata.items())] for passage in passages]
    schema = text_schema()
    try:
        return pa.record_batch({**columns, "metadata": pairs}, schema=schema)
    except (UnicodeEncodeError, pa.ArrowException, TypeError) as error:
        bad = next((passage.id for passage in passages if not _is_unicode(passage)), passages[0].id)
        raise BadInput(
            f"passage {bad!a}: its id, language, title, text and metadata must be strings of valid Unicode ({error})."
        ) from error


def passage_of(row: Mapping[str, Any]) -> Passage:
    """The passage that `to_rows` wrote."""
    return Passage(
        row["id"],
        row["text"],
        row["title"],
        row["lang"],
        {pair["key"]: pair["value"] for pair in row["metadata"] or ()},
    )


def passages_of(batch: Any) -> list[Passage]:
    """The passages of a batch with the columns `PASSAGE` and perhaps others."""
    return [passage_of(row) for row in batch.select(list(PASSAGE)).to_pylist()]


class PassageRows:
    """Batches of passages, all but the last of `BATCH` rows: in memory, or a file that is mapped into it."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self.batches = list(batches)
        self._columns = [[batch.column(name) for name in PASSAGE] for batch in self.batches]

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> PassageRows:
        """Rows in memory."""
        return cls([to_rows(passages[start : start + BATCH]) for start in range(0, len(passages), BATCH)])

    @classmethod
    def open(cls, file: Path) -> PassageRows:
        """The rows of an Arrow file, read when they are needed."""
        pa = arrow()
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        if reader.schema != text_schema():
            raise ValueError(f"{file.name}: other columns")
        rows = cls([reader.get_batch(i) for i in range(reader.num_record_batches)])
        if any(batch.num_rows != BATCH for batch in rows.batches[:-1]):
            raise ValueError(f"{file.name}: batches of another size")
        return rows

    def __len__(self) -> int:
        return BATCH * (len(self.batches) - 1) + int(self.batches[-1].num_rows) if self.batches else 0

    def __getitem__(self, row: int) -> Passage:
        cells = (column[row % BATCH].as_py() for column in self._columns[row // BATCH])
        return passage_of(dict(zip(PASSAGE, cells, strict=True)))

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The ids of some rows."""
        return [self._columns[row // BATCH][0][row % BATCH].as_py() for row in rows]

    def source(self, row: int) -> str:
        """The source of a row."""
        source: str = self.batches[row // BATCH].column("source")[row % BATCH].as_py()
        return source

    def find(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """The rows that have these ids; an id that no row has is left out."""
        pa = arrow()
        asked = pa.array(dict.fromkeys(name for name in ids if _encodes(name)), pa.string())
        found: dict[str, list[int]] = {}
        for number, batch in enumerate(self.batches):
            for row in np.flatnonzero(compute().is_in(batch.column("id"), value_set=asked)).tolist():
                found.setdefault(batch.column("id")[row].as_py(), []).append(number * BATCH + row)
        return found

    def where(self, key: str, value: str) -> NDArray[np.bool_]:
        """[rows]: whether the metadata of each has `value` under `key`."""
        pc = compute()
        mask = np.zeros(len(self), dtype=bool)
        if not (_encodes(key) and _encodes(value)):
            return mask
        wanted = [_scalar(text) for text in (key, value)]
        for number, batch in enumerate(self.batches):
            column = batch.column("metadata")
            pairs = column.flatten()
            equal = pc.and_(pc.equal(pairs.field("key"), wanted[0]), pc.equal(pairs.field("value"), wanted[1]))
            parents = pc.list_parent_indices(column).take(pc.indices_nonzero(equal))
            mask[number * BATCH + np.from_dlpack(parents)] = True  # `to_numpy` would import pandas, too
        return mask

    def ties(self) -> Rows:
        """[rows]: the place of each among all when ordered by id descending, the project's tie order; equal ids by
        source descending."""
        pa, pc = arrow(), compute()
        table = pa.table(
            {
                name: pa.chunked_array([batch.column(name) for batch in self.batches], pa.string())
                for name in ("id", "source")
            }
        )
        by = [("id", "descending"), ("source", "descending")]
        order = pc.sort_indices(table, sort_keys=by[:1])
        ids = table.column("id").take(order)
        if len(ids) > 1 and pc.any(pc.equal(ids[1:], ids[:-1])).as_py():  # seldom, and slower
            order = pc.sort_indices(table, sort_keys=by)
        order = order.to_numpy()
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks


def _scalar(text: str) -> Any:
    """A string of Arrow. `pyarrow.scalar` would import pandas, which takes half a second."""
    pa, content = arrow(), text.encode()
    ends = np.array([0, len(content)], dtype=np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(content))[0]


def _is_unicode(passage: Passage) -> bool:
    texts = (passage.id, passage.lang, passage.title, passage.text, *passage.metadata, *passage.metadata.values())
    return all(isinstance(text, str) and _encodes(text) for text in texts)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
