"""Readers of questions with passages: DPR, SQuAD, Tevatron, triples, plain jsonl."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from interlingua.data.keys import Keys
from interlingua.data.readers.rows import (
    BadRow,
    BadRows,
    content_id,
    delimited,
    json_object,
    lang_of,
    objects,
    passage,
    scores,
    string,
)
from interlingua.data.readers.source import (
    Format,
    QuestionOptions,
    columns,
    filled_lines,
    first_keys,
    head,
    plain_name,
    whole_json,
)
from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import BadInput
from interlingua.files import UNREADABLE, open_input, read_lines, reencode
from interlingua.text.languages import code_in_name, find_name

CHUNK = 1 << 20
LARGEST = 1 << 26


def json_array(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """`(line number, object)` for every element of the array that the file consists of.

    Holds one element and one chunk of 1 Mi characters. Raises BadInput with the line for anything that is
    not an array of objects, a truncated file, or an element of more than 64 Mi characters.
    """
    try:
        with io.TextIOWrapper(open_input(path), encoding="utf-8-sig") as stream:
            yield from _Window(path, stream).elements()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 ({error.reason}). {reencode(error.object)}") from error
    except UNREADABLE as error:
        raise BadInput(f"{path}: cannot be read ({error}).") from error


class _Window:
    """The part of the file that is in memory, and the number of the line that it starts on."""

    def __init__(self, path: Path, stream: io.TextIOBase) -> None:
        self.path, self.stream = path, stream
        self.text, self.start, self.line = "", 0, 1

    def elements(self) -> Iterator[tuple[int, dict[str, Any]]]:
        decode = json.JSONDecoder().raw_decode
        self._expect("[", "a JSON array")
        if self._peek() == "]":
            self._advance(1)
        else:
            while True:
                yield self._element(decode)
                if self._peek() == "]":
                    self._advance(1)
                    break
                self._expect(",", "',' or ']' after an element")
        if self._peek():
            self._fail("text after the end of the array")

    def _element(self, decode: Any) -> tuple[int, dict[str, Any]]:
        if self._peek() != "{":
            self._fail("the array must consist of objects")
        while True:
            try:
                value, end = decode(self.text, self.start)
            except RecursionError as error:
                raise BadInput(f"{self.path}, line {self.line}: nested too deeply.") from error
            except ValueError as error:
                # Either the element is cut off at the end of the window, or it is no JSON: only more text can tell.
                if len(self.text) - self.start > LARGEST or not self._more():
                    self._fail(f"an element that is not JSON or is cut off ({error})")
                continue
            line = self.line
            self._advance(end - self.start)
            return line, value

    def _more(self) -> bool:
        rest = self.text[self.start :]
        # Reading as much as is held keeps the work linear when an element spans many chunks.
        chunk = self.stream.read(max(CHUNK, len(rest)))
        self.text, self.start = rest + chunk, 0
        return bool(chunk)

    def _peek(self) -> str:
        """The next character that is not white space; '' at the end of the file."""
        while True:
            while self.start < len(self.text):
                if self.text[self.start] not in " \t\r\n":
                    return self.text[self.start]
                self._advance(1)
            if not self._more():
                return ""

    def _advance(self, characters: int) -> None:
        self.line += self.text.count("\n", self.start, self.start + characters)
        self.start += characters

    def _expect(self, character: str, what: str) -> None:
        if self._peek() != character:
            self._fail(f"{what} is needed")
        self._advance(1)

    def _fail(self, reason: str) -> None:
        raise BadInput(f"{self.path}, line {self.line}: {reason}. Fetch or write the file again.")


GOLD_SCORE = 1000


def is_dpr(path: Path, start: str) -> bool:
    return start.lstrip().startswith("[") and '"positive_ctxs"' in start


def read_dpr(path: Path, bad: BadRows, options: QuestionOptions) -> Iterator[QuestionPassage]:
    """One record an element. `positive_ctxs` become the positives with the gold paragraph (score 1000) first,
    `hard_negative_ctxs` the negatives. The array is streamed. DPR gives its questions no id."""
    return bad.parsed(path, json_array(path), lambda row: _dpr_record(row, options.lang))


def _dpr_record(row: dict[str, Any], lang: str) -> QuestionPassage:
    lang = lang_of(row, lang)
    question = string(row, "question")
    positives = objects(row, "positive_ctxs")
    if not positives:
        raise BadRow(f"the question '{question}' has no positive passage")
    positives = sorted(positives, key=lambda context: context.get("score") != GOLD_SCORE)  # stable
    negatives = objects(row, "hard_negative_ctxs", optional=True)
    return QuestionPassage(
        question,
        tuple(_passage(context, lang) for context in positives),
        tuple(_passage(context, lang) for context in negatives),
        lang,
    )


def _passage(context: dict[str, Any], lang: str) -> Passage:
    return passage(context, lang, id_keys=("passage_id", "psg_id"))


COLUMNS = ["id", "text", "title"]


def read_tsv_passages(path: Path, bad: BadRows, lang: str = "") -> Iterator[Passage]:
    """The passages of a file of 100-word pieces of Wikipedia (Karpukhin et al. 2020), gzipped or not, all in `lang`.

    The first line may name the columns. A bad row has an empty id or text, or an id that occurs twice. Raises BadInput
    naming file and line for other columns and a stray quote, whatever is done with bad rows.
    """
    head(path)
    rows = delimited((f"{line}\n" for _, line in read_lines(path)), "\t")
    seen = Keys()

    def parse(row: list[str]) -> Passage | None:
        if not seen and row[:1] == ["id"]:
            if row != COLUMNS:
                raise BadInput(
                    f"{path}, line {rows.line_num}: the columns are {', '.join(row)}; they must be id, text, title "
                    "(DPR's). Put them in this order, or write the passages as jsonl."
                )
            return None
        if len(row) != len(COLUMNS) or not row[0] or not row[1].strip():
            raise BadRow(f"{len(row)} column(s); three are needed, id, text, title, and only the title may be empty")
        if not seen.add(("", row[0])):
            raise BadRow(f"the passage id '{row[0]}' occurs twice")
        return Passage(row[0], row[1], row[2], lang)

    try:
        entries = ((rows.line_num, row) for row in rows if any(map(str.strip, row)))
        for record in bad.parsed(path, entries, parse):
            if record is not None:
                yield record
    except csv.Error as error:
        raise BadInput(
            f"{path}, line {rows.line_num}: {error}. A field that begins with a double quote must "
            "end with one, and have those inside it doubled."
        ) from error


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph of the file: `number` counts over the whole file from 0; `row` is its JSON object."""

    number: int
    place: str
    title: str
    row: dict[str, Any]


