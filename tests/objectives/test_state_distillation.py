"""Distillation of states: at every token the student says what its teacher says, whatever chunks and processes do."""

import pytest
import torch

from interlingua.data.records import Sentence
from interlingua.errors import BadInput
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import TokenVectors
from interlingua.models.encoder import Encoder
from interlingua.models.trim import trim_vocabulary
from interlingua.objectives import StateDistillation, distil_contrastive, distil_states
from interlingua.objectives.state_distillation import scale_of, stretch_means, stretches
from interlingua.training.build import train
from interlingua.training.encoding import Chunking, EncodedRows
from interlingua.training.processes import Processes
from interlingua.training.recipe import recipe_text, resolve
from interlingua.training.step import backward
from interlingua.training.teacher import TeacherStates
from interlingua.training.weighted import WeightedObjective, check

ALONE = Processes(0, 1, torch.device("cpu"))
TEXTS = ["a river", "the keeper wrote every storm into a book", "joki on pitkä", "the town", "kala ui joessa", "a fish"]
BATCH = {"sentences": [Sentence(text, "fi" if "o" in text else "en") for text in TEXTS]}


def test_states_are_the_mean_of_scaled_squares():
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(7, 5, generator=generator) for _ in range(2))
    teacher[:, 2] *= 300
    scale = scale_of(teacher)
    total = 0.0
    for d in range(5):
        column = teacher[:, d].tolist()
        mean = sum(column) / 7
        deviation = (sum((value - mean) ** 2 for value in column) / 7) ** 0.5
        assert scale[d].item() == pytest.approx(deviation, rel=1e-4)
        for t in range(7):
            total += ((student[t, d] - teacher[t, d]).item() / deviation) ** 2
    assert distil_states(student, teacher, scale).item() == pytest.approx(total / 35, rel=1e-4)
    assert distil_states(teacher, teacher, scale).item() == 0
    assert distil_states(student[:0], teacher[:0], scale, reduction="none").shape == (0,)
    assert distil_states(student[:0].requires_grad_(), teacher[:0], scale).requires_grad
    with pytest.raises(BadInput, match="student and teacher"):
        distil_states(student[:3], teacher, scale)


def test_a_dimension_that_does_not_vary_does_not_take_over():
    teacher = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    teacher[:, 1] = 3.0
    scale = scale_of(teacher)
    assert scale[1] == pytest.approx(scale.mean().item() / 100, rel=0.02)
    assert (scale_of(torch.ones(3, 2)) > 0).all()


def test_no_gradient_for_the_teacher():
    student, teacher = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    distil_states(student, teacher, scale_of(teacher)).backward()
    assert teacher.grad is None
    assert student.grad.abs().sum() > 0


@pytest.fixture
def whole(tiny_encoder):
    encoder = tiny_encoder(layers=4, pooling="mean")
    encoder.settings.prompts = {"query": "query: ", "document": "passage: "}
    return encoder.eval()


@pytest.fixture
def teacher(whole, tmp_path):
    whole.save(tmp_path / "whole")
    return tmp_path / "whole"


@pytest.fixture
def model(tiny_encoder):
    encoder = tiny_encoder(layers=2, seed=3, pooling="mean")
    encoder.settings.prompts = {"query": "query: ", "document": "passage: "}
    return DualEncoder.tied(encoder)


def states_of(teacher, model, **options):
    settings = StateDistillation.Settings.checked({"teacher": str(teacher), **options}, "objectives.small")
    student = model.query if settings.on == "query" else model.passage
    return TeacherStates("objectives.small", settings, student, torch.device("cpu"))


def objective_of(teacher, model, **options):
    return StateDistillation.for_model(model, 0, {**options, "teacher": states_of(teacher, model, **options)})


def gradients(model, objective, chunking=Chunking(), processes=ALONE):  # noqa: B008
    model.zero_grad()
    torch.manual_seed(7)
    reports = backward([WeightedObjective("states", objective, 0.7)], model, BATCH, 0, chunking, processes)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, reports


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


