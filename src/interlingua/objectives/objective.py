"""What an objective is: it says which texts to embed and gives a loss on their embeddings. It never encodes.

Two kinds. A contrastive objective compares all vectors of a batch with one another (`requests`, `loss`): the
trainer may compute the vectors in chunks, on several processes, and cache their gradients. An additive
objective is a sum over rows (`TokenObjective`): it can be computed row by row, so nothing is gathered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Size, Tensor, device, nn

from interlingua.errors import InterlinguaError
from interlingua.models.subwords import Text as Text

Batch = Mapping[str, Sequence[Any]]
"""stream name → the records drawn from it for this step (the global batch, the same on every process)."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts to embed, and the encoder that reads them ("query" or "passage")."""

    role: str
    texts: list[Text] | list[str]


@dataclass(frozen=True, slots=True)
class Loss:
    """A scalar to minimise, numbers worth logging beside it, and what a person should be warned of."""

    value: Tensor
    report: dict[str, float] = field(default_factory=dict)
    warning: str | None = None


class Objective(nn.Module):
    """A contrastive objective. Subclasses name the streams they read (a trailing "?" marks an optional one).

    Parameters registered on the module (a learnable temperature) are trained with the encoder.
    """

    streams: tuple[str, ...] = ()

    def requests(self, batch: Batch) -> dict[str, Texts]:
        """The texts to embed, by a name that `loss` finds their vectors under."""
        raise NotImplementedError

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        """The loss of the whole batch; `vectors[name]` is `[texts, dim]` float32 in the order requested."""
        raise NotImplementedError

    def after_step(self) -> None:
        """Called once the optimizer has taken its step, for what an objective keeps from batch to batch."""

    def make_room(self, saved: Mapping[str, Size], device: device) -> None:
        """Before a checkpoint is put back: create the buffers in `saved` (name → shape) that grew in training."""


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """Token ids to read, and what the model must say: `(position, token id)` of each prediction."""

    ids: list[int]
    targets: list[tuple[int, int]]


class TokenObjective(nn.Module):
    """An additive objective on token states: a sum over predictions, divided by their number in the batch."""

    streams: tuple[str, ...] = ()
    role: str = "passage"

    def rows(self, batch: Batch, encoder: Any, step: int) -> list[MaskedRow]:
        """What to read and predict at this step; the same on every process for the same step."""
        raise NotImplementedError

    def token_loss(self, states: Tensor, targets: Tensor, encoder: Any) -> Tensor:
        """`[predictions]` losses from the states `[predictions, hidden]` at the predicted positions."""
        raise NotImplementedError


def require(records: Sequence[Any], kind: type[R], objective: nn.Module) -> Sequence[R]:
    """`records`, or an error when the stream holds another kind of record than the objective reads."""
    if records and not isinstance(records[0], kind):
        raise InterlinguaError(f"objective {type(objective).__name__} reads {kind.__name__} records, "
                               f"but its stream holds {type(records[0]).__name__}. Point it at another data source.")
    return records


def by_language(langs: Sequence[str], rows: Tensor) -> dict[str, float]:
    """`{"lang/xx": mean loss of the rows of language xx}`."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, lang in enumerate(langs):
        groups[lang].append(index)
    values = rows.detach().cpu()
    return {f"lang/{lang}": values[index].mean().item() for lang, index in sorted(groups.items()) if lang}
