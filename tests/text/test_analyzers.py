from __future__ import annotations

import sys
import unicodedata

import pytest

from interlingua.errors import InterlinguaError
from interlingua.text.analyzers import Analyzer, analyzer
from interlingua.text.analyzers.analyzer import KINDS
from interlingua.text.analyzers.rules import RULES, stopwords
from interlingua.text.analyzers.segment import SEGMENTERS
from interlingua.text.languages import languages, normalise_code


def marks(text):
    return [c for c in text if unicodedata.category(c).startswith("M")]


def test_the_default_kind_has_a_name():
    assert all(analyzer(lang, "default") is analyzer(lang) for lang in ("sw", "en", "th", ""))
    assert analyzer("sw", "default") is not analyzer("sw", "language")


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("te", "హైదరాబాద్ తెలంగాణ రాజధాని"),
        ("hi", "दिल्ली भारत की राजधानी है"),
        ("bn", "ঢাকা বাংলাদেশের রাজধানী"),
        ("ta", "சென்னை தமிழ்நாட்டின் தலைநகரம்"),
        ("ml", "തിരുവനന്തപുരം കേരളത്തിന്റെ"),
        ("my", "ရန်ကုန်မြို့"),
        ("km", "ភ្នំពេញ"),
    ],
)
def test_combining_marks_stay_with_their_letters(lang, text):
    words = analyzer(lang, "words")(text)
    assert words == text.split()
    assert marks("".join(words)) == marks(text)
    assert not any(marks(term[:1]) for term in analyzer(lang, "ngram")(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("can't stop, U.S.A.", ["can't", "stop", "u.s.a"]),
        ("3.14 1,000 12:30 a_b", ["3.14", "1,000", "12", "30", "a_b"]),
        ("__ -- !? 😀", []),
        ("naïve co-operate", ["naïve", "co", "operate"]),
        ('צה"ל say "so"', ['צה"ל', "say", "so"]),
        ("東京タワーtest", ["東", "京", "タワー", "test"]),
        ("ﬁne Ｆｕｌｌ ½", ["fine", "full", "1⁄2"]),
        ("soft\u00adhyphen zero\u200dwidth a\u200bb", ["softhyphen", "zerowidth", "a", "b"]),
        ("‘it’s’", ["it's"]),
        ("x1\u0308y e\u0327t\u0308a", ["x1\u0308y", "ȩẗa"]),
    ],
)
def test_words_follow_uax_29(text, expected):
    assert analyzer("en", "words")(text) == expected


@pytest.mark.parametrize(
    ("lang", "question", "passage"),
    [
        ("zh", "长城有多长", "中国的长城很长"),
        ("ja", "東京はどこ", "日本の首都は東京です"),
        ("th", "กรุงเทพมหานคร", "เมืองหลวงคือกรุงเทพมหานครครับ"),
        ("lo", "ວຽງຈັນ", "ນະຄອນຫຼວງວຽງຈັນ"),
        ("km", "ភ្នំពេញ", "រាជធានីភ្នំពេញ"),
        ("my", "ရန်ကုန်မြို့", "မြန်မာရန်ကုန်မြို့တော်"),
        ("ko", "서울은", "서울에서"),
    ],
)
def test_scripts_without_spaces_give_terms_in_common(lang, question, passage):
    for chosen in (analyzer(lang), analyzer("en"), analyzer("")):  # by script, whatever the language
        asked, found = chosen(question), chosen(passage)
        assert set(asked) & set(found)
        assert question not in asked
        assert not set(chosen("ABC 123")) & set(found)


def test_ngrams_by_script():
    assert analyzer("zh")("长城abc") == ["长", "城", "长城", "abc"]
    assert analyzer("ko")("2020년에") == ["2020", "년", "에", "년에"]
    assert analyzer("th")("ไม่น้ำ") == ["ไม่น้ำ"]  # clusters: ไ ม่ น้ำ
    assert analyzer("th")("ไม่น้ำกา") == ["ไม่น้ำ", "ม่น้ำก", "น้ำกา"]
    assert analyzer("th")("น้ํา") == analyzer("th")("น้ำ")  # the vowel AM in two characters and in one
    assert analyzer("th")("กา") == ["กา"]


@pytest.mark.parametrize(
    ("lang", "one", "other"),
    [("lo", "ນ້ຳ", "ນ\u0ecd\u0ec9\u0eb2"), ("th", "น้ำ", "น\u0e4d\u0e49\u0e32"), ("th", "แมว", "\u0e40\u0e40มว")],
)
def test_what_looks_the_same_in_thai_and_lao_is_the_same(lang, one, other):
    for kind in ("language", "ngram"):
        assert analyzer(lang, kind)(one) == analyzer(lang, kind)(other)


def test_a_digit_that_python_does_not_know_stays():
    assert analyzer("en")("abc \U0001ccf0 \U00011f50")[0] == "abc"


