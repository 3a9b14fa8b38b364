"""Validation by the retrieval loss on held-out questions (DPR's NLL; METHODS §2.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from interlingua.data.permutation import Permutation, key_of
from interlingua.data.store import Store
from interlingua.models.encode import token_batches
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.models.loading import Model
from interlingua.models.token_vectors import TokenVectors
from interlingua.objectives import LateInteraction, Objective, Retrieval


def retrieval_nll(objective: Retrieval | LateInteraction, store: Store[Any], limit: int,
                  batch: int) -> Callable[[Model], dict[str, float]]:
    """A function from a model to `{"nll": mean loss}` over a seeded sample of up to `limit` questions.

    Batches are of one size: a last one that is not full is left out, its fewer candidates would make the loss smaller.
    The temperature is the starting one for every checkpoint, and no negative is left out by the model's own scores,
    so that the numbers of a run can be compared. Late interaction is followed by its in-batch loss also where it trains
    on pairs: questions without negatives then count too.
    """
    count = min(limit, len(store))
    order = Permutation(len(store), key_of("validation"))
    questions = [store[order[i]] for i in range(count - count % batch if count >= batch else count)]
    options: dict[str, Any] = {"temperature": objective.temperature, "hard_negatives": objective.hard_negatives,
                               "mask_false_negatives": objective.mask_false_negatives}
    followed: Objective = (LateInteraction(contrast="in_batch", **options) if isinstance(objective, LateInteraction)
                           else Retrieval(similarity=objective.similarity, **options))

    def validate(model: Model) -> dict[str, float]:
        losses = []
        for start in range(0, len(questions), batch):
            records = {"questions": questions[start : start + batch]}
            vectors = {name: embed(model, texts.role, texts.texts)
                       for name, texts in followed.requests(records).items()}
            losses.append(followed.loss(records, vectors).value.item())
        return {"nll": sum(losses) / len(losses)}

    return validate


@torch.no_grad()
def embed(model: Model, role: str, texts: list[Any], tokens: int = 16_384) -> torch.Tensor | TokenVectors:
    """Vectors in order, without a graph: `[texts, dim]`, or of a late-interaction model `TokenVectors`."""
    encoder = model.query if role == "query" else model.passage
    ids = encoder.tokenize(texts, role)
    order = list(token_batches([len(i) for i in ids], tokens))
    if isinstance(encoder, LateInteractionEncoder):
        found = TokenVectors.join(encoder.embed_ids([ids[i] for i in chunk], role) for chunk in order)
        places = [i for chunk in order for i in chunk]
        return found.select(sorted(range(len(places)), key=places.__getitem__))
    pieces = [encoder.embed_ids([ids[i] for i in chunk]).float() for chunk in order]
    whole = torch.empty(len(texts), pieces[0].shape[1], device=pieces[0].device)
    whole[torch.tensor([i for chunk in order for i in chunk], device=whole.device)] = torch.cat(pieces)
    return whole