def is_squad(path: Path, start: str) -> bool:
    return start.lstrip().startswith("{") and '"data"' in start and '"paragraphs"' in start and '"context"' in start


def paragraphs(path: Path) -> Iterator[Paragraph]:
    """Every paragraph in order. Raises BadInput when the file is not laid out as SQuAD."""
    data = whole_json(path)
    number = 0
    try:
        for a, article in enumerate(objects(data if isinstance(data, dict) else {}, "data")):
            for p, row in enumerate(objects(article, "paragraphs")):
                yield Paragraph(number, f"data[{a}].paragraphs[{p}]", string(article, "title", ""), row)
                number += 1
    except BadRow as bad:
        raise BadInput(f"{path}: not in SQuAD's layout: {bad}.") from bad


CROSSED = re.compile(r"context-([a-z]{2})-question-")
"""In names of MLQA's files: passages are in one language, questions in another."""


def read_squad(path: Path, bad: BadRows, options: QuestionOptions) -> Iterator[QuestionPassage]:
    """One record a question. Questions marked `is_impossible` (SQuAD 2.0) have no positive: counted, not read.
    TyDi QA's ids say the language ("finnish-81…-3")."""
    crossed = CROSSED.search(plain_name(path))

    def parse(paragraph: Paragraph) -> tuple[Passage, str, list[dict[str, Any]]]:
        text, title, rows = string(paragraph.row, "context"), paragraph.title, objects(paragraph.row, "qas")
        lang = (find_name(str(rows[0].get("id", "")).partition("-")[0]) if rows else None) or options.lang
        passage_lang = (code_in_name(crossed[1]) if crossed else None) or lang
        return Passage(content_id(title, text), text, title, passage_lang), lang, rows

    entries = ((paragraph.place, paragraph) for paragraph in paragraphs(path))
    for place, (positive, lang, rows) in bad.placed(path, entries, parse):
        questions = [(f"{place}.qas[{q}]", row) for q, row in enumerate(rows) if not row.get("is_impossible")]
        if len(questions) < len(rows):
            bad.passed_over(path, "questions without an answer (is_impossible) not read", len(rows) - len(questions))
        yield from bad.parsed(path, questions, partial(_squad_record, positive=positive, lang=lang))


def _squad_record(row: dict[str, Any], positive: Passage, lang: str) -> QuestionPassage:
    return QuestionPassage(string(row, "question"), (positive,), (), lang, string(row, "id", ""))


def is_tevatron(path: Path, start: str) -> bool:
    return {"query", "positive_passages"} <= first_keys(start)


def read_tevatron(path: Path, bad: BadRows, options: QuestionOptions) -> Iterator[QuestionPassage]:
    """One record a line: `query_id, query, positive_passages, negative_passages` of `docid, title, text[, lang]`, and
    perhaps `scores`, a teacher's, of the first positive and of each negative."""
    return bad.parsed(path, filled_lines(path), lambda line: _tevatron_record(line, options.lang))


