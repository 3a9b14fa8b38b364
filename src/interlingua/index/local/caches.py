"""The caches of an index: its rows as files that are mapped into memory, made from the table and never needed for good.

A cache holds all rows of one version of the table. A supplement holds the rows that came after a cache, up to a later
version, and names those of the cache that were gone by then: where little has changed, a large cache need not be made
again, and what came since is read neither from the table nor into memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.array_folder import ArrayFolder, ArrayWriter, Layout
from interlingua.errors import BadInput, Damaged
from interlingua.files import cache_folder, remove_folder, remove_leftovers
from interlingua.index.local.rows import BATCH, TEXTS, PassageRows, Rows, SubwordRows, among, arrow, text_schema
from interlingua.index.local.rows import COLUMN as SUBWORDS
from interlingua.index.local.segment import Segment, longest
from interlingua.index.local.table import PassageTable, manifest, vectors_of
from interlingua.index.local.terms import write_terms
from interlingua.index.metadata import analyzers_of, signature
from interlingua.retrieval.bm25.postings import Postings
from interlingua.retrieval.dense.int8 import Int8Matrix
from interlingua.subprocesses import return_memory

logger = logging.getLogger(__name__)

FOLDER = "caches"
CACHE = Layout("cache", 5, "cache of an index")
UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError)
"""The exceptions of a cache that is damaged or out of date, beside those of Arrow."""


def write_cache(store: PassageTable, index: Path) -> Path:
    """Write the cache of the version that `store` reads, atomically; return its folder.

    It holds the rows in batches (`passages.arrow`, `subwords.arrow`), arrays (`numbers`, `langs`, `vectors`, `ties`),
    the same vectors as int8, and the `Postings` of BM25. The version is synced first: after a power
    cut another version could get its number, and the cache would not fit it. Where writing fails, what was there stays.
    """
    store.sync()
    return _write(store, index / FOLDER / str(store.version))


def write_supplement(store: PassageTable, index: Path, cache: Segment) -> Path:
    """Write the supplement of `cache` up to the version that `store` reads, as `write_cache` does, and remove the
    earlier ones; return its folder. Its array `gone` has the numbers of the cache's rows that are not there any
    more, sorted."""
    store.sync()
    gone = np.sort(cache.numbers[~among(cache.numbers, np.sort(store.numbers()))])
    path = _write(store, index / FOLDER / _name((cache.version, store.version)), cache.highest, gone)
    for pair in _supplements(index, cache.version):
        if pair[1] < store.version:
            remove_folder(path.with_name(_name(pair)))
    remove_leftovers(path.parent)
    return path


def _write(store: PassageTable, target: Path, after: int = -1, gone: Rows | None = None) -> Path:
    """Write the rows with numbers above `after` into the folder `target`."""
    made_from = manifest(store.folder, store.version)  # before the rows are read
    if target.exists() and not (target / CACHE.file).exists():
        shutil.rmtree(target)  # it is incomplete
    with ArrayFolder.write(target, CACHE) as folder:
        languages = _write_rows(store, folder, after)
        vectors = folder.added("vectors")
        Int8Matrix.build(vectors, folder.path / "int8")
        folder.facts |= {
            "languages": languages,
            "analyzers": analyzers_of(languages),
            "reach": _reach(vectors),
            "approximate": store.approximate,
            "manifest": made_from,
        }
        if gone is not None:
            folder.add("gone", gone)
            folder.facts["after"] = after
    return target


def newest_cache(index: Path, version: int) -> Segment | None:
    """The newest cache that is no newer than `version`; None where there is none. One that is damaged is passed over,
    which is said."""
    folder = readers_folder(index)
    pairs = [(number, index / FOLDER / str(number)) for number in _versions(index / FOLDER) if number <= version][-1:]
    pairs += [
        (number, folder / str(number))
        for number in _versions(folder)
        if number <= version and _fits(folder, number, index)
    ][-1:]
    for _, path in sorted(pairs, key=lambda pair: -pair[0]):
        if (cache := _usable(path)) is not None:
            return cache
    return None


def newest_supplement(index: Path, cache: Segment, version: int) -> Segment | None:
    """The newest supplement of `cache` that is no newer than `version`, as `newest_cache`."""
    while True:
        pairs = [pair for pair in _supplements(index, cache.version) if pair[1] <= version]
        if not pairs:
            return None
        path = index / FOLDER / _name(pairs[-1])
        if (supplement := _usable(path)) is not None or path.exists():
            return supplement if supplement is not None and supplement.after == cache.highest else None
        # else a writer has just removed it, and made a newer one or another cache


def _fits(folder: Path, version: int, index: Path) -> bool:
    """Whether a cache that a reader made is of the version that has its number now: nobody synced that before, so that
    a power cut may have taken it."""
    try:
        record = json.loads((folder / str(version) / CACHE.file).read_bytes())
        return bool(record["facts"]["manifest"] == list(manifest(index, version) or ()))
    except UNUSABLE:
        return False


def _usable(path: Path) -> Segment | None:
    try:
        return open_cache(path)
    except (*UNUSABLE, arrow().ArrowException) as error:
        if path.exists():  # else a writer has just removed it
            reason = " ".join(str(error).split())
            logger.warning(f"{path}: is not used, since it is damaged or out of date ({reason})")
    return None


def cache_of(store: PassageTable, index: Path) -> Segment:
    """The newest cache that fits the version of the store, or an even newer one. Written where there is none."""
    for written in (False, True):
        while (cache := newest_cache(index, version := store.version)) is None and store.refresh() != version:
            pass  # a writer has removed it and made a newer one
        if cache is not None:
            return cache
        if not written:
            _make_cache(store, index)
    raise Damaged(f"{index}: the cache that was just written cannot be read. Look at the disk.")


def _make_cache(store: PassageTable, index: Path) -> None:
    """Write the cache, or where the index cannot be written, by a reader say or on a full disk, one in the user's cache
    folder."""
    reason = "is not ours to write"
    if all(os.access(folder, os.W_OK) for folder in (index, index / FOLDER) if folder.exists()):
        try:
            logger.info(f"{index}: its cache is made again from its passages")
            path = write_cache(store, index)
            _remove_older(path)
            return
        except (OSError, Damaged) as error:
            reason = f"cannot be written ({' '.join(str(error).split())})"
    place = readers_folder(index)
    logger.info(f"{index}: {reason}. Its cache is made in {place}")
    try:
        path = _write(store, place / str(store.version))
    except OSError as error:
        raise BadInput(
            f"{index}: has no cache that fits, and none can be made in {place} ({error.strerror or error}). Let "
            "XDG_CACHE_HOME name a folder with room."
        ) from error
    _remove_older(path)
    remove_leftovers(place)


def _remove_older(path: Path) -> None:
    """Remove the caches of earlier versions than `path`, with their supplements: a writer may have written a later
    one."""
    for versions in complete_caches(path.parent):
        if versions[0] < int(path.name):
            remove_folder(path.with_name(_name(versions)))


def remove_other_caches(index: Path, version: int) -> None:
    """Remove all caches but that of `version`, all supplements, the caches that a reader of ours made
    (`readers_folder`), and what writers that were killed left behind."""
    for path in sorted((index / FOLDER).glob("*"), key=lambda path: "+" not in path.name):  # supplements first
        if _held(path) not in (None, (version,)):
            remove_folder(path)
    remove_leftovers(index / FOLDER)
    shutil.rmtree(readers_folder(index), ignore_errors=True)


def remove_later_caches(folder: Path, version: int) -> None:
    """Remove from a folder of caches those, and the supplements, of versions that are above `version`."""
    for path in folder.glob("*"):
        if (versions := _held(path)) is not None and versions[-1] > version:
            shutil.rmtree(path)


def cache_files(index: Path) -> list[Path]:
    """The folders of all caches that look complete and lie in the index, the newest last, each followed by those of its
    supplements."""
    return [index / FOLDER / _name(versions) for versions in sorted(complete_caches(index / FOLDER))]


def newest_files(index: Path) -> list[Path]:
    """The folder of the newest cache, and that of its newest supplement."""
    newest = [(version,) for version in _versions(index / FOLDER)[-1:]]
    supplements = [versions for (version,) in newest for versions in _supplements(index, version)[-1:]]
    return [index / FOLDER / _name(versions) for versions in (*newest, *supplements)]


def readers_folder(index: Path) -> Path:
    """The folder, in the user's cache, of caches of an index that this user may read and not write. One that was built
    anew has another."""
    key = json.dumps([str(index.resolve()), *signature(index)])
    return cache_folder() / "indexes" / hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def complete_caches(folder: Path) -> dict[tuple[int, ...], int]:
    """Caches and supplements in a folder that look complete, and when each was written: (version,) is a cache, (version
    of the cache, version) a supplement."""
    caches = {}
    for path in folder.glob(f"*/{CACHE.file}"):
        if (versions := _held(path.parent)) is not None:
            with suppress(FileNotFoundError):  # a writer has just removed it
                caches[versions] = path.stat().st_mtime_ns
    return caches


def _held(path: Path) -> tuple[int, ...] | None:
    return tuple(map(int, path.name.split("+"))) if re.fullmatch(r"[0-9]+(\+[0-9]+)?", path.name) else None


def _name(versions: tuple[int, ...]) -> str:
    return "+".join(map(str, versions))


def _versions(folder: Path) -> list[int]:
    return sorted(versions[0] for versions in complete_caches(folder) if len(versions) == 1)


def _supplements(index: Path, cache: int) -> list[tuple[int, ...]]:
    return sorted(pair for pair in complete_caches(index / FOLDER) if len(pair) == 2 and pair[0] == cache)


def _write_rows(store: PassageTable, folder: ArrayWriter, after: int) -> list[str]:
    """All files but the int8 vectors; the languages."""
    pa = arrow()
    numbers: list[NDArray[np.int64]] = []
    codes: dict[str, int] = {}  # of languages, in the order in which they are met
    langs: list[NDArray[np.int32]] = []
    subword_schema = pa.schema([store.schema.field(SUBWORDS)])

    with (
        pa.OSFile(str(folder.path / "passages.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, text_schema()) as file,
        pa.OSFile(str(folder.path / "subwords.arrow"), "wb") as subword_sink,
        pa.ipc.new_file(subword_sink, subword_schema) as subword_file,
    ):
        folder.add("vectors", np.empty((0, store.dim), dtype=np.float32))

        for batch in _whole_batches(store, after):
            numbers.append(batch.column("number").to_numpy().copy())  # a view would keep the whole batch
            langs.append(
                np.array(
                    [codes.setdefault(lang, len(codes)) for lang in batch.column("lang").to_pylist()], dtype=np.int32
                )
            )
            folder.add("vectors", vectors_of(batch, store.dim))
            file.write_batch(batch.select(TEXTS))
            subword_file.write_batch(batch.select([SUBWORDS]))
    return_memory()  # what Lance read ahead
    write_terms(folder.path / "passages.arrow", folder)
    languages = sorted(codes)
    places = np.array([languages.index(lang) for lang in codes], dtype=np.int32)
    folder.add("numbers", np.concatenate([np.empty(0, np.int64), *numbers]))
    folder.add("langs", np.concatenate([np.empty(0, np.int32), *(places[batch] for batch in langs)]))
    folder.add("ties", PassageRows.open(folder.path / "passages.arrow").ties())
    return languages


def _whole_batches(store: PassageTable, after: int) -> Iterator[Any]:
    """The rows of the store with numbers above `after`, in batches of exactly `BATCH`, the last one shorter."""
    pa = arrow()
    batches: list[Any] = []
    count = 0
    for batch in store.batches(("number", *TEXTS, "vector", SUBWORDS), BATCH, after):
        batches.append(batch)
        count += batch.num_rows
        if count >= BATCH:
            table = pa.Table.from_batches(batches).combine_chunks()
            for start in range(0, count - BATCH + 1, BATCH):
                yield table.slice(start, BATCH).combine_chunks().to_batches()[0]
            rest = table.slice(count - count % BATCH)
            batches, count = rest.to_batches(), rest.num_rows
    if count:
        yield pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def open_cache(path: Path) -> Segment:
    """The cache in a folder. Raises Damaged, ValueError or an error of Arrow for one that cannot be what was written,
    and for one whose passages were cut by other versions of the analyzers."""
    with ArrayFolder.open(path, CACHE) as folder:
        languages = tuple(folder.facts["languages"])
        if folder.facts["analyzers"] != analyzers_of(list(languages)):
            raise ValueError("its passages were cut by other versions of the analyzers")
        numbers = folder.array("numbers", "int64", (None,))
        count = len(numbers)
        return Segment(
            numbers,
            PassageRows.open(path / "passages.arrow"),
            SubwordRows.open(path / "subwords.arrow"),
            languages,
            folder.array("langs", "int32", (count,)),
            folder.array("vectors", "float32", (count, None)),
            Postings.read(folder, count),
            folder.array("ties", "int64", (count,)),
            float(folder.facts["reach"]),
            int(path.name.rpartition("+")[2]),
            Int8Matrix.load(path / "int8"),
            folder.facts.get("approximate"),
            int(folder.facts.get("after", -1)),
            folder.array("gone", "int64", (None,)) if "after" in folder.facts else np.empty(0, np.int64),
        )


def _reach(vectors: NDArray[np.float32]) -> float:
    return max((longest(vectors[start : start + BATCH]) for start in range(0, len(vectors), BATCH)), default=0.0)
