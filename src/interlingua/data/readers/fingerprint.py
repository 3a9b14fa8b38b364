"""The identity of a source, by which a store knows whether it is still up to date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from interlingua.data.encyclopedia import is_encyclopedia, topic_files
from interlingua.data.readers.pairing import files_of
from interlingua.data.readers.source import PathLike
from interlingua.errors import InterlinguaError


def source_fingerprint(path: PathLike | Iterable[PathLike], **options: object) -> str:
    """Identifies what would be read from `path` (whatever the readers accept) with `options`: 16 hex digits over the
    names, sizes and modification times (ns) of the files and the options. An id of ir_datasets stands for itself. For
    `RecordStore.build`. Raises InterlinguaError for a pipe: nothing tells whether it would give the same again."""
    parts: list[object] = [sorted((key, repr(value)) for key, value in options.items())]
    for one in [path] if isinstance(path, (str, bytes)) or not isinstance(path, Iterable) else path:
        if is_encyclopedia(one):
            parts += [one, *topic_files()]
            continue
        if str(one).startswith("ir_datasets:"):
            parts.append(one)
            continue
        for file in files_of(one):
            if not file.is_file():
                raise InterlinguaError(f"{file}: is a pipe. Training must find the same data when it goes on after a "
                                       "stop. Save what the pipe gives to a file.")
            facts = file.stat()
            parts.append((str(file.resolve()), facts.st_size, facts.st_mtime_ns))
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]
