"""Results of a reproduction as text: a table a suite and measure, averages with intervals, the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from interlingua.evaluation.intervals import Interval, seed_interval, stratified_interval
from interlingua.evaluation.table import Row, Table
from interlingua.experiments.comparisons import comparisons
from interlingua.experiments.suites import Values
from interlingua.experiments.table_spec import TableSpec

Results = Mapping[str, Sequence[Values]]


def present(table: TableSpec, scale: str, results: Results, form: str = "markdown") -> str:
    """The whole reproduction as Markdown (or plain text)."""
    seeds = len(next(iter(results.values())))
    parts = [f"# {table.title}", f"Scale {scale}, {seeds} seed{'s' if seeds > 1 else ''}."]
    measured = dict.fromkeys((suite, measure) for runs in results.values() for suite, by_measure in runs[0].items()
                             for measure in by_measure)
    for suite, measure in measured:
        # a row that is ranked by a pipeline has no numbers of the suites that are not searched
        these = {row: runs for row, runs in results.items() if measure in runs[0].get(suite, {})}
        parts.append(f"## {suite}: {measure}")
        parts.append(suite_table(table, scale, these, suite, measure).render(form))
        parts.append(averages(table, scale, these, suite, measure))
        if tested := comparisons(table.compare, these, suite, measure):
            parts.append("difference in each column; * significant (paired t-test over questions, Bonferroni over "
                         "the columns, p < .05):\n\n" + "\n".join(tested))
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
    lines = ["macro average over the columns above, 95% interval" + (
        "; gain over the first row, paired by seed" if len(next(iter(results.values()))) > 1 else "") + ":", ""]
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
