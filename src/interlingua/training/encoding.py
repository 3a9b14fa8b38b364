"""Encode the input of one step in chunks, with a gradient: texts, or rows of masked tokens, shared among processes.

The gradient cache is Gao et al. 2021 (GradCache): (1) each chunk is read without a graph, its random state kept; (2)
the loss is computed on the vectors of all chunks, and its gradient on them; (3) each chunk is read again with its
random state, and its share of that gradient goes backward. Without a cache the graphs of (1) are kept and nothing is
read again.

The losses of tokens to predict are computed in (3) either way and go backward together with the chunk's vectors: only
one chunk's logits over the vocabulary are ever held. They are divided by the predictions of the whole batch, so that
chunks do not change their weight (in coCondenser's trainer they do).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from interlingua.errors import BadInput
from interlingua.models.encode import TokenVectors, token_batches, token_rows
from interlingua.models.late_interaction import LateInteractionEncoder, Model, RoleEncoder, embed_rows
from interlingua.models.subwords import Text
from interlingua.objectives.objective import MaskedRow, SpanObjective, TokenObjective
from interlingua.training.optimizer import LossScale
from interlingua.training.processes import Processes
from interlingua.training.weighted import WeightedObjective

MOST = 40_000_000
"""Tokens that are kept, 160 MB; texts that come after are tokenised every time."""


class TokenCache:
    """`encoder.tokenize`, which remembers. For encoders whose tokenizer and settings do not change meanwhile."""

    def __init__(self, most: int = MOST) -> None:
        self.room = most
        self._known: dict[tuple[RoleEncoder, str], dict[Text, array[int]]] = {}

    def tokenize(self, encoder: RoleEncoder, texts: Sequence[Text], role: str) -> list[list[int]]:
        """Token ids of each text, as `encoder` reads them in this role."""
        cache = self._known.setdefault((encoder, role), {})
        new = [text for text in dict.fromkeys(texts) if text not in cache]
        new_ids = dict(zip(new, encoder.tokenize(new, role), strict=True)) if new else {}
        for text, ids in new_ids.items():
            if len(ids) <= self.room:
                self.room -= len(ids)
                cache[text] = array("i", ids)
        return [cache[text].tolist() if text in cache else new_ids[text] for text in texts]


@dataclass(frozen=True, slots=True)
class Chunking:
    """Options for cutting a batch into chunks for the encoder.

    tokens: the most tokens (padding counted) in one forward pass.
    cache: texts per chunk of the gradient cache, or None for one forward pass with its graph kept.
    dtype: run the encoder under autocast to this type; None: float32.
    loss_scale: what all gradients are multiplied by on their way back through a float16 encoder.
    known: token ids of the texts met so far.
    """

    tokens: int = 16_384
    cache: int | None = None
    dtype: torch.dtype | None = None
    loss_scale: LossScale | None = None
    known: TokenCache = field(default_factory=TokenCache)

    @property
    def scale(self) -> float:
        """The factor on all gradients of this step."""
        return 1.0 if self.loss_scale is None else self.loss_scale.value


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


class Encoded(ABC):
    """The input of one encoder in one step; this process reads its share of it, in chunks.

    `leaf` is `[vectors, dim]` float32, `counts[i]` of them for item i, in order, cut off from the encoder: losses are
    computed on it, and `backward(gradient)` pushes a gradient of the same shape into the parameters. There is none if
    nothing compares vectors. `totals` are the token losses by name, as this process's shares of the means over the
    batch; `backward` fills them in.
    """

    leaf: Tensor
    counts: list[int]

    def __init__(
        self, encoder: RoleEncoder, sizes: list[int], dim: int | None, chunking: Chunking, processes: Processes
    ) -> None:
        self.encoder, self.chunking, self.processes = encoder, chunking, processes
        self.totals: dict[str, float] = {}
        self._random: list[RandomState] = []
        self._graphs: list[Any] = []
        shares = processes.share(sorted(range(len(sizes)), key=lambda item: (sizes[item], item)))
        mine, tokens = self._prepared(shares[processes.rank])
        self.chunks = [[mine[i] for i in chunk] for chunk in token_batches(tokens, chunking.tokens, chunking.cache)]
        if dim is None:
            return
        empty = TokenVectors(torch.zeros(0, dim, device=processes.device), [])
        vectors = TokenVectors.join([empty, *map(self._first_pass, self.chunks)])
        places = {item: place for place, item in enumerate(chain.from_iterable(self.chunks))}
        own = vectors.select([places[item] for item in mine])
        self.counts = self._all_counts(own.counts, shares)
        self.leaf = processes.gather(own.vectors, [token_rows(self.counts, share).tolist() for share in shares])
        self.leaf.requires_grad_()

    @abstractmethod
    def _prepared(self, share: list[int]) -> tuple[list[int], list[int]]:
        """The items of this process's share that are read, and their lengths in tokens."""

    @abstractmethod
    def _read(self, chunk: list[int]) -> Any:
        """The states of these items, with a graph."""

    @abstractmethod
    def _vectors(self, chunk: list[int], states: Any) -> TokenVectors:
        """The vectors of these items, from their states."""

    @abstractmethod
    def _all_counts(self, own: list[int], shares: list[list[int]]) -> list[int]:
        """The number of vectors of every item, also of those that other processes read."""

    def _losses(self, chunk: list[int], states: Any) -> list[Tensor]:
        """Weighted losses of these items that need no other item, noted in `totals`."""
        return []

    def _first_pass(self, chunk: list[int]) -> TokenVectors:
        if self.chunking.cache is not None:
            self._random.append(RandomState(self.processes.device))
            with torch.no_grad():
                return self._vectors(chunk, self._read(chunk))
        self._graphs.append(self._read(chunk))
        # what the token losses draw, they draw as they would after a second reading
        self._random.append(RandomState(self.processes.device))
        with torch.no_grad():
            vectors = self._vectors(chunk, self._graphs[-1])
        return TokenVectors(vectors.vectors.detach(), vectors.counts)

    def backward(self, gradient: Tensor | None, retain: bool = False) -> None:
        """Add the gradient of ⟨vectors, gradient⟩ and of the token losses, times the loss scale, to the parameters,
        chunk by chunk; `retain` keeps the graphs for another call. None: there are no vectors."""
        scale = self.chunking.scale
        for number, chunk in enumerate(self.chunks):
            with self._random[number].replay() if self._random else nullcontext():
                states = self._graphs[number] if self._graphs else self._read(chunk)
                ends = [loss * scale for loss in self._losses(chunk, states)]
            pulls: list[Tensor | None] = [None] * len(ends)
            if gradient is not None:
                ends = [self._vectors(chunk, states).vectors, *ends]
                pulls = [gradient[token_rows(self.counts, chunk).to(gradient.device)] * scale, *pulls]
            torch.autograd.backward(ends, pulls, retain_graph=retain)

    def _precision(self) -> AbstractContextManager[object]:
        if self.chunking.dtype is None:
            return nullcontext()
        return torch.autocast(self.processes.device.type, self.chunking.dtype)


