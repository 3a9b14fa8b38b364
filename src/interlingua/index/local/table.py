"""The store of record of an index: passages and their vectors in one LanceDB table, a new version with every write."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from math import isqrt
from os import SEEK_END
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.checksums import WrittenOnce
from interlingua.errors import BadInput, Damaged, NotFound, Stale
from interlingua.files import alone, atomic_write, sync
from interlingua.index.local.rows import BATCH, COLUMN, TEXTS, arrow, subword_column, subword_type, text_schema
from interlingua.lazy import Once
from interlingua.subprocesses import return_memory

logger = logging.getLogger(__name__)

TABLE = "passages"
LOCK = "writer.lock"
VERSIONS = "_versions"
SYNCED = "synced.json"
"""The file that names the version that was synced last."""
EVER = timedelta(days=36_500)  # older versions are none
NUMBERS_OF_A_VERSION = 1 << 32
LAST = (1 << 64) - 1
SAMPLED = 64
"""Vectors a part on which the parts of Lance's index are trained. Lance's own 256 take twice the time and find no
more; of 10 million passages they would be 800,000 vectors in memory."""
NOTED = 32 << 20
"""Bytes that Lance keeps of manifests and of the ends of files. Each version has a manifest that names all files, so
that of a thousand writes 250 MB would stay in memory, and of two thousand four times as much."""
HINTS = ".json"
"""Ends the names of files that are written again and again; Lance does without them."""
PANICS = ("PanicException", "RustPanic")
"""The exceptions of Lance's own assertions, in a damaged manifest say: classes that no module exports."""
MAGIC = b"LANC"  # the end of each file of Lance


