from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from interlingua.data.datasets import DataSpec, read
from interlingua.data.readers import parallel, read_parallel, read_sentences, source_fingerprint
from interlingua.data.records import ParallelPair, Sentence
from interlingua.errors import InterlinguaError

FIXTURES = Path(__file__).parent / "fixtures"
PARALLEL = FIXTURES / "parallel"
BROKEN = FIXTURES / "broken"
WIKIMATRIX = PARALLEL / "WikiMatrix.en-fi.tsv"


def texts(pairs: object) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]  # type: ignore[attr-defined]


def test_tsv_takes_languages_from_its_name_and_the_origin_from_its_third_column() -> None:
    first, second = read_parallel(PARALLEL / "ar-en.tsv")
    assert first == ParallelPair("البحيرة عميقة جدا", "The lake is very deep", "ar", "en", origin="news")
    assert second.origin == "bible"
    (given, _) = read_parallel(PARALLEL / "ar-en.tsv", source_lang="fas")
    assert (given.source_lang, given.target_lang) == ("fa", "en")


def test_a_recipe_may_list_both_files_of_a_pair() -> None:
    paths = [str(PARALLEL / "corpus.ar"), "encyclopedia:test", str(PARALLEL / "corpus.en"), str(PARALLEL / "fi.po")]
    bundled = len(list(read_parallel("encyclopedia:test")))
    twice = list(read("parallel", DataSpec(path=[paths[0], paths[2]], filter=False)))
    assert twice == list(read_parallel(PARALLEL / "corpus"))
    assert len(list(read("parallel", DataSpec(path=paths, filter=False)))) == 2 + bundled + 2
    listed = [str(PARALLEL / "ar-en.tsv")] * 2
    assert len(list(read("parallel", DataSpec(path=listed, filter=False)))) == 4
    both = DataSpec(kind="sentences", path=[paths[0], paths[2]], options={"side": "both"})
    assert len(list(read("raw", both))) == 4


def test_languages_of_a_recipe_are_those_of_the_records(tmp_path: Path) -> None:
    assert DataSpec(path="x", langs=["zh-CN", "iw", "tur-kor", "fi"]).langs == ["zh", "he", "tr-ko", "fi"]
    spec = DataSpec(path=str(PARALLEL / "corpus"), langs=["ara"], filter=False)
    assert len(list(read("parallel", spec))) == 2
    (tmp_path / "tr-ko.tsv").write_text("Merhaba dünya bugün\t안녕 세상 오늘\n", encoding="utf-8")
    for langs in (["tr-ko"], ["ko-tr"], ["fi", "kor-tur"]):
        assert len(list(read("parallel", DataSpec(path=str(tmp_path / "tr-ko.tsv"), langs=langs, filter=False)))) == 1
    with pytest.raises(ValueError, match="'klingon' is not a language code"):
        DataSpec(path="x", langs=["klingon"])


def test_tatoeba_in_both_of_its_forms() -> None:
    assert [pair.source_lang for pair in read_parallel(PARALLEL / "ara-eng.tsv")] == ["ar", "ar"]
    (pair,) = read_parallel(PARALLEL / "tatoeba.swh-eng.swh")
    assert pair == ParallelPair("Ziwa ni refu.", "The lake is deep.", "sw", "en")
    assert [pair] == list(read_parallel(PARALLEL / "tatoeba.swh-eng"))


def test_moses_is_read_once_however_it_is_named() -> None:
    expected = list(read_parallel([PARALLEL / "corpus.en", PARALLEL / "corpus.ar"]))
    assert (expected[0].source_lang, expected[0].target_lang) == ("ar", "en")
    assert texts(expected)[1] == ("البرج عال", "The tower is high.")
    for path in (PARALLEL / "corpus", PARALLEL / "corpus.ar", PARALLEL / "corpus.en", str(PARALLEL / "corpus.*")):
        assert list(read_parallel(path)) == expected


def test_moses_keeps_the_order_of_languages_in_its_name(tmp_path: Path) -> None:
    for code, text in (("en", "A lake"), ("fi", "Järvi")):
        (tmp_path / f"news.en-fi.{code}").write_text(text + "\n")
    assert list(read_parallel(tmp_path)) == [ParallelPair("A lake", "Järvi", "en", "fi")]


