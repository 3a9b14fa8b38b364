"""Objective: it says what it reads and gives a loss on it, with its options as one class of settings.

Three kinds. An `Objective` compares all vectors of a batch with one another: the trainer may compute the vectors in
chunks, on several processes, and cache their gradients. A `TokenObjective` is a sum over rows: it can be computed row
by row, so nothing is gathered. A `SpanObjective` does both with one forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, Literal, Self, cast, get_args

from pydantic import ConfigDict
from torch import Size, Tensor, autocast, device, nn
from torch.nn import functional as F
from typing_extensions import TypeVar

from interlingua.errors import BadInput, suggestion
from interlingua.models.encode import TokenVectors
from interlingua.models.folder import Similarity
from interlingua.models.late_interaction import Model, RoleEncoder
from interlingua.models.protocols import Role as Role
from interlingua.models.subwords import Text as Text
from interlingua.settings import Settings


def check_known(what: str, value: str, values: Iterable[str]) -> None:
    """Raise BadInput unless `value` is one of `values`."""
    if value not in (known := list(values)):
        raise BadInput(f"{what} '{value}' is not known.{suggestion(value, known)}")


def similarities(a: Tensor, b: Tensor, kind: Similarity = "cosine") -> Tensor:
    """`[rows of a, rows of b]` similarities, float32. A zero vector has cosine 0 with everything.

    Raises BadInput for an unknown `kind` or vectors of different length.
    """
    check_known("similarity", kind, get_args(Similarity))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise BadInput(f"vectors must be [rows, dim] with one dim; got {list(a.shape)} and {list(b.shape)}.")
    a, b = a.float(), b.float()
    if kind == "cosine":
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    return product(a, b.T)


def product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` in their own precision, also under autocast: its bits are too few for a cosine over a temperature."""
    with autocast(a.device.type, enabled=False):
        return a @ b


def check_temperature(temperature: float | Tensor) -> None:
    """Raise BadInput unless the temperature is positive."""
    value = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
    if not value > 0:
        raise BadInput(f"temperature must be positive, got {value}.")


def check_paired(source: Tensor, target: Tensor, what: str) -> None:
    """Raise BadInput unless both are `[pairs, dim]` of one shape."""
    if source.ndim != 2 or source.shape != target.shape:
        raise BadInput(
            f"{what}: source and target must both be [pairs, dim]; got {list(source.shape)} and {list(target.shape)}."
        )


Reduction = Literal["mean", "none"]


def reduced(rows: Tensor, reduction: Reduction = "mean") -> Tensor:
    """The mean of `rows`; of no rows a zero that is connected to the graph. With "none" the rows themselves."""
    check_known("reduction", reduction, get_args(Reduction))
    if reduction == "none":
        return rows
    return rows.mean() if len(rows) else rows.sum()


def same_number(numbers: Tensor, pairs: int, name: str, device: device) -> Tensor:
    """`[pairs, pairs]` bool: pairs with one number of `numbers` `[pairs]`. Raises BadInput for another shape."""
    if numbers.shape != (pairs,):
        raise BadInput(f"{name} must be [pairs] = [{pairs}], got {list(numbers.shape)}.")
    numbers = numbers.to(device)
    return numbers[:, None] == numbers[None, :]


Roles = Literal["passage", "query", "both"]
Batch = Mapping[str, Sequence[object]]
"""stream name → the records drawn from it for this step (the global batch, the same on every process). `require` says
of which kind they are."""

R = TypeVar("R")
Vectors = TypeVar("Vectors", Tensor, TokenVectors, default=Tensor)


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


class ObjectiveSettings(Settings):
    """The options of an objective: what stands in a recipe under its name, and what its constructor takes."""

    model_config = ConfigDict(frozen=True)


class Objective(nn.Module, Generic[Vectors]):
    """A loss and what it reads. This one compares the vectors of texts: `requests` says which, `loss` compares them.

    Subclasses name the streams that they read (a trailing "?" marks an optional one) and declare their options as
    `Settings`. The constructor takes these options as keyword arguments; `self.settings` has all of them. Raises
    BadInput for one that is unknown or cannot be.

    Parameters registered on the module (a learnable temperature) are trained with the encoder. `multi_vector`: it
    compares the tokens of a late-interaction model, so `loss` finds `TokenVectors` instead of tensors; such a class is
    an `Objective[TokenVectors]`.
    """

    class Settings(ObjectiveSettings):
        """No options."""

    settings: ObjectiveSettings
    streams: tuple[str, ...] = ()
    multi_vector: bool = False

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.settings = self.Settings.checked(options, type(self).__name__)

    @classmethod
    def for_model(cls, model: Model, seed: int, options: Mapping[str, Any]) -> Self:
        """The objective with these options, in the sizes of a model. `seed`: of what it draws."""
        return cls(**options)

    def requests(self, batch: Batch) -> dict[str, Texts]:
        """The texts to embed, by a name that `loss` finds their vectors under."""
        raise NotImplementedError

    def loss(self, batch: Batch, vectors: Mapping[str, Vectors]) -> Loss:
        """The loss of the whole batch; `vectors[name]` is a tensor `[texts, dim]` float32 in the order requested."""
        raise NotImplementedError

    def exchange(self, rows: Callable[[Tensor], Tensor]) -> None:
        """Called before `after_step` where several processes read batches of their own, so that what an objective keeps
        is the same on all of them. `rows(own)` are the rows of all processes, in the same order on each."""

    def after_step(self) -> None:
        """Called once the optimizer has taken its step, for what an objective keeps from batch to batch."""

    def make_room(self, saved: Mapping[str, Size], device: device) -> None:
        """Before a checkpoint is put back: create the buffers in `saved` (name → shape) that grew in training."""


