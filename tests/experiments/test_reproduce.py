"""A table from its file to its Markdown: trained once, measured, kept, and presented with averages and intervals."""

import json
import re
import shutil
import socket
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest

from interlingua.cli import main
from interlingua.data.collections import cross, load_collection
from interlingua.errors import InterlinguaError
from interlingua.evaluation.protocol import evaluate_on
from interlingua.experiments import run as reproduce
from interlingua.experiments.present import present
from interlingua.experiments.run import Reproduction, slug
from interlingua.experiments.spec import read_table
from interlingua.models.dual import DualEncoder
from interlingua.training.build import train
from interlingua.training.trainer import Stopped

STATIC = "{static: {vocab_size: 3000, dim: 16}}"
RECIPE = f"""
tokenizer_sentences: 400
model: {{backbone: {STATIC}, encoders: tied}}
data:
  questions: {{path: "encyclopedia:train", batch: 6}}
  parallel: {{path: "encyclopedia:train", batch: 8}}
objectives:
  retrieval: {{temperature: 0.05, hard_negatives: 0}}
  semantic: {{temperature: 0.05}}
optimizer: {{lr: 0.01}}
training: {{steps: 3, tensorboard: false}}
"""
START = f"""
tokenizer_sentences: 400
model: {{backbone: {STATIC}, encoders: tied}}
data: {{questions: {{kind: cloze, path: encyclopedia, batch: 8}}}}
objectives: {{retrieval: {{temperature: 0.05, hard_negatives: 0}}}}
training: {{steps: 2, tensorboard: false}}
"""
TABLE = """
title: "A small table"
measures: [RR@10, R@10]
scales:
  tiny: {start: start.yaml, recipe: recipe.yaml, suites: suites.yaml}
  files: {recipe: recipe.yaml, suites: files.yaml}
rows:
  retrieval: {set: ["objectives.semantic=null"]}
  + semantic: {set: []}
subsets: {tiny: {northern: [fi]}}
expected:
  mono: {RR@10: {retrieval: {fi: .25, sw: .5}}}
"""
SUITES = """
mono: {collections: {fi: "encyclopedia:fi", sw: "encyclopedia:sw"}}
to English: {passages: "encyclopedia:en", collections: {fi: "encyclopedia:fi"}}
"""
FILES = """
mono: {collections: {fi: "{data}/xquad_fi"}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The table's file, and the results of its first run with two seeds."""
    root = tmp_path_factory.mktemp("table")
    for name, content in (("small", TABLE), ("recipe", RECIPE), ("start", START), ("suites", SUITES), ("files", FILES)):
        (root / f"{name}.yaml").write_text(content, encoding="utf-8")
    table = read_table(str(root / "small.yaml"))
    return root, table, Reproduction(table, "small", "tiny", None, root / "out", seeds=2, device="cpu").run()


@pytest.mark.slow
def test_every_row_is_trained_with_every_seed_from_one_start(made):
    root, _, results = made
    folders = {str(path.parent.relative_to(root / "out")) for path in (root / "out").rglob("values.json")}
    assert folders == {f"small/tiny/{row}/seed-{seed}" for row in ("retrieval", "semantic") for seed in (1, 2)}
    assert list(results) == ["retrieval", "+ semantic"]
    assert [len(runs) for runs in results.values()] == [2, 2]
    for row in ("retrieval", "semantic"):
        assert results["retrieval"][0] != results["retrieval"][1]
        recipe = (root / f"out/small/tiny/{row}/seed-2/recipe.yaml").read_text(encoding="utf-8")
        assert "seed: 2" in recipe
        assert f"backbone: {root}/out/starts/{slug(root.name)}-start/model" in recipe
    assert (root / f"out/starts/{slug(root.name)}-start/log.jsonl").exists()