def test_moses_with_unequal_lines_gives_no_pair_at_all() -> None:
    with pytest.raises(InterlinguaError, match=r"short\.fi has 2 lines, .*short\.en has 1"):
        next(read_parallel(BROKEN / "short"))


def test_moses_without_a_partner(tmp_path: Path) -> None:
    (tmp_path / "x.fi").write_text("Järvi\n")
    with pytest.raises(InterlinguaError, match="the other side cannot be told"):
        read_parallel(tmp_path / "x.fi")
    for code in ("sw", "en"):
        (tmp_path / f"x.{code}").write_text("text\n")
    assert {pair.lang for pair in read_parallel(tmp_path)} == {"fi", "sw"}
    with pytest.raises(InterlinguaError, match=r"found: x\.en, x\.sw"):
        read_parallel(tmp_path / "x.fi")


def test_bad_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InterlinguaError, match=r"sw-en\.tsv, line 2: 1 column\(s\), 2 or 3 are needed"):
        list(read_parallel(BROKEN / "sw-en.tsv", format="tsv"))
    pairs = list(read_parallel(BROKEN / "sw-en.tsv", format="tsv", on_bad_row="skip"))
    assert texts(pairs) == [("Ziwa ni refu", "The lake is deep"), ("Mnara ni mrefu", "The tower is high")]
    assert "line 3: an empty side" in capsys.readouterr().err


def test_bytes_that_are_not_utf8_are_an_error_under_either_policy() -> None:
    for policy in ("error", "skip"):
        with pytest.raises(InterlinguaError, match=r"fr-en\.tsv, line 2: not UTF-8.*iconv"):
            list(read_parallel(BROKEN / "fr-en.tsv", on_bad_row=policy))


def test_empty_file_and_unknown_languages(tmp_path: Path) -> None:
    with pytest.raises(InterlinguaError, match=r"empty\.tsv: is empty"):
        read_parallel(BROKEN / "empty.tsv")
    with gzip.open(tmp_path / "ar-en.tsv.gz", "wb"):
        pass
    with pytest.raises(InterlinguaError, match="is empty"):
        read_parallel(tmp_path / "ar-en.tsv.gz")
    (tmp_path / "pairs.tsv").write_text("a b c\td e f\n")
    with pytest.raises(InterlinguaError, match="Give source_lang and target_lang"):
        list(read_parallel(tmp_path / "pairs.tsv"))


def test_wikimatrix_top_takes_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(read_parallel(WIKIMATRIX, select="top", limit=3))
    assert [pair.score for pair in pairs] == [1.25, 1.2, 1.15]
    assert (pairs[0].source_lang, pairs[0].target_lang, pairs[0].lang) == ("en", "fi", "fi")
    said = capsys.readouterr().err
    assert "2 rows under the margin 1.04" in said
    assert "4 rows over the limit of 3" in said


def test_wikimatrix_threshold_is_inclusive() -> None:
    assert [pair.score for pair in read_parallel(WIKIMATRIX)] == [1.25, 1.2, 1.15, 1.1, 1.06, 1.05, 1.04]
    assert len(list(read_parallel(WIKIMATRIX, threshold=1.1, limit=None))) == 4


def test_wikimatrix_random_is_seeded_nested_and_in_order(tmp_path: Path) -> None:
    rows = [f"{2 - i / 1000}\tenglish {i}\tsuomi {i}" for i in range(900)]
    (tmp_path / "WikiMatrix.en-fi.tsv").write_text("\n".join(rows))

    def draw(limit: int, seed: int) -> list[int]:
        return [int(pair.source.split()[1]) for pair in read_parallel(tmp_path, limit=limit, seed=seed)]

    small, large = draw(50, 1), draw(200, 1)
    assert len(small) == 50
    assert set(small) < set(large)
    assert large == sorted(large)
    assert small == draw(50, 1) != draw(50, 2)
    assert 300 < sum(large) / len(large) < 600  # not the top


def test_wikimatrix_options_are_checked() -> None:
    with pytest.raises(InterlinguaError, match="Did you mean 'random'"):
        list(read_parallel(WIKIMATRIX, select="randm"))
    with pytest.raises(InterlinguaError, match="Did you mean 'threshold'"):
        read_parallel(WIKIMATRIX, treshold=1.1)
    with pytest.raises(InterlinguaError, match="'wikimatrix': 'threshold': input should be a valid number"):
        read_parallel(WIKIMATRIX, threshold="high")


