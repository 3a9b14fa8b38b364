"""Which retriever goes with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlingua.data.records import Passage
from interlingua.retrieval.retriever import Retriever

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from interlingua.retrieval.token_store import TokenStore


def model_retriever(encoder: Any, passages: Sequence[Passage],
                    kept: Mapping[str, tuple[TokenStore, int]] | None = None) -> Retriever:
    """The retriever of `passages` by `encoder`, one of `interlingua.models.loading.load_any` or the like: MaxSim of its
    token vectors where its similarity is "maxsim", else the similarity of one vector a text. `kept` says where token
    vectors of passages are already, by their ids."""
    if encoder.similarity == "maxsim":
        from interlingua.retrieval.late_interaction import LateInteractionRetriever

        return LateInteractionRetriever(encoder, passages, kept=kept)
    from interlingua.retrieval.dense_retriever import DenseRetriever

    return DenseRetriever(encoder, passages)
