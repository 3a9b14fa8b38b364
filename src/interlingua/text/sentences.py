"""Split text into sentences by rules, for every language, Thai included.

A sentence ends at a mark of its script with the quotes and brackets that close after it, and at a blank line. A full
stop is weighed: none ends a sentence before a small letter, after an initial, after an abbreviation
(`abbreviations.tsv` beside this file) or, in some languages, after an ordinal number.

A space ends a sentence when the words beside it speak for it, or do not speak against it and the sentence is long
enough. Never beside Latin letters, digits, ๆ, ฯ or punctuation, and never inside brackets or quotation marks. The words
were chosen on the Thai half of NTREX-128's first 70 documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise

from interlingua.text.languages import find_code

TIGHT = "。！？｡．।॥؟۔։።፧፨፡။។៕།༎᱾꯫"
"""Marks that end a sentence also where no space follows (፡ only when doubled)."""
QUESTION_MARKS = {"el": ";\u037e"}
OPENERS = "\"'“”‘’„‚«»‹›¿¡([{「『（〔—–-"
CLOSERS = "”’»›)}」』】）〕〉》]"
CLOSER = re.compile(
    rf"\[\d+\]|[{re.escape(CLOSERS)}]|[\"'“‘](?=[\s\"'.,;:!?。，、{re.escape(CLOSERS)}]|$)"
    r"|[ \u00a0\u202f][”»](?=[\s,.;]|$)"
)
"""A closer after a mark: a footnote number, a bracket, a quotation mark that opens nothing."""
STRAIGHT = re.compile(r" ?\"(?=\s|$)|\"")
ORDINALS = frozenset("az cs da de et eu fi hr hu is lb lv nb nn no sk sl sr tr".split())
"""Languages that write an ordinal number with a full stop: "21. November", "XIV. Lajos"."""
ORDINAL = re.compile(r"\d{1,2}|[IVXLC]+")
CONTINUES = re.compile(
    r"[、，,はがをにのへや]|と(?!ころ|き|て|り|も)|って|など|から|まで"
    r"|も(?!し|ちろん|う|っと)|で(?!も|は|す)"
)
"""The beginnings that continue a Japanese or Chinese sentence after 」 or "!": 「…。」と言った."""
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
        langs, kind, abbreviations = row.split("\t")
        if langs == "*" or code in langs.split(","):
            words[kind].update(abbreviations.split())
    mark = re.compile(rf"(?:[{TIGHT.replace('፡', '')}.!?…{QUESTION_MARKS.get(code, '')}]|፡፡)+")
    return Rules(mark, frozenset(words["always"]), frozenset(words["number"]), code in ORDINALS)


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a text, in order, without the white space between them; nothing else is lost or changed.

    `lang` is any language tag. A language without rows of its own, or an unknown one, has the common rules. A single
    line break is a space; a blank line ends a paragraph and with it a sentence. Thai: see `thai_ends`.
    """
    code = find_code(lang) or ""
    sentences: list[str] = []
    for paragraph in PARAGRAPH.split(text):
        ends = thai_ends(paragraph) if code == "th" else _marked_ends(paragraph, _rules(code))
        pieces = [paragraph[start:end].strip() for start, end in pairwise([0, *ends, len(paragraph)])]
        sentences.extend(piece for piece in pieces if piece)
    return sentences


def _marked_ends(paragraph: str, rules: Rules) -> Iterable[int]:
    """Yield the ends of all sentences but the last. Marks without a word before them belong to the sentence before."""
    ends: list[int] = []
    start = position = quotes = 0
    words = False  # whether there is a letter or digit from start to position
    for mark in rules.mark.finditer(paragraph):
        quotes += paragraph.count('"', position, mark.start())
        end = _after_closers(paragraph, mark.end(), quotes % 2 == 1)
        words = words or WORD.search(paragraph, position, mark.start()) is not None
        quotes += paragraph.count('"', mark.start(), end)
        position = end
        if words and _is_end(paragraph, start, mark, end, rules):
            ends.append(end)
            start, words = end, False
        elif not words and ends and not mark.group().endswith(("…", "...")) and paragraph[end : end + 1].isspace():
            start = ends[-1] = end
    if ends and not WORD.search(paragraph, start):
        ends.pop()
    return ends


def _after_closers(text: str, place: int, open_quote: bool) -> int:
    """The end of the quotes, brackets and footnote numbers closing at `place`; `open_quote`: a straight one is open."""
    while closer := CLOSER.match(text, place):
        place = closer.end()
        open_quote ^= '"' in closer.group()
    if open_quote and (straight := STRAIGHT.match(text, place)):
        return _after_closers(text, straight.end(), False)
    return place


