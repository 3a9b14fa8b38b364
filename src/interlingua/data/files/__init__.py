"""People's own files into passages: one small file for each format, and one for chunking. Begin at `reading.py`."""

from __future__ import annotations

from interlingua.data.files.reading import read_files
from interlingua.data.files.walk import Report, Scope, SourceNames

__all__ = ["Report", "Scope", "SourceNames", "read_files"]
