"""The search engine: one `Index` over a local folder or Milvus.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.index.documents import Document
    from interlingua.index.index import Index, build_index, check_index, open_index
    from interlingua.index.metadata import IndexInfo
    from interlingua.index.search import Hit
    from interlingua.index.store import Finding
    from interlingua.index.sync import Changes

_NAMES = {
    "documents": "Document",
    "index": "Index build_index check_index open_index",
    "metadata": "IndexInfo",
    "search": "Hit",
    "store": "Finding",
    "sync": "Changes",
}
__all__ = ["Changes", "Document", "Finding", "Hit", "Index", "IndexInfo", "build_index", "check_index", "open_index"]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
