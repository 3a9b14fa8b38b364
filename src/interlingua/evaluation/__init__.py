"""Evaluation: measures as trec_eval computes them, intervals, significance, protocols, tables, figures.

Names are imported on first use: scoring a run file loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.evaluation.bias import LanguageBias, language_bias
    from interlingua.evaluation.bucc import BuccResult, bucc_f1, bucc_table
    from interlingua.evaluation.fairness import peer
    from interlingua.evaluation.fusion_tuning import TunedAlpha, tune_alpha
    from interlingua.evaluation.intervals import Interval, bootstrap_interval, seed_interval, stratified_interval
    from interlingua.evaluation.languages import LanguageMatrix, language_matrix
    from interlingua.evaluation.measures import Scores, evaluate
    from interlingua.evaluation.mirror import mirror_page
    from interlingua.evaluation.pipelines import evaluate_pipelines
    from interlingua.evaluation.pivot import pairs_between, pivot_pairs
    from interlingua.evaluation.planted import planted_f1
    from interlingua.evaluation.projection import Projection, language_projection, projection_table
    from interlingua.evaluation.protocol import evaluate_on
    from interlingua.evaluation.results import Result, results_table
    from interlingua.evaluation.significance import Comparison, compare, compare_all
    from interlingua.evaluation.table import Row, Table
    from interlingua.evaluation.tatoeba import TatoebaResult, tatoeba_accuracy, tatoeba_file, tatoeba_pairs
    from interlingua.evaluation.xor_retrieve import recall_at_tokens, xor_results

_HOME = {
    "BuccResult": "bucc", "bucc_f1": "bucc", "bucc_table": "bucc", "Interval": "intervals",
    "bootstrap_interval": "intervals", "seed_interval": "intervals", "stratified_interval": "intervals",
    "LanguageMatrix": "languages", "language_matrix": "languages", "Scores": "measures", "evaluate": "measures",
    "pairs_between": "pivot", "pivot_pairs": "pivot", "planted_f1": "planted", "Projection": "projection",
    "language_projection": "projection", "projection_table": "projection", "evaluate_on": "protocol", "Result":
    "results", "results_table": "results", "Comparison": "significance", "compare": "significance",
    "compare_all": "significance", "Row": "table", "Table": "table", "TatoebaResult": "tatoeba",
    "tatoeba_accuracy": "tatoeba", "tatoeba_file": "tatoeba", "tatoeba_pairs": "tatoeba", "recall_at_tokens":
    "xor_retrieve", "xor_results": "xor_retrieve", "evaluate_pipelines": "pipelines", "TunedAlpha": "fusion_tuning",
    "tune_alpha": "fusion_tuning", "LanguageBias": "bias", "language_bias": "bias", "mirror_page": "mirror",
    "peer": "fairness",
}
__all__ = [
    "BuccResult", "Comparison", "Interval", "LanguageBias", "LanguageMatrix", "Projection", "Result", "Row", "Scores",
    "Table", "TatoebaResult", "TunedAlpha", "bootstrap_interval", "bucc_f1", "bucc_table", "compare", "compare_all",
    "evaluate", "evaluate_on", "evaluate_pipelines", "language_bias", "language_matrix", "language_projection",
    "mirror_page", "pairs_between", "peer", "pivot_pairs", "planted_f1", "projection_table", "recall_at_tokens",
    "results_table", "seed_interval", "stratified_interval", "tatoeba_accuracy", "tatoeba_file", "tatoeba_pairs",
    "tune_alpha", "xor_results",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
