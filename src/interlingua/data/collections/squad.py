"""SQuAD's JSON as a test collection: XQuAD, ARCD, KorQuAD …; and XQuAD-R (LAReQA, Roy et al. 2020) with sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interlingua.data.readers import squad
from interlingua.data.readers.bad_rows import BadRow, objects, string
from interlingua.data.readers.source import head, plain_name
from interlingua.data.records import Collection, Passage, Qrels, Query
from interlingua.errors import InterlinguaError
from interlingua.files import is_input


def matches(path: Path) -> bool:
    return is_input(path) and (squad.matches(path, head(path)) or plain_name(path).endswith(".json"))


def load(path: Path, split: str, lang: str) -> Collection:
    """Every paragraph is a passage, `p0`, `p1`, … in order: the same id in every translation of the file.

    Where the file has `sentences` (XQuAD-R), every sentence is a passage as in LAReQA: the sentence is its `title`, the
    whole paragraph its `text`, and only the sentence that holds the first answer is relevant.
    """
    passages: list[Passage] = []
    queries: dict[str, Query] = {}
    qrels: Qrels = {}
    for paragraph in squad.paragraphs(path):
        try:
            found = _passages(paragraph, lang)
            for number, row in enumerate(objects(paragraph.row, "qas")):
                if row.get("is_impossible"):
                    continue
                query = Query(string(row, "id"), string(row, "question"), lang)
                if query.id in queries:
                    raise BadRow(f"qas[{number}]: the query id '{query.id}' occurs twice")
                queries[query.id] = query
                qrels[query.id] = {found[_answering(paragraph.row, row)].id: 1}
        except BadRow as bad:
            raise InterlinguaError(f"{path}, {paragraph.place}: {bad}. Mend the file.") from bad
        passages += found
    return Collection(path.name.removesuffix(".gz").removesuffix(".json"), passages, list(queries.values()), qrels)


def _passages(paragraph: squad.Paragraph, lang: str) -> list[Passage]:
    context = string(paragraph.row, "context")
    if "sentences" not in paragraph.row:
        return [Passage(f"p{paragraph.number}", context, paragraph.title, lang)]
    sentences, breaks = paragraph.row["sentences"], paragraph.row.get("sentence_breaks")
    if not isinstance(sentences, list) or not isinstance(breaks, list) or len(breaks) != len(sentences):
        raise BadRow("'sentences' and 'sentence_breaks' must be lists of one length")
    return [Passage(f"p{paragraph.number}.s{number}", context, string({"sentence": sentence}, "sentence"), lang)
            for number, sentence in enumerate(sentences)]


def _answering(paragraph: dict[str, Any], row: dict[str, Any]) -> int:
    """The index, among the passages of the paragraph, of the one that holds the first answer."""
    if "sentences" not in paragraph:
        return 0
    answers = objects(row, "answers")
    start = answers[0].get("answer_start") if answers else None
    if not isinstance(start, int):
        raise BadRow(f"the question '{row.get('id')}' has no answer_start")
    # The end of the sentence decides: between two sentences there may be a space that belongs to neither.
    for number, (_, end) in enumerate(paragraph["sentence_breaks"]):
        if start < end:
            return number
    raise BadRow(f"the answer of '{row.get('id')}' starts after the last sentence")
