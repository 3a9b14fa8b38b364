"""Dictionary segmenters for Chinese, Japanese, Thai and Korean, each by a library of its own and chosen by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import regex

from interlingua.errors import InterlinguaError

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
        """The packages with their versions. Raises InterlinguaError where one is missing."""
        try:
            return ", ".join(f"{package} {version(package)}" for package in self.packages)
        except PackageNotFoundError:
            raise InterlinguaError(f"this segmenter needs {' and '.join(self.packages)}: pip install "
                                   "'interlingua[segment]'. Or take the analyzer 'ngram'.") from None


def _jieba() -> Segment:
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)

    def cut(text: str) -> list[str]:
        return list(jieba.cut(text))

    return cut


def _sudachi() -> Segment:
    from sudachipy import Dictionary, SplitMode

    tokenizer = Dictionary(dict="core").tokenizer(mode=SplitMode.A)

    def cut(text: str) -> list[str]:
        return [word.normalized_form() for piece in PIECE.findall(text) for word in tokenizer.tokenize(piece)]

    return cut


def _newmm() -> Segment:
    from pythainlp.tokenize import word_tokenize

    def cut(text: str) -> list[str]:
        return list(word_tokenize(text, engine="newmm", keep_whitespace=False))

    return cut


def _kiwi() -> Segment:
    from kiwipiepy import Kiwi

    kiwi = Kiwi(num_workers=1)

    def cut(text: str) -> list[str]:
        return [word.form for word in kiwi.tokenize(text) if word.tag.startswith(KOREAN_CONTENT)]

    return cut


SEGMENTERS = {
    "jieba": Segmenter("zh", ("jieba",), _jieba),
    "kiwi": Segmenter("ko", ("kiwipiepy", "kiwipiepy_model"), _kiwi),
    "newmm": Segmenter("th", ("pythainlp",), _newmm),
    "sudachi": Segmenter("ja", ("sudachipy", "sudachidict_core"), _sudachi),
}


def segmenters_of(lang: str) -> Iterator[str]:
    """The names of the segmenters for a language."""
    return (name for name, segmenter in SEGMENTERS.items() if segmenter.lang == lang)
