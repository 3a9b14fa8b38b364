"""The changes of a write: new passages are compared with those in the index, and some of these are removed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any

from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.index.ranking import Arriving
from interlingua.index.store import View, chunks

if TYPE_CHECKING:
    from interlingua.data.files.walk import Scope

logger = logging.getLogger(__name__)

TOLD = 3
"""Sources that are named where they are not on the disk any more."""


@dataclass
class Changes:
    """Passages by source: those that were `added`, `replaced` and `deleted`, or would be, and those that stay though no
    source has them, since theirs could not be read as a whole (`kept`). `unchanged` is the number of all others that
    were read."""

    added: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0

    def __bool__(self) -> bool:
        """Whether anything was changed."""
        return bool(self.added or self.replaced or self.deleted)

    def __str__(self) -> str:
        kinds = {"added": self.added, "replaced": self.replaced, "deleted": self.deleted}
        counts = [f"{count.total():,} {kind}" for kind, count in kinds.items()]
        return ", ".join([*counts, f"{self.unchanged:,} unchanged"])

    def by_source(self) -> list[str]:
        """A line for each source that something was changed in."""
        kinds = {"added": self.added, "replaced": self.replaced, "deleted": self.deleted, "kept": self.kept}
        sources = sorted({source for count in kinds.values() for source in count})
        return [
            f"{source}: " + ", ".join(f"{count[source]:,} {kind}" for kind, count in kinds.items() if count[source])
            for source in sources
        ]


def changed(
    passages: Iterable[Passage], view: View[Any], arriving: Arriving, done: Changes
) -> Iterator[list[tuple[Passage, Any]]]:
    """The passages that are new or not as they are in `view`, each with the row whose place it takes (None: a new one),
    some thousand at a time. All are counted in `done`."""
    for chunk in chunks(passages):
        matched = arriving.match(chunk, view.find, view.source)
        rows = [row for _, row in matched if row is not None]
        old_passages = dict(zip(rows, view.passages(rows), strict=True))
        new = [(passage, row) for passage, row in matched if row is None or old_passages[row] != passage]
        for passage, row in new:
            (done.added if row is None else done.replaced)[passage.source] += 1
        done.unchanged += len(chunk) - len(new)
        if new:
            yield new


class Syncing:
    """One call of `Index.sync` on the index at `place`, which knew the sources `known` (name → path)."""

    def __init__(
        self, view: View[Any], scope: Scope, known: Mapping[str, str], place: object, allow_empty: bool
    ) -> None:
        self.view, self.scope, self.known, self.place, self.allow_empty = view, scope, known, place, allow_empty
        self.done = Changes()
        self._gone: set[tuple[str, str]] = set()

    def changes(self, passages: Iterable[Passage]) -> Iterator[list[tuple[Passage, Any]]]:
        """As `changed`. When all have been read, it looks for those that are gone, and raises where these look like a
        mistake: `Index.sync` says when."""
        arriving = Arriving(self.place, "replace")
        yield from changed(passages, self.view, arriving, self.done)
        same = self.scope.memory.same
        self.done.unchanged += sum(same.values())
        for rows, sources in self.view.sourced(lambda source: source not in same and source in self.scope):
            for source, id in zip(sources, self.view.ids(rows), strict=True):
                if (source, id) not in arriving.seen:
                    if self.scope.is_unread(source):
                        self.done.kept[source] += 1
                    else:
                        self.done.deleted[source] += 1
                        self._gone.add((source, id))
        read_sources = arriving.sources
        self._check(read_sources)
        self._tell_moved()
        if own := sorted(source for source in read_sources if source and source not in self.scope):
            logger.warning(
                f"{len(own):,} sources are named by rows themselves, such as '{own[0]}': passages that are gone from "
                "these are not deleted. Delete such a source with `interlingua delete --source`."
            )

    def gone(self, view: View[Any]) -> set[Any]:
        """The rows of a later view to delete."""
        by_id = view.find(sorted({id for _, id in self._gone}))
        return {row for id, rows in by_id.items() for row in rows if (view.source(row), id) in self._gone}

    def _tell_moved(self) -> None:
        """Name what lies no more where it was, when something comes that was not known: it may have been renamed."""
        from interlingua.data.files.walk import Scope

        if self.scope.paths <= self.scope.known(self.known):
            return
        lost = {
            end: place
            for name, place in self.known.items()
            if not (name in self.scope or f"{name}/" in self.scope or os.path.exists(place))
            for end in (name, f"{name}/")
        }
        if not lost:
            return
        named = Scope(lost)
        counts = Counter(named.given(one) for _, sources in self.view.sourced(named.__contains__) for one in sources)
        for name, count in counts.most_common(TOLD):
            logger.warning(
                f"{lost[str(name)]}: is not there any more, and {self.place} keeps {count:,} passages from it. If they "
                f"are to go: interlingua delete {quote(str(self.place))} --source {quote(str(name))}"
            )
        if len(counts) > TOLD:
            logger.warning(f"… and {len(counts) - TOLD:,} more sources are not there any more")

    def _check(self, sources: set[str]) -> None:
        """Raise for a given path that seems to be a mistake."""
        read_paths = {self.scope.given(source) for source in (*sources, *self.scope.read, *self.scope.unread)}
        losses: Counter[str | None] = Counter()
        for source, count in self.done.deleted.items():
            if source not in self.scope.files:  # whoever names a file that is gone means it
                losses[self.scope.given(source)] += count
        touched = read_paths | {self.scope.given(source) for source in (*self.done.deleted, *self.done.kept)}
        known_paths = self.scope.known(self.known)
        for path in dict.fromkeys(self.scope.names.values()):
            is_there = os.path.exists(path)
            message = f"{path}: {'holds nothing to read' if is_there else 'does not exist'}"
            if path in self.scope.paths and path not in touched:
                message += f", and {self.place} has no passage from it"
                if path not in known_paths:
                    raise (BadInput if is_there else NotFound)(f"{message}. Check the path.")
                logger.warning(message)
            if losses[path] and path not in read_paths and not self.allow_empty:
                message = message if path in self.scope.paths else f"'{path}': no passage was given"
                raise BadInput(
                    f"{message}, but {self.place} has {losses[path]:,} passages from it, and all would be deleted. "
                    "If that is meant, say so with --allow-empty (in Python: allow_empty=True); else check the path."
                )
