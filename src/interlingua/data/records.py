"""One record type per kind of supervision, and its form as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, TypeVar, cast, get_args

Qrels = dict[str, dict[str, int]]
"""query id → passage id → graded relevance (0 = judged, not relevant)."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A unit of retrieval. `id` is unique in its source; `lang` is an ISO 639-1 code or ''; `metadata` is what a
    search can be narrowed by (it is compared, but not hashed)."""

    id: str
    text: str
    title: str = ""
    lang: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def source(self) -> str:
        """The file or collection that the passage comes from, '' where that is not known: its metadata "source"."""
        return self.metadata.get("source", "")

    @property
    def key(self) -> tuple[str, str]:
        """Source and id, which together are unique in an index."""
        return self.source, self.id

    @property
    def whole_text(self) -> str:
        """Title and text, a line each, as BM25 reads them."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def answer(self) -> str:
        """The text, by which two passages are one answer; of a passage without a text its title."""
        return self.text if self.text.strip() else self.title

    def as_json(self) -> dict[str, Any]:
        """The passage as the command line and the server print it in JSON."""
        return {
            "id": self.id,
            "source": self.source,
            "lang": self.lang,
            "title": self.title,
            "text": self.text,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class Query:
    """A test question."""

    id: str
    text: str
    lang: str = ""


@dataclass(frozen=True, slots=True)
class QuestionPassage:
    """Retrieval supervision: a question, at least one positive, any number of hard negatives. `scores` are a teacher's,
    of the first positive and then of each negative, or none."""

    question: str
    positives: tuple[Passage, ...]
    negatives: tuple[Passage, ...] = ()
    lang: str = ""
    id: str = ""
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ParallelPair:
    """Two sentences with one meaning. `score` is the miner's margin; `group` is shared by every
    translation of the same sentence in multi-way parallel text; `origin` names the source corpus."""

    source: str
    target: str
    source_lang: str
    target_lang: str
    score: float | None = None
    group: str = ""
    origin: str = ""

    @property
    def lang(self) -> str:
        """The language that is not English; `xx-yy` when neither side is. Streams balance over it."""
        sides = [code for code in (self.source_lang, self.target_lang) if code != "en"]
        return "-".join(sides) or "en"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Raw text without a translation (the Q of Hu et al. §5.4; masked-LM warm-up)."""

    text: str
    lang: str


@dataclass(frozen=True, slots=True)
class Document:
    """Raw text as a list of sentences; documents with one `group` are versions of one another."""

    sentences: tuple[str, ...]
    lang: str
    id: str = ""
    title: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class ContextPair:
    """Two sentences from one window of a document (CCP); `document` numbers it, so that its other sentences can be
    told from sentences of other documents."""

    center: str
    target: str
    lang: str
    document: int


@dataclass(frozen=True, slots=True)
class LinkedDocuments:
    """Two documents on one topic in two languages (comparable, not parallel; C3)."""

    source: Document
    target: Document


@dataclass(slots=True)
class Collection:
    """A test collection: what is searched, what is asked, what is right."""

    name: str
    passages: Sequence[Passage]
    queries: list[Query]
    qrels: Qrels = field(default_factory=dict)

    @property
    def query_langs(self) -> list[str]:
        return sorted({query.lang for query in self.queries})

    @property
    def passage_langs(self) -> list[str]:
        return sorted({passage.lang for passage in self.passages})

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)


TrainingRecord = QuestionPassage | ParallelPair | Sentence | Document | LinkedDocuments
StoredRecord = TrainingRecord | Passage | Query
Record = TypeVar("Record", QuestionPassage, ParallelPair, Sentence, Document, LinkedDocuments, Passage, Query)

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(StoredRecord)}
_NAMES = {kind: tuple(one.name for one in fields(kind)) for kind in KINDS.values()}


def encode(record: StoredRecord) -> str:
    """The record as one line of JSON. Fields of records inside it become objects; empty metadata are left out."""
    return json.dumps(_plain(record), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    names = _NAMES.get(type(value))
    if names:
        return {name: _plain(getattr(value, name)) for name in names if name != "metadata" or value.metadata}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def decode(kind: type[Record], line: str | bytes) -> Record:
    """The record of `kind` on a line that `encode` wrote."""
    return cast(Record, _record(kind, json.loads(line)))


def _record(kind: type[StoredRecord], row: dict[str, Any]) -> StoredRecord:
    if kind is QuestionPassage:
        for key in ("positives", "negatives"):
            row[key] = tuple(Passage(**passage) for passage in row[key])
        row["scores"] = tuple(row.get("scores", ()))  # stores written before there were scores have none
    elif kind is Document:
        row["sentences"] = tuple(row["sentences"])
    elif kind is LinkedDocuments:
        row = {side: _record(Document, document) for side, document in row.items()}
    return kind(**row)


def language_of(record: StoredRecord) -> str:
    """The language that streams balance over: the one that is not English where there are two."""
    if isinstance(record, LinkedDocuments):
        return ParallelPair("", "", record.source.lang, record.target.lang).lang
    return record.lang


Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, the last one shorter; no list is kept once the next one is asked for."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch
