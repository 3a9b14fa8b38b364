"""What the stages of a pipeline have in common, and the passages they look up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.run import Run

Candidates = Mapping[str, Sequence[str]]
"""query id → the ids of the passages to be scored for it"""


class Scorer(Protocol):
    """Whatever can put candidates into another order."""

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """For each query of `candidates`, exactly its candidates, scored."""


class Retriever(Scorer, Protocol):
    """Whatever can search its passages, and score some of them: BM25, `DenseRetriever`, `LateInteractionRetriever`."""

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` best passages for each query; fewer where there are fewer."""


def passages_by_id(passages: Sequence[Passage], ids: Iterable[str]) -> list[Passage]:
    """The passages with these ids, in the order of `ids`. Those of a collection that stays on disk
    (`interlingua.data.collections.stored`) are read one by one.

    Raises InterlinguaError for ids that no passage has, saying how many.
    """
    wanted = list(ids)
    lookup = getattr(passages, "by_id", None)
    if lookup is not None:
        found = lookup(wanted)
    else:
        chosen = set(wanted)
        found = {passage.id: passage for passage in passages if passage.id in chosen}
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise InterlinguaError(f"{len(unknown):,} of {len(wanted):,} candidates are no passages of the collection, the "
                               f"first is '{unknown[0]}'. The first stage must be of the same collection.")
    return [found[name] for name in wanted]


def chosen_queries(queries: Sequence[Query], candidates: Candidates) -> list[Query]:
    """The queries of `candidates`, in its order. Raises InterlinguaError for candidates of a query without text."""
    known = {query.id: query for query in queries}
    unknown = [name for name in candidates if name not in known]
    if unknown:
        raise InterlinguaError(f"{len(unknown):,} queries of the first stage have no text, the first is "
                               f"'{unknown[0]}'. The run and the queries must be of one test set.")
    return [known[name] for name in candidates]
