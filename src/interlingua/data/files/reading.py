"""`read_files`: people's own files into passages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urljoin

from interlingua.data.files.chunks import CHUNK_CHARS, OVERLAP, WAYS, Block, Way, chunk_in_language, chunk_limit
from interlingua.data.files.encoding import UTF8, encoding_of
from interlingua.data.files.markup import read_html, read_markdown, read_text
from interlingua.data.files.office import read_docx, read_epub, read_pdf, read_pptx
from interlingua.data.files.tables import Columns, NamedColumns, Row, read_jsonl, read_parquet, read_separated
from interlingua.data.files.unchanged import FileMemory, Stamp, way_of_reading
from interlingua.data.files.walk import (
    ADVICE,
    BadFile,
    File,
    MissingExtra,
    Report,
    Scope,
    Source,
    SourceNames,
    find_files,
)
from interlingua.data.files.whole import FilesDone, check_same, whole
from interlingua.data.keys import Keys
from interlingua.data.readers.rows import BadRows
from interlingua.data.readers.source import kind_of
from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.text.detection import detect_in_bulk
from interlingua.text.languages import normalise_code
from interlingua.text.sentences import PARAGRAPH, WORD

DOCUMENTS: dict[str, Callable[[Source], Iterator[Block]]] = {
    ".txt": read_text,
    ".text": read_text,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".epub": read_epub,
}
TABLES: dict[str, Callable[[Source], Iterator[tuple[int, Row]]]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_jsonl,
    ".csv": read_separated,
    ".tsv": read_separated,
    ".parquet": read_parquet,
}
BINARY = frozenset({".parquet", ".pdf", ".docx", ".pptx", ".epub"})
"""Files that are no text themselves."""
PAGES = frozenset({".html", ".htm", ".xhtml"})
"""Files that may name their encoding."""
BY_NAME_ONLY = frozenset({".json"})
"""Read when the file itself is named: in a folder it is rather a setting than a table."""


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

    Holds one passage, one paragraph and one batch of rows, and the ids of rows. What was read and left out is said at
    the end, or noted in `report` where one is given. Raises BadInput for a missing path, a file given that is
    empty or of no known kind, nothing to read at all, and for a bad row or file unless `on_bad_row` is "skip".
    """
    if chunk_chars < 1 or overlap < 0:
        raise BadInput(
            f"chunk_chars={chunk_chars}, overlap={overlap}: a passage has one character or more, "
            "and 0 or more sentences in common with the next."
        )
    if chunk not in WAYS:
        raise BadInput(f"chunk='{chunk}': is unknown.{suggestion(chunk, WAYS)}")
    named = NamedColumns(columns or {})
    names = names or SourceNames()
    code = normalise_code(lang) if lang else ""
    cut = (chunk_chars, overlap, chunk)
    reader = _Reader(code, cut, named, report or Report(), scope or Scope())
    reader.memory = names.memory if scope is None else scope.memory
    reader.how = way_of_reading({"lang": code, "cut": cut, "columns": dict(columns or {})})
    if url_base:
        reader.link = lambda name: urljoin(url_base, quote(names.below(name)))
    reader.report.bad_rows = BadRows(on_bad_row, ADVICE)
    roots = [paths] if isinstance(paths, (str, Path)) else list(paths)
    found = False
    with FilesDone(roots) as reader.done:
        for file in find_files(roots, reader.report.skip, names, scope):
            for passage in reader.read(file):
                found = True
                reader.report.languages[passage.lang] += 1
                yield passage
    named.warn_of_unused()
    if not found and scope is None:
        why = "; ".join(line.strip() for line in reader.report.reasons()) or "there is no file"
        raise BadInput(
            f"{', '.join(map(str, roots))}: no passage to read ({why}). What can be read: "
            f"{', '.join((*TABLES, *DOCUMENTS))}."
        )
    if report is None and (found or reader.report.unchanged or reader.report.reasons()):
        reader.report.log()


