"""BM25: postings, weights, search and tuning."""