def test_tmx_drops_codes_and_pairs_every_language_with_english() -> None:
    pairs = list(read_parallel(PARALLEL / "memory.tmx"))
    assert [(pair.source_lang, pair.target_lang) for pair in pairs] == [("de", "en"), ("sw", "en"), ("de", "en")]
    assert texts(pairs)[0] == ("Drücken Sie Start und warten Sie.", "Press Start & wait.")
    assert pairs[1].source == "Bonyeza Anza na usubiri."
    assert pairs[0].group == pairs[1].group != ""
    assert pairs[2].group == ""


def test_tmx_with_languages_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    (pair,) = read_parallel(PARALLEL / "memory.tmx", source_lang="sw", target_lang="de")
    assert (pair.source_lang, pair.target_lang, pair.lang) == ("sw", "de", "sw-de")
    assert "1 units without a translation in the languages asked for" in capsys.readouterr().err
    assert [p.target_lang for p in read_parallel(PARALLEL / "memory.tmx", source_lang="en")] == ["de", "sw", "de"]


def test_tmx_in_utf16(tmp_path: Path) -> None:
    text = (PARALLEL / "memory.tmx").read_text().replace("UTF-8", "UTF-16")
    (tmp_path / "memory.tmx").write_bytes(text.encode("utf-16"))
    assert texts(read_parallel(tmp_path)) == texts(read_parallel(PARALLEL / "memory.tmx"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bomb.tmx", "line 2: the entity 'a' is not read"),
        ("entity.tmx", "line 3: the entity 'secret' is not read"),
        ("cut.tmx", "not well-formed XML"),
    ],
)
def test_harmful_or_broken_xml(name: str, message: str) -> None:
    with pytest.raises(InterlinguaError, match=message):
        list(read_parallel(BROKEN / name))


def test_po_counts_what_it_does_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(read_parallel(PARALLEL / "fi.po"))
    assert texts(pairs) == [("Open the file", "Avaa tiedosto"), ("%d files were found", "%d tiedostoa löytyi")]
    assert (pairs[0].source_lang, pairs[0].target_lang) == ("en", "fi")
    said = capsys.readouterr().err
    for note in ("1 fuzzy", "1 untranslated", "1 obsolete"):
        assert note in said


def test_xliff_of_both_versions(capsys: pytest.CaptureFixture[str]) -> None:
    (old,), (new,) = read_parallel(PARALLEL / "one.xlf"), read_parallel(PARALLEL / "two.xlf")
    assert old == ParallelPair("Open the file", "เปิดไฟล์", "en", "th")
    assert new == ParallelPair("Open the file", "파일 열기", "en", "ko")
    assert capsys.readouterr().err.count("1 untranslated units") == 2


def xml(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>\n{text}'.encode(encoding, "replace"))
    return path


def test_xliff_that_is_not_finished_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def unit(text: str, unit: str = "", target: str = "") -> str:
        return f"<trans-unit {unit}><source>{text}</source><target {target}>{text} fi</target></trans-unit>"

    units = [
        unit("a", 'approved="yes"', 'state="translated"'),
        unit("b", 'approved="no"'),
        unit("c", 'translate="no"'),
        *(unit("d", "", f'state="{state}"') for state in ("new", "needs-translation", "needs-review-translation")),
        unit("e", "", 'xml:lang="sv"'),
    ]
    text = f'<x:xliff xmlns:x="urn:x"><file source-language="en">{"".join(units)}</file></x:xliff>'
    with pytest.raises(InterlinguaError, match=r"line 2: nothing tells the target language\. Give target_lang"):
        list(read_parallel(xml(tmp_path / "a.xlf", text)))
    found = [(pair.source, pair.target_lang) for pair in read_parallel(tmp_path / "a.xlf", on_bad_row="skip")]
    assert found == [("e", "sv")]  # of the other units nothing tells the language
    new = "<segment><source>{0}</source><target>{0} fi</target></segment></unit>"
    held = f'<unit translate="no">{new.format("a")}<unit>{new.format("b")}'
    xml(tmp_path / "c.xlf", f'<xliff version="2.0" srcLang="en" trgLang="fi"><file>{held}</file></xliff>')
    assert [pair.source for pair in read_parallel(tmp_path / "c.xlf")] == ["b"]
    assert "1 unfinished units not read" in capsys.readouterr().err
    finnish = text.replace('"en"', '"en" target-language="fi"')
    assert [pair.source for pair in read_parallel(xml(tmp_path / "b.xlf", finnish))] == ["a", "e"]
    assert "5 unfinished units not read" in capsys.readouterr().err


def test_names_in_which_a_country_is_no_language(tmp_path: Path) -> None:
    for name, codes in (("en-za_af-za", ("en", "af")), ("sv-se_fi-fi", ("sv", "fi")), ("en-sg_zh-sg", ("en", "zh"))):
        (tmp_path / f"{name}.tsv").write_text("a\tb\n")
        (pair,) = read_parallel(tmp_path / f"{name}.tsv")
        assert (pair.source_lang, pair.target_lang) == codes
    for part in ("aa", "ab"):  # as `split` names them
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / f"parts/pairs.{part}").write_text(f"{part} one\t{part} two\n")
    pairs = read_parallel(tmp_path / "parts", source_lang="fr", target_lang="en")
    assert texts(pairs) == [("aa one", "aa two"), ("ab one", "ab two")]


