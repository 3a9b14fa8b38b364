"""The words of a passage that answer a question: those with its terms, those that sound like its words, and those near
its words in any language."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, cast

import numpy as np
import regex  # type: ignore[import-untyped]
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.index.metadata import Question
from interlingua.models.protocols import AnyEncoder, has_token_vectors
from interlingua.models.static.encoder import TINY, StaticSide, static_sides
from interlingua.retrieval.late_interaction.states import TokenStates
from interlingua.text.analyzers import Analyzer, analyzer
from interlingua.text.analyzers.segment import CLUSTER, CLUSTERS, RUN, SOUTH_EAST, term_nfkc
from interlingua.text.languages import find_code
from interlingua.text.phonetic import phonetic_keys

if TYPE_CHECKING:
    from interlingua.index.index import Index
    from interlingua.models.late_interaction import LateInteractionEncoder

Span = tuple[int, int]
MARKED = 10_000
"""Characters of a passage in which words are marked, the first of them."""
ALIKE = 0.5
"""Share of a word's terms that must be the question's: all of a stem, half of a stem with n-grams."""
NEAR_WORD = 0.4
"""Cosine of two words from which one stands for the other."""
QUESTION_WORDS, TEXT_WORDS = 256, 4_096
"""Different words of a question, and of a text, that are looked at, the first of them."""
NEAR_TOKEN = 0.6
"""Cosine from which a token of the text stands for one of the question."""
NEAR_STATE = 0.12
"""The same for token states, of which any two are alike: by how much it is above the mean cosine with the text."""


class Highlights:
    """The words of passages that answer to a question: those with its terms, and with an `encoder` those of passages in
    other languages that sound like its words; with one of late interaction, or a static one, also those that are the
    nearest to a word of the question, whatever language either is in.

    `lang` is the language of a question that is given as a text, detected if not given. A `Question` that was searched
    for has its terms already.
    """

    def __init__(self, question: str | Question, lang: str = "", encoder: AnyEncoder | None = None) -> None:
        self._question = question if isinstance(question, Question) else Question(question, lang or None)
        self._by_sound = encoder is not None
        self._aligner = _aligner(self._question.text, encoder, analyzer(find_code(self._question.lang) or ""))

    def __call__(self, passage: Passage) -> list[Span]:
        """Spans of characters of `passage.text`, in order and apart from each other, among the first `MARKED`."""
        text, cut = passage.text[:MARKED], analyzer(find_code(passage.lang) or "")
        question_terms = self._question.counts(self._question.lang).keys() | self._question.counts(passage.lang).keys()
        heard = self._by_sound and self._question.is_foreign(passage.lang)
        sounds = self._question.sounds.keys() if heard else set[str]()
        spans = [
            span
            for span in _pieces(text)
            if _alike(cut, word := text[slice(*span)], question_terms)
            or (sounds and not sounds.isdisjoint(phonetic_keys(word)))
        ]
        return _joined(sorted(_whole(text, span) for span in spans + self._aligner.spans(text, cut)))


def highlights(
    question: str | Question, passage: Passage, lang: str = "", encoder: AnyEncoder | None = None
) -> list[Span]:
    """`Highlights` of one passage."""
    return Highlights(question, lang, encoder)(passage)


def highlight_encoder(reranker: AnyEncoder | None, index: Index, mode: str) -> AnyEncoder | None:
    """The encoder for `Highlights` of the hits of a search: the model of late interaction that reranked, the token
    states that the `index` keeps, else its encoder. None for a lexical search, which needs no model."""
    if reranker is not None and has_token_vectors(reranker):
        return reranker
    return None if mode == "lexical" else index.token_states or index.encoder


def _aligner(question: str, encoder: AnyEncoder | None, cut: Analyzer) -> StaticAligner | ContextualAligner:
    if encoder is not None and has_token_vectors(encoder):
        return ContextualAligner(question, cast("LateInteractionEncoder | TokenStates", encoder), cut)
    return StaticAligner(question, encoder, cut)


def _pieces(text: str) -> Iterator[Span]:
    """Words; where a script puts no spaces between them, what its n-grams are made of."""
    for word in RUN.finditer(text):
        if word.start("unspaced") < 0:
            yield word.span()
            continue
        clusters = [match.span() for match in CLUSTER.finditer(text, *word.span())]
        size = min(CLUSTERS if SOUTH_EAST.match(word[0]) else 2, len(clusters))
        yield from ((clusters[at][0], clusters[at + size - 1][1]) for at in range(len(clusters) - size + 1))


def _alike(cut: Analyzer, word: str, question_terms: set[str]) -> bool:
    terms, word = cut(word), term_nfkc(word)
    if terms and terms[-1] == word and len(word) == 2:
        terms = [word]  # two Chinese or Japanese characters count as a pair, not each by itself
    return bool(terms) and sum(term in question_terms for term in terms) >= ALIKE * len(terms)


STACKERS = "\u1039\u17d2"
"""In Burmese and Khmer the letter after one of these stands below the one before it."""
MARKS = regex.compile(rf"(?:[\p{{M}}\u0e33\u0eb3]|(?<=[{STACKERS}])\p{{L}})*")


def _whole(text: str, span: Span) -> Span:
    """The span with all marks of its letters: a subword may begin or end between a letter and its mark."""
    start, end = span
    while start and (MARKS.fullmatch(text[start]) or text[start - 1] in STACKERS):
        start -= 1
    marks = MARKS.match(text, end)
    return start, marks.end() if marks else end


def _joined(spans: list[Span]) -> list[Span]:
    """Spans that overlap or touch become one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


