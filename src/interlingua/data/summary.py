"""Summarise a source in numbers: rows for a table."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from interlingua.data import encyclopedia
from interlingua.data.records import (
    Collection,
    Document,
    LinkedDocuments,
    ParallelPair,
    Passage,
    QuestionPassage,
    StoredRecord,
    language_of,
)
from interlingua.text.languages import text_hash

Row = dict[str, str | int | float]


@dataclass
class _Counts:
    records: int = 0
    titles: int = 0
    untitled: int = 0
    repeated: int = 0
    lengths: dict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("I")))

    def row(self, lang: str) -> Row:
        row: Row = {"lang": lang, "records": self.records, "duplicates": self.repeated / self.records}
        if self.titles:
            row["without title"] = self.untitled / self.titles
        for part, lengths in self.lengths.items():
            values = np.frombuffer(lengths, dtype=np.uint32)
            row[f"{part} mean"] = float(values.mean())
            row[f"{part} median"], row[f"{part} p95"] = np.percentile(values, (50, 95)).tolist()
        return row


def summarise(records: Iterable[StoredRecord]) -> list[Row]:
    """One row per language and, of several, one for all: records; the share of records whose texts all occurred before
    (equal after `text_key`); the share of empty titles, where there are titles; mean, median and 95th percentile of
    the lengths in characters of each text of a record. Holds 8-byte hashes and 4-byte lengths, no texts."""
    counts: dict[str, _Counts] = defaultdict(_Counts)
    total, seen = _Counts(), set[int]()
    for record in records:
        parts, titles = _parts(record)
        key = text_hash(*(text for _, text in parts))
        lang = language_of(record)
        for tally in (counts[lang], total):
            tally.records += 1
            tally.repeated += key in seen
            for title in titles:
                tally.titles += 1
                tally.untitled += not title.strip()
            for part, text in parts:
                tally.lengths[part].append(len(text))
        seen.add(key)
    rows = [counts[lang].row(lang) for lang in sorted(counts)]
    return rows if len(rows) < 2 else [*rows, total.row("all")]


def _parts(record: StoredRecord) -> tuple[list[tuple[str, str]], list[str]]:
    """The texts of a record by what they are, and its titles."""
    if isinstance(record, QuestionPassage):
        positive = record.positives[0]
        return [("question", record.question), ("passage", positive.text)], [positive.title]
    if isinstance(record, ParallelPair):
        return [("source", record.source), ("target", record.target)], []
    if isinstance(record, LinkedDocuments):
        sides = {"source": record.source, "target": record.target}
        return [(name, " ".join(one.sentences)) for name, one in sides.items()], [one.title for one in sides.values()]
    if isinstance(record, Document):
        return [("text", " ".join(record.sentences))], [record.title]
    return [("text", record.text)], [record.title] if isinstance(record, Passage) else []


def summarise_collection(collection: Collection) -> list[Row]:
    """The rows of its passages and of its queries, told apart by "of"; queries also with judgements per query."""
    rows: list[Row] = [{"of": "passages", **row} for row in summarise(collection.passages)]
    for row in summarise(collection.queries):
        counts = [
            sum(grade > 0 for grade in collection.qrels.get(query.id, {}).values())
            for query in collection.queries
            if row["lang"] in ("all", query.lang)
        ]
        rows.append({"of": "queries", **row, "relevant per query": sum(counts) / len(counts)})
    return rows


def summarise_topics() -> list[Row]:
    """The bundled encyclopedia: per split, its topics, languages, questions, sentence pairs with English, sentences."""
    rows: list[Row] = []
    langs = len(encyclopedia.languages())
    for split in encyclopedia.SPLITS:
        topics = [topic for topic in encyclopedia.topics() if topic.split == split]
        sentences = sum(len(topic.passage["en"]) for topic in topics)
        rows.append(
            {
                "split": split,
                "topics": len(topics),
                "languages": langs,
                "questions": sum(langs + len(topic.more_questions) for topic in topics),
                "pairs": sentences * (langs - 1),
                "sentences": sentences * langs,
            }
        )
    return rows
