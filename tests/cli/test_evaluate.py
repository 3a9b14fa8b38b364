"""`interlingua evaluate` on translations and on XOR-Retrieve, as a person types it."""

import json
import sys
from contextlib import closing

import numpy as np
import pytest

from interlingua.cli import main
from interlingua.data.collections import load_collection
from interlingua.data.readers import read_parallel
from interlingua.evaluation import language_projection, recall_at_tokens, tatoeba_file, tatoeba_pairs
from interlingua.evaluation import xor as xor_retrieve
from interlingua.evaluation.tatoeba import pivot_pairs
from interlingua.index import Index
from interlingua.index.metadata import Question
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.retrieval.run import Run

LANGS = {"fin": "fi", "swh": "sw", "kor": "ko"}


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_static, tiny_encoder):
    """A folder with two models, one of them of two encoders, translations, and questions with answers."""
    root = tmp_path_factory.mktemp("place")
    tiny_static().save(root / "static")
    DualEncoder(tiny_encoder(layers=3), tiny_encoder(layers=3, seed=5)).save(root / "two")
    english = {p.id: p.text for p in load_collection("encyclopedia:en").passages}
    (root / "tatoeba").mkdir()
    for i, (long, short) in enumerate(LANGS.items()):
        rows = [f"{p.text}\t{english[p.id]}\n" for p in load_collection(f"encyclopedia:{short}").passages]
        (root / "tatoeba" / f"{long}-eng.tsv").write_text("".join(rows[5 * i : 5 * i + 30]), encoding="utf-8")
    with open(root / "xor.jsonl", "w", encoding="utf-8") as stream:
        for lang in ("fi", "ko"):
            for query in load_collection(f"encyclopedia:{lang}").queries[:8]:
                answer = english[next(iter(load_collection(f"encyclopedia:{lang}").qrels[query.id]))].split()[3]
                stream.write(
                    json.dumps(
                        {"id": f"{lang}{query.id}", "question": query.text, "lang": lang, "answers": [answer, "yes"]}
                    )
                    + "\n"
                )
    return root


@pytest.fixture
def words(monkeypatch):
    """A tokeniser that needs no downloaded data."""
    monkeypatch.setattr(xor_retrieve, "nltk_tokenizer", lambda: str.split)


def printed(capsys, *argv):
    """The standard output of a command that must work."""
    capsys.readouterr()
    assert main(["evaluate", *map(str, argv)]) == 0
    return capsys.readouterr().out


def tables(out):
    """The rows of every JSON table printed."""
    rows, at, decoder = [], 0, json.JSONDecoder()
    while (at := out.find("[", at)) >= 0:
        found, at = decoder.raw_decode(out, at)
        rows += found
    return rows


def test_a_folder_of_translations_and_the_protocol_of_xtreme(place, capsys):
    rows = tables(
        printed(
            capsys, place / "static", "--tatoeba", place / "tatoeba", "--tatoeba-protocol", "xtreme", "--format", "json"
        )
    )
    assert [row["language"] for row in rows] == ["fi", "ko", "sw", "avg"]
    model = DualEncoder.load(place / "static")
    two = DualEncoder.load(place / "two")
    given = ["--tatoeba", place / "tatoeba", "--format", "json", "--role", "query"]
    for row in tables(printed(capsys, place / "two", *given))[:3]:
        assert row["mean"] == tatoeba_file(two, row["file"], "query").mean
    for row in rows[:3]:
        assert row["xtreme"] == tatoeba_file(model, row["file"]).backward
        assert "mean" not in row


def test_of_several_processes_the_first_alone_measures_sentences(place, capsys, monkeypatch):
    verb = sys.modules["interlingua.cli.evaluate.evaluate"]
    monkeypatch.setattr(verb, "model_systems", lambda *_: {})  # as in the others
    assert printed(capsys, place / "static", "--on", "encyclopedia:fi", "--tatoeba", place / "tatoeba") == ""


