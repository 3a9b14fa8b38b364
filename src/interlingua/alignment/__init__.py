"""Alignment: bringing the languages of a trained encoder together afterwards, and finding translations with it.

Names are imported on first use, so that no torch is loaded before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlingua.alignment.calibration import Calibration
    from interlingua.alignment.margin import margin_scores
    from interlingua.alignment.mining import Bitext, mine_bitext

_HOME = {"Bitext": "mining", "Calibration": "calibration", "margin_scores": "margin", "mine_bitext": "mining"}
__all__ = ["Bitext", "Calibration", "margin_scores", "mine_bitext"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
