"""Layouts in which test collections are published: our folder, BEIR, Mr.TyDi and MIRACL, SQuAD.

Mr.TyDi and MIRACL have `collection/docs.jsonl.gz` or `docs-0.jsonl.gz …`, `topic.<split>.tsv` or
`topics.….<split>.tsv`, `qrels.<split>.txt` or `qrels.….<split>.tsv`; all in the folder itself or in a sub-folder of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, overload

from interlingua.data.files.tables import USUAL
from interlingua.data.readers.questions import Paragraph, is_squad, paragraphs
from interlingua.data.readers.rows import BadRow, BadRows, Row, json_object, judgement, lang_of, objects, string
from interlingua.data.readers.source import filled_lines, head, plain_name
from interlingua.data.records import Collection, Passage, Qrels, Query
from interlingua.errors import BadInput
from interlingua.files import is_input


class StoredPassages(Sequence[Passage]):
    """The documents of the data set `name` of ir_datasets, `passage(document)` each. Nothing but what is asked for is
    in memory, so that a collection of millions can be reranked, or indexed in one pass.

    `by_id` reads from the data set's document store, which ir_datasets builds at first use. `lang` is the language of
    all passages. `source` is equal for two collections over the same documents.
    Reading raises BadInput where ir_datasets cannot provide the documents.
    """

    def __init__(self, data: Any, name: str, passage: Callable[[Any], Passage], lang: str) -> None:
        self.source, self.name, self.langs = data.docs_handler(), name, {lang}
        self._data, self._passage, self._count = data, passage, 0

    def by_id(self, ids: Iterable[str]) -> dict[str, Passage]:
        """The passages of these ids; an id that there is not is left out."""
        with provided(self.name):
            return {doc.doc_id: self._passage(doc) for doc in self._data.docs_store().get_many_iter(list(ids))}

    def __iter__(self) -> Iterator[Passage]:
        with provided(self.name):
            yield from map(self._passage, self._data.docs_iter())

    def __len__(self) -> int:
        # ir_datasets knows the number of some data sets, and of the others once their store is built
        with provided(self.name):
            self._count = self._count or self._data.docs_count() or self._data.docs_store().count()
        return self._count

    @overload
    def __getitem__(self, at: int) -> Passage: ...
    @overload
    def __getitem__(self, at: slice) -> list[Passage]: ...
    def __getitem__(self, at: int | slice) -> Passage | list[Passage]:
        if isinstance(at, slice):
            if min(at.start or 0, at.stop or 0, (at.step or 1) - 1) < 0:
                return list(self)[at]
            return list(islice(self, at.start, at.stop, at.step))  # what comes after it is not read
        place = at + len(self) if at < 0 else at
        passage = next(islice(self, place, None), None) if place >= 0 else None
        if passage is None:
            raise IndexError(f"passage {at} of {len(self)}")
        return passage


@contextmanager
def provided(name: str) -> Iterator[None]:
    """Turns what ir_datasets raises where it cannot download a file, or waits for one that a person is to fetch, into
    BadInput."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"ir_datasets:{name}: ir_datasets cannot provide it ({reason}). Some collections are to "
            "be fetched by hand: https://ir-datasets.com says how."
        ) from error


Item = TypeVar("Item", bound=Passage | Query)
WHOLE = "Mend the collection: a test collection is read whole or not at all."


def find(folder: Path, *names: str) -> Path | None:
    """The file of one of these names in `folder`, gzipped or not."""
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if is_input(candidate):
                return candidate
    return None


def needed(folder: Path, *names: str) -> Path:
    """`find`, or an error that says which file of the collection is missing."""
    file = find(folder, *names)
    if file is None:
        raise BadInput(
            f"{folder}: no {' or '.join(names)} (or .gz) in the folder. "
            "A collection needs its passages, its queries and its qrels."
        )
    return file


def parsed(
    path: Path,
    rows: Iterator[tuple[int, Row]],
    parse: Callable[[Row], Item],
    what: str,
    seen: set[str] | None = None,
    bad: BadRows | None = None,
) -> Iterator[Item]:
    """The items on the rows. Raises BadInput for an empty file; a bad row, such as an id that occurs twice, goes to
    `bad`, and is an error without it."""
    head(path)
    seen = set() if seen is None else seen

    def unique(row: Row) -> Item:
        item = parse(row)
        if item.id in seen:
            raise BadRow(f"the {what} id '{item.id}' occurs twice")
        seen.add(item.id)
        return item

    yield from (bad or BadRows(advice=WHOLE)).parsed(path, rows, unique)