class EncodedTexts(Encoded):
    """The vectors of one role's texts: one for each text, or of a late-interaction model several."""

    def __init__(self, model: Model, role: str, texts: list[Text], chunking: Chunking, processes: Processes) -> None:
        self.role, self.texts = role, texts
        super().__init__(encoder_of(model, role), [size(text) for text in texts], model.dim, chunking, processes)

    def take(self, texts: list[int]) -> Tensor | TokenVectors:
        """The vectors of these texts in this order, on the leaf's graph: `[texts, dim]`, or `TokenVectors`."""
        if isinstance(self.encoder, LateInteractionEncoder):
            return TokenVectors(self.leaf, self.counts).select(texts)
        return self.leaf[torch.tensor(texts, dtype=torch.long, device=self.leaf.device)]

    def _prepared(self, share: list[int]) -> tuple[list[int], list[int]]:
        ids = self.chunking.known.tokenize(self.encoder, [self.texts[item] for item in share], self.role)
        self._ids = dict(zip(share, ids, strict=True))
        return share, [len(text) for text in ids]

    def _read(self, chunk: list[int]) -> TokenVectors:
        with self._precision():
            return embed_rows(self.encoder, [self._ids[item] for item in chunk], self.role)

    def _vectors(self, chunk: list[int], states: TokenVectors) -> TokenVectors:
        return states

    def _all_counts(self, own: list[int], shares: list[list[int]]) -> list[int]:
        if not isinstance(self.encoder, LateInteractionEncoder):
            return [1] * len(self.texts)
        counts = torch.tensor(own, dtype=torch.long, device=self.processes.device)
        return [int(count) for count in self.processes.gather(counts[:, None], shares)[:, 0].tolist()]