def _is_end(text: str, start: int, mark: re.Match[str], end: int, rules: Rules) -> bool:
    """Whether the mark and what closes after it, up to `end`, end the sentence that began at `start`."""
    signs, ahead = mark.group(), text[end : end + NEAR]
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
    return signs != "." or not _is_abbreviation(
        text[max(start, mark.start() - NEAR) : mark.start()], after, first, rules
    )


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


AFTER_A_CUE = 15
"""Letters that a sentence needs before a space that the words mark as its end."""
WITHOUT_A_CUE = 50
"""Letters that it needs before a space that nothing marks either way."""
UNCLOSED = 200
"""Letters after which an open bracket or quotation mark counts as never closed."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NEVER_LAST = _words(
    "ว่า ของ ที่ และ กับ ใน จาก ถึง ให้ เป็น คือ เช่น สำหรับ หรือ โดย ซึ่ง อายุ เมื่อ ได้แก่ แก่ ต่อ กว่า แต่ เพื่อ "
    "ประมาณ เพราะ ทั้ง ณ ปี วันที่ เดือน เวลา ชื่อ คุณ นาย นาง ตาม แห่ง โดยเฉพาะ ดังนี้ ระหว่าง"
)
OFTEN_FIRST = _words(
    "อย่างไรก็ นอกจาก จากนั้น ต่อมา หลังจาก ทั้งนี้ ดังนั้น ปัจจุบัน การ มี ตาม นาย นาง ข้อ เขา เธอ ผม ฉัน เรา "
    "พวกเขา มัน นี่ นั่น สิ่ง กลุ่ม แม้ ถ้า หาก ใน ตำรวจ ประธาน ขณะ เมื่อ บาง แต่ ทุก ผู้ ตอน ส่วน ด้วยเหตุ ทาง สำหรับ"
)
SELDOM_FIRST = _words(
    "ที่ ซึ่ง ได้ เป็น จะ ของ ก็ กล่าว ปี ว่า หรือ ทำให้ กับ ยัง รวม และ เพื่อ เพราะ เนื่องจาก ด้วย แก่ ต่อ ให้ คือ "
    "ล้าน เปอร์เซ็นต์ พัน หมื่น แสน เมตร กิโลเมตร อายุ เช่น ได้แก่ จน อัน ตั้งแต่ บน ณ ราย กว่า ครั้ง เดือน "
    "เวลา ประมาณ ระหว่าง ผ่าน ตอบ บอก"
)
OFTEN_LAST = _words("กล่าว ได้ ด้วย แล้ว ครับ ค่ะ ไร ไม่ เท่านั้น ไป นี้ นั้น ลง เรา กัน มาก ขึ้น อยู่ สุด")
QUOTES = "\"'“”‘’"
GAP = re.compile(r"\s+")
THAI = re.compile(r"[\u0e01-\u0e2e\u0e30-\u0e39\u0e40-\u0e45\u0e47-\u0e4e]")
"""Letters, vowels and tone marks: not ฯ, ฿, ๆ or digits."""


def thai_ends(paragraph: str) -> Iterator[int]:
    """Positions of the spaces after the sentences of a paragraph."""
    start = letters = depth = quotes = 0
    for gap in GAP.finditer(paragraph):
        word, after = paragraph[start : gap.start()], paragraph[gap.end() : gap.end() + 12]
        start = gap.end()
        letters += len(word)
        # a closing bracket may have no opening one, as in a list: ก)
        depth = max(0, depth + sum(c in "([“" for c in word) - sum(c in ")]”" for c in word))
        quotes += word.count('"')
        open_ = (depth > 0 or quotes % 2) and letters < UNCLOSED
        if word and after and not open_ and _is_thai_end(word, after, letters):
            yield gap.start()
            letters = depth = quotes = 0


def _is_thai_end(word: str, after: str, letters: int) -> bool:
    last, first = word.rstrip(QUOTES), after.lstrip(QUOTES)
    if last.endswith(("?", "!")):
        return True
    if not THAI.match(last[-1:]) or not THAI.match(first[:1]) or last.endswith(NEVER_LAST):
        return False
    if first.startswith(OFTEN_FIRST):
        return letters >= AFTER_A_CUE
    if first.startswith(SELDOM_FIRST):
        return False
    return letters >= (AFTER_A_CUE if last.endswith(OFTEN_LAST) else WITHOUT_A_CUE)
