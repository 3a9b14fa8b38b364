"""Measures of a run, in ir-measures notation, with trec_eval's arithmetic and ordering."""

from __future__ import annotations

import operator
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from interlingua.data.records import Qrels
from interlingua.errors import BadInput, suggestion
from interlingua.retrieval.run import Run

DEFAULT_MEASURES = ("RR@100", "R@100", "nDCG@10")
# what trec_eval computes for each query and averages over queries, and whether it needs a cut-off
_NAMES = {
    "AP": False,
    "Bpref": False,
    "P": True,
    "R": True,
    "RR": False,
    "Rprec": False,
    "Success": True,
    "nDCG": False,
}
_ALIASES = {"MRR": "RR", "Recall": "R", "MAP": "AP", "NDCG": "nDCG", "Precision": "P"}


class PerQuery(dict[str, dict[str, float]]):
    """Measure → query id → value. Aliases find their measure: `["MRR@100"]` is `["RR@100"]`."""

    def __missing__(self, name: str) -> dict[str, float]:
        measure = canonical(name)
        if measure not in self:
            raise BadInput(f"measure '{name}' was not computed.{suggestion(measure, self)}")
        return self[measure]


@dataclass(frozen=True)
class Scores(Mapping[str, float]):
    """Measure → mean over queries; `per_query[measure]` → query id → value. Aliases find their measure."""

    per_query: PerQuery

    def __getitem__(self, measure: str) -> float:
        values = self.per_query[measure]
        return sum(values.values()) / len(values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.per_query)

    def __len__(self) -> int:
        return len(self.per_query)

    def __contains__(self, measure: object) -> bool:
        return isinstance(measure, str) and self.get(measure) is not None

    def get(self, measure: str, default: Any = None) -> Any:
        """The mean of a measure, or `default` where it was not computed."""
        try:
            return self[measure]
        except BadInput:
            return default

    @property
    def queries(self) -> int:
        """The number of queries of the means."""
        return len(next(iter(self.per_query.values()), {}))


MOST_GRADE = 1_000_000
"""The highest grade of a judgement: trec_eval counts passages by grade, from 0 to the highest."""


@cache
def canonical(name: str) -> str:
    """The ir-measures name: "MRR@100" → "RR@100", "Recall@100" → "R@100".

    Raises BadInput for a measure that is unknown or lacks its cut-off, with a suggestion.
    """
    return str(_parse(name))


@cache
def check_depth(name: str, depth: int) -> None:
    """Raise BadInput for a measure that looks deeper than the `depth` passages retrieved."""
    cutoff = canonical(name).rpartition("@")[2]
    if cutoff.isdigit() and int(cutoff) > depth:
        raise BadInput(f"measure '{name}' looks deeper than depth={depth}. Set depth={cutoff}.")


def _parse(name: str) -> Any:
    import ir_measures

    base = name.split("@")[0].split("(")[0].strip()
    if ("," in name and "(" not in name) or " " in name.strip():
        raise BadInput(f"'{name}': is not one measure. Give several one by one, without commas: RR@100 nDCG@10.")
    if base not in _NAMES and base not in _ALIASES:
        raise BadInput(f"unknown measure '{name}'.{suggestion(base, [*_NAMES, *_ALIASES])}")
    try:
        measure = ir_measures.parse_measure(name)
        measure.validate_params()
    except (AssertionError, ValueError, NameError, TypeError) as error:
        hint = f" Write for example '{base}@100'." if _NAMES[_ALIASES.get(base, base)] else ""
        raise BadInput(f"measure '{name}': {error or 'not understood'}.{hint}") from None
    cutoff = measure.params.get("cutoff")
    if (cutoff is None and _NAMES[measure.NAME]) or (cutoff is not None and cutoff < 1):
        raise BadInput(f"measure '{name}': needs a cut-off of 1 or more. Write for example '{base}@100'.")
    if measure.NAME != "RR" and not ir_measures.pytrec_eval.supports(measure):
        raise BadInput(f"measure '{name}': trec_eval does not compute it with these parameters.")
    return measure


