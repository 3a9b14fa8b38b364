"""Data: records, readers of public formats, test collections, filters, stores and streams."""

from __future__ import annotations

from interlingua.data.collection import load_collection
from interlingua.data.combine import cross, merge_collections, save_collection
from interlingua.data.filters import FilterReport, filter_parallel
from interlingua.data.readers import read_documents, read_parallel, read_questions, read_sentences, source_fingerprint
from interlingua.data.records import (
    Collection,
    Document,
    LinkedDocuments,
    ParallelPair,
    Passage,
    Qrels,
    Query,
    QuestionPassage,
    Sentence,
)
from interlingua.data.store import MemoryStore, RecordStore
from interlingua.data.stream import Stream

__all__ = [
    "Collection",
    "Document",
    "FilterReport",
    "LinkedDocuments",
    "MemoryStore",
    "ParallelPair",
    "Passage",
    "Qrels",
    "Query",
    "QuestionPassage",
    "RecordStore",
    "Sentence",
    "Stream",
    "cross",
    "filter_parallel",
    "load_collection",
    "merge_collections",
    "read_documents",
    "read_parallel",
    "read_questions",
    "read_sentences",
    "save_collection",
    "source_fingerprint",
]
