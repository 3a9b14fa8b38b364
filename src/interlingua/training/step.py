"""One step's gradients (Hu et al. 2023, eq. 4; C3's spans), with or without a gradient cache.

The cache is that of `encoding.py` (Gao et al. 2021) with the vectors of all tokens in it: (1) every chunk is read
without a graph, its random state kept; (2) the contrastive loss is computed on the gathered vectors, its gradient on
them kept; (3) every chunk is read again with its random state, and ⟨vectors, gradient⟩ goes backward together with the
chunk's masked-LM losses. Without a cache the graphs of (1) are kept and nothing is read again. The masked-LM losses are
computed in (3) either way: only one chunk's logits over the vocabulary are ever held. They are divided by the
predictions of the whole batch, so that chunks do not change their weight (in coCondenser's trainer they do).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from interlingua.errors import BadInput
from interlingua.models.encode import TokenVectors, token_batches, token_rows
from interlingua.models.late_interaction import Model
from interlingua.objectives.objective import Batch, Loss, MaskedRow, Objective, SpanObjective, Text, TokenObjective
from interlingua.training.encoding import Chunking, Encoded, RandomState
from interlingua.training.processes import Processes

States = tuple[Tensor, Tensor, Tensor | None]
"""Last states `[tokens, hidden]`, lengths `[spans]`, early states `[tokens, hidden]`, as `Encoder.token_states`."""


def span_gradients(
    objective: SpanObjective,
    weight: float,
    encoder: Any,
    batch: Batch,
    step: int,
    chunking: Chunking,
    processes: Processes,
) -> dict[str, Loss]:
    """Add the gradient of weight · (contrastive loss + Σ_name weights[name] · token loss) to the parameters of the
    encoder and the objective, for this process's share of the spans.

    Returns the losses of the whole batch, none times its weight: the contrastive one as "", the others by name.
    """
    spans = objective.spans(batch, encoder, step)
    read = ReadSpans(objective, encoder, spans.rows, chunking, processes)
    contrast = objective.contrastive(spans, TokenVectors(read.leaf, read.counts))
    contrast.report["predictions"] = float(read.predictions)
    (gradient,) = torch.autograd.grad(weight * contrast.value, read.leaf)
    totals = read.backward(gradient, weight)
    return {
        "": Loss(contrast.value.detach(), contrast.report, contrast.warning),
        **{name: Loss(torch.tensor(processes.total(total))) for name, total in totals.items()},
    }


class ReadSpans:
    """The vectors of all spans of a step. `leaf` is `[vectors, dim]` float32, `counts[i]` of them for row i, in order,
    cut off from the encoder; `backward` pushes a gradient on it, and the token losses, into the parameters."""

    def __init__(
        self, objective: SpanObjective, encoder: Any, rows: list[MaskedRow], chunking: Chunking, processes: Processes
    ) -> None:
        self.objective, self.encoder, self.rows = objective, encoder, rows
        self.chunking, self.processes = chunking, processes
        self.predictions = max(1, sum(len(row.targets) for row in rows))
        sizes = [len(row.ids) for row in rows]
        self.counts = sizes if objective.per_token else [1] * len(rows)
        shares = processes.share(sorted(range(len(rows)), key=lambda number: (sizes[number], number)))
        chunks = [
            [
                [share[place] for place in chunk]
                for chunk in token_batches([sizes[number] for number in share], chunking.tokens, chunking.cache)
            ]
            for share in shares
        ]
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


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of the loss: w_o · loss_o. `reads`: which of the recipe's data stands for a stream of the objective,
    where it is not called so."""

    name: str
    objective: Objective
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
                raise BadInput(
                    f"objective '{self.name}' needs data named '{name}'; the recipe has "
                    f"{', '.join(sorted(available)) or 'none'}."
                )
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
        details = {
            key: [part.details[key] for part in parts if key in part.details]
            for key in dict.fromkeys(key for part in parts for key in part.details)
        }
        warning = next((part.warning for part in parts if part.warning), None)
        found[name] = Report(
            sum(part.loss for part in parts) / len(parts),
            {key: sum(values) / len(values) for key, values in details.items()},
            parts[-1].gradient_norm,
            parts[-1].vectors,
            warning,
        )
    return found


