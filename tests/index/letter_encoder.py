"""An encoder by letters, and files to index, for tests."""

from __future__ import annotations

import numpy as np

from interlingua.models.folder import PROBE


class Letters:
    """Counts of letters, and of the texts that were encoded, but for those by which an index knows its encoder."""

    similarity = "dot"
    encoded = 0

    def encode_query(self, sentences, **options):
        return np.array([[text.count(letter) + 0.01 for letter in "aeiorst"] for text in sentences])

    def encode_document(self, sentences, **options):
        Letters.encoded += len(sentences) if list(sentences) != list(PROBE) else 0
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])


def write(folder, files):
    """Write files, of texts or bytes by name, and the folders above them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def content(index):
    """Source, id, title and text of all passages of an index."""
    return sorted((*passage.key, passage.title, passage.text) for part, _ in index.vectors() for passage in part)