def test_codes_of_line_breaks_are_a_space(tmp_path: Path) -> None:
    unit = '<source>one<x id="1" ctype="lb"/>two <g>bo</g>l<x/>d <x/>.</source><target>a<ph type="lb">%s</ph>b</target>'
    file = f'<file source-language="en" target-language="fi"><trans-unit>{unit}</trans-unit></file>'
    text = f"<xliff>{file}</xliff>"
    assert texts(read_parallel(xml(tmp_path / "a.xlf", text))) == [("one two bold .", "a b")]


def test_encodings_of_xml(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>Hi</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'
    for encoding, lang, word in (
        ("gb18030", "zh", "你好"),
        ("GB2312", "zh", "你好"),
        ("Shift_JIS", "ja", "今日は"),
        ("windows-1251", "ru", "привет"),
        ("utf-16", "ru", "привет"),
    ):
        file = xml(tmp_path / f"{encoding}.tmx", f"<tmx><body>{unit.format(lang, word)}</body></tmx>", encoding)
        assert texts(read_parallel(file)) == [(word, "Hi")]
    for encoding, reason in (
        ("gb18030", "is not in the encoding 'gb18030'"),
        ("x-9", "nobody here knows the encoding 'x-9'"),
    ):
        (tmp_path / "bad.tmx").write_bytes(f'<?xml version="1.0" encoding="{encoding}"?><tmx>\xff'.encode("latin-1"))
        with pytest.raises(InterlinguaError, match=rf"bad.tmx: .*{reason}. Convert the file to UTF-8"):
            list(read_parallel(tmp_path / "bad.tmx"))


def test_variants_of_tmx_without_text_or_language_do_not_take_the_others_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = {"en": "Hi", "fi": "", "sv": "Hej", "x-none": "?"}
    unit = "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in variants.items())
    file = xml(tmp_path / "a.tmx", f"<tmx><body><tu>{unit}</tu></body></tmx>")
    assert texts(read_parallel(file)) == [("Hej", "Hi")]
    said = capsys.readouterr().err
    assert "1 empty variants not read" in said
    assert "1 variants in 'x-none', which is no language" in said


@pytest.mark.parametrize(
    ("lang", "rule", "forms"),
    [
        ("lv", "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);", 1),
        ("sl", "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 3 : 2);", 2),
        (
            "ru",
            "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);",
            2,
        ),
        ("ro", "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);", 2),
        ("fr", "nplurals=3; plural=(n == 0 || n == 1) ? 0 : n != 0 && n % 1000000 == 0 ? 1 : 2;", 2),
        ("fi", "nplurals=2; plural=nonsense(n);", 3),
        ("fi", "", 3),
        ("fi", "nplurals=2; plural=n%0;", 3),
    ],
)
def test_the_plural_of_po_is_that_of_many(tmp_path: Path, lang: str, rule: str, forms: int) -> None:
    plurals = "\n".join(f'msgstr[{form}] "form {form}"' for form in range(4))
    header = f'msgid ""\nmsgstr "Language: {lang}\\nPlural-Forms: {rule}\\n"\n\n'
    (tmp_path / "a.po").write_text(f'{header}msgid "a file"\nmsgid_plural "files"\n{plurals}\n')
    assert texts(read_parallel(tmp_path / "a.po")) == [("files", f"form {forms}")]
    (tmp_path / "b.po").write_text(f'{header}msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n\nmsgid "d"\nmsgstr "e"\n')
    assert texts(read_parallel(tmp_path / "b.po", on_bad_row="skip")) == [("d", "e")]


def test_characters_of_po_that_end_a_line_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "fi.po").write_text(
        'msgid ""\nmsgstr ""\n\nmsgid "a\u2028b"\nmsgstr "c\x85d\fe"\n', "utf-8", newline=""
    )
    assert texts(read_parallel(tmp_path / "fi.po")) == [("a\u2028b", "c\x85d\fe")]


