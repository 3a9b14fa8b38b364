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

_NAMES = {
    "collections": "cross load_collection merge_collections save_collection",
    "filters": "FilterReport filter_parallel",
    "readers": "read_documents read_parallel read_questions read_sentences source_fingerprint",
    "records": "Collection Document LinkedDocuments ParallelPair Passage Qrels Query QuestionPassage Sentence",
    "store": "MemoryStore RecordStore",
    "stream": "Stream",
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

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
