"""DPR's training JSON (Karpukhin et al. 2020): biencoder-nq-train.json and its kin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlingua.data.readers.bad_rows import BadRow, BadRows, objects, string
from interlingua.data.readers.json_array import json_array
from interlingua.data.readers.passages import passage
from interlingua.data.records import Passage, QuestionPassage

GOLD_SCORE = 1000


def matches(path: Path, start: str) -> bool:
    return start.lstrip().startswith("[") and '"positive_ctxs"' in start


def read(path: Path, bad: BadRows, *, lang: str) -> Iterator[QuestionPassage]:
    """One record an element. `positive_ctxs` become the positives with the gold paragraph (score 1000) first,
    `hard_negative_ctxs` the negatives. The array is streamed. DPR gives its questions no id."""
    return bad.parsed(path, json_array(path), lambda row: _record(row, lang))


def _record(row: dict[str, Any], lang: str) -> QuestionPassage:
    question = string(row, "question")
    positives = objects(row, "positive_ctxs")
    if not positives:
        raise BadRow(f"the question '{question}' has no positive passage")
    positives = sorted(positives, key=lambda context: context.get("score") != GOLD_SCORE)  # stable
    negatives = objects(row, "hard_negative_ctxs", optional=True)
    return QuestionPassage(question, tuple(_passage(context, lang) for context in positives),
                           tuple(_passage(context, lang) for context in negatives), lang)


def _passage(context: dict[str, Any], lang: str) -> Passage:
    return passage(context, lang, id_keys=("passage_id", "psg_id"))