def test_a_file_of_xliff_without_a_language_has_not_that_of_the_one_before(tmp_path: Path) -> None:
    unit = "<trans-unit><source>one</source><target>{}</target></trans-unit>"
    (tmp_path / "a.xlf").write_text(
        f'<xliff><file source-language="en" target-language="fi">{unit.format("yksi")}</file>'
        f'<file source-language="en">{unit.format("eins")}</file></xliff>'
    )
    with pytest.raises(InterlinguaError, match="language"):
        list(read_parallel(tmp_path / "a.xlf"))


def test_tmx_in_a_language_that_is_none() -> None:
    with pytest.raises(InterlinguaError, match="'englisch' is not a language code"):
        list(read_parallel(next(PARALLEL.glob("*.tmx")), source_lang="englisch"))


def test_a_side_that_gets_shorter_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in ("ar", "en"):
        (tmp_path / f"x.{code}").write_text("a\nb\n")
    real, calls = parallel.read_lines, []

    def shorter(path: Path) -> Iterator[tuple[int, str]]:
        calls.append(path)
        return islice(real(path), 1 if len(calls) == 4 else None)

    monkeypatch.setattr(parallel, "read_lines", shorter)
    with pytest.raises(InterlinguaError, match="one of them changed while they were read"):
        list(read_parallel(tmp_path / "x"))


def test_plain_jsonl() -> None:
    (pair,) = read_parallel(PARALLEL / "plain.jsonl")
    assert pair == ParallelPair("Ziwa ni refu", "The lake is deep", "sw", "en", 1.2, "g", "o")


def test_a_folder_of_mixed_formats() -> None:
    assert len(list(read_parallel(PARALLEL))) == 2 + 2 + 2 + 1 + 7 + 3 + 2 + 1 + 1 + 1


def test_a_language_beside_a_side_is_not_dropped_silently() -> None:
    with pytest.raises(InterlinguaError, match="no option 'lang'"):
        read_sentences(WIKIMATRIX, side="foreign", lang="fi")


def test_one_side_as_raw_text() -> None:
    foreign = [*read_sentences(WIKIMATRIX, side="foreign", limit=1)]
    foreign += read_sentences(PARALLEL / "corpus", side="foreign")
    assert [sentence.lang for sentence in foreign] == ["fi", "ar", "ar"]
    assert {s.lang for s in read_sentences(PARALLEL / "corpus", side="target")} == {"en"}
    with pytest.raises(InterlinguaError, match="Did you mean 'source'"):
        read_sentences(PARALLEL / "corpus", side="sorce")


def test_one_side_of_the_encyclopedia() -> None:
    assert "en" not in {one.lang for one in read_sentences("encyclopedia:train", side="foreign")}


def test_a_po_file_is_no_plain_text(tmp_path: Path) -> None:
    files = PARALLEL / "fi.po", tmp_path / "unnamed", tmp_path / "bad.jsonl"
    shutil.copy(files[0], files[1])  # known by its content
    files[2].write_text("oops\n" + (PARALLEL / "plain.jsonl").read_text() * 2)
    finnish = [Sentence("Avaa tiedosto", "fi"), Sentence("%d tiedostoa löytyi", "fi")]
    assert [list(read_sentences(file, side="foreign")) for file in files[:2]] == [finnish] * 2
    assert len(list(read_sentences(files[0], side="both"))) == 4
    spec = DataSpec(kind="sentences", path=str(files[0]), options={"side": "foreign"})
    assert list(read("raw", spec)) == finnish
    assert {one.lang for one in read_sentences(files[2], side="foreign", on_bad_row="skip")} == {"sw"}
    (tmp_path / "fi.txt").write_text("Järvi on syvä.\n")  # plain text may stand beside it
    both = read_sentences([files[0], tmp_path / "fi.txt"], side="foreign")
    assert [*both] == [*finnish, Sentence("Järvi on syvä.", "fi")]
    (tmp_path / "news.th").write_text("ทะเลสาบลึก\n")  # also called by its language
    thai = read_sentences([files[0], tmp_path / "news.th"], side="foreign")
    assert [*thai] == [*finnish, Sentence("ทะเลสาบลึก", "th")]


