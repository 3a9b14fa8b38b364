"""Search: one ordering for every ranking, exact dense search, and an index folder a person can move.

Names are imported on first use, so that reading a run file does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.retrieval.dense import retrieve, search, search_exact
    from interlingua.retrieval.index import Hit, Index
    from interlingua.retrieval.run import Run

__all__ = ["Hit", "Index", "Run", "retrieve", "search", "search_exact"]

_HOME = {"Hit": "index", "Index": "index", "Run": "run",
          "retrieve": "dense", "search": "dense", "search_exact": "dense"}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
