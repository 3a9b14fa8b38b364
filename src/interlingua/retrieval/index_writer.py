"""Passages to rows of an index's store: encoded, checked, and handed over in one piece."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.retrieval.passage_names import twice
from interlingua.retrieval.passage_rows import arrow, to_rows
from interlingua.retrieval.static_maxsim import StaticMaxSim
from interlingua.retrieval.vectors import PassageVectors, TextEncoder, Vectors, embed_passages

CHUNK = 4096  # passages encoded at a time


def distinct(passages: Iterable[Passage], keys: set[tuple[str, str]]) -> Iterator[Passage]:
    """`passages`, whose keys join `keys`. Raises InterlinguaError for one that is there already."""
    for passage in passages:
        if (key := passage.key) in keys:
            raise twice(passage)
        keys.add(key)
        yield passage


def chunks(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    """`passages`, `CHUNK` at a time."""
    stream = iter(passages)
    while chunk := list(islice(stream, CHUNK)):
        yield chunk


def encoded(encoder: TextEncoder, passages: Sequence[Passage], **options: Any
            ) -> tuple[Any, Vectors, list[NDArray[np.int64]] | None]:
    """What `PassageStore.batch` takes: the texts as rows, their vectors, and their subwords for `StaticMaxSim`."""
    return to_rows(passages), *vectors_and_subwords(encoder, passages, **options)


def vectors_and_subwords(encoder: TextEncoder, passages: Sequence[Passage], **options: Any
                         ) -> tuple[Vectors, list[NDArray[np.int64]] | None]:
    """The vectors of `embed_passages`, and the passages' subwords (None where the encoder has no `StaticMaxSim`)."""
    words = StaticMaxSim.of(encoder)
    if words is None:
        return embed_passages(encoder, passages, **options), None
    home = next(kind for kind in type(encoder).__mro__ if "static_sides" in vars(kind))
    own = type(encoder).encode_document is vars(home)["encode_document"]  # no subclass that encodes in its own way
    if options or isinstance(encoder, PassageVectors) or not own:  # the vectors are others, or at hand
        return embed_passages(encoder, passages, **options), words.subwords(passages)
    subwords, vectors = words.encode(passages)
    return vectors, subwords


@contextmanager
def spooled(batches: Iterable[Any], schema: Any, folder: Path) -> Iterator[tuple[int, Any]]:
    """How many rows `batches` have, and a reader of them. They are kept in a file in `folder` until then, so that all
    are there before the first is written to the store, and none in memory."""
    pa = arrow()
    with tempfile.TemporaryFile(dir=folder) as file:
        count = 0
        with pa.ipc.new_stream(file, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
                count += batch.num_rows
        file.seek(0)
        yield count, pa.ipc.open_stream(file)
