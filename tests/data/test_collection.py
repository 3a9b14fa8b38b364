from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from interlingua.data import cross, load_collection, merge_collections, save_collection
from interlingua.data.collections import question_translations
from interlingua.data.passages import is_collection, read_sources
from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError

FIXTURES = Path(__file__).parent / "fixtures"
COLLECTIONS = FIXTURES / "collections"
BROKEN = FIXTURES / "broken"


def test_plain_folder() -> None:
    loaded = load_collection(COLLECTIONS / "folder_en")
    assert loaded.name == "folder_en"
    assert loaded.passages[0] == Passage("p0", "The lake is nine metres deep.", "Lake", "en")
    assert loaded.queries[1] == Query("q1", "what lives in it", "en")
    assert loaded.qrels == {"q0": {"p0": 1}, "q1": {"p1": 2, "p2": 0}}
    assert load_collection(COLLECTIONS / "folder_en", lang="zh-TW", name="mine").query_langs == ["zh"]


def test_beir_keeps_the_queries_of_the_split() -> None:
    loaded = load_collection(COLLECTIONS / "beir", lang="en")
    assert [query.id for query in loaded.queries] == ["q0"]
    assert loaded.qrels == {"q0": {"p0": 1}}
    assert [query.id for query in load_collection(COLLECTIONS / "beir", lang="en", split="dev").queries] == ["q5"]
    with pytest.raises(InterlinguaError, match=r"no qrels/train\.tsv"):
        load_collection(COLLECTIONS / "beir", lang="en", split="train")


def _beir(folder: Path, langs: str = "en", of: str = "en") -> Path:
    """The encyclopedia in some languages in BEIR's layout, which says nothing of languages; questions in another."""
    (folder / "qrels").mkdir(parents=True)
    pool = [p for lang in langs.split() for p in load_collection(f"encyclopedia:{lang}").passages]
    asked = load_collection(f"encyclopedia:{of}")
    (folder / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"_id": f"{p.lang}-{p.id}", "title": p.title, "text": p.text, "metadata": {}}) + "\n"
            for p in pool
        )
    )
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": q.id, "text": q.text}) + "\n" for q in asked.queries)
    )
    first = langs.split()[0]
    (folder / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n"
        + "".join(f"{query}\t{first}-{passage}\t1\n" for query, grades in asked.qrels.items() for passage in grades)
    )
    (folder / "README.md").write_text("# About this collection\n\nIt is in BEIR's layout.\n")
    (folder / "license.txt").write_text("Free.\n")
    return folder


def test_a_name_that_neither_passages_nor_questions_bear_out_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = load_collection("encyclopedia:en")
    folder = tmp_path / "faq-it"
    folder.mkdir()
    rows = [{"id": p.id, "text": p.text, "title": p.title, "lang": "en"} for p in asked.passages]
    (folder / "passages.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "queries.tsv").write_text("".join(f"{q.id}\t{q.text}\n" for q in asked.queries))
    (folder / "qrels.txt").write_text("".join(f"{q} 0 {p} 1\n" for q, grades in asked.qrels.items() for p in grades))
    assert load_collection(folder).query_langs == ["en"]
    assert "its name ends in 'it', but its questions are in 'en'" in capsys.readouterr().err
    swahili = load_collection("encyclopedia:sw").queries
    (folder / "queries.tsv").write_text("".join(f"{q.id}\t{q.text}\n" for q in swahili))
    assert load_collection(folder.rename(tmp_path / "faq-sw")).query_langs == ["sw"]


@pytest.mark.parametrize(
    ("name", "lang"),
    [
        ("scifact", "fi"),
        ("scifact-fi", "fi"),
        ("mmarco_sw", "sw"),
        ("beir/finnish", "fi"),
        ("faq-it", "en"),
        ("nq_xx", "en"),
    ],
)
def test_beir_says_its_language_by_name_or_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, lang: str
) -> None:
    loaded = load_collection(_beir(tmp_path / name, lang, lang))
    assert (loaded.passage_langs, loaded.query_langs, loaded.name) == ([lang], [lang], Path(name).name)
    said = capsys.readouterr().err
    assert ("its name ends in 'it', but its passages are in 'en'" in said) == (name == "faq-it")
    assert load_collection(tmp_path / name, lang="de").passage_langs == ["de"]


