"""A contrastive loss and masked-LM losses out of one forward pass, with or without a gradient cache (C3).

The cache is that of `encoding.py` (Gao et al. 2021) with the vectors of all tokens in it: (1) every chunk is read
without a graph, its random state kept; (2) the contrastive loss is computed on the gathered vectors, its gradient on
them kept; (3) every chunk is read again with its random state, and ⟨vectors, gradient⟩ goes backward together with the
chunk's masked-LM losses. Without a cache the graphs of (1) are kept and nothing is read again. The masked-LM losses are
computed in (3) either way: only one chunk's logits over the vocabulary are ever held. They are divided by the
predictions of the whole batch, so that chunks do not change their weight (in coCondenser's trainer they do).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from interlingua.models.encode import token_batches
from interlingua.models.token_vectors import TokenVectors, token_rows
from interlingua.objectives.objective import Batch, Loss, MaskedRow, SpanObjective
from interlingua.training.encoding import Chunking, RandomState
from interlingua.training.processes import Processes

States = tuple[Tensor, Tensor, Tensor | None]
"""Last states `[tokens, hidden]`, lengths `[spans]`, early states `[tokens, hidden]`, as `Encoder.token_states`."""


def span_gradients(objective: SpanObjective, weight: float, encoder: Any, batch: Batch, step: int, chunking: Chunking,
                   processes: Processes) -> dict[str, Loss]:
    """Add the gradient of weight · (contrastive loss + Σ_name weights[name] · token loss) to the parameters of the
    encoder and the objective, for this process's share of the spans.

    Returns the losses of the whole batch, none times its weight: the contrastive one as "", the others by name.
    """
    spans = objective.spans(batch, encoder, step)
    read = ReadSpans(objective, encoder, spans.rows, chunking, processes)
    contrast = objective.loss(spans, TokenVectors(read.leaf, read.counts))
    contrast.report["predictions"] = float(read.predictions)
    (gradient,) = torch.autograd.grad(weight * contrast.value, read.leaf)
    totals = read.backward(gradient, weight)
    return {"": Loss(contrast.value.detach(), contrast.report, contrast.warning),
            **{name: Loss(torch.tensor(processes.total(total))) for name, total in totals.items()}}


class ReadSpans:
    """The vectors of all spans of a step. `leaf` is `[vectors, dim]` float32, `counts[i]` of them for row i, in order,
    cut off from the encoder; `backward` pushes a gradient on it, and the token losses, into the parameters."""

    def __init__(self, objective: SpanObjective, encoder: Any, rows: list[MaskedRow], chunking: Chunking,
                 processes: Processes) -> None:
        self.objective, self.encoder, self.rows = objective, encoder, rows
        self.chunking, self.processes = chunking, processes
        self.predictions = max(1, sum(len(row.targets) for row in rows))
        sizes = [len(row.ids) for row in rows]
        self.counts = sizes if objective.per_token else [1] * len(rows)
        shares = processes.share(sorted(range(len(rows)), key=lambda number: (sizes[number], number)))
        chunks = [[[share[place] for place in chunk] for chunk in token_batches(
            [sizes[number] for number in share], chunking.tokens, chunking.cache)] for share in shares]
        self.chunks = chunks[processes.rank]
        self.random: list[RandomState] = []
        self.graphs: list[States] = []
        pieces = [torch.zeros(0, objective.dim, device=processes.device), *map(self._first_pass, self.chunks)]
        places = [token_rows(self.counts, [number for chunk in share for number in chunk]).tolist() for share in chunks]
        self.leaf = processes.gather(torch.cat(pieces), places).requires_grad_()

    def _first_pass(self, chunk: list[int]) -> Tensor:
        if self.chunking.cache is not None:
            self.random.append(RandomState(self.processes.device))
            with torch.no_grad():
                return self._represent(self._read(chunk, self.objective.contrast_unmasked))
        self.graphs.append(self._read(chunk, self.objective.contrast_unmasked))
        # what the token losses draw, they draw as they would after a second reading
        self.random.append(RandomState(self.processes.device))
        with torch.no_grad():
            return self._represent(self.graphs[-1])

    def backward(self, gradient: Tensor, weight: float) -> dict[str, float]:
        """Push `gradient` `[vectors, dim]` and that of weight · the weighted token losses, once. Returns the token
        losses of this process's spans, as shares of the mean over the batch."""
        totals = dict.fromkeys(self.objective.weights, 0.0)
        for number, chunk in enumerate(self.chunks):
            with self.random[number].replay():
                states = self.graphs[number] if self.graphs else self._read(chunk, self.objective.contrast_unmasked)
                losses = self._token_losses(chunk, states)
            ends: list[Tensor] = [self._represent(states)]
            pulls: list[Tensor | None] = [gradient[token_rows(self.counts, chunk).to(gradient.device)]]
            for name, loss in losses.items():
                ends.append(weight * self.objective.weights[name] * loss)
                pulls.append(None)
                totals[name] += loss.item()
            torch.autograd.backward(ends, pulls)
        return totals

    def _read(self, chunk: list[int], unmasked: bool) -> States:
        ids = [_original(self.rows[number]) if unmasked else self.rows[number].ids for number in chunk]
        with self._precision():
            if self.objective.early is None:
                return (*self.encoder.token_states(ids), None)
            states: States = self.encoder.token_states(ids, layer=self.objective.early)
            return states

    def _represent(self, states: States) -> Tensor:
        with self._precision():
            return self.objective.represent(states[0], states[1]).float()

    def _token_losses(self, chunk: list[int], states: States) -> dict[str, Tensor]:
        if not self.objective.weights:
            return {}
        if self.objective.contrast_unmasked:
            states = self._read(chunk, unmasked=False)
        rows = [self.rows[number] for number in chunk]
        with self._precision():
            losses = self.objective.token_losses(rows, *states, self.encoder)
        return {name: loss.float().sum() / self.predictions for name, loss in losses.items()}

    def _precision(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.chunking.bf16 else nullcontext()


def _original(row: MaskedRow) -> list[int]:
    """The ids before masking."""
    ids = list(row.ids)
    for position, token in row.targets:
        ids[position] = token
    return ids
