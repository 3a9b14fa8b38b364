"""Results of a reproduction: tables, figures, comparisons."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from tabulate import tabulate

from interlingua.errors import BadInput, NotFound
from interlingua.evaluation.plots import plot_curves, plot_languages, plot_projections
from interlingua.evaluation.projection import language_projection
from interlingua.evaluation.significance import Interval, paired_p, seed_interval, spread_ratio, stratified_interval
from interlingua.evaluation.table import Row, Table
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import TableSpec, fill
from interlingua.experiments.suites import drawn_pairs
from interlingua.experiments.values import Values
from interlingua.models.dual import DualEncoder

logger = logging.getLogger(__name__)

ALPHA = 0.05
Results = Mapping[str, Sequence[Values]]
"""row → one `Values` a seed, empty for a seed that has none"""
Pair = tuple[str, str] | tuple[str, str, str]

PLAIN = str.maketrans(" /", "--")
"""Signs that names of figures have no use for."""
Columns = Mapping[str, Mapping[str, float]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def comparisons(
    pairs: Sequence[Pair], results: Results, suite: str, measure: str, family: int | None = None
) -> list[list[str]]:
    """A line of cells for each (row, row it is compared with[, mark]): the names, the difference in every column, the
    difference of their mean with its 95% intervals, and the relative gain by both definitions (`relative_gains`).

    A mark (*) stands where a two-tailed paired t-test over the questions of the column is significant. The columns of a
    pair are one family: p-values are multiplied by their number, or by `family` if that is more (Bonferroni; Yang et
    al. 2022, §4, count six). A question's value is its mean over the seeds that both rows have. The intervals are over
    seeds, paired, where there are several, and over questions (bootstrap of the paired differences).

    Columns and questions that one of the two rows lacks are left out, and so are pairs with a row that was not run.
    """
    lines = []
    columns = list(dict.fromkeys(column for pair in pairs for column in _shared(pair, results, suite, measure)[1]))
    for pair in pairs:
        seeds, shared = _shared(pair, results, suite, measure)
        if not shared:
            continue
        questions = {column: _questions(*([run[column] for run in runs] for runs in seeds)) for column in shared}
        p_values = {column: paired_p(*values) for column, values in questions.items() if len(values[0]) > 1}
        tests = max(family or 0, len(p_values))
        cells = []
        for column in columns:
            if column in questions:
                significant = column in p_values and p_values[column] * tests < ALPHA
                mark = pair[2] if len(pair) == 3 else "*"
                cells.append(f"{float(np.subtract(*questions[column]).mean()):+.3f}{mark if significant else ''}")
            else:
                cells.append("–")
        gains = relative_gains(*(column_means(runs, shared) for runs in seeds))
        lines.append(
            [
                f"{pair[0]} − {pair[1]}",
                *cells,
                *_difference(seeds, questions),
                *("–" if gain is None else f"{100 * gain:+.1f}%" for gain in gains),
            ]
        )
    return [["difference", *columns, "mean", "95% interval", "Δ", "Δ of means"], *lines] if lines else []


def subset_differences(
    pairs: Sequence[Pair], results: Results, suite: str, measure: str, subsets: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """The difference of the mean over each subset of the columns, with its intervals, as `comparisons` has it."""
    lines = []
    for pair in pairs:
        seeds, shared = _shared(pair, results, suite, measure)
        cells = []
        for names in subsets.values():
            columns = [column for column in names if column in shared]
            subset = tuple([{column: run[column] for column in columns} for run in runs] for runs in seeds)
            questions = {column: _questions(*([run[column] for run in runs] for runs in subset)) for column in columns}
            cells.append(" ".join(_difference(subset, questions)) if columns else "–")
        if shared and cells:
            lines.append([f"{pair[0]} − {pair[1]}", *cells])
    return [["difference", *subsets], *lines] if lines else []


def _difference(seeds: Sequence[Sequence[Columns]], questions: Mapping[str, tuple[Floats, Floats]]) -> tuple[str, str]:
    """The difference of the mean of two rows' columns, and its 95% intervals: over seeds, paired, where there are
    several, and over questions. `questions` has the questions of each column, as `_questions` gives them."""
    differences = [macro(a) - macro(b) for a, b in zip(*seeds, strict=True)]
    intervals = []
    if _vary(differences):
        intervals.append(f"{bounds(seed_interval(differences))} seeds")
    if all(len(first) > 1 for first, _ in questions.values()):
        stratified = stratified_interval({column: (a - b).tolist() for column, (a, b) in questions.items()})
        intervals.append(f"{bounds(stratified)} questions")
    return f"{fmean(differences):+.4f}", "; ".join(intervals) or "–"


def relative_gains(of: Mapping[str, float], over: Mapping[str, float]) -> tuple[float | None, float | None]:
    """The gain of one row over another in two ways: the mean of the columns' relative gains, and the relative gain of
    their means (Yang et al. 2022 print one without saying which). None where a value to divide by is zero."""
    columns = [column for column in of if column in over]
    baseline = fmean(over[column] for column in columns)
    mean_gain = None if any(over[column] == 0 for column in columns) else fmean(of[c] / over[c] - 1 for c in columns)
    return mean_gain, None if baseline == 0 else fmean(of[column] for column in columns) / baseline - 1


def _shared(
    pair: Pair, results: Results, suite: str, measure: str
) -> tuple[tuple[list[Columns], list[Columns]], list[str]]:
    """The values of both rows in the seeds that both have, of the columns and questions that all of these have; and
    those columns."""
    runs = [results.get(row, ()) for row in pair[:2]]
    seeds = [
        (a[suite][measure], b[suite][measure])
        for a, b in zip(*runs, strict=False)
        if a.get(suite, {}).get(measure) and b.get(suite, {}).get(measure)
    ]
    comparable = alike({"one": [a for a, _ in seeds], "other": [b for _, b in seeds]})
    both = comparable.get("one", []), comparable.get("other", [])
    every = [*both[0], *both[1]]
    names = {c: [q for q in every[0][c] if all(q in run[c] for run in every)] for c in (every[0] if every else ())}
    columns = [column for column, questions in names.items() if questions]
    if not columns:
        return ([{} for _ in seeds], [{} for _ in seeds]), []

    def kept(runs: Sequence[Columns]) -> list[Columns]:
        return [{column: {name: run[column][name] for name in names[column]} for column in columns} for run in runs]

    return (kept(both[0]), kept(both[1])), columns


def _questions(first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]]) -> tuple[Floats, Floats]:
    """`[questions]` of both rows in one order, means over seeds."""
    a, b = (np.array([fmean(run[question] for run in runs) for question in first[0]]) for runs in (first, second))
    return a, b


def present(
    table: TableSpec,
    scale: str,
    results: Results,
    form: str = "markdown",
    *,
    problems: Sequence[str] = (),
    calibrations: Mapping[str, str] | None = None,
) -> str:
    """The whole reproduction as Markdown (or plain text): `problems` first, as what is not in it, and at the end what
    calibration did."""
    seeds = max(map(len, results.values()))
    changes = f" Every recipe was changed: {', '.join(table.changes)}." if table.changes else ""
    parts = [f"# {table.title}", f"Scale {scale}, {seeds} seed{'s' if seeds > 1 else ''}.{changes}"]
    if problems:
        parts.append("**Not complete:**\n\n" + "\n".join(f"- {problem}" for problem in problems))
    for suite, measure in _measured(results):
        # a row that is ranked by a pipeline has no numbers of the suites that are not searched
        by_row = {row: runs for row, runs in results.items() if done(runs, suite, measure)}
        parts.append(f"## {suite}: {measure}")
        parts.append(suite_table(table, scale, by_row, suite, measure).render(form))
        parts.append(averages(table, scale, by_row, suite, measure))
        if spread := spreads(table, by_row, suite, measure):
            parts.append(spread)
        if differences := comparisons(table.compare, by_row, suite, measure, table.family):
            marks = "".join(dict.fromkeys(pair[2] if len(pair) == 3 else "*" for pair in table.compare))
            family = f"a family of {table.family}" if table.family else "the columns a family"
            parts.append(
                f"Differences. {' or '.join(marks)}: significant (paired t-test over questions, Bonferroni with "
                f"{family}, p < .05). Δ: mean of the columns' relative gains."
            )
            parts.append(_lined(differences, form))
        subsets = {
            name: [column for column in names if column in columns_of(by_row, suite, measure)]
            for name, names in table.subsets.get(scale, {}).items()
        }
        if lines := subset_differences(table.compare, by_row, suite, measure, {k: v for k, v in subsets.items() if v}):
            parts += ["Differences of the means over some of the columns:", _lined(lines, form)]
    for suite, by_measure in table.expected.items():
        for measure, rows in by_measure.items():
            parts.append(f"## The paper's numbers, {suite}: {measure}")
            parts.append(paper_table(measure, rows, form))
            if gains := paper_gains(table, rows):
                parts.append("\n".join(gains))
    for row, text in (calibrations or {}).items():
        parts.append(f"## What calibration did: {row}, seed 1\n\n```\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _lined(lines: Sequence[Sequence[str]], form: str) -> str:
    return tabulate(
        lines[1:],
        lines[0],
        tablefmt="github" if form == "markdown" else "simple",
        disable_numparse=True,
        colalign=["left", *["right"] * (len(lines[0]) - 1)],
    )


def of_the_paper(scale: str) -> bool:
    """Whether a scale is the paper's own, or one of its parts (`paper-zh`)."""
    return scale.partition("-")[0] == "paper"


