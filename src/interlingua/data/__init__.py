"""Data: records, readers of public formats, test collections, filters, stores and streams.

Names are imported on first use: who has a passage to read needs no reader of training data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.data.collections import cross, load_collection, merge_collections, save_collection
    from interlingua.data.filters import FilterReport, filter_parallel
    from interlingua.data.readers import (
        read_documents,
        read_parallel,
        read_questions,
        read_sentences,
        source_fingerprint,
    )
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

_HOME = {
    "Collection": "records",
    "Document": "records",
    "FilterReport": "filters",
    "LinkedDocuments": "records",
    "MemoryStore": "store",
    "ParallelPair": "records",
    "Passage": "records",
    "Qrels": "records",
    "Query": "records",
    "QuestionPassage": "records",
    "RecordStore": "store",
    "Sentence": "records",
    "Stream": "stream",
    "cross": "collections",
    "filter_parallel": "filters",
    "load_collection": "collections",
    "merge_collections": "collections",
    "read_documents": "readers",
    "read_parallel": "readers",
    "read_questions": "readers",
    "read_sentences": "readers",
    "save_collection": "collections",
    "source_fingerprint": "readers",
}
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

__getattr__, __dir__ = lazy_names(__name__, _HOME)
