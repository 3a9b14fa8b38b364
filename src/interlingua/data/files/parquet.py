"""Parquet tables, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interlingua.data.files.report import BadFile, Report
from interlingua.data.files.rows import Row, choose_columns, to_row
from interlingua.errors import InterlinguaError
from interlingua.files import open_raw

BATCH = 1_000


def read_parquet(path: Path, columns: Mapping[str, str], report: Report, left_out: set[str]
                 ) -> Iterator[tuple[int, Row]]:
    """(number, row) of every row. Columns of lists, objects and bytes (vectors, images) are not even read, and of the
    others a batch at a time, also where the whole file is one row group.

    Raises BadFile for a file that is no Parquet or has no column of text, InterlinguaError where pyarrow is missing.
    """
    try:
        import pyarrow as arrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise InterlinguaError(f"{path}: reading Parquet needs pyarrow: pip install 'interlingua[index]'.") from error
    try:
        with open_raw(path) as stream, parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20) as table:
            schema = table.schema_arrow
            chosen = choose_columns(schema.names, columns)
            text = schema.field(chosen["text"]).type
            kind = text.value_type if arrow.types.is_dictionary(text) else text
            if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind)
                    or arrow.types.is_string_view(kind)):
                raise BadFile(f"column '{chosen['text']}' holds {text}, not text")
            flat = [field.name for field in schema if _is_flat(arrow, field.type)]
            left_out.update(set(schema.names) - set(flat))
            yield from report.parsed(path, _rows(table, flat), lambda cells: to_row(cells, chosen, left_out))
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadFile(f"cannot be read as Parquet ({str(error).splitlines()[0]})") from error


def _is_flat(arrow: Any, kind: Any) -> bool:
    return not (arrow.types.is_nested(kind) or arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind)
                or arrow.types.is_fixed_size_binary(kind) or arrow.types.is_binary_view(kind))


def _rows(table: Any, names: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for batch in table.iter_batches(batch_size=BATCH, columns=names):
        for cells in batch.to_pylist():
            number += 1
            yield number, cells