def _measured(results: Results) -> list[tuple[str, str]]:
    """Every (suite, measure) that some row has."""
    return list(
        dict.fromkeys(
            (suite, measure)
            for runs in results.values()
            for run in runs
            for suite, by_measure in run.items()
            for measure, columns in by_measure.items()
            if columns
        )
    )


def columns_of(results: Results, suite: str, measure: str) -> list[str]:
    """The columns that some row has."""
    return list(
        dict.fromkeys(
            column for runs in results.values() for run in runs for column in run.get(suite, {}).get(measure, {})
        )
    )


def done(runs: Sequence[Values], suite: str, measure: str) -> list[Columns]:
    """The columns of the seeds that have this measure."""
    return [run[suite][measure] for run in runs if run.get(suite, {}).get(measure)]


def alike(by_row: Mapping[str, Sequence[Columns]]) -> dict[str, list[Columns]]:
    """The seeds of each row with the columns that all seeds of all these rows have: else averages of different columns
    would be compared. Empty where no column is common."""
    columns = list(dict.fromkeys(c for seeds in by_row.values() for run in seeds for c in run))
    common = [c for c in columns if all(c in run for seeds in by_row.values() for run in seeds)]
    if not common:
        return {}
    return {row: [{c: run[c] for c in common} for run in seeds] for row, seeds in by_row.items()}