def written_out(model, whole, layer, teacher_layer):
    """The three losses in one graph, from texts: every second one is a question."""
    ids = [model.passage.tokenize([t], ("query", "passage")[n % 2])[0] for n, t in enumerate(TEXTS)]
    with torch.no_grad():
        last, lengths, inner = whole.token_states(ids, layer=teacher_layer)
    states, _, early = model.passage.token_states(ids, layer=layer)
    value = distil_states(states, last, scale_of(last)) + distil_states(early, inner, scale_of(inner))
    mean = [torch.stack([part.mean(0) for part in all_.split(lengths.tolist())]) for all_ in (states, last)]
    student, taught = (torch.nn.functional.normalize(part, dim=-1) for part in mean)
    centre = taught.mean(0)
    student, taught = student - centre, taught - centre
    value = value + (1 - torch.cosine_similarity(student, taught)).mean()
    return value + distil_contrastive(student, taught, temperature=0.05)


@pytest.mark.parametrize("chunking", [Chunking(), Chunking(tokens=30), Chunking(cache=2), Chunking(tokens=40, cache=5)])
def test_gradients_equal_those_of_one_graph(model, whole, teacher, chunking):
    model.eval()
    objective = objective_of(teacher, model, layer=1).eval()
    found, reports = gradients(model, objective, chunking)
    model.zero_grad()
    value = written_out(model, whole, 1, 2)
    (0.7 * value).backward()
    same(found, {name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert set(reports) == {"states", "states.last", "states.inner"}
    assert sum(report.loss for report in reports.values()) == pytest.approx(value.item(), rel=1e-4)
    assert {"lang/en", "lang/fi", "cosine"} <= reports["states"].details.keys()


def test_shares_of_processes_add_up(model, teacher, monkeypatch):
    model.eval()
    objective = objective_of(teacher, model, layer=1).eval()
    complete, _ = gradients(model, objective)
    read = objective.spans(BATCH, model.passage, 0)
    leaf = EncodedRows(WeightedObjective("", objective), model.passage, read.rows, Chunking(), ALONE).leaf.detach()
    monkeypatch.setattr(Processes, "gather", lambda self, rows, shares: leaf.clone())
    monkeypatch.setattr(Processes, "total", lambda self, value: value)
    total: dict[str, torch.Tensor] = {}
    for rank in range(4):
        found, _ = gradients(model, objective, processes=Processes(rank, 4, torch.device("cpu")))
        for name, gradient in found.items():
            total[name] = total.get(name, 0) + gradient
    same(complete, total)


def test_of_itself_a_model_has_nothing_to_learn(whole, teacher):
    model = DualEncoder.tied(whole)
    _, reports = gradients(model, objective_of(teacher, model, layer=2))
    assert reports["states.last"].loss == pytest.approx(0, abs=1e-6)
    assert reports["states.inner"].loss == pytest.approx(0, abs=1e-6)
    assert reports["states"].details["cosine"] == pytest.approx(1, abs=1e-5)


def test_the_same_text_twice_is_no_candidate_of_itself(whole, teacher):
    model = DualEncoder.tied(whole)
    objective = objective_of(teacher, model, on="passage")
    batch = {"sentences": [Sentence(text, "en") for text in ("a river", "the town", "a river")]}
    read = objective.spans(batch, whole, 0)
    vectors = torch.stack([row.vector for row in read.rows])
    loss = objective.contrastive(read, TokenVectors(vectors, [1] * 3))
    assert loss.value.item() < 0.69  # to tell two equal texts apart would cost ln 2


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_teacher_for_inference_says_nearly_the_same(whole, teacher, model, precision):
    plain, light = (
        states_of(teacher, model, layer=1, teacher_layer=3, precision=one)(TEXTS, "query") for one in (None, precision)
    )
    for text, answer, other in zip(TEXTS, plain, light, strict=True):
        ids = whole.tokenize([text], "query")
        last, _, inner = whole.token_states(ids, layer=3)
        assert answer.pieces == other.pieces == whole.tokenizer.convert_ids_to_tokens(ids[0])
        torch.testing.assert_close(answer.last, last.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(answer.inner, inner.detach(), atol=1e-5, rtol=1e-4)
        assert torch.cosine_similarity(other.last, answer.last).min() > 0.97
        assert torch.cosine_similarity(other.inner, answer.inner).min() > 0.97


def test_stretches_are_whole_tokens_to_both():
    one, other = ["▁", "un", "happ", "y", "▁day"], ["▁un", "ha", "ppy", "▁", "da", "y"]
    assert stretches(one, other) == ([0, 0, 1, 1, 2], [0, 1, 1, 2, 2, 2])
    assert stretches(one, one) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert stretches(["a", "b"], ["a", "bc"]) == ([0, -1], [0, -1])
    # one is cut off earlier: its closing token ends where a word of the other does
    assert stretches(["ab", "</s>"], ["ab", "cdef", "</s>"]) == ([0, -1], [0, -1, -1])


def test_a_stretch_has_the_mean_of_its_states():
    states = torch.arange(10.0).view(5, 2)
    found = stretch_means(states, [0, 0, 1, -1, 2])
    assert found.tolist() == [[1.0, 2.0], [4.0, 5.0], [8.0, 9.0]]
    assert stretch_means(states[:0], []).shape == (0, 2)


def test_a_student_with_fewer_subwords_learns_what_the_whole_text_says(whole, teacher, tmp_path):
    """Of its teacher it has all but some subwords: only stretches that fall into others differ."""
    small = Encoder.load(teacher, device="cpu").eval()
    kept, _ = trim_vocabulary(small, TEXTS[:3])
    model = DualEncoder.tied(small)
    asked = [(text, ("query", "passage")[number % 2]) for number, text in enumerate(TEXTS)]
    pieces = [
        [one.tokenizer.convert_ids_to_tokens(one.tokenize([text], role)[0]) for text, role in asked]
        for one in (whole, small)
    ]
    assert kept < whole.backbone.input_embeddings.num_embeddings
    assert pieces[0][:3] == pieces[1][:3]
    assert pieces[0][3:] != pieces[1][3:]
    objective = objective_of(teacher, model, layer=2)
    read = objective.spans(BATCH, small, 0)
    for row, text, theirs in zip(read.rows, TEXTS, pieces[0], strict=True):
        count = len(row.last.states)
        assert len(row.targets) == count <= min(len(row.ids), len(theirs)), text
        assert max(row.numbers) == count - 1
    assert any(len(row.last.states) < len(row.ids) for row in read.rows)
    reports = gradients(model, objective)[1]
    assert reports["states.last"].loss > 1e-3
    same_cut = {"sentences": BATCH["sentences"][:3]}
    reports = backward([WeightedObjective("states", objective)], model, same_cut, 0, Chunking(), ALONE)
    assert reports["states.last"].loss == pytest.approx(0, abs=1e-6)


def test_a_text_that_is_cut_off_teaches_what_both_have_read(whole, teacher):
    small = Encoder.load(teacher, device="cpu").eval()
    trim_vocabulary(small, TEXTS[:1])
    for one in (small, whole):
        one.settings.max_length = 12
    whole.save(teacher)
    objective = objective_of(teacher, DualEncoder.tied(small))
    long = "the keeper wrote every storm into a small blue book about the stars"
    row = objective.spans({"sentences": [Sentence(long, "en"), Sentence("a fish", "en")]}, small, 0).rows[0]
    assert len(row.ids) == 12
    assert row.numbers[-1] == -1  # the closing token comes after other words
    assert row.numbers[0] == 0
    assert 0 < len(row.targets) < 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"teacher_layer": 2}, "objectives.small: teacher_layer: names the state that `layer` learns. Give that, too."),
        ({"layer": 1, "teacher_layer": 5}, "hidden states up to 4; teacher_layer is 5"),
        ({"layer": 2}, "layer 2: the states within this model are 1 to 1"),
    ],
    ids=str,
)
def test_layers_that_are_not_there_are_refused(teacher, model, options, said):
    with pytest.raises(BadInput) as raised:
        objective_of(teacher, model, **options)
    assert said in str(raised.value)


