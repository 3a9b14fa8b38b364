"""Cut text into words, character n-grams or dictionary segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from unicodedata import decimal

import regex

from interlingua.errors import NotFound
from interlingua.text.languages import nfkc

DIGITS = regex.compile(r"[\p{Nd}--0-9]", regex.V1)
INVISIBLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}--\u200b]+", regex.V1)
"""Without the zero-width space, with which Khmer and others may mark the end of a word."""
SIGNS = str.maketrans({"٫": ".", "٬": ",", "’": "'", "‘": "'", "ʼ": "'"})
"""Arabic decimal and thousands separators, apostrophes."""
TURKISH = str.maketrans({"I": "ı", "İ": "i"})
DOTTED = "i\u0307"  # what İ becomes without case


THAI_AM = regex.compile("\u0e4d([\u0e48-\u0e4b]?)\u0e32")
LAO_AM = regex.compile("\u0ecd([\u0ec8-\u0ecb]?)\u0eb2")


def term_nfkc(text: str) -> str:
    """`text` in NFKC, but for the Thai and Lao vowel AM: NFKC splits it, dictionaries write it as one letter, after the
    tone. Two vowels E are AE, which looks the same."""
    if text.isascii():
        return text
    text = nfkc(text).replace("\u0e40\u0e40", "\u0e41").replace("\u0ec0\u0ec0", "\u0ec1")
    if "\u0e4d" in text:
        text = THAI_AM.sub("\\1\u0e33", text)
    return LAO_AM.sub("\\1\u0eb3", text) if "\u0ecd" in text else text


def folded(text: str, *, turkish: bool = False) -> str:
    """`text` (NFKC) without case, digits of every script as ASCII digits, apostrophes straight, invisible characters
    (soft hyphen, joiners, variation selectors) gone.

    `turkish`: I is the capital of dotless ı. Elsewhere İ and I are both the capital of i.
    """
    if turkish:
        text = text.translate(TURKISH)
    if text.isascii():
        return text.lower()
    visible = term_nfkc(INVISIBLE.sub("", text.casefold().replace(DOTTED, "i")))
    if visible.isalpha() and "ʼ" not in visible:  # most words: there is no digit and no sign
        return visible
    # one that is newer than Python's Unicode stays as it is
    result: str = DIGITS.sub(lambda match: str(decimal(match[0], match[0])), visible)
    return result.translate(SIGNS)


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


def runs(text: str) -> list[tuple[str, bool]]:
    """The words of `text`, and of each whether it is a run of a script without spaces between words.

    Boundaries are those of UAX 29, except that such a run stays in one piece for others to cut. White space and
    punctuation are no words.
    """
    if text.isascii() and text.isalnum():
        return [(text, False)]
    return [
        (word, match.lastgroup is not None)
        for match in RUN.finditer(text)
        if (word := match[0]).isalnum() or LETTER_OR_DIGIT.search(word)
    ]


def words(text: str) -> list[str]:
    """The words of `text` as UAX 29 alone has them: Chinese characters and hiragana one by one, Thai, Lao, Khmer and
    Myanmar as far as the next space."""
    return [
        piece
        for run, unspaced in runs(text)
        for piece in (UAX29_PIECE.findall(run) if unspaced else (run,))
        if LETTER_OR_DIGIT.search(piece)
    ]


SOUTH_EAST = regex.compile(r"(\p{Line_Break=SA}+)")
CLUSTER = regex.compile(r"(?s).[\p{M}\u0e33\u0eb3]*")
HANGUL = regex.compile(r"(\p{Hangul}+)")
FIRST_HANGUL = "\u1100"
CLUSTERS = 3


def grams(word: str, size: int) -> list[str]:
    """The overlapping pieces of `size` characters of `word`; the word itself where it is not longer."""
    if len(word) <= size:
        return [word]
    return [word[start : start + size] for start in range(len(word) - size + 1)]


def script_grams(run: str) -> list[str]:
    """Character n-grams in place of words, for a script without spaces between them.

    Chinese and Japanese (and Korean, see `hangul_grams`): every character and every two neighbours. Thai, Lao, Khmer,
    Myanmar: every three neighbouring clusters (a letter with the vowels and tones above, below and after it); all of
    them where there are fewer.
    """
    terms: list[str] = []
    for piece in SOUTH_EAST.split(run):
        if SOUTH_EAST.match(piece):
            clusters = CLUSTER.findall(piece)
            count = max(1, len(clusters) - CLUSTERS + 1)
            terms += ["".join(clusters[start : start + CLUSTERS]) for start in range(count)]
        elif piece:
            terms += piece
            terms += grams(piece, 2) if len(piece) > 1 else ()
    return terms


def hangul_grams(word: str) -> list[str]:
    """A word with its Hangul cut as Chinese is, since Korean writes endings and particles together with their word.
    What is not Hangul (2020 in 2020년) stays whole."""
    terms: list[str] = []
    for piece in HANGUL.split(word):
        terms += script_grams(piece) if HANGUL.match(piece) else [piece] if piece else ()
    return terms


Segment = Callable[[str], list[str]]
PIECE = regex.compile(r"[^。\n]{1,10000}[。\n]?|[。\n]")  # SudachiPy takes 49,149 bytes at most
KOREAN_CONTENT = ("N", "V", "M", "X", "SL", "SN", "SH")
"""First letters of the tags of words: nouns, verbs, modifiers, roots and affixes, foreign letters, digits, Chinese."""


@dataclass(frozen=True)
class Segmenter:
    """`packages` are what must be installed, the last holding the dictionary; `load` gives the function that cuts."""

    lang: str
    packages: tuple[str, ...]
    load: Callable[[], Segment]

    @property
    def version(self) -> str:
        """The packages with their versions. Raises NotFound where one is missing."""
        try:
            return ", ".join(f"{package} {version(package)}" for package in self.packages)
        except PackageNotFoundError:
            raise NotFound(
                f"this segmenter needs {' and '.join(self.packages)}: pip install "
                "'interlingua[segment]'. Or take the analyzer 'ngram'."
            ) from None


def _jieba() -> Segment:
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)
    return lambda text: list(jieba.cut(text))


def _sudachi() -> Segment:
    from sudachipy import Dictionary, SplitMode

    cut = Dictionary(dict="core").tokenizer(mode=SplitMode.A).tokenize
    return lambda text: [word.normalized_form() for piece in PIECE.findall(text) for word in cut(piece)]


def _newmm() -> Segment:
    from pythainlp.tokenize import word_tokenize

    return lambda text: list(word_tokenize(text, engine="newmm", keep_whitespace=False))


def _kiwi() -> Segment:
    from kiwipiepy import Kiwi

    cut = Kiwi(num_workers=1).tokenize
    return lambda text: [word.form for word in cut(text) if word.tag.startswith(KOREAN_CONTENT)]


SEGMENTERS = {
    "jieba": Segmenter("zh", ("jieba",), _jieba),
    "kiwi": Segmenter("ko", ("kiwipiepy", "kiwipiepy_model"), _kiwi),
    "newmm": Segmenter("th", ("pythainlp",), _newmm),
    "sudachi": Segmenter("ja", ("sudachipy", "sudachidict_core"), _sudachi),
}


def segmenters_of(lang: str) -> Iterator[str]:
    """The names of the segmenters for a language."""
    return (name for name, segmenter in SEGMENTERS.items() if segmenter.lang == lang)
