"""One step's gradients (Hu et al. 2023, eq. 4): L = Σ_o w_o · loss_o, one group of objectives after the other, so
that one graph is alive at a time. Objectives that read the same stream form a group and share its encoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from interlingua.errors import InterlinguaError
from interlingua.models.encode import token_batches
from interlingua.models.loading import Model
from interlingua.objectives.objective import Batch, Objective, SpanObjective, Text, TokenObjective
from interlingua.training.encoding import Chunking, Encoded
from interlingua.training.processes import Processes
from interlingua.training.spans import span_gradients


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of the loss: w_o · loss_o. `reads`: which of the recipe's data stands for a stream of the objective,
    where it is not called so."""

    name: str
    objective: Objective | TokenObjective | SpanObjective
    weight: float = 1.0
    reads: Mapping[str, str] = field(default_factory=dict)

    def streams(self, available: Iterable[str]) -> list[str]:
        """The data this objective reads, of those that the recipe has; a missing required one is an error."""
        available, found = set(available), []
        for stream in self.objective.streams:
            name = self.reads.get(stream.removesuffix("?"), stream.removesuffix("?"))
            if name in available:
                found.append(name)
            elif not stream.endswith("?"):
                raise InterlinguaError(f"objective '{self.name}' needs data named '{name}'; the recipe has "
                                       f"{', '.join(sorted(available)) or 'none'}.")
        return found

    def batch(self, drawn: Batch) -> Batch:
        """What was drawn from the recipe's data, under the names of the objective's streams."""
        return {**drawn, **{stream: drawn[name] for stream, name in self.reads.items() if name in drawn}}


@dataclass(slots=True)
class Report:
    """What one objective did in one step."""

    loss: float
    details: dict[str, float] = field(default_factory=dict)
    gradient_norm: float | None = None
    vectors: dict[str, Tensor] = field(default_factory=dict)
    warning: str | None = None


def merged(reports: list[dict[str, Report]]) -> dict[str, Report]:
    """One report an objective out of those of the batches of a step: means, and the vectors of the last."""
    found: dict[str, Report] = {}
    for name in reports[-1]:
        parts = [report[name] for report in reports]
        details = {key: [part.details[key] for part in parts if key in part.details]
                   for key in dict.fromkeys(key for part in parts for key in part.details)}
        warning = next((part.warning for part in parts if part.warning), None)
        found[name] = Report(sum(part.loss for part in parts) / len(parts),
                             {key: sum(values) / len(values) for key, values in details.items()},
                             parts[-1].gradient_norm, parts[-1].vectors, warning)
    return found


def groups(terms: list[Term], available: Iterable[str], share: bool = True) -> list[list[Term]]:
    """Contrastive objectives with a stream in common together; every token or span objective alone."""
    available, found = list(available), list[tuple[set[str], list[Term]]]()
    for term in terms:
        streams = set(term.streams(available))
        joined = [group for group in found if share and isinstance(term.objective, Objective) and streams & group[0]
                  and isinstance(group[1][0].objective, Objective)]
        for group in joined:
            found.remove(group)
        found.append((streams.union(*[g[0] for g in joined]), [t for g in joined for t in g[1]] + [term]))
    return [members for _, members in found]


def backward(group: list[Term], model: Model, batch: Batch, step: int, chunking: Chunking, processes: Processes,
             measure: bool = False, balance: bool = False) -> dict[str, Report]:
    """Add the gradient of one group to the parameters; the reports, by objective.

    With `measure`, also each contrastive objective's own (weighted) gradient norm on the encoders, and its vectors.
    With `balance`, each contrastive objective's gradient on the vectors is `balanced`; the gradient of its own
    parameters and the token and span objectives are left as they are.
    """
    first = group[0].objective
    if isinstance(first, TokenObjective):
        return {group[0].name: _tokens(group[0], first, model, group[0].batch(batch), step, chunking, processes)}
    if isinstance(first, SpanObjective):
        return _spans(group[0], first, model, group[0].batch(batch), step, chunking, processes)
    return _contrastive(group, model, batch, chunking, processes, measure, balance)


def _contrastive(group: list[Term], model: Model, batch: Batch, chunking: Chunking, processes: Processes,
                 measure: bool, balance: bool) -> dict[str, Report]:
    # `groups` puts a token objective in a group of its own, so all of these are contrastive
    objectives = {term.name: cast(Objective, term.objective) for term in group}
    drawn = {term.name: term.batch(batch) for term in group}
    requests = {name: objective.requests(drawn[name]) for name, objective in objectives.items()}
    unique: dict[str, dict[Text, int]] = {}
    for wanted in requests.values():
        for texts in wanted.values():
            rows = unique.setdefault(texts.role, {})
            for text in texts.texts:
                rows.setdefault(text, len(rows))
    encoded = {role: Encoded(model, role, list(rows), chunking, processes) for role, rows in unique.items()}
    reports: dict[str, Report] = {}
    pulls: list[tuple[str, dict[str, Tensor]]] = []
    for term in group:
        vectors = {name: encoded[texts.role].take([unique[texts.role][text] for text in texts.texts])
                   for name, texts in requests[term.name].items()}
        loss = objectives[term.name].loss(drawn[term.name], vectors)
        _check(loss.value, term.name)
        reports[term.name] = Report(loss.value.item(), loss.report, warning=loss.warning)
        if measure:
            reports[term.name].vectors = {name: v.detach() for name, v in vectors.items() if isinstance(v, Tensor)}
        pull = _pull(term, loss.value, encoded)
        pulls.append((term.name, balanced(pull, term.weight) if balance else pull))
    if not measure:
        total = {role: sum((g[role] for _, g in pulls), torch.zeros_like(encoded[role].leaf)) for role in encoded}
        for role, part in encoded.items():
            part.backward(total[role])
        return reports
    parameters = list(model.parameters())
    for number, (name, gradients) in enumerate(pulls):
        with _Apart(parameters) as apart:
            for role, part in encoded.items():
                part.backward(gradients[role], retain=number < len(pulls) - 1)
        reports[name].gradient_norm = apart.norm(processes)
    return reports