def of_columns(comparable: Mapping[str, Sequence[Columns]], columns: Sequence[str]) -> str:
    """How many of the columns an average is over, where it is not all of them."""
    common = len(next(iter(comparable.values()))[0]) if comparable else 0
    return f" over {common} of {len(columns)} columns" if common < len(columns) else ""


def suite_table(table: TableSpec, scale: str, results: Results, suite: str, measure: str) -> Table:
    """Rows × columns, the mean over seeds; at the paper's scales its own numbers stand under ours."""
    columns = columns_of(results, suite, measure)
    counts: dict[str, int] = {}
    for runs in results.values():
        for run in done(runs, suite, measure):
            for column, questions in run.items():
                if set(questions) != {"mean"}:
                    counts[column] = max(counts.get(column, 0), len(questions))
    result = Table(measure, columns, counts=counts)
    expected = table.expected.get(suite, {}).get(measure, {}) if of_the_paper(scale) else {}
    for row, runs in results.items():
        values = column_means(done(runs, suite, measure), columns)
        result.add(Row(row, values, expected={k: v for k, v in expected.get(row, {}).items() if k in columns}))
    return result


def paper_table(measure: str, rows: Mapping[str, Any], form: str) -> str:
    """The paper's numbers as printed."""
    columns = list(dict.fromkeys(column for row in rows.values() if isinstance(row, Mapping) for column in row))
    if not columns:  # the points of a figure: their average means nothing
        return _lined([[measure, *rows], ["paper", *(f"{value:.3f}" for value in rows.values())]], form)
    table = Table(measure, columns)
    for name, values in rows.items():
        table.add(Row(name, values))
    return table.render(form)


