"""Results of a reproduction: tables, figures, comparisons."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from interlingua.errors import NotFound
from interlingua.evaluation.languages import language_projection
from interlingua.evaluation.plots import plot_curves, plot_languages, plot_projections
from interlingua.evaluation.significance import Interval, correct, paired_p, seed_interval, stratified_interval
from interlingua.evaluation.table import Row, Table
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import TableSpec, fill
from interlingua.experiments.suites import Values, drawn_pairs
from interlingua.models.dual import DualEncoder

logger = logging.getLogger(__name__)

ALPHA = 0.05
Pair = tuple[str, str]


def comparisons(pairs: Sequence[Pair], results: Mapping[str, Sequence[Values]], suite: str, measure: str) -> list[str]:
    """A line for each (row, row it is compared with): the difference in every column, with a star where a two-tailed
    paired t-test over its questions is significant. A question's value is its mean over seeds.

    The columns of a pair are one family: p-values are multiplied by their number (Bonferroni; Yang et al. 2022, §4).
    Pairs with a row that was not run, and columns with one value for all questions, are left out.
    """
    lines = []
    for row, other in pairs:
        if row not in results or other not in results:
            continue
        columns = [column for column, values in results[row][0][suite][measure].items() if len(values) > 1]
        if not columns:
            continue
        both = [
            (_questions(results[row], suite, measure, column), _questions(results[other], suite, measure, column))
            for column in columns
        ]
        corrected = correct([paired_p(a, b) for a, b in both], "bonferroni")
        differences = [
            f"{column} {float((a - b).mean()):+.3f}{'*' if p < ALPHA else ''}"
            for column, (a, b), p in zip(columns, both, corrected, strict=True)
        ]
        lines.append(f"- {row} against {other}: {', '.join(differences)}")
    return lines


def _questions(
    runs: Sequence[Values], suite: str, measure: str, column: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """`[questions]` in the order of the first run."""
    first = runs[0][suite][measure][column]
    return np.array([fmean(run[suite][measure][column][question] for run in runs) for question in first])


Results = Mapping[str, Sequence[Values]]


def present(table: TableSpec, scale: str, results: Results, form: str = "markdown") -> str:
    """The whole reproduction as Markdown (or plain text)."""
    seeds = len(next(iter(results.values())))
    parts = [f"# {table.title}", f"Scale {scale}, {seeds} seed{'s' if seeds > 1 else ''}."]
    measured = dict.fromkeys(
        (suite, measure) for runs in results.values() for suite, by_measure in runs[0].items() for measure in by_measure
    )
    for suite, measure in measured:
        # a row that is ranked by a pipeline has no numbers of the suites that are not searched
        these = {row: runs for row, runs in results.items() if measure in runs[0].get(suite, {})}
        parts.append(f"## {suite}: {measure}")
        parts.append(suite_table(table, scale, these, suite, measure).render(form))
        parts.append(averages(table, scale, these, suite, measure))
        if tested := comparisons(table.compare, these, suite, measure):
            parts.append(
                "difference in each column; * significant (paired t-test over questions, Bonferroni over "
                "the columns, p < .05):\n\n" + "\n".join(tested)
            )
    for suite, by_measure in table.expected.items():
        for measure, rows in by_measure.items():
            parts.append(f"## The paper's numbers, {suite}: {measure}")
            parts.append(paper_table(measure, rows).render(form))
    return "\n\n".join(parts) + "\n"


def suite_table(table: TableSpec, scale: str, results: Results, suite: str, measure: str) -> Table:
    """Rows × columns, the mean over seeds; at the paper's scale its own numbers stand under ours."""
    columns = list(next(iter(results.values()))[0][suite][measure])
    counts = {c: len(q) for c, q in next(iter(results.values()))[0][suite][measure].items() if set(q) != {"mean"}}
    drawn = Table(measure, columns, counts=counts)
    expected = table.expected.get(suite, {}).get(measure, {}) if scale == "paper" else {}
    for row, runs in results.items():
        values = {column: fmean(fmean(run[suite][measure][column].values()) for run in runs) for column in columns}
        drawn.add(Row(row, values, expected={k: v for k, v in expected.get(row, {}).items() if k in columns}))
    return drawn


