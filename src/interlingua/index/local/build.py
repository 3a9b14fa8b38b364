"""Build a local index piece by piece, so that a stopped build goes on."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from interlingua.data.keys import Keys
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.files import check_replaceable, make_folder, move_into_place
from interlingua.index.local.caches import FOLDER as CACHES
from interlingua.index.local.caches import open_cache, write_cache
from interlingua.index.local.rows import BATCH, PASSAGE, arrow, passage_of, to_rows
from interlingua.index.local.seals import FILE as SEALS
from interlingua.index.local.seals import held_by, write_seals
from interlingua.index.local.search import index_vectors
from interlingua.index.local.staged import digest_of
from interlingua.index.local.table import LOCK, PassageTable, go_back, lock
from interlingua.index.metadata import FORMAT, MARKER, SOURCES, IndexMetadata, write_sources
from interlingua.index.ranking import distinct
from interlingua.index.store import BuildSettings, chunks, encode_passages
from interlingua.models.protocols import Encoder
from interlingua.progress import track
from interlingua.retrieval.late_interaction.static import StaticMaxSim

logger = logging.getLogger(__name__)


@contextmanager
def spooled(batches: Iterable[Any], schema: Any, folder: Path) -> Iterator[tuple[int, Any]]:
    """Spool `batches` in a file in `folder`; give the number of rows and a reader. So all batches are complete before
    the first is written to the store, and none stays in memory."""
    pa = arrow()
    with tempfile.TemporaryFile(dir=folder) as file:
        count = 0
        with pa.ipc.new_stream(file, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
                count += batch.num_rows
        file.seek(0)
        yield count, pa.ipc.open_stream(file)


STARTED = "building.json"
SYNC_SECONDS = 10.0
"""A build syncs the chunk that ends this long after the last sync, with all before it. A power cut takes what came
since. It does not sync every chunk, because each sync lists all files of the table."""


def build_folder(encoder: Encoder, passages: Iterable[Passage], path: Path, settings: BuildSettings) -> None:
    """Write the index of `passages` (read once) to `path`, replacing an index there, whole or not at all.

    Chunks are written as they are encoded to `.{name}.building.part` beside `path`, and synced: see `SYNC_SECONDS`.
    Where that is left from a build that was stopped, by a power cut too, passages that it holds unchanged are not
    encoded again; any other order or choice of passages is fine. Raises BadInput for two passages with one source and
    id, when there is no passage, and for a folder of something else, Busy where somebody else builds it; `path` is
    then as it was.
    """
    from interlingua.models.folder import fingerprint

    check_replaceable(path, MARKER)
    partial = path.parent / f".{path.name}.building.part"
    make_folder(partial)
    print_of = fingerprint(encoder)
    with ExitStack() as stack:
        stack.enter_context(lock(partial))
        if (path / MARKER).exists():
            stack.enter_context(lock(path))  # what would be added to it now would be lost
        store = _left(partial, {"format": FORMAT, "fingerprint": print_of, "similarity": encoder.similarity})
        try:
            store = _write(encoder, passages, partial, store, settings.encode_options)
            store.compact()
            index_vectors(store)
            shutil.rmtree(partial / CACHES, ignore_errors=True)  # what a build that was killed left there
            cache = write_cache(store, partial)
            for note in (SOURCES, SEALS):
                (partial / note).unlink(missing_ok=True)
            if settings.names is not None:
                write_sources(partial, settings.names)
                rows = held_by([(open_cache(cache), None)])
                write_seals(partial, settings.names.memory.sealed(rows, lambda name: True))
            metadata = IndexMetadata(settings.model, print_of, encoder.similarity, store.dim, settings.k1, settings.b)
            metadata.write(partial)
            move_into_place(partial, path, MARKER)
            (path / STARTED).unlink()
        except BaseException:
            _leave(partial, path)
            raise


def _left(partial: Path, made_with: dict[str, Any]) -> PassageTable | None:
    """The table that a stopped build with the same model left; None where there is none, and `partial` is then
    empty."""
    try:
        same = json.loads((partial / STARTED).read_text(encoding="utf-8")) == made_with
    except (OSError, ValueError):
        same = False
    if same:
        with suppress(Damaged):  # for one, a table that is not there yet
            return go_back(partial)
    for entry in partial.iterdir():  # notes of what is synced, too: they are of files that go
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()
    (partial / STARTED).write_text(json.dumps(made_with), encoding="utf-8")
    return None


def _write(
    encoder: Encoder, passages: Iterable[Passage], partial: Path, store: PassageTable | None, options: Mapping[str, Any]
) -> PassageTable:
    """Make the store in `partial` hold exactly `passages`."""
    digests = {} if store is None else dict(_digests(store))
    keys = Keys()
    count, next_sync = 0, 0.0

    def new() -> Iterator[Passage]:
        for passage in distinct(track(passages, "index passages"), keys):
            entry = digests.get(passage.key)
            if entry is None or entry[0] != digest_of(passage):
                yield passage

    for chunk in chunks(new()):
        rows, (vectors, subwords) = to_rows(chunk), encode_passages(encoder, chunk, **options)
        if store is None:
            words = StaticMaxSim.of(encoder)
            store = PassageTable.create(partial, vectors.shape[1], words.vocabulary if words else 0)
        batch = store.batch(store.next_number(), rows, vectors, subwords)
        (store.replace if any(passage.key in digests for passage in chunk) else store.add)(batch)
        if time.monotonic() >= next_sync:
            store.sync()
            next_sync = time.monotonic() + SYNC_SECONDS
        count += len(chunk)
    if store is None or not keys:
        raise BadInput("there is no passage to index.")
    numbers = np.array([number for key, (_, number) in digests.items() if key not in keys], dtype=np.int64)
    if len(numbers):
        store.delete(numbers)
    if digests:
        logger.info(
            f"went on with a build that was stopped: {len(keys) - count:,} passages were there, {count:,} were new"
        )
    return store


def _digests(store: PassageTable) -> Iterator[tuple[tuple[str, str], tuple[bytes, int]]]:
    """The digest and the number of each passage that was written, by its source and id."""
    for batch in store.batches(("number", *PASSAGE), BATCH):
        for row in batch.to_pylist():
            passage = passage_of(row)
            yield passage.key, (digest_of(passage), row["number"])


def _leave(partial: Path, path: Path) -> None:
    """Keep what was written for the next try, and say so; remove a folder without passages."""
    try:
        count = len(PassageTable.open(partial).numbers())
    except (Damaged, NotFound):  # not found: it took its place already
        count = 0
    if count:
        logger.warning(
            f"{path}: is not made. The {count:,} passages that were encoded are kept in {partial.name}: the same "
            "command goes on with them."
        )
    else:
        shutil.rmtree(partial, ignore_errors=True)
