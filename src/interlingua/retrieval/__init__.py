"""Search: one ordering for every ranking, exact dense search, and an index folder a person can move.

Names are imported on first use, so that reading a run file does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlingua.retrieval.dense import retrieve, search, search_exact
    from interlingua.retrieval.index import Hit, Index
    from interlingua.retrieval.run import Run

__all__ = ["Hit", "Index", "Run", "retrieve", "search", "search_exact"]

_HOME = {"Hit": "index", "Index": "index", "Run": "run",
          "retrieve": "dense", "search": "dense", "search_exact": "dense"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
