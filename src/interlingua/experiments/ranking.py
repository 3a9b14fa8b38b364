"""How a row of a table ranks a collection: by a pipeline, whose numbers may be tuned on other questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import fsum
from typing import Any

from interlingua.data.records import Collection, Query
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import evaluate
from interlingua.progress import say
from interlingua.retrieval.pipeline import Asked, Stages

MODEL = "model"
DEPTH = 1000
Scored = Mapping[str, Mapping[str, float]]
"""measure → query id → value"""


@dataclass(frozen=True)
class Ranking:
    """`pipeline` in the notation of `interlingua evaluate --pipeline`, where {model} is the row's model and {name} a
    number of `grid`."""

    pipeline: str = "{model}"
    grid: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def needs_model(self) -> bool:
        """Whether there is anything to train."""
        return "{model}" in self.pipeline

    def settings(self) -> list[str]:
        """The pipeline with every choice of its numbers, in the order of the grid."""
        filled = []
        for numbers in product(*self.grid.values()):
            text = self.pipeline.replace("{model}", MODEL)
            for name, number in zip(self.grid, numbers, strict=True):
                text = text.replace(f"{{{name}}}", repr(number))
            filled.append(text)
        return filled

    def scores(self, model: Any, collection: Collection, measures: Sequence[str],
               translated: Mapping[str, Query] | None = None, dev: Collection | None = None) -> Scored:
        """Measure → query id → value. `translated`: the questions as BM25 reads them.

        The numbers of a grid are those that are best in the first measure for the questions of `dev`, which are asked
        of the same passages. Without `dev` every question is ranked by the numbers that are best for the half of the
        questions that it is not in (every other question, as they come): none is tuned on what it is measured on.
        """
        stages = Stages(collection.passages, lambda name: model)
        read = None if translated is None else [
            Query(query.id, translated[query.id].text, translated[query.id].lang) for query in collection.queries]

        def scored(settings: Sequence[str], of: Collection, read: Sequence[Query] | None) -> dict[str, Scored]:
            asked = Asked(stages, of.queries, read)
            return {setting: evaluate(asked.run(setting, DEPTH), of.qrels, measures).per_query for setting in settings}

        settings = self.settings()
        if len(settings) > 1 and dev is not None:
            settings = [_best(scored(settings, dev, None), measures[0], list(dev.qrels))]
            say(f"{collection.name}: tuned on {dev.name}: {settings[0]}")
        tried = scored(settings, collection, read)
        if len(tried) == 1:
            return tried[settings[0]]
        halves = [list(collection.qrels)[start::2] for start in (0, 1)]
        if not halves[1]:
            raise InterlinguaError(f"collection '{collection.name}': tuning takes 2 questions at least.")
        chosen = [_best(tried, measures[0], half) for half in reversed(halves)]
        say(f"{collection.name}: tuned on the other half: {', '.join(dict.fromkeys(chosen))}")
        return {measure: {query: tried[pipeline][measure][query]
                          for half, pipeline in zip(halves, chosen, strict=True) for query in half}
                for measure in measures}


def _best(tried: Mapping[str, Scored], measure: str, queries: Sequence[str]) -> str:
    """The pipeline with the highest mean over these questions, the first of equals."""
    return max(tried, key=lambda pipeline: fsum(tried[pipeline][measure][query] for query in queries))