def test_pairs_from_files_of_one_name_are_all_measured(place, capsys, tmp_path):
    for lang in ("fi", "sw", "ko"):
        (tmp_path / lang).mkdir()
        units = "".join(
            f'<tu><tuv xml:lang="en"><seg>line {i}</seg></tuv><tuv xml:lang="{lang}"><seg>{lang} {i}</seg></tuv></tu>'
            for i in range(4)
        )
        (tmp_path / lang / "m.tmx").write_text(f'<tmx version="1.4"><body>{units}</body></tmx>')
    files = [str(file) for file in tmp_path.glob("*/m.tmx")]
    given = ["--tatoeba", *files, "--pairs", "fi-sw", "fi-ko", "--format", "json"]
    rows = tables(printed(capsys, place / "static", *given))
    assert [row["file"] for row in rows[:2]] == ["m.tmx + m.tmx (fi-sw)", "m.tmx + m.tmx (fi-ko)"]


def test_pairs_without_english(place, capsys):
    assert (
        main(
            [
                "evaluate",
                str(place / "static"),
                "--tatoeba",
                str(place / "tatoeba"),
                "--pairs",
                "fi-sw",
                "ko-fin",
                "--format",
                "json",
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    few = "pairs through English; an accuracy over fewer than 100 says little"
    assert captured.err.splitlines()[:2] == [f"fi-sw: 25 {few}", f"ko-fi: 20 {few}"]
    rows = json.loads(captured.out)
    assert [(row["file"], row["language"], row["pairs"]) for row in rows[:2]] == [
        ("fin-eng.tsv + swh-eng.tsv", "fi-sw", 25),
        ("kor-eng.tsv + fin-eng.tsv", "ko-fi", 20),
    ]
    sides = [list(read_parallel(place / "tatoeba" / f"{lang}-eng.tsv")) for lang in ("fin", "swh")]
    expected = tatoeba_pairs(DualEncoder.load(place / "static"), pivot_pairs(*sides).pairs)
    assert rows[0]["mean"] == expected.mean


@pytest.mark.slow
def test_a_layer_is_pooled_in_both_encoders_of_a_model(place, tmp_path, capsys, tiny_encoder):
    file = tmp_path / "fin-eng.tsv"  # every other word of the English: near enough for a random model
    texts = [passage.text for passage in load_collection("encyclopedia:en").passages[:60]]
    file.write_text("".join(f"{' '.join(text.split()[::2])}\t{text}\n" for text in texts), encoding="utf-8")
    rows = tables(
        printed(capsys, place / "two", "--tatoeba", file, "--layer", 1, "--pooling", "mean", "--format", "json")
    )
    assert rows[0]["system"] == f"{place / 'two'} (layer 1, mean)"
    whole = tiny_encoder(layers=3, seed=5, pooling="mean")
    ids = whole.tokenize([pair.source for pair in read_parallel(file)], "passage")
    _, lengths, early = whole.token_states(ids, 1)
    by_hand = [part.mean(0).detach().numpy() for part in early.split(lengths.tolist())]
    cut = Encoder.of(DualEncoder.load(place / "two").passage.parts(), layer=1, pooling="mean")
    np.testing.assert_allclose(cut.encode_document([pair.source for pair in read_parallel(file)]), by_hand, atol=1e-4)
    expected = tatoeba_file(cut, file)
    assert (rows[0]["forward"], rows[0]["backward"]) == (expected.forward, expected.backward)
    assert 0 < expected.mean < 1
    assert expected != tatoeba_file(DualEncoder.load(place / "two"), file)


def test_a_picture_that_cannot_be_is_said_before_anything_is_encoded(place, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(DualEncoder, "load", lambda *_, **__: pytest.fail("loaded before the error was found"))
    tatoeba = ["--tatoeba", str(place / "tatoeba/fin-eng.tsv"), "--picture", f"{tmp_path}/p.gif"]
    assert main(["evaluate", str(place / "static"), *tatoeba]) == 2
    assert "p.gif: a figure's name must end in .svg, .png or .pdf." in capsys.readouterr().err


@pytest.mark.slow
def test_a_picture_and_the_numbers_beside_it(place, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    models = [str(place / name) for name in ("static", "two")]
    rows = json.loads(
        printed(
            capsys,
            *models,
            "--tatoeba",
            place / "tatoeba/fin-eng.tsv",
            "--picture",
            tmp_path / "p.svg",
            "--format",
            "json",
        )
    )
    expected = language_projection(
        {name: DualEncoder.load(name) for name in models}, list(read_parallel(place / "tatoeba/fin-eng.tsv"))
    )
    assert [row["distance"] for row in rows[1::2]] == [None, None]  # means over files have no picture
    assert [(row["system"], row["distance"], row["mean"]) for row in rows[::2]] == [
        (name, pytest.approx(expected[name].distance), expected[name].accuracy.mean) for name in models
    ]
    assert [row["language"] for row in rows] == ["fi", "avg"] * 2
    assert (tmp_path / "p.svg").read_text(encoding="utf-8").count('id="axes_') == 2


def test_xor_retrieve_and_its_run_scored_again(place, tmp_path, capsys, words):
    given = ["--xor", place / "xor.jsonl", "--passages", "encyclopedia:en", "--format", "json"]
    model = str(place / "static")
    rows = tables(printed(capsys, model, *given, "--depth", 3, "--runs", tmp_path))
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    assert measures == ["R@2kt", "R@5kt", "R@2kt, answers tokenised", "R@5kt, answers tokenised"]
    (file,) = tmp_path.glob("*.run")
    run = Run.read_trec(file)
    passages = load_collection("encyclopedia:en").passages
    expected = recall_at_tokens(run, passages, xor_questions(place), 2000, tokenize=str.split)
    assert {row["column"]: row["value"] for row in rows[:3]} == {
        "fi": expected["fi"],
        "ko": expected["ko"],
        "avg w/o en": expected["mean"],
    }
    assert 0 < expected["mean"] < 100
    again = tables(printed(capsys, *given, "--predictions", file))
    assert [row["value"] for row in again] == [row["value"] for row in rows]

    texts = {passage.id: passage.text for passage in passages}
    official = [{"id": query, "lang": query[:2], "ctxs": [texts[name] for name in run.ids(query)]} for query in run]
    (tmp_path / "p.json").write_text(json.dumps(official), encoding="utf-8")
    both = tables(printed(capsys, model, *given, "--depth", 1, "--predictions", tmp_path / "p.json"))
    assert [row["value"] for row in both if row["system"] == str(tmp_path / "p.json")] == [row["value"] for row in rows]
    assert {row["system"] for row in both} == {model, str(tmp_path / "p.json")}


@pytest.mark.parametrize("kind", ["run", "json"])
def test_predictions_that_lack_questions_are_named_and_the_rest_is_printed(place, tmp_path, capsys, words, kind):
    passage, questions = load_collection("encyclopedia:en").passages[0], xor_questions(place)
    file = tmp_path / f"some.{kind}"
    if kind == "run":
        Run.from_scores({query.id: {passage.id: 1.0} for query in questions[2:]}).write_trec(file)
    else:
        found = [{"id": query.id, "lang": query.lang, "ctxs": [passage.text]} for query in questions[2:]]
        file.write_text(json.dumps(found), encoding="utf-8")
    given = ["--xor", place / "xor.jsonl", "--passages", "encyclopedia:en", "--predictions", file, "--format", "json"]
    assert main(["evaluate", *map(str, given)]) == 2
    out, said = capsys.readouterr()
    assert {row["column"] for row in tables(out)} == {"fi", "ko", "avg w/o en"}
    assert said.splitlines()[-1] == (
        f"interlingua: the tables are printed, and are not complete: {file}: no results for 2 of the 16 queries of "
        f"{place / 'xor.jsonl'}, such as '{questions[0].id}'; they count as nothing found"
    )


def xor_questions(place):
    from interlingua.data.irds import read_answered

    return read_answered(place / "xor.jsonl")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["static", "--pairs", "de-fr"], "say what to measure on"),
        (["static", "--on", "encyclopedia:fi", "--passages", "encyclopedia:en", "--matrix"], "--matrix searches the"),
        (["static", "--tatoeba", "tatoeba", "--split", "dev"], "--split is for"),
        (["--pipeline", "bm25", "--on", "encyclopedia:fi", "--xor", "xor.jsonl"], "say which MODEL to measure"),
        (["--xor", "xor.jsonl", "--predictions", "p", "--layer", "2"], "--layer is for MODELs, and none is named"),
        (["static", "--on", "encyclopedia:fi", "--pairs", "de-fr"], "--pairs is for translations"),
        (
            ["static", "--on", "encyclopedia:fi", "--tatoeba-protocol", "xtreme"],
            "--tatoeba-protocol is for translations",
        ),
        (["static", "--on", "encyclopedia:fi", "--picture", "p.svg"], "--picture is for translations"),
        (["static", "--tatoeba", "tatoeba", "--predictions", "p"], "--predictions is for XOR-Retrieve"),
        (["static", "--tatoeba", "tatoeba", "--picture", "p.svg"], "one pair of languages, these are 3"),
        (["static", "--tatoeba", "tatoeba", "--pairs", "fi-ko", "ko-fi"], "two of them are the same languages"),
        (
            ["static", "--tatoeba", "tatoeba", "--pairs", "fi-ko", "--tatoeba-protocol", "xtreme"],
            "XTREME asks in English",
        ),
        (["static", "--tatoeba", "tatoeba", "--pairs", "fi-de"], "no file has 'de' and English"),
        (["static", "--xor", "xor.jsonl"], "--xor needs the English passages"),
        (["--xor", "xor.jsonl"], "say which MODEL"),
        (["--tatoeba", "tatoeba"], "say which MODEL"),
        (["static", "--xor", "nowhere.jsonl", "--passages", "encyclopedia:en"], "nowhere.jsonl: no such file"),
        (
            ["static", "--on", "encyclopedia:fi", "--xor", "xor.jsonl", "--passages", "encyclopedia:en"],
            "for both --on and",
        ),
        (["static", "--layer", "1", "--tatoeba", "tatoeba"], "a static backbone has mean pooling, no layers"),
        (["two", "--layer", "4", "--tatoeba", "tatoeba"], "this model has hidden states 0 to 3"),
    ],
)
def test_what_a_person_can_mend_is_one_line(place, capsys, monkeypatch, argv, said):
    monkeypatch.chdir(place)
    assert main(["evaluate", *argv]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("interlingua: ")
    assert said in error


def test_a_run_needs_the_texts_of_its_passages(place, tmp_path, capsys):
    (tmp_path / "a.run").write_text("fiq Q0 1 1 0.5 t\n", encoding="utf-8")
    assert main(["evaluate", "--xor", str(place / "xor.jsonl"), "--predictions", str(tmp_path / "a.run")]) == 2
    assert "a TREC run names passages" in capsys.readouterr().err


@pytest.mark.slow
def test_vectors_on_the_disk_give_the_same_table_and_are_made_once(place, tmp_path, capsys):
    wanted = (place / "static", "--on", "encyclopedia:fi", "encyclopedia:sw", "--measures", "RR@10")
    plain = printed(capsys, *wanted)
    assert printed(capsys, *wanted, "--vectors", tmp_path / "vectors") == plain
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "vectors").rglob("*.npy")}
    assert len(files) == 2
    assert printed(capsys, *wanted, "--vectors", tmp_path / "vectors") == plain
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "vectors").rglob("*.npy")} == files


