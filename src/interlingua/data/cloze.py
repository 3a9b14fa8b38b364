"""Questions out of raw text: the inverse cloze task (Lee et al. 2019, Latent Retrieval)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from interlingua.data.permutation import key_of
from interlingua.data.readers.passages import content_id
from interlingua.data.records import Document, Passage, QuestionPassage
from interlingua.errors import InterlinguaError
from interlingua.progress import say
from interlingua.text.languages import language


def cloze(documents: Iterable[Document], *, seed: int = 0, max_sentences: int = 8, max_chars: int = 1200,
          keep: float = 0.1) -> Iterator[QuestionPassage]:
    """A question and its passage, in one language, from every window of every document.

    A document is cut into windows of up to `max_sentences` sentences and `max_chars` characters. One sentence of a
    window, drawn at random, is the question; the others are the passage, and with probability `keep` the question
    stays among them (Lee et al.: 0.1), so that matching words is worth learning too. What is drawn depends on the seed
    and the number of the document alone. Windows of one sentence give nothing; documents with no other are counted
    on standard error.
    """
    if max_sentences < 2:
        raise InterlinguaError(f"max_sentences is {max_sentences}: a question and a passage take at least 2 sentences.")
    without = total = 0
    for total, document in enumerate(documents, 1):
        random = np.random.default_rng(key_of(seed, "cloze", total))
        windows = [window for window in _windows(document.sentences, max_sentences, max_chars) if len(window) > 1]
        without += not windows
        for number, window in enumerate(windows):
            yield _question(document, window, number, random, keep)
    if without:
        say(f"inverse cloze task: {without:,} of {total:,} documents have no two sentences together: no question")


def _windows(sentences: Sequence[str], most: int, chars: int) -> Iterator[list[str]]:
    """Consecutive sentences, as many as fit; one that is too long by itself is a window of its own."""
    window: list[str] = []
    length = 0
    for sentence in sentences:
        if window and (len(window) == most or length + len(sentence) > chars):
            yield window
            window, length = [], 0
        window.append(sentence)
        length += len(sentence)
    if window:
        yield window


def _question(document: Document, window: list[str], number: int, random: np.random.Generator, keep: float,
              ) -> QuestionPassage:
    chosen = int(random.integers(len(window)))
    stays = bool(random.random() < keep)
    rest = [sentence for place, sentence in enumerate(window) if stays or place != chosen]
    text = language(document.lang).sentence_gap.join(rest)
    positive = Passage(content_id(document.title, text), text, document.title, document.lang)
    name = document.id or document.group
    return QuestionPassage(window[chosen], (positive,), (), document.lang, f"{name}#{number}" if name else "")
