"""Pipelines of retrieval stages in one line."""