@pytest.mark.parametrize("option", [["--matrix"], ["--pipeline", "bm25"]])
def test_vectors_are_for_tables_of_models(place, capsys, option):
    argv = ["evaluate", str(place / "static"), "--on", "encyclopedia:fi", *option, "--vectors", "v"]
    assert main(argv) == 2
    assert "Leave --vectors out" in capsys.readouterr().err


def test_the_rows_of_an_index_are_what_it_finds(place, tmp_path, capsys):
    fi = load_collection("encyclopedia:fi")
    assert main(["index", str(place / "static"), "encyclopedia:fi", "--out", str(tmp_path / "idx")]) == 0
    out = printed(
        capsys, place / "static", "--index", tmp_path / "idx", "--on", "encyclopedia:fi", "--measures", "RR@100", "R@5",
        "--format", "json", "--runs", tmp_path / "runs",
    )  # fmt: skip
    values = {(row["system"], row["measure"]): row["value"] for row in tables(out) if row["column"] == "fi"}
    modes = ("hybrid", "dense", "lexical")
    assert {name for name, _ in values} == {str(place / "static"), *(f"{tmp_path / 'idx'} ({m})" for m in modes)}
    with closing(Index.open(tmp_path / "idx")) as index:
        for mode in modes:
            found = {q.id: index.search(Question(q.text, q.lang), 100, mode=mode) for q in fi.queries}
            names = {query: [*(hit.passage.id for hit in hits), *fi.qrels[query]] for query, hits in found.items()}
            ranks = [names[query].index(next(iter(fi.qrels[query]))) + 1 for query in found]
            expected = sum(1 / rank for rank, hits in zip(ranks, found.values(), strict=True) if rank <= len(hits))
            assert values[f"{tmp_path / 'idx'} ({mode})", "RR@100"] == pytest.approx(expected / len(ranks)), mode
    assert len(list((tmp_path / "runs").glob("*.run"))) == 4


