"""One step's gradients (Hu et al. 2023, eq. 4): the one path of every objective, with or without a gradient cache.

What the objectives read is encoded (`encoding.py`), their losses are computed on the vectors, and the gradients on the
vectors go backward, together with the losses of tokens to predict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interlingua.models.encode import TokenVectors
from interlingua.models.late_interaction import Model
from interlingua.objectives.objective import Batch, Loss, SpanObjective, Text, TokenObjective, loss_of
from interlingua.training.encoding import Chunking, Encoded, EncodedRows, EncodedTexts, encoder_of, require_finite
from interlingua.training.optimizer import gradient_norm
from interlingua.training.processes import Processes
from interlingua.training.weighted import WeightedObjective


@dataclass(slots=True)
class Report:
    """The result of one objective in one step."""

    loss: float
    details: dict[str, float] = field(default_factory=dict)
    gradient_norm: float | None = None
    vectors: dict[str, Tensor] = field(default_factory=dict)
    warning: str | None = None


def merged(reports: list[dict[str, Report]]) -> dict[str, Report]:
    """One report an objective out of those of the batches of a step: means, and the vectors of the last."""
    result: dict[str, Report] = {}
    for name in reports[-1]:
        parts = [report[name] for report in reports]
        details = {
            key: [part.details[key] for part in parts if key in part.details]
            for key in dict.fromkeys(key for part in parts for key in part.details)
        }
        warning = next((part.warning for part in parts if part.warning), None)
        result[name] = Report(
            sum(part.loss for part in parts) / len(parts),
            {key: sum(values) / len(values) for key, values in details.items()},
            parts[-1].gradient_norm,
            parts[-1].vectors,
            warning,
        )
    return result


def groups(
    objectives: list[WeightedObjective], available: Iterable[str], share: bool = True
) -> list[list[WeightedObjective]]:
    """Contrastive objectives with a stream in common together; every token or span objective alone."""
    available, clusters = list(available), list[tuple[set[str], list[WeightedObjective]]]()
    for weighted in objectives:
        streams = set(weighted.streams(available))
        matches = [
            group
            for group in clusters
            if share
            and streams & group[0]
            and not isinstance(weighted.objective, TokenObjective)
            and not isinstance(group[1][0].objective, TokenObjective)
        ]
        for group in matches:
            clusters.remove(group)
        clusters.append((streams.union(*[g[0] for g in matches]), [t for g in matches for t in g[1]] + [weighted]))
    return [members for _, members in clusters]


Compared = tuple[WeightedObjective, Loss, Mapping[str, Tensor | TokenVectors]]
"""An objective, its loss on the vectors of a batch, and these vectors by name."""


def backward(
    group: list[WeightedObjective],
    model: Model,
    batch: Batch,
    step: int,
    chunking: Chunking,
    processes: Processes,
    measure: bool = False,
    balance: bool = False,
) -> dict[str, Report]:
    """Add the gradient of one group, times the loss scale, to the parameters; the reports, by objective. Token losses
    beside a contrastive one have a report of their own, `objective.name`.

    With `measure`, also each contrastive objective's own (weighted) gradient norm on the encoders, of two encoders also
    that on the passage encoder alone, and its vectors.
    With `balance`, each contrastive objective's gradient on the vectors is `balanced`; the gradient of its own
    parameters and the token and span objectives are left as they are.
    """
    tokens = isinstance(group[0].objective, TokenObjective)
    measure, balance = measure and not tokens, balance and not tokens
    encoded, compared = (
        _rows(group[0], model, batch, step, chunking, processes)
        if tokens
        else _texts(group, model, batch, chunking, processes)
    )
    reports: dict[str, Report] = {}
    pulls: dict[str, dict[str, Tensor]] = {}
    for weighted, loss, vectors in compared:
        require_finite(loss.value, weighted.name)
        reports[weighted.name] = Report(loss.value.item(), loss.report, warning=loss.warning)
        if measure:
            reports[weighted.name].vectors = {n: v.detach() for n, v in vectors.items() if isinstance(v, Tensor)}
        pull = _pull(weighted, loss.value, encoded, chunking.scale)
        pulls[weighted.name] = balanced(pull, weighted.weight) if balance else pull
    if measure:
        parameters = list(model.parameters())
        passage = {*encoder_of(model, "passage").parameters()}
        for number, (name, gradients) in enumerate(pulls.items()):
            before = [parameter.grad for parameter in parameters]
            for parameter in parameters:  # so that what this one adds can be told
                parameter.grad = None
            for key, part in encoded.items():
                part.backward(gradients[key], retain=number < len(pulls) - 1)
            added = processes.sum(parameters, [parameter.grad for parameter in parameters])
            for parameter, earlier in zip(parameters, before, strict=True):
                if earlier is not None:
                    parameter.grad = earlier if parameter.grad is None else earlier + parameter.grad
            reports[name].gradient_norm = gradient_norm(added) / chunking.scale
            if len(passage) < len(parameters):  # two encoders: by this one the losses' weights are compared
                own = [gradient for weight, gradient in zip(parameters, added, strict=True) if weight in passage]
                reports[name].details["passage_gradient_norm"] = gradient_norm(own) / chunking.scale
        return reports
    for key, part in encoded.items():
        summands = [gradients[key] for gradients in pulls.values()]
        part.backward(sum(summands[1:], summands[0]) if summands else None)
        if isinstance(part, EncodedRows):
            count = {"predictions": float(part.predictions)}
            for name, total in part.totals.items():
                owner = part.weighted.name
                reports[f"{owner}.{name}" if name else owner] = Report(processes.total(total), {} if name else count)
    return reports


def _texts(
    group: list[WeightedObjective], model: Model, batch: Batch, chunking: Chunking, processes: Processes
) -> tuple[dict[str, Encoded], Iterator[Compared]]:
    """The texts of all objectives of a group by role, each text once, and the losses on their vectors."""
    batches = {weighted.name: weighted.batch(batch) for weighted in group}
    requests = {weighted.name: weighted.objective.requests(batches[weighted.name]) for weighted in group}
    unique: dict[str, dict[Text, int]] = {}
    for request in requests.values():
        for texts in request.values():
            rows = unique.setdefault(texts.role, {})
            for text in texts.texts:
                rows.setdefault(text, len(rows))
    encoded = {role: EncodedTexts(model, role, list(rows), chunking, processes) for role, rows in unique.items()}

    def compared() -> Iterator[Compared]:
        for weighted in group:
            vectors = {
                name: encoded[texts.role].take([unique[texts.role][text] for text in texts.texts])
                for name, texts in requests[weighted.name].items()
            }
            yield weighted, loss_of(weighted.objective, batches[weighted.name], vectors), vectors

    return dict(encoded), compared()


def _rows(
    weighted: WeightedObjective, model: Model, batch: Batch, step: int, chunking: Chunking, processes: Processes
) -> tuple[dict[str, Encoded], Iterator[Compared]]:
    """The rows of a token objective, and the loss on their vectors if it compares them."""
    objective = weighted.objective
    assert isinstance(objective, TokenObjective)
    encoder = encoder_of(model, objective.role)
    spans = objective.spans(weighted.batch(batch), encoder, step)
    rows = EncodedRows(weighted, encoder, spans.rows, chunking, processes)

    def compared() -> Iterator[Compared]:
        if isinstance(objective, SpanObjective):
            vectors = TokenVectors(rows.leaf, rows.counts)
            loss = objective.contrastive(spans, vectors)
            loss.report["predictions"] = float(rows.predictions)
            yield weighted, loss, {"": vectors}

    return {"": rows}, compared()


def _pull(weighted: WeightedObjective, loss: Tensor, encoded: Mapping[str, Encoded], scale: float) -> dict[str, Tensor]:
    """∂(weight · loss)/∂vectors for each encoding; the objective's own parameters get their gradient here, times the
    loss scale as all parameters do."""
    parameters = [p for p in weighted.objective.parameters() if p.requires_grad]
    leaves = {key: part.leaf for key, part in encoded.items()}
    grads = torch.autograd.grad(weighted.weight * loss, [*leaves.values(), *parameters], allow_unused=True)
    for parameter, gradient in zip(parameters, grads[len(leaves) :], strict=True):
        if gradient is not None:
            gradient = gradient * scale
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return {
        key: torch.zeros_like(leaf) if g is None else g for (key, leaf), g in zip(leaves.items(), grads, strict=False)
    }


def balanced(pull: dict[str, Tensor], weight: float) -> dict[str, Tensor]:
    """An objective's gradient on the vectors of every role, `[texts, dim]` each, scaled so that the Euclidean norm of
    all of it together is |weight|. A zero gradient stays zero.

    The norms of any two objectives, also of different groups, then are as their weights, whatever the size of the
    losses: the gradient of the language loss (Hu et al. 2023, eq. 3) is far smaller than those of the others. On the
    encoders' parameters they need not be: there the gradients of different texts add up or cancel.
    """
    norm = gradient_norm(pull.values())
    return {role: gradient * (abs(weight) / norm) for role, gradient in pull.items()} if norm > 0 else pull