def paper_table(measure: str, rows: Mapping[str, Mapping[str, float]]) -> Table:
    """The paper's numbers as printed."""
    columns = list(dict.fromkeys(column for row in rows.values() if isinstance(row, Mapping) for column in row))
    drawn = Table(measure, columns or list(rows))
    if not columns:
        drawn.add(Row("paper", rows))  # type: ignore[arg-type]
        return drawn
    for name, values in rows.items():
        drawn.add(Row(name, values))
    return drawn


def averages(table: TableSpec, scale: str, results: Results, suite: str, measure: str) -> str:
    """A line a row: macro average over the columns with its interval, named subsets, the gain over the first row."""
    lines = [
        "macro average over the columns above, 95% interval"
        + ("; gain over the first row, paired by seed" if len(next(iter(results.values()))) > 1 else "")
        + ":",
        "",
    ]
    first: list[float] = []
    subsets = table.subsets.get(scale, {})
    for row, runs in results.items():
        per_seed = [macro(run[suite][measure]) for run in runs]
        first = first or per_seed
        line = f"- {row}: {fmean(per_seed):.4f} {shown(interval(runs, suite, measure))}"
        for name, columns in subsets.items():
            kept = [{c: run[suite][measure][c] for c in columns if c in run[suite][measure]} for run in runs]
            if kept[0]:
                line += f"; {name} ({' '.join(kept[0])}) {fmean(macro(k) for k in kept):.4f}"
        if row != next(iter(results)):
            gains = [a - b for a, b in zip(per_seed, first, strict=True)]
            line += f"; gain {fmean(gains):+.4f} {shown(seed_interval(gains)) if len(gains) > 1 else ''}".rstrip()
        lines.append(line)
    return "\n".join(lines)


def macro(columns: Mapping[str, Mapping[str, float]]) -> float:
    """The unweighted mean of the columns' means."""
    return fmean(fmean(queries.values()) for queries in columns.values())


def interval(runs: Sequence[Values], suite: str, measure: str) -> Interval | None:
    """Over seeds where there are several, else over queries (stratified by column)."""
    if len(runs) > 1:
        return seed_interval([macro(run[suite][measure]) for run in runs])
    columns = runs[0][suite][measure]
    return stratified_interval(columns) if all(len(q) > 1 for q in columns.values()) else None


def shown(interval: Interval | None) -> str:
    """`[low, high]` and what was resampled."""
    return "" if interval is None else f"[{interval.low:.4f}, {interval.high:.4f}] ({interval.method})"


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
                bars = {
                    row: {c: fmean(fmean(r[suite][measure][c].values()) for r in runs) for c in by_measure[measure]}
                    for row, runs in these.items()
                }
                made.append(plot_languages(bars, path, y_label=f"{suite}: {measure}"))
            else:
                points = [(table.rows[row].x, interval(runs, suite, measure)) for row, runs in these.items()]
                known = [(x, i) for x, i in points if x is not None and i is not None]
                if known:
                    made.append(plot_curves({suite: known}, path, x_label=table.x, y_label=measure))
        except NotFound as error:
            logger.warning(str(error))
            break
    return made


def draw_projections(work: Reproduction, stem: Path) -> list[Path]:
    """CCP's figure 1 for every suite that asks for it: a panel a row, of the first seed; none (and a word) without the
    extra `plots`."""
    made: list[Path] = []
    drawn = [
        (name, suite, column) for name, suite in work.table.suites(work.scale).items() for column in suite.projection
    ]
    models = {row: work.model(row, 1) for row in work.rows()} if drawn else {}
    points = {row: model for row, model in models.items() if isinstance(model, DualEncoder)}  # one vector a text
    for name, suite, column in drawn:
        pairs = drawn_pairs(suite, column, partial(fill, data=work.data))
        path = stem.with_name(f"{stem.name}-{name.lower().replace(' ', '-')}-{column}.svg")
        try:
            made.append(plot_projections(language_projection(points, pairs), path))
        except NotFound as error:
            logger.warning(str(error))
            return made
    return made
