"""`read_files`: people's own files into passages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from interlingua.data.files.chunks import CHUNK_CHARS, OVERLAP, Block, chunk_in_language, chunk_limit
from interlingua.data.files.markup import read_html, read_markdown, read_text
from interlingua.data.files.tables import Row, check_columns, read_jsonl, read_parquet, read_separated
from interlingua.data.files.walk import ADVICE, BadFile, File, Report, Scope, SourceNames, check_text, find_files
from interlingua.data.readers.rows import BadRows
from interlingua.data.readers.source import kind_of
from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.text.languages import detect_language, normalise_code
from interlingua.text.sentences import PARAGRAPH, WORD

RowReader = Callable[[Path, Mapping[str, str], Report, set[str]], Iterator[tuple[int, Row]]]

DOCUMENTS: dict[str, Callable[[Path], Iterator[Block]]] = {
    ".txt": read_text,
    ".text": read_text,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
}
TABLES: dict[str, RowReader] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_jsonl,
    ".csv": read_separated,
    ".tsv": read_separated,
    ".parquet": read_parquet,
}
BY_NAME_ONLY = frozenset({".json"})
"""Read when the file itself is named: in a folder it is rather a setting than a table."""


def read_files(
    paths: str | Path | Iterable[str | Path],
    *,
    lang: str = "",
    chunk_chars: int = CHUNK_CHARS,
    overlap: int = OVERLAP,
    columns: Mapping[str, str] | None = None,
    on_bad_row: str = "error",
    report: Report | None = None,
    names: SourceNames | None = None,
    scope: Scope | None = None,
) -> Iterator[Passage]:
    """The passages of files and folders: jsonl, csv, tsv, Parquet, plain text, Markdown, HTML; gzipped or not.

    Documents are cut into passages of whole sentences, up to `chunk_chars` characters of English (of Chinese a third),
    which share `overlap` sentences; their ids are `folder/file.md#1` and so on, as `names` calls the folder. A row of a
    table is a passage, cut the same way where it is longer; a line of jsonl is never cut. `columns` says which column
    is text, title, id or lang; the others are metadata. Every passage has the metadata `source`, and `chunk` where it
    was cut, unless a column is called so; ids are unique in a source. `lang` is the language of what does not name its
    own; without it the language is detected.

    With a `scope`, for `Index.sync`, a path that does not exist any more and paths without a passage are noted there in
    place of an error.

    Holds one passage, one paragraph and one batch of rows, and the ids of rows. What was read and left out is said at
    the end, or noted in `report` where one is given. Raises BadInput for a missing path, a file given that is
    empty or of no known kind, nothing to read at all, and for a bad row or file unless `on_bad_row` is "skip".
    """
    if chunk_chars < 1 or overlap < 0:
        raise BadInput(
            f"chunk_chars={chunk_chars}, overlap={overlap}: a passage has one character or more, "
            "and 0 or more sentences in common with the next."
        )
    check_columns(columns or {})
    code = normalise_code(lang) if lang else ""
    reader = _Reader(code, chunk_chars, overlap, columns or {}, report or Report(), scope or Scope())
    reader.report.bad_rows = BadRows(on_bad_row, ADVICE)
    roots = [paths] if isinstance(paths, (str, Path)) else list(paths)
    found = False
    for file in find_files(roots, reader.report.skip, names, scope):
        for passage in reader.read(file):
            found = True
            reader.report.languages[passage.lang] += 1
            yield passage
    if not found and scope is None:
        why = "; ".join(line.strip() for line in reader.report.reasons()) or "there is no file"
        raise BadInput(
            f"{', '.join(map(str, roots))}: no passage to read ({why}). What can be read: "
            f"{', '.join((*TABLES, *DOCUMENTS))}."
        )
    if report is None and (found or reader.report.reasons()):
        reader.report.log()


class _Reader:
    """The options of one call, and what must not occur twice in it: ids of rows in a source, names of documents."""

    def __init__(
        self, lang: str, size: int, overlap: int, columns: Mapping[str, str], report: Report, scope: Scope
    ) -> None:
        self.lang, self.size, self.overlap, self.columns = lang, size, overlap, columns
        self.report, self.scope = report, scope
        self.seen: set[tuple[str, str]] = set()

    def read(self, file: File) -> Iterator[Passage]:
        """The passages of one file; none for one that is only noted in the report."""
        suffix = kind_of(file.path)
        if suffix not in (*DOCUMENTS, *TABLES) or (suffix in BY_NAME_ONLY and not file.given):
            pipe = "" if file.path.is_file() else ". A pipe must give jsonl, or have a name with such a suffix (mkfifo)"
            self._pass_over(
                file,
                f"{suffix} file" if suffix else "file without a suffix",
                'passages are read from jsonl, one object a line: {"text": …, "id": …, "title": …, '
                f'"lang": …}}; from {", ".join((*TABLES, *DOCUMENTS))}; and from folders of these{pipe}',
            )
            return
        found, bad = False, self.report.bad
        try:
            if suffix != ".parquet" and not check_text(file.path, rows=suffix in TABLES):
                self._pass_over(file, "empty file", "is empty. Check how the file was made, or remove it")
                return
            for passage in self._rows(file, suffix) if suffix in TABLES else self._document(file, suffix):
                found = True
                yield passage
        except BadFile as error:
            self.report.bad_rows.reject(file.path, error.line, str(error))
        if self.report.bad > bad:
            self.scope.unread.add(file.name)
        if found:
            self.report.files += 1
            self.scope.read.add(file.name)
        elif self.report.bad == bad:
            self._pass_over(file, "file without text", "holds no text to search in")

    def _pass_over(self, file: File, reason: str, message: str) -> None:
        if file.given:
            raise BadInput(f"{file.path}: {message}.")
        self.report.skip(file.name, reason)

    def _document(self, file: File, suffix: str) -> Iterator[Passage]:
        if (file.name, "") in self.seen:  # no row has an empty id
            raise BadInput(f"{file.path}: a second file called '{file.name}'. Give each file once.")
        self.seen.add((file.name, ""))
        return self._chunks(DOCUMENTS[suffix](file.path), file.name, {"source": file.name}, self.lang)

    def _chunks(self, blocks: Iterable[Block], name: str, metadata: Mapping[str, str], lang: str) -> Iterator[Passage]:
        number = 0
        for block in chunk_in_language(blocks, self.size, self.overlap, lang):
            if WORD.search(block.text):  # a rule of stars is no passage
                number += 1
                yield Passage(
                    f"{name}#{number}", block.text, block.title, block.lang, {"chunk": str(number), **metadata}
                )

    def _rows(self, file: File, suffix: str) -> Iterator[Passage]:
        left_out: set[str] = set()
        for place, row in TABLES[suffix](file.path, self.columns, self.report, left_out):
            name = row.id or f"{file.name}:{place}"
            metadata = {"source": file.name, **row.metadata}
            if (key := (metadata["source"], name)) in self.seen:
                self.report.bad_rows.reject(file.path, place, f"the passage id '{name}' occurs twice")
                continue
            self.seen.add(key)
            named = row.lang or self.lang
            lang = named or detect_language(row.text)
            if TABLES[suffix] is read_jsonl or len(row.text) <= chunk_limit(self.size, lang):
                yield Passage(name, row.text, row.title, lang, metadata)
            else:
                paragraphs = (Block(text, row.title) for text in PARAGRAPH.split(row.text))
                yield from self._chunks(paragraphs, name, metadata, named)
        self.report.left_out |= {(file.name, column): None for column in sorted(left_out)}
