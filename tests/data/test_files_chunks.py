from __future__ import annotations

import random
import unicodedata
from itertools import pairwise

import pytest
import regex

from interlingua.data.encyclopedia import languages, topics
from interlingua.data.files import chunks
from interlingua.data.files.chunks import Block, chunk, chunk_in_language, chunk_limit, cut, cut_after_sentence
from interlingua.text.languages import language
from interlingua.text.sentences import split_sentences


def texts(blocks: list[Block], size: int, overlap: int = 1, lang: str = "en") -> list[str]:
    return [one.text for one in chunk(blocks, size, overlap, lang)]


def test_as_many_whole_sentences_as_fit_and_one_of_them_twice() -> None:
    block = Block("Aa bb. Cc dd.\nEe ff. Gg hh.", "T")
    assert list(chunk([block], 20, 1, "en")) == [Block("Aa bb. Cc dd.\nEe ff.", "T"), Block("Ee ff. Gg hh.", "T")]
    assert texts([block], 13) == ["Aa bb. Cc dd.", "Cc dd.\nEe ff.", "Ee ff. Gg hh."]
    assert texts([block], 12) == ["Aa bb.", "Cc dd.", "Ee ff.", "Gg hh."]
    assert texts([block], 20, 0) == ["Aa bb. Cc dd.\nEe ff.", "Gg hh."]
    assert texts([block], 20, 2) == ["Aa bb. Cc dd.\nEe ff.", "Cc dd.\nEe ff. Gg hh."]
    assert texts([block], 20, 4) == ["Aa bb. Cc dd.\nEe ff.", "Cc dd.\nEe ff. Gg hh."]
    assert texts([block], 99) == [block.text]


def test_passages_of_whole_sections() -> None:
    blocks = [Block("Aa bb. Cc dd."), Block("Ee ff."), Block("Gg hh.", "T"), Block("Ii jj. " * 30, "U")]
    assert [one.text for one in chunk(blocks, 12, 0, "en", way="headings")] == [
        "Aa bb. Cc dd.\n\nEe ff.",
        "Gg hh.",
        " ".join(["Ii jj."] * 17),
        " ".join(["Ii jj."] * 13),
    ]


@pytest.mark.parametrize("size", [3, 7, 20, 50])
def test_passages_of_as_many_characters_as_fit(size: int) -> None:
    text = "One two, three.\nFour  five sixsevennine. Ten\n\neleven twelve"
    found = [one.text for one in chunk([Block(text)], size, 1, "en", way="characters")]
    assert all(len(one) <= size for one in found)
    assert "".join("".join(found).split()) == "".join(text.split())
    if size == 20:
        assert found == ["One two, three.", "Four  five", "sixsevennine. Ten", "eleven twelve"]
    assert [one.text for one in chunk([Block("a\tb  c\r\n  d")], 99, way="characters")] == ["a\tb  c\r\n  d"]
    han = "灯塔看守人把每场风暴都记在蓝色的小册子里。" * 9
    parts = [one.text for one in chunk([Block(han)], size, 1, "zh", way="characters")]
    assert "".join(parts) == han
    assert {len(one) for one in parts[:-1]} == {chunk_limit(size, "zh")}


def test_the_overlap_gives_way_to_a_new_sentence() -> None:
    assert texts([Block("One two three. Four. Five six seven eight.")], 24) == [
        "One two three. Four.",
        "Five six seven eight.",
    ]
    assert texts([Block("A bb. C dd. Eeeeee ffff.")], 18, 2) == ["A bb. C dd.", "C dd. Eeeeee ffff."]


def test_paragraphs_are_put_together_titles_and_languages_are_not() -> None:
    blocks = [
        Block("Aa bb."),
        Block("Cc dd."),
        Block("Ee ff.", "T"),
        Block("Gg hh.", "T", "en"),
        Block("Ii.", "T"),
        Block("Jj kk.", "T", "de"),
        Block("Ll mm.", "T", "de"),
    ]
    assert list(chunk(blocks, 99, 1, "en")) == [
        Block("Aa bb.\n\nCc dd."),
        Block("Ee ff.\n\nGg hh.\n\nIi.", "T", "en"),
        Block("Jj kk.\n\nLl mm.", "T", "de"),
    ]


def test_the_language_of_one_title_does_not_reach_the_next() -> None:
    assert list(chunk([Block("Ein Satz.", "A", "de"), Block("42.", "B")], 99)) == [
        Block("Ein Satz.", "A", "de"),
        Block("42.", "B"),
    ]


def test_the_language_of_a_text_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    detect = chunks.detect_in_bulk
    monkeypatch.setattr(chunks, "detect_in_bulk", lambda text: (looked.append(text), detect(text))[1])
    text = "The keeper wrote every storm into a small blue book, year after year, until the light went out."
    assert list(chunk_in_language([Block(text)], 200, 1, "")) == [Block(text, "", "en")]
    assert looked == [text]


