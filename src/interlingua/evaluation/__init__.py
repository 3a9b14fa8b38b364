"""Evaluation: measures as trec_eval computes them, intervals, significance, protocols, tables, figures.

Names are imported on first use: scoring a run file loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlingua.evaluation.intervals import Interval, bootstrap_interval, seed_interval, stratified_interval
    from interlingua.evaluation.languages import LanguageMatrix, language_matrix
    from interlingua.evaluation.measures import Scores, evaluate
    from interlingua.evaluation.protocol import evaluate_on
    from interlingua.evaluation.results import Result, results_table
    from interlingua.evaluation.significance import Comparison, compare, compare_all
    from interlingua.evaluation.table import Row, Table
    from interlingua.evaluation.tatoeba import TatoebaResult, tatoeba_accuracy, tatoeba_file

_HOME = {
    "Comparison": "significance", "Interval": "intervals", "LanguageMatrix": "languages", "Result": "results",
    "Row": "table", "Scores": "measures", "Table": "table", "TatoebaResult": "tatoeba",
    "bootstrap_interval": "intervals",
    "compare": "significance", "compare_all": "significance", "evaluate": "measures", "evaluate_on": "protocol",
    "language_matrix": "languages", "results_table": "results", "seed_interval": "intervals",
    "stratified_interval": "intervals", "tatoeba_accuracy": "tatoeba", "tatoeba_file": "tatoeba",
}
__all__ = [
    "Comparison", "Interval", "LanguageMatrix", "Result", "Row", "Scores", "Table", "TatoebaResult",
    "bootstrap_interval", "compare", "compare_all", "evaluate", "evaluate_on", "language_matrix", "results_table",
    "seed_interval", "stratified_interval", "tatoeba_accuracy", "tatoeba_file",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
