"""Readers of documents and raw sentences, and of CLIRMatrix's linked documents."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field

from interlingua.data.readers.rows import BadRow, BadRows, highest, json_object, lang_of, string
from interlingua.data.readers.source import (
    Format,
    RowOptions,
    columns,
    filled_lines,
    first_keys,
    language_suffix,
    plain_name,
)
from interlingua.data.records import Document, LinkedDocuments, Passage, Sentence, batched
from interlingua.data.store import KeyedStore
from interlingua.data.stream import mix
from interlingua.errors import BadInput
from interlingua.files import read_lines
from interlingua.settings import Settings
from interlingua.text.languages import code_of_name, language_at_end, normalise_code
from interlingua.text.sentences import split_sentences


def is_documents(path: Path, start: str) -> bool:
    return bool({"sentences", "text"} & first_keys(start))


def read_document_rows(path: Path, bad: BadRows, options: RowOptions) -> Iterator[Document]:
    """One record a line. A `text` without `sentences` is split by `split_sentences`. The row's `lang` wins over the one
    given."""
    return bad.parsed(path, filled_lines(path), lambda line: parse_document(line, options.lang))


def parse_document(line: str, default: str | None) -> Document:
    """The document on a line; BadRow for a field that is missing or empty."""
    row = json_object(line)
    sentences = row.get("sentences")
    if sentences is None:
        sentences = split_sentences(string(row, "text"), lang_of(row, default))
    if not isinstance(sentences, list) or not sentences:
        raise BadRow("'sentences' must be a list with at least one sentence")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str) or not sentence.strip():
            raise BadRow(f"sentences[{number}] is empty or no text")
    return Document(
        tuple(sentences),
        lang_of(row, default),
        string(row, "id", ""),
        string(row, "title", ""),
        string(row, "group", ""),
    )


class CcnetOptions(RowOptions):
    """Options for cutting a document into sentences."""

    split: Literal["rules", "lines"] = Field(
        "rules",
        description="each line of the text by the sentence rules of its language; `lines`: no further than that",
    )


def is_ccnet(path: Path, start: str) -> bool:
    return "raw_content" in first_keys(start)


def read_ccnet_documents(path: Path, bad: BadRows, options: CcnetOptions) -> Iterator[Document]:
    """CCNet's rows (Wenzek et al. 2020): the text is `raw_content`, a paragraph a line; the language `language`. CCNet
    does not split sentences, and Wu et al. 2022 do not say how they did: `split` says how it is done here."""

    def parse(line: str) -> Document:
        row = json_object(line)
        code = lang_of(row, options.lang, "language")
        lines = [part.strip() for part in string(row, "raw_content").split("\n") if part.strip()]
        sentences = (
            lines if options.split == "lines" else [one for part in lines for one in split_sentences(part, code)]
        )
        return Document(
            tuple(sentences), code, string(row, "digest", "") or string(row, "url", ""), string(row, "title", "")
        )

    return bad.parsed(path, filled_lines(path), parse)


def read_ccnet_sentences(path: Path, bad: BadRows, options: CcnetOptions) -> Iterator[Sentence]:
    """Every sentence of CCNet's documents."""
    return sentences_of(read_ccnet_documents(path, bad, options))


def sentences_of(documents: Iterator[Document]) -> Iterator[Sentence]:
    """Every sentence of the documents."""
    return (Sentence(sentence, document.lang) for document in documents for sentence in document.sentences)


def is_sentence_lines(path: Path, start: str) -> bool:
    return columns(start) == 1