def test_chinese_counts_threefold_and_thai_has_sentences() -> None:
    assert chunk_limit(300, "zh") == 100
    assert chunk_limit(300, "sw") == chunk_limit(300, "") == 300
    assert texts([Block("他来了。她走了。天黑了。")], 24, 0, "zh") == ["他来了。她走了。", "天黑了。"]
    first, second = "เจมส์วัตต์คิดค้นเครื่องจักรไอน้ำ ซึ่งใช้ในเหมืองถ่านหิน", "ต่อมาเครื่องจักรนี้แพร่หลายไปทั่วยุโรป"
    assert texts([Block(f"{first} {second}", "", "th")], 60, 1, "") == [first, second]


def test_a_sentence_that_is_too_long_is_cut_at_words() -> None:
    long = " ".join(f"Word{i}" for i in range(50)) + "."
    found = texts([Block(f"Short one. {long} After.")], 60)
    assert found[0] == "Short one."
    assert " ".join(found[1:]).startswith(long[:100])
    assert " ".join(found[1:]) == f"{long} After."  # a part is no sentence, so it is not repeated
    assert all(len(one) <= 60 for one in found)
    assert all(one.startswith(("Word", "After")) for one in found[1:])


@pytest.mark.parametrize("cluster", ["กำ", "é", "👩‍👩‍👧", "각", "कि", "x"])
def test_a_word_that_is_too_long_is_cut_between_characters(cluster: str) -> None:
    cluster = unicodedata.normalize("NFD", cluster)
    found = texts([Block(cluster * 200)], 25)
    assert "".join(found) == cluster * 200
    assert all(one == cluster * (len(one) // len(cluster)) and len(one) <= 25 for one in found)
    assert all(len(one) + len(cluster) > 25 for one in found[:-1])


def test_marks_without_end_stay_with_their_letter() -> None:
    letter = "a" + "\u0301" * 5_000
    assert cut(letter + "b" * 100, 50) == len(letter)
    assert cut("x" * 30 + letter + "b", 50) == 30
    # a space with a mark on it is no place to cut, also where the mark is the first character beyond the limit
    assert cut("aaaa aaa \u0301aaa", 8) == 4
    assert cut("aaaa aaaa\u00a0aaa", 10) == 10


def test_where_a_text_is_cut() -> None:
    assert cut("short", 5) == 5
    assert cut("aaaaaa\nb ccc", 10) == 6
    assert cut("aa\nbbbbbb ccc", 10) == 9
    assert cut("aa bbbbbbbbbb", 10) == 10
    assert cut("zz zz aa bbbbbbb", 10, 6) == 16
    assert cut("zz zz aaaaaa bbbbbbb", 10, 6) == 12
    assert cut_after_sentence("Aaaaaa. Bb cc.", 12) == 8
    assert cut_after_sentence("他来了。她走了。天", 8) == 8
    assert cut_after_sentence("aaaaaa bb cc", 11) == 9


@pytest.mark.parametrize("size", [40, 150, 400])
@pytest.mark.parametrize("overlap", [0, 1, 3])
def test_nothing_is_lost_and_no_sentence_is_cut(size: int, overlap: int) -> None:
    random.seed(0)
    for lang in languages():
        chosen = random.sample(list(topics()), 6)
        blocks = [Block(topic.text(lang), topic.title[lang] if at % 3 else "", lang) for at, topic in enumerate(chosen)]
        limit = chunk_limit(size, lang)
        sentences = [one for block in blocks for one in split_sentences(block.text, lang)]
        found = list(chunk(blocks, size, overlap))
        place = 0
        for one in found:
            inside = split_sentences(one.text, lang)
            if not all(sentence in sentences for sentence in inside):  # parts of one that is longer than the limit
                assert any(len(sentence) > limit for sentence in sentences if inside[0][:9] in sentence)
        for sentence in sentences:
            if len(sentence) <= limit:
                while sentence not in found[place].text:  # in order: never behind the one before
                    place += 1
        assert all(len(one.text) <= limit for one in found)
        for one, following in pairwise(found):
            shared = [
                sentence
                for sentence in split_sentences(following.text, lang)
                if sentence in split_sentences(one.text, lang)
            ]
            assert len(shared) <= overlap
        assert all(language(one.lang).code == lang for one in found)


def test_cuts_agree_with_the_clusters_of_unicode() -> None:
    random.seed(1)
    letters = ["a", "e\u0301", "\u0e01\u0e33", "👍🏽", "🇩🇪", "\u1100\u1161", " ", "\r\n", "\u00a0", "\u0301", "\u200d"]
    for _ in range(300):
        text = "".join(random.choices(letters, k=60))
        place = cut(text, random.randrange(1, 40))
        assert place in [one.end() for one in regex.finditer(r"\X", text)]


def test_one_passage_of_very_many_sentences_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    join = chunks._join
    monkeypatch.setattr(chunks, "_join", lambda pieces: joined.append(len(pieces)) or join(pieces))
    text = " ".join(f"Sentence {number} ends here." for number in range(500))
    assert texts([Block(text, "", "en", 0)], 10**9) == [text]
    assert sum(joined) <= 2 * 500
