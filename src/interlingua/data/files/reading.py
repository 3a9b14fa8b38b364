"""`read_files`: people's own files into passages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from interlingua.data.files.chunks import CHUNK_CHARS, OVERLAP, WAYS, Way
from interlingua.data.files.reader import DOCUMENTS, TABLES, FileReader
from interlingua.data.files.tables import Columns, NamedColumns
from interlingua.data.files.unchanged import way_of_reading
from interlingua.data.files.walk import ADVICE, Report, Scope, SourceNames, find_files
from interlingua.data.files.whole import FilesDone
from interlingua.data.files.workers import Workers
from interlingua.data.readers.rows import BadRows
from interlingua.data.records import Passage
from interlingua.errors import BadInput, suggestion
from interlingua.text.languages import normalise_code


def read_files(
    paths: str | Path | Iterable[str | Path],
    *,
    lang: str = "",
    chunk_chars: int = CHUNK_CHARS,
    overlap: int = OVERLAP,
    chunk: Way = "sentences",
    columns: Columns | None = None,
    on_bad_row: str = "error",
    url_base: str = "",
    report: Report | None = None,
    names: SourceNames | None = None,
    scope: Scope | None = None,
    workers: int | None = None,
) -> Iterator[Passage]:
    """The passages of files and folders: jsonl, csv, tsv, Parquet, plain text, Markdown, HTML, PDF, DOCX, PPTX, EPUB;
    gzipped or not.

    Documents are cut into passages of whole sentences, up to `chunk_chars` characters of English (of Chinese a third),
    which share `overlap` sentences; with another `chunk` they are whole sections ("headings"), or end between any two
    words ("characters"). None goes beyond a heading, and the title is the path of headings. Ids are `folder/file.md#1`
    and so on, as `names` calls the folder. A row of a table is a passage, cut the same way where it is longer; a line
    of jsonl is never cut. `columns` says which column is text, title, id, lang or url, for all tables or for those of a
    name (`{"faq.csv": {"text": "reply"}}`); the others are metadata. Every passage has the metadata `source`, and
    `chunk` where it was cut, unless a column is called so; ids are unique in a source. A document has the metadata
    `url` where `url_base` is given, of that address and its path below its folder. `lang` is the language of what does
    not name its own; without it the language is detected.

    With a `scope`, for `Index.sync`, a path that does not exist any more and paths without a passage are noted there in
    place of an error.

    Where there are many documents, `workers` other processes read ahead of the one that asks: as many as there are
    processors, up to 8 and $OMP_NUM_THREADS, none where that is 1; 0 for none. The passages and their order are the
    same.

    Holds one passage, one paragraph and one batch of rows, and the ids of rows; with workers the passages of some
    hundred documents. What was read and left out is said at the end, or noted in `report` where one is given. Raises
    BadInput for a missing path, a file given that is empty or of no known kind, nothing to read at all, and for a bad
    row or file unless `on_bad_row` is "skip".
    """
    _check(chunk_chars, overlap, chunk, workers)
    named_columns = NamedColumns(columns or {})
    names = names or SourceNames()
    code = normalise_code(lang) if lang else ""
    cut = (chunk_chars, overlap, chunk)
    reader = FileReader(code, cut, named_columns, report or Report(), scope or Scope())
    reader.memory = names.memory if scope is None else scope.memory
    reader.how = way_of_reading({"lang": code, "cut": cut, "columns": dict(columns or {})})
    if url_base:
        reader.link = lambda name: f"{url_base.rstrip('/')}/{quote(names.below(name))}"
    reader.report.bad_rows = BadRows(on_bad_row, ADVICE)
    roots = [paths] if isinstance(paths, (str, Path)) else list(paths)
    found = False
    with FilesDone(roots) as reader.done, Workers(reader, cut, workers) as ahead:
        for file, ready in ahead.files(find_files(roots, reader.report.skip, names, scope)):
            for passage in reader.read(file, ready):
                found = True
                reader.report.languages[passage.lang] += 1
                yield passage
    named_columns.warn_of_unused()
    if not found and scope is None:
        reasons = "; ".join(line.strip() for line in reader.report.reasons()).replace(":; ", ": ") or "there is no file"
        raise BadInput(
            f"{', '.join(map(str, roots))}: no passage to read ({reasons}). What can be read: "
            f"{', '.join((*TABLES, *DOCUMENTS))}."
        )
    if report is None and (found or reader.report.unchanged or reader.report.reasons()):
        reader.report.log()


def _check(chunk_chars: int, overlap: int, chunk: str, workers: int | None) -> None:
    if chunk_chars < 1 or overlap < 0:
        raise BadInput(
            f"chunk_chars={chunk_chars}, overlap={overlap}: a passage has one character or more, "
            "and 0 or more sentences in common with the next."
        )
    if workers is not None and workers < 0:
        raise BadInput(f"workers={workers}: is negative. 0 reads in this process alone.")
    if chunk not in WAYS:
        raise BadInput(f"chunk='{chunk}': is unknown.{suggestion(chunk, WAYS)}")
