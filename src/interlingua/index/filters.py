"""Filters by metadata: what a search, a deletion or a count is narrowed to. Every form of a filter is read here.

As a tree, in Python and in JSON: `{"topic": "storm"}`; one of several, `{"topic": ["storm", "sea"]}`; a range,
`{"year": {"gte": 2020, "lt": 2024}}`; several keys mean all of them; and of other filters `{"all": […]}`,
`{"any": […]}`, `{"not": {…}}`. In words, on a command line: `topic=storm`, `topic!=storm`, `topic=storm|sea`,
`year>=2020`, or a tree in JSON.

Metadata are strings. A range compares numbers where both the bound and the value are numbers, and ISO dates as text
where both are dates; other values are in no range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import BadInput, suggestion
from interlingua.text.languages import is_unicode

Mask = NDArray[np.bool_]
Result = TypeVar("Result")
Kind = Literal["all", "any", "not"]

NESTED, CONDITIONS, VALUES = 20, 200, 10_000
"""Filters within filters, conditions of a filter, and values of all of them: the most."""
LISTED = 20
"""Keys that an error names."""
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DATE = re.compile(r"\d{4}(-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?)?)?", re.ASCII)
COMPARED: Mapping[str, Callable[..., Mask]] = {
    "gt": np.greater,
    "gte": np.greater_equal,
    "lt": np.less,
    "lte": np.less_equal,
}
SIGNS = {"=": "", "!=": "not", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
WORDS = re.compile(r"(.+?)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)
FORMS = (
    "KEY=VALUE, such as topic=storm, topic!=storm, 'topic=storm|sea', 'year>=2020', or JSON such as "
    '\'{"not": {"topic": "storm"}}\''
)


class Values:
    """Values of one key of metadata, and what they are for a range."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """[values]: NaN for one that is no number."""
        return np.array([float(text) if NUMBER.fullmatch(text) else np.nan for text in self.texts], dtype=np.float64)

    @cached_property
    def dates(self) -> NDArray[np.str_]:
        """[values]: "" for one that is no ISO date."""
        return np.array([text if DATE.fullmatch(text) else "" for text in self.texts], dtype=np.str_)

    def compared(self, bound: str) -> bool:
        """Whether any of them can be compared with `bound`."""
        by_number = NUMBER.fullmatch(bound) is not None and not np.isnan(self.numbers).all()
        return by_number or bool(DATE.fullmatch(bound) and (self.dates != "").any())

    def within(self, sign: str, bound: str) -> Mask:
        """[values]: whether each is greater or less than `bound`, as `sign` of `COMPARED` says."""
        compare, is_number = COMPARED[sign], NUMBER.fullmatch(bound) is not None
        mask = compare(self.numbers, float(bound) if is_number else np.nan)  # NaN is in no range
        if DATE.fullmatch(bound):
            # a year is a number and a date: it is compared as a date with values that are no numbers
            mask |= compare(self.dates, bound) & (self.dates != "") & (np.isnan(self.numbers) | (not is_number))
        return mask


@dataclass(frozen=True)
class Condition:
    """Passages whose value under `key` is one of `values`; or, with `bounds` (a sign of `COMPARED` and what the value
    is compared with), within all of them."""

    key: str
    values: tuple[str, ...] = ()
    bounds: tuple[tuple[str, str], ...] = ()

    def holds(self, values: Values) -> Mask:
        """[values]: whether each fits."""
        if not self.bounds:
            texts = frozenset(self.values)
            return np.array([text in texts for text in values.texts], dtype=bool)
        within: Mask = np.logical_and.reduce([values.within(sign, bound) for sign, bound in self.bounds])
        return within


@dataclass(frozen=True)
class Group:
    """Passages that fit all or any of `parts`, or do not fit the only one of them."""

    kind: Kind
    parts: tuple[Filter, ...]


Filter = Condition | Group
Where = Filter | Mapping[str, object]
"""A filter as calls take it: a `Filter`, or a tree that `parsed` reads."""


def conditions(where: Filter) -> Iterator[Condition]:
    """The conditions of a filter."""
    if isinstance(where, Condition):
        yield where
    else:
        for part in where.parts:
            yield from conditions(part)


def folded(
    where: Filter, leaf: Callable[[Condition], Result], groups: Mapping[Kind, Callable[[list[Result]], Result]]
) -> Result:
    """Translate a filter from the inside out: each condition by `leaf`, each group by one of `groups`."""
    if isinstance(where, Condition):
        return leaf(where)
    return groups[where.kind]([folded(part, leaf, groups) for part in where.parts])


def fits(where: Filter, metadata: Mapping[str, str]) -> bool:
    """Whether a passage with these metadata fits."""

    def holds(condition: Condition) -> bool:
        return condition.key in metadata and bool(condition.holds(Values([metadata[condition.key]]))[0])

    groups: Mapping[Kind, Callable[[list[bool]], bool]] = {"all": all, "any": any, "not": lambda parts: not parts[0]}
    return folded(where, holds, groups)


def most_frequent(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """The `most` values with the highest counts, in this order; of equal ones the first by name."""
    return dict(nsmallest(most, counts.items(), key=lambda pair: (-pair[1], pair[0])))


def without(where: Filter | None, key: str) -> Filter | None:
    """The filter without the values of `key` of which all passages must have one. Ranges stay."""
    if isinstance(where, Condition):
        return None if where.key == key and where.values else where
    if where is None or where.kind != "all":
        return where
    parts = tuple(left for part in where.parts if (left := without(part, key)) is not None)
    return Group("all", parts) if len(parts) > 1 else parts[0] if parts else None


def narrowed_to(where: Filter, possible: Callable[[Condition], bool]) -> Filter | bool:
    """The filter among passages none of which fits a condition that is not `possible`: True where all fit, False where
    none does."""
    if isinstance(where, Condition):
        return where if possible(where) else False
    parts = [narrowed_to(part, possible) for part in where.parts]
    filters = tuple(part for part in parts if not isinstance(part, bool))
    constants = [part for part in parts if isinstance(part, bool)]
    if where.kind == "not":
        return not constants[0] if constants else Group("not", filters)
    if (where.kind == "any") in constants:  # one that all fit decides "any", one that none fits decides "all"
        return where.kind == "any"
    return Group(where.kind, filters) if filters else where.kind == "all"


def check_filter(
    where: Filter, fields: Collection[str], values: Callable[[str], Iterable[Values]], place: object
) -> None:
    """Raise BadInput for a key that none of the `fields` is, and for a range with which none of the `values` of its
    key, given in parts, can be compared."""
    for leaf in conditions(where):
        check_field(leaf.key, fields, place)
        for _, bound in leaf.bounds:
            parts = [part for part in values(leaf.key) if len(part.texts)]
            if not _compared(bound, parts):
                example = min(min(part.texts) for part in parts)
                raise BadInput(
                    f"{place}: no value of '{shown(leaf.key)}' can be compared with '{shown(bound)}': a range is of "
                    f"numbers or of ISO dates, and there are values such as '{shown(example)}'."
                )


def comparable(condition: Condition, values: Iterable[Values]) -> bool:
    """Whether each bound of the condition, if it has any, can be compared with one of the `values`, given in parts."""
    parts = list(values) if condition.bounds else []
    return all(_compared(bound, parts) for _, bound in condition.bounds)


def _compared(bound: str, parts: Iterable[Values]) -> bool:
    return any(part.compared(bound) for part in parts)


def check_field(key: str, fields: Collection[str], place: object) -> None:
    """Raise BadInput for a key that none of the `fields` is."""
    if key not in fields:
        names = sorted(fields)
        listing = ", ".join([f"'{shown(name)}'" for name in names[:LISTED]] + ["…"] * (len(names) > LISTED))
        guess = suggestion(key, names).partition(" Known: ")[0]
        hint = f"There are: {listing}." if names else "No passage has any."
        raise BadInput(f"{place}: no passage has metadata '{shown(key)}'.{guess} {hint}")


def shown(text: str) -> str:
    """`text` as an error quotes it."""
    return text if len(text) <= 60 else f"{text[:60]}…"


def parsed(where: Where | None) -> Filter | None:
    """Read a tree; None for one without a condition. Raises BadInput for anything that is not a filter."""
    if where is None or (isinstance(where, Mapping) and not where):
        return None
    tree = _tree(where, 0)
    leaves = list(conditions(tree))
    for kind, count, limit in (
        ("conditions", len(leaves), CONDITIONS),
        ("values", sum(len(leaf.values) for leaf in leaves), VALUES),
    ):
        if count > limit:
            raise BadInput(f"the filter has {count:,} {kind}, at most {limit:,} are taken.")
    return tree


def parsed_words(words: Sequence[str]) -> Filter | None:
    """Read filters of a command line, which all are to hold; None for none. Raises BadInput for one of another form."""
    parts = tuple(map(_worded, words))
    return parsed(parts[0] if len(parts) == 1 else Group("all", parts) if parts else None)


def _worded(word: str) -> Filter:
    if word.lstrip().startswith("{"):
        try:
            return _tree(json.loads(word), 0)
        except (json.JSONDecodeError, RecursionError) as error:
            raise BadInput(f"filter '{shown(word)}': is not JSON ({error}).") from None
    if not (match := WORDS.fullmatch(word)):
        raise BadInput(f"filter '{shown(word)}': write {FORMS}.")
    key, sign, value = match[1], SIGNS[match[2]], match[3]
    if sign in COMPARED:
        return _condition(key, {sign: value})
    equal = _condition(key, value.split("|"))
    return Group("not", (equal,)) if sign else equal


def _tree(where: object, depth: int) -> Filter:
    if depth > NESTED:
        raise BadInput(f"the filter has more than {NESTED} filters within each other.")
    if isinstance(where, Condition | Group):
        return where
    if not isinstance(where, Mapping) or not where:
        raise BadInput(f'the filter has {_json(where)} in the place of a filter such as {{"topic": "storm"}}.')
    parts = tuple(_entry(key, value, depth) for key, value in where.items())
    return parts[0] if len(parts) == 1 else Group("all", parts)


def _entry(key: object, value: object, depth: int) -> Filter:
    if not isinstance(key, str) or not is_unicode(key):
        raise BadInput(f"the filter has the key {_json(key)}, which is no text of valid Unicode.")
    if key == "not" and isinstance(value, Mapping | Condition | Group):
        return Group("not", (_tree(value, depth + 1),))
    if key in ("all", "any") and isinstance(value, list | tuple):
        if not value:
            raise BadInput(f"the filter has no filter in the list of '{key}'.")
        if not isinstance(value[0], str):
            return Group("all" if key == "all" else "any", tuple(_tree(part, depth + 1) for part in value))
    return _condition(key, value)


def _condition(key: str, value: object) -> Condition:
    if isinstance(value, Mapping) and value:
        return Condition(key, bounds=tuple(_bound(key, sign, bound) for sign, bound in value.items()))
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple | set | frozenset) or not texts:
        raise BadInput(
            f"filter by '{shown(key)}': {_json(value)} is no value. Write a string, a list of strings, or a range such "
            'as {"gte": 2020}.'
        )
    for text in texts:
        if not isinstance(text, str) or not is_unicode(text):
            raise BadInput(f"filter by '{shown(key)}': {_json(text)} is no text of valid Unicode.")
    return Condition(key, tuple(sorted(set(texts))))


def _bound(key: str, sign: object, bound: object) -> tuple[str, str]:
    if sign not in COMPARED:
        raise BadInput(f"filter by '{shown(key)}': unknown comparison {_json(sign)}.{suggestion(str(sign), COMPARED)}")
    text = bound if isinstance(bound, str) else ""
    if isinstance(bound, int | float) and not isinstance(bound, bool):
        with suppress(ValueError):  # of more digits than Python writes
            text = json.dumps(bound)
    if not NUMBER.fullmatch(text) and not DATE.fullmatch(text):
        raise BadInput(
            f"filter by '{shown(key)}': a range is of numbers or of ISO dates such as 2024-05-31, {_json(bound)} is "
            "neither."
        )
    return str(sign), text


def _json(value: object) -> str:
    try:
        return shown(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
