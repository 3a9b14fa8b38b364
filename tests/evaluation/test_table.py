from __future__ import annotations

import json

import pytest

from interlingua.errors import InterlinguaError
from interlingua.evaluation import Interval, Row, Table


@pytest.fixture
def table():
    table = Table("RR@100", ["ar", "en", "th"], counts={"ar": 1000, "en": 744, "th": 1190})
    table.add(
        Row(
            "XLM-R",
            {"ar": 0.33349, "en": 0.275, "th": 0.403},
            expected={"ar": 0.335, "en": 0.275, "th": 0.403},
            source="Hu T2",
            marks={"ar": "*"},
            intervals={"ar": Interval(0.33349, 0.3, 0.36, "bootstrap over queries", 1000)},
        )
    )
    table.add(Row("partial", {"ar": 0.5}))
    return table


def test_text_shows_averages_counts_marks_and_the_papers_row(table):
    assert (
        table.render()
        == """\
RR@100        ar     en     th    avg    avg w/o en
--------  ------  -----  -----  -----  ------------
XLM-R     0.333*  0.275  0.403  0.337         0.368
↳ Hu T2    0.335  0.275  0.403  0.338         0.369
partial    0.500      –      –      –             –
queries    1,000    744  1,190  2,934         2,190"""
    )


def test_markdown_with_intervals_says_what_they_are(table):
    lines = table.render("markdown", digits=2, intervals=True).splitlines()
    assert lines[0].startswith("| RR@100")
    assert "0.33* [0.30, 0.36]" in lines[2]
    assert lines[-2:] == ["", "[95%: bootstrap over queries]"]


def test_records_keep_full_precision(table):
    records = json.loads(table.render("json"))
    assert len(records) == 6
    assert records[0] == {
        "system": "XLM-R",
        "measure": "RR@100",
        "column": "ar",
        "value": 0.33349,
        "low": 0.3,
        "high": 0.36,
        "interval": "bootstrap over queries",
        "mark": "*",
        "expected": 0.335,
        "queries": 1000,
    }
    assert records[3]["column"] == "avg"
    assert records[3]["value"] == pytest.approx((0.33349 + 0.275 + 0.403) / 3)
    rows = [line.split("\t") for line in table.render("tsv").splitlines()]
    assert rows[0] == list(records[0])
    assert float(rows[1][3]) == 0.33349
    assert rows[-1][:4] == ["partial", "RR@100", "ar", "0.5"]


def test_averages_say_whether_english_is_in_them():
    assert Table("m", ["ar", "th"]).averages == {"avg w/o en": ["ar", "th"]}
    assert Table("m", ["en"]).averages == {"avg": ["en"]}
    named = Table("m", ["nq", "drcd"], languages={"nq": "en", "drcd": "zh"})
    assert named.averages == {"avg": ["nq", "drcd"], "avg w/o en": ["drcd"]}
    assert Table("m", ["mul"]).averages == {"avg": ["mul"]}
    pool = Table("m", ["pool", "fi"], languages={"pool": "mul"})
    assert pool.averages == {"avg": ["pool", "fi"], "avg w/o en": ["fi"]}


def test_a_papers_printed_average_is_not_recomputed():
    table = Table("m", ["ar", "en"])
    table.add(Row("x", {"ar": 0.1, "en": 0.2}, expected={"ar": 0.1, "en": 0.2, "avg": 0.999}))
    assert "0.999" in table.render()
    printed = Table("m", ["ar", "ko", "avg"])  # its "avg" has no English in it, or we do not know
    printed.add(Row("x", {"ar": 0.1, "ko": 0.2, "avg": 0.16}))
    assert printed.render().splitlines()[0].split() == ["m", "ar", "ko", "avg", "w/o", "en", "avg"]
    assert printed.render().splitlines()[2].split() == ["x", "0.100", "0.200", "0.150", "0.160"]
    only = Table("m", ["avg"])
    only.add(Row("x", {"avg": 0.3}))
    assert only.render().splitlines()[2].split() == ["x", "0.300"]


def test_mistakes_are_refused(table):
    with pytest.raises(InterlinguaError, match="no column 'aa' in this table"):
        table.add(Row("x", {"aa": 0.1}))
    with pytest.raises(InterlinguaError, match="Did you mean 'markdown'"):
        table.render("markdwon")
    with pytest.raises(InterlinguaError, match="each once"):
        Table("m", ["ar", "ar"])
    assert Table("m", ["ar"]).render("tsv") == ""