def evaluate(run: Run, qrels: Qrels, measures: Sequence[str] = DEFAULT_MEASURES) -> Scores:
    """Mean and per-query values of `measures` ("RR@100", "R@100", "nDCG@10", "AP", "P@10", …).

    As `trec_eval -c -M …`: the mean is over ALL queries in `qrels`. A query that the run lacks counts 0, and
    so does a query whose qrels hold no relevant passage (it is not left out); queries that only the run has are
    ignored. Relevant means grade ≥ 1 (or `rel=`); recall is the fraction of the relevant passages found; nDCG's
    gain is the grade as it is, its discount 1/log2(rank + 1). RR@k is 1/rank of the first relevant passage in
    the top k, else 0. Ordering: `interlingua.retrieval.run.Run`.

    Raises BadInput for an unknown measure (with a suggestion), qrels without queries, and a grade that is no integer or
    above `MOST_GRADE`.
    """
    if not qrels:
        raise BadInput("the qrels hold no query: there is nothing to evaluate.")
    if isinstance(measures, str):
        measures = [measures]
    per_query = PerQuery({canonical(name): dict.fromkeys(qrels, 0.0) for name in measures})
    judgements = {query_id: _grades(query_id, grades) for query_id, grades in qrels.items() if query_id in run}
    # trec_eval may never come back from a query all of whose grades are negative; every measure of it is 0
    judgements = {query_id: grades for query_id, grades in judgements.items() if max(grades.values(), default=-1) >= 0}
    rankings = {query_id: run.ids(query_id) for query_id in judgements}
    if not rankings:
        return Scores(per_query)
    # trec_eval has no cut-off for reciprocal rank: `-M k` cuts the run for it
    others = [_parse(name) for name in per_query if not _is_cut_rr(name)]
    for name in filter(_is_cut_rr, per_query):
        measure = _parse(name)
        uncut = type(measure)(**{key: value for key, value in measure.params.items() if key != "cutoff"})
        ranked = _judged(rankings, judgements) if measure.params.get("judged_only") else rankings
        for query_id, _, value in _calculate([uncut], judgements, ranked, measure.params["cutoff"]):
            per_query[name][query_id] = value
    if others:
        for query_id, name, value in _calculate(others, judgements, rankings, None):
            per_query[name][query_id] = value
    return Scores(per_query)


def _grades(query_id: str, judgements: Mapping[str, int]) -> dict[str, int]:
    """The judgements of a query as trec_eval takes them: Python's integers, also where NumPy's are given.

    −2 means to it that a passage was not judged, and it fails where no other grade is there. It takes −1, which counts
    no more than that in any measure.
    """
    grades = {}
    for passage_id, grade in judgements.items():
        try:
            grades[passage_id] = max(operator.index(grade), -1)
        except TypeError:
            raise BadInput(
                f"the qrels give passage '{passage_id}' of query '{query_id}' the grade {grade!r}: a whole number is "
                "needed."
            ) from None
    if (highest := max(grades.values(), default=0)) > MOST_GRADE:
        raise BadInput(f"the qrels give query '{query_id}' a grade of {highest:,}; at most {MOST_GRADE:,} is taken.")
    return grades


def _judged(rankings: Mapping[str, list[str]], judgements: Qrels) -> dict[str, list[str]]:
    """The rankings without passages that were not judged, which trec_eval leaves out before it cuts."""
    # a grade below 0 is no judgement to trec_eval
    judged = {query: [id for id in ids if judgements[query].get(id, -1) >= 0] for query, ids in rankings.items()}
    return {query: ids for query, ids in judged.items() if ids}


def unanswered(file: str, answered: Container[str], queries: Collection[str], of: str) -> str | None:
    """How many of `queries` a file of results lacks, with one of them as an example; None where it lacks none."""
    missing = [query for query in queries if query not in answered]
    if not missing:
        return None
    return (
        f"{file}: no results for {len(missing):,} of the {len(queries):,} queries of {of}, such as '{missing[0]}'; "
        "they count as nothing found"
    )


def _is_cut_rr(name: str) -> bool:
    measure = _parse(name)
    return measure.NAME == "RR" and "cutoff" in measure.params


def _calculate(
    measures: list[Any], qrels: Qrels, rankings: dict[str, list[str]], depth: int | None
) -> Iterator[tuple[str, str, float]]:
    """`(query id, measure, value)` by trec_eval. Ranks become scores without ties, so that our order is the order."""
    import ir_measures

    run = {
        query_id: {passage_id: float(-rank) for rank, passage_id in enumerate(ids[:depth])}
        for query_id, ids in rankings.items()
    }
    for result in ir_measures.pytrec_eval.evaluator(measures, qrels).iter_calc(run):
        yield result.query_id, str(result.measure), float(result.value)
