"""The retrieval objective: candidates, masks, temperature."""

import math
from dataclasses import replace

import pytest
import torch

from interlingua.data.records import Passage, QuestionPassage, Sentence
from interlingua.errors import InterlinguaError
from interlingua.objectives import Retrieval, info_nce
from interlingua.objectives.retrieval import false_negatives


def question(text, *passages, negatives=(), lang="en"):
    make = lambda t: Passage(id=t, text=t, title="T" if t.startswith("p") else "")  # noqa: E731
    return QuestionPassage(text, tuple(map(make, passages)), tuple(map(make, negatives)), lang)


BATCH = {
    "questions": [
        question("a?", "pa", "pa2", negatives=("n1", "n2")),
        question("b?", "pb", negatives=("pa2",)),
        question("A?", "pc", negatives=("pb",), lang="de"),
    ]
}


def test_candidates_are_the_positives_then_the_hard_negatives():
    requests = Retrieval(hard_negatives=1).requests(BATCH)
    assert requests["queries"].texts == ["a?", "b?", "A?"]
    assert requests["passages"].texts == [("T", "pa"), ("T", "pb"), ("T", "pc"), "n1", ("T", "pa2"), ("T", "pb")]
    assert len(Retrieval(hard_negatives=0).requests(BATCH)["passages"].texts) == 3


def test_one_question_mark_at_the_end_is_stripped_where_asked_for():
    batch = {"questions": [question("a?", "pa"), question("a? b", "pb"), question("why??", "pc"), question("c", "pd")]}
    assert Retrieval(strip_question_mark=True).requests(batch)["queries"].texts == ["a", "a? b", "why?", "c"]
    assert Retrieval().requests(batch)["queries"].texts == ["a?", "a? b", "why??", "c"]


def test_passages_with_a_title_alone_are_not_one_answer():
    questions = [QuestionPassage(f"q{n}", [Passage(f"{n}", "", title)], []) for n, title in enumerate("αβα")]
    found = false_negatives(questions, [question.positives[0] for question in questions])
    assert found.tolist() == [[False, False, True], [False, False, False], [True, False, False]]


def test_false_negatives_are_left_out():
    """pa2 answers a?; a? and A? are one question, so pa and pc answer both; the copy of pb is not against b?."""
    vectors = {"queries": torch.randn(3, 4), "passages": torch.randn(6, 4)}
    mask = torch.tensor([[0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0]], dtype=torch.bool)
    loss = Retrieval().loss(BATCH, vectors)
    assert loss.value.item() == pytest.approx(info_nce(*vectors.values(), mask=mask).item())
    assert loss.report["ln_candidates"] == pytest.approx(math.log(6))
    assert {"lang/en", "lang/de"} <= set(loss.report)
    unmasked = Retrieval(mask_false_negatives=False).loss(BATCH, vectors)
    assert unmasked.value.item() == pytest.approx(info_nce(*vectors.values()).item())


def test_learnable_temperature_is_trained_and_stops_at_scale_100():
    objective = Retrieval(temperature=0.5, learnable_temperature=True)
    vectors = {"queries": torch.eye(3), "passages": torch.eye(6)[:, :3]}
    loss = objective.loss(BATCH, vectors)
    assert loss.report["temperature"] == pytest.approx(0.5)
    loss.value.backward()
    assert objective.log_scale.grad != 0
    with torch.no_grad():
        objective.log_scale.fill_(20.0)
    assert float(objective.tau()) == pytest.approx(0.01)


def test_self_guided_margin_leaves_out_what_scores_above_the_positive():
    batch = {"questions": [question("a?", "pa"), question("b?", "pb")]}
    vectors = {"queries": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "passages": torch.tensor([[0.6, 0.8], [1.0, 0.0]])}
    # a? scores pb (1.0) above pa (0.6): left out, so a? has no negative and loss 0
    rows = Retrieval(self_guided_margin=0.0).loss(batch, vectors).value
    expected = info_nce(*vectors.values(), mask=torch.tensor([[0, 1], [1, 0]], dtype=torch.bool))
    assert rows.item() == pytest.approx(expected.item())


def test_negatives_that_a_teacher_finds_as_good_as_the_positive_are_left_out():
    scored = [
        replace(question("a?", "pa", negatives=("na", "nb")), scores=(3.0, 2.5, 1.0)),
        question("b?", "pb", negatives=("nc",)),
        replace(question("c?", "pc", negatives=("nd", "ne", "nf")), scores=(0.0, -0.5, 4.0, 9.0)),
    ]
    vectors = {"queries": torch.randn(3, 4), "passages": torch.randn(8, 4)}  # pa pb pc na nb nc nd ne
    objective = Retrieval(hard_negatives=2, teacher_margin=1.0)
    loss = objective.loss({"questions": scored}, vectors)
    mask = torch.zeros(3, 8, dtype=torch.bool)
    mask[0, 3] = mask[2, 6] = mask[2, 7] = True
    assert loss.value.item() == pytest.approx(info_nce(*vectors.values(), mask=mask).item())
    assert loss.warning is None
    plain = {"questions": [replace(one, scores=()) for one in scored]}
    assert "none of its questions has a teacher's scores" in objective.loss(plain, vectors).warning
    wrong = {"questions": [replace(scored[0], scores=(1.0, 2.0)), *scored[1:]]}
    with pytest.raises(InterlinguaError, match=r"'a\?': a teacher's scores are of .* 3 are needed; it has 2"):
        objective.loss(wrong, vectors)


def test_more_hard_negatives_than_there_are_is_told():
    vectors = {"queries": torch.randn(3, 4), "passages": torch.randn(7, 4)}
    assert Retrieval(hard_negatives=2).loss(BATCH, vectors).warning is None
    told = Retrieval(hard_negatives=3).loss(BATCH, vectors).warning
    assert told == "hard_negatives is 3, and no question of the batch has more than 2."
    without = {"questions": [question("a?", "pa")]}
    alone = {name: rows[:1] for name, rows in vectors.items()}
    assert Retrieval().loss(without, alone).warning is None


def test_the_wrong_kind_of_record_is_named():
    says = "Retrieval reads QuestionPassage records, but its stream holds Sentence"
    with pytest.raises(InterlinguaError, match=says):
        Retrieval().requests({"questions": [Sentence("x", "en")]})
    with pytest.raises(InterlinguaError, match="hard_negatives"):
        Retrieval(hard_negatives=-1)
