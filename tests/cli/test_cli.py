"""Every verb as a person types it, along the main street: train, evaluate, encode, index, search, compare."""

import contextlib
import gzip
import io
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from interlingua.cli import main, names
from interlingua.data import encyclopedia
from interlingua.data.collections import cross, load_collection
from interlingua.data.layouts import read_qrels
from interlingua.evaluation.protocol import evaluate_on
from interlingua.evaluation.tatoeba import tatoeba_file
from interlingua.index.index import Index
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.run import Run
from interlingua.text.languages import normalise_code

RECIPE = {
    "tokenizer_sentences": 400,
    "model": {"backbone": {"static": {"vocab_size": 3000, "dim": 16}}, "encoders": "tied"},
    "data": {
        "questions": {"path": "encyclopedia:train", "batch": 6},
        "parallel": {"path": "encyclopedia:train", "batch": 8},
    },
    "objectives": {"retrieval": {"temperature": 0.05, "hard_negatives": 0}, "semantic": {"weight": 0.5}},
    "optimizer": {"lr": 0.01, "warmup": 2},
    "training": {"steps": 6, "checkpoint_every": 3, "log_every": 3, "tensorboard": False},
}


@dataclass(frozen=True)
class Street:
    """What the first commands left behind."""

    root: Path
    recipe: str
    model: str
    passages: str
    index: str
    said: str


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    root = tmp_path_factory.mktemp("street")
    made = Street(
        root, str(root / "recipe.yaml"), str(root / "run/model"), str(root / "passages.jsonl"), str(root / "index"), ""
    )
    (root / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False), encoding="utf-8")
    rows = [
        {"id": f"{p.id}.{p.lang}", "title": p.title, "text": p.text, "lang": p.lang}
        for lang in ("en", "fi")
        for p in load_collection(f"encyclopedia:{lang}").passages
    ]
    (root / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        # options before, between and after the changes to the recipe
        assert main(["train", made.recipe, "training.log_every=2", "--out", str(root / "run"), "seed=5"]) == 0
        assert main(["index", made.model, made.passages, "--out", made.index]) == 0
    return Street(root, made.recipe, made.model, made.passages, made.index, said.getvalue())


def printed(capsys, *argv):
    """The standard output of a command that must work."""
    capsys.readouterr()
    assert main([str(a) for a in argv]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_train_writes_a_run_with_its_recipe_and_model(street, capsys):
    recipe = yaml.safe_load((street.root / "run/recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["seed"], recipe["training"]["log_every"], recipe["training"]["steps"]) == (5, 2, 6)
    log = [json.loads(line) for line in (street.root / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in log] == [1, 2, 4, 6]
    assert "step 6/6" in street.said
    assert "semantic" in street.said
    before = load_file(street.root / "run/model/model.safetensors")
    assert main(["train", street.recipe, "training.log_every=2", "seed=5", "--out", str(street.root / "run")]) == 0
    captured = capsys.readouterr()
    assert "complete" in captured.err
    assert not captured.out
    after = load_file(street.root / "run/model/model.safetensors")
    assert all(before[name].equal(after[name]) for name in before)


@pytest.mark.slow
def test_evaluate_prints_what_evaluate_on_measures(street, capsys):
    on = ["encyclopedia:en", "encyclopedia:fi"]
    expected = evaluate_on(DualEncoder.load(street.model), map(load_collection, on), ["RR@10"])
    values = {result.collection: result.scores["RR@10"] for result in expected}
    rows = json.loads(printed(capsys, "evaluate", street.model, "--on", *on, "--measures", "RR@10", "--format", "json"))
    cells = {row["column"]: row for row in rows}
    assert cells["en"]["value"] == pytest.approx(values["encyclopedia_en"])
    assert cells["fi"]["value"] == pytest.approx(values["encyclopedia_fi"])
    assert cells["en"]["low"] <= cells["en"]["value"] <= cells["en"]["high"]
    assert cells["en"]["queries"] == len(load_collection("encyclopedia:en").queries)
    every = json.loads(printed(capsys, "evaluate", street.model, "--on", *on, "--format", "json", "--no-intervals"))
    assert list(dict.fromkeys(row["measure"] for row in every)) == ["RR@100", "R@100", "nDCG@10"]
    lines = printed(capsys, "evaluate", street.model, "--on", *on, "--format", "tsv", "--no-intervals").splitlines()
    assert len(lines) == len(every) + 1
    text = printed(capsys, "evaluate", street.model, "--on", *on, "--no-intervals")
    assert [line.split()[0] for line in text.splitlines() if "avg" in line] == ["RR@100", "R@100", "nDCG@10"]
    assert "[" not in text
    markdown = printed(capsys, "evaluate", "--format", "markdown", street.model, "--measures", "RR@10", "--on", *on)
    assert f"{values['encyclopedia_en']:.3f} [" in markdown
    assert markdown.startswith("| RR@10")


def test_two_models_are_two_rows(street, capsys):
    start = street.root / "run/start"
    rows = json.loads(
        printed(
            capsys,
            "evaluate",
            street.model,
            start,
            "--on",
            "encyclopedia:fi",
            "--measures",
            "RR@10",
            "--format",
            "json",
            "--no-intervals",
        )
    )
    assert list(dict.fromkeys(row["system"] for row in rows)) == [street.model, str(start)]


@pytest.mark.slow
def test_evaluate_matrix_over_three_languages(street, capsys):
    langs = ["en", "fi", "sw"]
    on = [f"encyclopedia:{lang}" for lang in langs]
    text = printed(capsys, "evaluate", street.model, "--on", *on, "--matrix", "MRR@10")
    assert text.startswith(f"{street.model}\nRR@10: q \\ p")
    assert [line.split()[0] for line in text.splitlines()[3:6]] == langs
    out = printed(capsys, "evaluate", street.model, "--on", *on, "--matrix", "--format", "json")
    cells = {
        (row["questions"], row["passages"], row["measure"]): row["value"]
        for row in json.loads(out)
        if row["system"] == str(street.model)
    }
    expected = evaluate_on(
        DualEncoder.load(street.model),
        [cross(load_collection("encyclopedia:sw"), load_collection("encyclopedia:en"))],
        ["RR@100"],
    )
    assert cells["sw", "en", "RR@100"] == pytest.approx(expected[0].scores["RR@100"])
    assert len(cells) == 9 + 3 + 3
    shallow = json.loads(
        printed(capsys, "evaluate", street.model, "--on", *on, "--matrix", "AP", "--depth", 1, "--format", "json")
    )
    deep = json.loads(printed(capsys, "evaluate", street.model, "--on", *on, "--matrix", "AP", "--format", "json"))
    assert shallow[0]["value"] < deep[0]["value"]


def test_evaluate_on_translations(street, tmp_path, capsys):
    files = []
    for lang in ("fin", "swh"):
        collection = load_collection(f"encyclopedia:{normalise_code(lang)}")
        titles = {p.id: p.text for p in load_collection("encyclopedia:en").passages}
        rows = [f"{p.text}\t{titles[p.id]}\n" for p in collection.passages[:20]]
        with gzip.open(tmp_path / f"{lang}-eng.tsv.gz", "wt", encoding="utf-8") as stream:
            stream.writelines(rows)
        files.append(str(tmp_path / f"{lang}-eng.tsv.gz"))
    start = str(street.root / "run/start")
    rows = json.loads(printed(capsys, "evaluate", street.model, start, "--tatoeba", *files, "--format", "json"))
    assert [(row["system"], row["language"]) for row in rows] == [
        (model, lang) for model in (street.model, start) for lang in ("fi", "sw", "avg")
    ]
    expected = [tatoeba_file(DualEncoder.load(street.model), file) for file in files]
    for key in ("forward", "backward", "mean"):
        values = [getattr(result, key) for result in expected]
        assert [row[key] for row in rows[:3]] == pytest.approx([*values, sum(values) / 2])
    text = printed(capsys, "evaluate", street.model, "--on", "encyclopedia:fi", "--tatoeba", *files)
    assert text.index("nDCG@10") < text.index("Tatoeba")
    assert "forward: a sentence of the language looks for its translation" in text


@pytest.mark.slow
def test_the_average_of_a_mixed_pool_is_not_said_to_be_without_english(street, capsys):
    text = printed(capsys, "evaluate", street.model, "--on", "encyclopedia", "--measures", "RR@10", "--no-intervals")
    assert text.splitlines()[0].split() == ["RR@10", "mul", "avg"]


def test_evaluate_against_other_passages(street, capsys):
    rows = json.loads(
        printed(
            capsys,
            "evaluate",
            street.model,
            "--on",
            "encyclopedia:fi",
            "encyclopedia:sw",
            "--passages",
            "encyclopedia:en",
            "--measures",
            "RR@10",
            "--format",
            "json",
        )
    )
    english = load_collection("encyclopedia:en")
    pairs = [cross(load_collection(f"encyclopedia:{lang}"), english) for lang in ("fi", "sw")]
    expected = evaluate_on(DualEncoder.load(street.model), pairs, ["RR@10"])
    assert [row["value"] for row in rows[:2]] == pytest.approx([result.scores["RR@10"] for result in expected])


def test_runs_are_trec_files_that_read_back_and_compare(street, tmp_path, capsys):
    printed(capsys, "evaluate", street.model, "--on", "encyclopedia:fi", "--runs", tmp_path, "--measures", "RR@10")
    collection = load_collection("encyclopedia:fi")
    qrels, (run,) = tmp_path / "encyclopedia_fi.qrels", tmp_path.glob("*.run")
    assert read_qrels(qrels) == collection.qrels
    expected = evaluate_on(DualEncoder.load(street.model), [collection], ["RR@10"])[0]
    assert Run.read_trec(run) == expected.run
    worse = Run.from_scores({q: {p: -s for p, s in found} for q, found in expected.run.items()})
    worse.write_trec(tmp_path / "worse.run")
    out = printed(
        capsys, "compare", run, tmp_path / "worse.run", "--qrels", qrels, "--measure", "MRR@10", "--test", "permutation"
    )
    assert f"{run}: RR@10 {expected.scores['RR@10']:.4f}" in out
    assert "permutation" in out
    same = printed(capsys, "compare", run, run, "--qrels", qrels)
    assert "difference +0.0000" in same
    assert "not significant" in same


@pytest.mark.parametrize("role", ["query", "passage"])
def test_encode_writes_the_vectors_of_each_line(street, tmp_path, capsys, standard_input, role):
    lines = ["What do bees make?", "Mehiläiset tekevät hunajaa."]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    printed(capsys, "encode", street.model, "--role", role, "--out", tmp_path / "v.npy", tmp_path / "lines.txt")
    model = DualEncoder.load(street.model)
    expected = model.encode_query(lines) if role == "query" else model.encode_document(lines)
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, expected)
    with open(tmp_path / "lines.txt", "rb") as stream, standard_input(stream.fileno()):
        printed(capsys, "encode", street.model, "--role", role, "--out", tmp_path / "stdin.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "stdin.npy"), vectors)


def test_search_prints_the_hits_of_the_index(street, capsys):
    question = "What do bees make?"
    expected = Index.open(street.index).search(question, k=3)
    hits = [
        json.loads(line)
        for line in printed(capsys, "search", street.index, "-k", 3, *question.split(), "--json").splitlines()
    ]
    assert [(h["id"], h["rank"]) for h in hits] == [(h.passage.id, r) for r, h in enumerate(expected, 1)]
    assert [h["score"] for h in hits] == pytest.approx([h.score for h in expected])
    text = printed(capsys, "search", street.index, question, "-k", 1)
    assert text.startswith(
        f" 1. {expected[0].score:.3f} [{expected[0].passage.lang}] {expected[0].passage.title}  (passages.jsonl)\n"
    )


@pytest.mark.parametrize(("asked", "kept"), [("fi", {"fi"}), ("en,fi", {"en", "fi"}), ("EN-GB", {"en"})])
def test_results_in_the_languages_asked_for(street, capsys, asked, kept):
    out = printed(capsys, "search", street.index, "kahvi coffee", "-k", 200, "--json", "--lang-of-results", asked)
    hits = [json.loads(line) for line in out.splitlines()]
    assert {hit["lang"] for hit in hits} == kept
    assert len(hits) == min(200, 112 * len(kept))


def test_an_index_and_its_model_can_be_moved(street, tmp_path, capsys):
    shutil.copytree(street.model, tmp_path / "first")
    printed(capsys, "index", tmp_path / "first", "encyclopedia:fi", "--out", tmp_path / "index")
    before = printed(capsys, "search", tmp_path / "index", "kahvi")
    (tmp_path / "first").rename(tmp_path / "second")
    assert main(["search", str(tmp_path / "index"), "kahvi"]) == 2
    assert "Say where it is with --model" in capsys.readouterr().err
    assert printed(capsys, "search", tmp_path / "index", "kahvi", "--model", tmp_path / "second") == before
    assert main(["search", str(tmp_path / "index"), "kahvi", "--model", str(street.root / "run/start")]) == 2
    assert "made with another model" in capsys.readouterr().err


def test_an_index_is_replaced_when_asked(street, tmp_path, capsys):
    shutil.copytree(street.index, tmp_path / "index")
    printed(capsys, "index", street.model, "encyclopedia:sw", "--out", tmp_path / "index", "--overwrite")
    assert Index.open(tmp_path / "index").languages == {"sw": len(encyclopedia.topics())}


def test_inspect_the_encyclopedia(capsys):
    out = printed(capsys, "inspect")
    for title in ("topics", "sentences", "collection encyclopedia"):
        assert f"{title}\n" in out
    for lang in encyclopedia.languages():
        assert any(line.startswith(lang) for line in out.splitlines())


@pytest.mark.parametrize(
    ("kind", "name", "content", "langs"),
    [
        (
            "questions",
            "q.jsonl",
            '{"question": "who?", "passage": "she"}\n{"question": "kuka?", "passage": "hän", "lang": "fi"}\n',
            ["en", "fi"],
        ),
        ("parallel", "fi-en.tsv", "talo\thouse\nkissa\tcat\n", ["fi"]),
        ("sentences", "s.jsonl", '{"text": "talo", "lang": "fi"}\n', ["fi"]),
        ("documents", "d.jsonl", '{"sentences": ["One.", "Two."], "lang": "en"}\n', ["en"]),
    ],
)
def test_inspect_each_kind(tmp_path, capsys, kind, name, content, langs):
    (tmp_path / name).write_text(content, encoding="utf-8")
    out = printed(capsys, "inspect", "--kind", kind, tmp_path / name)
    title, header, _, *rows = out.splitlines()
    assert title == f"{kind} {tmp_path / name}"
    assert "records" in header.split()
    assert [lang for lang in langs if any(row.startswith(lang) for row in rows)] == langs


def counted(out):
    """Language → records of a printed summary."""
    return {row.split()[0]: int(row.split()[1]) for row in out.splitlines()[3:] if row}


def test_inspect_passes_its_options_to_the_reader(tmp_path, capsys):
    (tmp_path / "pairs").write_text("1.2\ttalo\thouse\n1.0\tkissa\tcat\n1.05\n", encoding="utf-8")
    given = [
        "inspect",
        "--kind",
        "parallel",
        "--format",
        "wikimatrix",
        tmp_path / "pairs",
        "--option",
        "source_lang=fi",
        "--option",
        "target_lang=en",
        "--on-bad-row",
        "skip",
    ]
    assert counted(printed(capsys, *given, "--option", "threshold=1.1"))["fi"] == 1
    assert counted(printed(capsys, *given, "--option", "threshold=0.5"))["fi"] == 2
    assert main([str(word) for word in given]) == 0
    assert "1 bad row left out" in capsys.readouterr().err
    (tmp_path / "sw-en.tsv").write_text("nyumba\thouse\n", encoding="utf-8")
    out = printed(capsys, "inspect", "--kind", "sentences", tmp_path / "sw-en.tsv", "--side", "foreign")
    assert list(counted(out)) == ["sw"]
    (tmp_path / "lines").write_text("talo\n", encoding="utf-8")
    assert "fi" in counted(printed(capsys, "inspect", "--kind", "sentences", tmp_path / "lines", "--lang", "fi"))


def test_inspect_a_collection_folder(tmp_path, capsys):
    folder = tmp_path / "mine_fi"
    folder.mkdir()
    (folder / "passages.jsonl").write_text('{"id": "1", "text": "talo"}\n', encoding="utf-8")
    (folder / "queries.tsv").write_text("q\tmikä?\n", encoding="utf-8")
    (folder / "qrels.txt").write_text("q 0 1 1\n", encoding="utf-8")
    assert "fi" in printed(capsys, "inspect", folder, "--kind", "collection")
    folder.rename(tmp_path / "mine")
    assert "fi" in printed(capsys, "inspect", tmp_path / "mine", "--lang", "fi")


def test_train_does_not_write_over_the_recipe_that_it_is_given(street, capsys, tmp_path):
    shutil.copyfile(street.recipe, tmp_path / "recipe.yaml")
    before = (tmp_path / "recipe.yaml").read_text(encoding="utf-8")
    assert main(["train", str(tmp_path / "recipe.yaml"), "training.steps=2", "--out", str(tmp_path)]) == 2
    assert "would write its own recipe.yaml over" in capsys.readouterr().err
    assert (tmp_path / "recipe.yaml").read_text(encoding="utf-8") == before


def test_plan_prints_the_recipe_that_train_would_keep(street, capsys):
    out = printed(capsys, "plan", street.recipe, "training.steps=9", "objectives.retrieval.hard_negatives=1")
    recipe = yaml.safe_load(out)
    assert recipe["training"]["steps"] == 9
    assert recipe["data"]["questions"] == {**recipe["data"]["questions"], "path": "encyclopedia:train", "batch": 6}
    assert "# retrieval: 6 questions, up to 12 candidates, chance loss 2.485" in out
    assert "# semantic: weight 0.5" in out
    assert "# 9 steps" in out
    assert "no objective reads it" not in out
    out = printed(capsys, "plan", street.recipe, "data.more={path: 'encyclopedia:train', kind: questions}")
    assert "# data.more: no objective reads it" in out
    more = [
        "data.more={path: 'encyclopedia:train', kind: questions, batch: 8}",
        "objectives.retrieval.hard_negatives=1",
    ]
    out = printed(capsys, "plan", street.recipe, *more, "objectives.retrieval.reads={questions: more}")
    assert "# retrieval: 8 questions, up to 16 candidates" in out


@pytest.mark.slow
def test_reproduce_says_what_it_would_run(capsys):
    assert main(["reproduce", "hu2023/table2", "--plan", "--data", "/data", "--seeds", "3"]) == 2  # no data is there
    rows = capsys.readouterr().out.partition("Rows:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split(":")[0] for line in rows] == ["- retrieval", "- + semantic", "- + language", "- + both"]
    assert all("3 seed(s)" in line for line in rows)


def test_an_unknown_verb_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["serach", "index", "question"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said == "interlingua: unknown verb 'serach'. Did you mean 'search'? See `interlingua --help`.\n"


def test_a_wrong_choice_is_not_called_a_verb(street, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", street.model, "--on", "encyclopedia:fi", "--format", "html"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("interlingua: argument --format: invalid choice: 'html'")
    assert said.endswith("See `interlingua evaluate --help`.\n")


@pytest.mark.parametrize("verb", names())
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: interlingua {verb}")


def test_no_verb_prints_the_help_with_every_verb(capsys):
    out = printed(capsys)
    listed = out.partition("\nverbs:\n")[2].splitlines()
    assert [line.split()[0] for line in listed if line.startswith("    ") and line[4] != " "] == names()


@pytest.mark.parametrize(
    "code",
    [
        "import interlingua; dir(interlingua)",
        "from interlingua.cli import main; main(['--help'])",
        "from interlingua.cli import main; main(['serach'])",
    ],
)
def test_nothing_heavy_is_imported_before_a_verb_runs(code):
    heavy = "{'torch', 'transformers', 'numpy', 'pydantic', 'yaml', 'tokenizers'}"
    program = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"found = {heavy} & set(sys.modules)\nassert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_module_runs_as_a_command():
    command = [sys.executable, "-m", "interlingua", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("interlingua ")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_memory_that_cannot_be_had_is_no_defect(error, monkeypatch, capsys):
    def large(arguments):
        raise error

    monkeypatch.setattr("interlingua.cli.info.run", large)
    assert main(["info", "x"]) == 2
    assert "there is not enough memory" in capsys.readouterr().err


def test_a_defect_is_one_line_and_keeps_its_traceback(tmp_path, monkeypatch, capsys):
    def broken(arguments):
        raise RuntimeError("nobody\nexpected this")

    monkeypatch.setattr("interlingua.cli.info.run", broken)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["info", "x"]) == 70
    (said,) = capsys.readouterr().err.splitlines()
    (file,) = (tmp_path / "interlingua/crashes").iterdir()
    assert said.startswith("interlingua: this is a defect in interlingua (RuntimeError: nobody expected this).")
    assert str(file) in said
    assert "in broken" in file.read_text()
    assert main(["info", "x", "--debug"]) == 70
    assert "in broken" in capsys.readouterr().err
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert main(["info", "x"]) == 70
    assert "--debug shows where" in capsys.readouterr().err
