"""The contract of `objectives/objective.py`, held against every objective that a recipe can name."""

from collections.abc import Mapping

import pytest
import torch

from interlingua.data.linked import SpanPair
from interlingua.data.records import ContextPair, ParallelPair, Passage, QuestionPassage, Sentence
from interlingua.errors import BadInput
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import TokenVectors
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.objectives import SpanObjective, TokenObjective
from interlingua.objectives.state_distillation import Answer
from interlingua.training.encoding import Chunking
from interlingua.training.processes import Processes
from interlingua.training.step import backward
from interlingua.training.weighted import OBJECTIVES, WeightedObjective

WORDS = "the keeper wrote every storm into a small blue book about stars of southern sky rivers meet below town".split()
PAIRS = 5


def text(seed):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (5 + seed % 9,), generator=generator))


def passage(seed):
    return Passage(f"p{seed}", text(seed), title=text(seed + 900))


def answers(model):
    """A teacher that cuts texts as the model does."""

    def answer(texts, role):
        ids = model.encoder(role).tokenize(texts, role)
        cut = [model.encoder(role).tokenizer.convert_ids_to_tokens(row) for row in ids]
        rows = [torch.tensor(row)[:, None] / torch.arange(1.0, 33.0) for row in ids]
        return [Answer(pieces, row, row.flip(1)) for pieces, row in zip(cut, rows, strict=True)]

    return answer


STREAMS = {
    "questions": [QuestionPassage(text(i), (passage(i + 50),), (passage(i + 100),), lang="en") for i in range(PAIRS)],
    "parallel": [ParallelPair(text(i + 200), text(i + 250), "fi", "en") for i in range(PAIRS)],
    "sentences": [Sentence(text(i + 300), "fi") for i in range(PAIRS)],
    "contexts": [ContextPair(text(i + 400), text(i + 450), "fi", i) for i in range(PAIRS)],
    "linked": [SpanPair(text(i + 500), text(i + 550), "fi", i / 6, 1 - (i + 1) / 6, f"g{i}") for i in range(PAIRS)],
}
OPTIONS = {
    "distillation": {"teacher": lambda texts: torch.stack([torch.arange(32.0) + len(text) for text in texts])},
    "state_distillation": lambda model: {"teacher": answers(model), "layer": 1, "on": "passage"},
    "context_prediction": {"bank": 8},
    "comparable": {"span": 12, "min_tokens": 3},
}
FORMATS = [torch.float32, torch.float16, torch.bfloat16]
KINDS = sorted(OBJECTIVES)
COMPARING = [name for name in KINDS if not issubclass(OBJECTIVES[name], TokenObjective)]
TOKENS = [name for name in KINDS if name not in COMPARING]
MASKING = [name for name in TOKENS if name != "state_distillation"]


class Watched(Mapping):
    """A batch that notes which of its streams are read."""

    def __init__(self, streams):
        self.streams, self.read = streams, set()

    def __getitem__(self, name):
        self.read.add(name)
        return self.streams[name]

    def __iter__(self):
        return iter(self.streams)

    def __len__(self):
        return len(self.streams)


@pytest.fixture
def model(tiny_encoder):
    def make(name):
        encoder = tiny_encoder(layers=2)
        if OBJECTIVES[name].multi_vector:
            return LateInteractionEncoder.start(encoder, dim=8, query_length=16, document_length=40, seed=0).eval()
        return DualEncoder.untied(encoder).eval()

    return make


def options_of(name, model):
    options = OPTIONS.get(name, {})
    return options(model) if callable(options) else options


def objective_of(name, model):
    torch.manual_seed(0)
    return OBJECTIVES[name].for_model(model, 0, options_of(name, model)).eval()


def stream_names(objective):
    return {stream.removesuffix("?") for stream in objective.streams}


