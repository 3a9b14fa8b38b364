"""PDF, DOCX, PPTX and EPUB as paragraphs under headings. A file is read as a whole before its first paragraph is used.

The libraries come with the extra `files`, but for EPUB, which is web pages in an archive.
"""

from __future__ import annotations

import io
import logging
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from itertools import groupby
from typing import Any, BinaryIO
from urllib.parse import unquote
from xml.etree import ElementTree

import regex  # type: ignore[import-untyped]

from interlingua.data.files.chunks import Block, Blocks
from interlingua.data.files.encoding import page_text
from interlingua.data.files.pages import html_blocks
from interlingua.data.files.walk import BadFile, MissingExtra, Source
from interlingua.errors import NotFound
from interlingua.files import open_input
from interlingua.text.analyzers.segment import UNSPACED
from interlingua.text.languages import find_code, paired

UNPACKED = 1 << 30
"""Bytes that an archive may have when it is unpacked."""
PART = 1 << 25
"""Bytes that a web page in a book, or its table of contents, may have."""
WRAPPERS = "ins moveTo sdt sdtContent smartTag customXml fldSimple bdo dir r[w:ruby] ruby rubyBase".split()
"""Elements of Word around text, or around paragraphs, rows and cells."""
GONE = (
    ".//w:del | .//w:moveFrom | .//w:rt | .//*[local-name()='Fallback']"
    " | .//w:sdt[w:sdtPr/w:docPartObj/w:docPartGallery[@w:val='Table of Contents']]"
    " | .//w:sdt[w:sdtPr/w:showingPlcHdr]/w:sdtContent"
    " | .//w:r[w:rPr/w:vanish[not(@w:val) or @w:val='true' or @w:val='1' or @w:val='on']]"
)
"""Text that Word has removed, hides, or says again (the reading of a word, a text box for older programs, the
headings), and text of a field that nobody filled in."""
NOTES = ("footnote", "endnote")
OLE = b"\xd0\xcf\x11\xe0"
"""The beginning of what Office encrypts, and of its formats before 2007."""


def whole(kind: str) -> Callable[[Callable[[BinaryIO], Blocks]], Callable[[Source], Iterator[Block]]]:
    """Make a reader of files of a `kind` out of one that returns all blocks of an open file. What a library raises for
    a file that is damaged, of which there is no list, becomes BadFile."""

    def reader(read: Callable[[BinaryIO], Blocks]) -> Callable[[Source], Iterator[Block]]:
        @wraps(read)
        def checked(source: Source) -> Iterator[Block]:
            try:
                with open_input(source.path) as stream:
                    blocks = read(io.BytesIO(stream.read()))
            except (BadFile, MissingExtra, NotFound):
                raise
            except Exception as error:
                reason = " ".join(str(error).split())[:200]
                raise BadFile(f"cannot be read as {kind} ({reason or type(error).__name__})") from error
            blocks.finish()
            return iter(blocks.take())

        return checked

    return reader


@whole("PDF")
def read_pdf(stream: BinaryIO) -> Blocks:
    """The text of a PDF, page after page. Lines that go on are joined. Raises BadFile for one that needs a password,
    and for one without text, as scans are."""
    try:
        import pypdf
    except ImportError:
        raise MissingExtra("pypdf", "files") from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # of what it mends
    document = pypdf.PdfReader(stream)
    if document.is_encrypted and not _opens(document):
        raise BadFile("is encrypted. Save it without a password")
    blocks = Blocks()
    blocks.title = paired(_one_line(getattr(document.metadata, "title", None)))
    pages = [paired(page.extract_text()) for page in document.pages]
    if not any(map(str.strip, pages)):
        raise BadFile(
            f"holds no text on its {len(pages):,} pages, so it is scanned. Recognise the text first, with "
            "`ocrmypdf` for instance"
        )
    for text in pages:
        for paragraph in re.split(r"\n\s*\n", text):
            blocks.add(_joined(paragraph))
            blocks.end()
    return blocks


def _opens(document: Any) -> bool:
    """Whether an encrypted PDF opens without a password: it then only says what may be done with it."""
    try:
        return bool(document.decrypt(""))
    except Exception:  # for one, a cipher that is not installed
        return False


