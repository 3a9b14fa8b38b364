"""Distillation of token states: everywhere in a text a student says what its teacher says there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from interlingua.data.records import Sentence
from interlingua.errors import BadInput
from interlingua.models.encode import TokenVectors
from interlingua.models.encoder import Encoder
from interlingua.models.late_interaction import Model, RoleEncoder
from interlingua.objectives.distillation import distil_contrastive
from interlingua.objectives.objective import (
    Batch,
    Loss,
    MaskedRow,
    ObjectiveSettings,
    Reduction,
    Roles,
    SpanObjective,
    Spans,
    by_language,
    check_paired,
    reduced,
    require,
)
from interlingua.objectives.semantic import roles

if TYPE_CHECKING:
    from interlingua.models.transformer import Transformer


def distil_states(student: Tensor, teacher: Tensor, scale: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """The mean over tokens and dimensions of

        ((s_td − t_td) / σ_d)²

    as the hidden states of TinyBERT (Jiao et al. 2020, eq. 8), with each dimension d in units of its own standard
    deviation: multilingual encoders have a few dimensions that are a hundred times as large as the others, and would
    be all that squares see.

    Args:
        student, teacher: `[tokens, hidden]`, of the same tokens; no gradient reaches the teacher.
        scale: σ, `[hidden]`, as `scale_of` gives it.

    Returns:
        A float32 scalar; with no tokens, a zero that is connected to the graph. With the reduction "none" the tokens'
        losses, `[tokens]`.
    """
    check_paired(student, teacher, "distillation of states, student and teacher")
    return reduced(((student.float() - teacher.detach().float()) / scale).square().mean(-1), reduction)


def scale_of(teacher: Tensor) -> Tensor:
    """The standard deviation of each dimension of `teacher` `[tokens, hidden]`; none is taken to be less than a
    hundredth of the mean of all. Of no token, of one, and of equal ones it is 1."""
    if not len(teacher):
        return torch.ones_like(teacher[0:1].sum(0), dtype=torch.float32)
    scale = teacher.detach().float().std(0, correction=0)
    return scale.clamp_min(scale.mean().item() / 100 or 1.0)


def stretches(one: Sequence[str], other: Sequence[str]) -> tuple[list[int], list[int]]:
    """The smallest stretches that are whole tokens in both of two ways to cut a text: for each token of `one`, and for
    each of `other`, the number of its stretch. What comes after the last common end of tokens is in none, −1: where one
    is cut off earlier, the rest of the text and the closing token."""
    ends = [list(accumulate(map(len, pieces))) for pieces in (one, other)]
    letters = list(zip("".join(one), "".join(other), strict=False))
    prefix = next((place for place, (a, b) in enumerate(letters) if a != b), len(letters))
    common = sorted(end for end in set(ends[0]) & set(ends[1]) if end <= prefix)
    first, second = (
        [number if (number := bisect_left(common, end)) < len(common) else -1 for end in side] for side in ends
    )
    return first, second


def stretch_means(states: Tensor, numbers: Sequence[int]) -> Tensor:
    """The mean state of each stretch, `[stretches, hidden]` float32, from states `[tokens, hidden]` and the numbers of
    their stretches; each number has a token, and −1 is left out."""
    tokens = torch.tensor(numbers, dtype=torch.long, device=states.device)
    inside = tokens >= 0
    rows = tokens[inside]
    sizes = torch.bincount(rows)
    sums = torch.zeros(len(sizes), states.shape[1], device=states.device).index_add(0, rows, states[inside].float())
    return sums / sizes[:, None]


@dataclass(frozen=True, slots=True)
class Answer:
    """A teacher's states of a text: its tokens as it cuts it, its last states and, if asked for, those of a layer,
    `[tokens, hidden]`."""

    pieces: list[str]
    last: Tensor
    inner: Tensor | None


StateTeacher = Callable[[Sequence[str], str], list[Answer]]
"""Texts and their role → the teacher's answers, without a gradient."""


