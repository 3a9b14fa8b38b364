"""Writing a folder so that a kill leaves the old one or the new one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlingua.errors import InterlinguaError


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """A temporary folder beside `path`, renamed to it when the block ends without an error.

    A folder that is there already is replaced only if it holds the file `marker` (it is an older save) or is empty;
    else InterlinguaError, so that nobody's other files are lost.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and not (path / marker).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise InterlinguaError(f"{path}: exists and is not an earlier save (no {marker} in it). Choose another folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
            os.replace(path, old)
            os.replace(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
