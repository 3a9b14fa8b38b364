"""Retrieval algorithms: BM25, exact dense search, late interaction, fusion, reranking, pipelines.

Names are imported on first use, so that reading a run file does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.retrieval.bm25.bm25 import BM25, tune_bm25
    from interlingua.retrieval.dense.exact import DenseRetriever, retrieve, search, search_exact
    from interlingua.retrieval.fusion import interpolate, rrf
    from interlingua.retrieval.late_interaction.retriever import LateInteractionRetriever
    from interlingua.retrieval.pipeline.grammar import parse_pipeline
    from interlingua.retrieval.pipeline.run import run_pipeline
    from interlingua.retrieval.rerank import MaxP
    from interlingua.retrieval.run import Run

_NAMES = {
    "bm25.bm25": "BM25 tune_bm25",
    "dense.exact": "DenseRetriever retrieve search search_exact",
    "fusion": "interpolate rrf",
    "late_interaction.retriever": "LateInteractionRetriever",
    "pipeline.grammar": "parse_pipeline",
    "pipeline.run": "run_pipeline",
    "rerank": "MaxP",
    "run": "Run",
}
__all__ = [
    "BM25",
    "DenseRetriever",
    "LateInteractionRetriever",
    "MaxP",
    "Run",
    "interpolate",
    "parse_pipeline",
    "retrieve",
    "rrf",
    "run_pipeline",
    "search",
    "search_exact",
    "tune_bm25",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
