"""Folders of memory-mapped arrays: written whole or not at all, described in one file, checked when they are opened."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from interlingua import checksums
from interlingua.errors import BadInput, Damaged, InterlinguaError, NotFound
from interlingua.files import DISK_FULL, atomic_folder, existing

DAMAGE = (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""The exceptions of reading a folder whose files are cut, changed or gone."""
Compare = Callable[[Path, Mapping[str, str]], None]
"""Raises ValueError where files of a folder have other checksums than these."""


@dataclass(frozen=True)
class Layout:
    """A kind of array folder: the `name` of its format, its `version`, and `what` it holds, in words for messages."""

    name: str
    version: int
    what: str

    @property
    def file(self) -> str:
        """The file that describes a folder of this kind."""
        return f"{self.name}.json"


class ArrayFolder:
    """A folder of arrays, open for reading; `facts` is what its owner wrote about them.

    Each array is a .npy file. Beside the arrays may lie files of other kinds, and folders of their own. The description
    is `{"format": name, "version": number, "facts": {…}, "files": {file: {"bytes": size, "xxh3": checksum}}, "xxh3":
    checksum of the rest}`; the entry of an array has its "dtype" and "shape" too. Keys of an entry that are not known
    here are left alone. A file without a checksum, of an earlier version, is checked by its size alone.
    """

    def __init__(self, path: Path, facts: dict[str, Any], files: dict[str, dict[str, Any]]) -> None:
        self.path, self.facts, self._files = path, facts, files

    @classmethod
    @contextmanager
    def open(cls, path: str | Path, layout: Layout, compare: Compare = checksums.compare_once) -> Iterator[ArrayFolder]:
        """Open a folder for a block that takes the arrays and facts which it needs; the arrays outlive the block.

        Format, version and the sizes of all files are checked first, and their checksums where this machine neither
        wrote nor checked these files before (`compare`). Raises NotFound for no folder and for a folder of another
        kind; Damaged for another version, for a file that is missing, of another size or with another checksum, and for
        whatever fails in the block because facts or arrays are not what it expects.
        """
        path = existing(path, f"folder of {layout.what}")
        try:
            try:
                text = (path / layout.file).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(f"{path}: holds no {layout.what} (no {layout.file}).") from None
            description = dict(json.loads(text))
            actual = " ".join(str(description[key]) for key in ("format", "version") if key in description) or "none"
            expected = f"{layout.name} {layout.version}"
            if actual != expected:
                raise Damaged(f"{path}: has format {actual}, {expected} is known. Build it again.")
            checksums.check_signed(description, ("format", "version", "facts", "files"))
            folder = cls(path, dict(description["facts"]), dict(description["files"]))
            folder._check_sizes()
            compare(path, folder.sums)
            yield folder
        except InterlinguaError:  # has its class already; the classes are ValueErrors, as damage can be
            raise
        except DAMAGE as error:
            raise Damaged(f"{path}: is damaged ({_reason(error)}). Build it again.") from error

    @classmethod
    @contextmanager
    def write(cls, path: str | Path, layout: Layout) -> Iterator[ArrayWriter]:
        """Fill a folder in a block. It appears at `path` when the block ends without an error, whole and on the disk
        (`atomic_folder`); an older folder of the same kind is replaced. Raises BadInput where something else is there.
        """
        with atomic_folder(path, layout.file) as place, ArrayWriter(place) as writer:
            yield writer
            files = writer.described()
            description = {"format": layout.name, "version": layout.version, "facts": writer.facts, "files": files}
            (place / layout.file).write_text(json.dumps(checksums.signed(description)) + "\n", "utf-8")
            checksums.note(place, cls(place, {}, files).sums)  # files keep inode and time where the folder is renamed

    @classmethod
    def check(cls, path: str | Path, layout: Layout, pace: float | None = None) -> None:
        """Compare every file with its checksum, whatever was checked before, at `pace` bytes a second where one is
        given. Raises as `open` does."""
        with cls.open(path, layout, partial(checksums.compare_again, pace=pace)):
            pass

    @property
    def sums(self) -> dict[str, str]:
        """The checksum of each file that has one."""
        return {name: str(entry["xxh3"]) for name, entry in self._files.items() if "xxh3" in entry}

    def array(
        self, name: str, dtype: str | None = None, shape: tuple[int | None, ...] | None = None, *, mapped: bool = True
    ) -> NDArray[Any]:
        """One array: memory-mapped and read-only, or read whole where it is empty or not to be `mapped` (each map is an
        open file). None is for any dtype or shape, in `shape` for any number. In the block of `open`, Damaged is raised
        where the file, its description and what is expected here differ."""
        file = f"{name}.npy"
        entry = self._files[file]
        stored = tuple(entry["shape"])
        array = np.asarray(
            np.load(self.path / file, mmap_mode="r" if mapped and 0 not in stored else None, allow_pickle=False)
        )
        dtype, expected = dtype or entry["dtype"], stored if shape is None else shape
        fits = len(expected) == array.ndim and all(n in (None, m) for n, m in zip(expected, array.shape, strict=True))
        if not fits or array.shape != stored or not array.dtype.name == entry["dtype"] == dtype:
            raise ValueError(
                f"{file} is {array.dtype.name} {list(array.shape)}, described as {entry['dtype']} {list(stored)}; "
                f"{dtype} {['any' if n is None else n for n in expected]} was expected"
            )
        return array

    def _check_sizes(self) -> None:
        """Raise ValueError for a file that is missing or not as large as it was."""
        sizes = {file.name: file.stat().st_size for file in self.path.iterdir() if file.is_file()}
        for name, entry in self._files.items():
            if name not in sizes:
                raise ValueError(f"no {name}")
            if sizes[name] != entry["bytes"]:
                raise ValueError(f"{name} has {sizes[name]:,} bytes in place of {entry['bytes']:,}")


