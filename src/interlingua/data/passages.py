"""Passages to make searchable: a jsonl file, DPR's TSV, or the passages of any test collection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.collection import load_collection
from interlingua.data.collections.rows import parsed
from interlingua.data.encyclopedia import is_encyclopedia
from interlingua.data.readers.bad_rows import BadRow, json_object, lang_of, string
from interlingua.data.readers.dpr_passages import read_tsv_passages
from interlingua.data.readers.source import expand, filled_lines
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.text.languages import normalise_code


def read_passages(source: str | Path, lang: str = "") -> Iterator[Passage]:
    """The passages of a jsonl file `{text[, id, title, lang]}` or a TSV of DPR's (gzipped or not, a folder or glob of
    jsonl), or of whatever `load_collection` reads. `lang` is the language of rows that do not name theirs.

    A row without an id is called after its file and line. Raises InterlinguaError for a bad row, naming file and line.
    """
    path, lang = Path(source), normalise_code(lang) if lang else ""
    if is_encyclopedia(source) or str(source).startswith("ir_datasets:") or (
            (path.is_dir() and not any(path.glob("*.jsonl*"))) or (path / "qrels.txt").exists()):
        yield from load_collection(source, lang=lang or None).passages
        return
    for file in expand(source):
        suffix = file.name.removesuffix(".gz").rpartition(".")[2]
        if suffix not in ("jsonl", "json", "ndjson", "tsv"):
            raise InterlinguaError(f"{file}: passages are read from jsonl, one object a line: "
                                   '{"text": …, "id": …, "title": …, "lang": …}; only text is needed. '
                                   "Or from DPR's TSV: id, text, title.")
        yield from read_tsv_passages(file, lang) if suffix == "tsv" else _jsonl(file, lang)


def _jsonl(file: Path, default: str) -> Iterator[Passage]:
    place = 0

    def parse(line: str) -> Passage:
        row = json_object(line)
        if not string(row, "text", "").strip():
            raise BadRow("no 'text'")
        name = string(row, "id", "") or f"{file.name}:{place}"
        lang = lang_of(row, default) if row.get("lang") or default else ""
        return Passage(name, string(row, "text"), string(row, "title", ""), lang)

    def lines() -> Iterator[tuple[int, str]]:
        nonlocal place
        for number, line in filled_lines(file):
            place = number  # `parse` names a row without an id after it
            yield number, line

    return parsed(file, lines(), parse, "passage")