def read_sentence_lines(path: Path, bad: BadRows, options: RowOptions) -> Iterator[Sentence]:
    """One record a line that is not blank (blank ones are counted); the language is given, or the name's ending
    (`news.ar`, `news.ar.gz`), or the whole name (`ar.txt`)."""
    code = options.lang or language_suffix(path) or code_of_name(plain_name(path).split(".")[0])
    if not code:
        raise BadInput(f"{path}: the file name tells no language (like ar.txt). Name it so, or give `lang`.")
    code = normalise_code(code)

    def parse(line: str) -> Sentence:
        if "\t" in line:
            raise BadRow("a tab: this looks like a table. Of a parallel file say which side (side='source')")
        return Sentence(line, code)

    def filled() -> Iterator[tuple[int, str]]:
        for number, line in read_lines(path):
            if line.strip():
                yield number, line
            else:
                bad.passed_over(path, "blank lines")

    return bad.parsed(path, filled(), parse)


def read_sentence_rows(path: Path, bad: BadRows, options: RowOptions) -> Iterator[Sentence]:
    """Every sentence of every document; a `text` that nobody split is split first."""
    return sentences_of(read_document_rows(path, bad, options))


def is_collection_passages(path: Path, start: str) -> bool:
    keys = first_keys(start)
    return "contents" in keys or {"docid", "text"} <= keys


class PassageOptions(RowOptions):
    """Options that choose the passages of a collection."""

    limit: int | None = Field(50_000, gt=0, description="passages of a file, a seeded sample; none: all")
    seed: int = Field(0, description="of the sample")


def read_collection_passages(path: Path, bad: BadRows, options: PassageOptions) -> Iterator[Sentence]:
    """The passages of a collection as raw text, one record a passage: Mr.TyDi's `{id, contents}`, title, blank line,
    text; or `{docid, title, text}`. Titles are left out.

    The language is the row's, or the one given, or the one that the file or a folder above it is called after
    (`mrtydi-v1.1-thai/collection/docs.jsonl.gz`). A smaller `limit` gives a subset of a larger one; passages that are
    not drawn are counted. Holds `limit` passages, never the file.
    """
    code = options.lang or next(filter(None, (language_at_end(part) for part in _names(path))), None)

    def parse(line: str) -> Sentence:
        fields = json_object(line)
        contents = string(fields, "text" if "text" in fields else "contents")
        _, gap, body = contents.partition("\n\n") if "text" not in fields else ("", "", "")
        text = (body if gap else contents).strip()
        if not text:
            raise BadRow("a passage without text")
        return Sentence(text, lang_of(fields, code))

    rows = bad.placed(path, filled_lines(path), parse)
    left_out = f"passages over the limit of {options.limit or 0:,} not taken"
    # those with the smallest hashes
    return highest(
        rows, options.limit, lambda number, _: -mix(options.seed, number), partial(bad.passed_over, path, left_out)
    )


def _names(path: Path) -> list[str]:
    """The name of the file without its endings, and those of the two folders that it is in."""
    return [plain_name(path).split(".")[0], path.parent.name, path.parent.parent.name]


DOCUMENTS: tuple[Format[Document], ...] = (
    Format("jsonl", "jsonl with sentences or text", read_document_rows, is_documents, RowOptions),
    Format("ccnet", "CCNet's jsonl with raw_content", read_ccnet_documents, is_ccnet, CcnetOptions),
)

BEST = 6
"""The highest grade: the document in the other language of what BM25 ranks first in the query's own."""
CHUNK = 1 << 12


def is_clirmatrix(path: Path, start: str) -> bool:
    return {"src_id", "tgt_results"} <= first_keys(start)


class ClirMatrixOptions(Settings):
    """Options that name the files of documents, and choose the links among them."""

    source_documents: str | list[str] | None = Field(None, description="files of the queries' documents; must be given")
    target_documents: str | list[str] | None = Field(None, description="files of the results' documents; must be given")
    source_lang: str = Field("en", description="of the queries' documents")
    target_lang: str | None = Field(None, description="of the results' documents; must be given")
    grade: int = Field(BEST, description="the least grade of a result that is linked")