class PassageTable:
    """A table `number, id, source, lang, title, text, metadata, vector, subwords`. Numbers are never given twice: those
    written in version v begin at v · 2³², and a replaced passage gets a new one.

    Each of `add`, `replace` and `delete` is one version, whole or not at all. When the call returns, the version
    survives the end of the process; after `sync` it survives a power cut. A reader keeps the version it has until
    `refresh`. One writer at a time: hold `lock`.
    """

    def __init__(self, folder: Path, table: Any = None) -> None:
        """`table` is LanceDB's. Without one it is opened, which takes seconds in a new process, when it is first
        needed; the files of versions say until then which is the newest."""
        self.folder, self._seen = folder, 0
        self._opened = Once(self._open_seen, table)
        self._on_disk: set[_File] = set()
        if table is None:
            self.refresh()

    @classmethod
    def create(cls, folder: Path, dim: int, vocabulary: int = 0) -> PassageTable:
        """A new table without rows in `folder`, for vectors of size `dim` and subwords of a `vocabulary`."""
        pa = arrow()
        columns = [
            pa.field("number", pa.int64()),
            *text_schema(),
            pa.field("vector", pa.list_(pa.float32(), dim)),
            pa.field(COLUMN, subword_type(vocabulary)),
        ]
        with _plain_errors(folder):
            return cls(folder, _connect(folder).create_table(TABLE, schema=pa.schema(columns)))

    @classmethod
    def open(cls, folder: Path, version: int | None = None) -> PassageTable:
        """The table in `folder`, held at `version` if given. Raises Damaged where there is none, or none that
        can be read, and Stale where a writer has removed that version."""
        with _plain_errors(folder) if version is None else _reading(folder, lambda: version):
            table = _open_table(folder)
            if version is not None:
                table.checkout(version)
            return cls(folder, table)

    @property
    def _table(self) -> Any:
        return self._opened()

    def _open_seen(self) -> Any:
        """LanceDB's table at the version that was seen."""
        with self._reading():
            table = _open_table(self.folder)
            if table.version != self._seen:
                table.checkout(self._seen)
            return table

    @property
    def schema(self) -> Any:
        """The columns."""
        return self._table.schema

    @property
    def dim(self) -> int:
        """The size of the vectors."""
        return int(self._table.schema.field("vector").type.list_size)

    @property
    def version(self) -> int:
        """The version that is read."""
        return self._seen if self._opened.value is None else int(self._opened.value.version)

    def __len__(self) -> int:
        with self._reading():
            return int(self._table.count_rows())

    def refresh(self) -> int:
        """Go to the newest version; its number. Raises Damaged where there is no table that can be read."""
        if self._opened.value is None:
            if (newest := newest_version(self.folder, self._seen)) is not None:
                self._seen = newest
                return newest
            self._opened.value = PassageTable.open(self.folder)._table
        with self._reading():
            self._table.checkout_latest()
            return self.version

    def numbers(self) -> NDArray[np.int64]:
        """The numbers of all rows."""
        with self._reading():
            column = self._table.search().select(["number"]).to_arrow().column("number")
        return np.asarray(column.to_numpy(), dtype=np.int64)

    def batches(self, columns: tuple[str, ...], size: int, after: int = -1) -> Iterator[Any]:
        """All rows with a number above `after`, in record batches of no more than `size`."""
        with self._reading():
            reader = self._table.search().where(f"number > {after:d}").select(list(columns)).to_batches(size)
        while True:
            with self._reading():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch.select(list(columns))

    def next_number(self) -> int:
        """The first number of the rows that are written next."""
        return (self.version + 1) * NUMBERS_OF_A_VERSION

    def batch(
        self, first: int, rows: Any, vectors: NDArray[np.float32], subwords: Sequence[NDArray[np.int64]] | None = None
    ) -> Any:
        """A record batch to add: the texts `rows`, their `vectors` and their `subwords` (None: without any), numbered
        from `first`. Raises BadInput for vectors of another size."""
        if vectors.shape[1] != self.dim:
            raise BadInput(
                f"{self.folder}: the encoder gave vectors of size {vectors.shape[1]}, the index "
                f"holds {self.dim}. Use the model that it was made with."
            )
        pa = arrow()
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
        columns = [
            pa.array(np.arange(first, first + len(vectors))),
            *(rows.column(name) for name in TEXTS),
            pa.FixedSizeListArray.from_arrays(flat, self.dim),
            subword_column(subwords or [np.empty(0, np.int64)] * len(vectors), self.schema.field(COLUMN).type),
        ]
        return pa.record_batch(columns, schema=self.schema)

    def add(self, rows: Any) -> None:
        """Append rows: a table or a reader of record batches."""
        with self._changing():
            self._table.add(rows)

    def replace(self, rows: Any) -> None:
        """Rows take the place of those with their source and id; those with new ones are appended."""
        with self._changing():
            merge = self._table.merge_insert(["source", "id"])
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
        return_memory()  # Lance joins the new rows with source and id of all

    def delete(self, numbers: NDArray[np.int64]) -> None:
        """Remove the rows with these numbers."""
        with self._changing():  # only whole numbers of ours ever become part of a condition
            self._table.delete(f"number IN ({', '.join(map(str, numbers.tolist()))})")

    @property
    def approximate(self) -> bool:
        """True where Lance has an index of the vectors, which `near` searches."""
        with self._reading():
            return any(index.columns == ["vector"] for index in self._table.list_indices())

    def index_vectors(self, wanted: bool) -> None:
        """Make Lance's index of the vectors, or remove it."""
        from lancedb.index import IvfFlat, IvfRq

        kind = IvfFlat if self.dim % 8 else IvfRq  # a bit for each dimension, if they fill bytes
        with self._changing():
            if wanted:
                parts = max(1, isqrt(len(self)))
                config = kind(distance_type="dot", num_partitions=parts, sample_rate=SAMPLED)
                self._table.create_index("vector", config=config)
                return_memory()
            for index in [] if wanted else self._table.list_indices():
                self._table.drop_index(index.name)

    def near(self, vector: NDArray[np.float32], k: int, probes: int) -> NDArray[np.int64]:
        """The numbers of `k` rows whose vectors are likely to have the greatest dot products with `vector`, by Lance's
        index, of which it looks into `probes` parts. Rows that are newer than it are compared one by one."""
        with self._reading():
            search = self._table.search(vector).distance_type("dot").nprobes(probes).limit(k)
            column = search.select(["number", "_distance"]).to_arrow().column("number")
        return np.asarray(column.to_numpy(), dtype=np.int64)

    def compact(self) -> None:
        """Join small files, drop deleted rows, and remove all versions but the newest, once the disk holds that one."""
        return_memory()  # what was written before, too: Lance frees it in many threads
        with self._changing(), warnings.catch_warnings():
            # readers know that a version may go, and take the newest then
            warnings.filterwarnings("ignore", "optimize.cleanup_older_than")
            before = -1
            while self.version != before:  # else the last call would make one more version, and remove ours before it
                before = self.version
                self._table.optimize(cleanup_older_than=EVER)
            self.sync()
            self._table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
            WrittenOnce(self.folder).forget_missing()
        return_memory()

    def sync(self) -> None:
        """Sync the version that is read to the disk and note it in `synced.json`, unless that names it already. Raises
        Damaged where the disk fails."""
        if synced_version(self.folder) == (version := self.version):
            return
        with _plain_errors(self.folder):
            files = _files(self.folder)
            paths = [file.path for file in sorted(files - self._on_disk)]
            # a folder may be new too, and then its name in the one above it
            sync([*paths, *{folder for path in paths for folder in path.parents if folder.is_relative_to(self.folder)}])
            WrittenOnce(self.folder).add(path for path in paths if path.suffix != HINTS)
            with atomic_write(self.folder / SYNCED) as stream:
                json.dump({"version": version}, stream)
            self._on_disk = files

    def damaged(self, pace: float | None = None) -> tuple[list[tuple[str, str]], int, int]:
        """The files of the table that changed since they were synced, each with what is wrong; the number of files,
        and of those that have a checksum. Read at `pace` bytes a second where one is given."""
        files = [file.path for file in sorted(_files(self.folder)) if file.path.suffix != HINTS]
        reasons, checksum_count = WrittenOnce(self.folder).damaged(files, pace)
        return reasons, len(files), checksum_count

    def check(self, columns: Sequence[str] = ("number",)) -> None:
        """Read these columns of all rows, and the index of the vectors if there is one. Raises Damaged where a
        file of this version is missing or cut short: Lance describes a file at its end."""
        for _ in self.batches(tuple(columns), BATCH):
            pass
        if self.approximate:
            self.near(np.zeros(self.dim, np.float32), 1, 1)

    def _reading(self) -> AbstractContextManager[None]:
        return _reading(self.folder, lambda: self.version)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Note before the first change what the disk holds already: all, where the newest version was synced. Where it
        was not, by a writer that was killed say, the next `sync` is of all files."""
        if not self._on_disk and synced_version(self.folder) == self.version:
            self._on_disk = _files(self.folder)
        with _plain_errors(self.folder):
            yield


class _File(NamedTuple):
    """A file of the table, with inode and time, by which it differs from an older file of the same name. Files sort in
    the order in which they are synced: manifests, which name the files of a version, come last."""

    is_version: bool
    path: Path
    inode: int
    written: int


def _files(folder: Path) -> set[_File]:
    files = set()
    for place, _, names in os.walk(folder / f"{TABLE}.lance"):
        for name in names:
            with suppress(FileNotFoundError):  # whoever syncs without `lock` may see a file go
                status = (path := Path(place, name)).stat()
                files.add(_File(path.parent.name == VERSIONS, path, status.st_ino, status.st_mtime_ns))
    return files


def synced_version(folder: Path) -> int:
    """The version that was synced last, 0 for none."""
    try:
        return int(json.loads((folder / SYNCED).read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def go_back(folder: Path) -> PassageTable:
    """The table in `folder` at its newest version of which all can be read. Hold `lock`.

    A power cut may take files of versions that were not synced. Where such are the newest, the one before them is made
    the newest again, under a higher number, and synced; a warning says so. Raises Damaged where
    neither the version that was synced last nor a newer one can be read.
    """
    synced = synced_version(folder)
    versions = folder / f"{TABLE}.lance" / VERSIONS
    manifests = _manifests(versions)
    newest = max(manifests, default=0)
    for version, name in list(manifests.items()):
        if version > synced and not (versions / name).read_bytes().endswith(MAGIC):  # cut short: it hides all others
            (versions / manifests.pop(version)).unlink()
    reason: Damaged | Stale | None = None
    for version in sorted(manifests, reverse=True):
        if version < synced:
            break
        try:
            store = PassageTable.open(folder, version)
            store.check(store.schema.names)
        except (Damaged, Stale) as error:
            reason = error
            continue
        if version < newest:
            with _plain_errors(folder):
                while store.version < newest:
                    store._table.checkout(version)
                    store._table.restore()
            logger.warning(
                f"{folder}: files of version {newest} of its table are missing or cut short, as a power cut leaves "
                f"them. It goes on from version {version}, the last one that is whole."
            )
            store.sync()
        return PassageTable.open(folder)
    raise reason or Damaged(
        f"{folder}: the table of passages cannot be read (version {synced or 1} is not "
        f"there). In a copy that was made during a write, delete {SYNCED}; else build the "
        "index again."
    )


def _manifests(versions: Path) -> dict[int, str]:
    """The names of the manifests in the folder of a table's `versions`, by version, of which Lance writes one for each
    (https://lance.org/format/table/transaction/): `v.manifest`, or 2⁶⁴ − 1 − v in 20 digits, so that the newest is
    listed first."""
    try:
        names = os.listdir(versions)
    except OSError:
        return {}
    stems = {name: stem for name in names if (stem := name.removesuffix(".manifest")) != name and stem.isdecimal()}
    return {LAST - int(stem) if len(stem) == 20 else int(stem): name for name, stem in stems.items()}


def manifest(folder: Path, version: int) -> tuple[int, int] | None:
    """Time and size of the manifest of a version of the table in `folder`; None where there is none. After a power cut
    another version may have the number."""
    versions = folder / f"{TABLE}.lance" / VERSIONS
    try:
        status = (versions / _manifests(versions)[version]).stat()
    except (OSError, KeyError):
        return None
    return status.st_mtime_ns, status.st_size


def newest_version(folder: Path, seen: int = 0) -> int | None:
    """The newest version of the table in `folder` by the names of its manifests. None where that is not clear: names of
    both kinds, and a newest manifest that is cut. That of the version `seen` is known to be whole."""
    versions = folder / f"{TABLE}.lance" / VERSIONS
    manifests = _manifests(versions)
    if not manifests or len({len(name) == len("12345678901234567890.manifest") for name in manifests.values()}) > 1:
        return None
    newest = max(manifests)
    if newest == seen:
        return newest
    try:
        with open(versions / manifests[newest], "rb") as file:
            file.seek(-len(MAGIC), SEEK_END)
            return newest if file.read() == MAGIC else None
    except OSError:  # a writer has just removed it
        return None


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Be the one writer of the index in `folder`. Raises Busy at once where another writer is at work, and NotFound
    where the folder is gone: a lock would make it anew."""
    _check_there(folder)
    busy = "is being written by another process. Wait until it is done, then try again. Searching goes on meanwhile."
    with alone(folder / LOCK, f"{folder}: {busy}"):
        yield


def vectors_of(batch: Any, dim: int) -> NDArray[np.float32]:
    """The vectors [rows, dim] of a batch."""
    values = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float32).reshape(-1, dim)


