"""Token ids of texts that training meets again and again: a static encoder spends half its time on finding them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from interlingua.models.subwords import Text

MOST = 40_000_000
"""Tokens that are kept, 160 MB; texts that come after are tokenised every time."""


class TokenCache:
    """`encoder.tokenize`, which remembers. For encoders whose tokenizer and settings do not change meanwhile."""

    def __init__(self, most: int = MOST) -> None:
        self.room = most
        self._known: dict[tuple[Any, str], dict[Text, array[int]]] = {}

    def tokenize(self, encoder: Any, texts: Sequence[Text], role: str) -> list[list[int]]:
        """Token ids of each text, as `encoder` reads them in this role."""
        known = self._known.setdefault((encoder, role), {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        found = dict(zip(new, encoder.tokenize(new, role), strict=True)) if new else {}
        for text, ids in found.items():
            if len(ids) <= self.room:
                self.room -= len(ids)
                known[text] = array("i", ids)
        return [known[text].tolist() if text in known else found[text] for text in texts]
