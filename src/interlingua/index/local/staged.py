"""Encoded passages that wait until all of a write are encoded, so that one that was stopped need not encode them again.

A write is one version of the table, which begins when its last passage has been encoded. What it encodes is kept until
then in the folder `staged/` of the index, in parts of about `CHUNK` passages; the write that ends next removes it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_128

from interlingua.data.records import Passage
from interlingua.files import make_folder, sync
from interlingua.index.local.rows import COLUMN, arrow, subword_column, subwords_of
from interlingua.index.local.table import vectors_of
from interlingua.index.store import CHUNK, encode_passages
from interlingua.models.protocols import Encoder
from interlingua.retrieval.retriever import Vectors

logger = logging.getLogger(__name__)

FOLDER = "staged"
MADE_WITH = b"made_with"
Subwords = list[NDArray[np.int64]]


class Staged:
    """The vectors and subwords of the passages of one write to the index at `path`, whose table has this `schema`. Hold
    the writers' lock."""

    def __init__(self, path: Path, encoder: Encoder, schema: Any) -> None:
        self.folder, self.encoder, self.schema = path / FOLDER, encoder, schema
        self._keeps = True
        self._waiting: list[tuple[list[bytes], Vectors, Subwords]] = []
        self._known: dict[bytes, tuple[Path, int]] = {}
        self._open: tuple[Path | None, Any] = (None, None)
        self.again = 0
        """Passages that had been encoded before."""
        for file in sorted(self.folder.glob("*.arrow")):
            self._learn(file)

    def encoded(self, passages: Sequence[Passage]) -> tuple[Vectors, Subwords | None]:
        """As `encode_passages`: those that were encoded before are not encoded again, and the others are kept."""
        digests = list(map(digest_of, passages))
        new = [at for at, digest in enumerate(digests) if digest not in self._known]
        if not self._known:
            vectors, subwords = encode_passages(self.encoder, passages)
            self._keep(digests, vectors, subwords)
            return vectors, subwords
        dim = self.schema.field("vector").type.list_size
        vectors, words = np.empty((len(passages), dim), dtype=np.float32), [np.empty(0, np.int64)] * len(passages)
        if new:
            new_vectors, new_subwords = encode_passages(self.encoder, [passages[at] for at in new])
            if new_vectors.shape[1] != dim:
                return encode_passages(self.encoder, passages)  # for the table to refuse
            vectors[new] = new_vectors
            for at, ids in zip(new, new_subwords or (), strict=False):
                words[at] = ids
        for at, digest in enumerate(digests):
            if (place := self._known.get(digest)) is not None:
                vectors[at], words[at] = self._read(*place)
                self.again += 1
        if new:  # last: where the disk is full it removes what is read above
            self._keep([digests[at] for at in new], new_vectors, new_subwords)
        return vectors, words

    def done(self) -> None:
        """Remove all that is kept: the table has it."""
        if self.again:
            logger.info(f"went on with a write that was stopped: {self.again:,} passages had been encoded")
        shutil.rmtree(self.folder, ignore_errors=True)

    def stopped(self) -> None:
        """Keep also what waits, for the next try, if that is worth it."""
        if self.folder.exists():
            self._flush()

    @cached_property
    def _made_with(self) -> bytes:
        from interlingua.models.folder import fingerprint

        return json.dumps(fingerprint(self.encoder), sort_keys=True).encode()

    def _keep(self, digests: list[bytes], vectors: Vectors, subwords: Subwords | None) -> None:
        if not self._keeps:
            return
        self._waiting.append((digests, vectors, subwords or [np.empty(0, np.int64)] * len(digests)))
        if sum(len(part[0]) for part in self._waiting) >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        """Write what waits to a file that is called by its checksum, and sync it. Where the disk has no room for it,
        nothing is kept."""
        if not self._waiting:
            return
        try:
            self._write_part()
        except OSError as error:
            logger.info(f"{self.folder}: cannot be written ({error.strerror or error}), so what is encoded is not kept")
            self._keeps, self._known = False, {}
            shutil.rmtree(self.folder, ignore_errors=True)

    def _write_part(self) -> None:
        pa = arrow()
        make_folder(self.folder)
        digests = [digest for part in self._waiting for digest in part[0]]
        vectors = np.concatenate([part[1] for part in self._waiting]).astype(np.float32)
        words = [ids for part in self._waiting for ids in part[2]]
        self._waiting = []
        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
        columns = {
            "digest": pa.array(digests, pa.binary(16)),
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            COLUMN: subword_column(words, self.schema.field(COLUMN).type),
        }
        sink = pa.BufferOutputStream()
        batch = pa.record_batch(columns).replace_schema_metadata({MADE_WITH: self._made_with})
        with pa.ipc.new_file(sink, batch.schema) as stream:
            stream.write_batch(batch)
        content = memoryview(sink.getvalue())
        file = self.folder / f"{len(os.listdir(self.folder)):06}-{xxh3_64(content).hexdigest()}.arrow"
        file.write_bytes(content)
        sync([file, self.folder])

    def _learn(self, file: Path) -> None:
        """Take in a part of a write that was stopped, unless it is not what was written."""
        content, batch = file.read_bytes(), None
        if xxh3_64(content).hexdigest() == file.stem.rpartition("-")[2]:
            batch = arrow().ipc.open_file(content).get_batch(0)
        if batch is None or batch.schema.metadata.get(MADE_WITH) != self._made_with:
            file.unlink()
            return
        for row, digest in enumerate(batch.column("digest").to_pylist()):
            self._known[digest] = file, row

    def _read(self, file: Path, row: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self._open[0] != file:
            batch = arrow().ipc.open_file(file.read_bytes()).get_batch(0)
            dim = batch.schema.field("vector").type.list_size
            self._open = file, (vectors_of(batch, dim), subwords_of(batch))
        vectors, words = self._open[1]
        return vectors[row], words[row]


def digest_of(passage: Passage) -> bytes:
    """16 bytes that stand for all that a passage is made of."""
    parts = [*passage.key, passage.lang, passage.title, passage.text, sorted(passage.metadata.items())]
    return xxh3_128(json.dumps(parts).encode()).digest()