def read_clirmatrix(path: Path, bad: BadRows, options: ClirMatrixOptions) -> Iterator[LinkedDocuments]:
    """Rows `{"src_id", "src_query", "tgt_results": [[document id, grade], …]}`: the document of each result of at least
    this `grade`, linked with the document whose id is the query's (Yang et al. 2022). The documents are TSV, `id <tab>
    text`.

    Those that are linked wait in a temporary folder, not in memory. Pairs with a document that has no text are counted.
    """
    source, target, target_lang = options.source_documents, options.target_documents, options.target_lang
    if not source or not target or not target_lang:
        raise BadInput(
            f"{path}: CLIRMatrix needs source_documents=…, target_documents=… (TSV of id and text) and target_lang=…."
        )
    langs = normalise_code(options.source_lang), normalise_code(target_lang)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        id_sets: tuple[set[str], set[str]] = set(), set()
        found = bad.parsed(path, filled_lines(path), lambda line: _pairs(line, options.grade))
        for pair in chain.from_iterable(found):
            spool.write("\t".join(pair) + "\n")
            for ids, document_id in zip(id_sets, pair, strict=True):
                ids.add(document_id)
        stores = [
            _store(Path(folder, str(place)), files, bad, ids, lang)
            for place, (files, ids, lang) in enumerate(zip((source, target), id_sets, langs, strict=True))
        ]
        spool.seek(0)
        pairs = (line.rstrip("\n").split("\t") for line in spool)
        for chunk in batched(pairs, CHUNK):
            rows = [store.rows_of(pair[side] for pair in chunk) for side, store in enumerate(stores)]
            for numbers in zip(*(side.tolist() for side in rows), strict=True):
                if min(numbers) < 0:
                    bad.passed_over(path, "pairs with a document that has no text")
                else:
                    yield linked(*(store[row] for store, row in zip(stores, numbers, strict=True)))


def _pairs(line: str, grade: int) -> list[tuple[str, str]]:
    """(query id, document id) of every result of at least this grade."""
    row = json_object(line)
    query, results = string(row, "src_id"), row.get("tgt_results")
    if not isinstance(results, list) or not all(isinstance(result, list) and len(result) == 2 for result in results):
        raise BadRow("'tgt_results' must be a list of [document id, grade]")
    pairs = []
    for document, value in results:
        if isinstance(value, bool) or not str(value).isdecimal() or not str(document).strip():
            raise BadRow(f"[{document!r}, {value!r}] is no document id with a grade")
        if int(value) >= grade:
            pairs.append((query, str(document)))
    if any("\t" in name or "\n" in name for pair in pairs for name in pair):
        raise BadRow("an id with white space in it")
    return pairs


def linked(source: Passage, target: Passage) -> LinkedDocuments:
    """Two texts as linked documents; all that is linked to one source is of one group."""
    sides = [
        Document(
            tuple(split_sentences(side.text, side.lang)),
            side.lang,
            side.id,
            side.title,
            f"clirmatrix:{source.lang}:{source.id}",
        )
        for side in (source, target)
    ]
    return LinkedDocuments(*sides)


def _store(folder: Path, documents: str | list[str], bad: BadRows, ids: set[str], lang: str) -> KeyedStore[Passage]:
    files = [Path(name) for name in ([documents] if isinstance(documents, str) else documents)]
    if not ids:
        raise BadInput("CLIRMatrix: no result has the grade that is asked for. Lower grade=….")

    def texts() -> Iterator[Passage]:
        found = False
        for file in files:
            for number, line in filled_lines(file):
                name, tab, text = line.partition("\t")
                if not tab:
                    bad.reject(file, number, "1 column, 2 are needed: document id, text")
                elif name in ids and text.strip():
                    found = True
                    yield Passage(name, text, "", lang)
        if not found:
            raise BadInput(
                f"{', '.join(map(str, files))}: none of the {len(ids):,} documents wanted is in "
                f"it, such as '{min(ids)}'. Are these the documents in '{lang}'?"
            )

    return KeyedStore.build(folder, texts(), Passage, ", ".join(map(str, files)))
