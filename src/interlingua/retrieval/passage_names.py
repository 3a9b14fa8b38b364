"""Which passage of an index is meant: by its source and id, by the name that a person gives, by its place in a tie."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError

Row = TypeVar("Row")
"""What a store has for a passage: a place, a row."""
Find = Callable[[Sequence[str]], Mapping[str, list[Row]]]
"""ids → for each the rows of the passages that have it; an id that no passage has is left out"""


def qualified(source: str, id: str) -> str:
    """The name of one passage among several with the same id: `faq.csv:7`."""
    return f"{source}:{id}"


def named(names: Sequence[str], find: Find[Row], source_of: Callable[[Row], str]) -> dict[str, list[Row]]:
    """The rows that each of `names` means: those of all passages with this id, else of the one called `source:id`. A
    name that means none is left out."""
    found = dict(find(names))
    # a source may hold colons, and so may an id: each of them may be the one between the two
    cuts = {name: [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == ":"]
            for name in names if name not in found}
    ids = dict.fromkeys(id for pairs in cuts.values() for _, id in pairs)
    rows = find(list(ids)) if ids else {}
    for name, pairs in cuts.items():
        if meant := [row for source, id in pairs for row in rows.get(id, ()) if source_of(row) == source]:
            found[name] = meant
    return found


def only(name: str, rows: Sequence[Row], source_of: Callable[[Row], str], place: object) -> Row:
    """The one of `rows`, those that `name` means in the index at `place`. Raises InterlinguaError where there is none,
    and where there are several, naming each."""
    if not rows:
        raise InterlinguaError(f"{place}: has no passage '{name}'.")
    if len(rows) > 1:
        raise InterlinguaError(f"{place}: has {len(rows)} passages with the id '{name}'. Name one of them: "
                               f"{_listed(name, [source_of(row) for row in rows])}.")
    return rows[0]


class Arriving:
    """The passages that one call of `add` or `replace` writes to the index at `place`, matched with those there.

    A passage with a source takes the place of the one with its source and id. One without a source takes the place of
    the only one with its id, and keeps that one's source.
    """

    def __init__(self, place: object, verb: str) -> None:
        self.place, self.verb = place, verb
        self._seen: set[tuple[str, str]] = set()

    def match(self, passages: Sequence[Passage], find: Find[Row], source_of: Callable[[Row], str]
              ) -> list[tuple[Passage, Row | None]]:
        """Each of `passages` as it is to be written, and the row that it replaces, None for a new one.

        Raises InterlinguaError for a passage that comes twice, one that is there already where the call is "add", and
        one without a source whose id several passages have.
        """
        rows = find([passage.id for passage in passages])
        return [self._matched(passage, {source_of(row): row for row in rows.get(passage.id, ())})
                for passage in passages]

    def _matched(self, passage: Passage, held: Mapping[str, Row]) -> tuple[Passage, Row | None]:
        key = passage.key
        if key in self._seen:
            raise twice(passage)
        self._seen.add(key)
        # what this call has written itself is not what it finds
        held = {source: row for source, row in held.items() if source == key[0] or (source, key[1]) not in self._seen}
        if self.verb == "add" and (key[0] in held or (held and not key[0])):
            raise InterlinguaError(f"{self.place}: has a passage '{passage.id}' already"
                                   f"{'' if key[0] or '' in held else ', from ' + _sources(held)}. Replace it with "
                                   "--replace (in Python: replace).")
        if key[0] in held or key[0] or not held:
            return passage, held.get(key[0])
        if len(held) > 1:
            raise InterlinguaError(f"{self.place}: has {len(held)} passages with the id '{passage.id}', from "
                                   f"{_sources(held)}. Say with the metadata 'source' which one is to be replaced.")
        ((source, row),) = held.items()
        if (source, passage.id) in self._seen:
            raise twice(passage)
        self._seen.add((source, passage.id))
        return replace(passage, metadata={**passage.metadata, "source": source}), row


def twice(passage: Passage) -> InterlinguaError:
    """The error for two passages with one source and id."""
    of = f" in '{passage.source}'" if passage.source else ""
    return InterlinguaError(f"passage id '{passage.id}' occurs twice{of}. Ids must be unique in a source.")


def ranking_names(ids: Sequence[str], sources: Callable[[], Sequence[str]]) -> list[str]:
    """A name for each of some passages with which a `Run` ranks them: its id, so that ties are ordered by id
    descending. Where two have one id, all are numbered in the order of id and source; only then `sources` is asked."""
    if len(set(ids)) == len(ids):
        return list(ids)
    keys = list(zip(ids, sources(), strict=True))
    width = len(str(len(keys)))
    number = {row: at for at, row in enumerate(sorted(range(len(keys)), key=keys.__getitem__))}
    return [f"{number[row]:0{width}}" for row in range(len(keys))]


def _listed(id: str, sources: Collection[str]) -> str:
    return ", ".join(f"'{qualified(source, id)}'" for source in sorted(sources))


def _sources(held: Collection[str]) -> str:
    return ", ".join(f"'{source}'" for source in sorted(held))
