from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from interlingua.data.files import Report, read_files
from interlingua.data.files import chunks as blocks
from interlingua.data.files import encoding as check
from interlingua.data.files import markdown as plain_text
from interlingua.data.files import pages as web_page
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError

pyarrow = pytest.importorskip("pyarrow")


def read(folder: Path, name: str, content: str | bytes, **options: object) -> list[Passage]:
    """The passages of one file, in English unless said otherwise."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_files(path, **{"lang": "en", "report": Report(), **options}))


def short(passages: list[Passage]) -> list[tuple[str, str]]:
    return [(one.title, one.text) for one in passages]


def write_parquet(path: Path, columns: dict[str, object], rows: int = 1000) -> None:
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, row_group_size=rows)


# --- documents


def test_plain_text(tmp_path: Path) -> None:
    content = "\ufeffOne.\r\nTwo.\r\n\r\nThree.\n \t\n\n***\n"
    found = read(tmp_path, "a.txt", content)
    assert found == [Passage("a.txt#1", "One.\nTwo.\n\nThree.\n\n***", "", "en", {"source": "a.txt", "chunk": "1"})]
    assert [one.text for one in read(tmp_path, "a.txt", content, chunk_chars=10)] == ["One.\nTwo.", "Three."]
    assert read(tmp_path, "b.TXT.gz", gzip.compress(content.encode()))[0].text == found[0].text


def test_a_paragraph_without_end_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LONGEST", 1_000)
    monkeypatch.setattr(plain_text, "LINE", 64)
    sentences = [f"Sentence number {i} is here." for i in range(500)]
    found = read(tmp_path, "a.txt", " ".join(sentences), chunk_chars=100, overlap=0)
    assert " ".join(one.text.replace("\n\n", " ") for one in found) == " ".join(sentences)
    assert all(one.text.endswith("here.") for one in found)
    assert read(tmp_path, "a.txt", "One" + " " * 200 + "two.")[0].text == "One" + " " * 200 + "two."
    found = read(tmp_path, "a.txt", "กำ" * 3_000, chunk_chars=100, lang="th")
    assert "".join(one.text.replace("\n\n", "") for one in found) == "กำ" * 3_000


MARKDOWN = """---
title: "The guide"
lang: sw-TZ
---
Before. See [the *site*](https://a.b/c_(d) "t"), ![a picture](p.png) and [this][ref].

[ref]: https://example.com

# Install **now** #

Run `pip`. [![badge](b.svg)](c)

```bash
# no heading

    indented
```

Linux
-----
Use apt. <!-- gone
gone too --> Back.
- one
* * *
## Empty ##
## Windows
Line<br>one &amp; a_b_c `x`
#hashtag
====
"""


def test_markdown(tmp_path: Path) -> None:
    found = read(tmp_path, "a.md", MARKDOWN, lang="")
    assert {one.lang for one in found} == {"sw"}
    assert short(found) == [
        ("The guide", "Before. See the *site*, a picture and this."),
        ("The guide > Install now", "Run pip. badge\n\n# no heading\n\nindented"),
        ("The guide > Install now > Linux", "Use apt.\nBack.\n- one"),
        ("The guide > Install now", "Empty"),
        ("The guide > Install now > Windows", "Line one & a_b_c x\n#hashtag\n===="),
    ]


def test_comments_of_markdown(tmp_path: Path) -> None:
    text = "one <!-- a\nb --> two <!-- c\nd\n--> three <!-- e --> four\nfive"
    assert read(tmp_path, "a.md", text)[0].text.split() == "one two three four five".split()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Write `<!--` to open.\n\nWalrus.", "Write <!-- to open.\n\nWalrus."),
        ("Write ``a ` <!--`` here.\n\nWalrus.", "Write a ` <!-- here.\n\nWalrus."),
        ("```html\n<!-- open\n```\nWalrus.", "<!-- open\n\nWalrus."),
        ("    <!-- open\n\nWalrus.", "<!-- open\n\nWalrus."),
        ("Text <!-- open.\n\nWalrus.", "Text <!-- open.\n\nWalrus."),
        ("<!-- open\nmore\n\nWalrus.", "<!-- open\nmore\n\nWalrus."),
        ("Zebra.\n<!-- no\n\n# no\n\n`no -->\n<!-- open\n\nWalrus.", "Zebra.\n<!-- open\n\nWalrus."),
        ("- Zebra.\n- <!-- no\n\n  no --> Walrus.", "- Zebra.\nWalrus."),
        ("a <!-- `no` --> b `c <!-- d` <!-- no\nno --> e", "a  b c <!-- d \n e"),
        ("a <!--> b", "a  b"),
    ],
)
def test_only_a_comment_that_ends_and_is_no_code_is_gone(tmp_path: Path, text: str, shown: str) -> None:
    front = "---\ntitle: The guide\n---\n"
    for start, title in (("", ""), (front, "The guide")):
        assert short(read(tmp_path, "a.md", start + text)) == [(title, shown)]


CODE = "<a> 2**10 &amp; [i](b) `` <!-- \\` # x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run `git clone <url> <dir>`.", "Run git clone <url> <dir>."),
        ("So `2**10` and **`a[i](b)`**.", "So 2**10 and a[i](b)."),
        ("In ``` %s ``` it.", "In  %s  it."),
        ("Split `<a>\n<b>` over *two* lines.", "Split <a>\n<b> over *two* lines."),
        ('The [`<a>`](x.md "t") and ![`2**3`](p.png)', "The <a> and 2**3"),
        ("f[a](`<b>`) <c `<d>`>", "f[a](<b>) <c <d>>"),
        ("The [long\nlink](x.md), <b\nclass='x'\n>this</b> <or\nthis, d>", "The long\nlink, this <or\nthis, d>"),
        ("No \\`<b>x</b>` code.", "No `x` code."),
        ("- one ` tick\n- **two** ` ticks", "- one ` tick\n- two ` ticks"),
        ("| ` | **a** |\n| ` | b |", "| ` | a |\n| ` | b |"),
        ("Text:\n\n    %s\n\n    more **", "Text:\n\n%s\n\nmore **"),
        ("Text\n    with **marks**", "Text\n    with marks"),
        ("- one\n\n    **two**\n\n      %s\n\n**three**", "- one\n\ntwo\n\n%s\n\nthree"),
        ("1. one\n\n       ```bash\n       %s\n       ```\n\n   **two**", "1. one\n\n%s\n\ntwo"),
        ("1. one\n   - two\n        ~~~\n     %s\n        ~~~\n**three**", "1. one\n   - two\n\n%s\n\nthree"),
        ("- ```\n  %s\n  ```\n- **two**", "%s\n\n- two"),
        ("- one\n\n# **H**\n\n    %s", "- one\n\n%s"),
        ("!!! note\n\n    A **note**.", "!!! note\n\nA note."),
        ("```no fence``` **a**\n\n**b**", "no fence a\n\nb"),
        ("```\n%s\n    ```\n**\n```\n**b**", "%s\n    ```\n**\n\nb"),
    ],
)
def test_code_of_markdown_is_literal(tmp_path: Path, text: str, shown: str) -> None:
    found = read(tmp_path, "a.md", text.replace("%s", CODE))
    assert "\n\n".join(one.text for one in found) == shown.replace("%s", CODE)


def test_code_of_markdown_in_a_line_that_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "LINE", 16)
    text = f"The **start** of it. ``` {CODE} ``` The **end**."
    assert read(tmp_path, "a.md", text)[0].text == f"The start of it. {CODE}  The end."
    assert read(tmp_path, "a.md", f"    {CODE} {CODE}")[0].text == f"{CODE} {CODE}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The value 2**10 is 1024.", None),
        ("f(*args, **kwargs) and g(**a) + g(**b)", None),
        ("5 ** 3 ** 2", None),
        ("don`t, and a__b__c in snake_case", None),
        ("__Bold__, ***both*** and **`code`**.", "Bold, *both* and code."),
        ("**a __b** c__ and __a **b__ c**", "a __b c__ and a **b c**"),
        ("****four**** and **a**b** and **un ended", "four and ab** and **un ended"),
        ("**हिन्दी**में", "हिन्दीमें"),
        ("**[a](b)** and [**c**](d)", "a and c"),
        (
            r"\*\*not\*\* snake\_case \[not\](link) \<b> 5 \> 3 C:\new",
            "**not** snake_case [not](link) <b> 5 > 3 C:\\new",
        ),
        ("line\\\nbreak", "line\nbreak"),
        (r"[c](<d e>) [f](g\_h) [i](<j> 'k')", "c f i"),
        ("matrix[0][1], claims [1][2]", None),
        ("[a][B c] and [b  C][]\n\n[b c]: d", "a and b  C"),
        ("[`A`][], [x][`a`] and [my\\_f][]\n\n[`a`]: d\n[my\\_f]: e", "A, x and my_f"),
    ],
)
def test_marks_of_markdown_are_those_of_commonmark(tmp_path: Path, text: str, shown: str | None) -> None:
    assert read(tmp_path, "a.md", text)[0].text == (text if shown is None else shown)
    markdown_it = pytest.importorskip("markdown_it")
    html = markdown_it.MarkdownIt().render(text)
    rendered = read(tmp_path, "a.html", html.replace("<em>", "*").replace("</em>", "*"))[0].text
    assert " ".join(rendered.split()) == " ".join((shown or text).split())


def test_bold_text_of_east_asia_and_definitions_anywhere(tmp_path: Path) -> None:
    text = "**テスト。**です, **강조(bold)**를"  # not by CommonMark, but as people write it
    assert read(tmp_path, "a.md", text)[0].text == "テスト。です, 강조(bold)를"
    definitions = "[a][b], [c][d]\n\n[b]:\n  https://x.y\n\n> [d]: e"
    assert read(tmp_path, "a.md", definitions)[0].text.startswith("a, c\n\n")
    picture = "![x][b c]\n\n[B  c]: d.png"
    assert read(tmp_path, "a.md", picture)[0].text == "x"


def test_definitions_of_markdown(tmp_path: Path) -> None:
    targets = ["x.md", "https://a.b/c_(d)", "<x y.md>", "x.md 'a b'", 'x.md "a b"', "x.md  (a b) "]
    definitions = "\n".join(f"[no {number}]: {target}" for number, target in enumerate(targets))
    kept = "[^1]: Zebra explains.\n[^2]: Zebra.\n[Note]: Walrus restart the server.\n[x]: y (z) 'w'"
    assert read(tmp_path, "a.md", f"Text.[^1]\n\n{definitions}\n\n{kept}")[0].text == f"Text.[^1]\n\n{kept}"
    assert read(tmp_path, "a.md", "[^1]: One.\n\n    **More**.")[0].text == "[^1]: One.\n\nMore."


def test_lines_that_underline_nothing_do_not_have_the_paragraph_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = plain_text._plain, list[int]()

    def counted(text: str, is_label: Callable[[str], bool]) -> str:
        seen.append(len(text))
        return plain(text, is_label)

    monkeypatch.setattr(plain_text, "_plain", counted)
    log = "some text of a log\nand more here\n====\n" * 4000
    assert len(read(tmp_path, "a.md", log)) > 100
    assert sum(seen) < 8 * len(log)


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        ('text\tid\n"Hello\t1\ngood\t2\nright"\t3\nlast\t4', {"1": '"Hello', "2": "good", "3": 'right"', "4": "last"}),
        ('id\ttext\n1\t"Hello" he said\n2\t5" screen', {"1": '"Hello" he said', "2": '5" screen'}),
        (
            'id\ttext\n1\t"Hello ""you""\nworld"\n2\t"a\tb"\n\n3\t"c"',
            {"1": 'Hello "you"\nworld', "2": "a\tb", "3": "c"},
        ),
        ('id\ttext\n1\t"open\n2\ta\n3\t"end', {"1": '"open', "2": "a", "3": '"end'}),
        ('id\ttext\n1\t"one\nkey\tvalue\nend"\n2\tb', {"1": "one\nkey\tvalue\nend", "2": "b"}),
        ('text\n"Hello\nworld"\nb', {"a.tsv:2": "Hello\nworld", "a.tsv:4": "b"}),
    ],
)
def test_quotes_of_tsv_are_text_unless_they_enclose_a_cell(tmp_path: Path, table: str, texts: dict[str, str]) -> None:
    assert {one.id: one.text for one in read(tmp_path, "a.tsv", table)} == texts


@pytest.mark.parametrize(("first", "mark"), [("sep=;", ";"), ('"sep=#"', "#"), ("\ufeff\r\nSEP=\t", "\t")])
def test_a_csv_may_name_its_separator_in_a_line_before_the_header(tmp_path: Path, first: str, mark: str) -> None:
    content = f"{first}\r\nid{mark}text\r\n{mark}One{mark}two\r\n7{mark}Three, or four\r\n"
    report = Report()
    [passage] = read(tmp_path, "a.csv", content, report=report, on_bad_row="skip")
    assert (passage.id, passage.text) == ("7", "Three, or four")
    assert f"a.csv, line {first.count(chr(10)) + 3}: 3 column(s), the header has 2" in "".join(
        report.bad_rows.examples()
    )


def test_a_column_may_be_called_like_a_line_of_a_separator(tmp_path: Path) -> None:
    assert read(tmp_path, "a.csv", "sep=a,text\n1,One\n")[0].metadata == {"source": "a.csv", "sep=a": "1"}


def test_a_row_of_csv_with_a_stray_quote_is_one_bad_row(tmp_path: Path) -> None:
    report = Report()
    table = 'id,text\n1,"5" screen\n2,a\n3,"b\nc"\n'
    assert [one.id for one in read(tmp_path, "a.csv", table, report=report, on_bad_row="skip")] == ["2", "3"]
    assert "a.csv, line 2: ',' expected after '\"'" in "".join(report.bad_rows.examples())


def test_numbers_of_a_table_with_gaps(tmp_path: Path) -> None:
    table = pyarrow.table({"id": [1.0, 2.0, None], "text": ["a", "b", "c"], "year": [float("nan"), 2020.5, 1999.0]})
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(table, tmp_path / "a.parquet")
    found = list(read_files(tmp_path / "a.parquet", lang="en", report=Report()))
    assert [(one.id, one.metadata.get("year")) for one in found] == [
        ("1", None),
        ("2", "2020.5"),
        ("a.parquet:3", "1999.0"),
    ]
    rows = '{"id": 1.0, "text": "a"}\n{"id": 1.5, "text": "b"}\n'
    (one,) = read(tmp_path, "a.jsonl", rows, on_bad_row="skip")
    assert one.id == "1"


@pytest.mark.parametrize("chunk", ["sentences", "headings", "characters"])
def test_two_headings_of_the_same_words_are_two(tmp_path: Path, chunk: str) -> None:
    for name, text in (("a.md", "# T\n## Note\none\n## Note\ntwo"), ("a.html", "<h2>Note</h2>one<h2>Note</h2>two")):
        assert [one.text for one in read(tmp_path, name, text, chunk=chunk)] == ["one", "two"]


@pytest.mark.parametrize(
    ("matter", "title"),
    [
        ("# a comment\ntitle: T\nlang: fi", "T"),
        ('"title": T', "T"),
        ("some key: x\ntitle: T", "T"),
        ("title: T: U", "T: U"),
    ],
)
def test_front_matter_begins_with_any_key(tmp_path: Path, matter: str, title: str) -> None:
    (one,) = read(tmp_path, "a.md", f"---\n{matter}\n---\ntext")
    assert (one.title, one.text) == (title, "text")


def test_text_between_two_rules_is_no_front_matter(tmp_path: Path) -> None:
    for text in ("Note to self: remember the milk", "Hello.", "- one\n- two", "https://a.b"):
        assert text in "\n".join(one.title + one.text for one in read(tmp_path, "a.md", f"---\n{text}\n\n---\nmore"))


def test_headings_of_markdown(tmp_path: Path) -> None:
    assert short(read(tmp_path, "a.md", "Title\n=====\ntext\n\ntwo\nlines\n---\n### Deep\nx\n## Next\ny")) == [
        ("Title", "text\n\ntwo\nlines"),
        ("Title > Deep", "x"),
        ("Title > Next", "y"),
    ]
    numbered = "1. Introduction\n======\nText.\n\n2. Usage\n------\nMore.\n\n1. one\n2. two"
    assert short(read(tmp_path, "a.md", numbered)) == [
        ("1. Introduction", "Text."),
        ("1. Introduction > 2. Usage", "More.\n\n1. one\n2. two"),
    ]
    assert short(read(tmp_path, "a.md", "~~~~\n# a\n```\n# b\n~~~\n~~~~~\n# c\nx")) == [
        ("", "# a\n```\n# b\n~~~"),
        ("c", "x"),
    ]
    assert short(read(tmp_path, "a.md", "# Only headings\n## Here\n# And here")) == [
        ("Only headings", "Here"),
        ("", "And here"),
    ]


@pytest.mark.parametrize("start", ["---\n\nText: here.\n", "---\ntext: a\n" + "line\n" * 200, "---\nNot a key\n---\n"])
def test_what_is_no_front_matter_is_text(tmp_path: Path, start: str) -> None:
    text = " ".join(one.title + one.text for one in read(tmp_path, "a.md", start + "# Title\nand more"))
    assert all(word in text for word in [*start.replace("---", "").split(), "Title", "and more"])


FRONT_MATTER = """---
Title: Refunds
lang: de
tags: [money, cards]
updated: 2024-05-01
weight: 3
draft: no
link: https://example.com/refunds
source: wiki
nested: {a: 1}
---
Das Geld kommt.
"""


def test_front_matter_is_title_language_and_metadata(tmp_path: Path) -> None:
    report = Report()
    [found] = read(tmp_path, "a.md", FRONT_MATTER, lang="", report=report)
    assert list(report.left_out) == [("a.md", "nested")]
    assert (found.title, found.lang, found.text) == ("Refunds", "de", "Das Geld kommt.")
    assert found.metadata == {
        "source": "a.md",
        "chunk": "1",
        "tags": "money, cards",
        "updated": "2024-05-01",
        "weight": "3",
        "draft": "no",
        "url": "https://example.com/refunds",
        "source (front matter)": "wiki",
    }
    texts = "---\ntitle: Refunds\n---\n# Overview\nText.\n## Details\nMore."
    assert [one.title for one in read(tmp_path, "a.md", texts)] == [
        "Refunds > Overview",
        "Refunds > Overview > Details",
    ]
    texts = texts.replace("# Overview", "# REFUNDS")
    assert [one.title for one in read(tmp_path, "a.md", texts)] == ["REFUNDS", "REFUNDS > Details"]
    [found] = read(tmp_path, "a.md", "---\ntitle: No: YAML\nteam: 'red'\n---\nText.")
    assert (found.title, found.metadata["team"]) == ("No: YAML", "red")
    twice = "---\ntitle: One\ntags: [a, b]\nauthor: {name: Bob}\ntitle: Two\n---\nText."  # the last one counts
    report = Report()
    [found] = read(tmp_path, "a.md", twice, report=report)
    assert (found.title, found.metadata["tags"], "name" in found.metadata) == ("Two", "a, b", False)
    assert list(report.left_out) == [("a.md", "author")]
    [found] = read(tmp_path, "a.md", "---\ntitle: A\nlang: of the lake\n---\nText.", lang="")
    assert found.metadata["lang"] == "of the lake"


def test_tags_keep_words_apart(tmp_path: Path) -> None:
    markup = "<details><summary>How long?</summary>Five days.</details> H<sub>2</sub>O <b>a</b>b"
    assert read(tmp_path, "a.md", markup)[0].text.split() == "How long? Five days. H2O ab".split()
    markup += "<ul><li>x<li>y</ul><table><tr><td>1<td>2</table><dl><dt>k<dd>v</dl><hgroup>g</hgroup>h"
    assert read(tmp_path, "a.html", markup)[0].text.split() == "How long? Five days. H2O ab x y 1 2 k v g h".split()


HTML = """<!DOCTYPE html><html lang="pt-BR"><head><meta charset=utf-8><title> My
 page</title><style>p { color: red }</style><script>if (a < b) document.write("<p>no</p>")</script></head>
<body><nav>Home</nav>
<p>Before</p><h1>Big <em>title</em></h1><p>Some   <b>bold</b>
 text,&nbsp;caf&eacute; &#x1F600;.<br/>Next line.<h2>Part<div>body</div>
<svg><title>drawn</title></svg><pre>a
  b</pre><table><tr><td>x</td><td>y</td></tr><tr><th>z</th></tr></table><noscript>no</noscript><template><p>no</p></template>
<!-- <p>no</p> --><ul><li>one<li>two</ul>the end"""


def test_html(tmp_path: Path) -> None:
    found = read(tmp_path, "a.html", HTML, lang="")
    assert {one.lang for one in found} == {"pt"}
    assert short(found) == [
        ("My page", "Home\n\nBefore"),
        ("Big title", "Some bold text,\u00a0café 😀.\nNext line."),
        ("Big title > Part", "body\n\na\n  b\n\nx y\n\nz\n\none\n\ntwo\n\nthe end"),
    ]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a<div hidden>no<div>no</div>no</div>b", "a\n\nb"),
        ("<p>a <span hidden>no</span>b", "a b"),
        ('<p>a <b style="color: red; display : none">no</b>b', "a b"),
        ("<dialog>no</dialog><dialog open>a</dialog>b", "a\n\nb"),
        ('<p hidden="until-found">a<p>b', "a\n\nb"),
        ("<p hidden>no<p>a", "a"),
        ("<div><span hidden>no</div><p>a</p>", "a"),
        ("<p>a <span hidden>no</p><p>b</p>", "a\n\nb"),
        ("<p>a<div hidden><p>no</p>no</div>b", "a\n\nb"),
        ("<p>a<p>b<div hidden>no</p>no</div>c", "a\n\nb\n\nc"),
        ("<div><template><p></div>no</template>a</div>", "a"),
        ("<ul><li><ul hidden><li>no</li></ul>a</li>", "a"),
        ("<div><table hidden><tr><td></div>no</table>a</div>", "a"),
        ("<b><div hidden>no</b>no</div>a", "a"),
        ("<p>a<br>b</p><p>c <span hidden>no<br/>no</span>d", "a\nb\n\nc d"),
        ("<p><img src=a>b</p><noscript><img src=c />no</noscript>", "b"),
        ("<form><div hidden>no</form>no</div>a", "a"),
        ("<table><tr><td><div hidden><table><tr></td>no</table></div>a</table>", "a"),
        ("<ruby>a<rp>(<rt>no<rp>)</ruby>c", "ac"),
        ("<ruby>東<rt>とう</rt>京<rt>きょう</ruby>は", "東京は"),
        ("<video>no</video><datalist><option>no</datalist>E<math><mi>=</mi><annotation>no</annotation></math>m", "E=m"),
        ("<ul><li hidden>no<ul><li>no</ul>no<li>a</ul>b", "a\n\nb"),
        ("<ul><li>a<li hidden>no</ul>b", "a\n\nb"),
        ("<table><tr><td>a<td hidden>no<tr hidden><td>no<tr><td>b</table>c", "a\n\nb\n\nc"),
        ("<dl><dt hidden>no<dd>a</dl>", "a"),
        ("<p>a<input hidden><img hidden>b", "ab"),
        ("<svg hidden><g><path/><g>no</svg>a", "a"),
        ("<body style='display:none'><p>a", "a"),
        ("<div hidden>" * 3 + "no" + "</div>" * 3 + "a", "a"),
    ],
)
def test_what_a_page_hides_is_not_read(tmp_path: Path, markup: str, text: str) -> None:
    assert read(tmp_path, "a.html", markup)[0].text == text


def test_html_that_nobody_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert short(read(tmp_path, "a.htm", "<p>one<script>var x = '</p>")) == [("", "one")]
    assert short(read(tmp_path, "a.htm", "<p>one &am")) == [("", "one &am")]
    assert short(read(tmp_path, "a.htm", "<p>one<!" * 50_000))[0][1].startswith("one")
    with pytest.raises(InterlinguaError, match=r"a\.htm, line 1: not HTML"):
        read(tmp_path, "a.htm", "<p>one <![unknown[ two")
    monkeypatch.setattr(web_page, "LONGEST_TAG", 1 << 10)
    monkeypatch.setattr(web_page, "PART", 1 << 10)
    with pytest.raises(InterlinguaError, match=r"a\.htm, line 2: a tag, comment or script of more than"):
        read(tmp_path, "a.htm", "<p>one\n<img src='" + "A" * 5_000)


def test_html_is_the_same_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(tmp_path, "a.html", HTML)
    monkeypatch.setattr(web_page, "PART", 7)
    assert read(tmp_path, "a.html", HTML) == whole


# --- tables


def test_jsonl(tmp_path: Path) -> None:
    rows = [
        {"text": "One.", "title": "T", "id": 7, "lang": "fin", "year": 2020, "fresh": True, "note": None},
        {"text": "Two. " * 500, "tags": ["a"], "metadata": {"kind": "x", "price": 1.5, "deep": {}}},
    ]
    report = Report()
    found = read(tmp_path, "a.jsonl", "\n\n".join(map(json.dumps, rows)), report=report)
    assert found == [
        Passage("7", "One.", "T", "fi", {"source": "a.jsonl", "year": "2020", "fresh": "true"}),
        Passage("a.jsonl:3", "Two. " * 500, "", "en", {"source": "a.jsonl", "kind": "x", "price": "1.5"}),
    ]
    assert list(report.left_out) == [("a.jsonl", "deep"), ("a.jsonl", "tags")]
    assert "column 'tags' is left out" in str(report)
    assert read(tmp_path, "b.json", '{"docid": "d", "contents": "c"}')[0].id == "d"
    assert read(tmp_path, "b.jsonl", '{"text": "A lake.", "title": NaN, "lang": NaN}')[0].text == "A lake."


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'ID,Text,Year\n1,"One, ""two""\nand three",2020\n2,Four,\n'),
        ("a.csv", '\ufeffID;Text;Year\r\n1;"One, ""two""\r\nand three";2020\r\n\r\n2;Four;\r\n'),
        ("a.csv", 'ID|Text|Year\n1|"One, ""two""\nand three"|2020\n2|Four|\n'),
        ("a.csv", '  \nID,Text,Year\n1,"One, ""two""\nand three",2020\n   \n2,Four,\n'),
        ("a.tsv", 'ID\tText\tYear\n1\t"One, ""two""\nand three"\t2020\n2\tFour\t\n'),
    ],
)
def test_csv_and_tsv(tmp_path: Path, name: str, content: str) -> None:
    assert read(tmp_path, name, content) == [
        Passage("1", 'One, "two"\nand three', "", "en", {"source": name, "Year": "2020"}),
        Passage("2", "Four", "", "en", {"source": name}),
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_column_that_is_named_has_no_other_role(tmp_path: Path, name: str) -> None:
    content = {"a.csv": "question,answer\nHow?,So.\n", "a.jsonl": '{"question": "How?", "answer": "So."}\n'}[name]
    (found,) = read(tmp_path, name, content, columns={"text": "question"})
    assert (found.title, found.text, found.metadata["answer"]) == ("", "How?", "So.")


def test_columns_are_guessed_or_named(tmp_path: Path) -> None:
    content = "body,summary,source,language,key\nThe body.,The summary.,mine,de,k1\n"
    assert read(tmp_path, "a.csv", content) == [
        Passage("a.csv:2", "The body.", "", "de", {"source": "mine", "summary": "The summary.", "key": "k1"})
    ]
    named = {"text": "summary", "id": "key", "title": "body"}
    assert read(tmp_path, "a.csv", content, columns=named) == [
        Passage("k1", "The summary.", "The body.", "de", {"source": "mine"})
    ]
    with pytest.raises(InterlinguaError, match=r"no column 'sumary'; the columns are body, summary"):
        read(tmp_path, "a.csv", content, columns={"text": "sumary"})
    with pytest.raises(InterlinguaError, match=r"columns: 'txet' is nothing that a column can be. Did you mean 'text'"):
        read(tmp_path, "a.csv", content, columns={"txet": "summary"})
    assert read(tmp_path, "a.csv", ",text\n0,Some text.\n")[0].metadata == {"source": "a.csv", "column 1": "0"}


@pytest.mark.parametrize(
    ("table", "title", "text"),
    [
        ("Question,Answer\nQ,A", "Q", "A"),
        ("answer,title,question\nA,T,Q", "Q", "A"),
        ("question,body\nQ,B", "Q", "B"),
        ("title,content,question\nT,C,Q", "T", "C"),
        ("answer,text\nA,X", "", "X"),
    ],
)
def test_the_headers_of_a_faq_are_known(tmp_path: Path, table: str, title: str, text: str) -> None:
    assert short(read(tmp_path, "a.csv", table)) == [(title, text)]
    names, cells = (line.split(",") for line in table.split("\n"))
    assert short(read(tmp_path, "a.jsonl", json.dumps(dict(zip(names, cells, strict=True))))) == [(title, text)]


def test_columns_are_named_for_each_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.csv").write_text("reply,text\nOne.,no\n")
    (tmp_path / "sub/b.csv").write_text("Antwort,text\nTwo.,no\n")
    (tmp_path / "sub/c.csv").write_text("text\nThree.\n")

    def texts(columns: dict[str, object]) -> list[str]:
        return [one.text for one in read_files(tmp_path, lang="en", columns=columns, report=Report())]  # type: ignore[arg-type]

    assert texts({"a.csv": {"text": "reply"}, "sub/b*": {"text": "Antwort"}}) == ["One.", "Two.", "Three."]
    assert "no table that was read" not in caplog.text
    assert texts({"d.csv": {"text": "reply"}}) == ["no", "no", "Three."]
    assert "columns: no table that was read is called d.csv" in caplog.text
    with pytest.raises(InterlinguaError, match="columns: 'txet' is nothing that a column can be"):
        texts({"a.csv": {"txet": "reply"}})


def test_links(tmp_path: Path) -> None:
    [row] = read(tmp_path, "a.csv", "text,Link\nOne.,https://example.com/1\n")
    assert row.metadata == {"source": "a.csv", "url": "https://example.com/1"}
    [row] = read(tmp_path, "a.jsonl", '{"text": "One.", "link": {"to": "x"}, "url": null}')
    assert row.metadata == {"source": "a.jsonl"}
    [row] = read(tmp_path, "a.csv", "text,page\nOne.,https://example.com/1\n", columns={"url": "page"})
    assert row.metadata["url"] == "https://example.com/1"
    (tmp_path / "h/sub").mkdir(parents=True)
    (tmp_path / "h/sub/ä b.md").write_text("Text.")
    (tmp_path / "h/own.md").write_text("---\nurl: https://example.com/own\n---\nText.")
    (tmp_path / "h/t.csv").write_text("text\nText.\n")
    bare = read_files(tmp_path / "h", lang="en", url_base="https://example.com/help", report=Report())
    found = list(read_files(tmp_path / "h", lang="en", url_base="https://example.com/help/", report=Report()))
    assert list(bare) == found
    assert {one.source: one.metadata.get("url") for one in found} == {
        "h/own.md": "https://example.com/own",
        "h/sub/ä b.md": "https://example.com/help/sub/%C3%A4%20b.md",
        "h/t.csv": None,
    }


def test_a_long_row_is_cut(tmp_path: Path) -> None:
    text = "First one.\n\nSecond one. Third one."
    found = read(tmp_path, "a.csv", f'id,title,text,n\nr,T,"{text}",1\ns,U,Short.,2\n', chunk_chars=25)
    about = {"source": "a.csv", "n": "1"}
    assert found == [
        Passage("r#1", "First one.\n\nSecond one.", "T", "en", {**about, "chunk": "1"}),
        Passage("r#2", "Second one. Third one.", "T", "en", {**about, "chunk": "2"}),
        Passage("s", "Short.", "U", "en", {"source": "a.csv", "n": "2"}),
    ]


def test_a_row_with_the_id_of_a_chunk_is_left_out(tmp_path: Path) -> None:
    long, short_row = '7,"First one. Second one."', "7#2,Short."
    for rows, ids, says in (
        ([long, short_row, "8,Good."], ["7#1", "7#2", "8"], "line 3: the passage id '7#2' occurs twice"),
        ([short_row, long, "7#1,Good."], ["7#2", "7#1"], "line 3: the passage id '7#2' occurs twice"),
    ):
        table, report = "\n".join(["id,text", *rows]), Report()
        found = read(tmp_path, "a.csv", table, chunk_chars=12, overlap=0, on_bad_row="skip", report=report)
        assert [one.id for one in found] == ids
        assert report.bad == 1
        assert says in str(report)
        with pytest.raises(InterlinguaError, match=says):
            read(tmp_path, "a.csv", table, chunk_chars=12, overlap=0)


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    text = "A sentence. " * 20_000
    assert read(tmp_path, "a.csv", f"text\n{text}\n", chunk_chars=1_000_000)[0].text == text


BAD_TABLES = [
    ("a.csv", "a,b\n1,2\n", r"a\.csv: no column of text; the columns are a, b\. Call one of them 'text'"),
    ("a.csv", "text,b\nx,1\n\ny\n", r"a\.csv, line 4: 1 column\(s\), the header has 2"),
    ("a.csv", 'text,b\n"x\ny",1\nz,1,2\n', r"a\.csv, line 4: 3 column\(s\)"),
    ("a.csv", 'text,b\nx,1\n"y,1\nz,2\n', r"a\.csv, line 3: unexpected end of data.*double quote"),
    ("a.csv", "text,a,a\nx,1,2\n", r"two columns are called 'a'"),
    ("a.csv", "text,id\nx,1\ny,1\n", r"a\.csv, line 3: the passage id '1' occurs twice"),
    ("a.csv", "text,id\n ,1\n", r"a\.csv, line 2: no 'text'"),
    ("a.csv", "text,lang\nx,klingon\n", r"a\.csv, line 2: 'klingon' is not a language code"),
    ("a.csv", "text,id\n", r"a\.csv: holds no text"),
    ("a.jsonl", '{"text": "a"}\n{"text": "a\\u0000b"}\n', r"a\.jsonl, line 2: a NUL character"),
    ("a.jsonl", '{"text": "a \\ud800"}\n', r"a\.jsonl, line 1: half a surrogate pair"),
    ("a.jsonl", '{"text": ["a"]}\n', r"a\.jsonl, line 1: 'text' must be text, it is list"),
    ("a.jsonl", '{"title": "a"}\n', r"a\.jsonl, line 1: no 'text'"),
    ("a.parquet", "PAR1 but not really", r"a\.parquet: cannot be read as Parquet"),
]


@pytest.mark.parametrize(("name", "content", "says"), BAD_TABLES)
def test_bad_tables(tmp_path: Path, name: str, content: str, says: str) -> None:
    with pytest.raises(InterlinguaError, match=says):
        read(tmp_path, name, content)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(
        path,
        {
            "text": [f"Text {i}." for i in range(2500)],
            "id": list(range(2500)),
            "lang": ["en", "fi"] * 1250,
            "day": [date(2020, 1, 31)] * 2500,
            "score": [None, 0.5] * 1250,
            "vector": [[0.1, 0.2]] * 2500,
            "image": [b"\x89PNG"] * 2500,
        },
        rows=900,
    )
    report = Report()
    found = list(read_files(path, report=report))
    assert [one.text for one in found] == [f"Text {i}." for i in range(2500)]
    assert found[0] == Passage("0", "Text 0.", "", "en", {"source": "a.parquet", "day": "2020-01-31"})
    assert found[-1] == Passage(
        "2499", "Text 2499.", "", "fi", {"source": "a.parquet", "day": "2020-01-31", "score": "0.5"}
    )
    assert list(report.left_out) == [("a.parquet", "image"), ("a.parquet", "vector")]
    words = pyarrow.array(["One.", "Two.", "One."]).dictionary_encode()
    write_parquet(path, {"body": words})
    assert [(one.id, one.text) for one in read_files(path, lang="en", report=Report())] == [
        ("a.parquet:1", "One."),
        ("a.parquet:2", "Two."),
        ("a.parquet:3", "One."),
    ]


def test_bad_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    for columns, says in (
        ({"a": ["x"], "b": [1]}, "no column of text; the columns are a, b"),
        ({"text": [1, 2]}, "column 'text' holds int64, not text"),
        ({"text": ["x", None]}, "line 2: no 'text'"),
    ):
        write_parquet(path, columns)
        with pytest.raises(InterlinguaError, match=rf"a\.parquet.*{says}"):
            list(read_files(path, lang="en", report=Report()))
    report = Report()
    assert [one.text for one in read_files(path, lang="en", on_bad_row="skip", report=report)] == ["x"]
    assert report.bad == 1
    path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    with pytest.raises(InterlinguaError, match=r"a\.parquet: cannot be read as Parquet"):
        list(read_files(path, lang="en"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InterlinguaError, match=r"needs pyarrow: pip install 'interlingua\[index\]'"):
        list(read_files(path, lang="en"))


# --- encodings

TEXTS = {
    "cp1252": [
        "Où est né Alan Turing ? À Londres, en été.",
        "El niño comió una manzana.",
        "naïve café",
        "„Zitat“ – 5 €",
        "Fünf Tage.",
    ],
    "latin-1": ["Müller wohnt in der Königstraße. Die Straße ist schön.", "Blåbærsyltetøy på brødskiva"],
    "cp1250": [
        "Zażółć gęślą jaźń. Strażnik latarni zapisywał każdą burzę.",
        "Příliš žluťoučký kůň úpěl ďábelské ódy.",
        "Człowiek czyta książkę w domu.",
    ],
    "iso8859-2": ["Zażółć gęślą jaźń. Strażnik latarni zapisywał każdą burzę.", "Příliš žluťoučký kůň úpěl."],
    "cp1251": ["Смотритель маяка записывал каждую бурю в маленькую синюю книгу."],
    "koi8-r": ["Смотритель маяка записывал каждую бурю в маленькую синюю книгу."],
    "cp1253": ["Ο φύλακας του φάρου έγραφε κάθε καταιγίδα σε ένα μικρό μπλε βιβλίο."],
    "cp1254": ["Fener bekçisi her fırtınayı küçük mavi bir deftere yazardı. Işığı hiç sönmezdi."],
    "cp1256": ["يكتب حارس المنارة كل عاصفة في دفتر صغير أزرق."],
    "cp874": ["คนเฝ้าประภาคารจดพายุทุกลูกลงในสมุดสีฟ้าเล่มเล็ก"],
    "shift_jis": ["灯台守はすべての嵐を小さな青い本に書き留めた。"],
    "euc-kr": ["등대지기는 모든 폭풍을 작은 파란 책에 적었다."],
    "gb18030": ["灯塔看守人把每一场风暴都写进一本蓝色的小书。"],
    "big5": ["燈塔看守人把每一場風暴都寫進一本藍色的小書。"],
    "utf-16": ["Смотритель маяка 灯台守 café"],
    "utf-32": ["Смотритель маяка 灯台守 café"],
    "utf-8-sig": ["Смотритель маяка 灯台守 café"],
}


@pytest.mark.parametrize(("encoding", "text"), [(encoding, text) for encoding, some in TEXTS.items() for text in some])
def test_encodings_are_recognised(tmp_path: Path, encoding: str, text: str) -> None:
    report = Report()
    assert read(tmp_path, "a.txt", text.encode(encoding), lang="", report=report)[0].text == text
    assert bool(report.guessed) == (not encoding.startswith("utf"))
    table = f'id,text,page\n1,"{text}",x\n'
    assert read(tmp_path, "a.csv", table.encode(encoding), lang="")[0].text == text
    line = json.dumps({"text": text}, ensure_ascii=False)
    assert read(tmp_path, "a.jsonl", f"{line}\n{line}\n".encode(encoding), lang="")[1].text == text
    page = gzip.compress(f"<p>{text}".encode(encoding))
    assert read(tmp_path, "a.html.gz", page, lang="")[0].text == text


def test_a_page_names_its_encoding_and_a_guess_is_said(tmp_path: Path) -> None:
    for declared in ("<meta charset=windows-1251>", '<?xml version="1.0" encoding="windows-1251"?>'):
        report = Report()
        assert read(tmp_path, "a.xhtml", f"{declared}<p>ёж".encode("cp1251"), report=report)[0].text == "ёж"
        assert not report.guessed
    for declared, encoding, text in (
        ("gb2312", "gbk", "朱镕基"),
        ("iso-8859-9", "cp1254", "“büyük”"),
        ("euc-kr", "cp949", "똠방각하"),
    ):
        page = f"<meta charset={declared}><p>{text}".encode(encoding)
        assert read(tmp_path, "a.html", page)[0].text == text
    for wrong in ("shift_jis", "zlib", "gibberish"):  # does not fit, is no encoding of text, is none
        page = f"<meta charset={wrong}><p>Où est né Alan Turing ? À Paris"
        assert read(tmp_path, "a.html", page.encode("cp1252"))[0].text == "Où est né Alan Turing ? À Paris"
    report = Report()
    read(tmp_path, "a.txt", "Où est né Alan Turing ?".encode("cp1252"), report=report)
    assert "read as cp1252, as it seems (1: a.txt)" in str(report)
    ascii_first = "a line\n" * 20_000 + "où est né le café\n"
    assert read(tmp_path, "a.txt", ascii_first.encode("cp1252"), chunk_chars=10**6)[0].text.endswith(
        "où est né le café"
    )
    assert read(tmp_path, "a.txt", "où".encode("cp1252"), lang="fr")[0].text == "où"


# --- files that are no text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("é é\nbad ".encode() + b"\xe9\n", r"a\.txt, line 2: not UTF-8 \(.* at byte 10 of the file\), .*\. Convert"),
        ("éééé".encode()[:7], r"a\.txt, line 1: not UTF-8 \(unexpected end of data at byte 6"),
        ("\ufeff".encode() + b"x\xff", r"not UTF-8 \(invalid start byte at byte 4"),
        (b"good\na\0b", r"a\.txt, line 2: a NUL at byte 6"),
        ("text".encode("utf-16")[:-1], r"a\.txt, line 1: not UTF-16 \(truncated data at byte 8"),
        ("éééé".encode() + b"\xed\xa0\x80 a surrogate", r"not UTF-8 .* at byte 8"),
        (bytes(range(128, 256)) * 9, r"not UTF-8 \(.* at byte 0 of the file\), nor surely in another encoding"),
        (gzip.compress(b"some text, which is long enough", mtime=0)[:-12], r"a\.txt: cannot be read"),
        (b"\x1f\x8bnot gzip at all", r"a\.txt: cannot be read"),
        (b"", r"a\.txt: is empty"),
        (b" \n\t\n", r"a\.txt: is empty"),
        ("\ufeff".encode(), r"a\.txt: is empty"),
        (b"***\n---\n", r"a\.txt: holds no text"),
    ],
)
def test_bad_bytes(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(InterlinguaError, match=says):
        read(tmp_path, "a.txt", content)


def test_the_byte_is_right_at_the_seam_of_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CHUNK", 4)
    assert read(tmp_path, "a.txt", "abcé\nxé")[0].text == "abcé\nxé"
    for content, line, byte in (
        ("éé\nab\n".encode() + b"\xc3(x", 3, 8),
        ("éééabc".encode() + b"\xe2\x82(x", 1, 9),
        ("ééa\nbc\nde".encode() + b"\xff", 3, 11),
    ):
        with pytest.raises(InterlinguaError, match=rf"line {line}: not UTF-8 \(.* at byte {byte} of"):
            read(tmp_path, "a.txt", content)


def test_a_line_of_a_table_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LONGEST_LINE", 1_000)
    monkeypatch.setattr(check, "CHUNK", 300)
    row = json.dumps({"text": "x" * 900})
    assert len(read(tmp_path, "a.jsonl", f"{row}\n{row}\n")) == 2
    with pytest.raises(InterlinguaError, match=r"a\.jsonl, line 2: a line of more than"):
        read(tmp_path, "a.jsonl", f"{row}\n{json.dumps({'text': 'x' * 1100})}\n")
    assert read(tmp_path, "a.txt", "word " * 1_000)  # documents have no rows


@pytest.mark.parametrize("suffix", ["txt", "md", "html", "csv"])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_file_as_long_as_what_is_read_first_is_whole(tmp_path: Path, suffix: str, more: int) -> None:
    """One that is shorter is read once, any other from its beginning again."""
    start = {"csv": "text\n", "html": "<p>"}.get(suffix, "")
    text = f"{start}The first. " + "word " * check.SAMPLE
    end = " The end."
    file = tmp_path / f"file.{suffix}"
    file.write_text(text[: check.SAMPLE + more - len(end)] + end, encoding="utf-8")
    assert file.stat().st_size == check.SAMPLE + more
    found = [passage.text for passage in read_files(file, lang="en")]
    assert found[0].startswith("The first. word")
    assert found[-1].endswith("The end.")
    assert " ".join(found).count("word") >= (check.SAMPLE - 60) // 5


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        (f"# T\n\nHello\n\n[image1]: <data:image/png;base64,{'iVBORw0KGgo' * 20_000}>\n", "T", "Hello"),
        (f"# T\n\nText ![x](data:image/png;base64,{'iVBORw0KGgo' * 20_000}) end\n", "T", "Text x end"),
        ("# T\n\n<style scoped>\n.dataframe tbody { top: 1 }\n</style>\n\nA table.\n", "T", "A table."),
        ("# T {#own-id}\n\nText.\n", "T", "Text."),
        ("# T\n\nFoo.[[1]](https://en.wikipedia.org/wiki/X#cite-1) More.\n", "T", "Foo.[1] More."),
    ],
)
def test_what_other_programs_write_into_markdown(tmp_path: Path, text: str, title: str, expected: str) -> None:
    (found,) = read(tmp_path, "a.md", text)
    assert (found.title, found.text) == (title, expected)


def test_what_office_leaves_beside_an_open_file_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "~$report.docx").write_bytes(b"x" * 162)
    (tmp_path / "a.md").write_text("A text.")
    report = Report()
    assert len(list(read_files(tmp_path, lang="en", report=report))) == 1
    assert not report.bad_rows.total
