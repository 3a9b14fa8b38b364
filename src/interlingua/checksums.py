"""Checksums of files, and a note of what this machine has checked, so that it is read once and not at every start."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from xxhash import xxh3_64, xxh3_128

from interlingua.files import atomic_write, cache_folder

PART = 1 << 20
NOTES = "checked"
"""The file in the user's cache folder with the marks of what was checked, a line each."""
LONGEST_NOTES = 1 << 20
"""Bytes of that file. When it has more, its older half goes."""
CHANGED = "does not hold what was written: its checksum is another one"


def checksum(path: Path, pace: float | None = None) -> str:
    """XXH3 (64 bits, as 16 hex digits) of a file's bytes, read at no more than `pace` bytes a second where one is
    given. It finds damage; it is no protection against who wants to deceive."""
    digest, buffer = xxh3_64(), memoryview(bytearray(PART))
    with open(path, "rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(buffer[:count])
            if pace:
                time.sleep(count / pace)
    return digest.hexdigest()


def signed(about: Mapping[str, Any]) -> dict[str, Any]:
    """`about`, to be written as JSON, with a checksum of itself as "xxh3"."""
    return {**about, "xxh3": _of_json(about)}


def check_signed(about: Mapping[str, Any], keys: Collection[str]) -> None:
    """Raise ValueError where what `signed` wrote with these `keys` was changed. What has no checksum, of an earlier
    version, passes; so a key that is not known is an error: it may be that of the checksum."""
    rest = {key: value for key, value in about.items() if key != "xxh3"}
    if unknown := rest.keys() - set(keys):
        raise ValueError(f"nobody wrote {min(unknown)!a}")
    if about.get("xxh3", "") not in ("", _of_json(rest)):
        raise ValueError(f"it {CHANGED}")


def _of_json(about: Mapping[str, Any]) -> str:
    return xxh3_64(json.dumps(about, sort_keys=True).encode()).hexdigest()


def compare(folder: Path, sums: Mapping[str, str], pace: float | None = None) -> None:
    """Raise ValueError for the first file of `folder` that has another checksum than `sums` says."""
    for name, expected in sums.items():
        if checksum(folder / name, pace) != expected:
            raise ValueError(f"{name} {CHANGED}")


def compare_again(folder: Path, sums: Mapping[str, str], pace: float | None = None) -> None:
    """As `compare`, whatever was compared before; noted for `compare_once`."""
    compare(folder, sums, pace)
    note(folder, sums)


def compare_once(folder: Path, sums: Mapping[str, str]) -> None:
    """As `compare`, unless this machine compared the same files before, or wrote them (`note`): files of the same
    inode, size and time as then. What changes on the disk without these is found by `compare` alone."""
    mark = _mark(folder, sums)
    if mark not in _known():
        compare(folder, sums)
        _keep(mark)


def note(folder: Path, sums: Mapping[str, str]) -> None:
    """Note that the files of `folder` were written with these checksums here."""
    _keep(_mark(folder, sums))


def _mark(folder: Path, sums: Mapping[str, str]) -> str:
    digest = xxh3_128()
    for name, expected in sorted(sums.items()):
        facts = (folder / name).stat()
        identity = (name, expected, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        digest.update(repr(identity).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@cache
def _marks(notes: Path) -> set[str]:
    with suppress(OSError, ValueError):
        return set(notes.read_text("ascii").split())
    return set()


def _known() -> set[str]:
    return _marks(cache_folder() / NOTES)


def _keep(mark: str) -> None:
    """Note a mark in this process, and in the user's cache folder where that can be written."""
    notes = cache_folder() / NOTES
    _known().add(mark)
    with suppress(OSError):
        notes.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, f"{mark}\n".encode())
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        if size > LONGEST_NOTES:
            lines = notes.read_text("ascii").splitlines(keepends=True)
            with atomic_write(notes) as stream:
                stream.writelines(lines[len(lines) // 2 :])


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """The size and the checksum of each file of `folder`, by name: {"bytes": …, "xxh3": …}."""
    return {
        file.name: {"bytes": file.stat().st_size, "xxh3": checksum(file)}
        for file in sorted(folder.iterdir())
        if file.is_file()
    }


class WrittenOnce:
    """The checksums of files below `folder` that are written once and never changed, in `checksums.jsonl`, a line
    each: {"file": path below the folder, "bytes": …, "xxh3": …}."""

    NAME = "checksums.jsonl"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> dict[str, dict[str, Any]]:
        """The known checksums, by file. A line that is cut, as a power cut leaves the last one, is skipped."""
        entries: dict[str, dict[str, Any]] = {}
        with suppress(FileNotFoundError), open(self.folder / self.NAME, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):
                    entry = dict(json.loads(line))
                    entries[str(entry["file"])] = {"bytes": int(entry["bytes"]), "xxh3": str(entry["xxh3"])}
        return entries

    def add(self, files: Iterable[Path]) -> None:
        """Note files as they are now, but for those that are noted with the size that they have. A file that is gone is
        passed over. The disk holds the notes when the call returns."""
        entries, lines = self.read(), []
        for path in files:
            name = path.relative_to(self.folder).as_posix()
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                if entries.get(name, {}).get("bytes") != size:
                    lines.append(json.dumps({"file": name, "bytes": size, "xxh3": checksum(path)}) + "\n")
        if lines:
            with open(self.folder / self.NAME, "a", encoding="utf-8") as stream:
                stream.write("\n" * (stream.tell() > 0) + "".join(lines))  # the line before may have been cut
                stream.flush()
                os.fsync(stream.fileno())

    def forget_missing(self) -> None:
        """Drop the notes of files that are gone."""
        entries = self.read()
        remaining = {name: entry for name, entry in entries.items() if (self.folder / name).exists()}
        if len(remaining) < len(entries):
            with atomic_write(self.folder / self.NAME) as stream:
                stream.writelines(json.dumps({"file": name} | entry) + "\n" for name, entry in remaining.items())

    def damaged(self, files: Iterable[Path], pace: float | None = None) -> tuple[list[tuple[str, str]], int]:
        """Those of `files` that are noted and changed since, each with what is wrong; and how many are noted. One that
        is gone is not damaged."""
        entries, count = self.read(), 0
        problems: list[tuple[str, str]] = []
        for path in files:
            entry = entries.get(name := path.relative_to(self.folder).as_posix())
            if entry is None:
                continue
            count += 1
            with suppress(FileNotFoundError):  # a writer has removed it
                if (size := path.stat().st_size) != entry["bytes"]:
                    problems.append((name, f"has {size:,} bytes in place of {entry['bytes']:,}"))
                elif checksum(path, pace) != entry["xxh3"]:
                    problems.append((name, CHANGED))
        return problems, count
