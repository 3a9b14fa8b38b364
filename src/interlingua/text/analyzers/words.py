"""Words after the Unicode standard's annex 29 (UAX 29), which keeps combining marks with their letters."""

from __future__ import annotations

from collections.abc import Iterator

import regex

UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Line_Break=SA}ー々〆〇]"
"""Letters of scripts that put no spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Myanmar."""
LETTER, HEBREW = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]", r"\p{WB=Hebrew_Letter}"
DIGIT, JOINING = r"\p{WB=Numeric}", r"\p{WB=ExtendNumLet}"
BETWEEN_LETTERS, BETWEEN_DIGITS = r"[\p{WB=MidLetter}\p{WB=MidNumLet}']", r"[\p{WB=MidNum}\p{WB=MidNumLet}']"
MARKS = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
RUN = regex.compile(rf"""(?x)
    (?P<unspaced> (?: {UNSPACED} {MARKS} )+ )
  | (?: (?! {UNSPACED} ) (?:
        {HEBREW} {MARKS} " (?= {HEBREW} )                                   # WB7b, WB7c
      | {LETTER} {MARKS} (?: {BETWEEN_LETTERS} {MARKS} (?= {LETTER} ) )?    # WB5 to WB7
      | {DIGIT} {MARKS} (?: {BETWEEN_DIGITS} {MARKS} (?= {DIGIT} ) )?       # WB8 to WB12
      | {JOINING} {MARKS}                                                   # WB13
      | [\p{{L}}\p{{N}}] {MARKS}
    ) )+""")
UAX29_PIECE = regex.compile(rf"[\p{{Han}}\p{{Hiragana}}々〆〇]{MARKS}|[^\p{{Han}}\p{{Hiragana}}々〆〇]+")
LETTER_OR_DIGIT = regex.compile(r"[\p{L}\p{N}]")


def runs(text: str) -> Iterator[tuple[str, bool]]:
    """The words of `text`, and of each whether it is a run of a script without spaces between words.

    Boundaries are those of UAX 29, except that such a run stays in one piece for others to cut. White space and
    punctuation are no words.
    """
    if text.isascii() and text.isalnum():
        yield text, False
        return
    for found in RUN.finditer(text):
        if LETTER_OR_DIGIT.search(found[0]):
            yield found[0], found.start("unspaced") >= 0


def words(text: str) -> list[str]:
    """The words of `text` as UAX 29 alone has them: Chinese characters and hiragana one by one, Thai, Lao, Khmer and
    Myanmar as far as the next space."""
    return [piece for run, unspaced in runs(text)
            for piece in (UAX29_PIECE.findall(run) if unspaced else (run,)) if LETTER_OR_DIGIT.search(piece)]
