"""One step's gradients: chunks, cache, sharing and sequence change how they are computed, never what they are."""

import pytest
import torch

from interlingua.data.records import ParallelPair, Passage, QuestionPassage, Sentence
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.objectives import Language, MaskedLanguageModelling, Retrieval, Semantic
from interlingua.training.encoding import Chunking, Encoded
from interlingua.training.optimizer import LossScale
from interlingua.training.processes import Processes
from interlingua.training.step import backward, balanced, groups
from interlingua.training.weighted import WeightedObjective

ALONE = Processes(0, 1, torch.device("cpu"))
WORDS = "the keeper wrote every storm into a small blue book about stars of southern sky rivers meet below town".split()


def text(seed, length=8):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (2 + seed % length,), generator=generator))


def batch():
    passages = [Passage(f"p{i}", text(i + 50, 12)) for i in range(12)]
    return {
        "questions": [QuestionPassage(text(i), (passages[i],), (passages[6 + i],)) for i in range(6)],
        "parallel": [ParallelPair(text(i + 100), text(i % 4 + 200), "de", "en") for i in range(6)],
        "sentences": [Sentence(text(i + 300), "fi") for i in range(4)],
    }


def terms():
    return [
        WeightedObjective("retrieval", Retrieval(temperature=0.1), 1.0),
        WeightedObjective("semantic", Semantic(), 0.5),
        WeightedObjective("language", Language(temperature=0.1), 2.0),
    ]


def gradients(model, chunking, the_terms=None, share=True, measure=False, balance=False):
    model.zero_grad()
    the_terms = terms() if the_terms is None else the_terms
    reports = {}
    torch.manual_seed(7)
    for group in groups(the_terms, batch(), share):
        reports |= backward(group, model, batch(), 0, chunking, ALONE, measure, balance)
    return {n: p.grad.to_dense().clone() for n, p in model.named_parameters() if p.grad is not None}, reports


def same(a, b, atol=1e-6):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=atol, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.fixture
def untied(tiny_encoder):
    return DualEncoder.untied(tiny_encoder())


def joint(model):
    """Equation 4 in one graph, written out."""
    records = batch()
    total = 0
    for term in terms():
        vectors = {
            name: model.embed(texts.texts, texts.role) for name, texts in term.objective.requests(records).items()
        }
        total = total + term.weight * term.objective.loss(records, vectors).value
    model.zero_grad()
    total.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chunking", [Chunking(), Chunking(tokens=40), Chunking(cache=2), Chunking(tokens=30, cache=4)])
@pytest.mark.parametrize("share", [True, False])
def test_sequential_gradients_equal_the_joint_loss(untied, chunking, share):
    untied.eval()
    same(gradients(untied, chunking, share=share)[0], joint(untied))


def test_gradient_cache_replays_dropout(untied):
    """Dropout on: the cached gradients equal those of the same chunks with their graphs kept."""
    untied.train()
    kept, _ = gradients(untied, Chunking(tokens=48))
    # a cache of 1,000 texts a chunk cuts by tokens alone: the same chunks
    cached, _ = gradients(untied, Chunking(tokens=48, cache=1000))
    same(kept, cached)
    torch.manual_seed(8)
    assert any((kept[n] - g).abs().max() > 1e-4 for n, g in joint(untied).items())  # dropout really is on


def test_gradients_in_bfloat16_are_those_in_float32_but_for_rounding(untied):
    untied.eval()
    exact, rounded = (gradients(untied, Chunking(dtype=dtype))[0] for dtype in (None, torch.bfloat16))
    flat, other = (torch.cat([found[name].flatten() for name in exact]) for found in (exact, rounded))
    assert other.dtype == torch.float32
    assert not torch.equal(flat, other)
    assert torch.cosine_similarity(flat, other, dim=0) > 0.99


@pytest.mark.slow
def test_measuring_changes_neither_gradients_nor_random_numbers(untied):
    untied.train()
    for chunking in (Chunking(), Chunking(cache=3)):
        plain, _ = gradients(untied, chunking)
        after_plain = torch.rand(1)
        measured, reports = gradients(untied, chunking, measure=True)
        assert torch.rand(1) == after_plain
        same(plain, measured)
        assert all(report.gradient_norm > 0 for report in reports.values())
        assert reports["semantic"].vectors["passage.source"].shape == (6, untied.dim)


