"""Passages that stay on disk: read when they are asked for, by place or by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, overload

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError


class StoredPassages(Sequence[Passage]):
    """The documents of the data set `name` of ir_datasets, `passage(document)` each. Nothing but what is asked for is
    in memory, so that a collection of millions can be reranked, or indexed in one pass.

    `by_id` reads from the data set's document store, which ir_datasets builds at first use. `lang` is the language of
    all passages. `source` is equal for two collections over the same documents.
    Reading raises InterlinguaError where ir_datasets cannot provide the documents.
    """

    def __init__(self, data: Any, name: str, passage: Callable[[Any], Passage], lang: str) -> None:
        self.source, self.name, self.lang = data.docs_handler(), name, lang
        self._data, self._passage, self._count = data, passage, 0

    @property
    def langs(self) -> set[str]:
        """The languages of the passages, without reading them."""
        return {self.lang}

    def by_id(self, ids: Iterable[str]) -> dict[str, Passage]:
        """The passages of these ids; an id that there is not is left out."""
        with provided(self.name):
            return {doc.doc_id: self._passage(doc) for doc in self._data.docs_store().get_many_iter(list(ids))}

    def __iter__(self) -> Iterator[Passage]:
        with provided(self.name):
            yield from map(self._passage, self._data.docs_iter())

    def __len__(self) -> int:
        # ir_datasets knows the number of some data sets, and of the others once their store is built
        with provided(self.name):
            self._count = self._count or self._data.docs_count() or self._data.docs_store().count()
        return self._count

    @overload
    def __getitem__(self, at: int) -> Passage: ...
    @overload
    def __getitem__(self, at: slice) -> list[Passage]: ...
    def __getitem__(self, at: int | slice) -> Passage | list[Passage]:
        if isinstance(at, slice):
            return list(self)[at]
        place = at + len(self) if at < 0 else at
        found = next(islice(self, place, None), None) if place >= 0 else None
        if found is None:
            raise IndexError(f"passage {at} of {len(self)}")
        return found


@contextmanager
def provided(name: str) -> Iterator[None]:
    """Turns what ir_datasets raises where it cannot download a file, or waits for one that a person is to fetch, into
    InterlinguaError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InterlinguaError(f"ir_datasets:{name}: ir_datasets cannot provide it ({reason}). Some collections are to "
                               "be fetched by hand: https://ir-datasets.com says how.") from error
