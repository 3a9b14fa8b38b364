"""Triples by id become questions with their texts; every id is found or named; a stream of them resumes exactly."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from interlingua.data import datasets as triples_module
from interlingua.data.datasets import DataSpec, TripleStore, open_store, open_stream, texts_of
from interlingua.data.layouts import read_qrels
from interlingua.data.readers import read_questions
from interlingua.data.readers.rows import BadRows
from interlingua.data.readers.source import NoOptions
from interlingua.data.readers.triples import _read_qrels, id_passages
from interlingua.data.records import Passage, Query, QuestionPassage
from interlingua.data.store import KeyedStore, RecordStore
from interlingua.errors import InterlinguaError, NotFound

QUERIES = {f"10{i}": f"question {i}" for i in range(5)}
TEXTS = {str(i): f"passage {i}" for i in range(9)}
ROWS = [("100", "3", "8"), ("104", "0", "1"), ("101", "7", "3"), ("100", "3", "2"), ("103", "5", "0")]


def tsv(path: Path, rows) -> Path:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def marco(tmp_path):
    """The files of MS MARCO, small: ids that are numbers and not in order."""
    tsv(tmp_path / "queries.tsv", sorted(QUERIES.items(), reverse=True))
    tsv(tmp_path / "collection.tsv", TEXTS.items())
    tsv(tmp_path / "zh.tsv", ((key, f"段落 {key}") for key in TEXTS))
    tsv(tmp_path / "triples.tsv", ROWS)
    return tmp_path


def build(root, name="triples.tsv", **options):
    given = {"queries": root / "queries.tsv", "passages": root / "collection.tsv", **options}
    return TripleStore.build(root / "store", root / name, **given)


def expected(row, lang="en", text="passage"):
    query, positive, *negatives = row
    return QuestionPassage(
        QUERIES[query],
        (Passage(positive, f"{text} {positive}", "", lang),),
        tuple(Passage(one, f"{text} {one}", "", lang) for one in negatives),
        "en",
        query,
    )


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_ids_become_texts(marco, monkeypatch, chunk):
    monkeypatch.setattr(triples_module, "CHUNK", chunk)
    store = build(marco)
    assert [store[i] for i in range(len(store))] == [expected(row) for row in ROWS]
    assert store.languages == {"en": range(5)}
    assert isinstance(store.rows.base, np.memmap)
    assert sorted(path.name for path in marco.iterdir() if path.is_dir()) == ["store"]


def test_a_translated_collection_with_the_same_triples(marco):
    store = build(marco, passages=marco / "zh.tsv", passage_lang="zho")
    assert store[2] == expected(ROWS[2], "zh", "段落")


def test_gzip_titles_several_files_and_jsonl(marco):
    with gzip.open(marco / "triples.tsv.gz", "wt") as packed:
        packed.write((marco / "triples.tsv").read_text())
    rows = list(TEXTS.items())
    tsv(marco / "a.tsv", ((key, f"title {key}", text) for key, text in rows[:4]))
    with open(marco / "b.jsonl", "w") as stream:
        stream.writelines(
            json.dumps({"_id": key, "title": f"title {key}", "text": text}) + "\n" for key, text in rows[4:]
        )
    with open(marco / "queries.jsonl", "w") as stream:
        stream.writelines(json.dumps({"_id": key, "text": text}) + "\n" for key, text in QUERIES.items())
    store = build(
        marco, "triples.tsv.gz", passages=[marco / "a.tsv", marco / "b.jsonl"], queries=marco / "queries.jsonl"
    )
    assert len(store) == len(ROWS)
    assert store[0].question == "question 0"
    assert store[0].positives[0] == Passage("3", "passage 3", "title 3", "en")
    assert store[0].negatives[0] == Passage("8", "passage 8", "title 8", "en")


def test_scores_of_a_teacher(marco):
    scored = [(1.5, -0.25, *ROWS[0]), (9.75, 3.0, *ROWS[1])]  # pos_score neg_score qid pid+ pid-
    tsv(marco / "scored.tsv", scored)
    store = build(marco, "scored.tsv", scores=True)
    assert [store[i].scores for i in (0, 1)] == [(1.5, -0.25), (9.75, 3.0)]
    assert store[1].positives[0].id == "0"
    tsv(marco / "scored.tsv", [(7, 8, "100", "3", "77"), *scored])
    store = build(marco, "scored.tsv", scores=True, on_bad_row="skip")
    assert [store[i].scores for i in range(len(store))] == [(1.5, -0.25), (9.75, 3)]
    (marco / "ways.jsonl").write_text('[100, [3, 1.5], ["8", -0.25], [1, 0]]\n["104", ["0", 2], ["1", 1], ["2", 0]]\n')
    store = build(marco, "ways.jsonl")
    assert store[0].scores == (1.5, -0.25, 0.0)
    assert [one.id for one in store[1].negatives] == ["1", "2"]
    (marco / "plain.jsonl").write_text("[100, 3, 8]\n")
    assert build(marco, "plain.jsonl")[0] == expected(ROWS[0])


def test_a_blank_line_is_no_row(marco):
    lines = (marco / "triples.tsv").read_text().splitlines()
    (marco / "triples.tsv").write_text("\n".join(["", *lines[:2], "  ", *lines[2:], "", ""]))
    store = build(marco)
    assert [store[i] for i in range(len(store))] == [expected(row) for row in ROWS]


def test_judgements_are_positives_without_negatives(marco, capsys):
    (marco / "qrels.train.tsv").write_text("100\t0\t3\t1\n104\t0\t1\t0\n104\t0\t0\t2\n")
    (marco / "beir.tsv").write_text("query-id\tcorpus-id\tscore\n100\t3\t1\n104\t1\t0\n104\t0\t2\n")
    for name in ("qrels.train.tsv", "beir.tsv"):
        store = build(marco, name)
        assert [store[i] for i in range(len(store))] == [expected(("100", "3")), expected(("104", "0"))]
        assert f"{name}: 1 judgements of grade 0 are no positives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("100", "3", "77"), "no passage '77' in {root}/collection.tsv"),
        (("100", "77", "3"), "no passage '77' in {root}/collection.tsv"),
        (("999", "3", "8"), "no query '999' in {root}/queries.tsv"),
        (("100", "3"), "2 column(s), at least 3 are needed: query, positive, negative"),
        (("100", "3", "3"), "the positive '3' is also a negative"),
        (("100", "3", "8", "1"), "3 passage(s) without scores, but the first row had 2 passage(s) without scores"),
        (("what is it", "a text", "a text"), "'what is it' is no id: triples of texts are read as questions"),
        (("100", "", "3"), "'' is no id"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_or_counted(marco, row, reason, capsys):
    tsv(marco / "bad.tsv", [*ROWS[:2], row, *ROWS[2:]])
    reason = reason.format(root=marco)
    with pytest.raises(InterlinguaError) as caught:
        build(marco, "bad.tsv", format="tsv")
    assert f"{marco}/bad.tsv, line 3: {reason}" in str(caught.value)
    assert not (marco / "store").exists()
    store = build(marco, "bad.tsv", format="tsv", on_bad_row="skip")
    assert [store[i] for i in range(len(store))] == [expected(one) for one in ROWS]
    assert f"1 bad row left out:\n  {marco}/bad.tsv, line 3: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("collection.tsv", "3\ta\n8\tb\n3\tc\n", "collection.tsv: the id '3' occurs twice"),
        ("queries.tsv", "100\ta\n100\ta\n", "queries.tsv: the id '100' occurs twice"),
        ("collection.tsv", "3\ta\n8\t \n", "collection.tsv, line 2: '8' has no text"),
        ("collection.tsv", "3\ta\n8\n", "collection.tsv, line 2: 1 column(s)"),
        ("queries.tsv", "100\ta\tfr\n", "queries.tsv, line 1: a query has an id and a text"),
        ("queries.tsv", '{"_id": "1", "text": "où ?", "lang": "fr"}\n', "a query in 'fr' among those in 'en'"),
        ("triples.tsv", "", "triples.tsv: is empty"),
        ("triples.tsv", "100\t77\t78\n", "line 1: no passage '77'"),
        ("triples.jsonl", '[100, [3, "NaN"], [8, 1]]\n', "'NaN' is no score"),
        ("triples.jsonl", "[100, [3, 1], 8]\n", "every passage must be [id, score], or none"),
        ("triples.jsonl", "[100]\n", "line 1: a JSON list is needed"),
        ("triples.jsonl", "[true, 3, 8]\n", "True is no id"),
    ],
)
def test_files_that_cannot_be_used(marco, name, text, reason):
    (marco / name).write_text(text)
    with pytest.raises(InterlinguaError) as caught:
        build(marco, name if name.startswith("triples") else "triples.tsv")
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_nothing_left_is_an_error(marco):
    tsv(marco / "none.tsv", [("1", "2", "3")])
    with pytest.raises(InterlinguaError, match="no triples"):
        build(marco, "none.tsv", on_bad_row="skip")


def test_a_store_is_built_once_and_damage_is_noticed(marco):
    first = build(marco, fingerprint="one")
    (marco / "triples.tsv").unlink()
    assert build(marco, fingerprint="one").digest == first.digest
    with pytest.raises(InterlinguaError, match="no such file"):
        build(marco, fingerprint="two")
    assert len(TripleStore(marco / "store")) == len(ROWS)
    shutil.rmtree(marco / "store" / "queries")
    with pytest.raises(NotFound, match="store/queries: no such folder of records by id"):
        TripleStore(marco / "store")
    tsv(marco / "triples.tsv", ROWS)
    assert build(marco, fingerprint="one").digest == first.digest


def test_the_digest_follows_every_file(marco):
    digests = {build(marco).digest}
    for change in (
        {"passages": marco / "zh.tsv"},
        {"queries": tsv(marco / "q.tsv", ((k, "?") for k in QUERIES))},
        {"name": tsv(marco / "t.tsv", ROWS[::-1]).name},
    ):
        digests.add(build(marco, **change).digest)
    assert len(digests) == 4


def spec(root, **changes):
    options = {"queries": str(root / "queries.tsv"), "passages": str(root / "collection.tsv")}
    return DataSpec(kind="triples", path=str(root / "triples.tsv"), batch=2, **{"options": options, **changes})


def test_a_stream_of_triples_resumes_where_it_was(marco):
    store = open_store("questions", spec(marco), marco / "data")
    stream = open_stream("questions", store, spec(marco), 1)
    batches = [next(stream) for _ in range(3)]
    state, rest = json.loads(json.dumps(stream.state_dict())), [next(stream) for _ in range(4)]
    again = open_stream("questions", open_store("questions", spec(marco), marco / "data", build=False), spec(marco), 1)
    again.load_state_dict(state)
    assert [next(again) for _ in range(4)] == rest
    assert {record.id for batch in batches for record in batch} == {row[0] for row in ROWS}  # all of an epoch
    limited = open_stream("questions", store, spec(marco, limit=2), 1)
    assert len({record for _ in range(9) for record in next(limited)}) == 2
    assert set(texts_of(store, 100)) <= {*QUERIES.values(), *TEXTS.values()}


def test_an_entry_is_read_anew_when_any_of_its_files_changed(marco):
    store = open_store("questions", spec(marco), marco / "data")
    tsv(marco / "collection.tsv", ((key, text + "!") for key, text in TEXTS.items()))
    assert open_store("questions", spec(marco), marco / "data")[0].positives[0].text == "passage 3!"
    stream = open_stream("questions", store, spec(marco), 1)
    with pytest.raises(InterlinguaError, match="another content"):
        open_stream("questions", open_store("questions", spec(marco), marco / "data"), spec(marco), 1).load_state_dict(
            stream.state_dict()
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"queries": "q"}}, "data.questions.options: 'passages' is missing"),
        (
            {"options": {"queries": "q", "passages": "p", "fingerprint": "x"}},
            "data.questions.options: unknown key 'fingerprint'",
        ),
        ({"langs": ["en"]}, "leave out langs"),
    ],
)
def test_options_of_an_entry(marco, changes, reason):
    (marco / "q").write_text("1\ta\n")
    (marco / "p").write_text("1\ta\n")
    for key in ("queries", "passages"):
        if key in changes.get("options", {}):
            changes["options"][key] = str(marco / key[0])
    with pytest.raises(InterlinguaError) as caught:
        open_store("questions", spec(marco, **changes), marco / "data")
    assert reason in str(caught.value)


def test_a_keyed_store_finds_every_id(tmp_path):
    passages = [Passage(f"p{i * 7919 % 500}", f"text {i}") for i in range(500)]
    store = KeyedStore.build(tmp_path, iter(passages), Passage, "here")
    ids = [passage.id for passage in passages]
    assert store.rows_of(ids).tolist() == list(range(500))
    assert store.rows_of(["none", ids[3], "", "p500"]).tolist() == [-1, 3, -1, -1]
    assert [KeyedStore(tmp_path)[row] for row in (0, 499)] == [passages[0], passages[499]]
    assert len(store) == 500


def test_scores_survive_the_store_and_stand_in_jsonl(tmp_path):
    record = QuestionPassage("q?", (Passage("p", "x"),), (Passage("n", "y"),), "en", "1", (0.1, -2.0))
    assert RecordStore.build(tmp_path / "s", [record])[0] == record
    row = {
        "query_id": "1",
        "query": "q?",
        "positive_passages": [{"docid": "p", "text": "x", "lang": "zho"}],
        "negative_passages": [{"docid": "n", "text": "y"}],
    }
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({**row, "scores": [1, -2.5]}) + "\n")
    read = next(read_questions(file))
    assert read.scores == (1.0, -2.5)
    assert [one.lang for one in (*read.positives, *read.negatives)] == ["zh", "en"]
    for wrong, reason in (
        ([1], "1 scores, 2 are needed"),
        ([1, "2"], "finite numbers"),
        (3, "finite numbers"),
        ([1, float("nan")], "finite numbers"),
    ):
        file.write_text(json.dumps({**row, "scores": wrong}) + "\n")
        with pytest.raises(InterlinguaError, match=reason):
            list(read_questions(file))


def test_queries_are_a_kind_of_their_own(tmp_path):
    store = KeyedStore.build(tmp_path, [Query("1", "q", "en")], Query, "here")
    assert store[0] == Query("1", "q", "en")


def test_dprs_passages_are_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text('id\ttext\ttitle\n1\t"Aaron (""A"") is a prophet."\tAaron\n', encoding="utf-8")
    (found,) = id_passages(tmp_path / "p.tsv", BadRows(), "en")
    assert (found.id, found.title, found.text) == ("1", "Aaron", 'Aaron ("A") is a prophet.')


def test_judgements_of_beir_are_csv(tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text('query-id\tcorpus-id\tscore\nq\t"<""Weird""_Al>"\t1\n', encoding="utf-8")
    assert read_qrels(tmp_path / "q.tsv") == {"q": {'<"Weird"_Al>': 1}}
    (tmp_path / "r.tsv").write_text('q1 d"x 1\nq2\t"d\t1\n', encoding="utf-8")  # a quote like any other sign
    assert read_qrels(tmp_path / "r.tsv") == {"q1": {'d"x': 1}, "q2": {'"d': 1}}
    (triple,) = _read_qrels(tmp_path / "q.tsv", BadRows(), NoOptions())
    assert triple.passages == ('<"Weird"_Al>',)