def asked_of(place, judged):
    """The arguments that measure the index at `place` where each of `judged`, question → id, has this one answer."""
    asked = place.parent / "asked"
    asked.mkdir(exist_ok=True)
    rows = [(f"q{number}", question, id) for number, (question, id) in enumerate(judged.items())]
    (asked / "passages.jsonl").write_text("".join(json.dumps({"id": id, "text": "x"}) + "\n" for *_, id in rows))
    (asked / "queries.tsv").write_text("".join(f"{name}\t{question}\n" for name, question, _ in rows))
    (asked / "qrels.txt").write_text("".join(f"{name} 0 {id} 1\n" for name, _, id in rows))
    return ["--index", place, "--on", asked, "--lang", "en", "--measures", "RR@100", "--format", "json"]


def lexical(capsys, place, judged):
    """RR@100 of the row of its lexical search."""
    rows = tables(printed(capsys, *asked_of(place, judged)))
    return {row["system"]: row["value"] for row in rows if row["column"] == "en"}[f"{place} (lexical)"]


def indexed(tiny_static, files, place, size):
    """Index some files by a small model, in chunks of so many characters."""
    tiny_static().save(place.parent / "model")
    argv = ["index", place.parent / "model", files, "--out", place, "--chunk-chars", size, "--lang", "en"]
    assert main(list(map(str, argv))) == 0


