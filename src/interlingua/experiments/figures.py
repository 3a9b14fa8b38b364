"""The pictures that belong to a reproduction: a curve for a figure, bars by language for a table."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from interlingua.errors import InterlinguaError
from interlingua.evaluation.plots import plot_curves, plot_languages
from interlingua.experiments.present import Results, interval
from interlingua.experiments.table_spec import TableSpec
from interlingua.progress import say


def draw(table: TableSpec, scale: str, results: Results, stem: Path) -> list[Path]:
    """SVG files named after `stem`, one a suite and its first measure; none (and a word) without the extra `plots`."""
    made = []
    for suite, by_measure in next(iter(results.values()))[0].items():
        measure = next(iter(by_measure))
        path = stem.with_name(f"{stem.name}-{suite.lower().replace(' ', '-')}.svg")
        try:
            if table.x is None:
                bars = {row: {c: fmean(fmean(r[suite][measure][c].values()) for r in runs) for c in by_measure[measure]}
                        for row, runs in results.items()}
                made.append(plot_languages(bars, path, y_label=f"{suite}: {measure}"))
            else:
                points = [(table.rows[row].x, interval(runs, suite, measure)) for row, runs in results.items()]
                known = [(x, i) for x, i in points if x is not None and i is not None]
                if known:
                    made.append(plot_curves({suite: known}, path, x_label=table.x, y_label=measure))
        except InterlinguaError as error:
            say(str(error))
            break
    return made
