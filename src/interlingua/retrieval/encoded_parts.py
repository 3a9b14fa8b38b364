"""Vectors that were computed before, in the place of the encoder that computed them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.vector_files import read_parquet
from interlingua.retrieval.vectors import Vectors


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
        """The vectors `[passages, dim]` of some passages of the parts. Raises InterlinguaError for one that is in none
        of those that are left."""
        found = []
        for passage in passages:
            while passage.key not in self._rows:
                self._next(passage)
            assert self._vectors is not None
            found.append(self._vectors[self._rows[passage.key]])
        return np.stack(found)

    def _next(self, wanted: Passage) -> None:
        part = next(self._rest, None)
        if part is None:
            raise InterlinguaError(f"passage {wanted.id!a}: is not among those that were encoded. Encode again.")
        chunks = list(read_parquet(part))
        self._vectors = np.concatenate([vectors for _, vectors in chunks])
        self._rows = {passage.key: row for row, passage in enumerate(p for held, _ in chunks for p in held)}
