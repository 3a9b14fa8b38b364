from __future__ import annotations

import pytest

from interlingua.text.analyzers import analyzer
from interlingua.text.phonetic import LEAST, MARK, WITHOUT, is_phonetic, phonetic_keys

ALIKE = {
    "LTR": "Luther LUTHER Лютер Лютера Λούθερ Λούθερς लूथर لوثر לותר ლუთერი Լութեր Luthér ﻟﻮﺛﺮ",
    "NRMN": "Norman Ｎｏｒｍａｎ Норман Νόρμαν नॉर्मन نورمان நார்மன் নরমান",
    "PSNKTN": "Washington Вашингтон 워싱턴 ვაშინგტონი Վաշինգտոն वाशिंगटन",
    "LNTN": "London Лондон लंदन ਲੰਡਨ לונדון",
    "LKSNTR": "Alexander Александр Αλέξανδρ Aleksander",
    "STRS": "Straße Strasse",
    "RSTR": "Rochester Рочестер",
    "PTRS": "Peters Πέτρσι",
    "PSPK": "Pacific Paciﬁc Pa\u00adci\u00adfic",
    "KRSTPR": "Christopher Кристофер Χρίστοφερ क्रिस्टोफर كريستوفر",
    "SRSL": "Черчилль ჩერჩილი चर्चिल Չերչիլ",
    "MRK": "America አሜሪካ",
    "TRKSTN": "Түркістан",
    "KSLP": "Југославија Yugoslavia",
    "MKSPL": "Maxwell Maxwəll",
}


@pytest.mark.parametrize("key", ALIKE)
def test_words_that_sound_alike_have_one_key_in_every_script(key):
    words = ALIKE[key].split()
    assert {word: phonetic_keys(word) for word in words} == {word: [MARK + key] for word in words}


def test_keys_come_in_order_once_a_word_and_short_words_have_none():
    assert phonetic_keys("Josh Norman, who met Norman") == [f"{MARK}NRMN"] * 2
    assert phonetic_keys("a tea bad 1984 §") == []
    assert phonetic_keys("Mississippi") == [f"{MARK}MSP"]  # a class twice in a row counts once
    assert all(len(key) > LEAST for key in phonetic_keys("Bonn and Bremen and Berlin"))


def test_an_accent_counts_for_nothing_however_it_is_written():
    assert phonetic_keys("Zu\u0308rich") == phonetic_keys("Z\u00fcrich") == phonetic_keys("Zurich")
    assert phonetic_keys("И\u0306ошкар-Ола") == phonetic_keys("\u0419ошкар-Ола")


def test_what_is_not_seen_ends_no_word():
    assert phonetic_keys("Nor\u00adman") == phonetic_keys("नॉर्\u200dमन") == [f"{MARK}NRMN"]


def test_vowels_of_every_alphabet_count_for_nothing():
    assert phonetic_keys("Əhməd Әуе Өүһұ አዐ ऋऑ") == []


def test_what_is_longer_than_a_word_has_no_key():
    assert phonetic_keys("Norman" * 11 + " Norman") == [f"{MARK}NRMN"]
    assert phonetic_keys("Norman" + "\u0301\u0323" * 1_000_000) == []  # would take minutes to bring into order


def test_scripts_without_spaces_have_no_keys():
    assert phonetic_keys("東京タワー กรุงเทพมหานคร ភ្នំពេញ ရန်ကုန်") == []
    assert phonetic_keys("東京 Norman") == phonetic_keys("由Norman撰写") == [f"{MARK}NRMN"]
    texts = {
        "zh": "由撰写东京塔",
        "ja": "東京タワーとりで",
        "th": "กรุงเทพมหานคร",
        "lo": "ວຽງຈັນ",
        "km": "ភ្នំពេញ",
        "my": "ရန်ကုန်",
        "bo": "ལྷ་ས བསྒྲུབས་པར་བྱ",
    }
    assert texts.keys() <= WITHOUT
    assert not any(map(phonetic_keys, texts.values()))


def test_the_arabic_article_belongs_to_no_name():
    assert phonetic_keys("نورمان") == phonetic_keys("النورمان") == phonetic_keys("والنورمان")


def test_no_term_of_an_analyzer_is_a_key():
    text = f"{MARK}NRMN ≈NRMN 3≈4 Norman ≈ Норман"
    for lang in ("en", "ru", "zh", "th", "ko", ""):
        assert not any(map(is_phonetic, analyzer(lang)(text)))
        assert not any(map(is_phonetic, analyzer(lang, "whitespace")(text)))
    assert all(map(is_phonetic, phonetic_keys(text)))
