"""interlingua: train, evaluate, index and search with encoders that read meaning, not language."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlingua.data.collection import load_collection
    from interlingua.models.dual import DualEncoder
    from interlingua.models.encoder import Encoder
    from interlingua.retrieval.index import Index
    from interlingua.retrieval.run import Run

__version__ = "0.1.0"

_HOME = {
    "DualEncoder": "interlingua.models.dual",
    "Encoder": "interlingua.models.encoder",
    "Index": "interlingua.retrieval.index",
    "Run": "interlingua.retrieval.run",
    "load_collection": "interlingua.data.collection",
}
__all__ = ["DualEncoder", "Encoder", "Index", "Run", "load_collection"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import interlingua` loads no torch."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'interlingua' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
