"""Figures of results, and the language mirror as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interlingua.errors import BadInput, NotFound
from interlingua.evaluation.languages import DEEP, TOP, LanguageBias, Matrix, mean_of_others
from interlingua.evaluation.significance import Interval
from interlingua.text.languages import find_code, languages

if TYPE_CHECKING:
    from interlingua.evaluation.projection import Projection


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, Interval]]],
    path: str | Path,
    *,
    x_label: str,
    y_label: str,
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
        axes.fill_between(
            x, [i.low for _, i in ordered], [i.high for _, i in ordered], color=line.get_color(), alpha=0.2, linewidth=0
        )
    if reference:
        axes.axhline(reference[1], linestyle="--", color="grey", label=reference[0])
    axes.set_xticks(range(len(sizes)), [f"{size:,g}" for size in sizes])
    kinds = "; ".join(sorted({interval.method for points in curves.values() for _, interval in points}))
    axes.set_title(f"band: 95%, {kinds}", fontsize=8)
    return _finish(figure, axes, path, x_label, y_label)


def plot_languages(
    systems: Mapping[str, Mapping[str, float]],
    path: str | Path,
    *,
    y_label: str,
    intervals: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Path:
    """Bars of each system side by side for each language, in the order the languages first occur.

    `systems`: system → language → value (a missing language has no bar); `intervals` likewise, as error bars.
    """
    languages = list(dict.fromkeys(lang for values in systems.values() for lang in values))
    figure, axes = _axes(max(6.0, 0.25 * len(languages) * (len(systems) + 1)))
    width = 0.8 / max(1, len(systems))
    for i, (system, values) in enumerate(systems.items()):
        langs = [lang for lang in languages if lang in values]
        x = [languages.index(lang) + (i - (len(systems) - 1) / 2) * width for lang in langs]
        axes.bar(x, [values[lang] for lang in langs], width, label=system)
        bands = (intervals or {}).get(system, {})
        for position, lang in zip(x, langs, strict=True):
            if lang in bands:
                axes.vlines(position, bands[lang].low, bands[lang].high, color="black", linewidth=1)
    axes.set_xticks(range(len(languages)), languages)
    return _finish(figure, axes, path, "language", y_label)


def plot_projections(projections: Mapping[str, Projection], path: str | Path, *, highlighted: int = 5) -> Path:
    """A panel for each model: sentences coloured by language, and `highlighted` pairs, spread evenly over the list,
    that share a colour (CCP, figure 1). Circles are the first language, triangles the second."""
    figure = _figure(4.0 * len(projections))
    panels = figure.subplots(1, len(projections), squeeze=False)[0]
    for axes, (name, result) in zip(panels, projections.items(), strict=True):
        sides = list(zip((result.x, result.y), result.langs, ("o", "^"), ("tab:blue", "tab:orange"), strict=True))
        for points, lang, marker, color in sides:
            axes.scatter(
                *points.T, s=6, marker=marker, color=color, alpha=0.35, linewidth=0, label=lang, rasterized=True
            )
        for i in range(count := min(highlighted, len(result.x))):
            pair = (2 * i + 1) * len(result.x) // (2 * count)
            color = f"C{2 + i}"
            axes.plot(*zip(result.x[pair], result.y[pair], strict=True), color=color, linewidth=0.8)
            for points, _, marker, _ in sides:
                axes.scatter(*points[pair], s=45, marker=marker, color=color, edgecolor="black", zorder=3)
        axes.set_title(f"{name}\ndistance {result.distance:.2f}, accuracy {result.accuracy.mean:.2f}", fontsize=9)
        axes.set_xlabel(f"component 1 ({result.explained[0]:.0%})")
        axes.set_ylabel(f"component 2 ({result.explained[1]:.0%})")
        axes.legend(fontsize=8, markerscale=2)
    return _save(figure, path)


def check_figure(path: str | Path) -> None:
    """Raise BadInput for a name that no figure can have, and NotFound where matplotlib is not installed."""
    if Path(path).suffix not in (".svg", ".png", ".pdf"):
        raise BadInput(f"{path}: a figure's name must end in .svg, .png or .pdf.")
    _figure(1.0)


def _axes(width: float) -> tuple[Any, Any]:
    figure = _figure(width)
    return figure, figure.add_subplot()


def _figure(width: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NotFound("figures need matplotlib. Install it with `pip install interlingua[plots]`.") from error
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
    check_figure(path := Path(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


SHOWN = 150  # passages of a language in the picture: more hide one another
STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #667; --line: #8884; --page: #fff; --hot: 212, 84, 36; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #9aa; --page: #16181b; --hot: 240, 130, 80; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 76rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } p, caption { color: var(--soft); }
.models { display: flex; flex-wrap: wrap; gap: 2rem; align-items: flex-start; } section { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .25rem .5rem; text-align: right; border: 1px solid var(--line); } th { font-weight: 600; }
caption { text-align: left; padding-bottom: .4rem; } svg { max-width: 100%; height: auto; }
.names { display: flex; flex-wrap: wrap; gap: .2rem .9rem; font-size: .85rem; } .dot { display: inline-block;
         width: .7em; height: .7em; border-radius: 50%; margin-right: .3em; }
"""