def test_dotless_i():
    assert analyzer("tr", "words")("IŞIK ışık İSTANBUL I\u0307zmir") == ["ışık", "ışık", "istanbul", "izmir"]
    assert analyzer("de", "words")("IŞIK İSTANBUL ISTANBUL") == ["işik", "istanbul", "istanbul"]


def test_case_goes_by_folding():
    assert analyzer("de", "words")("STRASSE Straße") == ["strasse", "strasse"]
    assert analyzer("el", "words")("ΟΔΟΣ οδός".replace("ό", "ο")) == ["οδοσ", "οδοσ"]


@pytest.mark.parametrize(
    ("lang", "one", "other"),
    [
        ("ar", "مُحَمَّدٌ", "محمد"),
        ("ar", "أحمـــد إلى", "احمد الي"),
        ("ar", "لغة", "لغه"),
        ("fa", "كتاب علي", "کتاب علی"),
        ("fa", "کتاب\u200cخانه", "کتاب خانه"),
        ("ur", "كراچي", "کراچی"),
        ("hi", "हिन्दी", "हिंदी"),
        ("hi", "क़लम", "कलम"),
        ("hi", "चाँद", "चांद"),
        ("bn", "শাড়ী", "সাড়ি"),
        ("te", "ఐన్\u200cస్టీన్", "ఐన్స్టిన్"),
        ("ro", "Ştiinţă", "Știință"),
        ("ru", "ёлка", "елка"),
        ("uz", "Oʻzbekcha", "O'zbekcha"),
        ("fr", "cœur", "coeur"),
        ("yi", "װאָס", "וואס"),
        ("mr", "वाऱ्यावर", "वार\u200d्यावर"),
        ("uz", "gʻalaba", "g‘alaba"),
    ],
)
def test_spellings_of_one_word_meet(lang, one, other):
    found = analyzer(lang, "language")(one)
    assert found
    assert found == analyzer(lang, "language")(other)
    assert analyzer(lang, "words")(one) != analyzer(lang, "words")(other)


def test_digits_of_every_script_are_the_same_number():
    found = {
        (lang, digits): analyzer(lang, "language")(digits)
        for lang in ("ar", "fa", "hi", "bn", "te", "th", "km", "ja", "en")
        for digits in ("٢٠٢٤", "۲۰۲۴", "२०२४", "২০২৪", "౨౦౨౪", "๒๐๒๔", "២០២៤", "２０２４")
    }
    assert {asked: terms for asked, terms in found.items() if terms != ["2024"]} == {}


def test_arabic_separators_are_those_of_other_numbers():
    assert analyzer("ar", "words")("١٬٠٠٠٫٥") == analyzer("en", "words")("1,000.5") == ["1,000.5"]


def test_apostrophes():
    assert analyzer("fr", "ngram")("l'eau qu’il aujourd'hui d'") == ["eau", "il", "aujourd'hui", "d"]
    assert analyzer("it", "ngram")("dell'acqua") == ["acqua"]
    assert analyzer("en", "ngram")("Turing’s l'eau") == ["turing", "l'eau"]
    assert analyzer("tr", "ngram")("İstanbul'da Ankara’nın") == ["istanbul", "ankara"]
    assert analyzer("tr", "ngram")("O'Neill L'Oréal’in Kur'an'ın San'at") == ["oneill", "loréal", "kuran", "sanat"]
    assert analyzer("tr")("O'Neill") == analyzer("tr")("O’Neill'in") != []
    # U+02BC is a letter to Unicode; U+0149 has it within
    assert analyzer("uz", "words")("O\u02bczbek O’zbek O'zbek \u0149") == ["o'zbek"] * 3 + ["n"]


def test_stems_and_stopwords_are_of_the_language_only():
    assert analyzer("en", "language")("The cities of the world") == ["citi", "world"]
    assert analyzer("en", "ngram")("The cities __ _") == ["the", "cities"]
    assert analyzer("de", "language")("Die Häuser der Stadt") == ["haus", "stadt"]
    assert analyzer("nb", "language")("huset og husene") == ["hus", "hus"]
    assert analyzer("bn", "language")("বাংলাদেশের") == analyzer("bn", "language")("বাংলাদেশ")
    assert analyzer("te", "language")("రాజధానిలో") == analyzer("te", "language")("రాజధాని")
    assert analyzer("te", "language")("లోలో") == ["లొలొ"]  # too little would be left
    assert analyzer("sw", "language")("Mji mkuu") == ["mji", "mkuu"]


def test_mixed_is_the_words_and_their_pieces():
    assert analyzer("en", "mixed")("The cities 东京") == ["citi", "citi", "itie", "ties", "东", "京", "东京"]


def test_character_ngrams_stay_inside_words():
    assert analyzer("en", "char4")("The cities") == ["the", "citi", "itie", "ties"]
    assert analyzer("en", "char2")("abc d") == ["ab", "bc", "d"]