def test_documents_of_an_index_are_judged_where_its_passages_are_not(tmp_path, capsys, tiny_static):
    (tmp_path / "docs").mkdir()
    for name, words in (("a.txt", "storm sea wind"), ("b.txt", "bread oven flour")):
        (tmp_path / "docs" / name).write_text("\n\n".join(f"{words} {n}." * 9 for n in range(6)))
    indexed(tiny_static, tmp_path / "docs", tmp_path / "idx", 120)
    assert lexical(capsys, tmp_path / "idx", {"storm sea": "docs/a.txt", "bread flour": "docs/b.txt"}) == 1
    assert main(["evaluate", *map(str, asked_of(tmp_path / "idx", {"storm sea": "other"}))]) == 2
    assert "has none of the ids that asked judges, such as 'other'" in capsys.readouterr().err


def test_rows_that_were_cut_and_rows_that_were_not_are_judged_together(tmp_path, capsys, tiny_static):
    rows = ["id,text", "r1,storm sea wind", "r2," + " ".join(f"bread oven flour {n}." for n in range(60))]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    indexed(tiny_static, tmp_path / "rows.csv", tmp_path / "idx", 200)
    assert lexical(capsys, tmp_path / "idx", {"storm sea": "r1", "bread flour": "r2"}) == 1
