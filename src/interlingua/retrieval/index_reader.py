"""Reading the folder of a dense index, and saying so when its files do not hold what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.retrieval.index_writer import FORMAT

KEYS: dict[str, type] = {"model": str, "fingerprint": dict, "similarity": str, "passages": int, "dim": int,
                         "languages": dict}
"""What index.json must hold beside `format`."""

Arrays = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]


def damaged(path: Path, reason: object) -> InterlinguaError:
    """The error for a file of an index that cannot be what was written."""
    return InterlinguaError(f"{path}: is damaged ({reason}). Build it again with --overwrite.")


def read_about(folder: Path) -> dict[str, Any]:
    """What index.json says. Raises InterlinguaError when `folder` is no index, or one that cannot be read."""
    file = folder / "index.json"
    if not file.is_file():
        raise InterlinguaError(f"{folder}: is not an index (no index.json). Make one with `interlingua index`.")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(about, dict) or "format" not in about:
        raise damaged(file, "no 'format'")
    if about["format"] != FORMAT:
        raise InterlinguaError(f"{folder}: has index format {about['format']}, {FORMAT} is known. "
                               "Build it again with --overwrite.")
    for key, kind in KEYS.items():
        if not isinstance(about.get(key), kind):
            raise damaged(file, f"'{key}' is missing or no {kind.__name__}")
    return about


def read_arrays(folder: Path, about: dict[str, Any]) -> Arrays:
    """vectors `[passages, dim]`, offsets, languages and ties `[passages]`, all memory-mapped.

    Raises InterlinguaError for a file that is missing, cut, or of another shape than index.json says.
    """
    count = about["passages"]
    return (_array(folder / "vectors.npy", np.float32, (count, about["dim"])),
            _array(folder / "offsets.npy", np.int64, (count,)),
            _array(folder / "languages.npy", np.int32, (count,)),
            _array(folder / "ties.npy", np.int64, (count,)))


def _array(file: Path, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        array = np.lib.format.open_memmap(file, mode="r")  # never a pickle
    except (OSError, ValueError, EOFError) as error:
        raise damaged(file, error) from error
    if array.dtype != dtype or array.shape != shape:
        raise damaged(file, f"{np.dtype(dtype).name} {list(shape)} was expected")
    return array