def test_gradient_norms_are_each_objectives_own(untied):
    untied.eval()
    _, reports = gradients(untied, Chunking(), measure=True)
    for term in terms():
        alone, _ = gradients(untied, Chunking(), [term])
        norm = torch.stack([g.pow(2).sum() for g in alone.values()]).sum().sqrt()
        assert reports[term.name].gradient_norm == pytest.approx(norm.item(), rel=1e-4)
        own = torch.stack([g.pow(2).sum() for name, g in alone.items() if "own_passage." in name]).sum().sqrt()
        assert reports[term.name].details["passage_gradient_norm"] == pytest.approx(own.item(), rel=1e-4)
    retrieval = reports["retrieval"]
    assert retrieval.details["passage_gradient_norm"] < 0.99 * retrieval.gradient_norm  # questions have their encoder


def test_balanced_gradients_on_the_vectors_have_the_norms_of_the_weights(untied, monkeypatch):
    """What each objective sends back, in one group or alone: the direction is kept, the norm is the weight."""
    untied.eval()
    sent, original = [], Encoded.backward

    def record(self, gradient, retain=False):
        sent.append(gradient.flatten())
        original(self, gradient, retain)

    monkeypatch.setattr(Encoded, "backward", record)

    def pulls(balance):
        sent.clear()
        gradients(untied, Chunking(), measure=True, balance=balance)
        query, passage, semantic, language = sent
        return [torch.cat([query, passage]), semantic, language]

    for plain, scaled, term in zip(pulls(False), pulls(True), terms(), strict=True):
        assert plain.norm().item() != pytest.approx(term.weight, rel=0.05)
        torch.testing.assert_close(scaled, plain * (term.weight / plain.norm()))


def test_balancing_is_the_same_when_measured_and_leaves_a_losss_own_parameters_alone(untied):
    untied.eval()
    same(gradients(untied, Chunking(), balance=True)[0], gradients(untied, Chunking(), measure=True, balance=True)[0])
    own = []
    for balance in (False, True):
        term = WeightedObjective("retrieval", Retrieval(temperature=0.1, learnable_temperature=True), 3.0)
        gradients(untied, Chunking(), [term], balance=balance)
        own.append(term.objective.log_scale.grad)
    assert own[0] == own[1] != 0


def test_balancing_keeps_the_sign_and_leaves_nothing_where_nothing_was():
    found = balanced({"query": torch.tensor([[3.0]]), "passage": torch.tensor([[4.0]])}, -2.0)
    assert found["query"].item() == pytest.approx(1.2)
    assert found["passage"].item() == pytest.approx(1.6)
    assert balanced({"query": torch.zeros(2, 3)}, 1.0)["query"].tolist() == [[0.0] * 3] * 2


def test_parallel_losses_leave_the_query_encoder_alone(untied):
    found, _ = gradients(untied, Chunking(), terms()[1:])
    assert found
    assert all(name.startswith("own_passage") for name in found)


def test_static_encoder_gets_row_sparse_gradients(tiny_static):
    model = DualEncoder.tied(tiny_static())
    dense = joint_sparse(model)
    found, _ = gradients(model, Chunking())
    assert next(model.parameters()).grad.is_sparse
    same(found, dense)
    # measured: sparse gradients of several objectives add up as well
    same(gradients(model, Chunking(), measure=True)[0], dense)


def joint_sparse(model):
    return {name: gradient.to_dense() for name, gradient in joint(model).items()}


def test_learnable_temperature_gets_its_gradient(untied):
    term = WeightedObjective("retrieval", Retrieval(temperature=0.1, learnable_temperature=True), 3.0)
    gradients(untied.eval(), Chunking(), [term])
    ours = term.objective.log_scale.grad.clone()
    vectors = {n: untied.embed(t.texts, t.role) for n, t in term.objective.requests(batch()).items()}
    expected = torch.autograd.grad(3.0 * term.objective.loss(batch(), vectors).value, term.objective.log_scale)[0]
    assert ours.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("tokens", [10_000, 40])
def test_masked_language_modelling_in_chunks(tiny_encoder, tokens):
    model = DualEncoder.tied(tiny_encoder()).eval()
    objective = MaskedLanguageModelling(hidden=model.passage.hidden_size, vocabulary=len(model.passage.tokenizer))
    found, reports = gradients(model, Chunking(tokens=tokens), [WeightedObjective("mlm", objective)])
    rows = objective.rows(batch(), model.passage, 0)
    states, lengths = model.passage.token_states([row.ids for row in rows])
    starts = lengths.cumsum(0) - lengths
    where = torch.tensor([int(starts[i]) + p for i, row in enumerate(rows) for p, _ in row.targets])
    targets = torch.tensor([t for row in rows for _, t in row.targets])
    loss = objective.token_loss(states[where], targets, model.passage).mean()
    assert reports["mlm"].loss == pytest.approx(loss.item(), rel=1e-5)
    model.zero_grad()
    loss.backward()
    same(found, {n: p.grad for n, p in model.named_parameters() if p.grad is not None})


