"""Facts about languages and the normal form of a text."""
