"""Sentences and their neighbours: what contrastive context prediction learns from (Wu et al. 2022, CCP)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from interlingua.data.records import ContextPair, Document
from interlingua.progress import say


def with_context(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents of two sentences and more; the others, which have no neighbours, are counted on standard error."""
    without = total = 0
    for document in documents:
        total += 1
        if len(document.sentences) > 1:
            yield document
        else:
            without += 1
    if without:
        say(f"context prediction: {without:,} of {total:,} documents are a single sentence and were left out")


def context_pair(document: Document, number: int, window: int, random: np.random.Generator) -> ContextPair:
    """Two different sentences of a random window of `window` consecutive sentences, in random order. A target that says
    the same as its centre is drawn again among the others, where there are any: it would be found by its words.

    A window of 2 is next-sentence prediction, of 5 the paper's default (its Table 6 counts the sentences of the
    window, not the radius of §3.1). A shorter document is one window.
    """
    length = min(window, len(document.sentences))
    start = int(random.integers(len(document.sentences) - length + 1))
    center, target = random.choice(length, size=2, replace=False)
    chosen = document.sentences[start : start + length]
    if chosen[int(center)] == chosen[int(target)]:
        others = [place for place, sentence in enumerate(chosen) if sentence != chosen[int(center)]]
        target = random.choice(others) if others else target
    return ContextPair(chosen[int(center)], chosen[int(target)], document.lang, number)
