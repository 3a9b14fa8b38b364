"""Search: one ordering for every ranking, exact dense search, and an index folder a person can move.

Names are imported on first use, so that reading a run file does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.retrieval.dense import retrieve, search, search_exact
    from interlingua.retrieval.dense_retriever import DenseRetriever
    from interlingua.retrieval.fusion import interpolate, rrf
    from interlingua.retrieval.index import Hit, Index
    from interlingua.retrieval.long_documents import MaxP
    from interlingua.retrieval.pipeline import run_pipeline
    from interlingua.retrieval.pipeline_notation import parse_pipeline
    from interlingua.retrieval.run import Run

_HOME = {
    "DenseRetriever": "dense_retriever", "Hit": "index", "Index": "index", "MaxP": "long_documents", "Run": "run",
    "interpolate": "fusion", "parse_pipeline": "pipeline_notation", "retrieve": "dense", "rrf": "fusion",
    "run_pipeline": "pipeline", "search": "dense", "search_exact": "dense",
}
__all__ = [
    "DenseRetriever", "Hit", "Index", "MaxP", "Run", "interpolate", "parse_pipeline", "retrieve", "rrf",
    "run_pipeline", "search", "search_exact",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
