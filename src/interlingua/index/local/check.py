"""Check an index in a folder: its files against their checksums, its table with itself, its caches with the table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.errors import BadInput, Damaged, NotFound, Stale
from interlingua.index.local.caches import CACHE, FOLDER, cache_files, newest_files, open_cache
from interlingua.index.local.rows import BATCH, COLUMN, TEXTS, Rows, among, arrow, rows_of
from interlingua.index.local.segment import Segment
from interlingua.index.local.table import TABLE, PassageTable, vectors_of
from interlingua.index.local.tokens import FOLDER as TOKENS
from interlingua.index.metadata import MARKER, SOURCES, read_metadata, read_sources
from interlingua.index.store import Finding
from interlingua.retrieval.dense.int8 import LAYOUT as INT8

FAULTS = (BadInput, Damaged, NotFound, OSError)
"""The exceptions of a part of an index that cannot be read."""
Digests = NDArray[np.uint64]
GONE = "was removed by a writer meanwhile"
REBUILD = "build the index again, or restore a backup"
AGAIN = "`interlingua check --repair` makes it again from the passages"


def check_folder(index: Path, pace: float | None = None, *, rows: bool = True) -> Iterator[Finding]:
    """Check every part of the index in a folder; a finding for each, and for each thing that is wrong with it.

    All files of the table, the caches and the kept token vectors are compared with the checksums that were noted when
    they were written, at `pace` bytes a second where one is given. With `rows` the table is then read: numbers and
    names of passages must be unique, texts valid, vectors finite; and every row of the newest cache, and of its newest
    supplement, must be that of the table. Where the table is damaged no cache is compared with it. Nothing is written.
    The index may be searched and changed meanwhile. Raises
    NotFound for a place where there is no part of an index.
    """
    if not (index / MARKER).exists() and not (index / f"{TABLE}.lance").exists():
        read_metadata(index)  # which says so
    yield from _descriptions(index)
    findings = list(_table_files(index, pace))
    table: _Rows | None = None
    if rows:
        table, table_finding = _table_rows(index)
        findings.append(table_finding)
    yield from findings
    caches, newest = cache_files(index), newest_files(index)
    if not caches:
        yield Finding(FOLDER, "there is none", AGAIN, derived=True)
    for path in caches:
        yield (finding := _checked(path, index, ((path, CACHE), (path / "int8", INT8)), pace))
        # what differs from a damaged table may be all that is left
        if table is not None and path in newest and not any(one.advice for one in (*findings, finding)):
            yield _cache_rows(index, path, table)
    yield from _tokens(index, pace)


def _tokens(index: Path, pace: float | None) -> Iterator[Finding]:
    if not (index / TOKENS).exists():
        return
    from interlingua.retrieval.late_interaction.token_store import LAYOUT as TOKEN_STORE

    for path in sorted((index / TOKENS).glob("*/*")):
        if path.name.isdecimal():
            advice = "`interlingua tokens` with the same model encodes it again"
            yield _checked(path, index, ((path, TOKEN_STORE),), pace, advice, derived=False)


def _descriptions(index: Path) -> Iterator[Finding]:
    for name, read in ((MARKER, read_metadata), (SOURCES, read_sources)):
        try:
            read(index)
        except FAULTS as error:
            yield Finding(name, _said(error), REBUILD)
        else:
            yield Finding(name, "can be read")


def _table_files(index: Path, pace: float | None) -> Iterator[Finding]:
    try:
        reasons, count, checksum_count = PassageTable(index).damaged(pace)
    except FAULTS as error:
        yield Finding(f"{TABLE}.lance", _said(error), REBUILD)
        return
    for name, reason in reasons:
        yield Finding(name, reason, REBUILD)
    if not reasons:
        rest = count - checksum_count
        state = f"{checksum_count:,} files fit their checksums"
        yield Finding(f"{TABLE}.lance", state + (f", {rest:,} have none, of an earlier version" if rest else ""))


def _checked(
    path: Path,
    index: Path,
    parts: Sequence[tuple[Path, Layout]],
    pace: float | None,
    advice: str = AGAIN,
    *,
    derived: bool = True,
) -> Finding:
    """Compare array folders, which are one part of the index, with their checksums."""
    name = path.relative_to(index).as_posix()
    try:
        for place, layout in parts:
            ArrayFolder.check(place, layout, pace)
    except FAULTS as error:
        if not path.exists():
            return Finding(name, GONE)
        return Finding(name, _said(error), advice, derived)
    return Finding(name, "fits its checksums")


class _Rows(NamedTuple):
    """The rows of a table: the number of each, and a digest of all that it holds."""

    numbers: Rows
    digests: Digests
    version: int


def _table_rows(index: Path) -> tuple[_Rows | None, Finding]:
    """The rows of the table, None where they cannot be read; and what is wrong with them."""
    while True:
        try:
            table = PassageTable.open(index)
            rows = _read_rows(table)
        except Stale:
            continue  # a writer has removed this version: there is a newer one
        except (*FAULTS, ValueError, arrow().ArrowException) as error:
            return None, Finding(f"{TABLE}.lance", _said(error), REBUILD)
        return rows, Finding(f"{TABLE}.lance", f"{len(rows.numbers):,} passages, each with its own number and name")


def _read_rows(table: PassageTable) -> _Rows:
    """Raises ValueError for rows that no writer wrote."""
    numbers: list[Rows] = [np.empty(0, dtype=np.int64)]  # a table may have lost all its passages
    digests: list[Digests] = [np.empty(0, dtype=np.uint64)]
    names: list[Digests] = [np.empty(0, dtype=np.uint64)]
    for batch in table.batches(("number", *TEXTS, "vector", COLUMN), BATCH):
        batch.validate(full=True)
        vectors = vectors_of(batch, table.dim)
        if not np.isfinite(vectors).all():
            raise ValueError("a vector holds a number that is not finite")
        rows = batch.select([*TEXTS, COLUMN]).to_pylist()
        numbers.append(batch.column("number").to_numpy().copy())
        digests.append(_digests(rows, vectors))
        names.append(np.array([_digest([row["source"], row["id"]]) for row in rows], dtype=np.uint64))
    table_rows = _Rows(np.concatenate(numbers), np.concatenate(digests), table.version)
    for kind, values in (("number", table_rows.numbers), ("source and id", np.concatenate(names))):
        if len(np.unique(values)) < len(values):
            raise ValueError(f"two passages have one {kind}")
    return table_rows


def _cache_rows(index: Path, path: Path, table: _Rows) -> Finding:
    """Compare the rows of a cache with those of the table that are still there."""
    name = path.relative_to(index).as_posix()
    order, count = np.argsort(table.numbers, kind="stable"), 0
    try:
        cache = open_cache(path)
        for part, batch in enumerate(cache.passages.batches):
            places = slice(part * BATCH, part * BATCH + batch.num_rows)
            subwords = [cache.subwords[row].tolist() for row in range(places.start, places.stop)]
            rows = [row | {COLUMN: ids} for row, ids in zip(batch.to_pylist(), subwords, strict=True)]
            langs = [cache.languages[lang] for lang in cache.langs[places].tolist()]
            table_rows = rows_of(cache.numbers[places], table.numbers, order)
            digests, there = _digests(rows, cache.vectors[places]), np.flatnonzero(table_rows >= 0)
            differs = table.digests[table_rows[there]] != digests[there]
            differs |= np.array([rows[row]["lang"] != langs[row] for row in there.tolist()], dtype=bool)
            if differs.any():
                raise ValueError(f"passage {rows[int(there[differs][0])]['id']!a} is another one than in the table")
            count += len(there)
        total = int((table.numbers > cache.after).sum())
        if cache.version == table.version and count != total:
            raise ValueError(f"it holds {count:,} of the {total:,} passages of its version")
        _check_gone(cache, path, table)
    except (*FAULTS, ValueError, LookupError, arrow().ArrowException) as error:
        return Finding(name, _said(error), AGAIN, derived=True) if path.exists() else Finding(name, GONE)
    return Finding(name, f"its {count:,} passages are those of the table")


def _check_gone(cache: Segment, path: Path, table: _Rows) -> None:
    """Raise ValueError where a supplement calls rows of its cache gone that are there, or does not name one that is
    gone."""
    if cache.after < 0 or cache.version > table.version:  # a writer was quicker
        return
    live = np.sort(table.numbers)
    if extra := int(among(cache.gone, live).sum()):
        raise ValueError(f"{extra:,} passages that it calls gone are in the table")
    base = path.with_name(path.name.partition("+")[0])
    try:
        numbers = open_cache(base).numbers
    except FAULTS:
        if base.exists():
            raise
        return  # a writer has made another cache
    if cache.version == table.version and (missing := int((~among(numbers, live) & ~among(numbers, cache.gone)).sum())):
        raise ValueError(f"{missing:,} passages that are gone are not named in it")


def _digests(rows: Sequence[Mapping[str, Any]], vectors: NDArray[np.float32]) -> Digests:
    """The digest of each row with its vector."""
    contents = ([row[name] for name in (*TEXTS, COLUMN)] for row in rows)
    return np.array(
        [_digest(content, vector.tobytes()) for content, vector in zip(contents, vectors, strict=True)], dtype=np.uint64
    )


def _digest(content: Sequence[Any], vector: bytes = b"") -> int:
    """Equal values give equal digests; others practically never."""
    return int(xxh3_64(json.dumps(content, sort_keys=True).encode() + vector).intdigest())


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
