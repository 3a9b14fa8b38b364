"""Passages and their vectors as files: Parquet, or NumPy's .npy with JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from interlingua.array_folder import ArrayWriter
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.files import atomic_folder, atomic_write, open_raw
from interlingua.index.local.rows import PASSAGE, TEXTS, arrow, passages_of, text_schema, to_rows
from interlingua.index.local.table import vectors_of
from interlingua.index.store import CHUNK, chunks
from interlingua.models.dual import DualEncoder
from interlingua.models.protocols import Encoder
from interlingua.retrieval.retriever import Vectors, embed_passages

Chunk = tuple[list[Passage], Vectors]
"""Passages and their vectors `[passages, dim]`."""
ARRAY, ROWS = "vectors.npy", "ids.jsonl"
COLUMNS = ("id", "lang", "vector", "text", "title", "metadata")


def encoded(encoder: Encoder, passages: Iterable[Passage], size: int = CHUNK, **options: Any) -> Iterator[Chunk]:
    """`passages`, read once, with their vectors as an index keeps them (float32, of unit length under cosine), `size`
    at a time. `options` go to `encode_document`."""
    for part in chunks(passages, size):
        yield part, embed_passages(encoder, part, **options)


def write_parquet(file: str | Path, chunks: Iterable[Chunk]) -> int:
    """Write columns `id, lang, vector, text, title, metadata`, a row group for each chunk; the number of rows.

    `vector` is a fixed-size list of float32, `metadata` a list of keys and values. The file is whole or not at all, and
    only one chunk is in memory. Raises BadInput when there is no passage, and for text that is no Unicode.
    """
    pa, pq = arrow(), _parquet()
    dim, chunks = _first(chunks)
    kinds = {**{field.name: field.type for field in text_schema()}, "vector": pa.list_(pa.float32(), dim)}
    schema = pa.schema([(name, kinds[name]) for name in COLUMNS])
    count = 0
    with atomic_write(file, "wb") as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for passages, vectors in chunks:
            flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
            columns = {
                **dict(zip(TEXTS, to_rows(passages).columns, strict=True)),
                "vector": pa.FixedSizeListArray.from_arrays(flat, dim),
            }
            writer.write_batch(pa.record_batch([columns[name] for name in COLUMNS], schema=schema))
            count += len(passages)
    return count


def read_parquet(file: str | Path) -> Iterator[Chunk]:
    """Read a file of `write_parquet`, a row group at a time. Raises Damaged for any other file."""
    pa, pq = arrow(), _parquet()
    try:
        with open_raw(file) as stream, pq.ParquetFile(stream) as reader:
            dim = reader.schema_arrow.field("vector").type.list_size
            for group in range(reader.num_row_groups):
                batch = reader.read_row_group(group).combine_chunks().to_batches()[0]
                yield passages_of(batch), vectors_of(batch, dim)
    except (OSError, KeyError, AttributeError, pa.ArrowException) as error:
        raise Damaged(f"{file}: is damaged, or not a file of vectors ({error}).") from error


def write_npy(folder: str | Path, chunks: Iterable[Chunk]) -> int:
    """Write a folder with `vectors.npy` float32 `[passages, dim]`, which `numpy.load(…, mmap_mode="r")` opens without
    reading it, and `ids.jsonl`, line i being `{id, lang, title, text, metadata}` of row i; the number of rows.

    Whole or not at all; only one chunk is in memory. Raises BadInput when there is no passage.
    """
    _, chunks = _first(chunks)
    count = 0
    with (
        atomic_folder(folder, ARRAY) as place,
        ArrayWriter(place) as arrays,
        open(place / ROWS, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as rows,
    ):
        for passages, vectors in chunks:
            arrays.add("vectors", np.asarray(vectors, dtype=np.float32))
            for passage in passages:
                row = {**{name: getattr(passage, name) for name in PASSAGE}, "metadata": dict(passage.metadata)}
                rows.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += len(passages)
    return count


def _first(chunks: Iterable[Chunk]) -> tuple[int, Iterable[Chunk]]:
    """The dimension of the vectors, and all chunks."""
    rest = iter(chunks)
    first = next(rest, None)
    if first is None:
        raise BadInput("there is no passage to write.")
    return first[1].shape[1], chain([first], rest)


def _parquet() -> Any:
    from pyarrow import parquet  # type: ignore[import-untyped]

    return parquet


class EncodedParts(DualEncoder):
    """The encoder `model`, whose vectors of passages are those in `parts`, as far as they are asked for in their order.

    With it an index is built of parts by the same calls as of passages: `Index.build(encoder, encoder.passages(), …)`.
    It may leave out passages (a build that goes on does), but not go back to an earlier part.
    """

    def __init__(self, model: DualEncoder, parts: Sequence[Path]) -> None:
        super().__init__(model.query, model.own_passage)
        self._parts = list(parts)
        self._rest = iter(self._parts)
        self._rows: dict[tuple[str, str], int] = {}
        self._vectors: Vectors | None = None

    def passages(self) -> Iterator[Passage]:
        """All passages of the parts, in their order."""
        for part in self._parts:
            for passages, _ in read_parquet(part):
                yield from passages

    def passage_vectors(self, passages: Sequence[Passage]) -> Vectors:
        """The vectors `[passages, dim]` of some passages of the parts. Raises BadInput for one that is in none
        of those that are left."""
        vectors = []
        for passage in passages:
            while passage.key not in self._rows:
                self._next(passage)
            assert self._vectors is not None
            vectors.append(self._vectors[self._rows[passage.key]])
        return np.stack(vectors)

    def _next(self, passage: Passage) -> None:
        part = next(self._rest, None)
        if part is None:
            raise NotFound(f"passage {passage.id!a}: is not among those that were encoded. Encode again.")
        chunks = list(read_parquet(part))
        self._vectors = np.concatenate([vectors for _, vectors in chunks])
        self._rows = {passage.key: row for row, passage in enumerate(p for passages, _ in chunks for p in passages)}