AnyObjective = Objective[Tensor] | Objective[TokenVectors]


def loss_of(objective: AnyObjective, batch: Batch, vectors: Mapping[str, Tensor | TokenVectors]) -> Loss:
    """`objective.loss` on the vectors of a model, which are of the kind that `objective.multi_vector` names."""
    return cast(Objective[Any], objective).loss(batch, vectors)


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """Token ids to read, and what the model must say: `(position, token id)` of each prediction."""

    ids: list[int]
    targets: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Spans:
    """The rows that a token objective reads at one step, the records they were made of, and numbers worth logging."""

    rows: list[MaskedRow]
    records: Sequence[object] = ()
    report: dict[str, float] = field(default_factory=dict)


class TokenObjective(Objective):
    """An objective that reads rows of masked tokens and predicts them: additive losses, each a sum over predictions
    divided by their number in the batch. A process computes those of its share of the rows.

    role: which encoder reads. early: a hidden state that `token_losses` reads beside the last. weights: of the losses,
    by name; "" is the objective's own.
    """

    role: str = "passage"
    early: int | None = None
    weights: Mapping[str, float] = MappingProxyType({"": 1.0})

    def spans(self, batch: Batch, encoder: RoleEncoder, step: int) -> Spans:
        """The rows to read and predict at this step; the same on every process for the same step."""
        raise NotImplementedError

    def token_losses(
        self, rows: list[MaskedRow], states: Tensor, lengths: Tensor, early: Tensor | None, encoder: RoleEncoder
    ) -> dict[str, Tensor]:
        """For each name in `weights` the losses `[predictions]` of these rows, from their states `[tokens of all,
        hidden]`, the last and the early ones, laid end to end, and their lengths `[rows]`."""
        raise NotImplementedError


class SpanObjective(TokenObjective):
    """A token objective that also compares the vectors of its rows, of one forward pass.

    Each process computes the contrastive loss of the whole batch. Own parameters are read by `represent` and
    `token_losses`, never by `contrastive`: so their gradients add up over shares.

    dim: size of the vectors. per_token: a span has one for each of its tokens, else it has one. contrast_unmasked:
    vectors are those of the spans before masking, which takes a forward pass of its own.
    """

    dim: int
    per_token: bool = True
    contrast_unmasked: bool = False

    def represent(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The vectors of spans, `[tokens of all, dim]` (`per_token`) or `[spans, dim]`, from their last states
        `[tokens of all, hidden]` and lengths `[spans]`."""
        raise NotImplementedError

    def contrastive(self, spans: Spans, vectors: TokenVectors) -> Loss:
        """The contrastive loss of the whole batch."""
        raise NotImplementedError


def require(records: Sequence[object], kind: type[R], objective: nn.Module) -> Sequence[R]:
    """`records`, or an error when the stream holds another kind of record than the objective reads."""
    if records and not isinstance(records[0], kind):
        raise BadInput(
            f"objective {type(objective).__name__} reads {kind.__name__} records, "
            f"but its stream holds {type(records[0]).__name__}. Point it at another data source."
        )
    return cast(Sequence[R], records)


def by_language(langs: Sequence[str], rows: Tensor) -> dict[str, float]:
    """`{"lang/xx": mean loss of the rows of language xx}`."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, lang in enumerate(langs):
        groups[lang].append(index)
    values = rows.detach().cpu()
    return {f"lang/{lang}": values[index].mean().item() for lang, index in sorted(groups.items()) if lang}


class SentenceTransformersLoss(nn.Module):
    """Give any loss on embeddings the interface of a sentence-transformers loss.

    The dataset's columns become the loss's first arguments, in order: two columns (source, target) for
    `semantic_contrastive` and `language_contrastive`, (question, passage) for `info_nce`.

        loss = SentenceTransformersLoss(model, semantic_contrastive, temperature=0.1)
        SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss).train()
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.model, self.loss, self.options = model, loss, options

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch. `labels` are ignored: contrastive losses make their own."""
        vectors = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.loss(*vectors, **self.options)

    def get_config_dict(self) -> dict[str, Any]:
        """The configuration that sentence-transformers writes into the model card."""
        return {"loss": self.loss.__name__, **self.options}
