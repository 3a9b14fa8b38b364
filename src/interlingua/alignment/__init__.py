"""Alignment: bringing the languages of a trained encoder together afterwards, and finding translations with it.

Names are imported on first use, so that no torch is loaded before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.alignment.calibration import Calibration
    from interlingua.alignment.mining import Bitext, margin_scores, mine_bitext

_NAMES = {"calibration": "Calibration", "mining": "Bitext margin_scores mine_bitext"}
__all__ = ["Bitext", "Calibration", "margin_scores", "mine_bitext"]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
