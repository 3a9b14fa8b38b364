from __future__ import annotations

from pathlib import Path

import pytest

from interlingua.data import FilterReport, ParallelPair, filter_parallel
from interlingua.data.datasets import DataSpec, read
from interlingua.data.filters import equal_sides, length_ratio, too_short


def pair(source: str, target: str, lang: str = "fi") -> ParallelPair:
    return ParallelPair(source, target, lang, "en")


def test_equal_sides_after_normalisation() -> None:
    assert equal_sides(pair("Nokia  3310 (2017)", "NOKIA 3310 (2017)"))
    assert not equal_sides(pair("Nokia 3310 vuonna 2017", "Nokia 3310 in 2017"))


def test_length_ratio_knows_how_much_a_character_carries() -> None:
    assert length_ratio(pair("aaaa", "aaaaaaaa")) == 2
    assert length_ratio(pair("湖很深很冷", "The lake is deep", "zh")) < 1.1
    assert length_ratio(pair("IBM PC 5150", "IBM PC 5150", "zh")) == 1
    assert length_ratio(pair("", "x")) == float("inf")


def test_too_short_counts_characters_where_there_are_no_spaces() -> None:
    assert too_short(pair("Kaksi sanaa", "Two words here"))
    assert not too_short(pair("湖很深", "It is deep", "zh"))
    assert too_short(pair("湖深", "It is deep", "zh"))
    assert not too_short(pair("ทะเลสาบ", "A deep lake", "th"))


def test_filter_reports_every_drop() -> None:
    good = pair("Järvi on hyvin syvä", "The lake is very deep")
    rows = [
        good,
        pair("a b c", "A b  C"),
        pair("yksi kaksi", "one two three"),
        pair("a b c", "a b c" * 8),
        good,
        pair("JÄRVI on hyvin syvä", "The lake is very deep"),
        ParallelPair(good.source, good.target, "et", "en"),
    ]
    report = FilterReport()
    kept = list(filter_parallel(rows, report=report))
    assert kept == [rows[0], rows[6]]
    assert report.kept == 2
    assert report.dropped == {"equal sides": 1, "fewer than 3 tokens": 1, "length ratio over 3": 1, "duplicate": 2}
    assert str(report) == (
        "kept 2 of 7 pairs; dropped: duplicate 2, equal sides 1, fewer than 3 tokens 1, length ratio over 3 1"
    )
    assert len(list(filter_parallel(rows, duplicates=False))) == 4
    assert len(list(filter_parallel(rows, max_ratio=9, min_tokens=2))) == 4


def test_sides_in_another_language_are_dropped_where_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    good = pair("Järvi on hyvin syvä ja kylmä.", "The lake is very deep and cold.")
    rows = [
        good,
        pair("Das ist ein ganz anderer deutscher Satz.", "This is quite another sentence."),
        pair("Это было совсем другое предложение, чтобы вы знали.", "This is quite another sentence here."),
        pair("Tämä on ihan toinen suomenkielinen lause.", "Dies ist ein ganz anderer deutscher Satz."),
        pair("Dette er en helt vanlig norsk setning.", "This is an ordinary sentence.", "nb"),
        pair("Das ist wieder ein ganz anderer deutscher Satz.", "This is a sentence once more.", "nb"),
        pair("Dat is en ganz annern Satz op Platt.", "This is an ordinary sentence, too.", "nds"),  # not known
        pair("Kaupunki 1952 Oslo", "In Oslo 1952"),  # not sure
    ]
    report = FilterReport()
    assert list(filter_parallel(rows, languages=True, report=report)) == [rows[0], rows[4], *rows[6:]]
    assert report.dropped == {"wrong language": 4}
    assert len(list(filter_parallel(rows))) == 8
    lines = [f"{row.source}\t{row.target}\n" for row in rows[:4]]
    (tmp_path / "fi-en.tsv").write_text("".join(lines), encoding="utf-8")
    spec = DataSpec(path=str(tmp_path / "fi-en.tsv"), filter="languages")
    assert [pair.source for pair in read("parallel", spec)] == [good.source]
