"""The normal form of a text: what must be equal for two texts to count as duplicates."""

from __future__ import annotations

import hashlib
import unicodedata


def text_key(text: str) -> str:
    """NFKC, casefolded, outer white space stripped, inner white space collapsed to one space."""
    # NFKC is applied again because casefolding can undo it (Unicode standard, section 3.13, D146).
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def text_hash(*texts: str) -> int:
    """64 bits that are equal for texts with equal keys, in every process and release (BLAKE2b)."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text_key(text).encode("utf-8", "surrogatepass"))
        digest.update(b"\x00")  # a control character that text_key leaves only inside a text: ("ab", "c") ≠ ("a", "bc")
    return int.from_bytes(digest.digest(), "big")
