"""Hard negatives: passages that a retriever finds for a question although they do not answer it, as far as is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from interlingua.data.records import Passage, Query, QuestionPassage
from interlingua.data.stream import key_of
from interlingua.errors import BadInput
from interlingua.retrieval.retriever import Retriever
from interlingua.text.languages import text_hash, text_key

CHUNK = 1024


class Pool:
    """The passages that are searched: those given, and the questions' own where they are not among them.

    A passage of a question is one of the pool's that has its id, else the first one that has its text (up to case and
    spacing), else it is added. `added` counts those; `renamed` those whose id has another text in the pool, which are
    taken for the same passage (a translation). Raises BadInput for an id that two of the passages given share.
    """

    def __init__(self, questions: Iterable[QuestionPassage], passages: Iterable[Passage] = ()) -> None:
        self.by_id: dict[str, Passage] = {}
        self.texts: dict[str, int] = {}
        self._of_text: dict[int, str] = {}
        self.added = self.renamed = 0
        for passage in passages:
            if passage.id in self.by_id:
                raise BadInput(
                    f"the passage id '{passage.id}' occurs twice. Ids must be unique in all files of passages together."
                )
            self._add(passage)
        self.given = len(self.by_id)
        renamed: set[str] = set()
        for question in questions:
            for passage in (*question.positives, *question.negatives):
                text = text_hash(passage.answer)
                if passage.id not in self.by_id and text not in self._of_text:
                    self._add(passage)
                    self.added += 1
                elif self.texts.get(passage.id, text) != text:
                    renamed.add(passage.id)
        self.renamed = len(renamed)

    def _add(self, passage: Passage) -> None:
        self.by_id[passage.id], self.texts[passage.id] = passage, text_hash(passage.answer)
        self._of_text.setdefault(self.texts[passage.id], passage.id)

    @property
    def passages(self) -> list[Passage]:
        """The passages to build a retriever over."""
        return list(self.by_id.values())

    def id_of(self, passage: Passage) -> str:
        """The id in the pool of a question's passage."""
        return passage.id if passage.id in self.by_id else self._of_text[text_hash(passage.answer)]


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of negatives among the passages found.

    per_question: how many.
    depth: how many results are looked at.
    skip_top: how many of the first, after known positives, are left out: the likeliest to be unknown positives.
    margin: leave out what scores above the positive's score s minus (1 − margin)·|s|: above 0.95 s at 0.95 (the
        positive-aware "TopK-PercPos" of NV-Retriever, Moreira et al. 2024); None: keep all. s is the score of the
        first positive, the one that training uses.
    sampling: "random" draws from what is left, seeded; "top" takes the best.
    """

    per_question: int = 8
    depth: int = 100
    skip_top: int = 0
    margin: float | None = 0.95
    sampling: Literal["random", "top"] = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.per_question < 1 or self.depth < 1 or self.skip_top < 0 or self.seed < 0:
            raise BadInput(
                f"hard negatives: per_question {self.per_question} and depth {self.depth} must be "
                f"at least 1, skip_top {self.skip_top} and seed {self.seed} at least 0."
            )
        if self.skip_top >= self.depth:
            raise BadInput(f"hard negatives: skip_top {self.skip_top} leaves nothing of depth {self.depth}.")
        if self.margin is not None and not 0 < self.margin <= 1:
            raise BadInput(f"hard negatives: margin {self.margin} must be above 0 and at most 1.")

    def limit(self, positive: float) -> float:
        """The score above which a passage may be an unknown positive."""
        return float("inf") if self.margin is None else positive - (1 - self.margin) * abs(positive)


@dataclass(slots=True)
class MiningReport:
    """The numbers of negatives mined, and of passages left out by reason."""

    questions: int = 0
    negatives: int = 0
    short: int = 0
    without: int = 0
    kept: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def mine_hard_negatives(
    questions: Sequence[QuestionPassage],
    pool: Pool,
    retriever: Retriever,
    choice: Choice,
    report: MiningReport,
    *,
    scores: bool = False,
) -> Iterator[QuestionPassage]:
    """Each question with what `retriever`, built over `pool.passages`, finds for it as its negatives, and after those
    the negatives that it had. A known positive of a question, by id or by text, also of the same question elsewhere in
    `questions`, is no negative. What one question draws does not depend on the others.

    With `scores`, the retriever's scores of the first positive and of every negative come along, for distillation.
    Without, scores that a question had are left out: they are of other negatives.
    """
    answers: dict[str, _Answers] = defaultdict(_Answers)
    for question in questions:
        answers[text_key(question.question)].update(question, pool)
    for start in range(0, len(questions), CHUNK):
        part = {str(number): question for number, question in enumerate(questions[start : start + CHUNK], start)}
        queries = [Query(name, question.question, question.lang) for name, question in part.items()]
        firsts = {name: pool.id_of(question.positives[0]) for name, question in part.items()}
        results = retriever.search(queries, choice.depth)
        ceilings = dict.fromkeys(part, float("inf"))
        if choice.margin is not None:
            positive_scores = retriever.score(queries, {name: [first] for name, first in firsts.items()})
            ceilings = {name: choice.limit(positive_scores[name][0][1]) for name in part}
        negative_ids: dict[str, list[str]] = {}
        for name, question in part.items():
            known_answers = answers[text_key(question.question)]
            mined = _choose(question, results[name], known_answers, pool, ceilings[name], choice, report)
            texts = known_answers.texts.union(pool.texts[id_] for id_ in mined)
            previous = dict.fromkeys(pool.id_of(passage) for passage in question.negatives)
            old = [id_ for id_ in previous if pool.texts[id_] not in texts]
            negative_ids[name] = mined + old
            report.questions += 1
            report.negatives += len(mined)
            report.short += 0 < len(mined) < choice.per_question
            report.without += not mined
            report.kept += len(old)
        values: dict[str, dict[str, float]] = {}
        if scores:
            candidates = {name: [firsts[name], *negatives] for name, negatives in negative_ids.items()}
            run = retriever.score(queries, candidates)
            values = {name: dict(run[name]) for name in candidates}
        for name, question in part.items():
            yield replace(
                question,
                negatives=tuple(pool.by_id[id_] for id_ in negative_ids[name]),
                scores=tuple(values[name][id_] for id_ in (firsts[name], *negative_ids[name])) if scores else (),
            )


@dataclass(slots=True)
class _Answers:
    """The known answers to a question: ids in the pool, and texts there and in the question's records."""

    ids: set[str] = field(default_factory=set)
    texts: set[int] = field(default_factory=set)

    def update(self, question: QuestionPassage, pool: Pool) -> None:
        for passage in question.positives:
            name = pool.id_of(passage)
            self.ids.add(name)
            self.texts.update((pool.texts[name], text_hash(passage.answer)))


def _choose(
    question: QuestionPassage,
    results: list[tuple[str, float]],
    known_answers: _Answers,
    pool: Pool,
    ceiling: float,
    choice: Choice,
    report: MiningReport,
) -> list[str]:
    """The ids of the negatives of one question, in the order drawn, out of what was found for it."""
    seen: set[int] = set()
    remaining: list[tuple[str, float]] = []
    for name, score in results:
        text = pool.texts[name]
        if name in known_answers.ids:
            report.left_out["known positives"] += 1
        elif text in known_answers.texts:
            report.left_out["with the text of a known positive"] += 1
        elif text in seen:
            report.left_out["with the text of a better one"] += 1
        else:
            seen.add(text)
            remaining.append((name, score))
    report.left_out["at the top, skipped"] += len(remaining[: choice.skip_top])
    ids = [name for name, score in remaining[choice.skip_top :] if score <= ceiling]
    report.left_out["above the limit of the positive's score"] += len(remaining[choice.skip_top :]) - len(ids)
    if choice.sampling == "random":
        random = np.random.Generator(np.random.Philox(key=key_of(choice.seed, "negatives", question.question)))
        ids = [ids[place] for place in random.permutation(len(ids)).tolist()]
    return ids[: choice.per_question]
