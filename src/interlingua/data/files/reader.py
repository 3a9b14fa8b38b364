"""The passages of one file, of any kind that is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from interlingua.data.files.chunks import Block, Way, chunk_in_language, chunk_limit
from interlingua.data.files.encoding import UTF8, declared_encoding, encoding_of, read_start
from interlingua.data.files.markdown import read_markdown, read_text
from interlingua.data.files.office import read_docx, read_epub, read_pdf, read_pptx
from interlingua.data.files.pages import read_html
from interlingua.data.files.tables import NamedColumns, Row, read_jsonl, read_parquet, read_separated
from interlingua.data.files.unchanged import FileMemory, Stamp
from interlingua.data.files.walk import BadFile, File, MissingExtra, Report, Scope, Source
from interlingua.data.files.whole import IN_MEMORY, FilesDone, check_same, whole
from interlingua.data.keys import Keys
from interlingua.data.readers.source import kind_of
from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.text.detection import detect_in_bulk
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
LARGE = 32_000_000
"""Bytes of a file, other than of text, up to which another process reads it."""
UNPACKERS = {".zst": "zstd", ".xz": "xz", ".bz2": "bzip2"}
"""Suffixes of compressed files that are not read, and the programs that unpack them."""


class Ready(NamedTuple):
    """A document as another process has read it: all its `passages`, its encoding where that was `guessed`, and the
    names of what cannot be metadata; with the `stamp` that the file had before, and when reading `began`."""

    stamp: Stamp
    began: float
    passages: list[Passage]
    guessed: str
    left_out: list[str]


class FileReader:
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

    def ahead(self, file: File) -> Stamp | None:
        """The stamp of a document that another process may read meanwhile; None for anything else, for one that is too
        large to be handed on, and for one that need not be read."""
        suffix = kind_of(file.path)
        stamp = Stamp.of(file.path) if suffix in DOCUMENTS else None
        if stamp is None or stamp.size > (LARGE if suffix in BINARY else IN_MEMORY):
            return None
        return None if self.memory.is_same(file.name, stamp, self._how(file)) else stamp

    def read(self, file: File, ready: Ready | None = None) -> Iterator[Passage]:
        """The passages of one file, if it is read to its end and does not change meanwhile; none for one that is only
        noted in the report. What is `ready` is taken in place of reading."""
        suffix = kind_of(file.path)
        if suffix not in (*DOCUMENTS, *TABLES) or (suffix in BY_NAME_ONLY and not file.given):
            program = UNPACKERS.get(suffix)
            unpack = f". Decompress it first (`{program} -d`)" if program else ""
            pipe = "" if file.path.is_file() else ". A pipe must give jsonl, or have a name with such a suffix (mkfifo)"
            self._pass_over(
                file,
                f"{suffix} file" if suffix else "file without a suffix",
                'passages are read from jsonl, one object a line: {"text": …, "id": …, "title": …, '
                f'"lang": …}}; from {", ".join((*TABLES, *DOCUMENTS))}; and from folders of these{pipe}{unpack}',
            )
            return
        found, bad, began = False, self.report.bad, time.time()
        how = self._how(file)
        stamp = Stamp.of(file.path)
        self.done.begin(stamp.size if stamp else 0)
        if stamp and self.memory.is_same(file.name, stamp, how):
            self.columns.of(file.name)  # those that are named for it are not named in vain
            self.report.unchanged += 1
            self.scope.read.add(file.name)
            return
        if ready:
            stamp, began = ready.stamp, ready.began
        try:
            source = Source(file.path, self.report) if ready else self._source(file, suffix)
            if source is None:
                self._pass_over(file, "empty file", "is empty. Check how the file was made, or remove it")
                return
            if ready:
                passages = self._taken(file, source, ready)
            else:
                stream = self._rows(file, source, suffix) if suffix in TABLES else self._document(file, source, suffix)
                passages = whole(stream, lambda: check_same(file.path, stamp), file.name)
            for passage, share in passages:
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

    def _how(self, file: File) -> str:
        return f"{self.how} {self.link(file.name)}"

    def _source(self, file: File, suffix: str) -> Source | None:
        """The file for its reader; None for one that holds nothing."""
        encoding: str | None = UTF8
        content, start = None, b""
        if suffix not in BINARY:
            start, is_whole = read_start(file.path)
            encoding = encoding_of(file.path, start, rows=suffix in TABLES, markup=suffix in PAGES, lang=self.lang)
            content = start if is_whole else None
        if encoding is None:
            return None
        declared = declared_encoding(start) if suffix in PAGES else None
        if suffix not in BINARY and not encoding.startswith("utf") and encoding != declared:
            self.report.guess(file.name, encoding)
        link = self.link(file.name) if suffix in DOCUMENTS else ""
        about = {"source": file.name, **({"url": link} if link else {})}
        columns = self.columns.of(file.name) if suffix in TABLES else {}
        return Source(file.path, self.report, encoding, columns, about, content=content)

    def _pass_over(self, file: File, reason: str, message: str) -> None:
        if file.given:
            raise BadInput(f"{file.path}: {message}.")
        self.report.skip(file.name, reason)

    def _document(self, file: File, source: Source, suffix: str) -> Iterator[Passage]:
        self._once(file)
        return self._chunks(DOCUMENTS[suffix](source), file.name, source.about, self.lang)

    def _taken(self, file: File, source: Source, ready: Ready) -> Iterator[tuple[Passage, float]]:
        self._once(file)
        if ready.guessed:
            self.report.guess(file.name, ready.guessed)
        source.left_out.update(ready.left_out)
        for number, passage in enumerate(ready.passages, 1):
            yield passage, number / len(ready.passages)

    def _once(self, file: File) -> None:
        if not self.seen.add((file.name, "")):  # no row has an empty id
            raise BadInput(f"{file.path}: a second file called '{file.name}'. Give each file once.")

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
                self._reject_repeat(file, place, name)
                continue
            known_lang = row.lang or self.lang
            lang = known_lang or detect_in_bulk(row.text)
            if TABLES[suffix] is read_jsonl or len(row.text) <= chunk_limit(self.size, lang, self.way):
                yield Passage(name, row.text, row.title, lang, metadata)
                continue
            paragraphs = (Block(text, row.title) for text in PARAGRAPH.split(row.text))
            chunks = list(self._chunks(paragraphs, name, metadata, known_lang))
            keys = [(metadata["source"], one.id) for one in chunks]
            if repeat := next((key for key in keys if key in self.seen), None):
                self._reject_repeat(file, place, repeat[1])
                continue
            for key in keys:
                self.seen.add(key)
            yield from chunks

    def _reject_repeat(self, file: File, place: int, name: str) -> None:
        self.report.bad_rows.reject(file.path, place, f"the passage id '{name}' occurs twice")