def mirror_page(models: Mapping[str, LanguageBias], title: str = "Language mirror") -> str:
    """The page (HTML) for some models that were asked the same: numbers, matrices, and their passages in the plane."""
    first = next(iter(models.values()))
    shares = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (first.share.min(), first.share.max())))
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>The same questions in {len(first.langs)} languages, asked of all their passages in one pool. A model that "
        "reads meaning and not language ranks a passage alike in every language.</p>",
        "<section>",
        _numbers(models),
        "</section>",
        "<p>PEER asks whether the ranks of the results that there are depend on their language. A list in one language "
        "only counts as fair (1), so read it after the row above it.</p>",
        *_matrices(
            models,
            f"Preference: languages of the first {TOP} results",
            f"Rows are the language of the question. Fair is each language's share of the pool ({shares}).",
            "preference",
            "{:.0%}",
        ),
        *_matrices(
            models,
            "Quality, one language of passages at a time",
            "Mean average precision in the pool where of the passages that answer only those in the column's "
            "language are left.",
            "target",
            "{:.3f}",
        ),
        *_matrices(
            models,
            "Places lost by being a translation",
            "How far a passage that answers stands behind its translation into the question's language: the "
            "median number of places.",
            "displacement",
            "{:.0f}",
        ),
        *_matrices(
            models,
            "Rank correlation",
            "How alike two languages of the same question rank all passages: Spearman's correlation, the mean over "
            "questions.",
            "agreement",
            "{:.2f}",
        ),
        *_matrices(
            models,
            "Distance between languages",
            "1 − the cosine between the mean vectors of two languages.",
            "distances",
            "{:.2f}",
        ),
        "<h2>Passages on two axes</h2>",
        "<p>The first two principal components. Languages that lie apart are told from one another by the model; where "
        "meaning is all that counts, their colours mix.</p>",
        f'<div class="names">{"".join(_legend(first.langs))}</div>',
        '<div class="models">',
        *(_picture(name, bias) for name, bias in models.items()),
        "</div>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def bias_rows(models: Mapping[str, LanguageBias]) -> list[tuple[str, str, list[float]]]:
    """Rows of a comparison: a name, the value without bias, and the value of each model."""
    biases = list(models.values())
    first = biases[0]
    return [
        ("mean average precision, one pool", "1", [float(bias.pool_map.mean()) for bias in biases]),
        (
            f"question's own language among the first {TOP}",
            f"{first.share.mean():.3f}",
            [bias.same_language_rate for bias in biases],
        ),
        (f"PEER of the first {DEEP}", "0.5", [float(bias.peer.mean()) for bias in biases]),
        ("places lost by being a translation, mean", "0", [mean_of_others(bias.displacement) for bias in biases]),
        (
            "first right passage in the question's language",
            f"{1 / len(first.langs):.3f}",
            [float(bias.own_first.mean()) for bias in biases],
        ),
        ("rank of the last right passage (Max@R)", "", [float(bias.worst_rank.mean()) for bias in biases]),
        ("rank correlation of a question in two languages (MRC)", "1", [bias.rank_correlation for bias in biases]),
        ("a linear probe tells the language", f"{first.chance:.3f}", [bias.probe for bias in biases]),
        ("share of the variance between languages", "0", [bias.between for bias in biases]),
    ]


