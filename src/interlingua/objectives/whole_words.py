"""Whole-word masking (Devlin et al. 2019): the pieces of a word are predicted together or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from interlingua.objectives.masked_language_modelling import mask_tokens
from interlingua.objectives.objective import MaskedRow


def words(pieces: Sequence[str], longest: int = 4, *, wordpiece: bool = False) -> list[range]:
    """Where the words of `pieces` lie. A SentencePiece word begins at "▁", with `wordpiece` at a piece without "##". A
    word of more than `longest` pieces falls apart into runs of that many: where no spaces are written, all between two
    punctuation marks is one "word"."""
    begins = [not piece.startswith("##") if wordpiece else piece.startswith("▁") for piece in pieces]
    found: list[range] = []
    for position, begin in enumerate(begins):
        if found and not begin and len(found[-1]) < longest:
            found[-1] = range(found[-1].start, position + 1)
        else:
            found.append(range(position, position + 1))
    return found


def mask_words(ids: list[int], tokenizer: PreTrainedTokenizerBase, vocabulary: int, rate: float, longest: int,
               random: np.random.Generator) -> MaskedRow:
    """`mask_tokens` on whole words: words in random order as far as they fit into `rate` of the tokens (one token at
    least, and the first word whatever its size). Words with a special token, such as the unknown one, are never
    chosen."""
    special = set(tokenizer.all_special_ids)
    wordpiece = type(tokenizer.backend_tokenizer.model).__name__ == "WordPiece"
    found = [word for word in words(tokenizer.convert_ids_to_tokens(ids), longest, wordpiece=wordpiece)
             if special.isdisjoint(ids[word.start : word.stop])]
    most = max(1, round(rate * sum(map(len, found))))
    chosen: list[int] = []
    for number in random.permutation(len(found)):
        word = found[int(number)]
        if not chosen or len(chosen) + len(word) <= most:
            chosen.extend(word)
    chosen.sort()
    corrupted = list(ids)
    tokens = [ids[position] for position in chosen]
    masked = mask_tokens(tokens, set(), tokenizer.mask_token_id, vocabulary, 1.0, random)
    for position, token in zip(chosen, masked.ids, strict=True):
        corrupted[position] = token
    return MaskedRow(corrupted, [(chosen[place], token) for place, token in masked.targets])
