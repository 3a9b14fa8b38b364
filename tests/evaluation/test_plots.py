from __future__ import annotations

import pytest

from interlingua.errors import InterlinguaError
from interlingua.evaluation import Interval
from interlingua.evaluation.plots import plot_curves, plot_languages

pytest.importorskip("matplotlib")


@pytest.mark.slow
def test_figures_are_files_that_name_what_they_show(tmp_path):
    point = Interval(0.3, 0.28, 0.32, "t interval over seeds", 3)
    path = plot_curves(
        {"semantic": [(0, point), (500, point)]},
        tmp_path / "new" / "f3.svg",
        x_label="pairs",
        y_label="MRR@100",
        reference=("no parallel", 0.31),
    )
    assert path.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    bars = plot_languages(
        {"a": {"en": 0.5, "th": 0.4}, "b": {"th": 0.6}},
        tmp_path / "bars.png",
        y_label="MRR@100",
        intervals={"b": {"th": point}},
    )
    assert bars.read_bytes().startswith(b"\x89PNG")


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(InterlinguaError, match=r"\.svg, \.png or \.pdf"):
        plot_languages({"a": {"en": 0.5}}, tmp_path / "bars.exe", y_label="x")