WITHIN = regex.compile(rf"(?<={UNSPACED})[ \t]*\n[ \t]*(?={UNSPACED})")
"""The end of a line between letters of scripts without spaces."""


def _joined(paragraph: str) -> str:
    """The lines of a paragraph that was set in lines: a word that was broken is whole again, and a line that begins
    with a small letter goes on with the one before."""
    text = regex.sub(r"(?<=\p{L})[-\u00ad\u2010]\n(?=[^\P{L}\p{Lu}])", "", paragraph)
    return str(regex.sub(r"(?<![.!?:])[ \t]*\n[ \t]*(?=[^\P{L}\p{Lu}])", " ", WITHIN.sub("", text)))


@whole("DOCX")
def read_docx(stream: BinaryIO) -> Blocks:
    """Headings, paragraphs and tables of a document of Word, in their order."""
    try:
        import docx
        from docx.table import Table
    except ImportError:
        raise MissingExtra("python-docx", "files") from None
    _check_archive(stream, "DOCX", "word/document.xml")
    document = docx.Document(stream)
    _add_notes(document, docx.oxml.parse_xml)
    _unwrap(document.element.body)
    _unmerge(document.element.body)
    blocks = _begun(document.core_properties)
    groups = groupby(document.iter_inner_content(), lambda item: not isinstance(item, Table) and _is_item(item))
    after_title = False
    for is_list, group in groups:
        for item in group:
            if isinstance(item, Table):
                _add_rows(blocks, map(_cells, item.rows))
                after_title = False
                continue
            if item.style is not None and re.fullmatch(r"toc \d", item.style.name or "", re.IGNORECASE):
                continue
            level = _heading_level(item) if item.text.strip() else 0
            blocks.add(item.text + "\n" * is_list)
            if level:
                blocks.end_heading(level)
            elif item.style is not None and item.style.name == "Title":
                if text := _one_line(blocks.cut_off()):
                    blocks.title = f"{blocks.title} {text}" if after_title else text
                    blocks.own_title = after_title = True
                continue
            elif not is_list:
                blocks.end()
            after_title = after_title and not item.text.strip()
        blocks.end()
    return blocks


def _heading_level(paragraph: Any) -> int:
    """Of a paragraph whose style is a heading's, or is based on one; else 0."""
    style, seen = paragraph.style, set[str]()
    while style is not None and style.style_id not in seen:
        seen.add(style.style_id)
        if heading := re.fullmatch(r"heading ([1-9])", style.name or "", re.IGNORECASE):
            return int(heading[1])
        style = style.base_style
    return 0


def _add_notes(document: Any, parse_xml: Callable[[bytes], Any]) -> None:
    """Put footnotes and endnotes after the paragraphs that refer to them."""
    parts = {relation.reltype.rpartition("/")[2]: relation for relation in document.part.rels.values()}
    for kind in NOTES:
        if (relation := parts.get(f"{kind}s")) is None or relation.is_external:
            continue
        notes = {note.get(note.tag.replace(kind, "id")): note for note in parse_xml(relation.target_part.blob)}
        for reference in reversed(document.element.body.xpath(f".//w:{kind}Reference")):
            paragraph = next(reference.iterancestors(reference.tag.replace(f"{kind}Reference", "p")))
            note = notes.get(reference.get(reference.tag.replace(f"{kind}Reference", "id")))
            for child in reversed(list(note) if note is not None else []):
                paragraph.addnext(child)


