"""What a filter says, in each of its forms, and what is no filter."""

from __future__ import annotations

import random

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.index import Index
from interlingua.index.filters import (
    CONDITIONS,
    VALUES,
    Condition,
    Group,
    Values,
    conditions,
    fits,
    narrowed_to,
    parsed,
    parsed_words,
)
from interlingua.index.local.rows import BATCH, PassageRows

STORM, SEA = {"topic": "storm"}, {"topic": "sea"}


@pytest.mark.parametrize(
    ("words", "tree"),
    [
        ([], {}),
        (["topic=storm"], STORM),
        (["topic=storm", "year>=2020", "year<2024"],
         {"all": [STORM, {"year": {"gte": 2020}}, {"year": {"lt": "2024"}}]}),
        (["topic!=storm|sea"], {"not": {"topic": ["sea", "storm"]}}),
        (["date>2024-05-31", "date<=2024-06"], {"all": [{"date": {"gt": "2024-05-31"}}, {"date": {"lte": "2024-06"}}]}),
        (['{"any": [{"topic": "storm"}, {"not": {"topic": "sea"}}]}'], {"any": [STORM, {"not": SEA}]}),
        (["formula=a=b"], {"formula": "a=b"}),
        (["topic="], {"topic": ""}),
        (["not=a"], {"not": "a"}),
        (["any=a|b"], {"any": ["a", "b"]}),
        (["not!=a"], {"not": {"not": ["a"]}}),
    ],
    ids=str,
)  # fmt: skip
def test_words_mean_what_a_tree_means(words, tree):
    assert parsed_words(words) == parsed(tree)
    assert parsed(parsed(tree)) == parsed(tree)


