"""Which words of a text say what a word of the question says, in any language, by the vectors of a static encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from interlingua.models.encoder import Encoder
from interlingua.retrieval.static_maxsim import backbone, static_sides
from interlingua.text.analyzers import Analyzer
from interlingua.text.analyzers.words import RUN

Span = tuple[int, int]
NEAR = 0.4
"""Cosine of two words from which one stands for the other."""


def near_words(question: str, text: str, encoder: Any, asked: Analyzer, told: Analyzer) -> list[Span]:
    """Spans of characters of `text`: for each word of the question the nearest word, where it is near enough.

    A word's vector is the mean of those of its subwords; where a script puts no spaces between words, a subword is one.
    Words that the analyzers leave out, `asked` those of the question and `told` those of the text, are none, and no
    number stands for another. Empty for an encoder that has no `static_sides`.
    """
    sides = static_sides(encoder)
    if sides is None:
        return []
    theirs, ours = _words(question, sides[0]), _words(text, sides[1])
    if not theirs or not ours:
        return []
    similar, place = (_vectors(theirs, sides[0]) @ _vectors(ours, sides[1]).T).max(dim=1)
    spans, found = list(ours), []
    for word, nearest, cosine in zip(theirs, place.tolist(), similar.tolist(), strict=True):
        one, other = question[slice(*word)], text[slice(*spans[nearest])]
        if cosine >= NEAR and asked(one) and told(other) and not (_is_number(one) and _is_number(other)):
            found.append(spans[nearest])
    return found


def _words(text: str, encoder: Encoder) -> dict[Span, list[int]]:
    """The words of a text, in order, with their subwords."""
    runs = list(RUN.finditer(text))
    of = [-1] * len(text)  # which run a character is of
    for number, run in enumerate(runs):
        of[run.start() : run.end()] = [number] * len(run[0])
    found: dict[Span, list[int]] = {}
    for id, (start, end) in backbone(encoder).subwords.spans(text):
        number = next((number for number in of[start:end] if number >= 0), -1)
        if number >= 0:
            run = runs[number]
            unspaced = run.start("unspaced") >= 0
            span = (max(start, run.start()), min(end, run.end())) if unspaced else run.span()
            found.setdefault(span, []).append(id)
    return found


def _vectors(words: dict[Span, list[int]], encoder: Encoder) -> Tensor:
    """`[words, dim]`, of unit length."""
    with torch.inference_mode():
        return normalize(backbone(encoder).vectors(list(words.values())), dim=1)


def _is_number(word: str) -> bool:
    return any(character.isdigit() for character in word)
