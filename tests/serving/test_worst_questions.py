"""Whatever a question is made of, it costs little more than an ordinary one, and its neighbours get their answers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from starlette.testclient import TestClient

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index import metadata as index_questions
from interlingua.index.highlights import MARKED, Highlights
from interlingua.index.index import Index
from interlingua.index.local.search import Lexical
from interlingua.index.metadata import ELSEWHERE, LONGEST, READ, TERMS, Budget, OutOfTime, Question
from interlingua.models.dual import DualEncoder
from interlingua.serving import batching as embeddings
from interlingua.serving import service as searches
from interlingua.serving.app import create_app
from interlingua.serving.batching import Batcher
from interlingua.serving.service import Searches, ServeSettings
from interlingua.text.analyzers import Analyzer, analyzer
from interlingua.text.analyzers.analyzer import PIECE

LANGS = ("en", "en", "en", "ar", "bn", "fi", "id", "ja", "ko", "ru", "sw", "te", "th")
dice = random.Random(0)


def letters(alphabet: str, count: int = LONGEST) -> str:
    return "".join(dice.choices(alphabet, k=count))


WORST = {
    "chinese": "".join(chr(dice.randint(0x4E00, 0x9FA5)) for _ in range(LONGEST)),
    "two characters": letters("漢字"),
    "hangul": "".join(chr(dice.randint(0xAC00, 0xD7A3)) for _ in range(LONGEST)),
    "thai": letters("กขคงจฉชซญดตถทธนบปผฝพฟภมยรลวศสหอ"),
    "one word": letters("abcdefghijklmnopqrstuvwxyz"),
    "words": " ".join(letters("abcdefghijklmnopqrstuvwxyz", 4) for _ in range(LONGEST // 5)),
    "expanding": "\ufdfa" * (LONGEST // 18),
    "joiners": "a\u200d" * (LONGEST // 2),
    "marks": "a" + letters("\u0301\u0323\u0345", LONGEST - 1),
    "vowels": "\u0645\u064e" * (LONGEST // 2),
    "emoji": "👩‍👩‍👧‍👦" * (LONGEST // 7),
    "full stops": "a." * (LONGEST // 2),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_static: Callable[..., Any], sentences: list[str]) -> Index:
    passages = [
        Passage(f"p/{number}", text, lang=lang)
        for number, (text, lang) in enumerate(zip(sentences, LANGS, strict=True))
    ]
    return Index.build(DualEncoder(tiny_static()), passages, tmp_path_factory.mktemp("worst") / "index")


@pytest.fixture
def client(index: Index) -> Iterator[TestClient]:
    with TestClient(create_app(index, ServeSettings(delay=0.0))) as client:
        yield client


class Work:
    """The texts that each analyzer has cut and the terms it found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: dict[str, list[str]] = {}
        self.terms: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        cut, count = Analyzer.__call__, Analyzer.counts

        def cutting(analyzer: Analyzer, text: str) -> list[str]:
            found = cut(analyzer, text)
            self.texts.setdefault(analyzer.name, []).append(text)
            self.terms[analyzer.name] += len(found)
            return found

        def counting(analyzer: Analyzer, text: str, most: int) -> tuple[Counter[str], bool]:
            self.runs[analyzer.name] += 1
            return count(analyzer, text, most)

        monkeypatch.setattr(Analyzer, "__call__", cutting)
        monkeypatch.setattr(Analyzer, "counts", counting)

    @property
    def characters(self) -> int:
        return sum(len(text) for texts in self.texts.values() for text in texts)


@pytest.mark.parametrize("kind", WORST)
def test_the_work_for_a_question_is_bounded(index: Index, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    normalised: list[str] = []
    nfkc = index_questions.term_nfkc
    monkeypatch.setattr(index_questions, "term_nfkc", lambda text: normalised.append(text) or nfkc(text))
    work = Work(monkeypatch)
    question = Question(WORST[kind])
    hits = index.search(question, 10, mode="hybrid")
    assert len(hits) == 10
    code = question.lang or "und"
    for name, terms in work.terms.items():
        assert terms < (READ if name.startswith(code) else ELSEWHERE) + 2 * PIECE, name
        assert sum(map(len, work.texts[name])) <= LONGEST, name
    assert len(question.terms(index.languages)) <= TERMS
    spans = Highlights(question, encoder=index.encoder)
    for hit in hits:
        spans(hit.passage)
    assert len(normalised) == 1
    assert set(work.runs.values()) == {1}  # scores and highlights share what an analyzer found
    assert len(work.runs) <= len(set(LANGS)) + 1


def test_an_ordinary_question_has_the_terms_that_its_analyzers_find(sentences: list[str]) -> None:
    for text in [*sentences, "The the THE ½ l'eau ﬁne… ｶﾞｽ a´b 3.5,7 ①"]:
        for lang, langs in (("en", ["en", "fi"]), ("", ["en", "fi", "th", "zh", "ar"]), ("de", ["hi", "tr", "ko"])):
            terms: Counter[str] = Counter()
            for code in [lang] if lang in langs else sorted(langs):
                terms |= Counter(analyzer(code)(text))
            question = Question(text, lang)
            assert list(question.terms(langs).items()) == list(terms.items())
            assert not question.is_cut


def test_what_is_left_out_is_the_end_and_is_said(client: TestClient) -> None:
    words = [f"{chr(97 + number // 26 % 26)}{chr(97 + number % 26)}{number}" for number in range(1_200)]
    question = Question(" ".join(words), "")
    assert set(question.terms(["en"])) == set(words[:ELSEWHERE])
    assert question.is_cut
    question = Question(" ".join(words), "en")
    assert len(question.terms(["en", "fi"])) == len(words)
    assert not question.is_cut
    notices = [
        client.post("/search", json={"query": text, "lang": "de", "k": 1}).json()["notices"]
        for text in ("who?", " ".join(words))
    ]
    assert notices[0] == []
    assert "first words" in notices[1][0]


def test_a_limit_of_distinct_terms_takes_the_first_of_each_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_questions, "TERMS", 3)
    question = Question("winters books rivers", "")
    assert set(question.terms(["en", "ru"])) == {"winter", "winters", "book"}
    assert question.is_cut