def _pull(term: Term, loss: Tensor, encoded: dict[str, Encoded]) -> dict[str, Tensor]:
    """∂(weight · loss)/∂vectors for each role; the objective's own parameters get their gradient here."""
    own = [p for p in term.objective.parameters() if p.requires_grad]
    leaves = {role: part.leaf for role, part in encoded.items()}
    found = torch.autograd.grad(term.weight * loss, [*leaves.values(), *own], allow_unused=True)
    for parameter, gradient in zip(own, found[len(leaves):], strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return {role: torch.zeros_like(leaf) if g is None else g
            for (role, leaf), g in zip(leaves.items(), found, strict=False)}


def balanced(pull: dict[str, Tensor], weight: float) -> dict[str, Tensor]:
    """An objective's gradient on the vectors of every role, `[texts, dim]` each, scaled so that the Euclidean norm of
    all of it together is |weight|. A zero gradient stays zero.

    The norms of any two objectives, also of different groups, then are as their weights, whatever the size of the
    losses (METHODS §2.4: the language loss pulls far less than the others). On the encoders' parameters they
    need not be: there the gradients of different texts add up or cancel.
    """
    norm = gradient_norm(pull.values())
    return {role: gradient * (abs(weight) / norm) for role, gradient in pull.items()} if norm > 0 else pull


def _tokens(term: Term, objective: TokenObjective, model: Model, batch: Batch, step: int, chunking: Chunking,
            processes: Processes) -> Report:
    encoder = model.query if objective.role == "query" else model.passage
    rows = objective.rows(batch, encoder, step)
    count = sum(len(row.targets) for row in rows)
    if count == 0:
        return Report(0.0)
    by_size = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), i))
    mine = [rows[i] for i in processes.share(by_size)[processes.rank] if rows[i].targets]
    total = 0.0
    for chunk in token_batches([len(row.ids) for row in mine], chunking.tokens, chunking.cache):
        picked = [mine[i] for i in chunk]
        with torch.autocast("cuda", torch.bfloat16) if chunking.bf16 else nullcontext():
            states, lengths = encoder.token_states([row.ids for row in picked])
            starts = [0, *torch.as_tensor(lengths).cumsum(0).tolist()]
            where = [starts[i] + position for i, row in enumerate(picked) for position, _ in row.targets]
            targets = torch.tensor([token for row in picked for _, token in row.targets], device=states.device)
            losses = objective.token_loss(states[torch.tensor(where, device=states.device)], targets, encoder)
        loss = losses.float().sum() / count
        _check(loss, term.name)
        torch.autograd.backward(term.weight * loss)
        total += loss.item()
    return Report(processes.total(total), {"predictions": float(count)})


def _spans(term: Term, objective: SpanObjective, model: Model, batch: Batch, step: int, chunking: Chunking,
           processes: Processes) -> dict[str, Report]:
    """Reports of the contrastive loss under the objective's name and of each token loss under a name of its own."""
    encoder = model.query if objective.role == "query" else model.passage
    reports = {}
    for part, loss in span_gradients(objective, term.weight, encoder, batch, step, chunking, processes).items():
        name = f"{term.name}.{part}" if part else term.name
        _check(loss.value, name)
        reports[name] = Report(loss.value.item(), loss.report, warning=loss.warning)
    return reports


def _check(loss: Tensor, name: str) -> None:
    if not torch.isfinite(loss):
        raise InterlinguaError(f"the loss of '{name}' is {loss.item()}. The last checkpoint is untouched. Lower "
                               "optimizer.lr or raise the temperature, and look at the data for empty texts.")


class _Apart:
    """Within the block gradients start from nothing; on leaving, what was there before is added back."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters

    def __enter__(self) -> _Apart:
        self.before = [p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return self

    def __exit__(self, *error: object) -> None:
        self.inside = [p.grad for p in self.parameters]
        for parameter, before in zip(self.parameters, self.before, strict=True):
            if before is not None:
                parameter.grad = before if parameter.grad is None else before + parameter.grad

    def norm(self, processes: Processes) -> float:
        """The norm of what the block added, over all processes."""
        return gradient_norm(processes.sum(self.parameters, self.inside))


def gradient_norm(gradients: Iterable[Tensor | None]) -> float:
    """The Euclidean norm of gradients, dense and row-sparse together."""
    squares = [(g.coalesce().values() if g.is_sparse else g).float().pow(2).sum() for g in gradients if g is not None]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
