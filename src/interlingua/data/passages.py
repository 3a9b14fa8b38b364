"""Passages to make searchable: of one's own files, DPR's TSV, or any test collection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from interlingua.data.collections import load_collection
from interlingua.data.encyclopedia import is_encyclopedia
from interlingua.data.files import Scope, SourceNames, read_files
from interlingua.data.files.reader import DOCUMENTS, TABLES
from interlingua.data.files.tables import usual_columns
from interlingua.data.files.walk import place_of
from interlingua.data.layouts import is_complete, language_in, parsed, some_split, split_contents
from interlingua.data.readers.questions import is_squad, read_tsv_passages
from interlingua.data.readers.rows import BadRow, BadRows, json_object, string
from interlingua.data.readers.source import expand, filled_lines, head, kind_of, plain_name
from interlingua.data.records import Passage
from interlingua.files import is_input
from interlingua.text.languages import normalise_code

ADVICE = "Mend the row or take it out. `mine` leaves such rows out with --on-bad-row skip, counted and listed."


def read_passages(source: str | Path, lang: str = "", on_bad_row: str = "error") -> Iterator[Passage]:
    """The passages of a jsonl file `{text[, id, title, lang]}` or a TSV of DPR's (gzipped or not, a glob or a folder
    of jsonl alone), of whatever `load_collection` reads, or else of what `read_files` does. In jsonl a field may have
    any of the names that `read_files` knows. `lang` is the language of rows that do not name theirs; it is not detected
    in jsonl and TSV.

    A row without an id is called after its file and line. A passage needs a text or a title. Raises BadInput for a bad
    row, naming file and line; with `on_bad_row="skip"` bad rows are counted and listed, but not those of a collection,
    which is read whole or not at all.
    """
    path, lang, bad = Path(source), normalise_code(lang) if lang else "", BadRows(on_bad_row, ADVICE)
    if is_collection(source):
        yield from load_collection(source, lang=lang or None, split=some_split(path)).passages
    elif path.is_dir() and not _holds_rows_alone(path):
        yield from read_files(path, lang=lang, on_bad_row=on_bad_row)
    else:
        for file in expand(source):
            suffix = kind_of(file)
            if suffix == ".tsv":
                yield from read_tsv_passages(file, bad, lang)
            elif suffix in ROWS:
                yield from _jsonl(file, lang, bad)
            else:
                yield from read_files(file, lang=lang, on_bad_row=on_bad_row)
        bad.report()


def read_sources(
    sources: Iterable[str | Path],
    lang: str = "",
    names: SourceNames | None = None,
    scope: Scope | None = None,
    **options: Any,
) -> Iterator[Passage]:
    """The passages to index of several sources: of the collections among them, then of files and folders, all read by
    one call of `read_files` (with its `options`). Each has the metadata `source`: what `names` calls a file or the
    folder of a collection, and another collection as it is given (`encyclopedia:en`). A `scope` takes all of them
    in, as in `read_files`."""
    names = names or SourceNames()
    files: list[str | Path] = []
    collections: list[str | Path] = []
    for source in sources:
        (collections if is_collection(source) else files).append(source)
    for source in collections:
        name = names.name(source) if Path(source).exists() else str(source)
        if scope is not None:
            scope.add_file(source, name)
        for passage in load_collection(source, lang=lang or None, split=some_split(Path(source))).passages:
            yield Passage(passage.id, passage.text, passage.title, passage.lang, {**passage.metadata, "source": name})
    if files or not collections:
        yield from read_files(files, lang=lang, names=names, scope=scope, **options)
    if scope is not None:  # what is gone and was no file was a collection's folder: its disk may only be unmounted
        gone = [Path(one) for one in files if not Path(one).exists()]
        kinds = (*DOCUMENTS, *TABLES)
        scope.files -= {names.at(place_of(one)) for one in gone if Path(plain_name(one)).suffix.lower() not in kinds}


def is_collection(source: str | Path) -> bool:
    """Whether the source is a test collection rather than somebody's own files: passages, questions and judgements,
    called as in one of the published layouts, whatever else lies beside them."""
    path = Path(source)
    if is_encyclopedia(source) or str(source).startswith("ir_datasets:") or (path / "qrels.txt").exists():
        return True
    if path.is_dir():
        return is_complete(path)
    return plain_name(path).lower().endswith(".json") and is_input(path) and is_squad(path, head(path))


ROWS = (".tsv", ".jsonl", ".json", ".ndjson")


def _holds_rows_alone(folder: Path) -> bool:
    """Whether a folder holds files of rows, jsonl among them, and nothing else that is not hidden."""
    kinds = {kind_of(entry) if entry.is_file() else "" for entry in folder.iterdir() if not entry.name.startswith(".")}
    return bool(kinds & {".jsonl", ".ndjson"}) and kinds <= {*ROWS}


def _jsonl(file: Path, default: str, bad: BadRows) -> Iterator[Passage]:
    def parse(numbered: tuple[int, str]) -> Passage:
        number, line = numbered
        row = json_object(line)
        names = usual_columns(row)
        if "text" not in names:
            raise BadRow(f"no 'text' (there is: {', '.join(row) or 'nothing'})")
        cells = {role: row[name] for role, name in names.items()}
        title, text = string(cells, "title", ""), string(cells, "text", "")
        if names["text"] == "contents":
            first, text = split_contents(text)
            title = first or title
        if not text.strip() and not title.strip():
            raise BadRow("neither a text nor a title")
        return Passage(string(cells, "id", "") or f"{file.name}:{number}", text, title, language_in(cells, default))

    rows = ((number, (number, line)) for number, line in filled_lines(file))
    return parsed(file, rows, parse, "passage", bad=bad)