@pytest.mark.parametrize("name", ["fi.po", "memory.tmx", "one.xlf", "ar-en.tsv", "plain.jsonl", "WikiMatrix.en-fi.tsv"])
def test_sentences_of_a_parallel_file_need_a_side(name: str) -> None:
    with pytest.raises(InterlinguaError, match=rf"{name}: looks like parallel text \(\w+\)\. Say which side") as error:
        read_sentences(PARALLEL / name, lang="fi")
    assert "--side foreign" in str(error.value)


def test_fingerprint_changes_with_the_file_and_the_options(tmp_path: Path) -> None:
    for code in ("ar", "en"):
        (tmp_path / f"x.{code}").write_text("a\n")
    first = source_fingerprint(tmp_path / "x", limit=5)
    assert first == source_fingerprint(tmp_path / "x", limit=5) != source_fingerprint(tmp_path / "x", limit=6)
    (tmp_path / "x.en").write_text("ab\n")
    assert source_fingerprint(tmp_path / "x", limit=5) != first
    assert source_fingerprint("encyclopedia:train") != source_fingerprint("encyclopedia:test")
    one = source_fingerprint(tmp_path / "x.ar")
    (tmp_path / "x.en").write_text("abc\n")  # read with x.ar, though not named
    assert source_fingerprint(tmp_path / "x.ar") != one
    (tmp_path / "news.fr").write_text("a\n")  # no side of a pair
    assert source_fingerprint(tmp_path / "news.fr")


MARGINS = "".join(f"1.{n:03}\tdog number {n}\tkoira numero {n}\n" for n in range(100, 130))


@pytest.mark.parametrize(
    ("name", "content", "good"),
    [
        ("WikiMatrix.en-fi.tsv", MARGINS.replace("dog number 105\tkoira numero 105", "only two"), 29),
        ("en-fi.tsv", "a dog\tkoira\none column\na cat\tkissa\n\n", 2),
        ("en-fi.jsonl", '{"source": "a"}\n' + '{"source": "a dog", "target": "koira"}\n' * 3, 3),
        ("en-fi.jsonl", "oops\n" + '{"source": "a dog", "target": "koira"}\n' * 3, 3),
    ],
)
def test_a_bad_row_among_the_first_does_not_change_the_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, good: int
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InterlinguaError, match=r"line \d"):
        list(read_parallel(tmp_path / name))
    found = list(read_parallel(tmp_path / name, on_bad_row="skip"))
    assert len(found) == good
    assert {(pair.source.split()[0], pair.target.split()[0]) for pair in found} <= {
        ("a", "koira"),
        ("a", "kissa"),
        ("dog", "koira"),
    }
    assert "left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "row"), [("en-fi.tsv", "a {} dog\tkoira"), ("WikiMatrix.en-fi.tsv", "1.2\ta {} dog\tkoira")]
)
def test_a_blank_line_is_no_row(tmp_path: Path, name: str, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row.format(number) for number in "123"]
    (tmp_path / name).write_text("\n".join(["", rows[0], rows[1], "  ", rows[2], "", ""]))
    assert [pair.source for pair in read_parallel(tmp_path / name)] == ["a 1 dog", "a 2 dog", "a 3 dog"]
    assert capsys.readouterr().err == ""
    with (tmp_path / name).open("a") as stream:
        stream.write("one column\n")
    with pytest.raises(InterlinguaError, match=r"line 7: 1 column\(s\)"):
        list(read_parallel(tmp_path / name))


def test_a_blank_line_of_two_files_has_its_partner(tmp_path: Path) -> None:
    (tmp_path / "x.fi").write_text("koira\n\nkissa\n")
    (tmp_path / "x.en").write_text("a dog\n\na cat\n")
    with pytest.raises(InterlinguaError, match="line 2: an empty side"):
        list(read_parallel(tmp_path / "x"))


