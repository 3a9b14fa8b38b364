"""Readers: any public format in, records out. A format is two functions and a row in the table of its kind of record.

Every function takes a file, a folder or a glob (all files in sorted order), gzipped or not, or the bundled
`encyclopedia`, `encyclopedia:train`, `encyclopedia:test`; recognises the format by content unless `format` names it;
and streams. `on_bad_row="error"` raises BadInput with file, line, reason and what to do; "skip" counts the bad
rows and lists them at the end. Bytes that are not UTF-8 and files that are broken as a whole are always an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from interlingua.data import encyclopedia
from interlingua.data.readers.documents import (
    DOCUMENTS,
    CcnetOptions,
    PassageOptions,
    is_ccnet,
    is_collection_passages,
    is_documents,
    is_sentence_lines,
    read_ccnet_sentences,
    read_collection_passages,
    read_sentence_lines,
    read_sentence_rows,
)
from interlingua.data.readers.parallel import PARALLEL
from interlingua.data.readers.questions import QUESTIONS
from interlingua.data.readers.source import (
    Format,
    PathLike,
    RowOptions,
    TwoFiles,
    expand,
    group,
    head,
    matching,
    plain_name,
    read_all,
    source_fingerprint,
)
from interlingua.data.records import Document, ParallelPair, QuestionPassage, Sentence
from interlingua.errors import BadInput, suggestion
from interlingua.text.languages import language_at_end, normalise_code

__all__ = [
    "DOCUMENTS",
    "PARALLEL",
    "QUESTIONS",
    "SENTENCES",
    "read_documents",
    "read_parallel",
    "read_questions",
    "read_sentences",
    "source_fingerprint",
]


def _is_plain_text(path: Path, start: str) -> bool:
    # the lines of a PO file, too, have one column
    return is_sentence_lines(path, start) and not matching(PARALLEL, path, start)


SENTENCES: tuple[Format[Sentence], ...] = (
    Format(
        "passages",
        "jsonl of a collection: id and contents, or docid, title, text",
        read_collection_passages,
        is_collection_passages,
        PassageOptions,
    ),
    Format("jsonl", "jsonl with text or sentences", read_sentence_rows, is_documents, RowOptions),
    Format("ccnet", "CCNet's jsonl with raw_content", read_ccnet_sentences, is_ccnet, CcnetOptions),
    Format("text", "plain text, one sentence a line", read_sentence_lines, _is_plain_text, RowOptions),
)
SIDES = ("source", "target", "foreign", "both")


def read_questions(
    path: PathLike, *, format: str | None = None, lang: str | None = None, on_bad_row: str = "error", **options: Any
) -> Iterator[QuestionPassage]:
    """Questions with their passages. `lang` is the language of rows that do not name theirs; without it that of the
    file's name (`xquad.ar.json`), else English. Formats: `QUESTIONS`."""
    given = normalise_code(lang) if lang else None
    if encyclopedia.is_encyclopedia(path):
        _no_options(options)
        return encyclopedia.questions(encyclopedia.split_of(path, "train"), given or "en")

    def options_of(file: Path | TwoFiles) -> dict[str, Any]:
        name = plain_name(file) if isinstance(file, Path) else ""
        return {"lang": given or language_at_end(Path(name).stem) or "en", **options}

    return read_all(expand(path), QUESTIONS, format, on_bad_row, options_of)


def read_parallel(
    path: PathLike | Iterable[PathLike],
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    format: str | None = None,
    on_bad_row: str = "error",
    **options: Any,
) -> Iterator[ParallelPair]:
    """Sentence pairs. Files x.ar and x.en are read together; `x` alone means both. `source_lang` and `target_lang`
    name the languages of the columns where neither file nor name tells them. Formats and their options: `PARALLEL`
    (WikiMatrix: threshold=1.04, select="random"|"top", limit=50_000, seed=0)."""
    if encyclopedia.is_encyclopedia(path):
        _no_options({**options, **({"target_lang": target_lang} if target_lang not in (None, "en") else {})})
        return encyclopedia.parallel(encyclopedia.split_of(path, "train"), _langs(source_lang))
    reader_options = {"source_lang": source_lang, "target_lang": target_lang, **options}
    return read_all(group(path), PARALLEL, format, on_bad_row, reader_options)


def read_documents(
    path: PathLike, *, format: str | None = None, lang: str | None = None, on_bad_row: str = "error", **options: Any
) -> Iterator[Document]:
    """Documents. `lang` is the language of rows that do not name theirs. Formats: `DOCUMENTS`."""
    if encyclopedia.is_encyclopedia(path):
        _no_options(options)
        return encyclopedia.documents(encyclopedia.split_of(path, None), _langs(lang))
    return read_all(expand(path), DOCUMENTS, format, on_bad_row, {"lang": lang, **options})


def read_sentences(
    path: PathLike | Iterable[PathLike],
    *,
    lang: str | None = None,
    side: str | None = None,
    format: str | None = None,
    on_bad_row: str = "error",
    **options: Any,
) -> Iterator[Sentence]:
    """Raw sentences: plain text, jsonl, the sentences of documents, the passages of a collection, or one `side` of
    parallel files with the other thrown away: "source", "target", or "foreign" (the one that is not English); "both"
    keeps both. Formats: `SENTENCES`; with a side those of `read_parallel`, whose options are taken then. Beside
    parallel files a file of plain text, which has one side, may stand: a language that they lack (WikiMatrix: Thai)."""
    if side is not None:
        if side not in SIDES:
            raise BadInput(f"side='{side}' is unknown.{suggestion(side, SIDES)}")
        reader_options = options if lang is None else {"lang": lang, **options}  # that no pair has: the error says so
        files = group(path, alone=True) if format is None and not encyclopedia.is_encyclopedia(path) else []
        plain_files = [file for file in files if isinstance(file, Path) and _is_plain_text(file, head(file))]
        if plain_files:
            sentences = read_all(plain_files, SENTENCES, "text", on_bad_row, {})
            rest = [file for file in files if file not in plain_files]
            pairs = read_all(rest, PARALLEL, None, on_bad_row, reader_options) if rest else iter(())
            return chain(_side(pairs, side), sentences)
        return _side(read_parallel(path, format=format, on_bad_row=on_bad_row, **reader_options), side)
    if encyclopedia.is_encyclopedia(path):
        _no_options(options)
        return encyclopedia.sentences(encyclopedia.split_of(path, None), _langs(lang))
    paths = expand(path)
    for file in paths if format is None else ():
        start = head(file)
        if not matching(SENTENCES, file, start) and (parallel := matching(PARALLEL, file, start)):
            raise BadInput(
                f"{file}: looks like parallel text ({parallel.name}). Say which side to read, source, target, foreign "
                "or both: --side foreign, or in a recipe `options: {side: foreign}`."
            )
    return read_all(paths, SENTENCES, format, on_bad_row, {"lang": lang, **options})


def _langs(lang: str | None) -> list[str] | None:
    return [normalise_code(lang)] if lang else None


def _no_options(options: dict[str, Any]) -> None:
    if options:
        raise BadInput(f"the bundled encyclopedia takes no option '{next(iter(options))}'. Leave it out.")


def _side(pairs: Iterator[ParallelPair], side: str) -> Iterator[Sentence]:
    for pair in pairs:
        if side in ("source", "both") or (side == "foreign" and pair.source_lang != "en"):
            yield Sentence(pair.source, pair.source_lang)
        if side in ("target", "both") or (side == "foreign" and pair.target_lang != "en"):
            yield Sentence(pair.target, pair.target_lang)