def test_values_are_those_of_every_query(made):
    root, _, results = made
    model = DualEncoder.load(root / "out/small/tiny/semantic/seed-1/model")
    finnish, english = load_collection("encyclopedia:fi"), load_collection("encyclopedia:en")
    mono = evaluate_on(model, [finnish], ["RR@10", "R@10"])[0].scores
    values = results["+ semantic"][0]
    assert list(values) == ["mono", "to English"]
    assert values["mono"]["RR@10"]["fi"] == pytest.approx(mono.per_query["RR@10"])
    assert values["mono"]["R@10"]["fi"] == pytest.approx(mono.per_query["R@10"])
    across = evaluate_on(model, [cross(finnish, english)], ["RR@10"])[0].scores
    assert values["to English"]["RR@10"] == {"fi": pytest.approx(across.per_query["RR@10"])}


def test_a_second_run_trains_and_measures_nothing(made, monkeypatch, capsys):
    root, table, results = made
    monkeypatch.setattr(reproduce, "measure", None)
    again = Reproduction(table, "small", "tiny", None, root / "out", seeds=2)
    assert again.run() == results
    said = capsys.readouterr().err
    assert said.count("done before") == 4
    assert "step 1/" not in said


@pytest.mark.slow
def test_a_recipe_that_another_table_trained_is_found_again(made, monkeypatch):
    root, table, results = made
    again = table.model_copy(deep=True)
    again.rows = {"the same": table.rows["+ semantic"], "another": table.rows["retrieval"].model_copy()}
    again.rows["another"].set = ["objectives.semantic=null", "optimizer.lr=0.02", "description=of another table"]
    trained = []
    monkeypatch.setattr(reproduce, "train", lambda recipe, out, *_, **__: trained.append(out) or train(recipe, out))
    work = Reproduction(again, "other", "tiny", None, root / "out", 1, "cpu")
    found = work.run()
    assert found["the same"] == results["+ semantic"][:1]
    assert found["another"] != results["retrieval"][:1]
    assert trained == [work.start_folder().parent, work.folder("another", 1)]
    assert not (work.folder("the same", 1) / "model").exists()
    assert work.run_folder("the same", 1) == root / "out/small/tiny/semantic/seed-1"
    # a note that is no longer true is not believed: the folder holds another recipe's model now
    kept = root / "out/small/tiny/semantic/seed-1/recipe.yaml"
    text = kept.read_text(encoding="utf-8")
    kept.write_text(text.replace("seed: 1", "seed: 9"), encoding="utf-8")
    assert work.run_folder("the same", 1) == work.folder("the same", 1)
    kept.write_text(text.replace("description: ''", "description: said otherwise"), encoding="utf-8")
    assert work.run_folder("the same", 1) == root / "out/small/tiny/semantic/seed-1"
    kept.write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_two_processes_share_encoding_and_search_and_one_reports(made, python):
    root, _, results = made
    out = root / "two"
    shutil.copytree(root / "out", out)
    for values in out.rglob("values.json"):
        values.unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    hybrid = TABLE.replace(
        "subsets:", """  hybrid: {of: + semantic, pipeline: "bm25 + {a} * {model}", tune: {a: [0.1, 1.0]}}\nsubsets:"""
    )
    (root / "two.yaml").write_text(hybrid, encoding="utf-8")
    alone = Reproduction(read_table(str(root / "two.yaml")), "alone", "tiny", None, root / "out", 1, "cpu")
    alone.only = ["hybrid"]
    of_hybrid = alone.run()["hybrid"][0]
    # the start's folder is part of the recipes: the copy is put in its place
    (root / "out").rename(root / "kept")
    out.rename(root / "out")
    table = str(root / "two.yaml")
    command = ["-m", "interlingua", "reproduce", table, "--scale", "tiny", "--out", str(root / "out"), "--device=cpu"]
    try:
        started = [python(*command, "--seeds=2", RANK=rank, LOCAL_RANK=rank, **group) for rank in "01"]
        ended = [process.communicate(300) for process in started]
        assert [process.returncode for process in started] == [0, 0], ended
        assert ended[0][0].startswith("# A small table")
        assert ended[1][0] == ""
        stem = slug(table.removesuffix(".yaml"))
        whole = {"retrieval": results["retrieval"][0], "semantic": results["+ semantic"][0], "hybrid": of_hybrid}
        for row, expected in whole.items():
            folder = root / "out" / stem / "tiny" / row / "seed-1"
            assert not (folder / "vectors").exists()
            found = json.loads((folder / "values.json").read_text(encoding="utf-8"))["values"]
            assert found.keys() == expected.keys()
            for suite, by_measure in expected.items():
                for measure, columns in by_measure.items():
                    for column, values in columns.items():
                        assert found[suite][measure][column] == pytest.approx(values)
    finally:
        shutil.rmtree(root / "out")
        (root / "kept").rename(root / "out")


