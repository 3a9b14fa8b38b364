"""The student goes where the teacher puts the English sentence; scores follow the teacher's distribution."""

import math

import pytest
import torch

from interlingua.data.records import ParallelPair, Passage, QuestionPassage, Sentence
from interlingua.errors import BadInput, InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.objectives import Distillation, distil_contrastive, distil_scores, distil_vectors
from interlingua.objectives.distillation import taught_texts
from interlingua.training.encoding import Chunking
from interlingua.training.processes import Processes
from interlingua.training.recipe import resolve
from interlingua.training.step import backward
from interlingua.training.weighted import check, weighted_objective


def three(rows=5, dim=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, dim, generator=generator, dtype=dtype) for _ in range(3)]


def test_vectors_equal_the_loop():
    source, target, teacher = three()
    total = 0.0
    for i in range(5):
        for d in range(4):
            total += float(source[i, d] - teacher[i, d]) ** 2 + float(target[i, d] - teacher[i, d]) ** 2
    assert distil_vectors(source, target, teacher).item() == pytest.approx(total / 20, rel=1e-5)
    assert distil_vectors(teacher, teacher, teacher).item() == 0
    assert distil_vectors(source, target, teacher).item() == pytest.approx(
        distil_vectors(target, source, teacher).item(), rel=1e-6
    )


def loop_scores(student, teacher, temperature, mask):
    rows = []
    for s, t, m in zip(student.tolist(), teacher.tolist(), mask.tolist(), strict=True):
        kept = [i for i, out in enumerate(m) if not out]
        p, q = ([math.exp(values[i] / temperature) for i in kept] for values in (t, s))
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        rows.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    return rows


@pytest.mark.parametrize("temperature", [1.0, 0.25, 4.0])
@pytest.mark.parametrize("masked", [False, True])
def test_scores_equal_the_loop(temperature, masked):
    student, teacher, noise = three(6, 5)
    mask = noise > 0.5 if masked else torch.zeros(6, 5, dtype=torch.bool)
    mask[2] = masked  # a question with nothing left
    rows = distil_scores(student, teacher, temperature=temperature, mask=mask if masked else None, reduction="none")
    assert rows.tolist() == pytest.approx(loop_scores(student, teacher, temperature, mask), abs=1e-5)
    assert distil_scores(student, teacher, temperature=temperature, mask=mask).item() == pytest.approx(
        rows.mean().item(), rel=1e-5
    )


def test_only_differences_of_scores_count():
    student, teacher, _ = three(6, 5)
    assert distil_scores(teacher + 7, teacher).item() == pytest.approx(0, abs=1e-6)
    assert distil_scores(student + 3, teacher - 2).item() == pytest.approx(
        distil_scores(student, teacher).item(), rel=1e-4
    )
    assert distil_scores(student, teacher).item() > 0


def test_large_scores_and_half_precision_stay_finite():
    student = torch.tensor([[3e4, -3e4, 0.0]], dtype=torch.float16, requires_grad=True)
    mask = torch.tensor([[False, False, True]])
    loss = distil_scores(student, torch.tensor([[-1e4, 1e4, 5.0]]), mask=mask)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert student.grad.isfinite().all()
    assert student.grad[0, 2] == 0


def test_gradcheck_and_no_gradient_for_the_teacher():
    source, target, teacher = (part.requires_grad_() for part in three(3, 4, torch.float64))
    assert torch.autograd.gradcheck(lambda s, t: distil_vectors(s, t, teacher), (source, target), eps=1e-2, atol=1e-2)
    mask = torch.tensor([[False, True, False, False]] * 3)
    assert torch.autograd.gradcheck(
        lambda s: distil_scores(s, teacher, temperature=0.7, mask=mask), (source,), eps=1e-2, atol=1e-2
    )
    (distil_vectors(source, target, teacher) + distil_scores(source, teacher)).backward()
    assert teacher.grad is None
    assert source.grad is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda a: distil_vectors(a, a, a[:2]),
        lambda a: distil_vectors(a, a, a[:, :2]),
        lambda a: distil_vectors(a, a[0], a),
        lambda a: distil_scores(a, a[:2]),
        lambda a: distil_scores(a[0], a[0]),
        lambda a: distil_scores(a, a, temperature=0),
        lambda a: distil_scores(a, a, mask=torch.zeros(3, dtype=torch.bool)),
    ],
)
def test_mistakes(call):
    with pytest.raises(InterlinguaError):
        call(torch.randn(3, 4))


def test_nothing_in_nothing_out():
    empty = torch.zeros(0, 4, requires_grad=True)
    loss = distil_vectors(empty, empty, empty) + distil_scores(empty, empty)
    loss.backward()
    assert loss.item() == 0


