"""One search in several indexes: what each finds becomes one ranking.

Scores of several indexes can be compared where one model made them all: in dense search, if the indexes were made with
the same model, and after reranking. These hits are ordered by their scores. BM25 counts words in its own index, and the
scores of hybrid search are normalised among its own candidates: these rankings are merged by reciprocal rank fusion
(Cormack et al. 2009), so that the score of a hit is 1 / (60 + its rank in its index), and its own score is the part
"own". As no passage is in two rankings, this takes the first of each index, then the second of each. Among hits of the
same rank the one with the higher dense score is first where the indexes have the same model; else, and where scores are
equal, the order is that of the indexes.

Everything else is as if the passages of all indexes were in one: a key of metadata or a language must be in one of them
at least, and an index that lacks it has no passage with it. `min_score` is compared with the score within an index, and
groups are made within an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from interlingua.errors import BadInput
from interlingua.index.filters import Condition, check_field, check_filter, comparable, most_frequent, narrowed_to
from interlingua.index.metadata import Budget, Question, codes_in
from interlingua.index.search import GROUPS, Hit, distinct_hits
from interlingua.index.store import View
from interlingua.retrieval.fusion import RRF_K
from interlingua.serving.service import Answer, Searches, answered

COUNTED, SHOWN = 1_000, 50
"""Values of a key of metadata: the most frequent ones that are counted in each index, and those in the answer."""


@dataclass(frozen=True)
class Federated:
    """The same search in several indexes; the `seconds` of work are those of all together."""

    searches: tuple[Searches, ...]

    def __call__(self, items: Sequence[Question]) -> list[Answer]:
        views = [search.index.refresh() for search in self.searches]
        self._check(views)
        pairs = zip(self.searches, views, strict=True)
        parts = [part for search, view in pairs if (part := narrowed(search, view)) is not None]
        first, budget = self.searches[0], Budget(self.searches[0].seconds)
        rankings = [part.found(items, budget) for part in parts]
        with budget.stage("counting", *items):
            facets = self._facets(parts)
        models = [search.index.metadata.fingerprint for search in self.searches]
        same_model = all(model == models[0] for model in models)
        comparable = first.reranker is not None or (first.mode == "dense" and same_model)
        return [
            answered(
                [
                    (parts[place], hit)
                    for place, hit in merged(
                        [lists[number] for lists in rankings],
                        first.k,
                        comparable=comparable,
                        dense=same_model and first.mode != "lexical",
                        distinct=first.distinct,
                    )
                ],
                question,
                budget,
                facets,
            )
            for number, question in enumerate(items)
        ]

    def _check(self, views: Sequence[View[Any]]) -> None:
        """Raise BadInput for a key or a language that no passage of any index has, and for a range with which none of
        their values can be compared."""
        first = self.searches[0]
        if not any(map(len, views)):
            return
        fields = {field for view in views for field in view.fields}
        if first.where is not None:
            check_filter(
                first.where,
                fields,
                lambda key: (part for view in views if key in view.fields for part in view.values(key)),
                "the indexes",
            )
        keys = [first.group_by] if first.group_by not in (None, *GROUPS) else []
        for key in (*keys, *first.facets):
            check_field(str(key), fields, "the indexes")
        if not first.same:
            languages = {lang for view in views for lang in view.languages}
            for lang in first.langs or ():
                if languages.isdisjoint(codes_in(languages, lang) or ()):
                    raise BadInput(f"the indexes: no passage is in language '{lang}'.")

    def _facets(self, parts: Sequence[Searches]) -> dict[str, dict[str, int]]:
        counts: dict[str, Counter[str]] = {key: Counter() for key in self.searches[0].facets}
        for part in parts:
            for key, values in part.counts(COUNTED).items():
                counts[key].update(values)
        return {key: most_frequent(values, SHOWN) for key, values in counts.items()}


def narrowed(one: Searches, view: View[Any]) -> Searches | None:
    """The search as its index can be asked it: without the languages and keys of metadata that the index lacks, and
    without ranges that none of its values can be compared with. None where no passage of it can be found."""
    fields, langs = view.fields, one.langs
    if langs is not None:
        langs = tuple(lang for lang in codes_in(view.languages, langs) or () if lang in view.languages)
        if not langs:
            return None

    def possible(condition: Condition) -> bool:
        return condition.key in fields and comparable(condition, view.values(condition.key))

    where = None if one.where is None else narrowed_to(one.where, possible)
    if where is False:
        return None
    return replace(
        one,
        langs=langs,
        where=None if where is True else where,
        group_by=one.group_by if one.group_by in GROUPS or one.group_by in fields else None,
        facets=tuple(key for key in one.facets if key in fields),
    )


def merged(
    lists: Sequence[Sequence[Hit]], k: int, *, comparable: bool, dense: bool, distinct: bool = False
) -> list[tuple[int, Hit]]:
    """The `k` best of some rankings, each with the number of its ranking: by their scores where these are `comparable`,
    else by reciprocal rank fusion. With `dense`, dense scores decide between hits of one rank; with `distinct`, hits
    that say the same are one."""
    candidates = [(place, rank, hit) for place, hits in enumerate(lists) for rank, hit in enumerate(hits, 1)]
    if comparable:
        candidates.sort(key=lambda row: -row[2].score)  # stable: equal ones stay in the order of the indexes
        ranking = [(place, hit) for place, _, hit in candidates]
    else:
        candidates.sort(key=lambda row: (row[1], -row[2].parts.get("dense", 0.0) if dense else 0.0))
        ranking = [
            (place, hit._replace(score=1 / (RRF_K + rank), parts={**hit.parts, "own": hit.score}))
            for place, rank, hit in candidates
        ]
    if not distinct:
        return ranking[:k]
    first = distinct_hits([hit for _, hit in ranking], k)
    return [(ranking[number][0], hit) for number, hit in first.items()]