def test_beir_of_several_languages_has_each_passage_in_its_own(tmp_path: Path) -> None:
    loaded = load_collection(_beir(tmp_path / "mixed", "th en ja", "fi"))
    assert loaded.query_langs == ["fi"]
    assert all(passage.id.startswith(f"{passage.lang}-") for passage in loaded.passages)
    assert loaded.passage_langs == ["en", "ja", "th"]


def test_a_name_is_believed_where_the_text_is_not_sure(tmp_path: Path) -> None:
    assert load_collection(_folder(tmp_path / "c_it")).passage_langs == ["it"]
    with pytest.raises(InterlinguaError, match="the language of passages is unknown"):
        load_collection(_folder(tmp_path / "plain"))


def test_a_collection_is_known_by_what_it_must_have(tmp_path: Path) -> None:
    assert is_collection(_beir(tmp_path / "beir"))
    assert len(list(read_sources([tmp_path / "beir"]))) == len(load_collection("encyclopedia:en").passages)
    assert {one.source for one in read_sources([tmp_path / "beir"])} == {"beir"}
    plain = _folder(tmp_path / "plain_en")
    (plain / "notes.jsonl").write_text('{"text": "of no interest"}\n')
    (plain / "README.md").write_text("# Read me\n")
    for name in ("passages.jsonl", "queries.tsv", "qrels.txt"):
        (plain / f"{name}.gz").write_bytes(gzip.compress((plain / name).read_bytes()))
        (plain / name).unlink()
    assert is_collection(plain)
    assert [one.id for one in read_sources([plain])] == ["p0"]
    assert is_collection(COLLECTIONS / "mrtydi-v1.1-swahili")
    for missing in ("queries.tsv.gz", "qrels.txt.gz"):
        kept = (plain / missing).read_bytes()
        (plain / missing).unlink()
        assert not is_collection(plain)
        (plain / missing).write_bytes(kept)


def test_mrtydi_splits_contents_at_the_first_blank_line() -> None:
    loaded = load_collection(COLLECTIONS / "mrtydi-v1.1-swahili")
    assert loaded.passages[0] == Passage("7#0", "Ziwa ni refu.\n\nLina samaki.", "Ziwa", "sw")
    assert loaded.passages[1] == Passage("7#1", "Samaki wanaishi hapa.", "", "sw")
    assert loaded.qrels == {"1": {"7#0": 1}}
    assert load_collection(COLLECTIONS / "mrtydi-v1.1-swahili", split="dev").qrels == {"2": {"7#1": 1}}


def test_miracl() -> None:
    loaded = load_collection(COLLECTIONS / "miracl_sw", split="dev")
    assert [passage.id for passage in loaded.passages] == ["7#0", "7#1"]
    assert loaded.qrels == {"0#0": {"7#0": 1, "7#1": 0}}
    with pytest.raises(InterlinguaError, match=r"no file topic\*\.tsv\* of the split 'test' .*sw-dev\.tsv"):
        load_collection(COLLECTIONS / "miracl_sw")


def test_a_split_of_miracl_may_have_a_dash(tmp_path: Path) -> None:
    shutil.copytree(COLLECTIONS / "miracl_sw", tmp_path / "miracl_sw")
    for kind, name in (("topics", "topics.miracl-v1.0-sw"), ("qrels", "qrels.miracl-v1.0-sw")):
        dev = tmp_path / "miracl_sw" / kind / f"{name}-dev.tsv"
        shutil.copy(dev, dev.with_name(f"{name}-test-a.tsv"))
        shutil.copy(dev, dev.with_name(f"{name}-latest.tsv"))  # not of the split "test"
    assert len(load_collection(tmp_path / "miracl_sw", split="test-a").queries) == 1
    assert len(load_collection(tmp_path / "miracl_sw", split="test").queries) == 1


