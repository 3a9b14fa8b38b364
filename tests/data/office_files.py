"""Small files of Office, PDF and EPUB, for tests."""

from __future__ import annotations

import io
import zipfile

import docx
import docx.opc.part
import pptx
import pypdf


def pdf(*pages: list[str], title: str = "", password: str | None = None) -> bytes:
    """A PDF with these lines on its pages."""
    writer = pypdf.PdfWriter()
    for lines in pages:
        page = writer.add_blank_page(300, 300)
        shown = "".join(f"({line}) Tj T* ".replace("\u00ad", "-") for line in lines)
        stream = pypdf.generic.DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 14 TL 20 280 Td {shown}ET".encode("latin-1"))
        font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica", "/Encoding": "/WinAnsiEncoding"}
        named = pypdf.generic.NameObject
        held = pypdf.generic.DictionaryObject({named(key): named(value) for key, value in font.items()})
        fonts = pypdf.generic.DictionaryObject({named("/F1"): writer._add_object(held)})
        page[named("/Resources")] = pypdf.generic.DictionaryObject({named("/Font"): fonts})
        page[named("/Contents")] = writer._add_object(stream)
    if title:
        writer.add_metadata({"/Title": title})
    if password is not None:
        writer.encrypt(password, "owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def word() -> bytes:
    document = docx.Document()
    document.core_properties.title, document.core_properties.language = "Refunds", "en-GB"
    document.add_heading("How long it takes", 1)
    document.add_paragraph("Five days.")
    document.add_paragraph("Card", style="List Bullet")
    document.add_paragraph("Cash", style="List Bullet")
    table = document.add_table(2, 2)
    for cell, text in zip([*table.rows[0].cells, *table.rows[1].cells], ["Way", "Days", "Card", "5"], strict=True):
        cell.text = text
    document.add_heading("Where to ask", 2)
    document.add_paragraph("At the desk.")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def word_of(xml: str, footnotes: str = "") -> bytes:
    """A document of Word whose body holds this, in which `w:` is Word's namespace; and a part with `footnotes`."""
    document = docx.Document()
    if footnotes:
        kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
        blob = f"<w:footnotes {docx.oxml.ns.nsdecls('w')}>{footnotes}</w:footnotes>".encode()
        part = docx.opc.part.Part(docx.opc.packuri.PackURI("/word/footnotes.xml"), kind, blob, document.part.package)
        document.part.relate_to(part, docx.opc.constants.RELATIONSHIP_TYPE.FOOTNOTES)
    for child in docx.oxml.parse_xml(f"<w:body {docx.oxml.ns.nsdecls('w')}>{xml}</w:body>"):
        document.element.body.insert(-1, child)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def slides() -> bytes:
    presentation = pptx.Presentation()
    presentation.core_properties.title = "Storms"
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "At sea"
    slide.placeholders[1].text = "A keeper writes."
    slide.notes_slide.notes_text_frame.text = "Speak slowly."
    group = presentation.slides.add_slide(presentation.slide_layouts[6]).shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 100, 100).text_frame.text = "In a group."
    out = io.BytesIO()
    presentation.save(out)
    return out.getvalue()


def book(**parts: str | bytes) -> bytes:
    package = """<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The light</dc:title>
<dc:language>fi-FI</dc:language></metadata><manifest>
<item id="b" href="text/b%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="text/a.xhtml" media-type="application/xhtml+xml"/><item id="c" href="c.css" media-type="text/css"/>
</manifest><spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine></package>"""
    files = {
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/p.opf"/></rootfiles></container>',
        "OEBPS/p.opf": package,
        "OEBPS/text/a.xhtml": "<html><head><title>I</title></head><body><h1>Alku</h1><p>Majakka.</p></body></html>",
        "OEBPS/text/b b.xhtml": "<html><body><p>Valo.</p></body></html>",
        **{name.replace("__", "/"): text for name, text in parts.items()},
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            if text:
                archive.writestr(name, text)
    return out.getvalue()
