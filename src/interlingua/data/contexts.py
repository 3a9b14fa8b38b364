"""Training pairs out of raw text: neighbouring sentences (CCP) and the inverse cloze task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from interlingua.data.readers.rows import content_id
from interlingua.data.records import ContextPair, Document, Passage, QuestionPassage
from interlingua.data.stream import key_of
from interlingua.errors import BadInput
from interlingua.text.languages import language

logger = logging.getLogger(__name__)


def with_context(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents of two sentences and more; the others, which have no neighbours, are counted on standard error."""
    skipped = total = 0
    for document in documents:
        total += 1
        if len(document.sentences) > 1:
            yield document
        else:
            skipped += 1
    if skipped:
        logger.info(f"context prediction: {skipped:,} of {total:,} documents are a single sentence and were left out")


def context_pair(document: Document, number: int, window: int, random: np.random.Generator) -> ContextPair:
    """Two different sentences of a random window of `window` consecutive sentences, in random order. A target that says
    the same as its centre is drawn again among the others, where there are any: it would be found by its words.

    A window of 2 is next-sentence prediction, of 5 the paper's default (its Table 6 counts the sentences of the
    window, not the radius of §3.1). A shorter document is one window.
    """
    length = min(window, len(document.sentences))
    start = int(random.integers(len(document.sentences) - length + 1))
    center, target = random.choice(length, size=2, replace=False)
    sentences = document.sentences[start : start + length]
    if sentences[int(center)] == sentences[int(target)]:
        others = [place for place, sentence in enumerate(sentences) if sentence != sentences[int(center)]]
        target = random.choice(others) if others else target
    return ContextPair(sentences[int(center)], sentences[int(target)], document.lang, number)


def cloze(
    documents: Iterable[Document], *, seed: int = 0, max_sentences: int = 8, max_chars: int = 1200, keep: float = 0.1
) -> Iterator[QuestionPassage]:
    """A question and its passage, in one language, from every window of every document.

    A document is cut into windows of up to `max_sentences` sentences and `max_chars` characters. One sentence of a
    window, drawn at random, is the question; the others are the passage, and with probability `keep` the question
    stays among them (Lee et al.: 0.1), so that matching words is worth learning too. What is drawn depends on the seed
    and the number of the document alone. Windows of one sentence give nothing; documents with no other are counted
    on standard error.
    """
    if max_sentences < 2:
        raise BadInput(f"max_sentences is {max_sentences}: a question and a passage take at least 2 sentences.")
    skipped = total = 0
    for total, document in enumerate(documents, 1):
        random = np.random.default_rng(key_of(seed, "cloze", total))
        windows = [window for window in _windows(document.sentences, max_sentences, max_chars) if len(window) > 1]
        skipped += not windows
        for number, window in enumerate(windows):
            yield _question(document, window, number, random, keep)
    if skipped:
        logger.info(
            f"inverse cloze task: {skipped:,} of {total:,} documents have no two sentences together: no question"
        )


def _windows(sentences: Sequence[str], max_sentences: int, max_chars: int) -> Iterator[list[str]]:
    """Consecutive sentences, as many as fit; one that is too long by itself is a window of its own."""
    window: list[str] = []
    length = 0
    for sentence in sentences:
        if window and (len(window) == max_sentences or length + len(sentence) > max_chars):
            yield window
            window, length = [], 0
        window.append(sentence)
        length += len(sentence)
    if window:
        yield window


def _question(
    document: Document, window: list[str], number: int, random: np.random.Generator, keep: float
) -> QuestionPassage:
    index = int(random.integers(len(window)))
    stays = bool(random.random() < keep)
    rest = [sentence for place, sentence in enumerate(window) if stays or place != index]
    text = language(document.lang).sentence_gap.join(rest)
    positive = Passage(content_id(document.title, text), text, document.title, document.lang)
    name = document.id or document.group
    return QuestionPassage(window[index], (positive,), (), document.lang, f"{name}#{number}" if name else "")