def strings(record):
    """Every text of a record, and titled ones as an encoder takes them."""
    if isinstance(record, QuestionPassage):
        passages = [*record.positives, *record.negatives]
        return {record.question, *((one.title, one.text) for one in passages)}
    if isinstance(record, ParallelPair):
        return {record.source, record.target, (record.source, record.target)}
    if isinstance(record, ContextPair):
        return {record.center, record.target}
    return {record.source, record.target} if isinstance(record, SpanPair) else {record.text}


def leaves(objective, requests, dtype):
    """Random vectors for what is requested: the leaves, and what `loss` takes."""
    generator, found, given = torch.Generator().manual_seed(3), {}, {}
    for name, texts in requests.items():
        counts = [3] * len(texts.texts) if objective.multi_vector else [1] * len(texts.texts)
        found[name] = torch.randn(sum(counts), 32, generator=generator).to(dtype).requires_grad_()
        given[name] = TokenVectors(found[name], counts) if objective.multi_vector else found[name]
    return found, given


def token_leaves(objective, model, batch, dtype=torch.float32):
    """Random states of what a token objective reads: the leaves, and its loss on them."""
    encoder = model.encoder(objective.role)
    spans, generator = objective.spans(batch, encoder, 0), torch.Generator().manual_seed(4)
    lengths = torch.tensor([len(row.ids) for row in spans.rows], dtype=torch.long)
    states, early = (
        torch.randn(int(lengths.sum()), 32, generator=generator).to(dtype).requires_grad_() for _ in range(2)
    )
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        losses = objective.token_losses(spans.rows, states, lengths, early, encoder)
        vectors = objective.represent(states, lengths) if isinstance(objective, SpanObjective) else None
    value = sum(objective.weights[name] * part.float().sum() for name, part in losses.items())
    if vectors is not None:
        counts = lengths.tolist() if objective.per_token else [1] * len(lengths)
        value = value + objective.contrastive(spans, TokenVectors(vectors, counts)).value
    return spans, losses, states, value


@pytest.mark.parametrize("name", COMPARING)
def test_it_requests_texts_of_its_streams_and_nothing_else(model, name):
    objective, batch = objective_of(name, model(name)), Watched(STREAMS)
    requests = objective.requests(batch)
    streams = stream_names(objective)
    assert batch.read <= streams
    known = set().union(*(strings(record) for stream in streams for record in STREAMS[stream]))
    wanted = [text for texts in requests.values() for text in texts.texts]
    assert wanted
    assert set(wanted) <= known
    assert {texts.role for texts in requests.values()} <= {"query", "passage"}
    assert requests == objective.requests(batch)


@pytest.mark.parametrize("name", MASKING)
def test_it_masks_tokens_of_its_streams_without_reading_them(model, name, monkeypatch):
    whole = model(name)
    objective, batch, encoder = objective_of(name, whole), Watched(STREAMS), whole.passage
    monkeypatch.setattr(type(encoder), "forward", None)
    monkeypatch.setattr(type(encoder), "token_states", None)
    spans = objective.spans(batch, encoder, 0)
    assert batch.read <= stream_names(objective)
    assert spans == objective.spans(batch, encoder, 0)
    assert spans != objective.spans(batch, encoder, 1)
    known = [strings(record) for stream in stream_names(objective) for record in STREAMS[stream]]
    known = {word for texts in known for text in texts if isinstance(text, str) for word in text.split()}
    for row in spans.rows:
        masked = dict(row.targets)
        ids = [masked.get(place, token) for place, token in enumerate(row.ids)]
        read = encoder.tokenizer.decode(ids, skip_special_tokens=True).split()
        assert set(read[1:-1]) <= known  # a span may begin and end inside a word
    assert sum(len(row.targets) for row in spans.rows) > 0


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", COMPARING)
def test_its_loss_is_a_finite_float32_scalar_whose_gradient_reaches_every_text(model, name, dtype):
    objective = objective_of(name, model(name))
    requests = objective.requests(STREAMS)
    found, given = leaves(objective, requests, dtype)
    value = objective.loss(STREAMS, given).value
    assert (value.dtype, value.shape, value.requires_grad) == (torch.float32, (), True)
    assert torch.isfinite(value)
    value.backward()
    for leaf in found.values():
        assert torch.isfinite(leaf.grad).all()
        per_text = leaf.grad.unflatten(0, (-1, 3)).flatten(1) if objective.multi_vector else leaf.grad
        assert per_text.any(dim=1).all()


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", TOKENS)
def test_its_token_losses_reach_every_predicted_state(model, name, dtype):
    whole = model(name)
    objective = objective_of(name, whole)
    spans, losses, states, value = token_leaves(objective, whole, STREAMS, dtype)
    predictions = sum(len(row.targets) for row in spans.rows)
    assert losses.keys() == objective.weights.keys()
    for part in losses.values():
        assert (part.dtype, part.shape) == (torch.float32, (predictions,))
    assert (value.dtype, value.shape) == (torch.float32, ())
    assert torch.isfinite(value)
    value.backward()
    starts = torch.tensor([0, *(len(row.ids) for row in spans.rows)]).cumsum(0).tolist()
    predicted = {start + place for start, row in zip(starts, spans.rows, strict=False) for place, _ in row.targets}
    reached = set(states.grad.any(dim=1).nonzero().flatten().tolist())
    assert predicted <= reached
    assert isinstance(objective, SpanObjective) or predicted == reached