PAIRS = [
    ParallelPair("hei", "hi", "fi", "en"),
    ParallelPair("a river", "mto", "en", "sw"),
    ParallelPair("moi", "hi", "fi", "en"),
]


class Counting:
    """A teacher that remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked.append(texts)
        return torch.tensor([[len(text), 1.0, -1.0] for text in texts], requires_grad=True)


def test_the_objective_asks_each_english_text_once():
    teacher = Counting()
    objective = Distillation(teacher=teacher)
    requests = objective.requests({"parallel": PAIRS})
    vectors = {name: torch.randn(3, 3, requires_grad=True) for name in requests}
    assert teacher.asked == []  # requests are for the student
    loss = objective.loss({"parallel": PAIRS}, vectors)
    assert teacher.asked == [["hi", "a river"]]
    wanted = torch.tensor([[2, 1, -1], [7, 1, -1], [2, 1, -1.0]])
    assert loss.value.item() == pytest.approx(distil_vectors(*vectors.values(), wanted).item(), rel=1e-6)
    assert loss.report.keys() == {"lang/fi", "lang/sw"}
    assert list(objective.parameters()) == []
    both = Distillation(teacher=teacher, on="both")
    vectors = {name: torch.randn(3, 3) for name in both.requests({"parallel": PAIRS})}
    each = [
        Distillation(teacher=teacher, on=role).loss({"parallel": PAIRS}, vectors).value for role in ("query", "passage")
    ]
    assert both.loss({"parallel": PAIRS}, vectors).value.item() == pytest.approx(sum(each).item() / 2, rel=1e-6)


def test_pairs_without_the_teachers_language_and_other_records():
    foreign = [*PAIRS, ParallelPair("joki", "älv", "fi", "sv")]
    objective = Distillation(teacher=Counting())
    vectors = {f"passage.{side}": torch.randn(4, 3) for side in ("source", "target")}
    with pytest.raises(InterlinguaError, match="'fi' and 'sv' has no side in the teacher's language 'en'"):
        objective.loss({"parallel": foreign}, vectors)
    assert (
        Distillation(teacher=Counting(), lang="fi")
        .loss({"parallel": [foreign[0], foreign[3]]}, {k: v[:2] for k, v in vectors.items()})
        .value
        > 0
    )
    with pytest.raises(InterlinguaError, match="reads ParallelPair records"):
        objective.requests({"parallel": [Sentence("a", "en")]})
    empty = {name: torch.zeros(0, 3, requires_grad=True) for name in vectors}
    loss = objective.loss({"parallel": []}, empty).value
    loss.backward()
    assert loss.item() == 0


def recipe(teacher, **options):
    return resolve(
        {
            "model": {"backbone": {"static": {"vocab_size": 3000, "dim": 24}}, "encoders": "tied"},
            "data": {"parallel": {"path": "encyclopedia:train"}},
            "objectives": {"distillation": {"teacher": str(teacher), **options}},
            "training": {"steps": 1},
        }
    )


def test_a_recipe_names_the_teacher(tmp_path, tiny_static):
    DualEncoder(tiny_static(seed=1)).save(tmp_path / "teacher")
    student = DualEncoder.tied(tiny_static(seed=2))
    named = recipe(tmp_path / "teacher", weight=2.0)
    check(named)
    expected = DualEncoder.load(tmp_path / "teacher").encode_document
    teachers = {"distillation": lambda texts: torch.tensor(expected(texts))}
    term = weighted_objective("distillation", named.objectives["distillation"], student, named, teachers=teachers)
    vectors = {f"passage.{side}": torch.randn(3, 24) for side in ("source", "target")}
    loss = term.objective.loss({"parallel": PAIRS}, vectors).value
    wanted = torch.tensor(expected(["hi", "a river", "hi"]))
    assert loss.item() == pytest.approx(distil_vectors(*vectors.values(), wanted).item(), rel=1e-5)
    assert term.weight == 2.0
    assert list(term.objective.parameters()) == []
    assert term.objective.state_dict() == {}
    before = [parameter.clone() for parameter in student.parameters()]
    for _ in range(2):
        backward([term], student, {"parallel": PAIRS}, 0, Chunking(), Processes.join("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(before, student.parameters(), strict=True))
    assert any(
        parameter.grad is not None and parameter.grad.to_dense().abs().sum() > 0 for parameter in student.parameters()
    )


def test_no_teacher():
    nameless = recipe("x")
    nameless.objectives["distillation"] = {}
    with pytest.raises(InterlinguaError, match=r"objectives\.distillation: 'teacher' is missing"):
        check(nameless)


@pytest.mark.parametrize("grouped", [False, True])
def test_contrast_equals_the_loop(grouped):
    student, teacher, _ = three(6, 5)
    groups = torch.tensor([0, 1, 0, 2, 3, 3]) if grouped else torch.arange(6)

    def cosine(a, b):
        return float(torch.nn.functional.cosine_similarity(a, b, dim=0))

    rows = []
    for i in range(6):
        candidates = [k for k in range(6) if k == i or groups[k] != groups[i]]
        scores = {k: math.exp(cosine(student[i], teacher[k]) / 0.2) for k in candidates}
        rows.append(-math.log(scores[i] / sum(scores.values())))
    found = distil_contrastive(student, teacher, temperature=0.2, groups=groups if grouped else None)
    assert found.item() == pytest.approx(sum(rows) / 6, rel=1e-5)


def test_contrast_of_both_sides_and_repeated_texts():
    vectors = {f"passage.{side}": torch.randn(3, 3) for side in ("source", "target")}
    objective = Distillation(teacher=Counting(), loss="contrast", temperature=0.1)
    wanted, groups = torch.tensor([[2, 1, -1], [7, 1, -1], [2, 1, -1.0]]), torch.tensor([0, 1, 0])
    each = [distil_contrastive(side, wanted, temperature=0.1, groups=groups).item() for side in vectors.values()]
    assert objective.loss({"parallel": PAIRS}, vectors).value.item() == pytest.approx(sum(each) / 2, rel=1e-6)


class Reading(Counting):
    """A teacher of questions, too; what it says of a text depends on its role."""

    def __call__(self, texts, role="passage"):
        self.asked.append((role, texts))
        return torch.tensor([[len(str(text)), 1.0 if role == "query" else -2.0, 0.5] for text in texts])


def test_each_side_learns_its_own_vector():
    teacher = Reading()
    objective = Distillation(teacher=teacher, lang=None)
    vectors = {name: torch.randn(3, 3) for name in objective.requests({"parallel": PAIRS})}
    found = objective.loss({"parallel": PAIRS}, vectors).value.item()
    assert teacher.asked == [("passage", ["hei", "a river", "moi"]), ("passage", ["hi", "mto"])]
    own = [
        torch.tensor([[len(text), -2.0, 0.5] for text in side])
        for side in (["hei", "a river", "moi"], ["hi", "mto", "hi"])
    ]
    wanted = sum((v - o).square().mean() for v, o in zip(vectors.values(), own, strict=True))
    assert found == pytest.approx(wanted.item(), rel=1e-6)


def test_a_text_is_taught_in_the_role_in_which_it_is_read():
    sentences = [Sentence("a", "en"), Sentence("joki", "fi")]
    objective = Distillation(teacher=Reading(), of="sentences", on="both")
    requests = objective.requests({"sentences": sentences})
    vectors = {name: torch.randn(2, 3) for name in requests}
    wanted = []
    for name, texts in requests.items():
        own = torch.tensor([[len(text), 1.0 if texts.role == "query" else -2.0, 0.5] for text in texts.texts])
        wanted.append((vectors[name] - own).square().mean())
    assert {texts.role for texts in requests.values()} == {"query", "passage"}
    assert objective.loss({"sentences": sentences}, vectors).value.item() == pytest.approx(sum(wanted).item() / 2)
    asked = list(taught_texts(objective.settings, sentences[:1]))
    assert asked == [("query", "a"), ("passage", "a")]


@pytest.mark.parametrize("loss", ["squares", "contrast"])
def test_sentences_of_any_language_learn_their_own_vectors(loss):
    sentences = [Sentence("a", "en"), Sentence("joki", "fi"), Sentence("a", "sv")]
    objective = Distillation(teacher=Reading(), of="sentences", loss=loss)
    ((name, texts),) = objective.requests({"sentences": sentences}).items()
    assert texts.texts == ["a", "joki", "a"]
    student, taught = torch.randn(3, 3), torch.tensor([[1, -2.0, 0.5], [4, -2.0, 0.5], [1, -2.0, 0.5]])
    found = objective.loss({"sentences": sentences}, {name: student})
    wanted = (
        (student - taught).square().mean()
        if loss == "squares"
        else distil_contrastive(student, taught, groups=torch.tensor([0, 1, 0]))
    )
    assert found.value.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert found.report.keys() == {"lang/en", "lang/fi", "lang/sv"}


def questions():
    def passage(number, title=""):
        return Passage(str(number), f"{'text ' * number}", title)

    return [
        QuestionPassage("who?", (passage(1, "T"),), (passage(3),), "en"),
        QuestionPassage("what is it", (passage(2),), (passage(3), passage(4)), "fi"),
    ]


def test_scores_of_questions_are_those_of_the_teacher():
    objective = Distillation(
        teacher=Reading(), of="questions", loss="scores", hard_negatives=1, teacher_temperature=0.5
    )
    requests = objective.requests({"questions": questions()})
    assert requests["passages"].texts == [("T", "text "), "text text ", "text " * 3, "text " * 3]
    generator = torch.Generator().manual_seed(0)
    vectors = {name: torch.randn(len(texts.texts), 3, generator=generator) for name, texts in requests.items()}
    found = objective.loss({"questions": questions()}, vectors)

    def cosine(a, b):
        return float(torch.nn.functional.cosine_similarity(a, b, dim=0))

    taught = Reading()
    asked, known = taught(requests["queries"].texts, "query"), taught(requests["passages"].texts)
    rows = []
    for q in range(2):
        s = [math.exp(cosine(vectors["queries"][q], vectors["passages"][k]) / 0.05) for k in range(3)]
        t = [math.exp(cosine(asked[q], known[k]) / 0.5) for k in range(3)]  # the fourth is the third once more
        rows.append(sum(b / sum(t) * math.log(b / sum(t) / (a / sum(s))) for a, b in zip(s, t, strict=True)))
    assert found.value.item() == pytest.approx(sum(rows) / 2, rel=1e-4)
    assert found.report.keys() == {"lang/en", "lang/fi"}
    empty = {name: torch.zeros(0, 3, requires_grad=True) for name in requests}
    assert objective.loss({"questions": []}, empty).value.item() == 0


def test_questions_and_passages_learn_their_vectors():
    objective = Distillation(teacher=Reading(), of="questions")
    vectors = {name: torch.randn(2, 3) for name in objective.requests({"questions": questions()})}
    taught = Reading()
    asked, known = taught(["who?", "what is it"], "query"), taught([("T", "text "), "text text "])
    wanted = ((vectors["queries"] - asked).square().mean() + (vectors["passages"] - known).square().mean()) / 2
    assert objective.loss({"questions": questions()}, vectors).value.item() == pytest.approx(wanted.item(), rel=1e-6)
    with pytest.raises(InterlinguaError, match="of: parallel has none"):
        Distillation(teacher=Reading(), loss="scores")


def test_what_the_teacher_will_be_asked_for():
    spec = {"teacher": "x"}
    own = Distillation.Settings(**spec, lang=None)
    assert list(taught_texts(own, PAIRS[:1])) == [("passage", "hei"), ("passage", "hi")]
    assert list(taught_texts(Distillation.Settings(**spec), PAIRS[:1])) == [("passage", "hi")]
    both = Distillation.Settings(**spec, of="questions", hard_negatives=2)
    assert list(taught_texts(both, questions()[1:])) == [
        ("query", "what is it"), ("passage", "text text "), ("passage", "text " * 3), ("passage", "text " * 4),
    ]  # fmt: skip
    assert list(taught_texts(Distillation.Settings(**spec, of="sentences"), [Sentence("a", "en")])) == [
        ("passage", "a")
    ]


def test_questions_have_no_scores_unless_a_teacher_gave_them():
    assert QuestionPassage("q", ()).scores == ()


@pytest.mark.parametrize(
    ("teacher", "said"),
    [
        ({"modle": "e5"}, "unknown key 'teacher.modle'. Did you mean 'model'?"),
        ({"vectors": "folder"}, "'teacher.model' is missing."),
        ({"model": "e5", "layers": -1}, "'teacher.layers': input should be greater than or equal to 0 (got -1)."),
        (3, "'teacher': input should be a valid string (got 3)."),
    ],
    ids=str,
)
def test_a_mistake_inside_the_teacher_is_named(teacher, said):
    with pytest.raises(BadInput) as raised:
        Distillation.Settings.checked({"teacher": teacher}, "objectives.distillation")
    assert str(raised.value) == f"objectives.distillation: {said}"


def test_a_mistake_in_data_that_is_called_like_an_option_is_named():
    with pytest.raises(BadInput, match=r"'data\.path\.limit': input should be greater than 0"):
        resolve(
            {
                "model": {"backbone": "x"},
                "data": {"path": {"path": "x.tsv", "batch": 4, "limit": -3}},
                "training": {"steps": 1},
            }
        )
    with pytest.raises(BadInput, match=r"unknown key 'data\.path\.lmit'\. Did you mean 'limit'"):
        resolve(
            {
                "model": {"backbone": "x"},
                "data": {"path": {"path": "x.tsv", "batch": 4, "lmit": 3}},
                "training": {"steps": 1},
            }
        )
