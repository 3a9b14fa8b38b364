"""Linked documents, and documents that a group links: read from any source that has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from interlingua.data.collections.irds import PREFIX, data_set
from interlingua.data.collections.stored import StoredPassages, provided
from interlingua.data.encyclopedia import is_encyclopedia
from interlingua.data.readers import DOCUMENTS, clirmatrix, read_documents
from interlingua.data.readers.formats import Format, read_all
from interlingua.data.readers.source import PathLike, expand
from interlingua.data.records import Document, LinkedDocuments, Passage
from interlingua.errors import InterlinguaError
from interlingua.progress import say

LINKED: tuple[Format[Document | LinkedDocuments], ...] = (
    Format("clirmatrix", "CLIRMatrix's jsonl of queries and graded documents", clirmatrix.read, clirmatrix.matches),
    *cast("tuple[Format[Document | LinkedDocuments], ...]", DOCUMENTS),
)
CHUNK = 1 << 10


def read_linked(path: PathLike, *, format: str | None = None, lang: str | None = None, on_bad_row: str = "error",
                **options: Any) -> Iterator[Document | LinkedDocuments]:
    """Linked documents of CLIRMatrix, local or as `ir_datasets:clirmatrix/zh/bi139-full/en/train`; of other sources
    documents, which `data.spans.link` puts together. Formats and their options: `LINKED`."""
    if str(path).startswith(PREFIX):
        if unknown := options.keys() - {"grade"}:
            raise InterlinguaError(f"{path}: ir_datasets takes no option '{min(unknown)}'. Leave it out.")
        return _of_ir_datasets(str(path).removeprefix(PREFIX), int(options.get("grade", clirmatrix.BEST)))
    if is_encyclopedia(path):
        return cast("Iterator[Document | LinkedDocuments]", read_documents(path, lang=lang, **options))
    return read_all(expand(path), LINKED, format, on_bad_row, {"lang": lang, **options})


def _of_ir_datasets(name: str, grade: int) -> Iterator[LinkedDocuments]:
    """What `clirmatrix.read` gives, of the data set `name` of ir_datasets; the texts come from its document stores."""
    parts = re.fullmatch(r"clirmatrix/([a-z]+)/[\w-]+/([a-z]+)/\w+", name)
    if parts is None:
        raise InterlinguaError(f"{PREFIX}{name}: not known to hold linked documents. Those of CLIRMatrix do, such as "
                               f"{PREFIX}clirmatrix/zh/bi139-full/en/train.")
    with provided(name):
        data = data_set(name)
        source, target = (_stored(part, f"clirmatrix/{lang}", lang) for part, lang in
                          ((data_set(f"clirmatrix/{parts[2]}"), parts[2]), (data, parts[1])))
        pairs = ((row.query_id, row.doc_id) for row in data.qrels_iter() if int(row.relevance) >= grade)
        lost = 0
        while chunk := list(islice(pairs, CHUNK)):
            sources, targets = (side.by_id(dict.fromkeys(ids)) for side, ids in
                                zip((source, target), zip(*chunk, strict=True), strict=True))
            for first, second in ((sources.get(name), targets.get(other)) for name, other in chunk):
                if first and second and first.text.strip() and second.text.strip():
                    yield clirmatrix.linked(first, second)
                else:
                    lost += 1
    if lost:
        say(f"{PREFIX}{name}: {lost:,} pairs with a document that has no text")


def _stored(data: Any, name: str, lang: str) -> StoredPassages:
    return StoredPassages(data, name, lambda document: Passage(document.doc_id, document.text, "", lang), lang)
