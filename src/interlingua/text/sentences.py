"""Sentence splitting by rules, for every language.

A sentence ends at a mark of its script with the quotes and brackets that close after it, and at a blank line. A full
stop is weighed: none ends a sentence before a small letter, after an initial, after an abbreviation
(`abbreviations.tsv` beside this file) or, in some languages, after an ordinal number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise

from interlingua.text.languages import find_code
from interlingua.text.thai_sentences import thai_ends

TIGHT = "。！？｡．।॥؟۔։።፧፨፡။។៕"
"""Marks that end a sentence also where no space follows (፡ only when doubled)."""
QUESTION_MARKS = {"el": ";\u037e"}
OPENERS = "\"'“”‘’„‚«»‹›¿¡([{「『（〔—–-"
CLOSERS = "”’»›)}」』】）〕〉》]"
CLOSER = re.compile(rf"\[\d+\]|[{re.escape(CLOSERS)}]|[\"'“‘](?=[\s\"'.,;:!?。，、{re.escape(CLOSERS)}]|$)"
                    r"|[ \u00a0\u202f][”»](?=[\s,.;]|$)")
"""What may close after a mark: a footnote number, a bracket, a quotation mark that opens nothing."""
STRAIGHT = re.compile(r" ?\"(?=\s|$)|\"")
ORDINALS = frozenset("az cs da de et eu fi hr hu is lb lv nb nn no sk sl sr tr".split())
"""Languages that write an ordinal number with a full stop: "21. November", "XIV. Lajos"."""
ORDINAL = re.compile(r"\d{1,2}|[IVXLC]+")
CONTINUES = re.compile(r"[、，,はがをにのへや]|と(?!ころ|き|て|り|も)|って|など|から|まで"
                       r"|も(?!し|ちろん|う|っと)|で(?!も|は|す)")
"""What carries a Japanese or Chinese sentence on after 」 or "!": 「…。」と言った."""
PARAGRAPH = re.compile(r"\n\s*\n|\u2029")
WORD = re.compile(r"[^\W_]")
NEAR = 40
"""Characters looked at on either side of a mark."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`always`: words whose full stop ends no sentence; `number`: those whose full stop ends none before a number."""

    mark: re.Pattern[str]
    always: frozenset[str]
    number: frozenset[str]
    ordinals: bool


