"""Analyzers: how a text of each language is cut into the terms that lexical search compares."""

from __future__ import annotations

from interlingua.text.analyzers.analyzer import Analyzer, analyzer

__all__ = ["Analyzer", "analyzer"]
