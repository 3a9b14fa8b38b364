"""How our own tokenizers normalise text: NFKC, white space as single blanks, optionally lower case."""

from __future__ import annotations

from tokenizers import Regex
from tokenizers.normalizers import NFKC, Lowercase, Normalizer, Replace, Sequence, Strip

from interlingua.text.normalise import nfkc


def normalizer(lowercase: bool) -> Normalizer:
    """As a part of a tokenizer."""
    steps: list[Normalizer] = [NFKC(), Replace(Regex(r"\s+"), " "), Strip()]
    return Sequence([*steps, Lowercase()] if lowercase else steps)


def normalised(text: str, lowercase: bool) -> str:
    """The same by Python, which takes a tenth of the time. It may differ in characters that only one of the two knows,
    and in control characters."""
    plain = " ".join(nfkc(text).split())
    return plain.replace("Σ", "σ").lower() if lowercase else plain  # Python would write the last one of a word as ς
