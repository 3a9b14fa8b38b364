"""Linked documents and spans of them: what C3 is pre-trained on (Yang et al. 2022, section 2)."""

from __future__ import annotations

import logging
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, cast

import numpy as np

from interlingua.data.encyclopedia import is_encyclopedia
from interlingua.data.irds import PREFIX, data_set
from interlingua.data.layouts import StoredPassages, provided
from interlingua.data.readers import DOCUMENTS, read_documents
from interlingua.data.readers.documents import ClirMatrixOptions, is_clirmatrix, linked, read_clirmatrix
from interlingua.data.readers.source import Format, PathLike, expand, read_all
from interlingua.data.records import Document, LinkedDocuments, Passage, batched, decode, encode, language_of
from interlingua.errors import BadInput
from interlingua.text.languages import language, normalise_code

logger = logging.getLogger(__name__)

LINKED: tuple[Format[Document | LinkedDocuments], ...] = (
    Format(
        "clirmatrix",
        "CLIRMatrix's jsonl of queries and graded documents",
        read_clirmatrix,
        is_clirmatrix,
        ClirMatrixOptions,
    ),
    *cast("tuple[Format[Document | LinkedDocuments], ...]", DOCUMENTS),
)
CHUNK = 1 << 10


def read_linked(
    path: PathLike, *, format: str | None = None, lang: str | None = None, on_bad_row: str = "error", **options: Any
) -> Iterator[Document | LinkedDocuments]:
    """Linked documents of CLIRMatrix, local or as `ir_datasets:clirmatrix/zh/bi139-full/en/train`; of other sources
    documents, which `link` puts together. Formats and their options: `LINKED`."""
    if str(path).startswith(PREFIX):
        if unknown := options.keys() - {"grade"}:
            raise BadInput(f"{path}: ir_datasets takes no option '{min(unknown)}'. Leave it out.")
        grade = ClirMatrixOptions.checked(options, str(path)).grade
        return _of_ir_datasets(str(path).removeprefix(PREFIX), grade)
    if is_encyclopedia(path):
        return cast("Iterator[Document | LinkedDocuments]", read_documents(path, lang=lang, **options))
    return read_all(expand(path), LINKED, format, on_bad_row, {"lang": lang, **options})


def _of_ir_datasets(name: str, grade: int) -> Iterator[LinkedDocuments]:
    """Read the data set `name` of ir_datasets as `read_clirmatrix` does, with texts from its document stores."""
    match = re.fullmatch(r"clirmatrix/([a-z]+)/[\w-]+/([a-z]+)/\w+", name)
    if match is None:
        raise BadInput(
            f"{PREFIX}{name}: not known to hold linked documents. Those of CLIRMatrix do, such as "
            f"{PREFIX}clirmatrix/zh/bi139-full/en/train."
        )
    with provided(name):
        data = data_set(name)
        source, target = (
            _stored(dataset, f"clirmatrix/{lang}", lang)
            for dataset, lang in ((data_set(f"clirmatrix/{match[2]}"), match[2]), (data, match[1]))
        )
        pairs = ((row.query_id, row.doc_id) for row in data.qrels_iter() if int(row.relevance) >= grade)
        without_text = 0
        for chunk in batched(pairs, CHUNK):
            sources, targets = (
                side.by_id(dict.fromkeys(ids))
                for side, ids in zip((source, target), zip(*chunk, strict=True), strict=True)
            )
            for first, second in ((sources.get(source_id), targets.get(target_id)) for source_id, target_id in chunk):
                if first and second and first.text.strip() and second.text.strip():
                    yield linked(first, second)
                else:
                    without_text += 1
    if without_text:
        logger.warning(f"{PREFIX}{name}: {without_text:,} pairs with a document that has no text")


def _stored(data: Any, name: str, lang: str) -> StoredPassages:
    return StoredPassages(data, name, lambda document: Passage(document.doc_id, document.text, "", lang), lang)


