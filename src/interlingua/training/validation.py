"""Validation by the retrieval loss on held-out questions (DPR's NLL; METHODS §2.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from interlingua.data.permutation import Permutation, key_of
from interlingua.data.store import RecordStore
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import token_batches
from interlingua.objectives.retrieval import Retrieval


def retrieval_nll(objective: Retrieval, store: RecordStore[Any], limit: int,
                  batch: int) -> Callable[[DualEncoder], dict[str, float]]:
    """A function from a model to `{"nll": mean loss}` over a seeded sample of up to `limit` questions.

    Batches are of one size: a last one that is not full is left out, its fewer candidates would make the loss smaller.
    The temperature is the starting one for every checkpoint, and no negative is left out by the model's own scores,
    so that the numbers of a run can be compared.
    """
    count = min(limit, len(store))
    order = Permutation(len(store), key_of("validation"))
    questions = [store[order[i]] for i in range(count - count % batch if count >= batch else count)]
    objective = Retrieval(similarity=objective.similarity, temperature=objective.temperature,
                          hard_negatives=objective.hard_negatives,
                          mask_false_negatives=objective.mask_false_negatives)

    def validate(model: DualEncoder) -> dict[str, float]:
        losses = []
        for start in range(0, len(questions), batch):
            records = {"questions": questions[start : start + batch]}
            vectors = {name: embed(model, texts.role, texts.texts)
                       for name, texts in objective.requests(records).items()}
            losses.append(objective.loss(records, vectors).value.item())
        return {"nll": sum(losses) / len(losses)}

    return validate


@torch.no_grad()
def embed(model: DualEncoder, role: str, texts: list[Any], tokens: int = 16_384) -> torch.Tensor:
    """`[texts, dim]` vectors in order, without a graph."""
    encoder = model.query if role == "query" else model.passage
    ids = encoder.tokenize(texts, role)
    order = list(token_batches([len(i) for i in ids], tokens))
    pieces = [encoder.embed_ids([ids[i] for i in chunk]).float() for chunk in order]
    whole = torch.empty(len(texts), pieces[0].shape[1], device=pieces[0].device)
    whole[torch.tensor([i for chunk in order for i in chunk], device=whole.device)] = torch.cat(pieces)
    return whole
