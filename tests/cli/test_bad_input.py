"""Whatever is wrong with what a person gives: one line that names it, exit code 2, nothing is damaged."""

import hashlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from interlingua.cli import main
from interlingua.data.collections import load_collection
from interlingua.index.index import Index
from interlingua.models.dual import DualEncoder

RECIPE = {
    "model": {"backbone": "model", "encoders": "tied"},
    "data": {
        "questions": {"path": "encyclopedia:train", "batch": 6},
        "parallel": {"path": "encyclopedia:train", "batch": 8},
    },
    "objectives": {"retrieval": {"temperature": 0.05, "hard_negatives": 0}, "semantic": {"weight": 0.5}},
    "optimizer": {"lr": 0.01},
    "training": {"steps": 3, "checkpoint_every": 2, "log_every": 3, "tensorboard": False},
}
FILES = {
    "empty.txt": b"",
    "empty.jsonl": b"",
    "empty.yaml": b"",
    "broken.yaml": b"model: [\n",
    "twice.yaml": b"seed: 3\nobjectives:\n  retrieval: {temperature: 0.1}\n  retrieval: {weight: 2}\n",
    "list.yaml": b"[1, 2]\n",
    "latin1.yaml": b"description: caf\xe9\n",
    "own.yaml": b"base: other.yaml\n",
    "other.yaml": b"base: own.yaml\n",
    "ring.yaml": b"data: &a [*a]\n",
    "bomb.yaml": b"".join(
        b"%s: &%s [%s]\n" % (new, new, b", ".join([b"*" + old if old else b"x"] * 9))
        for old, new in zip((b"", *b"a b c d e f".split()), b"a b c d e f g".split(), strict=True)
    ),
    "nested.yaml": b"data: " + b"[" * 3_000 + b"]" * 3_000 + b"\n",
    "nul.yaml": b'base: "a\\0b"\n',
    "latin1.txt": b"fine\ncaf\xe9\n",
    "latin1.jsonl": b'{"text": "a", "question": "a", "passage": "b"}\n{"text": "caf\xe9"}\n',
    "latin1.run": b"q1 Q0 1 1 1.0 t\nq1 Q0 caf\xe9 2 0.5 t\n",
    "broken.jsonl": b'{"text": "a"}\n{"text": \n',
    "notext.jsonl": b'{"text": "a"}\n{"title": "b"}\n',
    "twice.jsonl": b'{"text": "a", "id": "one"}\n{"text": "b", "id": "one"}\n',
    "klingon.jsonl": b'{"text": "a", "lang": "en"}\n{"text": "nuqneH", "lang": "klingon"}\n',
    "good.jsonl": b'{"text": "a book", "id": "1", "lang": "en"}\n',
    "fi-en.tsv": b"talo\thouse\nkissa\tcat\tx\ty\n",
    "good.qrels": b"q1 0 1 1\nq2 0 1 1\n",
    "columns.qrels": b"q1 0 1 1\nq2 0 1\nq3 1\n",
    "good.run": b"q1 Q0 1 1 1.0 t\nq2 Q0 1 1 1.0 t\n",
    "columns.run": b"q1 Q0 1 1 1.0 t\nq1 Q0 2 2\n",
    "nan.run": b"q1 Q0 1 1 nan t\n",
    "twice.run": b"q1 Q0 1 1 1.0 t\nq1 Q0 1 2 0.5 t\n",
    "other.run": b"elsewhere Q0 1 1 1.0 t\n",
}
COLLECTION = {
    "passages.jsonl": '{"id": "1", "text": "a book"}\n{"id": "2", "text": "a star"}\n',
    "queries.tsv": "q1\twhat is read?\n",
    "qrels.txt": "q1 0 1 1\n",
}
COLLECTIONS = {
    "good_en": {},
    "nolanguage": {},
    "unjudged_en": {"qrels.txt": "q1 0 99 1\n"},
    "unasked_en": {"qrels.txt": "q9 0 1 1\n"},
    "twice_en": {"passages.jsonl": '{"id": "1", "text": "a"}\n{"id": "1", "text": "b"}\n'},
    "columns_en": {"queries.tsv": "q1\twhat?\nq2\n"},
    "empty_en": {"passages.jsonl": ""},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_static):
    """A folder with a model, an index, a finished run, and much that is broken."""
    root = tmp_path_factory.mktemp("place")
    model = tiny_static()
    model.save(root / "model")
    (root / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False), encoding="utf-8")
    for name, content in FILES.items():
        (root / name).write_bytes(content)
    for name, changed in COLLECTIONS.items():
        (root / name).mkdir()
        for file, content in (COLLECTION | changed).items():
            (root / name / file).write_text(content, encoding="utf-8")
    Index.build(
        DualEncoder.load(root / "model"),
        load_collection("encyclopedia:en").passages,
        root / "index",
        model_path=root / "model",
    )
    shutil.copytree(root / "index", root / "damaged")
    for manifest in (root / "damaged/passages.lance/_versions").glob("*.manifest"):
        manifest.write_bytes(manifest.read_bytes()[:-100])
    (root / "nothing").mkdir()
    shutil.copytree(root / "model", root / "pickle")
    (root / "pickle/model.safetensors").unlink()
    (root / "pickle/pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    shutil.copytree(root / "model", root / "cut")
    (root / "cut/model.safetensors").write_bytes((root / "model/model.safetensors").read_bytes()[:100])
    shutil.copytree(root / "model", root / "trained/model")
    poisoned = tiny_static()
    with torch.no_grad():
        next(poisoned.backbone.parameters()).fill_(float("nan"))
    poisoned.save(root / "poisoned")
    return root


def state(root: Path) -> dict[str, str]:
    """The content of every file that must survive."""
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def fails(capsys, command, *says, progress=False):
    """Run a command that must fail as a person's mistake does; the one line it said."""
    capsys.readouterr()
    before = state(Path())
    try:
        code = main(shlex.split(command))
    except SystemExit as stopped:
        code = stopped.code
    captured = capsys.readouterr()
    assert code == 2, captured
    assert not captured.out
    lines = captured.err.splitlines()
    assert [line for line in lines if line.startswith("interlingua:")] == lines[-1:], captured.err
    assert progress or len(lines) == 1, captured.err
    assert "Traceback" not in captured.err
    for word in says:
        assert word in lines[-1]
    after = state(Path())
    assert before.items() <= after.items()
    assert not [name for name in after if ".part" in name or name == "pwned"]
    return lines[-1]


RECIPES = [
    ("train nowhere.yaml --out new", ["nowhere.yaml", "no such recipe"]),
    ("train empty.yaml --out new", ["empty.yaml", "a recipe is a mapping"]),
    ("train list.yaml --out new", ["list.yaml", "a recipe is a mapping"]),
    ("train broken.yaml --out new", ["broken.yaml", "not valid YAML", "line 2"]),
    ("train own.yaml --out new", ["own.yaml: is, perhaps through others, its own base"]),
    *((f"train {name}.yaml --out new", [f"{name}.yaml: not valid YAML"]) for name in ("ring", "bomb", "nested")),
    ("plan /", ["/: no such recipe"]),
    ("train nul.yaml --out new", ["holds a character that no name of a file may hold"]),
    ("train latin1.yaml --out new", ["latin1.yaml", "line 1: not UTF-8", "byte 16"]),
    ("train hu2023/semantc --out new", ["hu2023/semantc", "Did you mean 'hu2023/semantic'?"]),
    ("train hu2023/table2 --out new", ["hu2023/table2", "interlingua reproduce hu2023/table2"]),
    ("train hu2023/semantic --out new", ["hu2023/semantic", "--data FOLDER"]),
    ("train recipe.yaml", ["--out", "See `interlingua train --help`"]),
    ("train recipe.yaml training.stps=3 --out new", ["'training.stps'", "Did you mean 'steps'?"]),
    ("train recipe.yaml --out new trainng.steps=3", ["'trainng'", "Did you mean 'training'?"]),
    ("train recipe.yaml --out new training.steps", ["'training.steps' is not an override"]),
    ("train recipe.yaml --out new training.steps=many", ["'training.steps'", "'many'"]),
    ("train recipe.yaml --out new training.steps=[1", ["'training.steps=[1'", "not valid YAML"]),
    ("train twice.yaml --out new", ["twice.yaml", "'retrieval' is given twice", "line 4"]),
    ("train recipe.yaml --out new model=3", ["'model': must be a mapping (got 3)"]),
    ("train recipe.yaml --out new optimizer.lr=-1", ["'optimizer.lr'", "(got -1)"]),
    ("train recipe.yaml --out new model.backbone={static:{dimm:3}}", ["backbone"]),
    ("train recipe.yaml --out new 'model.backbone={static: {dimm: 3}}'", ["'static.dimm'", "Did you mean 'dim'?"]),
    (
        "train recipe.yaml --out new objectives.retrieval.temprature=1",
        ["objectives.retrieval", "'temprature'", "Did you mean 'temperature'?"],
    ),
    ("train recipe.yaml --out new objectives.semntic={}", ["objectives.semntic", "Did you mean 'semantic'?"]),
    ("train recipe.yaml --out new objectives.semantic.weight=much", ["objectives.semantic: 'weight'", "'much'"]),
    ("train recipe.yaml --out new objectives.semantic.weight=.nan", ["objectives.semantic: 'weight'", "nan"]),
    ("train recipe.yaml --out new objectives.retrieval.temperature=0", ["objectives.retrieval: 'temperature'"]),
    ("train recipe.yaml --out new --device quantum", ["'quantum'", "Use 'cpu'"]),
    ("train recipe.yaml --out new data.questions.path=nowhere.jsonl", ["nowhere.jsonl: no such file"]),
    ("plan recipe.yaml objectives.retrieval.hard_negatives=few", ["objectives.retrieval: 'hard_negatives'", "'few'"]),
    ("train recipe.yaml --out recipe.yaml", ["recipe.yaml: is a file. Give a folder for the run."]),
    ("plan nowhere.yaml", ["nowhere.yaml"]),
    ("plan good_en", ["good_en: no such recipe, it is a folder. Give a YAML file"]),
    ("reproduce hu2023/table22", ["hu2023/table22", "Did you mean 'hu2023/table2'?"]),
    ("reproduce hu2023/semantic", ["hu2023/semantic", "not a table"]),
    ("reproduce broken.yaml", ["broken.yaml", "not valid YAML", "line 2"]),
    ("reproduce latin1.yaml", ["latin1.yaml", "line 1: not UTF-8"]),
    ("reproduce hu2023/table2 --scale mni", ["'mni'", "Did you mean 'mini'?"]),
    ("reproduce hu2023/table2 --seeds 0 --data d", ["--seeds 0"]),
]
MODELS = [
    ("encode nothing latin1.txt --out new.npy", ["latin1.txt, line 2"]),
    ("mine fi-en.tsv fi-en.tsv --model model --out new.tsv", ["fi-en.tsv: is both files", "--lang-a and --lang-b"]),
    ("encode nothing good.run --out new.npy", ["nothing: is not a model folder", "modules.json"]),
    ("encode ./nowhere good.run --out new.npy", ["./nowhere: is not a model folder"]),
    ("encode no/where good.run --out new.npy", ["no/where: no such folder here"]),
    ("encode model good.run --out new.npz", ["--out new.npz: vectors are written as FILE.npy"]),
    ("encode good.jsonl good.run --out new.npy", ["good.jsonl: is not a model folder"]),
    ("encode pickle good.run --out new.npy", ["pickle: holds pytorch_model.bin only", "never opened"]),
    ("encode cut good.run --out new.npy", ["cut: cannot be read"]),
    ("evaluate pickle --on good_en", ["pickle: holds pytorch_model.bin only", "never opened"]),
    ("evaluate nothing --on good_en", ["nothing: is not a model folder"]),
    ("index pickle good.jsonl --out new", ["pickle: holds pytorch_model.bin only"]),
    ("index model --out new", ["model: holds a model. Give the files to index after it: interlingua index model FILE"]),
    ("index trained --out new", ["trained: holds a model"]),
    ("index trained good.jsonl --out new", ["trained: is not a model folder", "Its model is trained/model."]),
    ("info trained", ["trained: is not a model folder", "Its model is trained/model."]),
    ("encode model nowhere.txt --out new.npy", ["nowhere.txt: no such file"]),
    ("encode model empty.txt --out new.npy", ["empty.txt: is empty"]),
    ("encode model good_en --out new.npy", ["good_en: is a folder"]),
    ("encode model good.run --out good.jsonl/new.npy", ["good.jsonl"]),
    ("encode model good.run --out new", ["good.run: passages are read from jsonl"]),
]
COLLECTIONS_AND_RUNS = [
    ("evaluate model --on nowhere", ["nowhere: no such collection"]),
    ("evaluate model --on nothing", ["nothing: not a collection"]),
    ("evaluate model --on encyclopedia:klingon", ["'klingon' is not a language code"]),
    ("evaluate model --on encyclopedia:de", ["not written in 'de'"]),
    ("evaluate model --on nolanguage", ["nolanguage: the language of passages is unknown", "Give lang="]),
    ("evaluate model --on unjudged_en", ["unjudged_en: the qrels name 1 unknown passage id", "'99'"]),
    ("evaluate model --on unasked_en", ["unasked_en: the qrels name 1 unknown query id", "'q9'"]),
    ("evaluate model --on twice_en", ["twice_en/passages.jsonl, line 2: the passage id '1' occurs twice"]),
    ("evaluate model --on columns_en", ["columns_en/queries.tsv, line 2: 1 column"]),
    ("evaluate model --on empty_en", ["empty_en/passages.jsonl: is empty"]),
    ("evaluate model --on good_en good_en", ["'good_en'"]),
    ("evaluate model --on good_en --passages nowhere", ["nowhere: no such collection"]),
    ("evaluate model --on good_en --passages encyclopedia:en", ["good_en", "encyclopedia_en"]),
    ("evaluate model --on good_en --measures nDCGG@10", ["'nDCGG@10'", "Did you mean 'nDCG'?"]),
    ("evaluate model --on good_en --measures R", ["'R'", "R@100"]),
    ("evaluate model --on good_en --measures ndcg@10", ["unknown measure 'ndcg@10'. Did you mean 'NDCG'?"]),
    ("evaluate model --on good_en --measures RR@100,AP", ["'RR@100,AP': is not one measure. Give several one by one"]),
    ("evaluate model --on good_en --measures RR@1000", ["'RR@1000' looks deeper than depth=100"]),
    ("evaluate model --on good_en --matrix", ["a matrix needs two"]),
    ("evaluate model --on good_en encyclopedia:fi encyclopedia:en --matrix", ["good_en and encyclopedia_en", "'en'"]),
    ("evaluate model --on good_en encyclopedia:fi --matrix --measures AP", ["--matrix has no use for --measures"]),
    ("evaluate model --on good_en encyclopedia:fi --matrix --runs new", ["--matrix has no use for --runs"]),
    ("evaluate model --on encyclopedia:en encyclopedia:fi --matrix RR@20 --depth 10", ["'RR@20'", "depth=10"]),
    ("evaluate model", ["--on COLLECTION", "--tatoeba FILE"]),
    ("evaluate model --tatoeba nowhere.tsv", ["nowhere.tsv: no such file"]),
    ("evaluate model --tatoeba good.run", ["good.run: none of the formats"]),
    ("evaluate model --tatoeba fi-en.tsv --matrix", ["--matrix is for collections"]),
    ("evaluate model --on good_en --runs good.jsonl", ["good.jsonl"]),
    ("evaluate --on good_en --pipeline " + "bm25>>" * 5_000 + "bm25", ["a pipeline has at most 400 words and signs"]),
    ("evaluate --on good_en --pipeline " + "(" * 190 + "bm25" + ")" * 190, ["at most 50 brackets may be open at once"]),
    ("encode ~nobody/model good.run --out new.npy", ["~nobody/model: is not a model folder"]),
    ("evaluate --on good_en", ["MODEL", "See `interlingua evaluate --help`"]),
    ("compare nowhere.run good.run --qrels good.qrels", ["nowhere.run: no such file"]),
    ("compare good.run empty.txt --qrels good.qrels", ["empty.txt: has results for no query of good.qrels"]),
    ("compare good.run other.run --qrels good.qrels", ["other.run: has results for no query of good.qrels"]),
    ("compare good.run columns.run --qrels good.qrels", ["columns.run, line 2: 4 fields"]),
    ("compare good.run latin1.run --qrels good.qrels", ["latin1.run, line 2: not UTF-8"]),
    ("compare good.run nan.run --qrels good.qrels", ["nan.run, line 1: the score is NaN"]),
    ("compare good.run twice.run --qrels good.qrels", ["twice.run, line 2: document '1' occurs twice"]),
    ("compare good.run good.run --qrels columns.qrels", ["columns.qrels, line 3: 'q3 1' is no judgement"]),
    ("compare good.run good.run --qrels empty.txt", ["empty.txt: is empty"]),
    ("compare good.run good.run --qrels good.qrels --measure RRR", ["'RRR'", "Did you mean 'RR'?"]),
    ("inspect nowhere", ["nowhere: no such collection"]),
    ("inspect nowhere --kind sentences", ["nowhere: no such file"]),
    ("inspect empty.jsonl --kind questions", ["empty.jsonl: is empty"]),
    ("inspect latin1.jsonl --kind questions", ["latin1.jsonl, line 2: not UTF-8"]),
    ("inspect fi-en.tsv --kind parallel", ["fi-en.tsv, line 2: 4 column(s), 2 or 3 are needed"]),
    ("inspect klingon.jsonl --kind sentences", ["klingon.jsonl, line 2: 'klingon' is not a language code"]),
    ("inspect fi-en.tsv --kind parallel", ["`on_bad_row: skip` in the recipe's data entry", "--on-bad-row skip"]),
    ("inspect good.jsonl --kind tables", ["'tables'", "documents"]),
    ("inspect good.jsonl --kind sentences --option lang", ["--option 'lang': write key=value"]),
    ("inspect good.jsonl --kind sentences --option lang=[", ["--option 'lang=['", "not valid YAML"]),
    ("inspect good.jsonl --kind sentences --option path=x", ["--option 'path=x': write key=value"]),
    ("inspect good.jsonl --kind documents --option threshold=1", ["no option 'threshold'"]),
    ("inspect good.jsonl --kind sentences --side both --lang fi", ["good.jsonl"]),
    ("inspect good_en --on-bad-row skip", ["'on_bad_row' is an option of other kinds", "--kind"]),
]
INDEXES = [
    ("index model nowhere.jsonl --out new", ["nowhere.jsonl: no such file"]),
    ("index model empty.jsonl --out new", ["empty.jsonl: is empty"]),
    ("index model broken.jsonl --on-bad-row error --out new", ["broken.jsonl, line 2: not JSON"]),
    ("index model notext.jsonl --on-bad-row error --out new", ["notext.jsonl, line 2: no 'text'"]),
    (
        "index model twice.jsonl --on-bad-row error --out new",
        ["twice.jsonl, line 2: the passage id 'one' occurs twice"],
    ),
    ("index model good.jsonl good.jsonl --on-bad-row error --out new", ["passage id '1' occurs twice"]),
    (
        "index model klingon.jsonl --on-bad-row error --out new",
        ["klingon.jsonl, line 2: 'klingon' is not a language code"],
    ),
    ("index model good.jsonl --lang klingon --out new", ["'klingon' is not a language code"]),
    ("index model good.qrels --out new", ["good.qrels: passages are read from jsonl"]),
    ("index model encyclopedia:sw --out index", ["index: already exists", "--overwrite"]),
    ("index model twice.jsonl --out index --overwrite --on-bad-row error", ["twice.jsonl, line 2"]),
    ("index model good.jsonl --out model --overwrite", ["model: is not an index"]),
    ("index model good.jsonl --out good.run/new", ["good.run"]),
    ("serve index --port 99999999", ["--port 99999999: a port is a number from 0 to 65535"]),
    ("search nowhere a", ["nowhere: no such index folder"]),
    ("search index " + "\ufdfa" * 600, ["at most 10,000 characters", "this one of 600 has 10,800"]),
    ("search index a --model nothing", ["nothing: is not a model folder"]),
    ("search damaged a", ["damaged: the table of passages cannot be read"]),
    ("search good_en a", ["good_en: is not an index"]),
    ("search index a --lang-of-results fi", ["index: has no passage in language 'fi'"]),
    ("search index a --lang-of-results klingon", ["index: has no passage in language 'klingon', which is no code"]),
    ("search index a -k 0", ["k=0"]),
    ("search index a -k few", ["-k", "'few'"]),
    ("search index", ["question", "See `interlingua search --help`"]),
]


@pytest.mark.parametrize(
    ("command", "says"),
    [*RECIPES, *MODELS, *COLLECTIONS_AND_RUNS, *INDEXES],
    ids=lambda value: re.sub(r"\W+", "-", value) if isinstance(value, str) else "",
)
def test_one_line_names_the_mistake(place, monkeypatch, capsys, command, says):
    monkeypatch.chdir(place)
    fails(capsys, command, *says)
    assert not (place / "new").exists() or not any((place / "new").glob("*/"))
    assert not (place / "new.npy").exists()
    shutil.rmtree(place / "new", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("data.questions.path=empty.jsonl", ["empty.jsonl: is empty"]),
        ("data.questions.path=latin1.jsonl", ["latin1.jsonl, line 2: not UTF-8"]),
        ("data.parallel.path=fi-en.tsv", ["fi-en.tsv, line 2: 4 column(s)"]),
        ("data.questions.path=encyclopedia:klingon", ["'klingon'"]),
        ("data.parallel.langs=[yo]", ["data.parallel", "no records in yo"]),
        ("model.backbone=nothing", ["nothing: is not a model folder"]),
        ("model.backbone=pickle", ["pickle: holds pytorch_model.bin only"]),
        ("model.backbone=poisoned", ["the loss of 'retrieval' is nan", "Lower optimizer.lr"]),
        ("optimizer.lr=1e39", ["the loss of 'retrieval' is nan"]),
        ("optimizer.lr=1e39 training.checkpoint_every=1", ["not finite", "Lower optimizer.lr"]),
    ],
)
def test_a_failed_run_leaves_its_folder_to_the_mended_recipe(place, monkeypatch, capsys, change, says):
    monkeypatch.chdir(place)
    fails(capsys, f"train recipe.yaml {change} --out failed", *says, progress=True)
    assert not list(place.glob("failed/checkpoints/step-*"))
    assert not (place / "failed/model").exists()
    assert main(["train", "recipe.yaml", "training.steps=1", "--out", "failed"]) == 0
    model = DualEncoder.load(place / "failed/model")
    assert abs(model.encode_query(["a book"])).sum() > 0
    shutil.rmtree(place / "failed")


