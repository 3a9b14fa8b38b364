"""Evaluation: measures as trec_eval computes them, intervals, significance, protocols, tables, figures.

Names are imported on first use: scoring a run file loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.evaluation.bitext import BuccResult, bucc_f1, bucc_table, planted_f1
    from interlingua.evaluation.languages import LanguageBias, LanguageMatrix, language_bias, language_matrix, peer
    from interlingua.evaluation.measures import Scores, evaluate
    from interlingua.evaluation.plots import mirror_page
    from interlingua.evaluation.projection import Projection, language_projection, projection_table
    from interlingua.evaluation.protocol import (
        Result,
        TunedAlpha,
        evaluate_on,
        evaluate_pipelines,
        results_table,
        tune_alpha,
    )
    from interlingua.evaluation.significance import (
        Comparison,
        Interval,
        bootstrap_interval,
        compare,
        compare_all,
        seed_interval,
        stratified_interval,
    )
    from interlingua.evaluation.table import Row, Table
    from interlingua.evaluation.tatoeba import (
        TatoebaResult,
        pairs_between,
        pivot_pairs,
        tatoeba_accuracy,
        tatoeba_file,
        tatoeba_pairs,
    )
    from interlingua.evaluation.xor import recall_at_tokens, xor_results

_NAMES = {
    "bitext": "BuccResult bucc_f1 bucc_table planted_f1",
    "languages": "LanguageBias LanguageMatrix language_bias language_matrix peer",
    "measures": "Scores evaluate",
    "plots": "mirror_page",
    "projection": "Projection language_projection projection_table",
    "protocol": "Result TunedAlpha evaluate_on evaluate_pipelines results_table tune_alpha",
    "significance": "Comparison Interval bootstrap_interval compare compare_all seed_interval stratified_interval",
    "table": "Row Table",
    "tatoeba": "TatoebaResult pairs_between pivot_pairs tatoeba_accuracy tatoeba_file tatoeba_pairs",
    "xor": "recall_at_tokens xor_results",
}
__all__ = [
    "BuccResult",
    "Comparison",
    "Interval",
    "LanguageBias",
    "LanguageMatrix",
    "Projection",
    "Result",
    "Row",
    "Scores",
    "Table",
    "TatoebaResult",
    "TunedAlpha",
    "bootstrap_interval",
    "bucc_f1",
    "bucc_table",
    "compare",
    "compare_all",
    "evaluate",
    "evaluate_on",
    "evaluate_pipelines",
    "language_bias",
    "language_matrix",
    "language_projection",
    "mirror_page",
    "pairs_between",
    "peer",
    "pivot_pairs",
    "planted_f1",
    "projection_table",
    "recall_at_tokens",
    "results_table",
    "seed_interval",
    "stratified_interval",
    "tatoeba_accuracy",
    "tatoeba_file",
    "tatoeba_pairs",
    "tune_alpha",
    "xor_results",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