def _connect(folder: Path) -> Any:
    # read when it is imported: what it warns of, in a thousand lines for ten million passages, is its own working
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        import lancedb
    except ImportError:
        raise NotFound("an index needs lancedb: pip install 'interlingua[index]'") from None
    # an absolute path: "idx:2" would be the address of another kind of store
    return lancedb.connect(os.path.abspath(folder), session=lancedb.Session(metadata_cache_size_bytes=NOTED))


def _open_table(folder: Path) -> Any:
    """LanceDB's table. Raises NotFound where the folder is gone: a connection would make it anew."""
    _check_there(folder)
    try:
        return _connect(folder).open_table(TABLE)
    except Exception:
        with suppress(OSError):
            folder.rmdir()  # empty, so it went just now, and the connection made it
        raise


def _check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise NotFound(f"{folder}: is not there any more.")


@contextmanager
def _reading(folder: Path, version: Callable[[], int | None]) -> Iterator[None]:
    """Raise Stale for what cannot be read because a writer has removed this version: there is a newer one."""
    try:
        with _plain_errors(folder):
            yield
    except Damaged as error:
        newest = newest_version(folder)
        if newest is None:
            with _plain_errors(folder):
                newest = int(_open_table(folder).version)
        if newest == version():
            raise
        raise Stale(
            f"{folder}: a writer has removed version {version()} of its table, version {newest} is newest"
        ) from error


@contextmanager
def _plain_errors(folder: Path) -> Iterator[None]:
    """Turn errors of LanceDB into Damaged, with one line of text."""
    try:
        yield
    except (NotFound, Damaged, Stale):
        raise
    except BaseException as error:
        known = isinstance(error, (RuntimeError, OSError, ValueError, arrow().ArrowException))
        if not known and type(error).__name__ not in PANICS:
            raise
        reason = " ".join(str(error).split())[:300]
        raise Damaged(
            f"{folder}: the table of passages cannot be read or written ({reason}). Look whether "
            "the disk is full; if files were changed, build the index again."
        ) from error
