"""The plain folder: `passages.jsonl`, `queries.tsv`, `qrels.txt` (TREC), any of them gzipped."""

from __future__ import annotations

from pathlib import Path

from interlingua.data.collections.rows import find, jsonl_passages, needed, read_qrels, tsv_queries
from interlingua.data.records import Collection


def matches(path: Path) -> bool:
    return find(path, "passages.jsonl") is not None


def complete(path: Path) -> bool:
    """Whether all is there that a collection needs."""
    return all(find(path, name) for name in ("passages.jsonl", "queries.tsv", "qrels.txt"))


def load(path: Path, split: str, lang: str) -> Collection:
    """The collection in the folder; it has one split, so `split` is not looked at."""
    return Collection(path.name, list(jsonl_passages(needed(path, "passages.jsonl"), lang)),
                      list(tsv_queries(needed(path, "queries.tsv"), lang)), read_qrels(needed(path, "qrels.txt")))