def test_words_are_all_to_hold_and_a_range_is_no_other_condition():
    assert parsed_words(["not>5"]) == Condition("not", bounds=(("gt", "5"),))
    assert parsed_words(["topic=a", "topic=b"]) == Group(
        "all", (Condition("topic", ("a",)), Condition("topic", ("b",)))
    )


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ({"topic": 5}, "by 'topic': 5 is no value"),
        ({"topic": []}, "is no value"),
        ({"topic": {}}, "is no value"),
        ({"topic": ["a", 5]}, "5 is no text"),
        ({"topic": "\ud800"}, "no text of valid Unicode"),
        ({"\ud800": "a"}, "no text of valid Unicode"),
        ({5: "a"}, "the key 5"),
        ({"year": {"gtr": 5}}, 'unknown comparison "gtr". Did you mean \'gt'),
        ({"year": {"gte": "soon"}}, '"soon" is neither'),
        ({"year": {"gte": True}}, "true is neither"),
        ({"year": {"gte": float("nan")}}, "NaN is neither"),
        ({"any": []}, "no filter in the list of 'any'"),
        ({"all": [{}]}, "has {} in the place of a filter"),
        ({"all": [STORM, "x"]}, 'has "x" in the place of a filter'),
        ({"not": {}}, "has {} in the place of a filter"),
        ({"topic": ["a"] * 2 + [str(number) for number in range(VALUES)]}, "10,001 values, at most 10,000"),
        ({"any": [STORM] * (CONDITIONS + 1)}, "201 conditions, at most 200"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_no_filter_is_one_line(where, error):
    with pytest.raises(BadInput) as raised:
        parsed(where)
    assert error in str(raised.value)
    assert len(str(raised.value)) < 300
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("words", ["topic", "=a", "{", '{"topic": }', "{}", "[" * 10], ids=str)
def test_words_that_are_no_filter(words):
    with pytest.raises(BadInput, match="filter"):
        parsed_words([words])


def test_filters_within_each_other_end():
    where: dict = STORM
    for _ in range(50_000):
        where = {"not": where}
    with pytest.raises(BadInput, match="more than 20 filters within each other"):
        parsed(where)
    with pytest.raises(BadInput, match=r"not JSON|more than 20"):
        parsed_words(['{"not": ' * 50_000 + "}" * 50_000])


@pytest.mark.parametrize(
    ("sign", "bound", "expected"),
    [
        ("gte", 2020, ["2020", "2020.5", "3e3", "2021-06"]),
        ("lt", 2020, ["-5", "007", "2019-12-31", " .5"]),
        ("gt", "2021", ["3e3", "2021-06"]),
        ("lte", "2019-12-31", ["2019-12-31"]),
        ("gt", "2019-12", ["2020", "2021-06", "2019-12-31"]),
        ("lt", -1, ["-5"]),
    ],
)
def test_a_range_compares_numbers_with_numbers_and_dates_as_text(sign, bound, expected):
    values = ["2020", "2020.5", "-5", "007", "3e3", "2021-06", "2019-12-31", "soon", "", "1_000", "nan", "inf", "٥"]
    condition = parsed({"year": {sign: bound}})
    found = np.array(values)[condition.holds(Values(values))].tolist()
    assert sorted(found) == sorted(set(expected) & set(values))
    assert found == [value for value in values if fits(condition, {"year": value})]
    assert not fits(condition, {"other": "2020"})


def test_a_range_of_very_large_numbers_and_of_dates_with_very_many_digits():
    large = parsed({"year": {"lt": 10**80}})
    assert large.holds(Values(["1" + "0" * 79, "1" + "0" * 81])).tolist() == [True, False]
    with pytest.raises(BadInput, match="a range is of numbers or of ISO dates"):
        parsed({"year": {"lt": 10**5_000}})
    values = Values(["2024-05-31T10:00:00." + "0" * 10_000, "2024-05-31T10:00:00.000000001"])
    assert parsed({"year": {"gt": "2024"}}).holds(values).tolist() == [False, True]
    assert values.dates.nbytes < 1_000


class OneVector:
    similarity = "cosine"

    def encode_query(self, sentences, **options):
        return np.ones((len(sentences), 2), dtype=np.float32)

    encode_document = encode_query


def test_a_filter_without_keys_that_no_passage_has_says_the_same():
    dice = random.Random(7)

    def tree(depth):
        kind = dice.choice(["all", "any", "not", ""]) if depth else ""
        if not kind:
            return Condition(dice.choice("abcd"), (dice.choice("xy"),))
        return Group(kind, tuple(tree(depth - 1) for _ in range(1 if kind == "not" else dice.randint(1, 3))))

    decided = 0
    for _ in range(2_000):
        where, fields = tree(dice.randint(0, 4)), [key for key in "abcd" if dice.random() < 0.5]
        left = narrowed_to(where, lambda condition, fields=fields: condition.key in fields)
        decided += isinstance(left, bool)
        assert isinstance(left, bool) or {one.key for one in conditions(left)} <= set(fields)
        for _ in range(8):
            metadata = {key: dice.choice("xyz") for key in fields if dice.random() < 0.7}
            assert (left if isinstance(left, bool) else fits(left, metadata)) == fits(where, metadata)
    assert 200 < decided < 1_800


def test_keys_and_ranges_that_the_index_does_not_have_are_named(tmp_path):
    def of(id, **metadata):
        return Passage(id, "a text", lang="en", metadata=metadata)

    index = Index.build(
        OneVector(), [of("1", topic="storm", year="2020"), of("2", topic="sea", gone="x")], tmp_path / "i"
    )
    for where, error in (
        (
            {"topik": "storm"},
            "no passage has metadata 'topik'. Did you mean 'topic'? There are: 'gone', 'topic', 'year'.",
        ),
        ({"any": [STORM, {"zzz": "1"}]}, "no passage has metadata 'zzz'. There are: 'gone', 'topic', 'year'."),
        ({"topic": {"gte": 5}}, "no value of 'topic' can be compared with '5'"),
        ({"year": {"gte": 2000}, "topic": {"lt": "2020-05-01"}}, "compared with '2020-05-01'"),
    ):
        for call in (lambda where=where: index.search("a", where=where), lambda where=where: index.delete(where=where)):
            with pytest.raises(BadInput) as raised:
                call()
            assert error in str(raised.value)
    index.add([of("3", fresh="1", year="2024")])
    assert [hit.passage.id for hit in index.search("a", where={"fresh": "1"})] == ["3"]
    assert [
        hit.passage.id for hit in index.search("a", where={"not": {"year": {"lt": 2022}}, "topic": SEA["topic"]})
    ] == ["2"]
    index.delete(["2"])
    with pytest.raises(BadInput, match="no passage has metadata 'gone'"):
        index.search("a", where={"gone": "x"})
    index.delete(["1", "3"])
    assert index.search("a", where={"gone": "x"}) == []  # nothing is there, and nothing is misspelt


def test_a_search_goes_deeper_until_there_are_enough_groups(tmp_path):
    """One document has the 700 best passages."""

    class OneLetter(OneVector):
        def encode_query(self, sentences, **options):
            texts = [text if isinstance(text, str) else " ".join(text) for text in sentences]
            return np.array([[text.count("a") + 1, text.count("b") + 1] for text in texts], dtype=np.float32)

        encode_document = encode_query

    texts = [("long", "a" * 90)] * 700 + [(f"d{place}", "a" * 30 + "b" * place) for place in range(1, 5)]
    passages = [Passage(str(n), text, lang="en", metadata={"source": name}) for n, (name, text) in enumerate(texts)]
    index = Index.build(OneLetter(), [*passages, Passage("alone", "bbb", lang="en")], tmp_path / "i")
    for k, expected in ((1, ["long"]), (3, ["long", "d1", "d2"]), (9, ["long", "d1", "d2", "d3", "d4", None])):
        for mode in ("dense", "hybrid"):
            hits = index.search("a" * 60, k, mode=mode, lang="en", group_by="source")
            assert [hit.group for hit in hits] == expected
            assert hits[0].more == (699 if k > 1 else 99)
    [two, one] = index.search_many(["bbbb", "a" * 60], 2, mode="dense", lang="en", group_by="source")
    assert [[hit.group for hit in hits] for hits in (two, one)] == [[None, "d4"], ["long", "d1"]]
    least = index.search("a" * 60, 1, mode="dense", lang="en")[0].score
    hits = index.search("a" * 60, 9, mode="dense", lang="en", group_by="source", min_score=least)
    assert [(hit.group, hit.more) for hit in hits] == [("long", 699)]


def test_a_column_has_the_same_values_whatever_batch_a_row_is_in():
    each = [{}, {"year": "2020"}, {"topic": "sea", "year": "2021"}, {"topic": "storm"}]
    told = [each[n % 4] | ({"late": str(n)} if n > 2 * BATCH else {}) for n in range(2 * BATCH + 9)]
    rows = PassageRows.of([Passage(str(n), "a", lang="en", metadata=keys) for n, keys in enumerate(told)])
    for key in ("topic", "year", "late", "nowhere"):
        column = rows.column(key)
        values = column.values.texts
        assert [values[code] if code >= 0 else None for code in column.codes] == [keys.get(key) for keys in told]
        assert len(set(values)) == len(values)
    assert not len(PassageRows([]).column("topic").values.texts)
