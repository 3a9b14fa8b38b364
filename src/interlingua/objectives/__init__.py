"""One loss a file: the equation as a function of embeddings, and the objective that feeds it from a stream."""

from interlingua.objectives.comparable import Comparable, comparable_contrastive
from interlingua.objectives.context_prediction import ContextPrediction, context_prediction
from interlingua.objectives.distillation import Distillation, distil_contrastive, distil_scores, distil_vectors
from interlingua.objectives.language import Language, language_contrastive
from interlingua.objectives.late_interaction import (
    LateInteraction,
    late_interaction_distilled,
    late_interaction_in_batch,
    late_interaction_pairwise,
    late_interaction_scores,
    maxsim,
)
from interlingua.objectives.masked_lm import MaskedLanguageModelling, TranslationLanguageModelling
from interlingua.objectives.objective import (
    Loss,
    Objective,
    SentenceTransformersLoss,
    SpanObjective,
    Texts,
    TokenObjective,
)
from interlingua.objectives.retrieval import Retrieval, info_nce
from interlingua.objectives.semantic import Semantic, semantic_contrastive
from interlingua.objectives.state_distillation import StateDistillation, distil_states, scale_of
from interlingua.objectives.translation_ranking import TranslationRanking, translation_ranking

__all__ = [
    "Comparable",
    "ContextPrediction",
    "Distillation",
    "Language",
    "LateInteraction",
    "Loss",
    "MaskedLanguageModelling",
    "Objective",
    "Retrieval",
    "Semantic",
    "SentenceTransformersLoss",
    "SpanObjective",
    "StateDistillation",
    "Texts",
    "TokenObjective",
    "TranslationLanguageModelling",
    "TranslationRanking",
    "comparable_contrastive",
    "context_prediction",
    "distil_contrastive",
    "distil_scores",
    "distil_states",
    "distil_vectors",
    "info_nce",
    "language_contrastive",
    "late_interaction_distilled",
    "late_interaction_in_batch",
    "late_interaction_pairwise",
    "late_interaction_scores",
    "maxsim",
    "scale_of",
    "semantic_contrastive",
    "translation_ranking",
]
