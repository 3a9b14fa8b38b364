"""XOR-Retrieve: does the answer occur in the first tokens of what was retrieved? (Asai et al. 2021)"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from interlingua.data.irds import AnsweredQuery
from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.evaluation.measures import PerQuery, Scores
from interlingua.evaluation.protocol import Result
from interlingua.retrieval.run import Run

logger = logging.getLogger(__name__)

BUDGETS = (2000, 5000)
NO_SPAN = ("yes", "no")
TOKENISED = ", answers tokenised"

Tokenize = Callable[[str], Sequence[str]]
Texts = Mapping[str, Sequence[str]]
"""question id → texts of the passages retrieved, best first"""


def recall_at_tokens(
    run: Run,
    passages: Iterable[Passage],
    questions: Sequence[AnsweredQuery],
    tokens: int = 2000,
    *,
    tokenize: Tokenize | None = None,
    normalize_answers: bool = False,
) -> dict[str, float]:
    """R@2kt (`tokens=2000`), R@5kt and the like: language → percentage of its questions with an answer in the first
    `tokens` tokens retrieved, and "mean", where every language counts the same.

    The texts of the passages (no titles) are tokenised in rank order, joined by single spaces and cut after exactly
    `tokens` tokens; a hit is an answer that is a substring, case and all. Answers "yes" and "no" are left out, and a
    question without another answer is not counted. A question without results is a miss. `tokenize` is NLTK's
    `word_tokenize` unless given. It puts a space into "Moore's", which the answer does not have: with
    `normalize_answers` an answer also counts when it occurs as the tokeniser writes it.

    Raises BadInput for a passage that the run has and `passages` lack, no question with an answer, and where
    NLTK or its data is missing.
    """
    name = measure_name(tokens) + TOKENISED * normalize_answers
    results = xor_results(run_texts(run, passages), questions, (tokens,), tokenize=tokenize)
    values = {result.lang: result.scores[name] for result in results}
    return {**values, "mean": sum(values.values()) / len(values)}


def xor_results(
    texts: Texts,
    questions: Sequence[AnsweredQuery],
    budgets: Sequence[int] = BUDGETS,
    *,
    tokenize: Tokenize | None = None,
) -> list[Result]:
    """One result for each language, for `results_table`: of every budget the measure of `recall_at_tokens` without and
    with tokenised answers, 100 or 0 for each question. Says which questions had too few tokens or no results."""
    tokenize = tokenize or nltk_tokenizer()
    if not budgets or min(budgets) < 1:
        raise BadInput(f"token budgets {list(budgets)}: at least one is needed, each 1 or more.")
    names = [measure_name(budget) + suffix for suffix in ("", TOKENISED) for budget in budgets]
    by_lang: dict[str, PerQuery] = {}
    short = missing = 0
    for question in questions:
        answers = [answer for answer in question.answers if answer not in NO_SPAN]
        if not answers:
            continue
        tokens = first_tokens(texts.get(question.id, ()), max(budgets), tokenize)
        missing += question.id not in texts
        short += question.id in texts and len(tokens) < max(budgets)
        strings = [" ".join(tokens[:budget]) for budget in budgets]
        variants = [*answers, *filter(None, (" ".join(tokenize(answer)) for answer in answers))]
        hits = [any(answer in string for answer in group) for group in (answers, variants) for string in strings]
        scores = by_lang.setdefault(question.lang, PerQuery({name: {} for name in names}))
        for name, hit in zip(names, hits, strict=True):
            scores[name][question.id] = 100.0 * hit
    if not by_lang:
        raise BadInput(
            "no question has an answer other than yes or no: there is nothing to evaluate. (The "
            "test questions of XOR-Retrieve come without answers; take the development set.)"
        )
    _report_shortages(missing, short, max(budgets), len(texts.keys() - {question.id for question in questions}))
    return [Result(f"xor-retrieve {lang}", lang, Run(), Scores(scores)) for lang, scores in sorted(by_lang.items())]


def first_tokens(texts: Iterable[str], count: int, tokenize: Tokenize) -> list[str]:
    """The first `count` tokens of `texts` one after another; no text is tokenised that is not needed."""
    tokens: list[str] = []
    for text in texts:
        tokens += tokenize(text)
        if len(tokens) >= count:
            break
    return tokens[:count]


def run_texts(run: Run, passages: Iterable[Passage]) -> dict[str, list[str]]:
    """Question id → the texts of its passages, best first. `passages` is read once; what the run lacks is not kept.

    Raises BadInput for a passage of the run that is not among `passages`.
    """
    ids = {name for query in run for name in run.ids(query)}
    text_of = {passage.id: passage.text for passage in passages if passage.id in ids}
    if len(text_of) < len(ids):
        example = min(ids - text_of.keys())
        raise BadInput(
            f"the run names {len(ids) - len(text_of):,} passage(s) that are not among the "
            f"passages given, '{example}' for one. Give those that the run was made on."
        )
    return {query: [text_of[name] for name in run.ids(query)] for query in run}


def measure_name(tokens: int) -> str:
    """2000 → "R@2kt", 1500 → "R@1500t"."""
    return f"R@{tokens // 1000}kt" if tokens % 1000 == 0 else f"R@{tokens}t"


def nltk_tokenizer() -> Tokenize:
    """NLTK's `word_tokenize`, which the published numbers were made with.

    Raises NotFound saying what to install or fetch: the tokeniser first parts a text into sentences, by a
    model that NLTK does not bring along.
    """
    try:
        from nltk.tokenize import word_tokenize
    except ImportError as error:
        raise NotFound(
            "XOR-Retrieve counts NLTK's tokens. Install it with `pip install interlingua[eval]`, "
            "then fetch its sentence model with `python -m nltk.downloader punkt_tab`."
        ) from error
    try:
        word_tokenize("One. Two.")
    except LookupError as error:
        raise BadInput(
            "XOR-Retrieve counts NLTK's tokens, and its sentence model is missing. Fetch it with "
            "`python -m nltk.downloader punkt_tab`; without a network, put the folder "
            "tokenizers/punkt_tab where the variable NLTK_DATA points."
        ) from error
    tokenize: Tokenize = word_tokenize
    return tokenize


def _report_shortages(missing: int, short: int, tokens: int, unknown: int) -> None:
    if missing:
        logger.warning(f"{missing:,} question(s) have no results: each counts as a miss")
    if short:
        logger.warning(
            f"{short:,} question(s) have fewer than {tokens:,} tokens retrieved: give more passages (--depth)"
        )
    if unknown:
        logger.warning(f"{unknown:,} result(s) for questions that are not among those given: left out")