def test_a_deep_student_of_a_shallow_teacher_learns_no_embeddings(teacher, tiny_encoder):
    model = DualEncoder.tied(tiny_encoder(layers=12, pooling="mean"))
    model.passage.settings.prompts = {"query": "query: ", "document": "passage: "}
    assert states_of(teacher, model, layer=1).layer == 1
    assert states_of(teacher, model, layer=6).layer == 2


def test_other_teachers_are_refused(whole, teacher, model, tiny_encoder, tiny_static, tmp_path):
    tiny_static(seed=1).save(tmp_path / "static")
    with pytest.raises(BadInput, match=r"objectives\.small\.teacher: .*static cuts texts by other rules"):
        objective_of(tmp_path / "static", model)
    DualEncoder.untied(tiny_encoder(layers=2)).save(tmp_path / "two")
    with pytest.raises(BadInput, match=r"objectives\.small\.teacher: .*two has a vector a token, or two encoders"):
        objective_of(tmp_path / "two", model)
    plain = DualEncoder.tied(tiny_encoder(layers=2, pooling="mean"))
    with pytest.raises(BadInput, match="or has other prompts"):
        objective_of(teacher, plain)
    model.passage.pooling = "cls"
    with pytest.raises(BadInput, match="pools by mean, the model by cls"):
        objective_of(teacher, model)


