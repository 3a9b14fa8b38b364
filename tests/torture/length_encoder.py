"""An encoder by length, for tests and the processes that they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from interlingua.data.records import Passage

HERE = f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
"""The first line of a program that imports this."""


class Lengths:
    """Length, number of a's, and 1."""

    similarity = "dot"

    def encode_query(self, sentences: Any, **options: Any) -> Any:
        return np.array([[len(text), text.count("a"), 1.0] for text in sentences])

    def encode_document(self, sentences: Any, **options: Any) -> Any:
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])


def passages(start: int, stop: int, word: str = "passage") -> list[Passage]:
    """Passages p000, p001 …, each with another text."""
    return [Passage(f"p{n:03}", f"a {word} {'a' * (n % 7)} {n}", lang="en") for n in range(start, stop)]
