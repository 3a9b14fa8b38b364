"""interlingua: train, evaluate, index and search with encoders that read meaning, not language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.data.collections import load_collection
    from interlingua.index.index import Index
    from interlingua.models.dual import DualEncoder
    from interlingua.models.encoder import Encoder
    from interlingua.retrieval.run import Run

__version__ = "0.2.0"

_NAMES = {
    "data.collections": "load_collection",
    "index.index": "Index",
    "models.dual": "DualEncoder",
    "models.encoder": "Encoder",
    "retrieval.run": "Run",
}
__all__ = ["DualEncoder", "Encoder", "Index", "Run", "load_collection"]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
