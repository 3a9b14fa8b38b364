"""PDF, DOCX, PPTX and EPUB: their text, and those of them that hold none or cannot be read."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import docx
import docx.enum.style
import pptx
import pytest

from interlingua.data.files import Report, Scope, office, read_files
from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound

sys.path.append(str(Path(__file__).parent))
from office_files import book, pdf, slides, word, word_of


def read(folder: Path, name: str, content: bytes, **options: object) -> list[Passage]:
    (folder / name).write_bytes(content)
    return list(read_files(folder / name, **{"report": Report(), **options}))


def test_pdf(tmp_path: Path) -> None:
    lines = ["The light\u00ad", "house keeper wrote", "every storm down.", "Then he slept."]
    for content in (pdf(lines, ["A second page."], title=" The  keeper "), pdf(lines, ["A second page."], password="")):
        found = read(tmp_path, "a.pdf", content, lang="en")
        text = "The lighthouse keeper wrote every storm down.\nThen he slept.\n\nA second page."
        assert [one.text for one in found] == [text]
        assert found[0].metadata == {"chunk": "1", "source": "a.pdf"}
    assert read(tmp_path, "a.pdf", pdf(lines, title=" The  keeper "), lang="en")[0].title == "The keeper"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("流经中\n国十一个", "流经中国十一个"),
        ("เป็นเมือง\nหลวง", "เป็นเมืองหลวง"),
        ("Linux\n系统", "Linux 系统"),
        ("a river\nflows", "a river flows"),
    ],
)
def test_lines_of_a_pdf_in_scripts_without_spaces_are_joined_without_one(lines: str, text: str) -> None:
    assert office._joined(lines) == text


def test_half_a_surrogate_pair_of_a_library_is_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypdf.PageObject.extract_text", lambda _: "Party \ud83c\udf89 and \ud83c")
    assert read(tmp_path, "a.pdf", pdf(["a"]), lang="en")[0].text == "Party 🎉 and \ufffd"
    front = '---\ntitle: "Party \\ud83c\\udf89"\n---\nText.'
    assert read(tmp_path, "a.md", front.encode(), lang="en")[0].title == "Party 🎉"


def test_docx(tmp_path: Path) -> None:
    found = read(tmp_path, "a.docx", word())
    assert [(one.title, one.text, one.lang) for one in found] == [
        ("How long it takes", "Five days.\n\nCard\nCash\n\nWay | Days\nCard | 5", "en"),
        ("How long it takes > Where to ask", "At the desk.", "en"),
    ]


def run(text: str) -> str:
    return f"<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>"


def par(*runs: str, style: str = "") -> str:
    return f"<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr>{''.join(runs)}</w:p>"


def row(*cells: str) -> str:
    return f"<w:tr>{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"


def table(*rows: str) -> str:
    return f"<w:tbl><w:tblPr/><w:tblGrid/>{''.join(rows)}</w:tbl>"


def within(tag: str, content: str) -> str:
    return f"<w:{tag}>{content}</w:{tag}>"


def control(content: str) -> str:
    return f"<w:sdt><w:sdtPr/><w:sdtContent>{content}</w:sdtContent></w:sdt>"


CONTENTS = "<w:docPartObj><w:docPartGallery w:val='Table of Contents'/></w:docPartObj>"
BOX = f"<w:txbxContent>{par(run('In a box.'))}{par(run('There too.'))}</w:txbxContent>"


A, B, C, D = (run(letter) for letter in "abcd")
MARK = within("pPr", within("rPr", "<w:del/>"))  # the end of this paragraph was deleted


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (par(A, within("ins", B), within("del", f"<w:r><w:delText>c</w:delText></w:r>{D}")), "ab"),
        (par(within("moveFrom", A), within("moveTo", B)), "b"),
        (par(MARK, A) + par(MARK, within("del", B), C) + par(within("pPr", within("jc", "")), D) + par(B), "acd\n\nb"),
        (par(A) + par(MARK, B), "a\n\nb"),
        (par(A, control(B + within("ins", C)), D), "abcd"),
        (par(within("smartTag", A + within("smartTag", B)), C), "abc"),
        (par(within("ins", "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r>")), "a\tb\nc"),
        (par(A, within("hyperlink", B + within("ins", C)), D), "abcd"),
        (par(within("fldSimple", A)), "a"),
        (par(within("r", within("ruby", within("rt", A) + within("rubyBase", B)))), "b"),
        (par(f"<w:r><w:t>a</w:t>{within('ruby', within('rt', A) + within('rubyBase', B))}<w:t>c</w:t></w:r>"), "abc"),
        (par(A, within("sdt", within("sdtPr", "<w:showingPlcHdr/>") + within("sdtContent", B)), C), "ac"),
        (table(row(par(A), par(B)), row(par() + par(), par(run(" ")))), "a | b"),
        (par(A) + control(par(B) + control(table(row(par(C), par(D)))) + par(A)), "a\n\nb\n\nc | d\n\na"),
        (table(control(row(par(A))) + within("tr", control(within("tc", par(control(B)))))), "a\nb"),
        (table(row(par(A) + table(row(par(B), par(C)), row(par(D))) + par(), par(A))), "a b | c d | a"),
        (table(row(control(par(A)), par(within("ins", B))), row(par(within("del", C)), par())), "a | b"),
        (par(A, within("pict", BOX), within("Fallback", BOX)) + par(B), "a\n\nIn a box.\n\nThere too.\n\nb"),
        (par(A) + within("sdt", within("sdtPr", CONTENTS) + within("sdtContent", par(B))), "a"),
    ],
)
def test_text_of_docx_within_other_elements(tmp_path: Path, body: str, text: str) -> None:
    assert "\n\n".join(one.text for one in read(tmp_path, "a.docx", word_of(body), lang="en")) == text


def test_headings_and_lists_of_docx_in_a_content_control(tmp_path: Path) -> None:
    body = control(par(f"<w:ins>{run('Title')}</w:ins>", style="Heading1") + par(run("a"), style="ListBullet"))
    found = read(tmp_path, "a.docx", word_of(body + par(run("b"), style="ListBullet")), lang="en")
    assert [(one.title, one.text) for one in found] == [("Title", "a\nb")]


def test_notes_formulas_and_hidden_text_of_docx(tmp_path: Path) -> None:
    footnotes = f'<w:footnote w:type="separator" w:id="0"/><w:footnote w:id="2">{par(run("A note."))}</w:footnote>'
    formula = '<m:oMath xmlns:m="urn:math"><m:r><m:t>E=m</m:t></m:r><m:sup><m:t>c</m:t></m:sup></m:oMath>'
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r>"
    shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>yes</w:t></w:r>'
    reference = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    body = par(run("Text"), reference) + par(run("As "), formula, hidden, shown)
    body += par(f'<m:oMathPara xmlns:m="urn:math">{formula}</m:oMathPara>')
    (found,) = read(tmp_path, "a.docx", word_of(body, footnotes))
    assert found.text == "Text\n\nA note.\n\nAs E=mcyes\n\nE=mc"


def test_a_style_of_docx_that_is_based_on_a_headings(tmp_path: Path) -> None:
    document = docx.Document()
    for name, base in (("A", "B"), ("B", "A")):  # in a circle
        style = docx.enum.style.WD_STYLE_TYPE.PARAGRAPH
        names = [one.name for one in document.styles]
        for one in (name, base):
            if one not in names:
                document.styles.add_style(one, style)
                names.append(one)
        document.styles[name].base_style = document.styles[base]
    document.styles.add_style("Ours", docx.enum.style.WD_STYLE_TYPE.PARAGRAPH).base_style = document.styles["Heading 2"]
    document.add_paragraph("Refunds", style="Ours")
    document.add_paragraph("Five days.", style="A")
    document.save(str(tmp_path / "a.docx"))
    (found,) = read_files(tmp_path / "a.docx", lang="en", report=Report())
    assert (found.title, found.text) == ("Refunds", "Five days.")


def test_cells_merged_over_rows_that_do_not_lie_below_one_another(tmp_path: Path) -> None:
    def cell(text: str, merge: str = "", span: int = 1) -> str:
        return f'<w:tc><w:tcPr><w:gridSpan w:val="{span}"/>{merge}</w:tcPr>{par(run(text))}</w:tc>'

    more, first = "<w:vMerge/>", '<w:vMerge w:val="restart"/>'
    rows = (
        cell("A", first) + cell("b"),
        cell("", more) + cell("c"),
        cell("d", span=2),
        cell("x") + cell("", more) + cell("e"),
    )
    table = f"<w:tbl><w:tblGrid/>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    (found,) = read(tmp_path, "a.docx", word_of(table + par(run("End."))), lang="en")
    assert found.text.splitlines()[0] == "A | b"
    assert "A | c" in found.text
    assert "x |  | e" in found.text


def test_titles_empty_headings_and_contents_of_docx(tmp_path: Path) -> None:
    document = docx.Document()
    for name in ("toc 1",):
        document.styles.add_style(name, docx.enum.style.WD_STYLE_TYPE.PARAGRAPH)
    for text, style in (
        ("Travel Policy", "Title"),
        ("Version 2024", "Title"),
        ("Intro\t3", "toc 1"),
        ("Intro", "Heading 1"),
        ("Body text.", None),
        ("", "Heading 1"),
        ("More text.", None),
    ):
        document.add_paragraph(text, style=style)
    document.save(str(tmp_path / "a.docx"))
    (found,) = read_files(tmp_path / "a.docx", lang="en", report=Report())
    assert (found.title, found.text) == ("Travel Policy Version 2024 > Intro", "Body text.\n\nMore text.")


def test_slides_of_one_title_are_two(tmp_path: Path) -> None:
    presentation = pptx.Presentation()
    for text in ("one", "two"):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = "Results", text
    presentation.save(str(tmp_path / "a.pptx"))
    found = list(read_files(tmp_path / "a.pptx", lang="en", report=Report()))
    assert [(one.title, one.text) for one in found] == [("Results", "one"), ("Results", "two")]


def test_a_box_with_a_formula_and_ink_of_pptx(tmp_path: Path) -> None:
    """PowerPoint writes both within AlternateContent, which python-pptx does not look into."""
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    box = slide.shapes.add_textbox(0, 0, 100, 100)
    box.text_frame.text = "A formula."
    name = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
    either = box.element.makeelement(f"{name}AlternateContent")
    box.element.addprevious(either)
    either.append(either.makeelement(f"{name}Choice"))
    either[0].append(box.element)
    either[0].append(either.makeelement("{http://schemas.openxmlformats.org/presentationml/2006/main}contentPart"))
    presentation.save(str(tmp_path / "a.pptx"))
    assert [one.text for one in read_files(tmp_path / "a.pptx", lang="en", report=Report())] == ["A formula."]


def test_pptx(tmp_path: Path) -> None:
    found = read(tmp_path, "a.pptx", slides(), lang="en")
    assert [(one.title, one.text) for one in found] == [
        ("Storms > At sea", "A keeper writes.\n\nSpeak slowly."),
        ("Storms", "In a group."),
    ]


def test_epub(tmp_path: Path) -> None:
    found = read(tmp_path, "a.epub", book())
    assert [(one.title, one.text, one.lang) for one in found] == [
        ("The light > Alku", "Majakka.", "fi"),
        ("The light", "Valo.", "fi"),
    ]


def test_a_book_has_one_language_and_may_go_while_the_folder_is_read(tmp_path: Path) -> None:
    english = "<html xml:lang='en'><body><p>Majakka.</p></body></html>"
    assert {one.lang for one in read(tmp_path, "a.epub", book(**{"OEBPS__text__a.xhtml": english}))} == {"fi"}
    (tmp_path / "a.epub").unlink()
    with pytest.raises(NotFound):  # which a folder's reader passes over
        office.read_epub(SimpleNamespace(path=tmp_path / "a.epub"))


def test_a_page_of_a_book_that_is_called_as_the_book(tmp_path: Path) -> None:
    page = "<html><head><title>The light</title></head><body><h1>Alku</h1><p>Majakka.</p></body></html>"
    found = read(tmp_path, "a.epub", book(**{"OEBPS__text__a.xhtml": page}))
    assert found[0].title == "The light > Alku"


def test_epub_whose_chapter_is_named_with_an_anchor(tmp_path: Path) -> None:
    package = """<package><manifest><item id="a" href="text/a.xhtml#top" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="a"/></spine></package>"""
    assert [one.text for one in read(tmp_path, "a.epub", book(**{"OEBPS__p.opf": package}))] == ["Majakka."]


def chapter(encoding: str, declared: str) -> bytes:
    return f'<?xml version="1.0"{declared}?><html><body><p>Järvi öljy.</p></body></html>'.encode(encoding)


@pytest.mark.parametrize(
    "page",
    [
        chapter("utf-16", ' encoding="UTF-16"'),
        b"\xfe\xff" + chapter("utf-16-be", ""),
        chapter("latin-1", ' encoding="ISO-8859-1"'),
        chapter("utf-8", ' encoding="ISO-8859-1"'),
        chapter("utf-8-sig", ""),
    ],
)
def test_encodings_of_chapters(tmp_path: Path, page: bytes) -> None:
    assert read(tmp_path, "a.epub", book(**{"OEBPS__text__a.xhtml": page}))[0].text == "Järvi öljy.\n\nValo."


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"0" * 3_000)
    return out.getvalue()


LOCKED = '<encryption><CipherReference URI="OEBPS/text/a.xhtml"/></encryption>'
ENTITY = '<!DOCTYPE p [<!ENTITY a "aaaa">]><package>&a;</package>'
BAD: list[tuple[str, Callable[[], bytes], str]] = [
    ("a.pdf", lambda: pdf(["Text."], password="secret"), r"is encrypted\. Save it without a password"),
    ("a.pdf", lambda: pdf([], []), "holds no text on its 2 pages, so it is scanned"),
    ("a.pdf", lambda: b"no PDF", "cannot be read as PDF"),
    ("a.pdf", lambda: pdf(["Text."])[:300], "cannot be read as PDF"),
    ("a.docx", lambda: b"no DOCX", "is no DOCX"),
    ("a.docx", lambda: slides(), r"is no DOCX \(it has no word/document\.xml\)"),
    ("a.docx", lambda: office.OLE + b"x" * 600, "is encrypted, or in a format of before 2007"),
    ("a.docx", lambda: word()[:-40], "is no DOCX"),
    ("a.docx", lambda: bomb(), r"has more than .* when it is unpacked"),
    ("a.pptx", lambda: word(), "is no PPTX"),
    ("a.epub", lambda: book(**{"META-INF__encryption.xml": LOCKED}), r"is encrypted \(DRM\)"),
    ("a.epub", lambda: book(**{"OEBPS__p.opf": ENTITY}), "declares entities"),
    ("a.epub", lambda: book(**{"OEBPS__text__a.xhtml": ""}), r"names a part that it lacks \(OEBPS/text/a\.xhtml\)"),
    ("a.epub", lambda: book(**{"OEBPS__text__a.xhtml": chapter("utf-16-le", "")}), "has a part with a NUL, .*a.xhtml"),
    ("a.epub", lambda: book(**{"OEBPS__p.opf": "<package>"}), "cannot be read as EPUB"),
]


@pytest.mark.parametrize(("name", "content", "says"), BAD)
def test_what_cannot_be_read_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: Callable[[], bytes], says: str
) -> None:
    data = content()
    if data == bomb():
        monkeypatch.setattr(office, "UNPACKED", 2_000)
    with pytest.raises(BadInput, match=rf"{name}: {says}"):
        read(tmp_path, name, data)
    (tmp_path / "b.txt").write_text("Good.")
    report, scope = Report(), Scope()
    found = list(read_files(tmp_path, lang="en", on_bad_row="skip", report=report, scope=scope))
    assert [one.text for one in found] == ["Good."]
    assert (report.bad, scope.unread) == (1, {f"{tmp_path.name}/{name}"})


@pytest.mark.parametrize(
    ("name", "library", "module"),
    [
        ("a.pdf", "pypdf", "pypdf"),
        ("a.docx", "python-docx", "docx"),
        ("a.pptx", "python-pptx", "pptx"),
        ("a.md", "charset-normalizer", "charset_normalizer"),
    ],
)
def test_a_library_that_is_missing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = "index" if name == "a.md" else "files"
    with pytest.raises(NotFound, match=rf"which needs {library}: pip install 'interlingua\[{extra}\]'\.$"):
        read(tmp_path, name, "Königstraße".encode("cp1252"))
    (tmp_path / f"b{name[1:]}").write_bytes("Königstraße".encode("cp1252"))
    (tmp_path / "b.txt").write_text("Good.")
    report, scope = Report(), Scope()
    assert len(list(read_files(tmp_path, lang="en", report=report, scope=scope))) == 1
    [reason] = report.reasons()
    assert f"which needs {library}: pip install 'interlingua[{extra}]' (2, such as {tmp_path.name}/{name})" in reason
    assert len(scope.unread) == 2
