"""Which words of a text say what a word of the question says, in any language, by the vectors of a static encoder."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.models.static_encoder import TINY, StaticSide
from interlingua.retrieval.late_interaction.static import static_sides
from interlingua.text.analyzers import Analyzer
from interlingua.text.analyzers.segment import RUN

Span = tuple[int, int]
NEAR_WORD = 0.4
"""Cosine of two words from which one stands for the other."""
ASKED, TOLD = 256, 4_096
"""Different words of a question, and of a text, that are looked at, the first of them."""


class NearWords:
    """The words of a question, to be found in texts by what they say: by the cosine of their vectors.

    A word's vector is the mean of those of its subwords; where a script puts no spaces between words, a subword is one.
    `cut` is the analyzer of the question's language: words that it leaves out are not looked for. Without effect for an
    encoder that has no `static_sides`. Raises BadInput for a question that is not valid Unicode.
    """

    def __init__(self, question: str, encoder: Any, cut: Analyzer) -> None:
        sides = static_sides(encoder)
        words = _words(question, sides[0], ASKED) if sides else {}
        words = {span: ids for span, ids in words.items() if cut(question[slice(*span)])}
        self._sought = [_is_number(question[slice(*span)]) for span in words]
        if sides and words:
            self._vectors, self._passage = _vectors(words, sides[0]), sides[1]

    def spans(self, text: str, cut: Analyzer) -> list[Span]:
        """Spans of characters of `text`: for each word of the question the nearest word, where it is near enough,
        `cut`, the analyzer of the text's language, does not leave it out, and it is not another number."""
        words = _words(text, self._passage, TOLD) if self._sought else {}
        if not words:
            return []
        cosines = self._vectors @ _vectors(words, self._passage).T
        similar, place = cosines.max(axis=1), cosines.argmax(axis=1)
        spans, found = list(words), []
        for number, nearest, cosine in zip(self._sought, place.tolist(), similar.tolist(), strict=True):
            word = text[slice(*spans[nearest])]
            if cosine >= NEAR_WORD and cut(word) and not (number and _is_number(word)):
                found.append(spans[nearest])
        return found


def _words(text: str, side: StaticSide, most: int) -> dict[Span, list[int]]:
    """The first `most` different words of a text, in order, with their subwords."""
    first: dict[tuple[int, ...], Span] = {}
    for span, subwords in groupby(_placed(text, side), key=itemgetter(0)):
        first.setdefault(tuple(id for _, id in subwords), span)
        if len(first) == most:
            break
    return {span: list(ids) for ids, span in first.items()}


def _placed(text: str, side: StaticSide) -> Iterator[tuple[Span, int]]:
    """The subwords of a text, each with its word, in order."""
    runs = [(*run.span(), run.start("unspaced") >= 0) for run in RUN.finditer(text)]
    ends = [end for _, end, _ in runs]
    subwords = side.subwords
    mark = subwords.tokenizer.token_to_id("▁")  # stands before an unspaced word, and says nothing
    for id, (start, end) in subwords.spans(text):
        number = bisect_right(ends, start)
        if number < len(runs) and runs[number][0] < end and id != mark:
            begin, stop, unspaced = runs[number]
            yield ((max(start, begin), min(end, stop)) if unspaced else (begin, stop)), id


def _vectors(words: dict[Span, list[int]], side: StaticSide) -> NDArray[np.float32]:
    """`[words, dim]`, of unit length."""
    means = side.table.means(list(words.values()))
    unit: NDArray[np.float32] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), TINY)
    return unit


def _is_number(word: str) -> bool:
    return any(character.isdigit() for character in word)
