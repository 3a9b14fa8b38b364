"""Keep an index up to date with files and folders while these change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Busy, Damaged, NotFound, Stale
from interlingua.index.index import Index
from interlingua.index.sync import Changes

if TYPE_CHECKING:
    from interlingua.data.files.walk import Report, Scope, SourceNames
    from interlingua.data.files.watch import Batch, Watcher

    Read = Callable[[Sequence[str], SourceNames, Scope, Report], Iterable[Passage]]
    """Paths and what the reader fills → their passages."""

logger = logging.getLogger(__name__)

AGAIN = 1.0
"""Seconds after which a writer that waits for another one tries again."""
ALL = 3_600.0
"""Seconds after which all is synced, in case that the system lost word of a change."""


class Stopped(Exception):
    """Raised within a sync that is not to go on: nothing of it is written."""


class Watching:
    """Syncs of `index` with what a `watcher` sees, each batch in one write, until it stops. `read` reads paths."""

    def __init__(self, index: Index, watcher: Watcher, read: Read, allow_empty: bool = False) -> None:
        self.index, self.watcher, self.read, self.allow_empty = index, watcher, read, allow_empty
        self.stop = watcher.stop

    def run(self) -> None:
        """Sync all, then each batch; one line about each is reported. All is synced again after an hour, and by the
        first batch after one that failed."""
        try:
            failed = not self._reported(None, "synced")
            logger.info(f"{self.index.path}: watching {', '.join(self.watcher.paths)}")
            last = time.monotonic()
            for batch in self.watcher.batches():
                late = time.monotonic() - last > ALL
                if late or (failed and batch.paths):
                    failed = not self._reported(None, "synced")
                    last = time.monotonic()
                elif batch.paths:
                    failed = not self._reported(batch, f"{len(batch):,} changed")
        except Stopped:
            pass

    def _reported(self, batch: Batch | None, action: str) -> bool:
        """Sync, and report how that went; whether it went well."""
        try:
            changes, report = self._synced(batch)
        except (
            BadInput,
            Damaged,
            NotFound,
            Stale,
            OSError,
        ) as error:  # Damaged also where the disk is full for a while
            reason = " ".join(str(error).split()).rstrip(".")
            logger.warning(f"{self.index.path}: {action}, nothing is written: {reason}. The next change tries again.")
            return False
        logger.info(f"{self.index.path}: {action}: {changes}; {len(self.index):,} passages")
        if report.bad:
            logger.warning("\n".join(report.reasons()))
        return True

    def _synced(self, batch: Batch | None) -> tuple[Changes, Report]:
        """Sync the files of a batch; all paths where it is None, and where the files of the batch alone do not tell
        whether a folder has become empty."""
        if batch is not None:
            try:
                return self._once_free(batch.paths, batch.inside)
            except BadInput as error:
                logger.debug(f"all is synced ({error})")
        return self._once_free(self.watcher.paths, None)

    def _once_free(self, paths: Sequence[str], inside: Iterable[str] | None) -> tuple[Changes, Report]:
        """Sync some paths as soon as no other writer is at work."""
        from interlingua.data.files.walk import Report, Scope, SourceNames

        waited = False
        while True:
            scope, names, report = Scope(), SourceNames(), Report()
            scope.only = None if inside is None else frozenset(inside)
            passages = self._until_stopped(self.read(paths, names, scope, report))
            try:
                return self.index.sync(passages, scope, names, allow_empty=self.allow_empty), report
            except Busy:
                if not waited:
                    logger.warning(f"{self.index.path}: another process writes to it. Waiting until it is done.")
                waited = True
                if self.stop.wait(AGAIN):
                    raise Stopped from None

    def _until_stopped(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        for passage in passages:
            if self.stop.is_set():
                raise Stopped
            yield passage
