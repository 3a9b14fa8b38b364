"""Texts of one step to vectors with a gradient: each text once, shared among processes, in chunks.

The gradient cache is Gao et al. 2021 (GradCache): encode without a graph, compute the loss on the vectors, then
encode each chunk again with the same random state and push the vectors' gradient through it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interlingua.models.encode import TokenVectors, token_batches, token_rows
from interlingua.models.late_interaction import LateInteractionEncoder, Model, RoleEncoder, embed_rows
from interlingua.models.subwords import Text
from interlingua.training.processes import Processes

MOST = 40_000_000
"""Tokens that are kept, 160 MB; texts that come after are tokenised every time."""


class TokenCache:
    """`encoder.tokenize`, which remembers. For encoders whose tokenizer and settings do not change meanwhile."""

    def __init__(self, most: int = MOST) -> None:
        self.room = most
        self._known: dict[tuple[RoleEncoder, str], dict[Text, array[int]]] = {}

    def tokenize(self, encoder: RoleEncoder, texts: Sequence[Text], role: str) -> list[list[int]]:
        """Token ids of each text, as `encoder` reads them in this role."""
        known = self._known.setdefault((encoder, role), {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        found = dict(zip(new, encoder.tokenize(new, role), strict=True)) if new else {}
        for text, ids in found.items():
            if len(ids) <= self.room:
                self.room -= len(ids)
                known[text] = array("i", ids)
        return [known[text].tolist() if text in known else found[text] for text in texts]


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a batch is cut for the encoder.

    tokens: the most tokens (padding counted) in one forward pass.
    cache: texts per chunk of the gradient cache, or None for one forward pass with its graph kept.
    bf16: run the encoder under bfloat16 autocast.
    known: token ids of the texts met so far.
    """

    tokens: int = 16_384
    cache: int | None = None
    bf16: bool = False
    known: TokenCache = field(default_factory=TokenCache)


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
    """The vectors of one role's texts in one step: one for each text, or of a late-interaction model several.

    `leaf` is `[vectors, dim]` float32, `counts[i]` of them for text i, in the order of the texts, cut off from the
    encoder: losses are computed on it (`take`), and `backward(gradient)` pushes a gradient of the same shape into the
    encoder's parameters.
    """

    def __init__(self, model: Model, role: str, texts: list[Text], chunking: Chunking, processes: Processes) -> None:
        self.encoder = model.query if role == "query" else model.passage
        self.role, self.chunking, self.processes = role, chunking, processes
        by_size = sorted(range(len(texts)), key=lambda i: (size(texts[i]), i))
        shares = processes.share(by_size)
        mine = shares[processes.rank]
        self.ids = chunking.known.tokenize(self.encoder, [texts[i] for i in mine], role)
        self.chunks = list(token_batches([len(ids) for ids in self.ids], chunking.tokens, chunking.cache))
        self.states: list[RandomState] = []
        self.graphs: list[Tensor] = []
        order = [i for chunk in self.chunks for i in chunk]
        nothing = TokenVectors(torch.zeros(0, model.dim, device=processes.device), [])
        found = TokenVectors.join([nothing, *(self._first_pass(chunk) for chunk in self.chunks)])
        local = found.select(sorted(range(len(order)), key=order.__getitem__))
        self.own_counts = local.counts
        self.counts = self._all_counts(shares)
        self.rows = [token_rows(self.counts, share).tolist() for share in shares]
        self.leaf = processes.gather(local.vectors, self.rows).requires_grad_()

    def _all_counts(self, shares: list[list[int]]) -> list[int]:
        """The number of vectors of every text, also of those that other processes encode."""
        if not isinstance(self.encoder, LateInteractionEncoder):
            return [1] * sum(map(len, shares))
        counts = torch.tensor(self.own_counts, dtype=torch.long, device=self.processes.device)
        return [int(count) for count in self.processes.gather(counts[:, None], shares)[:, 0].tolist()]

    def take(self, texts: list[int]) -> Tensor | TokenVectors:
        """The vectors of these texts in this order, on the leaf's graph: `[texts, dim]`, or `TokenVectors`."""
        if isinstance(self.encoder, LateInteractionEncoder):
            return TokenVectors(self.leaf, self.counts).select(texts)
        return self.leaf[torch.tensor(texts, dtype=torch.long, device=self.leaf.device)]

    def _first_pass(self, chunk: list[int]) -> TokenVectors:
        if self.chunking.cache is None:
            found = self._forward(chunk)
            self.graphs.append(found.vectors)
            return TokenVectors(found.vectors.detach(), found.counts)
        self.states.append(RandomState(self.processes.device))
        with torch.no_grad():
            return self._forward(chunk)

    def _forward(self, chunk: list[int]) -> TokenVectors:
        ids = [self.ids[i] for i in chunk]
        with torch.autocast("cuda", torch.bfloat16) if self.chunking.bf16 else nullcontext():
            return embed_rows(self.encoder, ids, self.role)

    def backward(self, gradient: Tensor, retain: bool = False) -> None:
        """Add ⟨vectors, gradient⟩'s gradient to the encoder's parameters; `retain` keeps the graph for another call."""
        share = torch.tensor(self.rows[self.processes.rank], dtype=torch.long, device=gradient.device)
        mine = TokenVectors(gradient[share], self.own_counts)
        for number, chunk in enumerate(self.chunks):
            rows = mine.select(chunk).vectors
            if self.chunking.cache is None:
                torch.autograd.backward(self.graphs[number], rows, retain_graph=retain)
                continue
            with self.states[number].replay():
                vectors = self._forward(chunk).vectors
            torch.autograd.backward(vectors, rows)


def size(text: Text) -> int:
    """Characters, the cheap stand-in for tokens."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