def as_row(record: QuestionPassage) -> dict[str, Any]:
    """The row that `read_tevatron` reads as this record."""
    row = {
        "query_id": record.id,
        "query": record.question,
        "lang": record.lang,
        "positive_passages": [_passage_row(one) for one in record.positives],
        "negative_passages": [_passage_row(one) for one in record.negatives],
    }
    return {**row, "scores": list(record.scores)} if record.scores else row


def _passage_row(passage: Passage) -> dict[str, str]:
    row = {"docid": passage.id, "title": passage.title, "text": passage.text, "lang": passage.lang}
    return {key: value for key, value in row.items() if value or key == "text"}


def _tevatron_record(line: str, default: str) -> QuestionPassage:
    row = json_object(line)
    lang = lang_of(row, default)
    question = string(row, "query")
    positives = objects(row, "positive_passages")
    if not positives:
        raise BadRow(f"the question '{question}' has no positive passage")
    negatives = objects(row, "negative_passages", optional=True)
    return QuestionPassage(
        question,
        tuple(passage(item, lang, id_keys=("docid",)) for item in positives),
        tuple(passage(item, lang, id_keys=("docid",)) for item in negatives),
        lang,
        string(row, "query_id", ""),
        scores(row, 1 + len(negatives)),
    )


def is_triples(path: Path, start: str) -> bool:
    return columns(start) >= 3


def read_triples(path: Path, bad: BadRows, options: QuestionOptions) -> Iterator[QuestionPassage]:
    """One record a line, one or more negatives. Lines of ids (qidpidtriples) are bad rows: they have no texts."""
    return bad.parsed(path, filled_lines(path), lambda line: _triples_record(line, options.lang))


ID = re.compile(r"[!-~]*\d[!-~]*")
"""A word with a digit, as ids are."""


def _triples_record(line: str, lang: str) -> QuestionPassage:
    cells = line.split("\t")
    if len(cells) < 3:
        raise BadRow(f"{len(cells)} column(s), at least 3 are needed: query, positive, negative")
    if not all(cell.strip() for cell in cells):
        raise BadRow("an empty column")
    if all(map(ID.fullmatch, cells)):
        raise BadRow("these are ids, the texts are needed: triples of ids are read with kind: triples")
    question, positive, *negatives = cells
    texts = [Passage(content_id("", text), text, "", lang) for text in (positive, *negatives)]
    return QuestionPassage(question, (texts[0],), tuple(texts[1:]), lang)


def is_plain_questions(path: Path, start: str) -> bool:
    return {"question", "passage"} <= first_keys(start)


def read_plain_questions(path: Path, bad: BadRows, options: QuestionOptions) -> Iterator[QuestionPassage]:
    """One record a line, with hard negatives in `negatives`, texts or objects like the row itself (`passage`, `title`).
    `lang` of the row wins over the `lang` given. Further fields (answers) are not used."""

    def parse(line: str) -> QuestionPassage:
        row = json_object(line)
        lang = lang_of(row, options.lang)
        positive = passage(row, lang, id_keys=("passage_id",), text_key="passage")
        given = _negatives(row)
        negatives = [one for one in given if str(one.get("passage", "?")).strip()]
        if len(negatives) < len(given):
            bad.passed_over(path, "empty negatives not taken", len(given) - len(negatives))
        return QuestionPassage(
            string(row, "question"),
            (positive,),
            tuple(passage(one, lang, id_keys=("passage_id", "docid"), text_key="passage") for one in negatives),
            lang,
            string(row, "id", ""),
        )

    return bad.parsed(path, filled_lines(path), parse)


def _negatives(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The `negatives` of a row, texts or objects, as objects with a `passage`."""
    given = row.get("negatives")
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(one, (str, dict)) for one in given):
        raise BadRow("'negatives' must be a list of texts or objects")
    as_objects = [{"passage": one} if isinstance(one, str) else one for one in given]
    return [{"passage": one["text"], **one} if "text" in one else one for one in as_objects]


QUESTIONS: tuple[Format[QuestionPassage], ...] = (
    Format("dpr", "DPR's training JSON", read_dpr, is_dpr, QuestionOptions),
    Format("squad", "SQuAD JSON", read_squad, is_squad, QuestionOptions),
    Format("tevatron", "jsonl of Tevatron, Mr.TyDi, MIRACL", read_tevatron, is_tevatron, QuestionOptions),
    Format("jsonl", "jsonl with question, passage", read_plain_questions, is_plain_questions, QuestionOptions),
    Format("triples", "TSV of query, positive, negative", read_triples, is_triples, QuestionOptions),
)
