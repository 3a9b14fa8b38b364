"""Passages and their subwords as rows of Arrow: what the table keeps and caches map into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.index.filters import Condition, Mask, Values
from interlingua.text.languages import is_unicode

Rows = NDArray[np.int64]
BATCH = 4096
"""Rows of every batch but the last, so that a row is found without searching."""
AT_ONCE = 1 << 18
"""Rows of which something is computed at once, where all together would take much memory."""
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


def among(numbers: Rows, others: Rows) -> NDArray[np.bool_]:
    """[rows]: whether each of `numbers` is one of `others`, which are sorted. `np.isin` sorts both together, and of
    millions that takes a hundred bytes a row."""
    mask = np.zeros(len(numbers), dtype=bool)
    for start in range(0, len(numbers) if len(others) else 0, AT_ONCE):
        chunk = numbers[start : start + AT_ONCE]
        mask[start : start + AT_ONCE] = others[np.searchsorted(others, chunk).clip(max=len(others) - 1)] == chunk
    return mask


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


class MetadataColumn:
    """The values under one key of metadata: `codes` [rows] counts into the distinct ones, −1 where there is none."""

    def __init__(self, codes: NDArray[np.int32], texts: Any) -> None:
        self.codes, self._texts = codes, texts

    @cached_property
    def values(self) -> Values:
        """The distinct values."""
        return Values(self._texts.to_pylist())

    def where(self, one: Condition) -> Mask:
        """[rows]: whether each fits a condition of this key."""
        if one.bounds:
            mask = one.holds(self.values)
        else:  # by Arrow, as there may be as many values as rows
            indices = compute().indices_nonzero(compute().is_in(self._texts, value_set=_strings(one.values)))
            mask = np.zeros(len(self._texts), dtype=bool)
            mask[np.from_dlpack(indices)] = True
        return np.append(mask, False)[self.codes]

    def counts(self, mask: Mask | None) -> Counter[str]:
        """Each value with the number of its rows among those of `mask` (None: all)."""
        codes = self.codes if mask is None else self.codes[mask]
        numbers = np.bincount(codes[codes >= 0], minlength=len(self._texts))
        indices = np.flatnonzero(numbers)
        pa = arrow()  # `pa.array` would import pandas, too
        places = pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices.astype(np.int64))])
        texts = self._texts.take(places).to_pylist()
        return Counter(dict(zip(texts, numbers[indices].tolist(), strict=True)))


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

    def id(self, row: int) -> str:
        """The id of a row."""
        id: str = self._columns[row // BATCH][0][row % BATCH].as_py()
        return id

    def source(self, row: int) -> str:
        """The source of a row."""
        source: str = self.batches[row // BATCH].column("source")[row % BATCH].as_py()
        return source

    def find(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """The rows that have these ids; an id that no row has is left out."""
        pa = arrow()
        values = pa.array(dict.fromkeys(name for name in ids if is_unicode(name)), pa.string())
        rows: dict[str, list[int]] = {}
        for number, batch in enumerate(self.batches):
            for row in np.flatnonzero(compute().is_in(batch.column("id"), value_set=values)).tolist():
                rows.setdefault(batch.column("id")[row].as_py(), []).append(number * BATCH + row)
        return rows

    def column(self, key: str) -> MetadataColumn:
        """The values under `key` in the metadata of all rows."""
        pa, pc = arrow(), compute()
        codes = np.full(len(self), -1, dtype=np.int32)
        rows, parts = [], []  # of each batch: the texts of millions of rows side by side take hundreds of megabytes
        for batch in self.batches:
            column = batch.column("metadata")
            pairs = column.flatten()
            indices = pc.indices_nonzero(pc.equal(pairs.field("key"), _strings([key])[0]))
            # `to_numpy` would import pandas, too
            rows.append(np.from_dlpack(pc.list_parent_indices(column).take(indices)).astype(np.int16))
            parts.append(pairs.field("value").take(indices).dictionary_encode())
        whole = pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.string())).unify_dictionaries()
        for number, (places, part) in enumerate(zip(rows, whole.chunks, strict=True)):
            codes[number * BATCH : (number + 1) * BATCH][places] = np.from_dlpack(part.indices)
        return MetadataColumn(codes, whole.chunk(0).dictionary if parts else pa.array([], pa.string()))

    def keys(self, mask: Mask | None) -> set[str]:
        """The keys in the metadata of the rows of `mask`, None for all."""
        pc, keys = compute(), set[str]()
        for number, batch in enumerate(self.batches):
            column = batch.column("metadata")
            if mask is not None:
                column = column.take(arrow().array(np.flatnonzero(mask[number * BATCH : (number + 1) * BATCH])))
            keys.update(pc.unique(column.flatten().field("key")).to_pylist())
        return keys

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
        sort_keys = [("id", "descending"), ("source", "descending")]
        order = pc.sort_indices(table, sort_keys=sort_keys[:1])
        ids = table.column("id").take(order)
        if len(ids) > 1 and pc.any(pc.equal(ids[1:], ids[:-1])).as_py():  # seldom, and slower
            order = pc.sort_indices(table, sort_keys=sort_keys)
        order = order.to_numpy()
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks


def _strings(texts: Sequence[str]) -> Any:
    """An array of strings of Arrow. `pyarrow.array` and `pyarrow.scalar` would import pandas, which takes half a
    second."""
    pa, content = arrow(), [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, content)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(content), pa.py_buffer(ends), pa.py_buffer(b"".join(content)))


def _is_unicode(passage: Passage) -> bool:
    texts = (passage.id, passage.lang, passage.title, passage.text, *passage.metadata, *passage.metadata.values())
    return all(isinstance(text, str) and is_unicode(text) for text in texts)


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

    def __getitem__(self, row: int) -> NDArray[Any]:
        """The subwords of a passage, integers of the column's type."""
        ends, flat = self._columns[row // BATCH]
        subwords: NDArray[Any] = flat[ends[row % BATCH] : ends[row % BATCH + 1]]
        return subwords


def subwords_of(batch: Any) -> list[NDArray[np.int64]]:
    """The subwords of each row of a batch of the store."""
    column = batch.column(COLUMN)
    ends, flat = column.offsets.to_numpy(), column.values.to_numpy().astype(np.int64)
    return [flat[start:end] for start, end in pairwise(ends)]