def test_a_row_that_is_missing_is_made_again_and_no_other(made, capsys):
    root, table, results = made
    (root / "out/small/tiny/semantic/seed-2/values.json").unlink()
    again = Reproduction(table, "small", "tiny", None, root / "out", seeds=2).run()
    said = capsys.readouterr().err
    assert said.count("done before") == 3
    assert "complete" in said  # the model was there: only the measuring is done again
    assert again == results


def test_only_the_rows_asked_for(made):
    root, table, results = made
    one = Reproduction(table, "small", "tiny", None, root / "out", only=["+ semantic"])
    assert one.run() == {"+ semantic": results["+ semantic"][:1]}
    with pytest.raises(InterlinguaError, match=r"row 'semantic' is not in this table\. Did you mean '\+ semantic'\?"):
        Reproduction(table, "small", "tiny", None, root / "out", only=["semantic"]).run()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, r"small at scale files reads files\. Say where with --data FOLDER"),
        ("/nowhere", r"/nowhere/xquad_fi: not there\. --data must name the folder"),
    ],
)
def test_missing_data_is_said_before_anything_is_trained(made, tmp_path, data, says):
    _, table, _ = made
    with pytest.raises(InterlinguaError, match=says):
        Reproduction(table, "small", "files", data, tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_a_recipe_that_cannot_be_trained_is_said_before_another_is(made, tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(reproduce, "train", lambda *_, **__: trained.append(1))
    table = read_table(str(made[0] / "small.yaml"))
    table.rows["+ semantic"].set = ["training.keep=best"]
    with pytest.raises(InterlinguaError, match="validation"):
        Reproduction(table, "small", "tiny", None, tmp_path).run()
    assert not trained


def test_the_tokens_of_xor_retrieve_are_asked_for_before_anything_is_trained(made, tmp_path, monkeypatch):
    def missing():
        raise InterlinguaError("its sentence model is missing")

    xor = "xor: {xor: {questions: Q, passages: P}}".replace("Q", f"{tmp_path}/q.jsonl").replace(
        "P", f"{tmp_path}/p.tsv"
    )
    for name in ("recipe", "start", "small"):
        shutil.copy(made[0] / f"{name}.yaml", tmp_path)
    (tmp_path / "suites.yaml").write_text(xor, encoding="utf-8")
    monkeypatch.setattr(reproduce, "nltk_tokenizer", missing)
    monkeypatch.setattr(reproduce, "train", None)
    table = read_table(str(tmp_path / "small.yaml"))
    with pytest.raises(InterlinguaError, match="its sentence model is missing"):
        Reproduction(table, "small", "tiny", None, tmp_path / "out").run()


def test_the_plan_names_every_row_and_makes_nothing(made, tmp_path):
    _, table, _ = made
    lines = Reproduction(table, "small", "tiny", None, tmp_path / "out", seeds=2).plan()
    assert lines[0].startswith("retrieval: ")
    assert lines[0].endswith("1.0·retrieval, 3 steps, batch questions 6, parallel 8, 2 seed(s)")
    assert "1.0·retrieval + 1.0·semantic" in lines[1]
    assert not (tmp_path / "out").exists()


def test_the_text_has_averages_intervals_gains_and_the_papers_numbers(made):
    _, table, results = made
    text = present(table, "tiny", results)
    assert text.startswith("# A small table\n\nScale tiny, 2 seeds.\n\n## mono: RR@10\n")
    means = {
        row: [fmean(fmean(values.values()) for values in run["mono"]["RR@10"].values()) for run in runs]
        for row, runs in results.items()
    }
    first, second = (fmean(means[row]) for row in ("retrieval", "+ semantic"))
    section = text.split("## mono: RR@10")[1].split("## ")[0]
    line = next(line for line in section.splitlines() if line.startswith("- retrieval"))
    found = re.fullmatch(
        r"- retrieval: ([\d.]+) \[(-?[\d.]+), ([\d.]+)\] \(t interval over seeds\); "
        r"northern \(fi\) ([\d.]+)",
        line,
    )
    assert found, line
    average, low, high, northern = map(float, found.groups())
    assert average == pytest.approx(first, abs=5e-5)
    assert low <= min(means["retrieval"]) <= max(means["retrieval"]) <= high
    assert northern == pytest.approx(
        fmean(fmean(run["mono"]["RR@10"]["fi"].values()) for run in results["retrieval"]), abs=5e-5
    )
    line = next(line for line in section.splitlines() if line.startswith("- + semantic"))
    gain = re.search(r"gain ([+-][\d.]+) \[", line)
    assert float(gain[1]) == pytest.approx(second - first, abs=1e-4)
    assert "## to English: R@10" in text
    paper = text.split("## The paper's numbers, mono: RR@10")[1]
    assert re.search(r"\| retrieval +\| +0\.250 +\| +0\.500", paper)


def test_rows_that_are_alike_as_folders_have_each_its_own(made):
    root, table, _ = made
    work = Reproduction(table, "small", "tiny", None, root / "out")
    rows = {"semantic": None, "+ semantic": None, "基线": None, "语义": None}
    work.table = SimpleNamespace(rows=rows)
    folders = [work.folder(row, 1) for row in rows]
    assert len(set(folders)) == 4
    assert folders[0].parent.name == "semantic"


def test_one_seed_has_the_interval_of_its_queries(made):
    _, table, results = made
    text = present(table, "tiny", {row: runs[:1] for row, runs in results.items()})
    assert "Scale tiny, 1 seed." in text
    assert "gain over the first row, paired by seed" not in text
    assert len(re.findall(r"^- .*: [\d.]+ \[[\d.]+, [\d.]+\]", text, flags=re.MULTILINE)) == 2 * 4


@pytest.mark.slow
def test_the_command_writes_the_table_beside_the_runs(made, monkeypatch, capsys):
    root, _, results = made
    out = root / "cli"
    monkeypatch.chdir(root)
    out.mkdir()
    (out / "small-tiny.md").write_text("the whole table", encoding="utf-8")
    assert main(["reproduce", "./small.yaml", "--scale", "tiny", "--out", "cli", "--rows", "retrieval"]) == 0
    printed = capsys.readouterr().out
    assert (out / "small-tiny.md").read_text(encoding="utf-8") == "the whole table"
    written = out / "small-tiny-rows.md"
    text = written.read_text(encoding="utf-8")
    assert printed.startswith(text)
    assert "- retrieval: " in text
    assert "+ semantic" not in text
    (values,) = out.rglob("values.json")
    assert json.loads(values.read_text(encoding="utf-8"))["values"] == results["retrieval"][0]
    for picture in printed.removeprefix(text).split():
        assert Path(picture).suffix == ".svg"
        assert Path(picture).resolve().parent == out


@pytest.mark.slow
def test_recipes_changed_by_the_command(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(made[0])
    command = ["reproduce", "./small.yaml", "--scale", "tiny", "--rows", "retrieval", "--out", str(tmp_path)]
    assert main([*command, "--set", "training.stpes=1"]) == 2
    assert "training.stpes" in capsys.readouterr().err
    assert not list(tmp_path.rglob("log.jsonl"))
    # the last word, also over what the row sets
    assert main([*command, "--set", "training.steps=1", "--set", "objectives.semantic.temperature=0.1"]) == 0
    text = capsys.readouterr().out
    assert "Every recipe was changed: training.steps=1, objectives.semantic.temperature=0.1." in text
    (log,) = [path for path in tmp_path.rglob("log.jsonl") if "retrieval" in path.parts]
    steps = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [step["step"] for step in steps] == [1]
    assert "semantic/loss" in steps[0]
    assert main(command) == 2  # another recipe is no continuation
    assert "another recipe" in capsys.readouterr().err


@pytest.mark.slow
def test_a_table_that_is_stopped_says_how_far_it_is(made, tmp_path, monkeypatch, capsys):
    def stopped(*_, **__):
        raise Stopped("stopped after step 1; the same command goes on from there.")

    monkeypatch.setattr(reproduce, "train", stopped)
    monkeypatch.chdir(made[0])
    assert main(["reproduce", "./small.yaml", "--scale", "tiny", "--out", str(tmp_path)]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "interlingua: stopped after step 1; the same command goes on from there."
    assert not any("defect" in line for line in said)


def test_results_of_another_recipe_are_not_taken_for_this_ones(made):
    root, table, _ = made
    changed = table.model_copy(deep=True)
    changed.measures = ["RR@5"]
    work = Reproduction(changed, "small", "tiny", None, root / "out", 2)
    with pytest.raises(InterlinguaError, match="holds results of another recipe, suite or --data"):
        work.run()


# what is not complete


PARTS = """
title: "Parts"
measures: [RR@10]
family: 3
merged: {paper: [paper-fi, paper-sw]}
scales:
  paper-fi: {recipe: recipe.yaml, suites: parts.yaml, columns: [fi]}
  paper-sw: {recipe: recipe.yaml, suites: parts.yaml, columns: [sw]}
rows:
  BM25: {pipeline: bm25}
  run: {pipeline: "run(RUN)"}
compare: [[run, BM25, †]]
expected: {mono: {RR@10: {BM25: {fi: .25, sw: .5}, run: {fi: .5, sw: .5}}}}
"""


@pytest.fixture
def parts(tmp_path):
    """A table of two scales that are reported together: BM25, and a run file that lacks three questions of Finnish."""
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    collections = {lang: load_collection(f"encyclopedia:{lang}") for lang in ("fi", "sw")}
    for lang, collection in collections.items():
        folder = tmp_path / lang
        folder.mkdir()
        (folder / "passages.jsonl").write_text(
            "".join(json.dumps({"id": p.id, "text": p.text, "lang": lang}) + "\n" for p in collection.passages)
        )
        (folder / "queries.tsv").write_text("".join(f"{q.id}.{lang}\t{q.text}\n" for q in collection.queries))
        (folder / "qrels.txt").write_text(
            "".join(f"{q}.{lang} 0 {p} {g}\n" for q, grades in collection.qrels.items() for p, g in grades.items())
        )
    right = [
        f"{q}.{lang} Q0 {next(iter(grades))} 1 1.0 x\n"
        for lang, collection in collections.items()
        for number, (q, grades) in enumerate(collection.qrels.items())
        if lang == "sw" or number >= 3
    ]
    (tmp_path / "a.trec").write_text("".join(right), encoding="utf-8")
    (tmp_path / "parts.yaml").write_text("mono: {collections: {fi: '{data}/fi', sw: '{data}/sw'}}\n", encoding="utf-8")
    (tmp_path / "table.yaml").write_text(PARTS.replace("RUN", str(tmp_path / "a.trec")), encoding="utf-8")
    return tmp_path


def reproduced(root, *options):
    return main(["reproduce", str(root / "table.yaml"), "--data", str(root), "--out", str(root / "out"), *options])


@pytest.mark.slow
def test_scales_that_are_merged_are_one_report_with_the_papers_numbers_and_family(parts, capsys):
    assert reproduced(parts, "--scale", "paper") == 2
    printed, said = capsys.readouterr()
    header = next(line for line in printed.splitlines() if line.startswith("| RR@10"))
    assert [cell.strip() for cell in header.split("|")[2:4]] == ["fi", "sw"]
    assert re.search(r"↳ paper +\| +0\.250 \| +0\.500", printed)
    assert "Bonferroni with a family of 3" in printed
    assert re.search(r"\| run − BM25 +\| +[+-]0\.\d+", printed)
    # a run with fewer queries than the qrels
    lacking = r"a\.trec: no results for 3 of the \d+ queries of fi, such as '.*\.fi'; they count as nothing found"
    assert re.search(lacking, said.splitlines()[-1])
    assert re.search(lacking, printed)
    assert reproduced(parts, "--scale", "paper") == 2  # said again of what was done before
    assert re.search(lacking, capsys.readouterr().err.splitlines()[-1])


@pytest.mark.slow
def test_a_column_without_data_is_named_and_the_others_are_printed(parts, capsys):
    (parts / "sw").rename(parts / "elsewhere")
    assert reproduced(parts, "--scale", "paper", "--rows", "BM25") == 2
    printed, said = capsys.readouterr()
    assert re.search(r"\| BM25 +\| +0\.\d+", printed)
    assert "sw: not there" in said.splitlines()[-1]
    assert "sw: not there" in printed
    assert reproduced(parts, "--scale", "paper", "--rows", "BM25", "--columns", "fi") == 0  # sw is not asked for
    (parts / "elsewhere").rename(parts / "sw")
    capsys.readouterr()
    assert reproduced(parts, "--scale", "paper", "--rows", "BM25") == 0
    assert "paper-fi/bm25/seed-1/values.json)" in capsys.readouterr().err  # done before
    assert reproduced(parts, "--scale", "paper", "--columns", "suomi") == 2
    assert "column 'suomi' is not in this table. Known: fi, sw" in capsys.readouterr().err


def test_columns_that_come_later_are_measured_and_no_others(parts, capsys):
    table = read_table(str(parts / "table.yaml"))
    scale = table.scales["paper-fi"].model_copy(update={"columns": None})
    both = table.model_copy(update={"scales": {"paper-fi": scale}})
    work = Reproduction(both, "t", "paper-fi", str(parts), parts / "out", only=["BM25"], columns=["fi"])
    first = work.run()["BM25"][0]
    assert list(first["mono"]["RR@10"]) == ["fi"]
    asked = []

    def measuring(model, suites, *rest):
        asked.extend(column for suite in suites.values() for column in suite.columns())
        return reproduce_measure(model, suites, *rest)

    reproduce_measure, reproduce.measure = reproduce.measure, measuring
    try:
        whole = Reproduction(both, "t", "paper-fi", str(parts), parts / "out", only=["BM25"]).run()["BM25"][0]
    finally:
        reproduce.measure = reproduce_measure
    assert asked == ["sw"]
    assert list(whole["mono"]["RR@10"]) == ["fi", "sw"]
    assert whole["mono"]["RR@10"]["fi"] == first["mono"]["RR@10"]["fi"]


@pytest.mark.slow
def test_a_column_that_could_not_be_measured_is_tried_again(made, tmp_path, capsys):
    suites = "sentences: {tatoeba: {fi: FI, fi-sw: [FI, SW]}}"
    for name, lang in (("FI", "fi"), ("SW", "sw")):
        suites = suites.replace(name, f'"{tmp_path}/{lang}-en.tsv"')
        lines = [f"lause {lang} {number}\ta sentence of number {number}\n" for number in range(120)]
        (tmp_path / f"{lang}-en.tsv").write_text("".join(lines), encoding="utf-8")
    for name in ("recipe", "start"):
        shutil.copy(made[0] / f"{name}.yaml", tmp_path)
    (tmp_path / "small.yaml").write_text(TABLE.partition("subsets")[0], encoding="utf-8")
    (tmp_path / "suites.yaml").write_text(suites, encoding="utf-8")
    whole = (tmp_path / "sw-en.tsv").read_text(encoding="utf-8")
    (tmp_path / "sw-en.tsv").write_text("".join(lines[:12]), encoding="utf-8")
    command = ["reproduce", str(tmp_path / "small.yaml"), "--scale", "tiny", "--rows", "retrieval", "--out"]
    for _ in range(2):
        assert main([*command, str(tmp_path / "out")]) == 2
        printed, said = capsys.readouterr()
        assert "fi-sw: 12 pairs" in said
        assert "- retrieval: " in printed  # what was measured stays
    (tmp_path / "sw-en.tsv").write_text(whole, encoding="utf-8")
    assert main([*command, str(tmp_path / "out")]) == 0
    assert "Not complete" not in capsys.readouterr().out
    (file,) = (tmp_path / "out").rglob("values.json")
    assert set(json.loads(file.read_text(encoding="utf-8"))["values"]["sentences"]["accuracy"]) == {"fi", "fi-sw"}
    assert main([*command, str(tmp_path / "out")]) == 0
    assert "done before" in capsys.readouterr().err


def test_a_seed_that_crashes_is_named_and_the_rest_is_printed(made, tmp_path, monkeypatch, capsys):
    root, table, results = made
    trained = reproduce.train

    def train(recipe, out, device, **options):
        if recipe.seed == 2 and "semantic" in str(out):
            raise RuntimeError("out of memory")
        return trained(recipe, out, device, **options)

    monkeypatch.setattr(reproduce, "train", train)
    kept = root / "out/small/tiny/semantic/seed-2/values.json"
    kept.rename(tmp_path / "values.json")
    work = Reproduction(table, "small", "tiny", None, root / "out", seeds=2)
    try:
        found = work.run()
    finally:
        (tmp_path / "values.json").rename(kept)
    argv = ["reproduce", str(root / "small.yaml"), "--scale", "tiny", "--out", str(tmp_path), "--seeds", "2"]
    assert main(argv) == 2
    out, said = capsys.readouterr()
    assert "(1 of 2 seeds)" in out
    assert said.splitlines()[-1].endswith("is not complete: row '+ semantic', seed 2: RuntimeError: out of memory")
    assert found == {"retrieval": results["retrieval"], "+ semantic": [results["+ semantic"][0], {}]}
    assert work.problems == ["row '+ semantic', seed 2: RuntimeError: out of memory"]
    printed = present(table, "tiny", found, problems=work.problems)
    assert "- row '+ semantic', seed 2: RuntimeError: out of memory" in printed
    assert "(1 of 2 seeds)" in printed
    mean = fmean(fmean(v.values()) for v in results["+ semantic"][0]["mono"]["RR@10"].values())
    first = fmean(fmean(v.values()) for v in results["retrieval"][0]["mono"]["RR@10"].values())
    assert f"gain {mean - first:+.4f}" in printed  # over the same seed of the first row


def test_questions_that_a_row_lacks_are_named(made):
    root, table, results = made
    file = root / "out/small/tiny/semantic/seed-1/values.json"
    kept = file.read_text(encoding="utf-8")
    other = json.loads(kept)
    gone = sorted(other["values"]["mono"]["RR@10"]["fi"])[:2]
    for question in gone:
        del other["values"]["mono"]["RR@10"]["fi"][question]
    file.write_text(json.dumps(other), encoding="utf-8")
    work = Reproduction(table, "small", "tiny", None, root / "out", seeds=2)
    try:
        work.run()
    finally:
        file.write_text(kept, encoding="utf-8")
    asked = len(results["retrieval"][0]["mono"]["RR@10"]["fi"])
    assert work.problems == [
        f"row '+ semantic', seed 1, mono, RR@10, fi: no value of 2 of the {asked} questions, such as '{gone[0]}'"
    ]