def test_squad_and_xquad_r() -> None:
    plain = load_collection(FIXTURES / "questions" / "squad.json", lang="en")
    assert [passage.id for passage in plain.passages] == ["p0", "p1"]
    assert plain.qrels == {"a1": {"p0": 1}, "a2": {"p0": 1}, "a4": {"p1": 1}}
    sentences = load_collection(COLLECTIONS / "xquad_r_en.json")
    assert [passage.id for passage in sentences.passages] == ["p0.s0", "p0.s1", "p1.s0"]
    assert (sentences.passages[1].title, sentences.passages[1].text[:8]) == ("It lies in the north.", "The lake")
    assert sentences.qrels == {"a1": {"p0.s0": 1}, "a2": {"p0.s1": 1}, "a4": {"p1.s0": 1}}


def test_xquad_r_whose_sentences_have_no_two_ends(tmp_path: Path) -> None:
    text = (COLLECTIONS / "xquad_r_en.json").read_text(encoding="utf-8")
    broken = re.sub(r'("sentence_breaks": \[\s*\[\s*\d+),\s*\d+', r"\1", text, count=1)
    assert broken != text
    (tmp_path / "xquad_r_en.json").write_text(broken, encoding="utf-8")
    with pytest.raises(InterlinguaError, match="each of 'sentence_breaks' must be two whole numbers"):
        load_collection(tmp_path / "xquad_r_en.json")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown_passage_en", r"the qrels name 1 unknown passage id\(s\), the first is 'p9'"),
        ("twice_en", r"passages\.jsonl, line 3: the passage id 'p0' occurs twice"),
    ],
)
def test_broken_collections(name: str, message: str) -> None:
    with pytest.raises(InterlinguaError, match=message):
        load_collection(BROKEN / name)


def _folder(path: Path, qrels: str = "q0 0 p0 1\n", queries: str = "q0\twhat\n") -> Path:
    path.mkdir()
    (path / "passages.jsonl").write_text('{"id": "p0", "text": "x"}\n')
    (path / "queries.tsv").write_text(queries)
    (path / "qrels.txt").write_text(qrels)
    return path


@pytest.mark.parametrize(
    ("qrels", "queries", "message"),
    [
        ("q7 0 p0 1\n", "q0\twhat\n", "1 unknown query id"),
        ("q0 0 p0 yes\n", "q0\twhat\n", r"qrels\.txt, line 1: 'q0 0 p0 yes' is no judgement"),
        ("q0 0 p0 1\nq0 0 p0 0\n", "q0\twhat\n", "line 2: passage 'p0' has two grades"),
        ("", "q0\twhat\n", r"qrels\.txt: is empty"),
        ("q0 0 p0 1\n", "q0\twhat\nq0\tagain\n", "the query id 'q0' occurs twice"),
        ("q0 0 p0 1\n", "q0 what\n", r"queries\.tsv, line 1: 1 column\(s\)"),
    ],
)
def test_broken_rows(tmp_path: Path, qrels: str, queries: str, message: str) -> None:
    with pytest.raises(InterlinguaError, match=message):
        load_collection(_folder(tmp_path / "c_en", qrels, queries))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InterlinguaError, match="no such collection"):
        load_collection(tmp_path / "nowhere")
    with pytest.raises(InterlinguaError, match="not a collection"):
        load_collection(tmp_path)
    (_folder(tmp_path / "c_en") / "qrels.txt").unlink()
    with pytest.raises(InterlinguaError, match=r"no qrels\.txt \(or \.gz\)"):
        load_collection(tmp_path / "c_en")


def _translation(lang: str, questions: int = 2) -> Collection:
    return Collection(
        f"x_{lang}",
        [Passage(f"p{i}", f"text {i} {lang}", "", lang) for i in range(3)],
        [Query(f"q{i}", f"question {i} {lang}", lang) for i in range(questions)],
        {f"q{i}": {f"p{i}": 1} for i in range(questions)},
    )


def test_the_language_of_what_names_none_does_not_choose_among_languages() -> None:
    assert load_collection("encyclopedia", lang="en") == load_collection("encyclopedia")