def groups(terms: list[Term], available: Iterable[str], share: bool = True) -> list[list[Term]]:
    """Contrastive objectives with a stream in common together; every token or span objective alone."""
    available, found = list(available), list[tuple[set[str], list[Term]]]()
    for term in terms:
        streams = set(term.streams(available))
        joined = [
            group
            for group in found
            if share
            and streams & group[0]
            and not isinstance(term.objective, TokenObjective)
            and not isinstance(group[1][0].objective, TokenObjective)
        ]
        for group in joined:
            found.remove(group)
        found.append((streams.union(*[g[0] for g in joined]), [t for g in joined for t in g[1]] + [term]))
    return [members for _, members in found]


def backward(
    group: list[Term],
    model: Model,
    batch: Batch,
    step: int,
    chunking: Chunking,
    processes: Processes,
    measure: bool = False,
    balance: bool = False,
) -> dict[str, Report]:
    """Add the gradient of one group to the parameters; the reports, by objective.

    With `measure`, also each contrastive objective's own (weighted) gradient norm on the encoders, and its vectors.
    With `balance`, each contrastive objective's gradient on the vectors is `balanced`; the gradient of its own
    parameters and the token and span objectives are left as they are.
    """
    first = group[0].objective
    if isinstance(first, SpanObjective):
        return _spans(group[0], first, model, group[0].batch(batch), step, chunking, processes)
    if isinstance(first, TokenObjective):
        return {group[0].name: _tokens(group[0], first, model, group[0].batch(batch), step, chunking, processes)}
    return _contrastive(group, model, batch, chunking, processes, measure, balance)


def _contrastive(
    group: list[Term],
    model: Model,
    batch: Batch,
    chunking: Chunking,
    processes: Processes,
    measure: bool,
    balance: bool,
) -> dict[str, Report]:
    # `groups` puts a token objective in a group of its own, so all of these are contrastive
    objectives = {term.name: term.objective for term in group}
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
        vectors = {
            name: encoded[texts.role].take([unique[texts.role][text] for text in texts.texts])
            for name, texts in requests[term.name].items()
        }
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
    for parameter, gradient in zip(own, found[len(leaves) :], strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return {
        role: torch.zeros_like(leaf) if g is None else g for (role, leaf), g in zip(leaves.items(), found, strict=False)
    }


def balanced(pull: dict[str, Tensor], weight: float) -> dict[str, Tensor]:
    """An objective's gradient on the vectors of every role, `[texts, dim]` each, scaled so that the Euclidean norm of
    all of it together is |weight|. A zero gradient stays zero.

    The norms of any two objectives, also of different groups, then are as their weights, whatever the size of the
    losses (METHODS §2.4: the language loss pulls far less than the others). On the encoders' parameters they
    need not be: there the gradients of different texts add up or cancel.
    """
    norm = gradient_norm(pull.values())
    return {role: gradient * (abs(weight) / norm) for role, gradient in pull.items()} if norm > 0 else pull


def _tokens(
    term: Term,
    objective: TokenObjective,
    model: Model,
    batch: Batch,
    step: int,
    chunking: Chunking,
    processes: Processes,
) -> Report:
    encoder = model.query if objective.role == "query" else model.passage
    rows = objective.spans(batch, encoder, step).rows
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
            losses = objective.token_losses(picked, states, lengths, None, encoder)[""]
        loss = losses.float().sum() / count
        _check(loss, term.name)
        torch.autograd.backward(term.weight * loss)
        total += loss.item()
    return Report(processes.total(total), {"predictions": float(count)})


def _spans(
    term: Term,
    objective: SpanObjective,
    model: Model,
    batch: Batch,
    step: int,
    chunking: Chunking,
    processes: Processes,
) -> dict[str, Report]:
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
        raise BadInput(
            f"the loss of '{name}' is {loss.item()}. The last checkpoint is untouched. Lower "
            "optimizer.lr or raise the temperature, and look at the data for empty texts."
        )


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