def paper_gains(table: TableSpec, rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The relative gains of the compared rows out of the paper's own cells, by both definitions."""
    lines = []
    for row, other, *_ in table.compare:
        of, over = rows.get(row), rows.get(other)
        if isinstance(of, Mapping) and isinstance(over, Mapping) and set(of) & set(over):
            mean_gain, gain_of_means = relative_gains(of, over)
            if mean_gain is not None and gain_of_means is not None:
                lines.append(f"- {row} over {other}: Δ {100 * mean_gain:+.1f}%, Δ of means {100 * gain_of_means:+.1f}%")
    return lines


def averages(table: TableSpec, scale: str, results: Results, suite: str, measure: str) -> str:
    """A line a row: macro average over the columns with its interval, named subsets, the gain over the first row."""
    lines = [
        "macro average over the columns above, 95% interval"
        + ("; gain over the first row, paired by seed" if len(next(iter(results.values()))) > 1 else "")
        + ":",
        "",
    ]
    first = next(iter(results))
    columns = columns_of(results, suite, measure)
    subsets = table.subsets.get(scale, {})
    for row, runs in results.items():
        seeds = done(runs, suite, measure)
        line, comparable = f"- {row}: no column has all seeds", alike({row: seeds})
        if comparable:
            line = f"- {row}: {fmean(map(macro, comparable[row])):.4f} {shown(interval(comparable[row]))}".rstrip()
        line += of_columns(comparable, columns)
        if len(seeds) < len(runs):
            line += f" ({len(seeds)} of {len(runs)} seeds)"
        for name, names in subsets.items():
            if means := column_means(seeds, names):
                line += f"; {name} ({' '.join(means)}) {fmean(means.values()):.4f}"
        if row != first:
            (own, theirs), shared = _shared((row, first), results, suite, measure)
            gains = [macro(a) - macro(b) for a, b in zip(own, theirs, strict=True)] if shared else []
            if gains:
                line += f"; gain {fmean(gains):+.4f} {shown(seed_interval(gains)) if _vary(gains) else ''}".rstrip()
        lines.append(line)
    return "\n".join(lines)


def spreads(table: TableSpec, results: Results, suite: str, measure: str) -> str:
    """Of a figure with three seeds or more: how much the average varies between seeds at each point, and the ratio of
    the last point's standard deviation to the first's with its interval. Otherwise nothing."""
    if table.x is None:
        return ""
    at = {row: x for row in results if row in table.rows and (x := table.rows[row].x) is not None}
    several = {row: seeds for row in at if len(seeds := done(results[row], suite, measure)) > 2}
    comparable = alike(several)
    points = sorted((at[row], [macro(run) for run in seeds]) for row, seeds in comparable.items())
    if len(points) < 2 or not np.ptp(points[0][1]):
        return ""
    deviations = ", ".join(f"{x:g}: {np.std(values, ddof=1):.4f}" for x, values in points)
    ratio = spread_ratio(points[0][1], points[-1][1])
    over = of_columns(comparable, columns_of(results, suite, measure))
    return (
        f"standard deviation between seeds, by {table.x}{over}: {deviations}. From the first to the last it is "
        f"multiplied by {ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] ({ratio.method})."
    )


def column_means(seeds: Sequence[Columns], columns: Sequence[str]) -> dict[str, float]:
    """The mean of each of `columns` over the seeds that have it, of those that some seed has."""
    values = {column: [fmean(run[column].values()) for run in seeds if column in run] for column in columns}
    return {column: fmean(means) for column, means in values.items() if means}


def macro(columns: Columns) -> float:
    """The unweighted mean of the columns' means."""
    return fmean(fmean(queries.values()) for queries in columns.values())


def interval(seeds: Sequence[Columns]) -> Interval | None:
    """Over seeds where there are several, else over queries (stratified by column)."""
    if _vary(values := [macro(run) for run in seeds]):
        return seed_interval(values)
    return stratified_interval(seeds[0]) if all(len(q) > 1 for q in seeds[0].values()) else None


def _vary(values: Sequence[float]) -> bool:
    """Whether there are several seeds. Equal numbers are of one: what was not trained is the same in each."""
    return len(set(values)) > 1


def shown(interval: Interval | None) -> str:
    """`[low, high]` and what was resampled."""
    return "" if interval is None else f"{bounds(interval)} ({interval.method})"


def bounds(interval: Interval) -> str:
    """`[low, high]`."""
    return f"[{interval.low:.4f}, {interval.high:.4f}]"


def draw(table: TableSpec, scale: str, results: Results, stem: Path) -> list[Path]:
    """SVG files named after `stem`, one a suite and its first measure; none (and a word) without the extra `plots`."""
    paths = []
    measures: dict[str, str] = {}
    for suite, measure in _measured(results):
        measures.setdefault(suite, measure)
    for suite, measure in measures.items():
        by_row = {row: seeds for row, runs in results.items() if (seeds := done(runs, suite, measure))}
        path = stem.with_name(f"{stem.name}-{suite.lower().translate(PLAIN)}.svg")
        try:
            if table.x is None:
                columns = columns_of(results, suite, measure)
                bars = {row: column_means(seeds, columns) for row, seeds in by_row.items()}
                paths.append(plot_languages(bars, path, y_label=f"{suite}: {measure}"))
            else:
                comparable = alike({row: seeds for row, seeds in by_row.items() if table.rows[row].x is not None})
                points = [(table.rows[row].x, interval(seeds)) for row, seeds in comparable.items()]
                curve = [(x, i) for x, i in points if x is not None and i is not None]
                if curve:
                    over = of_columns(comparable, columns_of(results, suite, measure))
                    paths.append(plot_curves({suite: curve}, path, x_label=table.x, y_label=f"{measure}{over}"))
        except NotFound as error:
            logger.warning(str(error))
            break
    return paths


def draw_projections(work: Reproduction, stem: Path) -> list[Path]:
    """CCP's figure 1 for every suite that asks for it: a panel a row, of the first seed; none (and a word) without the
    extra `plots`."""
    paths: list[Path] = []
    work.processes.wait()  # until the first has written its values
    pictures = [
        (name, suite, column)
        for name, suite in work.table.suites(work.scale).items()
        if suite.projection
        for column in work.columns_of(suite)
    ]
    # a row that crashed has no picture, nor have vectors made elsewhere
    rows = [
        row
        for row in (work.rows() if pictures else ())
        if work.table.rows[row].vectors is None and (work.folder(row, 1) / "values.json").exists()
    ]
    models = {row: work.model(row, 1) for row in rows}  # by every process: each waits for the others
    if not work.processes.first:
        return paths
    points = {row: model for row, model in models.items() if isinstance(model, DualEncoder)}  # one vector a text
    for name, suite, column in pictures if points else ():
        path = stem.with_name(f"{stem.name}-{name.lower().translate(PLAIN)}-{column.translate(PLAIN)}.svg")
        try:
            pairs = drawn_pairs(suite, column, partial(fill, data=work.data))
            paths.append(plot_projections(language_projection(points, pairs), path))
        except (NotFound, BadInput) as error:  # the table is worth more than its picture
            logger.warning(str(error))
    return paths