def _unwrap(body: Any) -> None:
    """Put what python-docx does not look into where it looks: the content of `WRAPPERS` in their places, so that
    changes that were tracked are accepted, and text boxes after their paragraphs."""
    for paragraph in body.xpath(".//w:p[w:pPr/w:rPr/w:del]"):  # its end was deleted: it goes on in the next one
        following = paragraph.getnext()
        if following is not None and following.tag == paragraph.tag:
            start = len(following.xpath("w:pPr"))
            following[start:start] = [child for child in paragraph if not child.tag.endswith("}pPr")]
            paragraph.getparent().remove(paragraph)
    for gone in body.xpath(GONE):
        gone.getparent().remove(gone)
    for formula in body.xpath(".//*[local-name()='oMath'][ancestor::w:p]"):
        text = "".join(node.text or "" for node in formula.xpath(".//*[local-name()='t']"))
        shown = formula.getparent() if formula.getparent().tag.endswith("}oMathPara") else formula
        shown.addprevious(_run(body, text))
        formula.getparent().remove(formula)
    for wrapper in body.xpath(" | ".join(f".//w:{name}" for name in WRAPPERS)):
        for child in list(wrapper):
            if wrapper.tag.endswith("}r") and not child.tag.endswith("}ruby"):
                run = wrapper.makeelement(wrapper.tag)  # text is read in runs alone
                wrapper.addprevious(run)
                run.append(child)
            else:
                wrapper.addprevious(child)
        wrapper.getparent().remove(wrapper)
    for paragraph in reversed(body.xpath(".//w:p[.//w:txbxContent]")):
        for child in reversed(paragraph.xpath(".//w:txbxContent/*")):
            paragraph.addnext(child)


def _unmerge(body: Any) -> None:
    """Give each of several cells that were merged over rows the content of the first: python-docx looks for that row by
    row, and fails where the cells do not lie below one another."""
    for table in body.xpath(".//w:tbl"):
        above: dict[int, Any] = {}
        for row in table.xpath("w:tr"):
            here, column = dict[int, Any](), int(next(iter(row.xpath("w:trPr/w:gridBefore/@w:val")), 0))
            for cell in row.xpath("w:tc"):
                merged = cell.xpath("w:tcPr/w:vMerge")
                if merged and merged[0].xpath("string(@w:val)") != "restart" and column in above:
                    for child in cell.xpath("*[not(self::w:tcPr)]"):
                        cell.remove(child)
                    cell.extend(map(deepcopy, above[column].xpath("*[not(self::w:tcPr)]")))
                for mark in merged:
                    mark.getparent().remove(mark)
                here[column] = cell
                column += int(next(iter(cell.xpath("w:tcPr/w:gridSpan/@w:val")), 1))
            above = here


def _run(body: Any, text: str) -> Any:
    """A run of Word that holds a text."""
    run = body.makeelement(body.tag.replace("body", "r"))
    words = body.makeelement(body.tag.replace("body", "t"))
    words.text = text
    run.append(words)
    return run


def _is_item(paragraph: Any) -> bool:
    return bool(paragraph.style is not None and str(paragraph.style.name).startswith("List"))


def _cells(row: Any) -> list[str]:
    """The text of the cells of a row; of some that were merged once."""
    return ["\n".join(_cell_lines(cell)) for cell in dict.fromkeys(row.cells)]


def _cell_lines(cell: Any) -> Iterator[str]:
    for item in cell.iter_inner_content():
        if hasattr(item, "rows"):
            yield from (" | ".join(_cells(row)) for row in item.rows)
        else:
            yield item.text