@cache
def _rules(code: str) -> Rules:
    words: dict[str, set[str]] = {"always": set(), "number": set()}
    for row in files("interlingua.text").joinpath("abbreviations.tsv").read_text("utf-8").splitlines()[1:]:
        langs, kind, listed = row.split("\t")
        if langs == "*" or code in langs.split(","):
            words[kind].update(listed.split())
    mark = re.compile(rf"(?:[{TIGHT.replace('፡', '')}.!?…{QUESTION_MARKS.get(code, '')}]|፡፡)+")
    return Rules(mark, frozenset(words["always"]), frozenset(words["number"]), code in ORDINALS)


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a text, in order, without the white space between them; nothing else is lost or changed.

    `lang` is any language tag. A language without rows of its own, or an unknown one, has the common rules. A single
    line break is a space; a blank line ends a paragraph and with it a sentence. Thai: see `thai_sentences.py`.
    """
    code = find_code(lang) or ""
    sentences: list[str] = []
    for paragraph in PARAGRAPH.split(text):
        ends = thai_ends(paragraph) if code == "th" else _marked_ends(paragraph, _rules(code))
        pieces = [paragraph[start:end].strip() for start, end in pairwise([0, *ends, len(paragraph)])]
        sentences.extend(piece for piece in pieces if piece)
    return sentences


def _marked_ends(paragraph: str, rules: Rules) -> Iterable[int]:
    """Where the sentences end, but for the last. Marks with no word before them belong to the sentence before."""
    ends: list[int] = []
    start = seen = quotes = 0
    words = False  # whether there is a letter or digit from start to seen
    for mark in rules.mark.finditer(paragraph):
        quotes += paragraph.count('"', seen, mark.start())
        end = _after_closers(paragraph, mark.end(), quotes % 2 == 1)
        words = words or WORD.search(paragraph, seen, mark.start()) is not None
        quotes += paragraph.count('"', mark.start(), end)
        seen = end
        if words and _is_end(paragraph, start, mark, end, rules):
            ends.append(end)
            start, words = end, False
        elif not words and ends and not mark.group().endswith(("…", "...")) and paragraph[end:end + 1].isspace():
            start = ends[-1] = end
    if ends and not WORD.search(paragraph, start):
        ends.pop()
    return ends


def _after_closers(text: str, place: int, open_quote: bool) -> int:
    """Where the quotes, brackets and footnote numbers closing at `place` end; `open_quote`: a straight one is open."""
    while closer := CLOSER.match(text, place):
        place = closer.end()
        open_quote ^= '"' in closer.group()
    if open_quote and (straight := STRAIGHT.match(text, place)):
        return _after_closers(text, straight.end(), False)
    return place


def _is_end(text: str, start: int, mark: re.Match[str], end: int, rules: Rules) -> bool:
    """Whether the mark and what closes after it, up to `end`, end the sentence that began at `start`."""
    signs, ahead = mark.group(), text[end:end + NEAR]
    after = ahead.lstrip()
    if not after:
        return True
    if after[0] in ",،、，;:":
        return False
    wide = signs[-1] in "!?" and _is_east_asian(after[0])
    if signs[-1] in TIGHT or wide:
        if (end > mark.end() or signs[-1] in "!?！？") and CONTINUES.match(ahead):
            return False
        return not (signs[-1] == "．" and after[0].isdigit())
    if not ahead[0].isspace():
        return False
    first = after.lstrip(OPENERS + " ")[:1]
    if _is_small(first):
        return False
    return signs != "." or not _is_abbreviation(text[max(start, mark.start() - NEAR):mark.start()], after, first, rules)


def _is_abbreviation(before: str, after: str, first: str, rules: Rules) -> bool:
    """Whether a full stop between `before` and `after` belongs to the last word of `before`."""
    words = [word.lstrip(OPENERS) for word in re.split(r"[\s(（「『]", before)]
    word, previous = words[-1], words[-2] if len(words) > 1 else ""
    folded = word.casefold()
    following = re.match(r"([^\W\d_]+)\.", after)
    chained = following is not None and (len(following[1]) == 1 or following[1].casefold() in rules.always)
    # After a number a small word is a unit, which may end a sentence: "5 m.", "1990 г."; but "44 v. Chr.", "ca. 5".
    unit = word.islower() and previous[-1:].isdigit() and not chained and not first.isdigit()
    if folded in rules.always and not unit:
        return True
    if folded in rules.number and (first.isdigit() or re.match(r"[IVXLC]{2,}\b", after)):
        return True
    if len(word) == 1 and word.isalpha() and not _is_east_asian(word):
        if not _is_small(word):  # J. R. R. Tolkien
            return True
        if re.fullmatch(r"[^\W\d_]\.", previous):  # т. е. Иван, but: до н. э. Иван
            return previous.casefold() + folded in rules.always
        return not unit
    cased = word.upper() != word.lower()
    if re.fullmatch(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}" if cased else r"(?:[^\s.\d]{1,4}\.)+[^\s.\d]{1,4}", word):
        return not word.islower()  # U.S. Army; a.m. The
    if re.fullmatch(r"[\d.]+|[IVXLC]+", word) and word == before.strip():
        return True  # 1. The first item
    return rules.ordinals and ORDINAL.fullmatch(word) is not None


def _is_small(letter: str) -> bool:
    """Whether it is a small letter of a script that begins sentences with a capital one (Georgian does not)."""
    return letter.islower() and letter != letter.title()


def _is_east_asian(letter: str) -> bool:
    return "\u3000" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7a3" or "\uff00" <= letter <= "\uffef"