class _Reader:
    """The options of one call, and what must not occur twice in it: ids of rows in a source, names of documents."""

    done: FilesDone
    memory: FileMemory

    def __init__(
        self, lang: str, cut: tuple[int, int, Way], columns: NamedColumns, report: Report, scope: Scope
    ) -> None:
        self.lang, self.columns = lang, columns
        self.size, self.overlap, self.way = cut
        self.report, self.scope = report, scope
        self.link: Callable[[str], str] = lambda name: ""
        """The address of a document by its name, "" for none."""
        self.how = ""
        """`way_of_reading`, with which files are remembered."""
        self.seen = Keys()

    def read(self, file: File) -> Iterator[Passage]:
        """The passages of one file, if it is read to its end and does not change meanwhile; none for one that is only
        noted in the report."""
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
        found, bad, began = False, self.report.bad, time.time()
        how = f"{self.how} {self.link(file.name)}"
        stamp = Stamp.of(file.path)
        self.done.begin(stamp.size if stamp else 0)
        if stamp and self.memory.is_same(file.name, stamp, how):
            self.columns.of(file.name)  # those that are named for it are not named in vain
            self.report.unchanged += 1
            self.scope.read.add(file.name)
            return
        try:
            source = self._source(file, suffix)
            if source is None:
                self._pass_over(file, "empty file", "is empty. Check how the file was made, or remove it")
                return
            read = self._rows(file, source, suffix) if suffix in TABLES else self._document(file, source, suffix)
            for passage, share in whole(read, lambda: check_same(file.path, stamp), file.name):
                found = True
                yield passage
                self.done.of_file(share)
            self.report.left_out |= {(file.name, column): None for column in sorted(source.left_out)}
        except MissingExtra as error:
            if file.given:
                raise NotFound(f"{file.path}: is a {suffix} file, {error}.") from error
            self.report.skip(file.name, f"{suffix} file, {error}")
            self.scope.unread.add(file.name)
            return
        except NotFound:
            if file.given or file.path.exists():
                raise
            self.report.skip(file.name, "gone while the folder was read")
            return
        except BadFile as error:
            self.report.bad_rows.reject(file.path, error.line, str(error))
        if self.report.bad > bad:
            self.scope.unread.add(file.name)
        elif found and stamp and stamp.is_settled(began):
            self.memory.note(file.name, stamp, how)
        if found:
            self.report.files += 1
            self.scope.read.add(file.name)
        elif self.report.bad == bad:
            self._pass_over(file, "file without text", "holds no text to search in")

    def _source(self, file: File, suffix: str) -> Source | None:
        """The file for its reader; None for one that holds nothing."""
        encoding: str | None = UTF8
        if suffix not in BINARY:
            encoding = encoding_of(file.path, rows=suffix in TABLES, markup=suffix in PAGES, lang=self.lang)
        if encoding is None:
            return None
        if suffix not in BINARY and not encoding.startswith("utf"):
            self.report.guess(file.name, encoding)
        link = self.link(file.name) if suffix in DOCUMENTS else ""
        about = {"source": file.name, **({"url": link} if link else {})}
        return Source(file.path, self.report, encoding, self.columns.of(file.name) if suffix in TABLES else {}, about)

    def _pass_over(self, file: File, reason: str, message: str) -> None:
        if file.given:
            raise BadInput(f"{file.path}: {message}.")
        self.report.skip(file.name, reason)

    def _document(self, file: File, source: Source, suffix: str) -> Iterator[Passage]:
        if not self.seen.add((file.name, "")):  # no row has an empty id
            raise BadInput(f"{file.path}: a second file called '{file.name}'. Give each file once.")
        return self._chunks(DOCUMENTS[suffix](source), file.name, source.about, self.lang)

    def _chunks(self, blocks: Iterable[Block], name: str, metadata: Mapping[str, str], lang: str) -> Iterator[Passage]:
        """`metadata` are complete with the first block."""
        number = 0
        for block in chunk_in_language(blocks, self.size, self.overlap, lang, self.way):
            if WORD.search(block.text):  # a rule of stars is no passage
                number += 1
                yield Passage(
                    f"{name}#{number}", block.text, block.title, block.lang, {"chunk": str(number), **metadata}
                )

    def _rows(self, file: File, source: Source, suffix: str) -> Iterator[Passage]:
        for place, row in TABLES[suffix](source):
            name = row.id or f"{file.name}:{place}"
            metadata = {**source.about, **row.metadata}
            if metadata["source"] != file.name:
                self.memory.share(metadata["source"])
                self.memory.share(file.name)
            if not self.seen.add((metadata["source"], name)):
                self.report.bad_rows.reject(file.path, place, f"the passage id '{name}' occurs twice")
                continue
            named = row.lang or self.lang
            lang = named or detect_in_bulk(row.text)
            if TABLES[suffix] is read_jsonl or len(row.text) <= chunk_limit(self.size, lang, self.way):
                yield Passage(name, row.text, row.title, lang, metadata)
            else:
                paragraphs = (Block(text, row.title) for text in PARAGRAPH.split(row.text))
                yield from self._chunks(paragraphs, name, metadata, named)
