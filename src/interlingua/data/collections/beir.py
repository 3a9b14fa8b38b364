"""BEIR (Thakur et al. 2021): `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` with a header."""

from __future__ import annotations

from pathlib import Path

from interlingua.data.collections.rows import find, jsonl_passages, language_in, needed, parsed, read_qrels
from interlingua.data.readers.bad_rows import json_object, string
from interlingua.data.readers.source import filled_lines
from interlingua.data.records import Collection, Query


def matches(path: Path) -> bool:
    return find(path, "corpus.jsonl") is not None


def complete(path: Path) -> bool:
    """Whether all is there that a collection needs, of some split."""
    return all(find(path, name) for name in ("corpus.jsonl", "queries.jsonl")) and any(path.glob("qrels/*.tsv*"))


def load(path: Path, split: str, lang: str) -> Collection:
    """The collection with the queries that the split judges: `queries.jsonl` holds those of every split."""
    qrels = read_qrels(needed(path, f"qrels/{split}.tsv"))
    file = needed(path, "queries.jsonl")

    def parse(line: str) -> Query:
        row = json_object(line)
        return Query(string(row, "_id"), string(row, "text"), language_in(row, lang))

    queries = [query for query in parsed(file, filled_lines(file), parse, "query") if query.id in qrels]
    return Collection(path.name, list(jsonl_passages(needed(path, "corpus.jsonl"), lang)), queries, qrels)