@dataclass(frozen=True, slots=True)
class Taught:
    """A teacher's states of the stretches of a text, `[stretches, hidden]`, and σ of those of the batch."""

    states: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True)
class TaughtRow(MaskedRow):
    """A text as token ids; of each the number of its stretch, which is answered at its first token; the teacher's last
    states of these and those of a layer; and the teacher's vector of the text, `[hidden]`."""

    numbers: list[int]
    last: Taught
    inner: Taught | None
    vector: Tensor


class StateDistillation(SpanObjective):
    """A student of fewer layers or subwords learns its teacher's states everywhere in raw texts, and its vectors.

    The sum of three losses: `distil_states` of the last states, the same of one hidden state within, and on the texts'
    vectors, from which the mean of the teacher's in the batch is subtracted, one less the cosine with the teacher's
    vector and, to pick it among those of the batch, `distil_contrastive`. A text of thirty tokens so teaches thirty
    times 384 numbers twice where its vector alone teaches 384.

    Where the student cuts a text otherwise, because it has other subwords, states are compared on the smallest
    stretches that are whole tokens to both: the means of each one's states there. The teacher reads each batch once, on
    every process. The vectors are the pooled last states; dense layers behind them are left as they are.
    """

    class Settings(ObjectiveSettings):
        """Whose states are learned, and how."""

        teacher: str | StateTeacher = Field(
            description="a model's folder or name, of the student's size of a state, with a tokenizer of the same "
            "kind; frozen, no part of what is saved"
        )
        precision: str | None = Field(
            None, description="the number format in which the teacher computes on a processor: int8, auto"
        )
        layer: int | None = Field(
            None, ge=1, description="a hidden state of the student that learns, beside the last one (0 = embeddings)"
        )
        teacher_layer: int | None = Field(
            None, ge=1, description="the teacher's hidden state that it learns; none: as far up as the student's is"
        )
        states: float = Field(1.0, gt=0, description="weight of the losses of the states")
        temperature: float = Field(0.05, gt=0, description="τ of picking the teacher's vector")
        on: Roles = Field(
            "both",
            description="in which role texts are read, and by which of two encoders; `both`, for one encoder: every "
            "second text of a batch as a question",
        )

        @model_validator(mode="after")
        def _of_a_layer(self) -> Self:
            if self.teacher_layer is not None and self.layer is None:
                raise ValueError("teacher_layer: names the state that `layer` learns. Give that, too.")
            return self

    settings: Settings
    streams: tuple[str, ...] = ("sentences",)
    per_token = False

    def __init__(self, *, teacher: StateTeacher, pooling: str, dim: int, role: str = "passage", **options: Any) -> None:
        super().__init__(teacher=teacher, **options)
        self.teacher, self.pooling, self.dim, self.role = teacher, pooling, dim, role
        self.early = self.settings.layer
        self.weights = dict.fromkeys(("last",) if self.early is None else ("last", "inner"), self.settings.states)

    @classmethod
    def for_model(cls, model: Model, seed: int, options: Mapping[str, Any]) -> Self:
        on = options.get("on", "both")
        encoder = cast(Encoder, model.query if on == "query" else model.passage)
        if on == "both" and model.query is not model.passage:
            raise BadInput(
                "state_distillation: a model of two encoders has one of them taught. Set on: query or on: passage, or "
                "model.encoders: tied."
            )
        layer, layers = options.get("layer"), cast("Transformer", encoder.backbone).layers
        if layer is not None and layer >= layers:
            raise BadInput(f"state_distillation.layer {layer}: the states within this model are 1 to {layers - 1}.")
        role = "query" if on == "query" else "passage"
        return cls(pooling=str(encoder.pooling), dim=encoder.hidden_size, role=role, **options)

    def spans(self, batch: Batch, encoder: RoleEncoder, step: int) -> Spans:
        records = require(batch["sentences"], Sentence, self)
        if len(records) < 2:
            raise BadInput(
                f"a batch of {len(records)} text{'s' * (not records)} has nothing to tell apart. Raise the batch of "
                "its data."
            )
        answers: dict[int, tuple[list[int], Answer]] = {}
        for number, role in enumerate(on := roles(self.settings.on)):
            places = range(number, len(records), len(on))
            texts = [records[place].text for place in places]
            answers.update(
                zip(places, zip(encoder.tokenize(texts, role), self.teacher(texts, role), strict=True), strict=True)
            )
        pieces = encoder.tokenizer.convert_ids_to_tokens
        lessons = [(ids, answer, stretches(pieces(ids), answer.pieces)) for _, (ids, answer) in sorted(answers.items())]
        for hidden in {answer.last.shape[-1] for _, answer, _ in lessons} - {self.dim}:
            raise BadInput(f"state_distillation: the teacher's states have {hidden} numbers, the model's {self.dim}.")
        last = _taught([stretch_means(answer.last, theirs) for _, answer, (_, theirs) in lessons])
        inner: Sequence[Taught | None] = [None] * len(lessons)
        if self.early is not None:
            inner = _taught([stretch_means(cast(Tensor, answer.inner), theirs) for _, answer, (_, theirs) in lessons])
        rows: list[MaskedRow] = []
        for (ids, answer, (numbers, _)), above, within in zip(lessons, last, inner, strict=True):
            begins = [numbers.index(number) for number in range(len(above.states))]
            vector = self.represent(answer.last, torch.tensor([len(answer.last)]))[0]
            rows.append(TaughtRow(ids, [(place, ids[place]) for place in begins], numbers, above, within, vector))
        return Spans(rows, records)

    def represent(self, states: Tensor, lengths: Tensor) -> Tensor:
        sizes = lengths.to(states.device)
        if self.pooling == "cls":
            return states[sizes.cumsum(0) - sizes]
        text = torch.arange(len(sizes), device=states.device).repeat_interleave(sizes)
        sums = torch.zeros(len(sizes), states.shape[1], device=states.device).index_add(0, text, states.float())
        return sums / sizes[:, None]

    def contrastive(self, spans: Spans, vectors: TokenVectors) -> Loss:
        rows, records = cast(list[TaughtRow], spans.rows), require(spans.records, Sentence, self)
        targets = F.normalize(torch.stack([row.vector for row in rows]).float(), dim=-1)
        student, teacher = (
            F.normalize(part - targets.mean(0), dim=-1)
            for part in (F.normalize(vectors.vectors.float(), dim=-1), targets)
        )
        numbers: dict[tuple[int, ...], int] = {}
        groups = torch.tensor([numbers.setdefault(tuple(row.ids), len(numbers)) for row in rows])
        cosine = (student * teacher).sum(-1)
        temperature = self.settings.temperature
        picking = distil_contrastive(student, teacher, temperature=temperature, groups=groups, reduction="none")
        losses = 1 - cosine + picking
        report = by_language([record.lang for record in records], losses)
        return Loss(losses.mean(), {"cosine": cosine.mean().item(), **report})

    def token_losses(
        self, rows: list[MaskedRow], states: Tensor, lengths: Tensor, early: Tensor | None, encoder: RoleEncoder
    ) -> dict[str, Tensor]:
        taught_rows = cast(list[TaughtRow], rows)
        numbers, offset = list[int](), 0
        for row in taught_rows:
            numbers.extend(number if number < 0 else offset + number for number in row.numbers)
            offset += len(row.targets)
        losses = {"last": _compared(stretch_means(states, numbers), [row.last for row in taught_rows])}
        if early is not None and self.early is not None:
            inner = [row.inner for row in taught_rows if row.inner is not None]
            losses["inner"] = _compared(stretch_means(early, numbers), inner)
        return losses


def _taught(texts: list[Tensor]) -> list[Taught]:
    """The states of each text with σ of all together."""
    scale = scale_of(torch.cat(texts))
    return [Taught(states, scale) for states in texts]


def _compared(student: Tensor, teacher: Sequence[Taught]) -> Tensor:
    return distil_states(student, torch.cat([row.states for row in teacher]), teacher[0].scale, reduction="none")
