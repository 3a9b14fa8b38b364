"""What changes or describes the index, run in the threads that may use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.text.detect import detect_language


class Facts(NamedTuple):
    """What an index holds, and what it is made with (a name, not the place)."""

    passages: int
    languages: dict[str, int]
    model: str


class Changed(NamedTuple):
    """How many passages a call changed, and how many there are now."""

    changed: int
    passages: int


@dataclass(frozen=True)
class Describe:
    """What the index holds; the items are all alike."""

    index: Any

    def __call__(self, items: Sequence[None]) -> list[Facts]:
        self.index.refresh()
        model = Path(self.index.info().model).name or "unnamed"
        return [Facts(len(self.index), dict(self.index.languages), model)] * len(items)


@dataclass(frozen=True)
class Warm:
    """A first question, so that the first client does not wait for what is loaded late."""

    index: Any

    def __call__(self, items: Sequence[None]) -> list[None]:
        detect_language("interlingua")
        self.index.search_many(["interlingua"], k=1)
        return [None] * len(items)


@dataclass(frozen=True, eq=False)
class Write:
    """Add the passages, in place of those that have their ids; those that are there exactly so are left alone."""

    passages: Sequence[Passage]

    def __call__(self, index: Any) -> int:
        return int(index.replace(self.passages))


@dataclass(frozen=True, eq=False)
class Delete:
    """Delete the passage with this id."""

    id: str

    def __call__(self, index: Any) -> int:
        return int(index.delete([self.id]))


@dataclass(frozen=True)
class Change:
    """Writes that waited together: done one by one, each whole or not at all, and synced together, before any is
    acknowledged. One result each: a write that failed has its own error, and where the sync
    fails, all have that."""

    index: Any

    def __call__(self, items: Sequence[Write | Delete]) -> list[Changed | Exception]:
        done: list[Changed | Exception] = []
        try:
            with self.index.together():
                for item in items:
                    try:
                        done.append(Changed(item(self.index), len(self.index)))
                    except Exception as error:
                        done.append(error)
        except InterlinguaError as error:  # another process writes, or the disk does not take it
            return [one if isinstance(one, Exception) else error for one in done] or [error] * len(items)
        return done
