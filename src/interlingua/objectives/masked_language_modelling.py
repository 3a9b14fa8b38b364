"""Masked-language modelling (and its translation form): the usual warm-up on raw text."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from interlingua.data.records import ParallelPair, Sentence
from interlingua.errors import InterlinguaError
from interlingua.models.heads import MaskedLanguageModelHead
from interlingua.objectives.objective import Batch, MaskedRow, TokenObjective, require


def mask_tokens(ids: list[int], special: set[int], mask_id: int, vocabulary: int, rate: float,
                random: np.random.Generator) -> MaskedRow:
    """BERT's corruption (Devlin et al. 2019): of `rate` of the tokens, at least one, 80% become the mask, 10% a
    random token, 10% stay; all of them must be predicted. Special tokens are never chosen."""
    candidates = [position for position, token in enumerate(ids) if token not in special]
    if not candidates:
        return MaskedRow(ids, [])
    chosen = random.choice(candidates, size=max(1, round(rate * len(candidates))), replace=False)
    corrupted = list(ids)
    for position in chosen:
        draw = random.random()
        if draw < 0.8:
            corrupted[position] = mask_id
        elif draw < 0.9:
            corrupted[position] = int(random.integers(vocabulary))
    return MaskedRow(corrupted, [(int(position), ids[position]) for position in sorted(chosen)])


class MaskedLanguageModelling(TokenObjective):
    """Predict the masked tokens of raw sentences; the loss is the mean over predictions.

    The head is trained with the encoder and dropped when the model is saved. It starts at random; `head.load_from`
    takes a pretrained model's.

    Args:
        hidden: the encoder's hidden size, and `vocabulary`: its number of tokens (the recipe fills both in).
        rate: share of tokens to predict.
        role: which encoder reads.
        seed: of the masking; step t is masked the same way on every process and after a resume.
    """

    streams: tuple[str, ...] = ("sentences",)

    def __init__(self, *, hidden: int, vocabulary: int, rate: float = 0.15, role: str = "passage",
                 seed: int = 0) -> None:
        super().__init__()
        if not 0 < rate < 1:
            raise InterlinguaError(f"the masking rate must lie between 0 and 1, got {rate}.")
        self.rate, self.role, self.seed, self.vocabulary = rate, role, seed, vocabulary
        self.head = MaskedLanguageModelHead(hidden, vocabulary)

    def texts(self, batch: Batch) -> list[Any]:
        """What is read: each raw sentence."""
        return [record.text for record in require(batch["sentences"], Sentence, self)]

    def rows(self, batch: Batch, encoder: Any, step: int) -> list[MaskedRow]:
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise InterlinguaError("masked-language modelling needs a tokenizer with a mask token; this model has none "
                                   "(a static backbone cannot be warmed up this way).")
        special = set(tokenizer.all_special_ids)
        random = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, step]))
        return [mask_tokens(ids, special, tokenizer.mask_token_id, self.vocabulary, self.rate, random)
                for ids in encoder.tokenize(self.texts(batch), self.role)]

    def token_loss(self, states: Tensor, targets: Tensor, encoder: Any) -> Tensor:
        logits = self.head(states, encoder.input_embeddings.weight)
        return F.cross_entropy(logits.float(), targets, reduction="none")


class TranslationLanguageModelling(MaskedLanguageModelling):
    """The same on a sentence and its translation read together (Conneau & Lample 2019): a word may be
    predicted from the other language. They are joined as title and text are: set the model's template to "pair" for
    the separators of the paper."""

    streams = ("parallel",)

    def texts(self, batch: Batch) -> list[Any]:
        return [(pair.source, pair.target) for pair in require(batch["parallel"], ParallelPair, self)]
