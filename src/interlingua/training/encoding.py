"""Texts of one step → vectors with a gradient: each text once, shared among processes, in chunks without padding to
the longest, and (with a gradient cache) twice, so that the memory of one chunk is enough for any batch.

The gradient cache is Gao et al. 2021 (GradCache): encode without a graph, compute the loss on the vectors, then
encode each chunk again with the same random state and push the vectors' gradient through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from interlingua.models.dual import DualEncoder
from interlingua.models.encode import token_batches
from interlingua.objectives.objective import Text
from interlingua.training.processes import Processes


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a batch is cut for the encoder.

    tokens: the most tokens (padding counted) in one forward pass.
    cache: texts per chunk of the gradient cache, or None for one forward pass with its graph kept.
    bf16: run the encoder under bfloat16 autocast.
    """

    tokens: int = 16_384
    cache: int | None = None
    bf16: bool = False


class RandomState:
    """The state of torch's generators now; `replay()` goes back to it for a while (dropout repeats itself)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Within the block the generators continue from the saved state; afterwards from where they were."""
        with torch.random.fork_rng(devices=[self.device] if self.cuda is not None else []):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield


class Encoded:
    """The vectors of one role's texts in one step.

    `leaf` is `[texts, dim]` float32 in the order of the texts, cut off from the encoder: losses are computed on
    it, and `backward(gradient)` pushes a gradient of the same shape into the encoder's parameters.
    """

    def __init__(self, model: DualEncoder, role: str, texts: list[Text], chunking: Chunking,
                 processes: Processes) -> None:
        self.encoder = model.query if role == "query" else model.passage
        self.chunking, self.processes = chunking, processes
        by_size = sorted(range(len(texts)), key=lambda i: (size(texts[i]), i))
        self.shares = processes.share(by_size)
        mine = self.shares[processes.rank]
        self.ids = self.encoder.tokenize([texts[i] for i in mine], role)
        self.chunks = list(token_batches([len(ids) for ids in self.ids], chunking.tokens, chunking.cache))
        self.states: list[RandomState] = []
        self.graphs: list[Tensor] = []
        order = torch.tensor([i for chunk in self.chunks for i in chunk], dtype=torch.long, device=processes.device)
        pieces = [self._first_pass(chunk) for chunk in self.chunks]
        local = torch.zeros(len(mine), model.dim, device=processes.device)
        if pieces:
            local[order] = torch.cat(pieces)
        self.leaf = processes.gather(local, self.shares).requires_grad_()

    def _first_pass(self, chunk: list[int]) -> Tensor:
        if self.chunking.cache is None:
            self.graphs.append(self._forward(chunk))
            return self.graphs[-1].detach()
        self.states.append(RandomState(self.processes.device))
        with torch.no_grad():
            return self._forward(chunk)

    def _forward(self, chunk: list[int]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16) if self.chunking.bf16 else nullcontext():
            return self.encoder.embed_ids([self.ids[i] for i in chunk]).float()

    def backward(self, gradient: Tensor, retain: bool = False) -> None:
        """Add ⟨vectors, gradient⟩'s gradient to the encoder's parameters; `retain` keeps the graph for another call."""
        share = torch.tensor(self.shares[self.processes.rank], dtype=torch.long, device=gradient.device)
        mine = gradient[share]
        for number, chunk in enumerate(self.chunks):
            rows = mine[chunk]
            if self.chunking.cache is None:
                torch.autograd.backward(self.graphs[number], rows, retain_graph=retain)
                continue
            with self.states[number].replay():
                vectors = self._forward(chunk)
            torch.autograd.backward(vectors, rows)


def size(text: Text) -> int:
    """Characters, the cheap stand-in for tokens."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
