from __future__ import annotations

import pytest

from interlingua.errors import BadInput, InterlinguaError
from interlingua.text.languages import (
    code_of_name,
    code_of_pair,
    find_code,
    find_name,
    language,
    language_at_end,
    languages,
    normalise_code,
)

TATOEBA = """
afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat cbk ceb ces cha cmn cor csb cym dan deu dsb
dtp ell epo est eus fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile ina ind isl ita jav jpn
kab kat kaz khm kor kur kzj lat lfn lit lvs mal mar max mhr mkd mon nds nld nno nob nov oci orv pam pes pms
pol por ron rus slk slv spa sqi srp swe swg swh tam tat tel tgl tha tuk tur tzl uig ukr urd uzb vie war wuu
xho yid yue zsm
"""
XLMR = """
af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he hi hr hu hy id is
it ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no om or pa pl ps pt ro ru sa sd si sk sl
so sq sr su sv sw ta te th tl tr ug uk ur uz vi xh yi zh rw zu ig yo
"""


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("zh-TW", "zh"),
        ("ara", "ar"),
        ("en_US", "en"),
        ("cmn", "zh"),
        ("zhtw", "zh"),
        ("pt_BR.UTF-8", "pt"),
        ("arb", "ar"),
        ("sr@latin", "sr"),
        ("pes", "fa"),
        ("swh", "sw"),
        ("zsm", "ms"),
        ("lvs", "lv"),
        ("iw", "he"),
        ("cha", "ch"),
        ("yue", "yue"),
        ("AR", "ar"),
        ("ger", "de"),
    ],
)
def test_normalise_code(tag: str, code: str) -> None:
    assert normalise_code(tag) == code


def test_every_language_of_tatoeba_and_xlm_roberta_is_known() -> None:
    assert len(TATOEBA.split()) == 112
    assert len({normalise_code(code) for code in TATOEBA.split()}) == 112
    assert [normalise_code(code) for code in XLMR.split()] == XLMR.split()


def test_no_alias_means_two_languages() -> None:
    tags = [tag for known in languages().values() for tag in (known.code, *known.aliases)]
    assert len(tags) == len(set(tags))


def test_unknown_code_suggests() -> None:
    with pytest.raises(InterlinguaError, match=r"'xq' is not a language code .*\. Did you mean 'xh' \(Xhosa\)"):
        language("xq")
    for tag in ("German", "germn"):
        with pytest.raises(InterlinguaError, match=r"Did you mean 'de' \(German\)\?$"):
            normalise_code(tag)
    with pytest.raises(InterlinguaError, match=r"Did you mean 'ja' \(Japanese\) or .*\?$"):
        normalise_code("jp")
    for tag in ("klingon", ""):
        with pytest.raises(InterlinguaError, match=r"\(ISO 639\)\. Write a code such as 'en', 'sw' or 'yue'\.$"):
            normalise_code(tag)


def test_scripts() -> None:
    right_to_left = [code for code in XLMR.split() if language(code).right_to_left]
    assert sorted(right_to_left) == ["ar", "fa", "he", "ps", "sd", "ug", "ur", "yi"]
    assert {code for code in XLMR.split() if not language(code).spaced} == {"ja", "km", "lo", "my", "th", "zh"}
    assert language("th").sentence_gap == " "
    assert language("ja").sentence_gap == ""
    assert language("ko").name == "Korean"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("xquad_ar", "ar"),
        ("drcd_dev_zhtw", "zh"),
        ("mrtydi-v1.1-swahili", "sw"),
        ("tydiqa_train_ko", "ko"),
        ("scifact", None),
    ],
)
def test_language_at_end(name: str, code: str | None) -> None:
    assert language_at_end(name) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [("ar", "ar"), ("pt_BR", "pt"), ("zh-Hant", "zh"), ("zh-Hant-TW", "zh"), ("es_419", "es"), ("sr@latin", "sr")]
    + [(name, None) for name in ("my_texts", "no_duplicates", "so_far", "my-plugin", "in_domain", "news", "xx")],
)
def test_a_name_that_begins_with_a_code_is_no_language(name: str, code: str | None) -> None:
    assert code_of_name(name) == code


def test_words_in_names_of_files_are_no_languages() -> None:
    for name in ("new", "min", "to", "bar", "aa", "sh"):
        assert (code_of_name(name), language_at_end(f"data_{name}")) == (None, None)
        assert normalise_code(name) == name


def test_pairs_are_called_by_both_languages() -> None:
    tags = ("tr-ko", "tur-kor", "ko-tr", "zh-CN", "ko", "ko-xx")
    assert [code_of_pair(tag) for tag in tags] == ["tr-ko", "tr-ko", "ko-tr", None, None, None]


@pytest.mark.parametrize("tag", ["pt-br", "fr-ca", "es-ar"])
def test_a_language_of_a_country_that_may_be_a_pair_is_asked_back(tag: str) -> None:
    lang, other = tag.split("-")
    with pytest.raises(BadInput, match=f"Write '{lang}' or '{other}-{lang}'"):
        code_of_pair(tag)
    assert code_of_pair(f"{other}-{lang}") == f"{other}-{lang}"
    assert (code_of_pair(tag.upper()), normalise_code(tag)) == (None, lang)
    assert [code_of_pair(locale) for locale in ("ko-kr", "af-za", "zh-sg", "sv-se")] == [None] * 4
    assert [code_of_pair(locale) for locale in ("fr-fr", "th-th", "hi-in", "zh-mo")] == [None] * 4


def test_every_code_of_iso_639_1_is_known() -> None:
    codes = "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee"
    codes += (
        " el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is"
    )
    codes += " it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr"
    codes += " ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg"
    codes += " sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo"
    codes += " wa wo xh yi yo za zh zu"
    assert [code for code in codes.split() if find_code(code) is None] == []
    aliases = [alias for entry in languages().values() for alias in (entry.code, *entry.aliases)]
    assert len(aliases) == len(set(aliases))
    assert list(languages()) == sorted(languages())


def test_find_name() -> None:
    assert find_name("Bengali") == "bn"
    assert find_name("Elvish") is None
