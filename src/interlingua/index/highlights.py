"""Which words of a passage answer to a question: those with its terms, and those near its tokens in any language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from interlingua.data.records import Passage
from interlingua.index.metadata import Question
from interlingua.index.near_words import NearWords, Span
from interlingua.text.analyzers import Analyzer, analyzer
from interlingua.text.analyzers.segment import CLUSTER, CLUSTERS, RUN, SOUTH_EAST
from interlingua.text.languages import find_code

if TYPE_CHECKING:
    from interlingua.index.near_tokens import NearTokens


MARKED = 10_000
"""Characters of a passage in which words are marked, the first of them."""
ALIKE = 0.5
"""Share of a word's terms that must be the question's: all of a stem, half of a stem with n-grams."""


class Highlights:
    """The words of passages that answer to a question: those with its terms, and with an `encoder` of late interaction,
    or a static one, also those that are the nearest to a word of the question, whatever language either is in.

    `lang` is the language of a question that is given as a text, detected if not given. A `Question` that was searched
    for has its terms already.
    """

    def __init__(self, question: str | Question, lang: str = "", encoder: Any = None) -> None:
        self._question = question if isinstance(question, Question) else Question(question, lang or None)
        self._near = _near(self._question.text, encoder, analyzer(find_code(self._question.lang) or ""))

    def __call__(self, passage: Passage) -> list[Span]:
        """Spans of characters of `passage.text`, in order and apart from each other, among the first `MARKED`."""
        text, cut = passage.text[:MARKED], analyzer(find_code(passage.lang) or "")
        asked = self._question.counts(self._question.lang).keys() | self._question.counts(passage.lang).keys()
        found = [span for span in _pieces(text) if _alike(cut, text[slice(*span)], asked)]
        return _joined(sorted(found + self._near.spans(text, cut)))


def highlights(question: str | Question, passage: Passage, lang: str = "", encoder: Any = None) -> list[Span]:
    """`Highlights` of one passage."""
    return Highlights(question, lang, encoder)(passage)


def marker(reranker: Any, index: Any, mode: str) -> Any:
    """What `Highlights` of the hits of a search are made with: the model of late interaction that reranked, else the
    encoder of the `index`; none where it found by words alone."""
    if getattr(reranker, "similarity", "") == "maxsim":
        return reranker
    return None if mode == "lexical" else index.encoder


def _near(question: str, encoder: Any, cut: Analyzer) -> NearWords | NearTokens:
    if getattr(encoder, "similarity", "") == "maxsim":
        from interlingua.index.near_tokens import NearTokens

        return NearTokens(question, encoder, cut)
    return NearWords(question, encoder, cut)


def _pieces(text: str) -> Iterator[Span]:
    """Words; where a script puts no spaces between them, what its n-grams are made of."""
    for word in RUN.finditer(text):
        if word.start("unspaced") < 0:
            yield word.span()
            continue
        clusters = [(word.start() + one.start(), word.start() + one.end()) for one in CLUSTER.finditer(word[0])]
        size = min(CLUSTERS if SOUTH_EAST.match(word[0]) else 2, len(clusters))
        yield from ((clusters[at][0], clusters[at + size - 1][1]) for at in range(len(clusters) - size + 1))


def _alike(cut: Analyzer, word: str, asked: set[str]) -> bool:
    terms = cut(word)
    if terms and terms[-1] == word and len(word) == 2:
        terms = [word]  # two Chinese or Japanese characters count as a pair, not each by itself
    return bool(terms) and sum(term in asked for term in terms) >= ALIKE * len(terms)


def _joined(spans: list[Span]) -> list[Span]:
    """Spans that overlap or touch become one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