def language_in(row: dict[str, Any], default: str) -> str:
    """The language of a row, else the collection's; '' where neither is known."""
    return lang_of(row, default) if row.get("lang") or default else ""


def jsonl_passages(path: Path, lang: str, *, seen: set[str] | None = None) -> Iterator[Passage]:
    """Passages `{id, title, text[, lang]}`, or `{id, contents}` in Anserini's way: title, blank line, text."""

    def parse(line: str) -> Passage:
        row = json_object(line)
        passage_id = string(row, next((key for key in USUAL["id"] if key in row), "id"))
        if "text" not in row and "contents" in row:
            title, text = split_contents(string(row, "contents", ""))
        elif "text" in row:
            title, text = string(row, "title", ""), string(row, "text", "")
        else:
            raise BadRow(f"no 'text' and no 'contents' (there is: {', '.join(row)})")
        return Passage(passage_id, text, title, language_in(row, lang))

    return parsed(path, filled_lines(path), parse, "passage", seen)


def split_contents(contents: str) -> tuple[str, str]:
    """(title, text) of `title, blank line, text`, parted at the first blank line: the text may have more."""
    title, gap, text = contents.partition("\n\n")
    return (title.strip(), text) if gap else ("", contents)


HEADER = re.compile(r"(_?id|qid|query[-_ ]?id)\t(text|query|question)(\t(lang|language))?", re.IGNORECASE)


def tsv_queries(path: Path, lang: str) -> Iterator[Query]:
    """Questions `id <tab> text[ <tab> language]`. The first line may name the columns."""

    def parse(line: str) -> Query:
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise BadRow(f"{len(cells)} column(s), 2 or 3 are needed: id, text, language")
        row = dict(zip(("id", "text", "lang"), cells, strict=False))
        return Query(string(row, "id"), string(row, "text"), language_in(row, lang))

    rows = filled_lines(path)
    first = [row for row in islice(rows, 1) if not HEADER.fullmatch(row[1].strip())]
    return parsed(path, chain(first, rows), parse, "query")


def read_qrels(path: Path) -> Qrels:
    """Judgements: TREC's four columns `query 0 passage grade`, or BEIR's three `query passage grade` with a header.

    Raises BadInput for a wrong number of columns, a grade that is no integer, or two grades for one passage.
    """
    head(path)
    qrels: Qrels = {}

    def parse(row: tuple[int, str]) -> None:
        number, line = row
        cells = judgement(line)
        if number == 1 and len(cells) == 3 and not _integer(cells[2]):
            return
        if len(cells) not in (3, 4) or not _integer(cells[-1]):
            raise BadRow(f"'{line[:80]}' is no judgement")
        query, passage, grade = cells[0].strip(), cells[-2].strip(), int(cells[-1])
        if qrels.setdefault(query, {}).setdefault(passage, grade) != grade:
            raise BadRow(f"passage '{passage}' has two grades for query '{query}'")

    advice = "Needed are the columns query, 0, passage, grade (TREC), or query, passage, grade (BEIR), the grade whole."
    rows = ((number, (number, line)) for number, line in filled_lines(path))
    for _ in BadRows(advice=advice).parsed(path, rows, parse):
        pass
    return qrels


def _integer(cell: str) -> bool:
    digits = cell.strip().removeprefix("-")
    return digits.isdecimal() and len(digits) < 19


def is_complete(path: Path) -> bool:
    """Whether a folder has passages, questions and judgements (of some split), called as in one of the layouts."""
    return (
        all(find(path, name) for name in ("passages.jsonl", "queries.tsv", "qrels.txt"))
        or (all(find(path, name) for name in ("corpus.jsonl", "queries.jsonl")) and any(path.glob("qrels/*.tsv*")))
        or all(named(path, pattern) for pattern in ("docs*.jsonl*", "topic*.tsv*", "qrels*"))
    )


def some_split(path: Path) -> str:
    """A split that the collection in a folder has, "test" if it can be: the passages are those of every split."""
    is_beir = find(path, "corpus.jsonl") is not None
    files = path.glob("qrels/*.tsv*") if is_beir else named(path, "qrels*")
    names = sorted(Path(plain_name(file)).stem for file in files)
    splits = names if is_beir else [re.split(r"[.\-_]", name)[-1] for name in names]
    return "test" if "test" in splits or not splits else splits[0]


