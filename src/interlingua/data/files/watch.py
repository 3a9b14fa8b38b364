"""Wait for changes of files and folders, and gather them in batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from interlingua.data.files.unchanged import Stamp
from interlingua.errors import BadInput, NotFound

QUIET = 500
"""Milliseconds without a change after which a batch is complete."""
LONGEST = 10_000
"""Milliseconds after which it is complete anyway."""
LOOK = 1_000
"""Milliseconds after which it is looked whether the paths themselves are still there."""


@dataclass
class Batch:
    """A set of changes: the given `paths` that have one, and the real paths `inside` folders among these."""

    paths: list[str] = field(default_factory=list)
    inside: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        """The number of files and folders that changed."""
        return len(self.inside) + sum(not os.path.isdir(path) for path in self.paths)


class Watcher:
    """Changes of what is at `paths`, files and folders, from the moment of making on. Changes of what is hidden, and
    within `without`, are none.

    Folders are watched by `watchfiles`. The paths themselves are looked at each second: a folder that is moved away,
    and another one in its place, are a change of all that is in it. Raises NotFound without watchfiles, and BadInput
    where the system does not let so many folders be watched.
    """

    def __init__(self, paths: Sequence[str | Path], stop: Event, without: Iterable[str | Path] = ()) -> None:
        self.paths, self.stop = [str(path) for path in paths], stop
        self._without = [Path(os.path.realpath(path)) for path in without]
        self._seen = {path: _identity(path) for path in self.paths}
        self._changes: Iterator[set[tuple[Any, str]]] | None = None
        self._early: set[tuple[Any, str]] = set()
        self._roots: dict[str, Path] = {}
        self._open()

    def batches(self) -> Iterator[Batch]:
        """A batch each time that something has changed, and an empty one after a second without a change, until `stop`
        is set."""
        while not self.stop.is_set():
            batch = Batch()
            for _, path in self._next():
                self._take(batch, path)
            for path, previous in self._seen.items():
                if (current := _identity(path)) != previous:
                    self._seen[path] = current
                    batch.paths += [path] if path not in batch.paths else []
                    if os.path.isdir(path) or path in self._roots:
                        batch.inside.add(os.path.realpath(path))
                        self._changes = None
            if self._changes is None:
                self._open()
            if not self.stop.is_set():
                yield batch

    def _next(self) -> set[tuple[Any, str]]:
        """The next changes in folders; none after a second without a change."""
        if self._changes is None:
            self.stop.wait(LOOK / 1000)
            return set()
        early, self._early = self._early, set()
        return early or next(self._changes, set())

    def _open(self) -> None:
        """Begin to watch the folders that are there."""
        try:
            from watchfiles import watch
        except ImportError:
            raise NotFound("--watch needs watchfiles: pip install 'interlingua[watch]'") from None
        self._roots = {path: Path(os.path.realpath(path)) for path in self.paths if os.path.isdir(path)}
        if not self._roots:
            return
        self._changes = watch(
            *self._roots.values(),
            watch_filter=None,
            stop_event=self.stop,
            debounce=LONGEST,
            step=QUIET,
            rust_timeout=LOOK,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        try:
            self._early = next(self._changes, set())  # it begins to watch here
        except (OSError, RuntimeError) as error:
            raise BadInput(
                f"{', '.join(self._roots)}: cannot be watched ({error}). Let the system watch more folders (Linux: "
                "sysctl fs.inotify.max_user_watches), or set WATCHFILES_FORCE_POLLING=true."
            ) from error

    def _take(self, batch: Batch, changed: str) -> None:
        """Note a path below a folder, unless it is hidden or not wanted."""
        place = Path(changed)
        if any(place.is_relative_to(folder) for folder in self._without):
            return
        for path, root in self._roots.items():
            if not place.is_relative_to(root):
                continue
            if place == root:
                self._changes = None  # it went: what has its name and number now is not watched yet
            parts = place.relative_to(root).parts
            hidden = next((index for index, part in enumerate(parts) if part.startswith(".")), None)
            if hidden is not None:
                if not os.path.islink(root.joinpath(*parts[: hidden + 1])):
                    continue
                place = root.joinpath(*parts[:hidden])  # other files may be links into what the hidden link leads to
            batch.inside.add(str(place))
            batch.paths += [path] if path not in batch.paths else []


def _identity(path: str) -> object:
    """A value that differs where a path is another file or folder than before; None where there is nothing."""
    if os.path.isdir(path):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return Stamp.of(path)