@pytest.mark.parametrize("name", COMPARING)
def test_an_empty_batch_teaches_nothing(model, name):
    objective = objective_of(name, model(name))
    empty = {stream: [] for stream in STREAMS}
    requests = objective.requests(empty)
    assert not any(texts.texts for texts in requests.values())
    found, given = leaves(objective, requests, torch.float32)
    value = objective.loss(empty, given).value
    assert (value.item(), value.dtype, value.shape) == (0.0, torch.float32, ())
    value.backward()
    assert all(leaf.grad is not None for leaf in found.values())
    assert not any(parameter.grad.any() for parameter in objective.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("name", TOKENS)
def test_an_empty_batch_has_no_token_to_predict(model, name):
    whole, empty = model(name), {stream: [] for stream in STREAMS}
    objective = objective_of(name, whole)
    if isinstance(objective, SpanObjective):
        with pytest.raises(BadInput, match="nothing to tell apart"):
            objective.spans(empty, whole.passage, 0)
        return
    spans, losses, _, value = token_leaves(objective, whole, empty)
    assert spans.rows == []
    assert all(part.shape == (0,) for part in losses.values())
    assert value.item() == 0
    value.backward()
    assert not any(parameter.grad.any() for parameter in objective.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("name", KINDS)
def test_its_options_are_those_of_its_settings(model, name):
    kind, whole = OBJECTIVES[name], model(name)
    options = options_of(name, whole)
    given = {**options, **({"teacher": "a/model"} if "teacher" in options else {})}
    chosen = kind.Settings.checked(given, name)
    assert kind.Settings.checked(chosen.model_dump(mode="json"), name) == chosen
    assert all(field.description for field in kind.Settings.model_fields.values())
    torch.manual_seed(0)
    objective = kind.for_model(whole, 0, options)
    assert {option: getattr(objective.settings, option) for option in options} == options


@pytest.mark.parametrize("name", KINDS)
def test_its_gradients_are_the_same_with_a_gradient_cache(model, name):
    alone, whole = Processes(0, 1, torch.device("cpu")), model(name)
    found = []
    for chunking in (Chunking(), Chunking(cache=2), Chunking(tokens=40, cache=4)):
        objective = objective_of(name, whole)
        whole.zero_grad()
        torch.manual_seed(7)
        backward([WeightedObjective(name, objective, 0.7)], whole, STREAMS, 0, chunking, alone)
        named = [*whole.named_parameters(), *((f"objective {n}", p) for n, p in objective.named_parameters())]
        found.append({n: p.grad.clone() for n, p in named if p.grad is not None})
    assert any(gradient.any() for gradient in found[0].values())
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for parameter, gradient in other.items():
            torch.testing.assert_close(gradient, found[0][parameter], atol=1e-5, rtol=1e-4)
