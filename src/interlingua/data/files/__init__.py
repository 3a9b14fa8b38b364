"""People's own files into passages: one small file for each format, and one for chunking. Begin at `reading.py`.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlingua.lazy import lazy_names

if TYPE_CHECKING:
    from interlingua.data.files.reading import read_files
    from interlingua.data.files.walk import Report, Scope, SourceNames

_NAMES = {"reading": "read_files", "walk": "Report Scope SourceNames"}
__all__ = ["Report", "Scope", "SourceNames", "read_files"]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
