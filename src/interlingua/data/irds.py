"""Collections of ir_datasets, and XOR-TyDi's files."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from interlingua.data.layouts import StoredPassages, parsed, provided, split_contents
from interlingua.data.readers.questions import json_array
from interlingua.data.readers.rows import BadRow, BadRows, json_object, lang_of, string
from interlingua.data.readers.source import filled_lines, head
from interlingua.data.records import Collection, Passage, Qrels, Query
from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.text.languages import normalise_code

PREFIX = "ir_datasets:"


def irds_home() -> Path:
    """The folder where ir_datasets keeps what it has fetched."""
    return Path(os.environ.get("IR_DATASETS_HOME") or Path.home() / ".ir_datasets")


def load_irds(dataset_id: str, lang: str) -> Collection:
    """The collection with an id of ir_datasets, such as "mr-tydi/ar/test" (without the prefix).

    `hc4/zh/test#mt_title` takes a question's text from the field `mt_title` of the topic; fields joined by "+" are
    joined by a space. Without it, the text is what the data set calls its default text (the title of a TREC topic).
    The languages are those that ir_datasets tells; of a topic with translations, those of its fields (`topic_lang`);
    `lang` where nothing is told. Documents with a store stay on disk (`StoredPassages`).

    Raises BadInput when the package is missing, the id or the field is unknown, the data cannot be had, or the
    id is that of documents without questions or judgements.
    """
    name = dataset_id.partition("#")[0]
    with provided(name):
        data = data_set(name)
        for has, part in ((data.has_docs, "documents"), (data.has_queries, "queries"), (data.has_qrels, "qrels")):
            if not has():
                raise BadInput(
                    f"{PREFIX}{name}: this id has no {part}. A collection needs documents, "
                    "queries and qrels: choose a more specific id (often it ends in /test or /dev)."
                )
        return Collection(
            dataset_id.replace("/", "_"), _passages(data, name, lang), _queries(data, dataset_id, lang), _qrels(data)
        )


def queries(dataset_id: str) -> list[Query]:
    """The queries of an id alone, without documents and judgements: `hc4/zh/test#mt_title` for translated ones."""
    name = dataset_id.partition("#")[0]
    with provided(name):
        data = data_set(name)
        if not data.has_queries():
            raise BadInput(f"{PREFIX}{name}: this id has no queries. Choose a more specific one.")
        return _queries(data, dataset_id, "")


def data_set(name: str) -> Any:
    try:
        package = importlib.import_module("ir_datasets")
    except ModuleNotFoundError as error:
        raise NotFound(
            f"{PREFIX}{name}: the package ir_datasets is not installed. pip install 'interlingua[datasets]'."
        ) from error
    try:
        return package.load(name)
    except KeyError as error:
        raise NotFound(
            f"{PREFIX}{name}: ir_datasets knows no such id. The ids are listed at https://ir-datasets.com."
        ) from error


def _passages(data: Any, dataset_id: str, lang: str) -> Sequence[Passage]:
    convert: Callable[[Any], Passage] = partial(
        _passage, lang=_lang(data.docs_lang(), lang), contents=dataset_id.startswith("mr-tydi/")
    )
    if hasattr(data, "docs_store"):
        return StoredPassages(data, dataset_id, convert, _lang(data.docs_lang(), lang))
    return [convert(document) for document in data.docs_iter()]


def _passage(document: Any, *, lang: str, contents: bool) -> Passage:
    if contents:  # Mr.TyDi: title, blank line, text in one field
        title, text = split_contents(document.text)
        return Passage(document.doc_id, text, title, lang)
    fields = (getattr(document, field, None) for field in ("text", "body"))
    body = next((value for value in fields if isinstance(value, str)), None)  # some have bytes, or sections
    if body is None:
        return Passage(document.doc_id, document.default_text(), "", lang)
    return Passage(document.doc_id, body, getattr(document, "title", None) or "", lang)


def _queries(data: Any, dataset_id: str, lang: str) -> list[Query]:
    name, _, fields = dataset_id.partition("#")
    docs_lang = data.docs_lang() if data.has_docs() else None
    records = []
    for topic in data.queries_iter():
        texts = [_field(topic, field, name) for field in fields.split("+")] if fields else [topic.default_text()]
        query_lang = topic_lang(topic, fields.split("+")[0], data.queries_lang(), docs_lang)
        records.append(Query(topic.query_id, " ".join(text.strip() for text in texts).strip(), _lang(query_lang, lang)))
    return records


def _field(topic: Any, name: str, dataset: str) -> str:
    text = getattr(topic, name, None) if name != "query_id" else None
    if name not in topic._fields or not isinstance(text, str):
        fields = [field for field in topic._fields if field != "query_id" and isinstance(getattr(topic, field), str)]
        raise BadInput(f"{PREFIX}{dataset}#{name}: the topics have no text '{name}'.{suggestion(name, fields)}")
    return text


def topic_lang(topic: Any, field: str, told: str | None, docs_lang: str | None) -> str | None:
    """The language of a field of a topic: `told`, by ir_datasets, unless the topic carries translations of itself.

    HC4 and NeuCLIR ask in English; `ht_…` and `mt_…` are translations (by people, by a machine) into the language of
    the documents, `zh_mt_…` those into Chinese.
    """
    if match := re.match(r"([a-z]{2})_[hm]t_", field):
        return match[1]
    if field.startswith(("ht_", "mt_")):
        translation_lang: str | None = getattr(topic, "translation_lang", None) or docs_lang
        return translation_lang
    translated = any(re.match(r"([a-z]{2}_)?[hm]t_", name) for name in getattr(topic, "_fields", ()))
    return told or ("en" if translated else None)


def _qrels(data: Any) -> Qrels:
    qrels: Qrels = {}
    for judgement in data.qrels_iter():
        qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = int(judgement.relevance)
    return qrels


def _lang(code: str | None, default: str) -> str:
    return normalise_code(code) if code else default


@dataclass(frozen=True, slots=True)
class AnsweredQuery(Query):
    """A test question whose right answers are known as text, not as judged passages."""

    answers: tuple[str, ...] = ()


def read_answered(path: str | Path) -> list[AnsweredQuery]:
    """Questions `{id, question, lang, answers: [text, …]}`, one a line (Asai et al. 2021), gzipped or not.

    Raises BadInput naming file and line for a bad row, an id that occurs twice, an answer without text.
    """

    def parse(line: str) -> AnsweredQuery:
        row = json_object(line)
        return AnsweredQuery(string(row, "id"), string(row, "question"), lang_of(row, None), texts_in(row, "answers"))

    return list(parsed(Path(path), filled_lines(Path(path)), parse, "question"))


def is_prediction(path: str | Path) -> bool:
    """Whether the file begins as a JSON array; a TREC run does not."""
    return head(Path(path)).lstrip().startswith("[")


def read_predictions(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Question id → passage texts in rank order, from `[{"id": …, "lang": …, "ctxs": [text, …]}, …]`.

    Raises BadInput naming file and line for a bad row or an id that occurs twice.
    """
    predictions: dict[str, tuple[str, ...]] = {}

    def parse(row: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        question_id = string(row, "id")
        if question_id in predictions:
            raise BadRow(f"the question id '{question_id}' occurs twice")
        return question_id, texts_in(row, "ctxs", blank=True)

    advice = 'Needed is a list of objects {"id": …, "lang": …, "ctxs": [text, …]}.'
    for question_id, texts in BadRows(advice=advice).parsed(Path(path), json_array(Path(path)), parse):
        predictions[question_id] = texts
    return predictions


def texts_in(row: dict[str, object], key: str, *, blank: bool = False) -> tuple[str, ...]:
    """The list of texts under `key`. An answer must not be `blank`: it would be found in every passage."""
    texts = row.get(key)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadRow(f"'{key}' must be a list of texts")
    if not blank and not all(text.strip() for text in texts):
        raise BadRow(f"'{key}' holds a text that is empty")
    return tuple(texts)