@pytest.mark.parametrize("query", ["\ufdfa" * LONGEST, "\ufdfa" * (LONGEST // 18 + 1)])
def test_a_question_that_grows_too_long_is_refused(client: TestClient, index: Index, query: str) -> None:
    for path, more in (("/search", {}), ("/rerank", {"documents": ["a"]})):
        answer = client.post(path, json={"query": query, **more})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (422, "invalid_request")
        assert error["message"].startswith("query: a question has at most 10,000 characters after NFKC normalisation")
        assert "\n" not in error["message"]
    with pytest.raises(InterlinguaError, match="at most 10,000 characters"):
        index.search(query)


def test_texts_that_grow_too_long_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, body in (
        ("/v1/embeddings", {"input": ["a", "\ufdfa" * 6_000]}),
        ("/rerank", {"query": "a", "documents": ["b", "\ufdfa" * 6_000]}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 422
        assert answer.json()["error"]["message"].startswith("text 2 of 2: 108,000 characters after NFKC normalisation")
    monkeypatch.setattr(embeddings, "MAX_TEXTS", 50)
    status = [client.post("/v1/embeddings", json={"input": ["\ufdfa"] * count}).status_code for count in (2, 3)]
    assert status == [200, 422]
    monkeypatch.setattr(embeddings, "MAX_TEXTS", 18 * 70)  # more texts than go through the model at once
    answers = [client.post("/v1/embeddings", json={"input": ["\ufdfa"] * count}) for count in (70, 71)]
    assert [answer.status_code for answer in answers] == [200, 422]
    assert answers[1].json()["error"]["message"].startswith("text 71 of 71: 18 characters after NFKC normalisation")


def test_a_passage_that_grows_too_long_is_not_written(tiny_static: Callable[..., Any], tmp_path: Path) -> None:
    index = Index.build(tiny_static(), [Passage("1", "a", lang="en")], tmp_path / "idx")
    with TestClient(create_app(index, ServeSettings(delay=0.0, token="a-token-for-writing"))) as client:
        bearer = {"Authorization": "Bearer a-token-for-writing"}
        body = {"passages": [{"id": "2", "text": "b"}, {"id": "3", "text": "\ufdfa" * 6_000}]}
        answer = client.post("/passages", json=body, headers=bearer)
        assert answer.status_code == 422
        assert answer.json()["error"]["message"].startswith("text 2 of 2: 108,000 characters after NFKC normalisation")


def test_time_that_groups_and_distinct_texts_take_counts(tiny_static: Callable[..., Any], tmp_path: Path) -> None:
    passages = [Passage(f"{n}", f"a book {n % 3}", "", "en", {"kind": "one"}) for n in range(300)]
    index = Index.build(tiny_static(), passages, tmp_path / "idx")
    told: list[str] = []

    class Told(Budget):
        def stage(self, work: str, *asked: Question) -> Any:
            told.append(work)
            return super().stage(work, *asked)

    for options in ({"group_by": "kind"}, {"k": 300}, {"distinct": True}):
        told.clear()
        index.search_many(["a book"], budget=Told(), **options)
        assert "reading passages" in told
    assert told.count("comparing passages") == 300  # each text once, however deep the search goes


def test_the_time_of_counting_facets_counts(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    real = Budget.stage
    monkeypatch.setattr(Budget, "stage", lambda self, work, *asked: (told.append(work), real(self, work, *asked))[1])
    Searches(index, None, 3, "dense", None, same=False, where=None, highlight=False)([Question("who?", "en")])
    assert "counting" in told


def test_time_that_is_spent_is_a_clear_error(index: Index) -> None:
    for mode, stage in (("hybrid", "encoding"), ("lexical", "dense search|analysis")):
        with pytest.raises(OutOfTime, match=f"given up during ({stage}): it took more than 0 seconds"):
            index.search_many(["who?"], mode=mode, budget=Budget(0, clock=iter(range(100)).__next__))
    with TestClient(create_app(index, ServeSettings(delay=0.0, budget=1e-9))) as client:
        answer = client.post("/search", json={"query": "who wrote the book?"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "out_of_time")
        assert client.get("/health").status_code == 200


def test_the_time_of_a_stage_is_shared_by_its_questions() -> None:
    first, second = Question("a", "en"), Question("b", "en")
    budget = Budget(1.0, clock=iter([0.0, 2.0, 2.0, 2.0, 2.5]).__next__)
    with budget.stage("encoding", first, second):
        pass  # one second of each
    with pytest.raises(OutOfTime), budget.stage("scoring", second):
        pass


def test_the_neighbours_of_a_question_that_is_given_up_are_answered(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = [0]  # terms, which stand for the time
    matches = Lexical.matches

    def counting(lexical: Lexical, terms: Counter[str], *rest: Any) -> Any:
        compared.append(len(terms))
        return matches(lexical, terms, *rest)

    monkeypatch.setattr(Lexical, "matches", counting)
    monkeypatch.setattr(searches, "Budget", lambda seconds: Budget(seconds, clock=lambda: float(sum(compared))))
    call = Searches(index, None, 3, "hybrid", None, False, None, False, 300.0)

    async def answers(*texts: str) -> list[Any]:
        batcher = Batcher(max_batch=8, delay=0.01, queue=8, timeout=30.0)
        batcher.start()
        try:
            return await asyncio.gather(
                *(batcher.submit(call, Question(text, "de")) for text in texts), return_exceptions=True
            )
        finally:
            await batcher.close()

    first, worst, last = asyncio.run(answers("who wrote the book?", WORST["words"], "two rivers"))
    assert isinstance(worst, OutOfTime)
    assert compared.count(max(compared)) == 2  # in the batch, then alone
    assert [hit["id"] for hit in first.hits] == [
        hit.passage.id for hit in index.search("who wrote the book?", 3, lang="de")
    ]
    assert len(last.hits) == 3


def test_long_questions_fill_a_batch_and_short_ones_find_room(monkeypatch: pytest.MonkeyPatch, index: Index) -> None:
    batches: list[list[int]] = []
    entered, go = threading.Event(), threading.Event()

    def search(index: Index, questions: list[Question], *_: Any, **__: Any) -> list[list[Any]]:
        batches.append([len(question.text) for question in questions])
        entered.set()
        assert go.wait(30)
        return [[] for _ in questions]

    app = create_app(index, ServeSettings(delay=0.0))
    with TestClient(app) as client:
        monkeypatch.setattr(Index, "search_many", search)

        def ask(length: int) -> threading.Thread:
            thread = threading.Thread(
                target=client.post, args=["/search"], kwargs={"json": {"query": "x" * length, "lang": "en"}}
            )
            thread.start()
            return thread

        threads = [ask(1)]
        assert entered.wait(30)
        for place, length in enumerate([10_000, 10_000, 10_000, 10_000, 2], 1):
            threads.append(ask(length))
            deadline = monotonic() + 30
            while f"interlingua_waiting_requests {float(place)}" not in client.get("/metrics").text:
                assert monotonic() < deadline
        go.set()
        for thread in threads:
            thread.join(30)
    assert batches == [[1], [10_000, 10_000, 10_000, 2], [10_000]]


def test_highlights_are_left_out_where_there_is_no_time_for_them(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[str] = []

    def spans(*_: Any, **__: Any) -> Callable[[Passage], list[tuple[int, int]]]:
        return lambda passage: marked.append(passage.id) or [(0, 1)]

    monkeypatch.setattr("interlingua.index.highlights.Highlights", spans)
    monkeypatch.setattr(searches, "Budget", lambda seconds: Budget(seconds, clock=lambda: float(len(marked))))
    (answer,) = Searches(index, None, 10, "hybrid", None, False, None, True, 3.0)([Question("the book", "en")])
    assert len(answer.hits) == 10
    assert len(marked) == 4  # the fourth is the one too many
    assert [bool(hit["highlights"]) for hit in answer.hits] == [True] * 4 + [False] * 6
    assert answer.notices == ["highlights were left out from result 5 on: the question took more than 3 seconds."]


@pytest.mark.parametrize("text", ["buch " * 200_000, "漢字" * 500_000, "a" * 1_000_000])
def test_only_so_much_of_a_passage_is_looked_at(index: Index, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question("buch 漢字", "de")
    spans = Highlights(question, encoder=index.encoder)
    work = Work(monkeypatch)
    found = spans(Passage("1", text, lang="de"))
    assert all(end <= MARKED for _, end in found)
    assert work.characters < 4 * MARKED


def test_settings_have_a_budget_above_zero(tmp_path: Path) -> None:
    for budget in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InterlinguaError, match="budget"):
            ServeSettings(budget=budget)