SpanMode = Literal["uniform_start", "tiled"]
ANY = "any"


@dataclass(frozen=True, slots=True)
class SpanPair:
    """The texts of two linked documents, and for each a number in [0, 1) that decides which span of it is read:
    how many tokens a text has, and so where a span may begin, is the tokenizer's to say (see `cut`).

    Pairs of one `group` are about the same thing. Streams balance over `lang`, the side that is not English.
    """

    source: str
    target: str
    lang: str
    source_draw: float
    target_draw: float
    group: str


def link(
    documents: Iterable[Document | LinkedDocuments], *, source: str = "en", langs: Iterable[str] | None = None
) -> Iterator[LinkedDocuments]:
    """The documents of each `group` in pairs: that in the language `source` with every other one, or with "any" every
    two of them (an English one first, else by code). `langs` keeps these languages only, beside `source`. Documents
    that are linked already pass as they are.

    A group is one topic wherever its documents stand, so groups must be named apart in all that is read together. Of
    two documents of one group and language the first counts. What has no partner is counted on standard error. Texts
    wait in a temporary file, not in memory.
    """
    source = source if source == ANY else normalise_code(source)
    allowed = None if langs is None else {*map(normalise_code, langs), source}
    groups: dict[str, dict[str, int]] = {}
    counts: Counter[str] = Counter()
    total = 0
    with tempfile.TemporaryFile() as spool:
        for document in documents:
            sides = (document.source, document.target) if isinstance(document, LinkedDocuments) else (document,)
            if allowed is not None and not allowed.issuperset(side.lang for side in sides):
                continue
            if isinstance(document, LinkedDocuments):
                yield document
                continue
            total += 1
            if not document.group:
                counts["without a group"] += 1
            elif document.lang in groups.setdefault(document.group, {}):
                counts["repeated in their group and language"] += 1
            else:
                groups[document.group][document.lang] = spool.tell()
                spool.write(encode(document).encode("utf-8", "surrogatepass") + b"\n")
        for members in groups.values():
            if source != ANY and source not in members:
                counts[f"in a group without '{source}'"] += len(members)
                continue
            if len(members) == 1:
                counts["alone in their group"] += 1
                continue
            versions = {}
            for lang in sorted(members, key=lambda code: (code != (source if source != ANY else "en"), code)):
                spool.seek(members[lang])
                versions[lang] = decode(Document, spool.readline())
            for first, second in combinations(versions, 2):
                if source in (ANY, first):
                    yield LinkedDocuments(versions[first], versions[second])
    if counts:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
        logger.info(
            f"linked documents: {counts.total():,} of {total:,} documents have no partner and were left out ({reasons})"
        )


def span_pair(linked: LinkedDocuments, number: int, random: np.random.Generator) -> SpanPair:
    """The texts of both documents (without their titles) and two independent draws. `number` is the record's in its
    store: the group of documents that name none."""
    source, target = (language(side.lang).sentence_gap.join(side.sentences) for side in (linked.source, linked.target))
    first, second = random.random(2).tolist()
    group = linked.source.group or linked.target.group or linked.source.id or f"#{number}"
    return SpanPair(source, target, language_of(linked), first, second, group)


def cut(tokens: int, length: int, draw: float, mode: SpanMode = "uniform_start", least: int = 1) -> slice:
    """Cut a span of `length` tokens out of a text of `tokens`; a text that is no longer is the span. Else with
    "uniform_start" the span begins at any token that leaves it whole, with equal chance; with "tiled" it is one of the
    spans that the text falls into from its beginning, the last of which may be shorter (but not under `least`)."""
    if tokens <= length:
        return slice(0, tokens)
    if mode == "uniform_start":
        start = int(draw * (tokens - length + 1))
    else:
        start = int(draw * (tokens // length + (tokens % length >= least))) * length
    return slice(start, min(start + length, tokens))
