"""Collections of the package ir_datasets, which downloads and parses them (Mr.TyDi, HC4, NeuCLIR, BEIR …)."""

from __future__ import annotations

import importlib
from typing import Any

from interlingua.data.collections.rows import split_contents
from interlingua.data.records import Collection, Passage, Qrels, Query
from interlingua.errors import InterlinguaError
from interlingua.text.languages import normalise_code

PREFIX = "ir_datasets:"


def load(dataset_id: str, lang: str) -> Collection:
    """The collection with an id of ir_datasets, such as "mr-tydi/ar/test" (without the prefix).

    The languages are those that ir_datasets tells, `lang` where it tells none. A question's text is what the data set
    calls its default text (the title of a TREC topic). Raises InterlinguaError when the package is missing, the id is
    unknown, or the id is that of documents without questions or judgements.
    """
    try:
        package = importlib.import_module("ir_datasets")
    except ModuleNotFoundError as error:
        raise InterlinguaError(f"{PREFIX}{dataset_id}: the package ir_datasets is not installed. "
                               "pip install 'interlingua[datasets]'.") from error
    try:
        data = package.load(dataset_id)
    except KeyError as error:
        raise InterlinguaError(f"{PREFIX}{dataset_id}: ir_datasets knows no such id. "
                               "The ids are listed at https://ir-datasets.com.") from error
    for has, what in ((data.has_docs, "documents"), (data.has_queries, "queries"), (data.has_qrels, "qrels")):
        if not has():
            raise InterlinguaError(f"{PREFIX}{dataset_id}: this id has no {what}. A collection needs documents, "
                                   "queries and qrels: choose a more specific id (often it ends in /test or /dev).")
    contents = dataset_id.startswith("mr-tydi/")
    passage_lang, query_lang = _lang(data.docs_lang(), lang), _lang(data.queries_lang(), lang)
    queries = [Query(query.query_id, query.default_text().strip(), query_lang) for query in data.queries_iter()]
    qrels: Qrels = {}
    for judgement in data.qrels_iter():
        qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = int(judgement.relevance)
    return Collection(dataset_id.replace("/", "_"),
                      [_passage(document, passage_lang, contents) for document in data.docs_iter()], queries, qrels)


def _passage(document: Any, lang: str, contents: bool) -> Passage:
    if contents:  # Mr.TyDi: title, blank line, text in one field
        title, text = split_contents(document.text)
        return Passage(document.doc_id, text, title, lang)
    if hasattr(document, "text"):
        return Passage(document.doc_id, document.text, getattr(document, "title", None) or "", lang)
    return Passage(document.doc_id, document.default_text(), "", lang)


def _lang(told: str | None, given: str) -> str:
    return normalise_code(told) if told else given
