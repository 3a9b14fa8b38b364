"""Texts as spans of tokens: cut after tokenizing, special tokens around what was cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlingua.data.spans import SpanMode, cut
from interlingua.errors import InterlinguaError


def span_tokens(encoder: Any, role: str, texts: Sequence[str], draws: Sequence[float], *, length: int,
                mode: SpanMode = "uniform_start", least: int = 1) -> tuple[list[int], list[list[int]], list[int]]:
    """A span of each text: the ids that stand before every span (special tokens, the role's prompt), for each text up
    to `length` of its own ids as `cut` chooses them by its draw, and the ids that stand after every span.

    Raises InterlinguaError when a span with what stands around it is longer than the model reads.
    """
    mask = encoder.tokenizer.backend_tokenizer.encode("a", add_special_tokens=True).special_tokens_mask
    before = next(place for place, special in enumerate(mask) if not special)
    after = next(place for place, special in enumerate(reversed(mask)) if not special)
    empty = encoder.tokenize([""], role)[0]
    opening, closing = empty[: len(empty) - after], empty[len(empty) - after :]
    most = encoder.backbone.positions
    if most is not None and length + len(empty) > most:
        raise InterlinguaError(f"a span of {length} tokens with the {len(empty)} around it is longer than the {most} "
                               "that this model reads. Lower objectives.comparable.span.")
    contents = []
    for ids, draw in zip(encoder.backbone.subwords(texts), draws, strict=True):
        own = ids[before : len(ids) - after]
        contents.append(own[cut(len(own), length, draw, mode, least)])
    return opening, contents, closing