@whole("PPTX")
def read_pptx(stream: BinaryIO) -> Blocks:
    """The slides of a presentation: titles, texts, tables and notes."""
    try:
        import pptx
        from pptx.enum.shapes import PP_PLACEHOLDER
    except ImportError:
        raise MissingExtra("python-pptx", "files") from None
    _check_archive(stream, "PPTX", "ppt/presentation.xml")
    presentation = pptx.Presentation(stream)
    of_each_slide = (PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.SLIDE_NUMBER)
    blocks = _begun(presentation.core_properties)
    for slide in presentation.slides:
        for either in slide.element.xpath(".//*[local-name()='AlternateContent']"):  # shapes with a formula in them
            for shape in either.xpath("*[local-name()='Choice'][1]/*"):
                either.addprevious(shape)
            either.getparent().remove(either)
        for ink in slide.element.xpath(".//*[local-name()='contentPart']"):  # python-pptx has no class for it
            ink.getparent().remove(ink)
        title = slide.shapes.title
        blocks.add(title.text_frame.text if title is not None else "")
        blocks.end_heading(2)
        for shape in _shapes(slide.shapes):
            if shape.is_placeholder and shape.placeholder_format.type in of_each_slide:
                continue
            if shape.has_text_frame and (title is None or shape.shape_id != title.shape_id):
                blocks.add(shape.text_frame.text.replace("\v", "\n"))
                blocks.end()
            elif getattr(shape, "has_table", False):
                _add_rows(blocks, [[cell.text for cell in row.cells] for row in shape.table.rows])
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            blocks.add(slide.notes_slide.notes_text_frame.text)
            blocks.end()
    return blocks


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """The shapes of a slide, also those in groups."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


@whole("EPUB")
def read_epub(stream: BinaryIO) -> Blocks:
    """The chapters of a book, in the order in which they are read. Raises BadFile for one that only some devices may
    show (DRM)."""
    with _archive(stream, "EPUB", "META-INF/container.xml") as archive:
        root = _xml(archive, "META-INF/container.xml")
        place = next((str(node.get("full-path")) for node in root.iter() if _tag(node) == "rootfile"), "")
        package = _xml(archive, place)
        metadata = {_tag(node): _one_line(node.text) for node in reversed(list(package.iter())) if node.text}
        items = {str(node.get("id")): node for node in package.iter() if _tag(node) == "item"}
        spine = [items.get(str(node.get("idref"))) for node in package.iter() if _tag(node) == "itemref"]
        files = [
            posixpath.normpath(
                posixpath.join(posixpath.dirname(place), unquote(str(item.get("href")).partition("#")[0]))
            )
            for item in spine
            if item is not None and "html" in str(item.get("media-type"))
        ]
        if "META-INF/encryption.xml" in archive.namelist():
            locked = {str(node.get("URI")) for node in _xml(archive, "META-INF/encryption.xml").iter()}
            if locked & set(files):
                raise BadFile("is encrypted (DRM)")
        blocks = Blocks()
        blocks.title, blocks.lang = metadata.get("title", ""), find_code(metadata.get("language", "")) or ""
        for file in files:
            text = page_text(_part(archive, file))
            if "\0" in text:
                raise BadFile(f"has a part with a NUL, which no text has ({file})")
            for block in html_blocks([text]):
                blocks.put(block)
    return blocks


def _tag(element: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _xml(archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    text = _part(archive, name)
    if b"<!ENTITY" in text:
        raise BadFile("declares entities, which books do not need")
    return ElementTree.fromstring(text)


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    if name not in archive.namelist():
        raise BadFile(f"names a part that it lacks ({name})")
    if archive.getinfo(name).file_size > PART:
        raise BadFile(f"has a part of more than {PART >> 20} MiB ({name})")
    return archive.read(name)


@contextmanager
def _archive(stream: BinaryIO, kind: str, part: str) -> Iterator[zipfile.ZipFile]:
    """The archive that a file of a `kind` is, which has this `part`."""
    if stream.read(4) == OLE:
        raise BadFile(f"is encrypted, or in a format of before 2007. Save it as {kind}, without a password")
    stream.seek(0)
    if not zipfile.is_zipfile(stream):
        raise BadFile(f"is no {kind}")
    with zipfile.ZipFile(stream) as archive:
        if part not in archive.namelist():
            raise BadFile(f"is no {kind} (it has no {part})")
        if sum(entry.file_size for entry in archive.infolist()) > UNPACKED:
            raise BadFile(f"has more than {UNPACKED >> 30} GiB when it is unpacked")
        yield archive


def _check_archive(stream: BinaryIO, kind: str, part: str) -> None:
    with _archive(stream, kind, part):
        pass
    stream.seek(0)


def _begun(properties: Any) -> Blocks:
    """No paragraphs yet, under the title and in the language that a document of Office says."""
    blocks = Blocks()
    blocks.title = _one_line(properties.title)
    blocks.lang = find_code(properties.language or "") or ""
    return blocks


def _add_rows(blocks: Blocks, rows: Iterable[list[str]]) -> None:
    """A table as a paragraph: a line each row that is not empty, with bars between the cells."""
    for row in rows:
        if any(cells := [_one_line(cell) for cell in row]):
            blocks.add(" | ".join(cells) + "\n")
    blocks.end()


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
