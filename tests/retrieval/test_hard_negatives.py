"""Hard negatives: known positives never, likely ones not, and every passage that is left out is counted."""

import numpy as np
import pytest

from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import InterlinguaError
from interlingua.retrieval.hard_negatives import Choice, MiningReport, Pool, mine_hard_negatives
from interlingua.retrieval.run import Run

POOL = [Passage(f"p{i}", f"text {i}", lang="en") for i in range(8)]


class Table:
    """A retriever whose scores are given: question → passage id → score; what is not there scores 0."""

    def __init__(self, scores, pool):
        self.scores, self.ids, self.depths = scores, [one.id for one in pool.passages], []

    def search(self, queries, depth):
        self.depths.append(depth)
        return self.score(queries, {query.id: self.ids for query in queries}).truncate(depth)

    def score(self, queries, candidates):
        texts = {query.id: query.text for query in queries}
        return Run.from_scores(
            {name: {one: self.scores[texts[name]].get(one, 0.0) for one in ids} for name, ids in candidates.items()}
        )


FALLING = {f"p{i}": 1 - i / 10 for i in range(8)}  # p0 1.0, p1 0.9, … p7 0.3


def question(positive="p0", negatives=(), text="q", **options):
    by_id = {one.id: one for one in POOL}
    return QuestionPassage(text, (by_id[positive],), tuple(by_id[one] for one in negatives), "en", **options)


def mine(questions, scores=None, pool=None, with_scores=False, **choice):
    pool = pool or Pool(questions, POOL)
    table = Table(scores or dict.fromkeys((one.question for one in questions), FALLING), pool)
    report = MiningReport()
    given = Choice(**{"sampling": "top", "margin": None, "per_question": 3, **choice})
    found = list(mine_hard_negatives(questions, pool, table, given, report, scores=with_scores))
    return found, report


def ids(record):
    return [one.id for one in record.negatives]


def test_the_best_that_are_no_known_positive():
    (record,), report = mine([question("p1", id="7")])
    assert ids(record) == ["p0", "p2", "p3"]
    assert (record.question, record.positives, record.id, record.lang) == ("q", (POOL[1],), "7", "en")
    assert (report.questions, report.negatives, report.short, report.without) == (1, 3, 0, 0)
    assert report.left_out["known positives"] == 1


def test_the_limit_of_the_positive_score():
    (record,), report = mine([question("p2")], margin=0.9)  # 0.8 · 0.9 = 0.72: p0, p1 are above
    assert ids(record) == ["p3", "p4", "p5"]
    assert report.left_out["above the limit of the positive's score"] == 2
    (record,), _ = mine([question("p2")], margin=1.0, per_question=9)
    assert ids(record) == ["p3", "p4", "p5", "p6", "p7"]


@pytest.mark.parametrize(
    ("positive", "margin", "limit"),
    [(0.8, 0.95, 0.76), (-0.8, 0.95, -0.84), (0.0, 0.95, 0.0), (0.8, None, float("inf"))],
)
def test_a_negative_score_has_its_limit_below(positive, margin, limit):
    assert Choice(margin=margin).limit(positive) == pytest.approx(limit)


def test_with_negative_scores_nothing_above_the_positive_is_left():
    scores = {"q": {one: value - 2 for one, value in FALLING.items()}}
    (record,), _ = mine([question("p2")], scores, margin=0.95, per_question=9)
    assert ids(record) == ["p3", "p4", "p5", "p6", "p7"]  # −1.2 − 0.06 = −1.26: p3 scores −1.3


def test_skipping_the_top_counts_after_known_positives():
    (record,), report = mine([question("p0")], skip_top=2)
    assert ids(record) == ["p3", "p4", "p5"]
    assert report.left_out["at the top, skipped"] == 2


def test_no_more_than_the_depth_is_looked_at():
    (record,), report = mine([question("p0")], depth=3)
    assert ids(record) == ["p1", "p2"]
    assert (report.short, report.without) == (1, 0)
    (record,), report = mine([question("p0")], depth=1)
    assert record.negatives == ()
    assert (report.short, report.without) == (0, 1)


def test_positives_by_text_and_of_the_same_question_elsewhere():
    pool = [*POOL, Passage("copy", " TEXT  0"), Passage("twin", "text 5")]
    scores = {"q": {**FALLING, "copy": 0.99, "twin": 0.55}, " Q ": FALLING}
    questions = [question("p0"), question("p1", text=" Q ")]
    found, report = mine(questions, scores, Pool(questions, pool), per_question=9)
    assert ids(found[0]) == ["p2", "p3", "p4", "twin", "p6", "p7"]
    assert ids(found[1]) == ["p2", "p3", "p4", "p5", "p6", "p7"]
    assert report.left_out == {
        "known positives": 4,
        "with the text of a known positive": 2,
        "with the text of a better one": 2,
        "at the top, skipped": 0,
        "above the limit of the positive's score": 0,
    }