def load_beir(path: Path, split: str, lang: str) -> Collection:
    """The collection with the queries that the split judges: `queries.jsonl` holds those of every split."""
    qrels = read_qrels(needed(path, f"qrels/{split}.tsv"))
    file = needed(path, "queries.jsonl")

    def parse(line: str) -> Query:
        row = json_object(line)
        return Query(string(row, "_id"), string(row, "text"), language_in(row, lang))

    queries = [query for query in parsed(file, filled_lines(file), parse, "query") if query.id in qrels]
    return Collection(path.name, list(jsonl_passages(needed(path, "corpus.jsonl"), lang)), queries, qrels)


def load_folder(path: Path, split: str, lang: str) -> Collection:
    """The collection in the folder; it has one split, so `split` is not looked at."""
    return Collection(
        path.name,
        list(jsonl_passages(needed(path, "passages.jsonl"), lang)),
        list(tsv_queries(needed(path, "queries.tsv"), lang)),
        read_qrels(needed(path, "qrels.txt")),
    )


def load_mrtydi(path: Path, split: str, lang: str) -> Collection:
    """The collection of one language: all its passages, the questions and judgements of one split."""
    seen: set[str] = set()
    passages = [passage for file in named(path, "docs*.jsonl*") for passage in jsonl_passages(file, lang, seen=seen)]
    queries = list(tsv_queries(_of_split(path, "topic*.tsv*", split), lang))
    return Collection(path.name, passages, queries, read_qrels(_of_split(path, "qrels*", split)))


def named(path: Path, pattern: str) -> list[Path]:
    return sorted(file for candidate in (pattern, f"*/{pattern}") for file in path.glob(candidate) if is_input(file))


def _of_split(path: Path, pattern: str, split: str) -> Path:
    files = named(path, pattern)
    part = re.compile(rf"(?:^|[.\-_]){re.escape(split)}(?:[.\-_]|$)")
    matches = [file for file in files if part.search(file.name)]
    if len(matches) != 1:
        names = ", ".join(file.name for file in files) or "none"
        problem = "no" if not matches else "more than one"
        raise BadInput(
            f"{path}: {problem} file {pattern} of the split '{split}' (there is: {names}). "
            "Say which split with --split (split=… in Python)."
        )
    return matches[0]


def is_squad_collection(path: Path) -> bool:
    return is_input(path) and (is_squad(path, head(path)) or plain_name(path).endswith(".json"))


def load_squad(path: Path, split: str, lang: str) -> Collection:
    """Every paragraph is a passage, `p0`, `p1`, … in order: the same id in every translation of the file.

    Where the file has `sentences` (XQuAD-R), every sentence is a passage as in LAReQA: the sentence is its `title`, the
    whole paragraph its `text`, and only the sentence that holds the first answer is relevant.
    """
    passages: list[Passage] = []
    queries: dict[str, Query] = {}
    qrels: Qrels = {}
    bad = BadRows(advice=WHOLE)

    def parse(paragraph: Paragraph) -> list[Passage]:
        paragraph_passages = _squad_passages(paragraph, lang)
        for number, row in enumerate(objects(paragraph.row, "qas")):
            if row.get("is_impossible"):
                bad.passed_over(path, "questions without an answer not read")
                continue
            query = Query(string(row, "id"), string(row, "question"), lang)
            if query.id in queries:
                raise BadRow(f"qas[{number}]: the query id '{query.id}' occurs twice")
            queries[query.id] = query
            qrels[query.id] = {paragraph_passages[_answering(paragraph.row, row)].id: 1}
        return paragraph_passages

    rows = ((paragraph.place, paragraph) for paragraph in paragraphs(path))
    for paragraph_passages in bad.parsed(path, rows, parse):
        passages += paragraph_passages
    bad.report()
    return Collection(path.name.removesuffix(".gz").removesuffix(".json"), passages, list(queries.values()), qrels)


def _squad_passages(paragraph: Paragraph, lang: str) -> list[Passage]:
    context = string(paragraph.row, "context")
    if "sentences" not in paragraph.row:
        return [Passage(f"p{paragraph.number}", context, paragraph.title, lang)]
    sentences, breaks = paragraph.row["sentences"], paragraph.row.get("sentence_breaks")
    if not isinstance(sentences, list) or not isinstance(breaks, list) or len(breaks) != len(sentences):
        raise BadRow("'sentences' and 'sentence_breaks' must be lists of one length")
    if not all(isinstance(pair, list) and len(pair) == 2 and {*map(type, pair)} == {int} for pair in breaks):
        raise BadRow("each of 'sentence_breaks' must be two whole numbers, where a sentence begins and ends")
    return [
        Passage(f"p{paragraph.number}.s{number}", context, string({"sentence": sentence}, "sentence"), lang)
        for number, sentence in enumerate(sentences)
    ]


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
