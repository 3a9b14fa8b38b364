"""Encoders: loading, training interface, saving in the sentence-transformers layout."""