def test_ids_in_the_first_column_are_no_margins(tmp_path: Path) -> None:
    (tmp_path / "en-fi.tsv").write_text("".join(f"{n}\ta dog\tkoira\n" for n in range(5)))
    with pytest.raises(InterlinguaError, match=r"holds numbers.*cut -f2-"):
        read_parallel(tmp_path / "en-fi.tsv")


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("en-US_de-DE.tsv", ("en", "de")),
        ("en-US_pt-BR.tsv", ("en", "pt")),
        ("pt-br_en-us.tsv", ("pt", "en")),
        ("europarl.de-en_fr-en.tsv", ("de", "en")),
        ("corpus.zh-tw_en-gb.tsv.gz", ("zh", "en")),
        ("tm.en-US_ar-SA.tsv.gz", ("en", "ar")),
        ("memory.en-US.fr-FR.tsv", ("en", "fr")),
        ("pt-BR_en.tsv", ("pt", "en")),
        ("memory.en_pt-BR.tsv.gz", ("en", "pt")),
        ("de-DE.txt", None),
        ("zh_TW-en.tsv", ("zh", "en")),
        ("EN-FR.tsv", ("en", "fr")),
        ("memory.pt-BR.tsv", None),
        ("de-DE.tsv", None),
    ],
)
def test_locales_in_a_name_are_a_pair_of_two(name: str, codes: tuple[str, str] | None) -> None:
    assert parallel.languages_in_name(Path(name)) == codes


def test_aligned_documents_that_are_left_out_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ("en", "1", "A dog."),
        ("fi", "1", "Koira."),
        ("en", "1", "A cat."),
        ("en", "", "No group."),
        ("en", "2", "Alone."),
        ("fi", "3", "Yksin."),
        ("de", "3", "Nicht gefragt."),
    ]
    for name in ("a.jsonl", "b.jsonl"):
        with (tmp_path / name).open("w") as stream:
            for lang, group, text in rows:
                stream.write(json.dumps({"lang": lang, "group": group, "sentences": [text]}) + "\n")
    found = list(read_parallel([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], pairs=["en-fi"]))
    assert texts(found) == [("A dog.", "Koira.")] * 2
    assert len({pair.group for pair in found}) == 2  # group 1 of another file is another document
    said = capsys.readouterr().err
    for reason in ("without a group", "group of an earlier one", "en without a version in fi", "fi without a version"):
        assert said.count(reason) == 2, reason


def test_languages_and_origins_that_gave_nothing_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "en-fi.tsv").write_text("a dog\tkoira\tnews\na cat\tkissa\tbible\n")
    spec = DataSpec(path=str(tmp_path / "en-fi.tsv"), langs=["fi", "ka"], origins=["news", "nwes"], filter=False)
    assert len(list(read("parallel", spec))) == 1
    said = capsys.readouterr().err
    assert "data.parallel: 1 taken, in fi 1, ka 0" in said
    assert "from news 1, nwes 0" in said


@pytest.mark.parametrize(
    ("wanted", "counted"),
    [
        ({"origins": ["clean"]}, "data.parallel from clean: kept 2 of 3 pairs; dropped: duplicate 1"),
        ({"langs": ["fi"]}, "data.parallel in fi: kept 3 of 5 pairs; dropped: duplicate 2"),
        ({}, "data.parallel: kept 3 of 5 pairs; dropped: duplicate 2"),
    ],
)
def test_a_pair_that_is_wanted_is_no_duplicate_of_one_that_is_not(
    tmp_path: Path, wanted: dict[str, list[str]], counted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("syvä", "mined"), ("syvä", "clean"), ("kylmä", "clean"), ("kylmä", "clean"), ("pitkä", "mined")]
    (tmp_path / "fi-en.tsv").write_text("".join(f"Järvi on {word}\tA lake, {word}\t{of}\n" for word, of in rows))
    found = list(read("parallel", DataSpec(path=str(tmp_path / "fi-en.tsv"), **wanted)))
    assert [pair.source.split()[-1] for pair in found] == ["syvä", "kylmä", *["pitkä"] * (len(found) - 2)]
    said = capsys.readouterr().err
    assert counted in said
    if "origins" in wanted:
        assert {pair.origin for pair in found} == {"clean"}
        assert "data.parallel: 2 taken, from clean 2" in said


def test_how_a_csv_is_to_be_saved_is_said(tmp_path):
    (tmp_path / "pairs.csv").write_text("source,target\nthe sea,das Meer\n", encoding="utf-8")
    with pytest.raises(InterlinguaError, match="Save a table with tabs between its columns"):
        list(read_parallel(tmp_path / "pairs.csv"))