class StaticAligner:
    """Align the words of texts with those of a question by the vectors of a static encoder, in any language.

    A word's vector is the mean of those of its subwords; where a script puts no spaces between words, a subword is one.
    `cut` is the analyzer of the question's language: words that it leaves out are not looked for. Without effect for an
    encoder that has no `static_sides`. Raises BadInput for a question that is not valid Unicode.
    """

    def __init__(self, question: str, encoder: AnyEncoder | None, cut: Analyzer) -> None:
        sides = static_sides(encoder)
        words = _distinct_words(question, sides[0], QUESTION_WORDS) if sides else {}
        words = {span: ids for span, ids in words.items() if cut(question[slice(*span)])}
        self._sought = [_is_number(question[slice(*span)]) for span in words]
        if sides and words:
            self._vectors, self._passage = _word_vectors(words, sides[0]), sides[1]

    def spans(self, text: str, cut: Analyzer) -> list[Span]:
        """Spans of characters of `text`: for each word of the question the nearest word, where it is near enough,
        `cut`, the analyzer of the text's language, does not leave it out, and it is not another number."""
        words = _distinct_words(text, self._passage, TEXT_WORDS) if self._sought else {}
        if not words:
            return []
        cosines = self._vectors @ _word_vectors(words, self._passage).T
        similar, place = cosines.max(axis=1), cosines.argmax(axis=1)
        spans, matches = list(words), []
        for number, nearest, cosine in zip(self._sought, place.tolist(), similar.tolist(), strict=True):
            word = text[slice(*spans[nearest])]
            if cosine >= NEAR_WORD and cut(word) and not (number and _is_number(word)):
                matches.append(spans[nearest])
        return matches


def _distinct_words(text: str, side: StaticSide, limit: int) -> dict[Span, list[int]]:
    """The first `limit` different words of a text, in order, with their subwords."""
    spans: dict[tuple[int, ...], Span] = {}
    for span, subwords in groupby(_placed(text, side), key=itemgetter(0)):
        spans.setdefault(tuple(id for _, id in subwords), span)
        if len(spans) == limit:
            break
    return {span: list(ids) for ids, span in spans.items()}


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


def _word_vectors(words: dict[Span, list[int]], side: StaticSide) -> NDArray[np.float32]:
    """`[words, dim]`, of unit length."""
    means = side.table.means(list(words.values()))
    unit: NDArray[np.float32] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), TINY)
    return unit


def _is_number(word: str) -> bool:
    return any(character.isdigit() for character in word)


class ContextualAligner:
    """Align the words of texts with those of a question by the token vectors of a model of late interaction, or by
    token states. `cut` is the analyzer of the question's language: words that it leaves out are not looked for."""

    def __init__(self, question: str, encoder: LateInteractionEncoder | TokenStates, cut: Analyzer) -> None:
        self._encoder = encoder
        self._vectors = encoder.encode_query([question])[0]
        words = [word.span() for word in RUN.finditer(question)]
        self._rows = [
            row
            for row, (start, end) in _placed_tokens(encoder, question, "query")
            if (word := next((span for span in words if span[0] < end and start < span[1]), None)) is not None
            and cut(question[slice(*word)])
        ]

    def spans(self, text: str, cut: Analyzer) -> list[Span]:
        """Spans of characters of `text`: the words in which each of these tokens has its nearest, where it is near
        enough."""
        if not self._rows:
            return []
        vectors, tokens = self._encoder.encode_document([text])[0], _placed_tokens(self._encoder, text, "document")
        words, matches = [word.span() for word in RUN.finditer(text)], []
        for row in self._rows if tokens else ():
            cosines = vectors[[row for row, _ in tokens]] @ self._vectors[row]
            similar, place = cosines.max(dim=0)
            states = isinstance(self._encoder, TokenStates)
            if float(similar) >= (float(cosines.mean()) + NEAR_STATE if states else NEAR_TOKEN):
                begin, stop = tokens[int(place)][1]
                matches += [span for span in words if span[0] < stop and begin < span[1]]
        return matches


def _placed_tokens(encoder: LateInteractionEncoder | TokenStates, text: str, role: str) -> list[tuple[int, Span]]:
    """The tokens of `text` that have a vector: its row, and the characters it stands for."""
    if isinstance(encoder, TokenStates):
        return list(enumerate(encoder.spans(text, role)))
    ids = encoder.tokenize([text], role)[0]
    plain = encoder.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    plain_ids, spans = plain["input_ids"], plain["offset_mapping"]
    first = next((at for at in range(len(ids)) if plain_ids and ids[at] == plain_ids[0]), len(ids))
    skipped = set(encoder.tokenizer.convert_tokens_to_ids(list(encoder.skipped))) if role == "document" else set()
    tokens, row = [], sum(id not in skipped for id in ids[:first])
    for id, plain_id, span in zip(ids[first:], plain_ids, spans, strict=False):
        if id != plain_id:
            break  # cut off here
        if id not in skipped:
            tokens.append((row, tuple(span)))
            row += 1
    return tokens