def write_array(stream: IO[bytes], values: NDArray[Any]) -> None:
    """Write an array in NumPy's .npy format. On a full disk `np.save` raises an OSError that does not say so."""
    values = np.ascontiguousarray(values)
    np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(values))
    stream.write(values.data)


def mapped_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A new .npy file, mapped to be written. Its room is reserved: a disk without it is an OSError here. Without that
    the system ends the process when it writes where there is no room (SIGBUS)."""
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):  # not on Windows and macOS
        with open(path, "r+b") as stream:
            try:
                os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno in DISK_FULL:
                    path.unlink()
                    raise OSError(error.errno, error.strerror, str(path)) from error
    return array


@dataclass
class _Growing:
    """An array on its way to the disk: its file, its dtype, and how many rows of which shape it has."""

    stream: BinaryIO
    dtype: np.dtype[Any]
    row: tuple[int, ...]
    count: int = 0

    def write_header(self) -> None:
        """At the start of the file. numpy leaves room in it for the number of rows to grow."""
        self.stream.seek(0)
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.count, *self.row),
        }
        np.lib.format.write_array_header_1_0(self.stream, header)


class ArrayWriter:
    """Writer of the arrays of a folder, as .npy files that grow. `path` is where the folder is meanwhile, for files
    that are no arrays; `facts` is what the owner of an `ArrayFolder` wants to know of it later, as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = {}
        self._arrays: dict[str, _Growing] = {}
        self._streams = ExitStack()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, name: str, rows: NDArray[Any]) -> None:
        """Append `rows` [n, …] to an array, which the first call makes: it has the dtype of these rows and, but for n,
        their shape. n may be 0. Nothing is kept in memory."""
        rows = np.ascontiguousarray(rows)
        if name not in self._arrays:
            stream = self._streams.enter_context(open(self.path / f"{name}.npy", "wb"))  # noqa: SIM115
            self._arrays[name] = _Growing(stream, rows.dtype, rows.shape[1:])
            self._arrays[name].write_header()
        array = self._arrays[name]
        if (rows.dtype, rows.shape[1:]) != (array.dtype, array.row):
            raise BadInput(
                f"array {name}: rows of {rows.dtype} {list(rows.shape[1:])} were to be added to rows of "
                f"{array.dtype} {list(array.row)}: they must be alike."
            )
        array.stream.write(rows.data)
        array.count += len(rows)

    def added(self, name: str) -> NDArray[Any]:
        """All that was added to an array until now, memory-mapped."""
        array = self._arrays[name]
        end = array.stream.tell()
        array.write_header()
        array.stream.seek(end)
        array.stream.flush()
        return np.asarray(
            np.load(self.path / f"{name}.npy", mmap_mode="r" if array.count else None, allow_pickle=False)
        )

    def close(self) -> None:
        """Finish the arrays: nothing is added to them any more."""
        for array in self._arrays.values():
            if not array.stream.closed:
                array.write_header()
        self._streams.close()

    def described(self) -> dict[str, dict[str, Any]]:
        """Finish the arrays; the entry of each file in the description."""
        self.close()
        entries = checksums.described(self.path)
        for name, array in self._arrays.items():
            entries[f"{name}.npy"] |= {"dtype": array.dtype.name, "shape": [array.count, *array.row]}
        return entries


def _reason(error: BaseException) -> str:
    """The message of an error, on one line."""
    text = " ".join(str(error).split())
    return f"no {text}" if isinstance(error, KeyError) else text or type(error).__name__
