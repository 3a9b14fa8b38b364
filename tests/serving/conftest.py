"""An index that is a list, over a tiny real encoder: what the server calls is counted, and can be held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from starlette.testclient import TestClient

from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.index.metadata import Question
from interlingua.models.dual import DualEncoder
from interlingua.serving.app import create_app
from interlingua.serving.service import ServeSettings

TOKEN = "a-token-for-writing"


class Hit(NamedTuple):
    passage: Passage
    score: float
    parts: dict[str, float]
    group: str | None = None
    more: int = 0
    same: tuple[Passage, ...] = ()
    repeated: int = 0


class ListIndex:
    """Every search compares vectors; `calls` holds the texts of each batch. While `hold()` lasts no search returns
    and no write is synced, and `entered` is set as soon as one is at that point."""

    token_states = None

    def __init__(self, encoder: DualEncoder, passages: Sequence[Passage]) -> None:
        self.encoder = encoder
        self.path = "/the/place/of/the/index"
        self.passages = {passage.id: passage for passage in passages}
        self.calls: list[list[str]] = []
        self.options: list[dict[str, Any]] = []
        self.written: list[str] = []
        self.entered, self.go = threading.Event(), threading.Event()
        self.go.set()

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.entered.clear()
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    def search_many(
        self,
        questions: Sequence[str | Question],
        k: int = 10,
        langs: Sequence[str] | None = None,
        budget: Any = None,
        **options: Any,
    ) -> list[list[Hit]]:
        texts = [one if isinstance(one, str) else one.text for one in questions]
        self.calls.append(texts)
        self.options.append({"k": k, "langs": langs, **options})
        self.entered.set()
        assert self.go.wait(30)
        if "broken" in texts:
            raise BadInput(f"{self.path}: 'broken' cannot be searched.")
        unknown = set(langs or ()) - set(self.languages)
        if unknown:
            raise BadInput(f"{self.path}: has no passage in language '{min(unknown)}'.")
        kept = [passage for passage in self.passages.values() if langs is None or passage.lang in langs]
        if not kept:
            return [[] for _ in texts]
        scores = self.encoder.encode_query(texts) @ self.encoder.encode_document([one.text for one in kept]).T
        return [
            [
                Hit(kept[place], float(row[place]), {"dense": float(row[place]), "lexical": -float("inf")})
                for place in np.argsort(-row, kind="stable")[:k]
            ]
            for row in scores
        ]

    @property
    def languages(self) -> dict[str, int]:
        langs = [passage.lang for passage in self.passages.values()]
        return {lang: langs.count(lang) for lang in sorted(set(langs))}

    fields = ("kind",)

    def facets(self, keys: Sequence[str], langs: Any = None, *, where: Any = None) -> dict[str, dict[str, int]]:
        self.options.append({"facets": keys, "langs": langs, "where": where})
        return {key: {"sea": len(self)} for key in keys}

    def __len__(self) -> int:
        return len(self.passages)

    def refresh(self) -> Any:
        return self

    def info(self) -> Any:
        return SimpleNamespace(model="/models/tiny")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Held by `hold` when its writes are done: they are not on the disk yet. `written` tells the order."""
        yield
        self.entered.set()
        assert self.go.wait(30)
        self.written.append("synced")

    def replace(self, passages: Sequence[Passage]) -> int:
        if "broken" in (passage.id for passage in passages):
            raise BadInput(f"{self.path}: 'broken' cannot be written.")
        self.written += [passage.id for passage in passages]
        self.passages.update({passage.id: passage for passage in passages})
        return len(passages)

    def versions(self, id: str) -> list[Passage]:
        return [self.passages[id]] if id in self.passages else []

    def delete(self, ids: Sequence[str]) -> int:
        return sum(self.passages.pop(name, None) is not None for name in ids)


@pytest.fixture(scope="session")
def encoder(tiny_encoder: Callable[..., Any]) -> DualEncoder:
    return DualEncoder(tiny_encoder(pooling="mean", hidden=16))


@pytest.fixture
def index(encoder: DualEncoder, sentences: list[str]) -> ListIndex:
    langs = ["en", "en", "en", "ar", "bn", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"]
    return ListIndex(
        encoder,
        [
            Passage(f"p/{number}", text, f"title {number}", lang, {"kind": "sea"})
            for number, (text, lang) in enumerate(zip(sentences, langs, strict=True))
        ],
    )


@pytest.fixture
def serving(index: ListIndex, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Factory: `with serving(timeout=…, reranker=…) as client`, a started application over `index`."""

    @contextmanager
    def start(reranker: Any = None, **settings: Any) -> Iterator[TestClient]:
        app = create_app(index, ServeSettings(**{"token": TOKEN, "delay": 0.0, **settings}), reranker)
        with TestClient(app, raise_server_exceptions=False) as client:
            index.calls.clear()
            index.options.clear()
            yield client

    return start


@pytest.fixture
def client(serving: Callable[..., Any]) -> Iterator[TestClient]:
    with serving() as client:
        yield client


@pytest.fixture
def writer() -> dict[str, str]:
    """The header of who may write."""
    return {"Authorization": f"Bearer {TOKEN}"}
