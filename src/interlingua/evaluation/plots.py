"""Figures of results as files. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.errors import InterlinguaError
from interlingua.evaluation.intervals import Interval

if TYPE_CHECKING:
    from interlingua.evaluation.projection import Projection


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, Interval]]], path: str | Path, *, x_label: str, y_label: str,
    reference: tuple[str, float] | None = None,
) -> Path:
    """Mean with its 95% band over sizes (Hu et al. 2023, figures 3 and 4). Returns `path` (.svg, .png or .pdf).

    `curves`: label → `(size, interval)` points; `reference`: label and value of a dashed horizontal line.
    Sizes are spaced evenly, since they usually grow in steps of two to five and begin at 0.
    """
    figure, axes = _axes(6.0)
    sizes = sorted({size for points in curves.values() for size, _ in points})
    place = {size: i for i, size in enumerate(sizes)}
    for label, points in curves.items():
        ordered = sorted(points, key=lambda point: point[0])
        x = [place[size] for size, _ in ordered]
        (line,) = axes.plot(x, [interval.mean for _, interval in ordered], marker="o", label=label)
        axes.fill_between(x, [i.low for _, i in ordered], [i.high for _, i in ordered],
                          color=line.get_color(), alpha=0.2, linewidth=0)
    if reference:
        axes.axhline(reference[1], linestyle="--", color="grey", label=reference[0])
    axes.set_xticks(range(len(sizes)), [f"{size:,g}" for size in sizes])
    kinds = "; ".join(sorted({interval.method for points in curves.values() for _, interval in points}))
    axes.set_title(f"band: 95%, {kinds}", fontsize=8)
    return _finish(figure, axes, path, x_label, y_label)


def plot_languages(
    systems: Mapping[str, Mapping[str, float]], path: str | Path, *, y_label: str,
    intervals: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Path:
    """Bars of each system side by side for each language, in the order the languages first occur.

    `systems`: system → language → value (a missing language has no bar); `intervals` likewise, as error bars.
    """
    languages = list(dict.fromkeys(lang for values in systems.values() for lang in values))
    figure, axes = _axes(max(6.0, 0.25 * len(languages) * (len(systems) + 1)))
    width = 0.8 / max(1, len(systems))
    for i, (system, values) in enumerate(systems.items()):
        known = [lang for lang in languages if lang in values]
        x = [languages.index(lang) + (i - (len(systems) - 1) / 2) * width for lang in known]
        axes.bar(x, [values[lang] for lang in known], width, label=system)
        bands = (intervals or {}).get(system, {})
        for at, lang in zip(x, known, strict=True):
            if lang in bands:
                axes.vlines(at, bands[lang].low, bands[lang].high, color="black", linewidth=1)
    axes.set_xticks(range(len(languages)), languages)
    return _finish(figure, axes, path, "language", y_label)


def plot_projections(projections: Mapping[str, Projection], path: str | Path, *, highlighted: int = 5) -> Path:
    """A panel for each model: sentences coloured by language, and `highlighted` pairs, spread evenly over the list,
    that share a colour (CCP, figure 1). Circles are the first language, triangles the second."""
    figure = _figure(4.0 * len(projections))
    panels = figure.subplots(1, len(projections), squeeze=False)[0]
    for axes, (name, found) in zip(panels, projections.items(), strict=True):
        sides = list(zip((found.x, found.y), found.langs, ("o", "^"), ("tab:blue", "tab:orange"), strict=True))
        for points, lang, marker, color in sides:
            axes.scatter(*points.T, s=6, marker=marker, color=color, alpha=0.35, linewidth=0, label=lang,
                         rasterized=True)
        for i in range(count := min(highlighted, len(found.x))):
            pair = (2 * i + 1) * len(found.x) // (2 * count)
            color = f"C{2 + i}"
            axes.plot(*zip(found.x[pair], found.y[pair], strict=True), color=color, linewidth=0.8)
            for points, _, marker, _ in sides:
                axes.scatter(*points[pair], s=45, marker=marker, color=color, edgecolor="black", zorder=3)
        axes.set_title(f"{name}\ndistance {found.distance:.2f}, accuracy {found.accuracy.mean:.2f}", fontsize=9)
        axes.set_xlabel(f"component 1 ({found.explained[0]:.0%})")
        axes.set_ylabel(f"component 2 ({found.explained[1]:.0%})")
        axes.legend(fontsize=8, markerscale=2)
    return _save(figure, path)


def _axes(width: float) -> tuple[Any, Any]:
    figure = _figure(width)
    return figure, figure.add_subplot()


def _figure(width: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InterlinguaError("figures need matplotlib. Install it with `pip install interlingua[plots]`.") from error
    # no pyplot: it would choose a backend for the whole process
    figure = Figure(figsize=(width, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _finish(figure: Any, axes: Any, path: str | Path, x_label: str, y_label: str) -> Path:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)
    return _save(figure, path)


def _save(figure: Any, path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InterlinguaError(f"{path}: a figure's name must end in .svg, .png or .pdf.")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path
