"""Readers of parallel text: Moses, TSV, WikiMatrix, plain jsonl, aligned documents."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pydantic import Field

from interlingua.data.readers.documents import read_document_rows
from interlingua.data.readers.rows import LARGEST, BadRow, BadRows, highest, json_object, lang_of, string
from interlingua.data.readers.source import (
    Format,
    PairOptions,
    RowOptions,
    TwoFiles,
    columns,
    filled_lines,
    first_keys,
    first_lines,
    language_suffix,
    languages_in_name,
    languages_of,
)
from interlingua.data.readers.xml import is_po, is_tmx, is_xliff, read_po, read_tmx, read_xliff
from interlingua.data.records import Document, ParallelPair
from interlingua.data.stream import mix
from interlingua.errors import BadInput
from interlingua.files import read_lines
from interlingua.settings import Settings
from interlingua.text.languages import normalise_code


def read_moses(path: TwoFiles, bad: BadRows, options: PairOptions) -> Iterator[ParallelPair]:
    """One record a line; the languages are the names' endings unless given.

    Raises BadInput when the files have different numbers of lines, before the first record: from the line
    that is missing on, every pair would be a wrong translation.
    """
    first, second = path
    source = normalise_code(options.source_lang or language_suffix(first) or _unknown(path))
    target = normalise_code(options.target_lang or language_suffix(second) or _unknown(path))
    counts = [sum(1 for _ in read_lines(file)) for file in path]
    if counts[0] != counts[1]:
        raise BadInput(
            f"{first} has {counts[0]:,} lines, {second} has {counts[1]:,}. "
            "They must translate each other line by line: fetch both again."
        )

    def parse(texts: tuple[str, str]) -> ParallelPair:
        if not texts[0].strip() or not texts[1].strip():
            raise BadRow("an empty side")
        return ParallelPair(*texts, source, target)

    def rows() -> Iterator[tuple[int, tuple[str, str]]]:
        for one, other in zip_longest(read_lines(first), read_lines(second)):
            if one is None or other is None:
                raise BadInput(f"{first}, {second}: one of them changed while they were read. Try again.")
            yield one[0], (one[1], other[1])

    return bad.parsed(first, rows(), parse)


def _unknown(path: TwoFiles) -> str:
    raise BadInput(f"{path[0]}, {path[1]}: the names end in no language. Give source_lang and target_lang.")


def is_plain_pairs(path: Path, start: str) -> bool:
    return {"source", "target"} <= first_keys(start)


def read_plain_pairs(path: Path, bad: BadRows, options: PairOptions) -> Iterator[ParallelPair]:
    """One record a line: `source, target` and, optional, `source_lang, target_lang, score, group, origin`. The row's
    languages win over those given, which win over those in the file name."""
    codes = languages_in_name(path) or (None, None)

    def parse(line: str) -> ParallelPair:
        row = json_object(line)
        score = row.get("score")
        if score is not None and (type(score) not in (int, float) or not abs(score) < LARGEST):
            raise BadRow("'score' must be a finite number")
        return ParallelPair(
            string(row, "source"),
            string(row, "target"),
            lang_of(row, options.source_lang or codes[0], "source_lang"),
            lang_of(row, options.target_lang or codes[1], "target_lang"),
            None if score is None else float(score),
            string(row, "group", ""),
            string(row, "origin", ""),
        )

    return bad.parsed(path, filled_lines(path), parse)


def is_tsv(path: Path, start: str) -> bool:
    width = columns(start)
    if width == 3 and _most(start, lambda line: line.split("\t", 1)[0].strip().isdecimal()):
        raise BadInput(
            f"{path}: the first of three columns holds numbers, no sentences. Take it out (`cut -f2-`); if they are "
            "margins, say so with format=wikimatrix."
        )
    return width in (2, 3)


def read_tsv(path: Path, bad: BadRows, options: PairOptions) -> Iterator[ParallelPair]:
    """One record a line; the languages of the columns are those in the file name unless given."""
    source, target = languages_of(path, options)

    def parse(line: str) -> ParallelPair:
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise BadRow(f"{len(cells)} column(s), 2 or 3 are needed: source, target, origin")
        if not cells[0].strip() or not cells[1].strip():
            raise BadRow("an empty side")
        return ParallelPair(cells[0], cells[1], source, target, origin=cells[2] if len(cells) == 3 else "")

    return bad.parsed(path, filled_lines(path), parse)


def is_wikimatrix(path: Path, start: str) -> bool:
    return columns(start) == 3 and _most(
        start, lambda line: "." in line.split("\t", 1)[0] and _margin(line) is not None
    )


def _most(start: str, holds: Callable[[str], bool]) -> bool:
    lines = first_lines(start)
    return 2 * sum(map(holds, lines)) > len(lines)


class WikiMatrixOptions(PairOptions):
    """Options that choose rows."""

    threshold: float = Field(1.04, description="the least margin")
    select: Literal["random", "top"] = Field("random", description="a seeded sample, or the highest margins")
    limit: int | None = Field(50_000, description="pairs of a file; none: all")
    seed: int = Field(0, description="of the sample")


def read_wikimatrix(path: Path, bad: BadRows, options: WikiMatrixOptions) -> Iterator[ParallelPair]:
    """At most `limit` pairs with a margin of `threshold` or more, in the order of the file.

    select="top" takes those with the highest margin (short and boilerplate-heavy), "random" a seeded sample in which
    a smaller limit gives a subset of a larger one. Holds `limit` pairs, never the file. Rows under the threshold
    and rows not drawn are counted. Hu et al. 2023 sample 50,000 pairs per language and do not say how.
    """
    source, target = languages_of(path, options)

    def parse(line: str) -> ParallelPair:
        cells = line.split("\t")
        if len(cells) != 3:
            raise BadRow(f"{len(cells)} column(s), 3 are needed: margin, source, target")
        margin = _margin(line)
        if margin is None:
            raise BadRow(f"the margin '{cells[0]}' is no number")
        if not cells[1].strip() or not cells[2].strip():
            raise BadRow("an empty side")
        return ParallelPair(cells[1], cells[2], source, target, score=margin)

    def above() -> Iterator[tuple[int, ParallelPair]]:
        for number, pair in bad.placed(path, filled_lines(path), parse):
            if pair.score is not None and pair.score >= options.threshold:
                yield number, pair
            else:
                bad.passed_over(path, f"rows under the margin {options.threshold} not taken")

    def value(number: int, pair: ParallelPair) -> float:
        return float(pair.score or 0) if options.select == "top" else float(mix(options.seed, number))

    left_out = f"rows over the limit of {options.limit or 0:,} not taken (select={options.select})"
    return highest(above(), options.limit, value, partial(bad.passed_over, path, left_out))


def _margin(line: str) -> float | None:
    try:
        value = float(line.split("\t", 1)[0])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def is_aligned_documents(path: Path, start: str) -> bool:
    return {"sentences", "group"} <= first_keys(start)


class AlignedOptions(Settings):
    """Options that choose the pairs of languages."""

    pairs: Sequence[str] = Field((), description="such as [en-ko, tr-zh]; must be given")


def read_aligned_documents(path: Path, bad: BadRows, options: AlignedOptions) -> Iterator[ParallelPair]:
    """Sentence k of a document beside sentence k of its version, for each of `pairs` ("en-ko", "tr-zh"): any language
    with any other, which files of pairs with English cannot join (Hu et al. 2023, Table 4).

    The group of a pair is the file, the document's group and k: the same sentence in a third language shares it.
    Documents whose versions differ in length are counted as bad rows; those without a group, without a version in the
    other language, or with the group of an earlier one of their language are left out and counted. Holds the documents
    of the languages asked for in memory.
    """
    if not options.pairs:
        raise BadInput(f"{path}: say which languages to join, such as options: {{pairs: [en-ko, tr-zh]}}.")
    code_pairs = [_codes(pair) for pair in options.pairs]
    documents: dict[str, dict[str, Document]] = defaultdict(dict)
    for document in read_document_rows(path, bad, RowOptions(lang=None)):
        if not any(document.lang in codes for codes in code_pairs):
            continue
        if not document.group:
            bad.passed_over(path, "documents without a group not taken")
        elif document.group in documents[document.lang]:
            bad.passed_over(path, "documents with the group of an earlier one of their language not taken")
        else:
            documents[document.lang][document.group] = document
    for first, second in code_pairs:
        if alone := len(documents[second].keys() - documents[first].keys()):
            bad.passed_over(path, f"documents in {second} without a version in {first} not taken", alone)
        for group, source in documents[first].items():
            target = documents[second].get(group)
            if target is None:
                bad.passed_over(path, f"documents in {first} without a version in {second} not taken")
                continue
            if len(source.sentences) != len(target.sentences):
                bad.reject(
                    path,
                    f"group {group}",
                    f"{len(source.sentences)} sentences in {first} but {len(target.sentences)} in {second}",
                )
                continue
            for number, (text, translation) in enumerate(zip(source.sentences, target.sentences, strict=True)):
                yield ParallelPair(
                    text, translation, first, second, group=f"{path.name}:{group}#{number}", origin=path.name
                )


def _codes(pair: str) -> tuple[str, str]:
    first, dash, second = str(pair).partition("-")
    if not dash:
        raise BadInput(f"'{pair}' is not a pair of languages. Write it as en-ko.")
    return normalise_code(first), normalise_code(second)


PARALLEL: tuple[Format[ParallelPair], ...] = (
    Format("moses", "two files x.ar, x.en; also Tatoeba", read_moses, None, PairOptions),
    Format("tmx", "TMX", read_tmx, is_tmx, PairOptions),
    Format("xliff", "XLIFF 1.2, 2.0", read_xliff, is_xliff, PairOptions),
    Format("po", "gettext PO", read_po, is_po, PairOptions),
    Format("documents", "jsonl of aligned documents", read_aligned_documents, is_aligned_documents, AlignedOptions),
    Format("jsonl", "jsonl with source, target", read_plain_pairs, is_plain_pairs, PairOptions),
    Format("wikimatrix", "TSV of margin, source, target", read_wikimatrix, is_wikimatrix, WikiMatrixOptions),
    Format("tsv", "TSV of source, target[, origin]; also Tatoeba", read_tsv, is_tsv, PairOptions),
)
