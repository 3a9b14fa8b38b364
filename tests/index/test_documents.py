"""A hit knows its document: the passages before and after it, each sentence once; and what says the same is one hit."""

from __future__ import annotations

import json

import pytest

from interlingua.cli import main
from interlingua.data.files import read_files
from interlingua.data.files.chunks import Block, chunk
from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.index import Index, documents
from interlingua.index.documents import Document, cut_from, overlap, says

STORM = "The keeper wrote every storm into a small blue book."
TEXT = {
    "en": " ".join(f"In year {n} the keeper of the lighthouse wrote down {n * 7} storms." for n in range(300, 330)),
    "zh": "".join(f"第{n}年，灯塔看守人在蓝色的小册子里记下了{n * 7}场风暴。" for n in range(300, 380)),
    "th": " ".join(f"ปีที่ {n} คนเฝ้าประภาคารจดพายุ {n * 7} ลูกลงในสมุดสีฟ้า" for n in range(300, 360)),
}


@pytest.fixture
def built(tiny_static, tmp_path):
    """An index over some passages."""
    return lambda passages: Index.build(tiny_static(), passages, tmp_path / "idx", overwrite=True)


def words(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("lang", TEXT)
@pytest.mark.parametrize("sentences", [0, 1, 2, 3, 5])
def test_a_document_is_its_passages_with_each_sentence_once(lang, sentences, built, tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.txt").write_text(TEXT[lang])
    (tmp_path / "book/b.txt").write_text("Another file.")
    passages = list(read_files(tmp_path / "book", lang=lang, chunk_chars=200, overlap=sentences))
    index = built([*reversed(passages), Passage("book/a.txt#2", "Of another source.", metadata={"source": "other"})])
    own = [one for one in passages if one.source == "book/a.txt"]
    assert len(own) > 5
    found = index.document("book/a.txt:book/a.txt#3")
    assert (found.passages, found.position, found.source, found.name) == (own, 2, "book/a.txt", "book/a.txt")
    assert words(found.text) == words(TEXT[lang])
    if lang != "th":  # which is one sentence here
        assert any(found.repeated) == bool(sentences)
    assert found.parts[2] == own[2].text
    assert words("".join(found.parts)) == words(TEXT[lang])
    near = index.document("book/a.txt:book/a.txt#3", around=1)
    assert (near.passages, near.position, near.whole) == (own[1:4], 1, False)
    assert index.document("book/a.txt#1", around=1).passages == own[:2]


def test_the_overlap_of_long_passages_is_told_without_reading_them_whole(monkeypatch):
    split, read = documents.split_sentences, []
    monkeypatch.setattr(
        documents, "split_sentences", lambda text, lang: [read.append(len(text)), *split(text, lang)][1:]
    )
    before = "One storm came. " * 6_000 + "Then it rained. Yes."
    for text, shared in (
        ("Then it rained. Yes. It snowed.", len("Then it rained. Yes. ")),
        ("Yes. It snowed.", len("Yes. ")),
        ("es. It snowed.", 0),
        ("It snowed.", 0),
    ):
        assert overlap(before, text, "en") == shared
    assert sum(read) < 8_000
    assert overlap("a " * 50_000, "a " * 50_001, "en") == 0


def test_a_long_document_with_a_gap_is_read_to_its_end(built):
    index = built(
        [Passage(f"a.txt#{n}", f"text {n}", "", "en", {"source": "a.txt", "chunk": f"{n}"}) for n in range(1, 201)]
    )
    index.delete([f"a.txt#{n}" for n in range(60, 140)])
    for number in (10, 150):
        found = index.document(f"a.txt#{number}")
        assert [cut_from(one)[1] for one in found.passages] == [*range(1, 60), *range(140, 201)]
        assert found.passages[found.position].id == f"a.txt#{number}"
        assert found.whole
    for around in (-1, 10**6):
        with pytest.raises(BadInput, match=f"around={around}: must be from 0 to 5,000"):
            index.document("a.txt#10", around=around)


def test_a_document_that_ends_at_the_limit_is_whole(built, monkeypatch):
    monkeypatch.setattr(documents, "MOST", 100)
    index = built(
        [Passage(f"a.txt#{n}", f"text {n}", "", "en", {"source": "a.txt", "chunk": f"{n}"}) for n in range(1, 51)]
    )
    assert [index.document(f"a.txt#{number}").whole for number in (1, 20, 50)] == [True] * 3
    index.add([Passage("a.txt#52", "text 52", "", "en", {"source": "a.txt", "chunk": "52"})])
    assert [index.document(f"a.txt#{number}").whole for number in (1, 2, 52)] == [False, True, False]


def test_a_passage_that_was_not_cut_is_its_document(built):
    index = built(
        [
            Passage("a", "text"),
            Passage("b#1", "text", metadata={"chunk": "one"}),
            Passage("7#1", "a row", metadata={"source": "faq.csv", "chunk": "1"}),
            Passage("7#2", "the same row", metadata={"source": "faq.csv", "chunk": "2"}),
            Passage("7#3", "another source", metadata={"source": "x.csv", "chunk": "3"}),
        ]
    )
    assert index.document("a") == Document([index.passage("a")], 0)
    assert index.document("b#1").name == "b#1"
    assert [one.text for one in index.document("7#2").passages] == ["a row", "the same row"]
    with pytest.raises(NotFound, match="has no passage 'c'"):
        index.document("c")


@pytest.mark.parametrize(
    ("before", "text", "lang", "expected"),
    [
        ("One. Two.", "Two. Three.", "en", 5),
        ("One. Two. Three.", "Two. Three. Four.", "en", 12),
        ("One. Two.\n\nThree.", "Two.\n\nThree.\n\nFour.", "en", 14),  # sentences of two paragraphs
        ("Zero.\n\nOne.\n\nTwo. Three.", "One.\n\nTwo. Three. Four.", "en", 18),
        ("One. Two.", "Three.", "en", 0),
        ("One. A cat", "cat and dog", "en", 0),
        ("Two.", "Two.", "en", 0),  # nothing would be left
        ("第一句。第二句。", "第二句。第三句。", "zh", 4),
        ("यह एक गीत", "तो फिर", "hi", 0),
        ("a\0a", "a\0a b", "en", 4),
        ("", "a", "en", 0),
        ("a", "", "en", 0),
    ],
)
def test_what_a_passage_repeats(before, text, lang, expected):
    assert overlap(before, text, lang) == expected


@pytest.mark.parametrize("way", ["sentences", "characters"])
def test_a_text_that_repeats_itself_stays_whole(way, built):
    text = "All work and no play makes Jack a dull boy. " * 60
    cut = [one.text for one in chunk([Block(text)], 200, int(way == "sentences"), "en", way=way)]
    about = {"source": "a.txt"}
    index = built([Passage(f"a.txt#{n}", one, "", "en", {**about, "chunk": f"{n}"}) for n, one in enumerate(cut, 1)])
    assert len(words(index.document("a.txt#2").text)) >= len(words(text)) - (0 if way == "sentences" else 40 * len(cut))


def hits(index, **options):
    return [
        (hit.passage.id, [one.id for one in hit.same]) for hit in index.search("the keeper and the storms", **options)
    ]


def test_what_says_the_same_is_one_hit(built):
    long = TEXT["en"][:700]
    index = built(
        [
            Passage("a", long, "Storms", "en"),
            Passage("b", long.upper().replace(" ", "\n  ", 40).replace(".", " …"), "Storms:", "en", {"source": "copy"}),
            Passage("c", long, "Calm", "en"),
            Passage("d", long.replace("300", "301"), "Storms", "en"),
            Passage("e", "Yes.", "Did the keeper write?", "en"),
            Passage("f", "Yes.", "Are there storms?", "en"),
        ]
    )
    assert len(hits(index)) == 6
    found = dict(hits(index, distinct=True))
    assert len(found) == 5
    assert [sorted([name, *same]) for name, same in found.items() if same] == [["a", "b"]]
    assert found.keys() >= {"c", "d", "e", "f"}


@pytest.mark.parametrize(
    ("one", "other"),
    [("if x == 1 stop", "if x != 1 stop"), ("a * b", "a / b"), ("1/2 cup", "1 2 cup"), ("x<=1", "x<1")],
)
def test_signs_between_words_say_something(one, other):
    first, second = says(Passage("a", one)), says(Passage("b", other))
    assert first != second
    assert first == says(Passage("c", f"**{one.upper()}**"))


def test_as_many_different_hits_as_asked_for_are_looked_for(built):
    many = [Passage(f"n{n}", STORM, "", "en") for n in range(300)]
    index = built([*many, Passage("other", "The keeper sleeps through the storms of this winter.", "", "en")])
    for mode in ("dense", "lexical", "hybrid"):
        found = index.search("the keeper and the storms", 2, mode=mode, distinct=True)
        assert {hit.passage.text for hit in found} == {STORM, "The keeper sleeps through the storms of this winter."}, (
            mode
        )
        (storm,) = [hit for hit in found if hit.passage.text == STORM]
        assert len(storm.same) == 5
        assert 5 <= storm.repeated <= 299
    assert [name for name, _ in hits(index, distinct=True, k=1)] == [name for name, _ in hits(index, k=1)]


def test_without_duplicates_the_ranking_is_the_same(built):
    index = built([Passage(f"{n}", text, "", "en") for n, text in enumerate(TEXT["en"].split(". "))])
    for k in (1, 10, 26, 30):
        for mode in ("dense", "lexical", "hybrid"):
            plain = index.search("the keeper of the lighthouse in 317", k, mode=mode)
            assert index.search("the keeper of the lighthouse in 317", k, mode=mode, distinct=True) == plain


def test_groups_and_different_hits_go_together(built):
    about = [("a", "x", STORM), ("b", "x", "The keeper sleeps."), ("c", "y", STORM), ("d", "z", "Storms and the sea.")]
    index = built([Passage(name, text, "", "en", {"source": source}) for name, source, text in about])
    found = index.search("the keeper and the storms", distinct=True, group_by="source")
    (storm,) = [hit for hit in found if hit.passage.text == STORM]  # the best of two groups
    assert [one.text for one in storm.same] == [STORM]
    assert {hit.group for hit in found} == {storm.group, "z"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Keep it at -20 °C.", "Keep it at +20 °C."),
        ("Keep it at -20 degrees", "Keep it at 20 degrees"),
        ("How do I install C++?", "How do I install C#?"),
        ("It costs 1.5 €.", "It costs 15 €."),
        ("x < 5", "x > 5"),
        ("😀", "🎉"),
        ("...", "!?"),
    ],
)
def test_symbols_and_signs_tell_texts_apart(built, one, other):
    index = built(
        [Passage("a", one, "", "en"), Passage("b", other, "", "en"), Passage("c", f" {one.upper()} ", "", "en")]
    )
    found = index.search(one, 9, mode="dense", distinct=True)
    assert {hit.passage.text.strip().lower(): hit.repeated for hit in found} == {one.lower(): 1, other.lower(): 0}


def test_punctuation_between_words_does_not_tell_texts_apart(built):
    index = built(
        [Passage("a", "“Storms” – at sea, 2020-21; part 3.", "", "en"), Passage("b", "storms at sea 2020 21 part (3)")]
    )
    assert len(index.search("storms", distinct=True)) == 1
    marks = ["# Storms\n=====\n▪ at sea −20", "Storms\n• at sea -20", "→ Storms® at sea – -20", "> storms | at sea -20"]
    index = built([Passage(str(number), text, "", "en") for number, text in enumerate(marks)])
    assert [hit.repeated for hit in index.search("storms", distinct=True)] == [3]


def test_one_hit_a_document_where_a_file_holds_many(built):
    """Rows of two tables with one id, a row that was not cut, and a document of the reader's own."""
    cut = [("faq.csv", "r1", 3), ("faq.csv", "r2", 2), ("other.csv", "r1", 2)]
    passages = [
        Passage(f"{row}#{chunk}", f"storm {chunk}", "", "en", {"source": source, "chunk": str(chunk)})
        for source, row, chunks in cut
        for chunk in range(1, chunks + 1)
    ]
    whole = Passage("r3", "storm", "", "en", {"source": "faq.csv"})
    own = [Passage(f"p{n}", f"storm {n}", "", "en", {"document": "report"}) for n in range(2)]
    index = built([*passages, whole, *own])
    for mode in ("dense", "lexical", "hybrid"):
        found = index.search("storm", 9, mode=mode, group_by="document")
        assert {(hit.passage.source, hit.group, hit.more) for hit in found} == {
            *((source, row, chunks - 1) for source, row, chunks in cut),
            ("faq.csv", "r3", 0),
            ("", "report", 1),
        }
        assert found[0] == index.search("storm", 1, mode=mode, group_by="document")[0]._replace(more=found[0].more)
    assert {hit.group for hit in index.search("storm", 9, group_by="source")} == {"faq.csv", "other.csv", None}


def test_the_command_line_shows_what_says_the_same_once(built, tmp_path, tiny_static, capsys):
    tiny_static().save(tmp_path / "model")
    built([Passage("a", STORM), Passage("b", STORM)])
    command = ["search", str(tmp_path / "idx"), "storm", "--model", str(tmp_path / "model")]
    assert main(command) == 0
    assert "] b\n" in (said := capsys.readouterr().out)
    assert "the same: a\n" in said
    assert main([*command, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["same"] == ["a"]
    assert main([*command, "--json", "--duplicates"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["b", "a"]
