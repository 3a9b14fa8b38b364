"""Which tokens of a vocabulary are punctuation: late interaction may leave them out of documents."""

from __future__ import annotations

import string
import unicodedata

from transformers import PreTrainedTokenizerBase


def punctuation(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """The tokens that are punctuation alone (Unicode's, and ASCII's symbols as ColBERT has them), whether they begin a
    word or not. A byte-level vocabulary shows only ASCII."""
    bare = {token: token.lstrip("▁Ġ") for token in tokenizer.get_vocab()}
    return tuple(sorted(token for token, text in bare.items() if text and all(map(_is_mark, text))))


def _is_mark(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