def test_of_two_encoders_one_is_taught(teacher, tiny_encoder):
    both = DualEncoder.untied(tiny_encoder(layers=2, pooling="mean"))
    for one in (both.query, both.passage):
        one.settings.prompts = {"query": "query: ", "document": "passage: "}
    with pytest.raises(BadInput, match="Set on: query or on: passage"):
        objective_of(teacher, both)
    found, _ = gradients(both, objective_of(teacher, both, on="query"))
    assert all(name.startswith("query.") for name in found)
    untied = {**recipe_of(teacher, "x").model_dump(exclude_defaults=True)}
    untied["model"]["encoders"] = "untied"
    with pytest.raises(BadInput, match=r"objectives\.state_distillation: it teaches one of two encoders"):
        check(resolve(untied))


def test_what_does_not_fit_a_batch_is_one_clear_line(teacher, model, tiny_encoder):
    with pytest.raises(BadInput, match="a batch of 1 text has nothing to tell apart"):
        objective_of(teacher, model).spans({"sentences": BATCH["sentences"][:1]}, model.passage, 0)
    narrow = DualEncoder.tied(tiny_encoder(layers=2, hidden=16, pooling="mean"))
    narrow.passage.settings.prompts = {"query": "query: ", "document": "passage: "}
    with pytest.raises(BadInput, match="states have 32 numbers, the model's 16"):
        objective_of(teacher, narrow).spans(BATCH, narrow.passage, 0)


def recipe_of(teacher, student, **options):
    return resolve(
        {
            "model": {"backbone": str(student), "encoders": "tied", "dropout": 0.0},
            "data": {"sentences": {"path": "encyclopedia:train", "batch": 8}},
            "objectives": {"state_distillation": {"teacher": str(teacher), "layer": 1, **options}},
            "optimizer": {"lr": 3e-3, "sparse_embeddings": True},
            "training": {"steps": 12, "log_every": 1, "tensorboard": False},
        }
    )


def test_a_run_learns_without_dropout(teacher, model, tmp_path, monkeypatch):
    drop, losses = set(), StateDistillation.token_losses

    def watched(self, rows, states, lengths, early, encoder):
        drop.update(module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout))
        return losses(self, rows, states, lengths, early, encoder)

    monkeypatch.setattr(StateDistillation, "token_losses", watched)
    model.passage.save(tmp_path / "student")
    trained = train(recipe_of(teacher, tmp_path / "student"), tmp_path / "run", "cpu")
    assert drop == {0.0}
    before = gradients(model.eval(), objective_of(teacher, model, layer=1))[1]
    after = gradients(trained.eval(), objective_of(teacher, trained, layer=1))[1]
    assert all(after[name].loss < before[name].loss for name in ("states", "states.last", "states.inner"))
    config = (tmp_path / "run/model/config.json").read_text("utf-8")
    assert config == (tmp_path / "student/config.json").read_text("utf-8")  # dropout is of the training alone


def without_dropout(recipe):
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"dropout": None})})


def test_a_digest_is_as_before_where_dropout_is_left_out(teacher):
    plain = recipe_of(teacher, "small")
    assert "\n  dropout: 0.0" in recipe_text(plain)
    assert "\n  dropout:" not in recipe_text(without_dropout(plain))


def test_a_static_model_has_no_dropout(tiny_static, tmp_path):
    tiny_static(seed=1).save(tmp_path / "static")
    recipe = resolve(
        {
            "model": {"backbone": str(tmp_path / "static"), "encoders": "tied", "dropout": 0.0},
            "data": {"questions": {"path": "encyclopedia:train", "batch": 8}},
            "objectives": {"retrieval": {}},
            "training": {"steps": 1},
        }
    )
    with pytest.raises(BadInput, match=r"model\.dropout: a static model has none"):
        train(recipe, tmp_path / "run", "cpu")


def test_a_static_model_has_no_states(teacher, tiny_static, tmp_path):
    tiny_static(seed=1).save(tmp_path / "static")
    with pytest.raises(BadInput, match="state_distillation compares and predicts token states"):
        train(without_dropout(recipe_of(teacher, tmp_path / "static")), tmp_path / "run", "cpu")
