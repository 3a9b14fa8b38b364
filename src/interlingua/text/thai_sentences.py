"""Sentence ends in Thai, which has no mark for them and puts spaces between clauses, around names and numbers too.

A space ends a sentence when the words beside it speak for it, or do not speak against it and the sentence is long
enough. Never beside Latin letters, digits, ๆ, ฯ or punctuation, and never inside brackets or quotation marks. The words
were chosen on the Thai half of NTREX-128's first 70 documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

AFTER_A_CUE = 15
"""Letters that a sentence needs before a space that the words mark as its end."""
WITHOUT_A_CUE = 50
"""Letters that it needs before a space that nothing marks either way."""
UNCLOSED = 200
"""Letters after which an open bracket or quotation mark counts as never closed."""


def _words(listed: str) -> tuple[str, ...]:
    return tuple(listed.split())


NEVER_LAST = _words("ว่า ของ ที่ และ กับ ใน จาก ถึง ให้ เป็น คือ เช่น สำหรับ หรือ โดย ซึ่ง อายุ เมื่อ ได้แก่ แก่ ต่อ กว่า แต่ เพื่อ "
                    "ประมาณ เพราะ ทั้ง ณ ปี วันที่ เดือน เวลา ชื่อ คุณ นาย นาง ตาม แห่ง โดยเฉพาะ ดังนี้ ระหว่าง")
OFTEN_FIRST = _words("อย่างไรก็ นอกจาก จากนั้น ต่อมา หลังจาก ทั้งนี้ ดังนั้น ปัจจุบัน การ มี ตาม นาย นาง ข้อ เขา เธอ ผม ฉัน เรา "
                     "พวกเขา มัน นี่ นั่น สิ่ง กลุ่ม แม้ ถ้า หาก ใน ตำรวจ ประธาน ขณะ เมื่อ บาง แต่ ทุก ผู้ ตอน ส่วน ด้วยเหตุ ทาง สำหรับ")
SELDOM_FIRST = _words("ที่ ซึ่ง ได้ เป็น จะ ของ ก็ กล่าว ปี ว่า หรือ ทำให้ กับ ยัง รวม และ เพื่อ เพราะ เนื่องจาก ด้วย แก่ ต่อ ให้ คือ "
                      "ล้าน เปอร์เซ็นต์ พัน หมื่น แสน เมตร กิโลเมตร อายุ เช่น ได้แก่ จน อัน ตั้งแต่ บน ณ ราย กว่า ครั้ง เดือน "
                      "เวลา ประมาณ ระหว่าง ผ่าน ตอบ บอก")
OFTEN_LAST = _words("กล่าว ได้ ด้วย แล้ว ครับ ค่ะ ไร ไม่ เท่านั้น ไป นี้ นั้น ลง เรา กัน มาก ขึ้น อยู่ สุด")
QUOTES = "\"'“”‘’"
GAP = re.compile(r"\s+")
THAI = re.compile(r"[\u0e01-\u0e2e\u0e30-\u0e39\u0e40-\u0e45\u0e47-\u0e4e]")
"""Letters, vowels and tone marks: not ฯ, ฿, ๆ or digits."""


def thai_ends(paragraph: str) -> Iterator[int]:
    """Where the sentences of a paragraph end: positions of the spaces after them."""
    before = letters = depth = quotes = 0
    for gap in GAP.finditer(paragraph):
        word, after = paragraph[before:gap.start()], paragraph[gap.end():gap.end() + 12]
        before = gap.end()
        letters += len(word)
        depth += sum(c in "([“" for c in word) - sum(c in ")]”" for c in word)
        quotes += word.count('"')
        open_ = (depth > 0 or quotes % 2) and letters < UNCLOSED
        if word and after and not open_ and _is_end(word, after, letters):
            yield gap.start()
            letters = depth = quotes = 0


def _is_end(word: str, after: str, letters: int) -> bool:
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