def test_masking_is_the_same_for_a_step_and_another_for_the_next(tiny_encoder):
    encoder = tiny_encoder()
    objective = MaskedLanguageModelling(hidden=encoder.hidden_size, vocabulary=len(encoder.tokenizer), seed=3)
    first, again, later = (objective.rows(batch(), encoder, step) for step in (5, 5, 6))
    assert first == again != later
    special = set(encoder.tokenizer.all_special_ids)
    original = encoder.tokenize([s.text for s in batch()["sentences"]], "passage")
    for row, ids in zip(first, original, strict=True):
        assert row.targets
        assert all(ids[position] == token and token not in special for position, token in row.targets)
        changed = {i for i, (a, b) in enumerate(zip(row.ids, ids, strict=True)) if a != b}
        assert changed <= {position for position, _ in row.targets}


@pytest.mark.parametrize("chunking", [{}, {"cache": 2}])
def test_every_gradient_carries_the_loss_scale_and_no_report_does(untied, chunking):
    """A power of two: the products are exact. The temperature and the masked-LM head are parameters of objectives."""
    untied.eval()
    masked = MaskedLanguageModelling(hidden=untied.passage.hidden_size, vocabulary=len(untied.passage.tokenizer))
    for term in (
        WeightedObjective("retrieval", Retrieval(temperature=0.1, learnable_temperature=True), 3.0),
        WeightedObjective("mlm", masked),
    ):
        found = []
        for scale in (None, LossScale(2.0**10)):
            term.objective.zero_grad()
            of_model, reports = gradients(untied, Chunking(**chunking, loss_scale=scale), [term], measure=True)
            own = {name: p.grad.clone() for name, p in term.objective.named_parameters() if p.grad is not None}
            found.append(({**of_model, **own}, reports[term.name]))
        same({name: gradient * 2.0**10 for name, gradient in found[0][0].items()}, found[1][0])
        assert found[0][1].loss == found[1][1].loss
        assert found[0][1].gradient_norm == found[1][1].gradient_norm


def test_objectives_on_one_stream_form_a_group():
    names = [[t.name for t in group] for group in groups(terms(), batch())]
    assert names == [["retrieval"], ["semantic", "language"]]
    assert len(groups(terms(), batch(), share=False)) == 3
    with pytest.raises(InterlinguaError, match="needs data named 'parallel'"):
        groups(terms(), ["questions"])


def test_a_loss_that_is_not_a_number_stops_with_advice(untied):
    with torch.no_grad():
        next(untied.query.parameters()).fill_(float("nan"))
    with pytest.raises(InterlinguaError, match="the loss of 'retrieval' is nan"):
        gradients(untied, Chunking(), terms()[:1])


def test_one_objective_twice_on_two_streams(untied):
    """The sum of both gradients, each with its own data."""
    drawn = {**batch(), "cloze": batch()["questions"][3:]}
    twice = [
        WeightedObjective("retrieval", Retrieval(temperature=0.1), 1.0),
        WeightedObjective("cloze", Retrieval(temperature=0.1), 0.5, {"questions": "cloze"}),
    ]
    assert twice[1].streams(drawn) == ["cloze"]

    def gradient(some, records):
        untied.zero_grad()
        torch.manual_seed(7)
        for group in groups(some, records):
            backward(group, untied, records, 0, Chunking(), ALONE)
        return {n: p.grad.to_dense().clone() for n, p in untied.named_parameters() if p.grad is not None}

    untied.eval()
    both = gradient(twice, drawn)
    first = gradient([WeightedObjective("retrieval", Retrieval(temperature=0.1), 1.0)], drawn)
    second = gradient([WeightedObjective("retrieval", Retrieval(temperature=0.1), 0.5)], {"questions": drawn["cloze"]})
    same(both, {name: first[name] + second[name] for name in first})
    with pytest.raises(InterlinguaError, match="needs data named 'cloze'"):
        twice[1].streams(batch())
