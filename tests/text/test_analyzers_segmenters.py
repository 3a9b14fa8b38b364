from __future__ import annotations

import pytest

from interlingua.text.analyzers import analyzer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "package", "lang", "text", "expected"),
    [
        ("jieba", "jieba", "zh", "我们在北京，看长城。ABC", ["我们", "在", "北京", "看", "长城", "abc"]),
        ("newmm", "pythainlp", "th", "แมวกินปลา ๑๒", ["แมว", "กิน", "ปลา", "12"]),
        ("sudachi", "sudachipy", "ja", "東京都に行った。", ["東京", "都", "に", "行く", "た"]),
        ("kiwi", "kiwipiepy", "ko", "서울은 한국의 수도이다.", ["서울", "한국", "수도", "이"]),
    ],
)
def test_dictionary_words(kind, package, lang, text, expected):
    pytest.importorskip(package, reason="needs the segmenters: .venv/bin/pip install -e '.[segment]'")
    chosen = analyzer(lang, kind)
    assert chosen(text) == expected
    assert chosen("") == chosen(" 。!") == []
    assert package.lower() in chosen.version.lower()
    assert chosen.name == f"{lang}/{kind}"


def test_japanese_without_end_is_cut_in_pieces():
    pytest.importorskip("sudachipy", reason="needs the segmenters: .venv/bin/pip install -e '.[segment]'")
    text = "東京" * 12_000  # 72,000 bytes; the library takes 49,149
    assert len(analyzer("ja", "sudachi")(text)) == 12_000