States = tuple[Tensor, Tensor, Tensor | None]
"""Last states `[tokens, hidden]`, lengths `[rows]`, early states `[tokens, hidden]`, as `Encoder.token_states`."""


class EncodedRows(Encoded):
    """Rows of masked tokens: the losses of what is to be predicted, and for a `SpanObjective` the rows' vectors."""

    def __init__(
        self,
        weighted: WeightedObjective,
        encoder: RoleEncoder,
        rows: list[MaskedRow],
        chunking: Chunking,
        processes: Processes,
    ) -> None:
        assert isinstance(weighted.objective, TokenObjective)
        self.weighted, self.objective, self.rows = weighted, weighted.objective, rows
        self.spans = self.objective if isinstance(self.objective, SpanObjective) else None
        self.predictions = sum(len(row.targets) for row in rows)
        dim = None if self.spans is None else self.spans.dim
        super().__init__(encoder, [len(row.ids) for row in rows], dim, chunking, processes)
        self.totals = dict.fromkeys(self.objective.weights, 0.0)

    def _prepared(self, share: list[int]) -> tuple[list[int], list[int]]:
        mine = [item for item in share if self.spans is not None or self.rows[item].targets]
        return mine, [len(self.rows[item].ids) for item in mine]

    def _read(self, chunk: list[int]) -> States:
        return self._states(chunk, self.spans is not None and self.spans.contrast_unmasked)

    def _states(self, chunk: list[int], unmasked: bool) -> States:
        ids = [_original(self.rows[item]) if unmasked else self.rows[item].ids for item in chunk]
        with self._precision():
            if self.objective.early is None or isinstance(self.encoder, LateInteractionEncoder):
                return (*self.encoder.token_states(ids), None)
            return self.encoder.token_states(ids, layer=self.objective.early)

    def _vectors(self, chunk: list[int], states: States) -> TokenVectors:
        assert self.spans is not None
        with self._precision():
            return TokenVectors(self.spans.represent(states[0], states[1]).float(), self._counts(chunk))

    def _counts(self, items: Iterable[int]) -> list[int]:
        per_token = self.spans is not None and self.spans.per_token
        return [len(self.rows[item].ids) if per_token else 1 for item in items]

    def _all_counts(self, own: list[int], shares: list[list[int]]) -> list[int]:
        return self._counts(range(len(self.rows)))

    def _losses(self, chunk: list[int], states: States) -> list[Tensor]:
        if not self.objective.weights:
            return []
        if self.spans is not None and self.spans.contrast_unmasked:
            states = self._states(chunk, unmasked=False)
        with self._precision():
            losses = self.objective.token_losses([self.rows[item] for item in chunk], *states, self.encoder)
        summands = []
        for name, rows in losses.items():
            loss = rows.float().sum() / max(1, self.predictions)
            require_finite(loss, f"{self.weighted.name}.{name}" if name else self.weighted.name)
            self.totals[name] += loss.item()
            summands.append(self.weighted.weight * self.objective.weights[name] * loss)
        return summands


def _original(row: MaskedRow) -> list[int]:
    """The ids before masking."""
    ids = list(row.ids)
    for position, token in row.targets:
        ids[position] = token
    return ids


def encoder_of(model: Model, role: str) -> RoleEncoder:
    """The encoder of a role: "query" or "passage"."""
    return model.query if role == "query" else model.passage


def require_finite(loss: Tensor, name: str) -> None:
    """Raise BadInput for a loss that is no number."""
    if not torch.isfinite(loss):
        raise BadInput(
            f"the loss of '{name}' is {loss.item()}. The last checkpoint is untouched. Lower "
            "optimizer.lr or raise the temperature, and look at the data for empty texts."
        )


def size(text: Text) -> int:
    """Characters, the cheap stand-in for tokens."""
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