def test_whitespace_leaves_everything_as_it_is():
    assert analyzer("sw", "whitespace")(" Mji, mkuu\u00a0WA\n") == ["Mji,", "mkuu", "WA"]


def test_every_stopword_is_a_word_and_is_dropped():
    assert stopwords().keys() <= RULES.keys()
    left = {lang: analyzer(lang, "language")(" ".join(words)) for lang, words in stopwords().items()}
    assert {lang: terms for lang, terms in left.items() if terms} == {}
    assert [
        (lang, word) for lang, words in stopwords().items() for word in words if len(analyzer(lang, "words")(word)) != 1
    ] == []


def test_every_language_has_an_analyzer_that_cuts_and_says_how():
    for lang in [*languages(), ""]:
        chosen = analyzer(lang)
        assert chosen("Unesco 1999"), lang
        assert chosen.name.startswith(f"{lang or 'und'}/"), lang
        assert chosen.name.partition("/")[2] in KINDS, lang
        assert chosen.steps, lang
        assert chosen.version, lang
        assert repr(chosen), lang


def test_no_default_is_a_segmenter():
    """What is installed must not change how a text is cut."""
    assert not {rules.default for rules in RULES.values()} & set(SEGMENTERS)
    assert {analyzer(lang).name for lang in ("zh", "ja", "th")} == {"zh/ngram", "ja/ngram", "th/ngram"}


def test_versions_name_what_the_terms_depend_on():
    import Stemmer

    assert Stemmer.version() in analyzer("de", "language").version
    assert Stemmer.version() not in analyzer("de", "char4").version


def test_pieces_are_remembered_without_being_changed_by_use():
    chosen = analyzer("en", "language")
    for text in ("cities", "many cities"):
        expected = chosen(text)
        chosen(text).append("more")
        assert chosen(text) == expected
    assert [chosen(text) for text in ("cities", "", "  ")] == [["citi"], [], []]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(sys.modules[Analyzer.__module__], "HELD", 3)
    monkeypatch.setattr(Analyzer, "_held", 0)
    cut = []
    chosen = Analyzer("t", "1", (), lambda piece: cut.append(piece) or [piece.lower()])
    text = "A A B C D A E F A B " + "X" * 100
    assert chosen(text) == text.lower().split()
    # six are remembered: A, used again and again, stays, and B, not used meanwhile, is forgotten
    assert cut == ["A", "B", "C", "D", "E", "F", "B", "X" * 100]


def test_language_tags_in_any_spelling():
    assert analyzer("zh-TW") is analyzer("zho") is analyzer("zh")
    assert analyzer("deu").name == "de/mixed"


def test_a_language_that_is_not_known_is_cut_into_words():
    for lang in ("", "klingon"):
        assert analyzer(lang)("Größe, 東京 ΟΔΟΣ") == ["grösse", "東", "京", "東京", "οδοσ"]
        assert analyzer(lang).name == "und/ngram"


def test_unknown_kinds_are_refused_with_a_suggestion():
    with pytest.raises(InterlinguaError, match="Did you mean 'whitespace'"):
        analyzer("en", "white-space")
    with pytest.raises(InterlinguaError, match="unknown analyzer ''"):
        analyzer("en", "")
    with pytest.raises(InterlinguaError, match="is for 'zh', not for 'ja'"):
        analyzer("ja", "jieba")


def test_packages_that_are_missing_are_named(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    from interlingua.text.analyzers import rules as stemming
    from interlingua.text.analyzers import segment as segmenters

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(segmenters, "version", missing)
    with pytest.raises(InterlinguaError, match=r"sudachipy and sudachidict_core: pip install 'interlingua\[segment\]'"):
        _ = SEGMENTERS["sudachi"].version
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(InterlinguaError, match=r"PyStemmer: pip install 'interlingua\[index\]'"):
        stemming.snowball("german")


def test_a_stemmer_that_is_not_there_is_named():
    from interlingua.text.analyzers.rules import snowball

    with pytest.raises(InterlinguaError, match="'klingon' is not in PyStemmer"):
        snowball("klingon")


def test_languages_of_the_rules_are_codes():
    assert [lang for lang in RULES if normalise_code(lang) != lang] == []


def test_vowel_points_are_no_part_of_a_hebrew_word():
    pointed, plain = "שָׁלוֹם עוֹלָם", "שלום עולם"
    for kind in (None, "language", "char4"):
        assert analyzer("he", kind)(pointed) == analyzer("he", kind)(plain) != []
    assert analyzer("yi")("ייִדיש") == analyzer("yi")("יידיש")
    for plain, *others in (('צה"ל', "צה״ל", "צה”ל"), ("ג'ורג'", "ג׳ורג׳", "ג’ורג’")):
        assert [analyzer("he")(word) for word in others] == [analyzer("he")(plain)] * len(others)
    assert analyzer("he").version != analyzer("de", "char4").version  # an index from before makes its terms anew