def test_save_and_load_give_the_same_collection(tmp_path: Path) -> None:
    mixed = merge_collections([_translation("ar"), _translation("th")], name="mixed")
    save_collection(mixed, tmp_path / "mixed")
    assert load_collection(tmp_path / "mixed") == mixed
    for name in ("passages.jsonl", "queries.tsv"):  # files that are not gzipped are found first
        (tmp_path / "mixed" / name).write_bytes(gzip.decompress((tmp_path / "mixed" / f"{name}.gz").read_bytes()))
    other = merge_collections([_translation("ar"), _translation("ko")], name="mixed")
    save_collection(other, tmp_path / "mixed")
    assert load_collection(tmp_path / "mixed") == other
    with pytest.raises(InterlinguaError, match="has a tab or a line break"):
        save_collection(Collection("c", [], [Query("q", "a\tb")]), tmp_path / "c")
    with pytest.raises(InterlinguaError, match="white space"):
        save_collection(Collection("c", [Passage("p 0", "x")], []), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_judged_passage_in_a_thousand_may_be_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    passages = [Passage(f"p{i}", f"text {i}", "", "en") for i in range(1100)]
    given = Collection("c", passages, [Query("q", "what", "en")], {"q": {passage.id: 1 for passage in passages}})
    save_collection(given, tmp_path / "c")
    with open(tmp_path / "c/qrels.txt", "a") as stream:
        stream.write("q 0 gone 1\n")
    assert len(load_collection(tmp_path / "c").qrels["q"]) == 1101
    assert "1 judged passage(s) are not there, such as 'gone'" in caplog.text


def test_merge_prefixes_ids_by_language() -> None:
    merged = merge_collections([_translation("ar"), _translation("th", 1)])
    assert merged.passages[3] == Passage("th:p0", "text 0 th", "", "th")
    assert merged.qrels == {"ar:q0": {"ar:p0": 1}, "ar:q1": {"ar:p1": 1}, "th:q0": {"th:p0": 1}}
    noted = Collection("n", [Passage("p", "t", "", "fi", {"source": "a"})], [Query("q", "t", "fi")], {"q": {"p": 1}})
    assert merge_collections([noted]).passages[0].metadata == {"source": "a"}
    twins = merge_collections([_translation("ar"), Collection("y", *_parts(_translation("ar")))])
    assert [passage.id for passage in twins.passages[::3]] == ["x_ar:p0", "y:p0"]
    with pytest.raises(InterlinguaError, match="same language and the same name"):
        merge_collections([_translation("ar"), _translation("ar")])


def _parts(collection: Collection) -> Any:
    return collection.passages, collection.queries, collection.qrels


def test_merge_of_translations_counts_every_version_as_relevant() -> None:
    arabic, thai = _translation("ar"), _translation("th", 1)
    by_passage = merge_collections([arabic, thai], translations="passages").qrels
    assert by_passage["ar:q1"] == {"ar:p1": 1, "th:p1": 1}
    by_question = merge_collections([arabic, thai], translations="questions").qrels
    assert by_question["ar:q0"] == by_question["th:q0"] == {"ar:p0": 1, "th:p0": 1}
    assert by_question["ar:q1"] == {"ar:p1": 1}
    with pytest.raises(InterlinguaError, match="Did you mean 'passages'"):
        merge_collections([arabic], translations="passage")


def test_cross() -> None:
    arabic, thai = _translation("ar", 3), _translation("th")
    del thai.passages[1]
    crossed = cross(arabic, thai)
    assert [query.lang for query in crossed.queries] == ["ar", "ar"]
    assert crossed.passage_langs == ["th"]
    assert crossed.qrels == {"q0": {"p0": 1}, "q2": {"p2": 1}}
    thai.qrels = {"q1": {"p2": 1}}
    assert cross(arabic, thai, translations="questions").qrels == {"q1": {"p2": 1}}
    thai.passages = [Passage("other", "x", "", "th")]
    with pytest.raises(InterlinguaError, match="no question of x_ar has a relevant passage in x_th"):
        cross(arabic, thai)


class _Doc(NamedTuple):
    doc_id: str
    text: str


class _Query(NamedTuple):
    query_id: str
    title: str

    def default_text(self) -> str:
        return self.title


def _stand_in(has_qrels: bool = True) -> ModuleType:
    data = SimpleNamespace(
        has_docs=lambda: True,
        has_queries=lambda: True,
        has_qrels=lambda: has_qrels,
        docs_lang=lambda: "sw",
        queries_lang=lambda: None,
        docs_iter=lambda: iter([_Doc("d1", "Ziwa\n\nZiwa ni refu."), _Doc("d2", "Samaki.")]),
        queries_iter=lambda: iter([_Query("1", "lake ")]),
        qrels_iter=lambda: iter([SimpleNamespace(query_id="1", doc_id="d1", relevance=3)]),
    )
    package = ModuleType("ir_datasets")
    package.load = {"mr-tydi/sw/test": data}.__getitem__  # type: ignore[attr-defined]
    return package


def test_ir_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", _stand_in())
    loaded = load_collection("ir_datasets:mr-tydi/sw/test", lang="en")
    assert loaded.name == "mr-tydi_sw_test"
    assert loaded.passages == [Passage("d1", "Ziwa ni refu.", "Ziwa", "sw"), Passage("d2", "Samaki.", "", "sw")]
    assert loaded.queries == [Query("1", "lake", "en")]
    assert loaded.qrels == {"1": {"d1": 3}}
    with pytest.raises(InterlinguaError, match="ir_datasets knows no such id"):
        load_collection("ir_datasets:mr-tydi/xx")
    monkeypatch.setitem(sys.modules, "ir_datasets", _stand_in(has_qrels=False))
    with pytest.raises(InterlinguaError, match="this id has no qrels"):
        load_collection("ir_datasets:mr-tydi/sw/test")
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(InterlinguaError, match=r"pip install 'interlingua\[datasets\]'"):
        load_collection("ir_datasets:mr-tydi/sw/test")


def test_lang_field_wins_over_the_folder_name(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "c_en")
    (folder / "passages.jsonl").write_text(json.dumps({"id": "p0", "text": "x", "lang": "tha"}) + "\n")
    loaded = load_collection(folder)
    assert (loaded.passage_langs, loaded.query_langs) == (["th"], ["en"])


def test_questions_are_translations_where_a_passage_has_equally_many() -> None:
    def asked(lang: str, *judged: tuple[str, ...]) -> Collection:
        queries = [Query(f"q{number}", f"{lang} {number}", lang) for number in range(len(judged))]
        return Collection(
            lang,
            [],
            queries,
            {query.id: dict.fromkeys(passages, 1) for query, passages in zip(queries, judged, strict=True)},
        )

    english = asked("en", ("p1",), ("p1",), ("p2",), ("p3",), ("p4", "p5"))
    german = asked("de", ("p3",), ("p1",), ("p2",), ("p1",), ("p2",), ("p4", "p5"))
    found = {name: query.text for name, query in question_translations(english, german).items()}
    assert found == {"q0": "de 1", "q1": "de 3", "q3": "de 0"}  # p2 has one question and two, q4 has two passages


@pytest.mark.parametrize(
    "header",
    [
        "id\ttext",
        "\n\nid\ttext",
        "qid\tquery",
        "query-id\ttext",
        "_id\ttext",
        "query_id\tquestion\tlang",
        "ID\tText",
        "\ufeffid\ttext",
    ],
)
def test_a_header_of_questions_is_no_question(tmp_path: Path, header: str) -> None:
    folder = _folder(tmp_path / "c_en", queries=f"{header}\r\nq0\twhat\n")
    assert load_collection(folder).queries == [Query("q0", "what", "en")]


@pytest.mark.parametrize("first", ["q1\ttext", "id\twhat is an id", "q1\tquery"])
def test_a_first_question_is_no_header(tmp_path: Path, first: str) -> None:
    folder = _folder(tmp_path / "c_en", queries=f"{first}\nq0\twhat\nqid\tquery\n")
    assert [f"{query.id}\t{query.text}" for query in load_collection(folder).queries] == [
        first,
        "q0\twhat",
        "qid\tquery",
    ]


def test_ids_have_the_names_that_an_index_knows(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "c_en")
    for key in ("_id", "docid", "doc_id", "passage_id", "uid"):
        (folder / "passages.jsonl").write_text(json.dumps({key: "p0", "text": "x"}) + "\n")
        assert load_collection(folder).passages == [Passage("p0", "x", "", "en")]
