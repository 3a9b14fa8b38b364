"""Search: one ordering for every ranking, exact dense search, and an index folder a person can move.

Names are imported on first use, so that reading a run file does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.retrieval.bm25 import BM25
    from interlingua.retrieval.bm25_tuning import tune_bm25
    from interlingua.retrieval.dense import retrieve, search, search_exact
    from interlingua.retrieval.dense_retriever import DenseRetriever
    from interlingua.retrieval.fusion import interpolate, rrf
    from interlingua.retrieval.index import Hit, Index
    from interlingua.retrieval.late_interaction import LateInteractionRetriever
    from interlingua.retrieval.long_documents import MaxP
    from interlingua.retrieval.pipeline import run_pipeline
    from interlingua.retrieval.pipeline_notation import parse_pipeline
    from interlingua.retrieval.run import Run

_HOME = {
    "BM25": "bm25", "DenseRetriever": "dense_retriever", "Hit": "index", "Index": "index",
    "LateInteractionRetriever": "late_interaction", "MaxP": "long_documents", "Run": "run", "interpolate": "fusion",
    "parse_pipeline": "pipeline_notation", "retrieve": "dense", "rrf": "fusion", "run_pipeline": "pipeline",
    "search": "dense", "search_exact": "dense", "tune_bm25": "bm25_tuning",
}
__all__ = [
    "BM25", "DenseRetriever", "Hit", "Index", "LateInteractionRetriever", "MaxP", "Run", "interpolate",
    "parse_pipeline", "retrieve", "rrf", "run_pipeline", "search", "search_exact", "tune_bm25",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
