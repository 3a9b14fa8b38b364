"""What changes or describes the index, run in the threads that may use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interlingua.data.records import Passage
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

    index: Any
    passages: Sequence[Passage]

    def __call__(self, items: Sequence[None]) -> list[Changed]:
        return [Changed(self.index.replace(self.passages), len(self.index))]


@dataclass(frozen=True, eq=False)
class Delete:
    """Delete the passage with this id."""

    index: Any
    id: str

    def __call__(self, items: Sequence[None]) -> list[Changed]:
        return [Changed(self.index.delete([self.id]), len(self.index))]
