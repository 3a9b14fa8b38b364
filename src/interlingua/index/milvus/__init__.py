"""Milvus as the store of an index."""
