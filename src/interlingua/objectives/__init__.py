"""One loss a file: the equation as a function of embeddings, and the objective that feeds it from a stream."""

from interlingua.objectives.context_prediction import ContextPrediction, context_prediction
from interlingua.objectives.info_nce import info_nce
from interlingua.objectives.language import Language, language_contrastive
from interlingua.objectives.masked_language_modelling import MaskedLanguageModelling, TranslationLanguageModelling
from interlingua.objectives.objective import Loss, Objective, Texts, TokenObjective
from interlingua.objectives.retrieval import Retrieval
from interlingua.objectives.semantic import Semantic, semantic_contrastive
from interlingua.objectives.sentence_transformers import SentenceTransformersLoss

__all__ = [
    "ContextPrediction",
    "Language",
    "Loss",
    "MaskedLanguageModelling",
    "Objective",
    "Retrieval",
    "Semantic",
    "SentenceTransformersLoss",
    "Texts",
    "TokenObjective",
    "TranslationLanguageModelling",
    "context_prediction",
    "info_nce",
    "language_contrastive",
    "semantic_contrastive",
]
