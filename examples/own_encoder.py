"""An encoder of your own: any object with `similarity`, `encode_query` and `encode_document` can be searched with.

python examples/own_encoder.py [INDEX_FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zlib import crc32

import numpy as np

from interlingua import Index, load_collection
from interlingua.evaluation import evaluate_on

Text = str | tuple[str, str]


class Trigrams:
    """A text is the sum of the random vectors of its character trigrams. Put a call of your model in its place."""

    similarity = "cosine"  # or "dot"

    def __init__(self, dim: int = 256) -> None:
        self.rows = np.random.default_rng(0).standard_normal((1 << 14, dim)).astype(np.float32)

    def encode_query(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """Vectors [texts, dim]. `options` holds `lang`, the texts' languages."""
        return np.stack([self._vector(text) for text in sentences])

    def encode_document(self, sentences: Sequence[Text], **options: Any) -> np.ndarray:
        """A passage with a title is a pair (title, text)."""
        return np.stack([self._vector(text if isinstance(text, str) else "\n".join(text)) for text in sentences])

    def _vector(self, text: str) -> np.ndarray:
        text = f" {text.lower()} "
        grams = [crc32(text[at : at + 3].encode()) % len(self.rows) for at in range(len(text) - 2)]
        return self.rows[grams].sum(0)


if __name__ == "__main__":
    encoder = Trigrams()
    finnish = load_collection("encyclopedia:fi")
    (result,) = evaluate_on(encoder, [finnish], ["RR@100"])
    print(f"MRR@100 of {len(finnish.queries)} Finnish questions: {result.scores['RR@100']:.3f}")
    place = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp()) / "idx"
    Index.build(encoder, finnish.passages, place)
    index = Index.open(place, encoder)  # an encoder that gives other vectors is refused
    question = "Kuka keksi sokeainkirjoituksen?"
    print(question)
    for hit in index.search(question, k=3, mode="dense"):
        print(f"  {hit.score:.2f} {hit.passage.title}")
