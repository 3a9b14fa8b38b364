"""Tests between rows: paired by question, means over seeds, corrected for the number of columns."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_rel

from interlingua.evaluation.significance import seed_interval, stratified_interval
from interlingua.experiments.present import (
    averages,
    comparisons,
    draw,
    paper_gains,
    present,
    relative_gains,
    subset_differences,
)
from interlingua.experiments.spec import TableSpec, read_table
from interlingua.training.recipe import read_yaml, recipe_folder

AB = [("A", "B")]


def run(**columns):
    return {
        "mono": {
            "RR@100": {column: {f"q{i}": value for i, value in enumerate(values)} for column, values in columns.items()}
        }
    }


def lines(pairs, results, **options):
    """The differences by column, without the header, the mean, intervals and relative gains."""
    return [row[1:-4] for row in comparisons(pairs, results, "mono", "RR@100", **options)[1:]]


def test_questions_are_paired_whatever_their_order_and_seeds_are_averaged():
    a = run(de=[0.5, 0.6, 0.7, 0.8])
    b = {"mono": {"RR@100": {"de": {"q3": 0.7, "q2": 0.6, "q1": 0.5, "q0": 0.4}}}}
    # +.1 everywhere does not vary: nothing can be said
    assert lines(AB, {"A": [a], "B": [b]}) == [["+0.100"]]
    assert lines(AB, {"A": [a, run(de=[0.7, 0.8, 0.9, 1.0])], "B": [b, b]}) == [["+0.200"]]


def test_a_mark_after_correction_only():
    a, b = [0.31, 0.42, 0.55, 0.61, 0.72, 0.83], [0.30, 0.38, 0.50, 0.61, 0.70, 0.78]
    p = ttest_rel(a, b).pvalue
    assert 0.05 / 3 < p < 0.05 / 2  # significant as one of two, not as one of three
    two = {"A": [run(de=a, fr=a)], "B": [run(de=b, fr=b)]}
    assert lines(AB, two) == [["+0.028*", "+0.028*"]]
    assert lines([("A", "B", "†")], two) == [["+0.028†", "+0.028†"]]
    assert lines(AB, two, family=6) == [["+0.028", "+0.028"]]  # the paper's family, of which two are measured
    assert lines(AB, {"A": [run(de=a, fr=a, sw=a)], "B": [run(de=b, fr=b, sw=b)]}) == [["+0.028"] * 3]


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_the_family_of_the_table_counts_at_every_scale(scale):
    a, b = [0.31, 0.42, 0.55, 0.61, 0.72, 0.83], [0.30, 0.38, 0.50, 0.61, 0.70, 0.78]
    results = {"A": [run(de=a, fr=a)], "B": [run(de=b, fr=b)]}
    table = {"title": "T", "measures": ["RR@100"], "rows": {"A": {}, "B": {}}, "compare": AB}
    table["scales"] = {scale: {"recipe": "r", "suites": "s"}}
    assert "+0.028*" in present(TableSpec.model_validate(table), scale, results)
    text = present(TableSpec.model_validate({**table, "family": 6}), scale, results)
    assert "Bonferroni with a family of 6, " in text
    assert "+0.028*" not in text
    assert "+0.028" in text


@pytest.mark.parametrize("pairs", [[("A", "C")], [("C", "A")]])
def test_what_was_not_run_is_left_out(pairs):
    results = {"A": [run(de=[0.1])], "B": [run(de=[0.2])]}
    assert comparisons(pairs, results, "mono", "RR@100") == []
    assert lines([*pairs, *AB], results) == [["-0.100"]]


def test_the_intervals_are_those_of_paired_seeds_and_of_paired_questions():
    a = [run(de=[0.5, 0.9], fr=[0.2, 0.8]), run(de=[0.6, 0.9], fr=[0.3, 0.9]), run(de=[0.7, 0.8], fr=[0.1, 0.7])]
    b = [run(de=[0.4, 0.7], fr=[0.2, 0.3]), run(de=[0.5, 0.9], fr=[0.2, 0.8]), run(de=[0.3, 0.3], fr=[0.3, 0.3])]
    header, row = comparisons(AB, {"A": a, "B": b}, "mono", "RR@100")
    assert header == ["difference", "de", "fr", "mean", "95% interval", "Δ", "Δ of means"]
    seeds = seed_interval([0.2, 0.075, 0.275])
    questions = stratified_interval({"de": [0.2, 0.7 / 3], "fr": [-0.1 / 3, 1.0 / 3]})
    assert row[0] == "A − B"
    assert row[3:5] == [
        "+0.1833",
        f"[{seeds.low:.4f}, {seeds.high:.4f}] seeds; [{questions.low:.4f}, {questions.high:.4f}] questions",
    ]
    # a seed that crashed in one row is left out of both
    alone = comparisons(AB, {"A": [a[0], {}], "B": b[:2]}, "mono", "RR@100")[1]
    assert alone[3] == "+0.2000"
    assert "seeds" not in alone[4]


def test_a_column_or_question_that_one_row_lacks_is_left_out():
    a, b = run(de=[0.5, 0.9], fr=[0.2, 0.8]), run(de=[0.4, 0.7, 0.1])
    assert comparisons(AB, {"A": [a], "B": [b]}, "mono", "RR@100")[0][1:-4] == ["de"]
    assert lines(AB, {"A": [a], "B": [b]}) == [["+0.150"]]
    row = comparisons(AB, {"A": [a], "B": [b]}, "mono", "RR@100")[1]
    assert row[2] == "+0.1500"  # the mean is of the questions that both have, too
    assert (
        len(
            comparisons(
                AB, {"A": [run(de=[0.5])], "B": [{"mono": {"RR@100": {"de": {"other": 0.1}}}}]}, "mono", "RR@100"
            )
        )
        < 2
    )


def test_a_column_of_one_value_has_an_interval_over_seeds_and_no_mark():
    a, b = ([run(de=[value]) for value in values] for values in ([0.5, 0.6, 0.7], [0.3, 0.3, 0.4]))
    row = comparisons(AB, {"A": a, "B": b}, "mono", "RR@100")[1]
    assert row[1] == "+0.267"
    assert row[3].endswith(" seeds")


def test_relative_gains_by_both_definitions_as_the_papers_cells_give_them():
    """METHODS 5.7: its printed Δ does not follow from its cells; these do."""
    assert relative_gains({"de": 0.3, "fr": 0.6}, {"de": 0.2, "fr": 0.6}) == pytest.approx((0.25, 0.125))
    assert relative_gains({"de": 0.3}, {"de": 0.0}) == (None, None)
    table = read_table("c3/table1")
    said = {
        measure: [line for line in paper_gains(table, rows) if " over BM25" not in line]
        for measure, rows in table.expected["from English"].items()
    }
    assert said["nDCG@100"] == [
        "- ColBERT + C3 over ColBERT: Δ +6.6%, Δ of means +5.3%",
        "- DPR + C3 over DPR: Δ +10.0%, Δ of means +9.3%",
        "- XLM-align ColBERT + C3 over XLM-align ColBERT: Δ +5.7%, Δ of means +5.0%",
        "- XLM-align DPR + C3 over XLM-align DPR: Δ +6.5%, Δ of means +5.9%",
    ]
    assert [line.split("Δ ")[1].split("%")[0] for line in said["nDCG@10"]] == ["+9.0", "+14.0", "+7.9", "+9.0"]


TABLES = [
    f"{path.parent.name}/{path.stem}"
    for paper in ("c3", "ccp", "hu2023")
    for path in sorted((recipe_folder() / paper).glob("*.yaml"))
    if "compare" in read_yaml(path)
]


@pytest.mark.parametrize("name", TABLES)
def test_a_scale_compares_every_pair_of_the_papers_tables_whose_rows_it_has(name):
    """Of a table with several seeds each of them has an interval."""
    table = read_table(name)
    assert isinstance(table, TableSpec)
    for scale in (*table.scales, *table.merged):
        rows = [row for row, one in table.rows_at(scale).items() if one.shown]
        results = {row: [run(de=[seed / 100 * number]) for seed in (1, 2)] for number, row in enumerate(rows)}
        found = comparisons(table.compare, results, "mono", "RR@100")
        both = [f"{pair[0]} − {pair[1]}" for pair in table.compare if {*pair[:2]} <= results.keys()]
        assert both
        assert [line[0] for line in found[1:]] == both
        assert all(line[3].endswith(" seeds") for line in found[1:])


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        (
            "ccp/table5",
            [
                (f"{row}, τ=0.1", f"{row}, τ={other}")
                for row in ("L2 + asymmetric BN", "L2 + plain BN + bank")
                for other in ("0.001", "0.01", "1")
            ],
        ),
        ("c3/figure2", [("ZS + C3", "XLM-R-large, ZS")]),
        (
            "hu2023/table3",
            [(f"{backbone} + semantic", backbone) for backbone in ("XLM-R", "InfoXLM", "LaBSE")]
            + [("XLM-R + semantic", other) for other in ("BM25", "InfoXLM + semantic", "LaBSE + semantic")],
        ),
        ("hu2023/table6", [("+ both", "XLM-R + semantic"), ("LaBSE + semantic", "LaBSE")]),
        ("ccp/table3", [("CCP", "InfoXLM"), ("CCP", "mBERT"), ("CCP", "LaBSE")]),
        ("ccp/table4", [("CCP", "InfoXLM"), ("CCP", "LaBSE")]),
        ("ccp/figure1", [("CCP", "before"), ("CCP + calibration", "CCP"), ("CCP + calibration (short)", "CCP")]),
    ],
)
def test_claims_of_the_papers_have_a_paired_difference(name, pairs):
    assert {*pairs} <= {pair[:2] for pair in read_table(name).compare}


FIGURE = TableSpec.model_validate(
    {
        "title": "A figure",
        "measures": ["RR@100"],
        "x": "sentences",
        "scales": {"tiny": {"recipe": "r", "suites": "s"}},
        "rows": {"dashed": {}, "0": {"x": 0}, "10": {"x": 10}},
    }
)


def figure(seeds):
    wide, narrow = [0.1, 0.3, 0.2], [0.30, 0.31, 0.32]
    results = {
        row: [run(de=[value, value + 0.1]) for value in values[:seeds]]
        for row, values in (("dashed", narrow), ("0", wide), ("10", narrow))
    }
    return present(FIGURE, "tiny", results)


def test_a_figure_tells_how_much_its_points_vary_between_seeds():
    assert (
        "standard deviation between seeds, by sentences: 0: 0.1000, 10: 0.0100. From the first to the last it is "
        "multiplied by 0.10 [0.02, 0.62]" in figure(3)
    )
    assert "standard deviation between seeds" not in figure(2)


def test_subsets_of_the_columns_have_the_difference_of_a_table_of_them_alone():
    a = [run(de=[0.5, 0.9], fr=[0.2, 0.8], sw=[0.3, 0.4]), run(de=[0.6, 0.9], fr=[0.3, 0.9], sw=[0.1, 0.2])]
    b = [run(de=[0.4, 0.7], fr=[0.2, 0.3], sw=[0.2, 0.6]), run(de=[0.5, 0.9], fr=[0.2, 0.8], sw=[0.2, 0.5])]
    results = {"A": a, "B": b}
    header, row = subset_differences(AB, results, "mono", "RR@100", {"with": ["de", "fr"], "without": ["sw"]})
    assert header == ["difference", "with", "without"]
    for cell, left in ((row[1], ["de", "fr"]), (row[2], ["sw"])):
        alone = {
            name: [run(**{c: list(one["mono"]["RR@100"][c].values()) for c in left}) for one in runs]
            for name, runs in results.items()
        }
        line = comparisons(AB, alone, "mono", "RR@100")[1]
        assert cell == f"{line[-4]} {line[-3]}"
        assert "seeds" in cell
    assert subset_differences([("A", "C")], results, "mono", "RR@100", {"with": ["de"]}) == []
    assert subset_differences(AB, results, "mono", "RR@100", {}) == []


def test_a_row_without_a_seed_has_the_interval_of_its_questions():
    same, other = run(de=[0.2, 0.9, 0.4], fr=[0.1, 0.3, 0.5]), run(de=[0.1, 0.3, 0.2], fr=[0.1, 0.2, 0.2])
    results = {"BM25": [same] * 3, "tuned": [other] * 3}
    (line,) = comparisons([("BM25", "tuned")], results, "mono", "RR@100")[1:]
    assert line[-3].endswith(" questions")
    assert "seeds" not in line[-3]
    said = averages(FIGURE, "tiny", results, "mono", "RR@100")
    questions = stratified_interval(same["mono"]["RR@100"])
    assert f"- BM25: 0.4000 [{questions.low:.4f}, {questions.high:.4f}]" in said
    assert "gain -0.2167\n" in f"{said}\n"


def test_a_column_that_one_seed_lacks_is_of_the_others(tmp_path):
    both, alone = run(de=[0.2, 0.4], fr=[0.6, 0.8]), run(fr=[0.5, 0.7])
    table = FIGURE.model_copy(update={"x": None, "subsets": {"tiny": {"thin": ["de"]}}})
    results = {"0": [alone, both]}
    assert "thin (de) 0.3000" in averages(table, "tiny", results, "mono", "RR@100")
    wide = table.model_copy(update={"subsets": {"tiny": {"wide": ["de", "fr"]}}})
    assert "wide (de fr) 0.4750" in averages(wide, "tiny", results, "mono", "RR@100")
    assert "- 0: 0.6500" in (said := averages(table, "tiny", results, "mono", "RR@100"))
    assert "over 1 of 2 columns" in said
    (picture,) = draw(table, "tiny", results, tmp_path / "figure")
    assert "de" in picture.read_text(encoding="utf-8")


def test_points_of_a_figure_are_averages_over_the_same_columns(tmp_path):
    wide, narrow = [0.1, 0.3, 0.2], [0.30, 0.31, 0.32]
    results = {
        "0": [run(de=[value, value + 0.1], fr=[0.9, 0.9]) for value in wide],
        "10": [run(de=[value, value + 0.1]) for value in narrow[:1]]
        + [run(de=[value, value + 0.1], fr=[0.9, 0.9]) for value in narrow[1:]],
    }
    said = present(FIGURE, "tiny", results)
    assert "by sentences over 1 of 2 columns: 0: 0.1000, 10: 0.0100." in said
    (picture,) = draw(FIGURE, "tiny", results, tmp_path / "figure")
    assert "RR@100 over 1 of 2 columns" in picture.read_text(encoding="utf-8")
    nothing = {"0": [run(de=[0.1, 0.2])], "10": [run(fr=[0.1, 0.2])]}
    assert draw(FIGURE, "tiny", nothing, tmp_path / "other") == []