def test_a_run_of_another_recipe_is_not_touched(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["train", "recipe.yaml", "--out", "run"]) == 0
    fails(capsys, "train recipe.yaml seed=9 --out run", "run: holds a run of another recipe", "run/recipe.yaml")
    shutil.rmtree(place / "run/model")
    fails(capsys, "train recipe.yaml seed=9 --out run", "run: holds a run of another recipe")
    assert main(["train", "recipe.yaml", "--out", "run"]) == 0
    DualEncoder.load("run/model")


def test_an_unwritable_out_is_named(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    fails(capsys, "train recipe.yaml --out good.jsonl", "good.jsonl")
    fails(capsys, "train recipe.yaml --out good.jsonl/run", "good.jsonl/run")
    # the temporary file's own name says nothing to a person
    (place / "full.npy").mkdir(exist_ok=True)
    assert fails(capsys, "encode model good.run --out full.npy") == "interlingua: full.npy: Is a directory."
    assert ".part" not in fails(capsys, "encode model good.run --out /proc/new.npy", "/proc/new.npy")


@pytest.mark.parametrize(
    ("name", "says"), [("latin1.txt", "/dev/stdin, line 2: not UTF-8"), ("empty.txt", "/dev/stdin: is empty")]
)
def test_standard_input_that_cannot_be_read(place, monkeypatch, capsys, standard_input, name, says):
    monkeypatch.chdir(place)
    with open(name, "rb") as stream, standard_input(stream.fileno()):
        fails(capsys, "encode model --out new.npy", says)


@pytest.mark.parametrize(
    "command",
    [
        "inspect pipe",
        "inspect pipe --kind sentences --lang en",
        "encode model pipe --out new.npy",
        "encode model pipe --out new.parquet",
        "compare pipe good.run --qrels good.qrels",
        "compare good.run good.run --qrels pipe",
        "mine pipe latin1.txt --model model --out new.tsv",
        "calibrate model --on en=pipe --out new",
        "index model pipe --out new",
        "evaluate model --on pipe",
    ],
)
def test_a_pipe_to_which_nobody_writes_is_named(place, monkeypatch, capsys, command):
    monkeypatch.chdir(place)
    monkeypatch.setattr("interlingua.pipes.PATIENCE", 0.0)
    if not Path("pipe").exists():
        os.mkfifo("pipe")
    fails(capsys, command, "pipe: nothing writes to this pipe. Start the program that fills it first.")


@pytest.mark.parametrize("command", ["--debug evaluate model --on nowhere", "evaluate model --on nowhere --debug"])
def test_debug_shows_where_it_was_raised(place, monkeypatch, capsys, command):
    monkeypatch.chdir(place)
    assert main(shlex.split(command)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert any("NotFound: nowhere: no such collection" in line for line in lines)
    assert lines[-1].startswith("interlingua: nowhere: no such collection")


def test_a_mistake_in_our_own_code_is_not_dressed_up_as_a_persons(place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(json, "dumps", None)
    assert main(["search", "index", "a", "--json"]) == 70
    assert "interlingua: this is a defect in interlingua (TypeError: " in capsys.readouterr().err


def test_what_was_there_still_works_after_all_of_it(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["search", "index", "book", "-k", "1"]) == 0
    assert capsys.readouterr().out.startswith(" 1. ")
    assert len(Index.open("index")) == len(load_collection("encyclopedia:en").passages)