def _numbers(models: Mapping[str, LanguageBias]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in models)
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{fair}</td>{''.join(f'<td>{value:.3f}</td>' for value in values)}</tr>"
        for name, fair, values in bias_rows(models)
    )
    return f"<table><tr><th></th><th>without bias</th>{head}</tr>{body}</table>"


def _matrices(models: Mapping[str, LanguageBias], title: str, text: str, field: str, form: str) -> list[str]:
    matrices = {name: getattr(bias, field) for name, bias in models.items()}
    low, high = min(matrix.min() for matrix in matrices.values()), max(matrix.max() for matrix in matrices.values())
    return [
        f"<h2>{escape(title)}</h2><p>{escape(text)}</p>",
        '<div class="models">',
        *(_matrix(name, models[name].langs, matrix, form, low, high) for name, matrix in matrices.items()),
        "</div>",
    ]


def _matrix(name: str, langs: Sequence[str], values: Matrix, form: str, low: float, high: float) -> str:
    """A table whose cells are the warmer the higher they are, from `low` to `high`."""

    def cell(value: float) -> str:
        shade = (value - low) / (high - low) if high > low else 0.0
        text = form.format(value)
        text = text if any(digit in text for digit in "123456789") else text.lstrip("-")  # no −0
        return f'<td style="background: rgba(var(--hot), {0.75 * shade:.2f})">{text}</td>'

    head = "".join(f"<th>{escape(lang)}</th>" for lang in langs)
    body = "".join(
        f"<tr><th>{escape(lang)}</th>{''.join(map(cell, row))}</tr>"
        for lang, row in zip(langs, values.tolist(), strict=True)
    )
    return f"<section><table><caption>{escape(name)}</caption><tr><th></th>{head}</tr>{body}</table></section>"


def _picture(name: str, bias: LanguageBias) -> str:
    """The passages as dots, in a square of 400."""
    points = np.concatenate(list(bias.plane.values()))
    low, size = points.min(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
    dots = []
    for place, lang in enumerate(bias.langs):
        passages = bias.plane[lang]
        passages = passages[np.linspace(0, len(passages) - 1, min(SHOWN, len(passages))).astype(int)]
        dots += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_color(place, len(bias.langs))}"'
            f' fill-opacity=".65"><title>{escape(_named(lang))}</title></circle>'
            for x, y in (10 + 380 * (passages - low) / size).tolist()
        ]
    first, second = bias.explained
    return (
        f"<section><p>{escape(name)} ({first:.0%} and {second:.0%} of the variance)</p>"
        f'<svg viewBox="0 0 400 400" width="400" height="400" role="img" '
        f'aria-label="passages of {escape(name)}">{"".join(dots)}</svg></section>'
    )


def _legend(langs: Sequence[str]) -> list[str]:
    return [
        f'<span><span class="dot" style="background: {_color(place, len(langs))}"></span>{escape(_named(lang))}</span>'
        for place, lang in enumerate(langs)
    ]


def _color(place: int, count: int) -> str:
    return f"hsl({360 * place // count}, 65%, {45 + 12 * (place % 2)}%)"


def _named(lang: str) -> str:
    code = find_code(lang)
    return f"{languages()[code].name} ({lang})" if code else lang