def test_a_positive_that_is_not_among_the_passages_is_searched_too():
    stranger = Passage("s", "a stranger")
    questions = [
        QuestionPassage("q", (stranger,)),
        question("p0", text="r"),
        QuestionPassage("t", (Passage("other", "Text 3 "),)),
    ]  # among them under another id
    pool = Pool(questions, POOL)
    assert (pool.given, pool.added, pool.renamed) == (8, 1, 0)
    assert [one.id for one in pool.passages] == [*(one.id for one in POOL), "s"]
    assert pool.id_of(questions[2].positives[0]) == "p3"
    scores = {"q": {**FALLING, "s": 0.65}, "r": {**FALLING, "s": 0.95}, "t": FALLING}
    found, _ = mine(questions, scores, pool, margin=1.0, per_question=2)
    assert [ids(one) for one in found] == [["p4", "p5"], ["s", "p1"], ["p4", "p5"]]


def test_passages_of_the_questions_alone():
    questions = [question("p0", ["p3"]), question("p1", text="r")]
    found, _ = mine(questions, pool=Pool(questions))
    assert ids(found[0]) == ["p1", "p3"]


def test_the_id_of_a_translation_is_the_same_passage():
    questions = [QuestionPassage("q", (Passage("p0", "teksti 0"),)), QuestionPassage("r", (POOL[1],))]
    pool = Pool(questions, [*POOL, Passage("fi", "Teksti 0")])
    assert (pool.added, pool.renamed) == (0, 1)
    scores = {"q": {**FALLING, "fi": 0.97}, "r": FALLING}
    found, report = mine(questions, scores, pool)
    assert ids(found[0]) == ["p1", "p2", "p3"]  # neither the passage with the id nor the one with the text
    assert report.left_out["with the text of a known positive"] == 1


def test_an_id_of_two_passages_is_an_error():
    with pytest.raises(InterlinguaError, match="passage id 'p0' occurs twice"):
        Pool([], [*POOL, POOL[0]])


def test_negatives_that_it_had_come_after():
    (record,), report = mine([question("p0", ["p7", "p2", "p0"], scores=(1, 2, 3, 4))], per_question=2)
    assert ids(record) == ["p1", "p2", "p7"]  # p2 was mined, p0 is the positive
    assert report.kept == 1
    assert record.scores == ()


@pytest.mark.parametrize("sampling", ["top", "random"])
def test_scores_stand_beside_the_first_positive_and_the_negatives(sampling):
    (record,), _ = mine([question("p1", ["p7"])], with_scores=True, sampling=sampling)
    assert record.scores == tuple(np.float32(FALLING[one]) for one in ("p1", *ids(record)))


def test_random_negatives_are_seeded_and_each_question_draws_alone():
    questions = [question("p0", text=f"question {i}") for i in range(12)]

    def draw(chosen, **options):
        return [ids(one) for one in mine(chosen, sampling="random", **options)[0]]

    drawn = draw(questions)
    assert draw(questions) == drawn
    assert draw(questions[5:]) == drawn[5:]
    assert draw(questions, seed=1) != drawn
    assert len({tuple(one) for one in drawn}) > 6
    assert {name for one in drawn for name in one} == {f"p{i}" for i in range(1, 8)}
    assert all(len(set(one)) == 3 for one in drawn)
    assert {one[0] for one in drawn} != {"p1"}  # in the order drawn, not of rank


def test_questions_in_parts_are_as_questions_at_once(monkeypatch):
    questions = [question(f"p{i}", text=f"question {i}") for i in range(7)]
    whole, report = mine(questions, with_scores=True, margin=0.95)
    monkeypatch.setattr("interlingua.retrieval.hard_negatives.CHUNK", 2)
    assert mine(questions, with_scores=True, margin=0.95) == (whole, report)


@pytest.mark.parametrize(
    "options",
    [
        {"per_question": 0},
        {"depth": 0},
        {"skip_top": -1},
        {"skip_top": 100},
        {"margin": 0.0},
        {"margin": 1.1},
        {"margin": float("nan")},
        {"seed": -1},
    ],
)
def test_choices_that_make_no_sense(options):
    with pytest.raises(InterlinguaError, match="hard negatives"):
        Choice(**options)


def test_passages_without_a_text_are_told_apart_by_their_titles():
    passages = [Passage(f"p{i}", "", f"title {i}", "en") for i in range(4)]
    record = QuestionPassage("q", (Passage("", "", "title 2", "en"),), (), "en")
    pool = Pool([record], passages)
    assert (pool.added, pool.id_of(record.positives[0])) == (0, "p2")
    (mined,), _ = mine([record], pool=pool)
    assert ids(mined) == ["p0", "p1", "p3"]
