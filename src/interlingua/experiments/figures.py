"""The pictures that belong to a reproduction: a curve for a figure, bars by language for a table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean

from interlingua.errors import InterlinguaError
from interlingua.evaluation.plots import plot_curves, plot_languages, plot_projections
from interlingua.evaluation.projection import language_projection
from interlingua.experiments.present import Results, interval
from interlingua.experiments.reproduce import Reproduction
from interlingua.experiments.sentence_suites import drawn_pairs
from interlingua.experiments.table_spec import TableSpec, fill
from interlingua.progress import say


def draw(table: TableSpec, scale: str, results: Results, stem: Path) -> list[Path]:
    """SVG files named after `stem`, one a suite and its first measure; none (and a word) without the extra `plots`."""
    made = []
    suites = {suite: by_measure for runs in results.values() for suite, by_measure in runs[0].items()}
    for suite, by_measure in suites.items():
        measure = next(iter(by_measure))
        these = {row: runs for row, runs in results.items() if suite in runs[0]}
        path = stem.with_name(f"{stem.name}-{suite.lower().replace(' ', '-')}.svg")
        try:
            if table.x is None:
                bars = {row: {c: fmean(fmean(r[suite][measure][c].values()) for r in runs) for c in by_measure[measure]}
                        for row, runs in these.items()}
                made.append(plot_languages(bars, path, y_label=f"{suite}: {measure}"))
            else:
                points = [(table.rows[row].x, interval(runs, suite, measure)) for row, runs in these.items()]
                known = [(x, i) for x, i in points if x is not None and i is not None]
                if known:
                    made.append(plot_curves({suite: known}, path, x_label=table.x, y_label=measure))
        except InterlinguaError as error:
            say(str(error))
            break
    return made


def draw_projections(work: Reproduction, stem: Path) -> list[Path]:
    """CCP's figure 1 for every suite that asks for it: a panel a row, of the first seed; none (and a word) without the
    extra `plots`."""
    made: list[Path] = []
    drawn = [(name, suite, column) for name, suite in work.table.suites(work.scale).items()
             for column in suite.projection]
    models = {row: work.model(row, 1) for row in work.rows()} if drawn else {}
    for name, suite, column in drawn:
        pairs = drawn_pairs(suite, column, partial(fill, data=work.data))
        path = stem.with_name(f"{stem.name}-{name.lower().replace(' ', '-')}-{column}.svg")
        try:
            made.append(plot_projections(language_projection(models, pairs), path))
        except InterlinguaError as error:
            say(str(error))
            return made
    return made
