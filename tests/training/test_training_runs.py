"""Whole runs: interrupted ones end as unbroken ones do, two processes learn what one learns, mistakes are named."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch
import yaml
from safetensors.torch import load_file

from interlingua import files
from interlingua.errors import Busy, InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.training.build import LOCK, train
from interlingua.training.checkpoint import newest
from interlingua.training.recipe import resolve
from interlingua.training.weighted import check

sys.path.append(str(Path(__file__).parents[1]))
from small_recipes import CONTEXT, SCRATCH, STATIC


def weights(folder):
    return {str(p.relative_to(folder)): load_file(p) for p in sorted(Path(folder).rglob("model.safetensors"))}


def equal(a, b):
    assert a.keys() == b.keys()
    return all(torch.equal(a[f][k], b[f][k]) for f in a for k in a[f])


def losses(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_the_disk_holds_the_log_of_a_run_before_the_checkpoint_that_goes_on_from_it(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def syncing(handle):
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", syncing)
    train(resolve(STATIC), tmp_path / "run")
    names = [path.name for path in synced if path.name in ("log.jsonl", "state.json")]
    assert names == ["log.jsonl", "state.json"] * 3
    assert {tmp_path / "run", tmp_path / "run/checkpoints"} <= set(synced)


@pytest.mark.slow
@pytest.mark.parametrize("tree", [STATIC, SCRATCH, CONTEXT], ids=["static", "scratch", "context"])
def test_same_seed_same_weights_and_a_finished_run_is_left_alone(tmp_path, tree):
    train(resolve(tree), tmp_path / "a")
    train(resolve(tree), tmp_path / "b")
    assert equal(weights(tmp_path / "a/model"), weights(tmp_path / "b/model"))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    before = (tmp_path / "a/model/modules.json").stat().st_mtime_ns
    train(resolve(tree), tmp_path / "a")
    assert (tmp_path / "a/model/modules.json").stat().st_mtime_ns == before
    other = resolve(tree, ["seed=7"])
    train(other, tmp_path / "c")
    assert not equal(weights(tmp_path / "a/model"), weights(tmp_path / "c/model"))


@pytest.mark.slow
def test_balanced_gradients_train_another_model(tmp_path):
    for value in ("false", "true"):
        train(resolve(STATIC, ["training.steps=1", f"training.balance_gradients={value}"]), tmp_path / value)
    assert not equal(weights(tmp_path / "false/model"), weights(tmp_path / "true/model"))


@pytest.mark.slow
def test_frozen_parts_stay_as_they_are_and_the_rest_learns(tmp_path, tiny_encoder):
    tiny_encoder(layers=3).save(tmp_path / "given")
    backbone = {"name": str(tmp_path / "given"), "layers": [0, 2]}
    tree = {**STATIC, "model": {"backbone": backbone, "encoders": "tied", "freeze": ["embeddings", "layers.0-0"]}}
    model = train(resolve(tree, ["training.steps=3", "training.gradient_cache=4"]), tmp_path / "run")
    assert model.query.backbone.layers == 2
    before, after = (weights(tmp_path / "run" / part)["model.safetensors"] for part in ("start", "model"))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.split(".")[2] for name in moved if name.startswith("encoder.layer.")} == {"1"}
    assert not any(name.startswith("embeddings.") for name in moved)
    assert DualEncoder.load(tmp_path / "run/model", for_training=True).query.input_embeddings.weight.requires_grad


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["layers.1-3"], r"model\.freeze: layers\.1-3 is not in this model, which has the layers 0 to 2"),
        (["embeddings", "layers.0-1", "layers.2"], "is all of the model; nothing is left to train"),
    ],
)
def test_parts_that_cannot_be_frozen_are_named(tmp_path, tiny_encoder, parts, message):
    tiny_encoder(layers=3).save(tmp_path / "given")
    tree = {**STATIC, "model": {"backbone": str(tmp_path / "given"), "freeze": parts}}
    with pytest.raises(InterlinguaError, match=message):
        train(resolve(tree), tmp_path / "run")


@pytest.mark.slow
def test_float16_trains_as_float32_does_and_goes_on_with_its_loss_scale(tmp_path):
    """On a CPU float16 is emulated, by the same autocast, loss scale and checkpoints as on a GPU."""
    tree = {**SCRATCH, "training": {**SCRATCH["training"], "steps": 8, "log_every": 1}}
    half = {**tree, "training": {**tree["training"], "precision": "fp16"}}
    train(resolve(tree), tmp_path / "single")
    train(resolve(half), tmp_path / "half")
    single, whole = losses(tmp_path / "single"), losses(tmp_path / "half")
    assert [line["retrieval/loss"] for line in whole] == pytest.approx(
        [line["retrieval/loss"] for line in single], rel=0.02
    )
    assert [line["retrieval/loss"] for line in whole] != [line["retrieval/loss"] for line in single]
    assert {line["loss_scale"] for line in whole} <= {2.0**n for n in range(17)}
    state = tmp_path / "half/checkpoints/step-0000004/state.json"
    assert json.loads(state.read_text())["loss_scale"][0] == whole[3]["loss_scale"]
    shutil.rmtree(tmp_path / "half/model")
    (tmp_path / "half/checkpoints/step-0000008").rename(tmp_path / "half/checkpoints/step-0000008 (copy)")
    kept = json.loads(state.read_text())
    state.write_text(json.dumps({**kept, "loss_scale": [2.0**4, 1]}))
    train(resolve(half), tmp_path / "half")
    assert [line["loss_scale"] for line in losses(tmp_path / "half")[4:]] == [2.0**4] * 4


@pytest.mark.slow
def test_only_embeddings_that_were_read_are_updated(tmp_path, tiny_encoder):
    tiny_encoder(layers=1).save(tmp_path / "given")
    tree = {**STATIC, "model": {"backbone": str(tmp_path / "given"), "encoders": "tied"}}
    sparse, few = ["optimizer.sparse_embeddings=true"], ["data.questions.batch=2", "data.parallel.batch=2"]

    def run(name, *overrides):
        train(resolve(tree, [*few, *overrides]), tmp_path / name)
        return weights(tmp_path / name / "model")["model.safetensors"]

    table = "embeddings.word_embeddings.weight"
    start = load_file(tmp_path / "given/model.safetensors")[table]
    # without momentum of an earlier step both are Adam, but where a gradient is mere rounding
    one, other = (run(f"one{len(o)}", "training.steps=1", "optimizer.eps=1e-12", *o)[table] for o in ([], sparse))
    assert float((one - start).abs().max()) > 1e-3
    assert float(((one - other).abs() > 1e-5).float().mean()) < 0.05
    whole = run("whole", "training.steps=4", "training.checkpoint_every=2", *sparse)
    read = (whole[table] - start).abs().sum(1) > 0
    assert 10 < int(read.sum()) < len(read) / 2
    assert not torch.equal(run("dense", "training.steps=4")[table], whole[table])
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for newer in ("model", "checkpoints/step-0000004"):
        shutil.rmtree(tmp_path / "again" / newer)
    shutil.rmtree(tmp_path / "given")  # a run that goes on needs the model no more that it began with
    run("again", "training.steps=4", "training.checkpoint_every=2", *sparse)
    assert equal(weights(tmp_path / "again/model"), weights(tmp_path / "whole/model"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tree", "number"),
    [(SCRATCH, signal.SIGKILL), (SCRATCH, signal.SIGINT), (CONTEXT, signal.SIGKILL)],
    ids=["kill", "ctrl-c", "kill with a bank"],
)
def test_a_killed_run_resumes_bit_for_bit(tmp_path, python, tree, number):
    """A real process, really killed, at whatever point it is some steps after its second checkpoint."""
    tree = {**tree, "training": {**tree["training"], "steps": 60, "checkpoint_every": 5}}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    train(resolve(tree), tmp_path / "whole")
    command = ["-m", "interlingua", "train", str(recipe), "--out", str(tmp_path / "broken")]
    process = python(*command)
    heard = next((line for line in process.stderr if line.startswith("step 12/60")), None)
    assert heard, "it ended before step 12"
    assert (tmp_path / "broken/checkpoints/step-0000010").exists()
    process.send_signal(number)
    _, said = process.communicate(60)
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    assert not (tmp_path / "broken/model").exists()
    if number == signal.SIGINT:
        assert "the same command goes on from there" in said
    again = python(*command)
    _, said = again.communicate()
    assert again.returncode == 0, said
    assert "going on after step" in said
    assert equal(weights(tmp_path / "whole/model"), weights(tmp_path / "broken/model"))
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")


TEMPERED = {"retrieval": {"temperature": 0.05, "hard_negatives": 0, "learnable_temperature": True}}
WARM_UP = {
    "data": {"sentences": {"path": "encyclopedia", "batch": 9}},
    "objectives": {"masked_language_modelling": {}},
    "optimizer": {"lr": 0.001},
    "training": {"steps": 3, "tensorboard": False},
}


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(learned):
    done = learned({**SCRATCH, "objectives": {**SCRATCH["objectives"], **TEMPERED}, "warm_up": WARM_UP})
    assert {"retrieval/loss", "semantic/loss", "language/excess", "semantic/gradient_norm"} <= logged(done.two)


@pytest.mark.slow
def test_two_processes_share_a_bank_and_masks(learned):
    contexts = {**CONTEXT["data"]["contexts"], "batch": 8}  # of the few of a small batch two are alike
    done = learned(
        {**CONTEXT, "model": {**CONTEXT["model"], "pooling": "mean"}, "data": {**CONTEXT["data"], "contexts": contexts}}
    )
    assert {"context_prediction/loss", "context_prediction/bank", "masked_language_modelling/loss"} <= logged(done.two)


@pytest.mark.slow
def test_processes_that_read_batches_of_their_own_learn_what_one_learns(learned):
    """CCP's 32 windows are those of one process; the bank is of all. Batch statistics would be of each process."""
    contexts = {**CONTEXT["data"]["contexts"], "batch": 8}
    tree = {
        **CONTEXT,
        "model": {**CONTEXT["model"], "pooling": "mean"},
        "data": {**CONTEXT["data"], "contexts": contexts},
    }
    tree["objectives"] = {**tree["objectives"], "context_prediction": {"bank": 16, "batch_norm": "none"}}
    tree["training"] = {**tree["training"], "own_batches": True}
    done = learned(tree, logged="_prediction/loss")
    assert {"context_prediction/loss", "masked_language_modelling/loss"} <= logged(done.two)


@pytest.mark.slow
def test_batches_of_their_own_must_come_out_even(tmp_path, monkeypatch):
    from interlingua.training.processes import Processes

    monkeypatch.setattr(Processes, "join", staticmethod(lambda device: Processes(0, 3, torch.device("cpu"))))
    for name in ("wait", "total"):
        monkeypatch.setattr(Processes, name, lambda self, *value: None)
    with pytest.raises(InterlinguaError, match=r"accumulate is 4, and 3 processes read batches of their own"):
        train(resolve(CONTEXT, ["training.own_batches=true"]), tmp_path / "run")


def logged(folder):
    return {key for line in losses(folder) for key in line}


@pytest.mark.slow
def test_two_processes_that_torchrun_starts(learned, tmp_path):
    done = learned({**STATIC, "objectives": {**STATIC["objectives"], **TEMPERED}})
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            "interlingua",
            "train",
            str(done.recipe),
            "--out",
            str(tmp_path / "torchrun"),
            "--device",
            "cpu",
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert equal(weights(done.two / "model"), weights(tmp_path / "torchrun/model"))
    assert losses(done.two) == losses(tmp_path / "torchrun")


@pytest.mark.slow
def test_a_mix_takes_one_objective_a_step_and_both_come(tmp_path):
    train(resolve(CONTEXT, ["training.log_every=1", "training.steps=20"]), tmp_path)
    taken = [{key for key in line if key.endswith("/loss")} for line in losses(tmp_path)]
    assert all(len(names) == 1 for names in taken)
    drawn = sum("context_prediction/loss" in names for names in taken)
    train(
        resolve(
            CONTEXT,
            [
                "training.log_every=1",
                "training.steps=20",
                "training.objective_sampling.context_prediction=0.05",
                "training.objective_sampling.masked_language_modelling=0.95",
            ],
        ),
        tmp_path / "rare",
    )
    rare = sum("context_prediction/loss" in line for line in losses(tmp_path / "rare"))
    assert rare < 5 < drawn < 19
    assert max(line.get("context_prediction/bank", 0) for line in losses(tmp_path)) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.objective_sampling={retrieval: 1}", "Give each one a share"),
        ("training.objective_sampling={context_prediction: 1, masked_language_modelling: 0}", "above 0"),
        ("training.step_mode=alternate", "Leave one of them out"),
        ("data.contexts.batch=1", "at least 2 windows"),
        ("data.contexts.one_language=false", "one_language: true"),
    ],
)
def test_a_context_recipe_that_cannot_work_is_an_error(tmp_path, override, message):
    often = ["training.objective_sampling.context_prediction=50"]
    with pytest.raises(InterlinguaError, match=message):
        train(resolve(CONTEXT, [override, *often] if "data" in override else [override]), tmp_path)


@pytest.mark.slow
def test_accumulated_batches_are_one_step_on_their_mean(tmp_path, monkeypatch):
    """Two batches of pairs: the step's gradient is the mean of theirs."""
    from interlingua.training import trainer as module

    seen = []
    tree = {
        **CONTEXT,
        "objectives": {"semantic": {}},
        "data": {"parallel": {"path": "encyclopedia:train", "batch": 4}},
        "training": {"steps": 1, "tensorboard": False},
    }
    tree["model"] = {**tree["model"], "backbone": {"scratch": {**tree["model"]["backbone"]["scratch"], "dropout": 0.0}}}
    one = module.Optimizer.step

    def step(self, number):
        seen.append([p.grad.clone() for p in self.parameters if p.grad is not None])
        return one(self, number)

    monkeypatch.setattr(module.Optimizer, "step", step)
    constant = ["optimizer.lr=1.0e-20", "optimizer.schedule=constant", "optimizer.warmup=0"]
    train(resolve(tree, [*constant, "training.accumulate=2"]), tmp_path / "mean")
    train(resolve(tree, [*constant, "training.steps=2"]), tmp_path / "each")
    mean, first, second = seen
    for m, a, b in zip(mean, first, second, strict=True):
        torch.testing.assert_close(m, (a + b) / 2, atol=1e-6, rtol=1e-3)


@pytest.mark.slow
def test_warm_up_runs_first_and_its_model_is_the_start(tmp_path):
    warm = {
        "data": {"questions": {"kind": "cloze", "path": "encyclopedia", "batch": 8}},
        "objectives": {"retrieval": {"temperature": 0.05, "hard_negatives": 0}},
        "training": {"steps": 3, "tensorboard": False},
    }
    train(resolve({**STATIC, "warm_up": warm}), tmp_path)
    assert equal(weights(tmp_path / "warm_up/model"), weights(tmp_path / "start"))
    assert not equal(weights(tmp_path / "start"), weights(tmp_path / "model"))


@pytest.mark.slow
def test_validation_keeps_the_best(tmp_path):
    tree = {
        **STATIC,
        "validation": {"questions": {"path": "encyclopedia:train"}, "batch": 8, "limit": 32},
        "training": {**STATIC["training"], "validate_every": 4, "keep": "best"},
    }
    train(resolve(tree), tmp_path)
    nll = {line["step"]: line["validation/nll"] for line in losses(tmp_path) if "validation/nll" in line}
    assert set(nll) == {4, 8, 12}
    assert equal(weights(tmp_path / "best"), weights(tmp_path / "model"))


@pytest.mark.slow
def test_alternate_steps_differ_from_accumulated_ones(tmp_path):
    train(resolve(STATIC), tmp_path / "accumulate")
    train(resolve(STATIC, ["training.step_mode=alternate"]), tmp_path / "alternate")
    assert not equal(weights(tmp_path / "accumulate/model"), weights(tmp_path / "alternate/model"))


@pytest.mark.slow
def test_what_is_saved_loads_and_searches(tmp_path):
    model = train(resolve(SCRATCH), tmp_path)
    loaded = DualEncoder.load(tmp_path / "model")
    assert not loaded.tied
    vectors = loaded.encode_query(["What do bees make?"])
    torch.testing.assert_close(
        torch.tensor(vectors), torch.tensor(model.encode_query(["What do bees make?"])), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["objectives.retrieval.temprature=1"],
            "objectives.retrieval: unknown key 'temprature'. Did you mean 'temperature'",
        ),
        (["objectives.semantik={}"], "objectives.semantik is not known. Did you mean 'semantic'"),
        (["objectives.retrieval=null", "objectives.semantic=null"], "repels nothing"),
        (["objectives.language.normalizer=maen"], "objectives.language: 'normalizer'"),
        (["objectives.language.weight=-0.1"], "objectives.language: 'weight'.*greater than or equal to 0"),
        (["training.precision=bf16"], "bf16 needs a GPU or a processor that has it"),
        (["optimizer.weight_decay=0.1", "optimizer.sparse_embeddings=true"], "rows that are not read would not decay"),
        (["optimizer.weight_decay=0.1"], "the subword vectors of a static model do not decay"),
        (
            ["objectives.masked_language_modelling={}", "optimizer.sparse_embeddings=true"],
            "optimizer.sparse_embeddings: masked_language_modelling predicts subwords",
        ),
        (
            ["objectives.comparable={condenser: 0}", "optimizer.sparse_embeddings=true"],
            "optimizer.sparse_embeddings: comparable predicts subwords",
        ),
        (["objectives.masked_language_modelling={}"], "needs data named 'sentences'"),
        (
            ["objectives.retrieval.weight=0", "objectives.semantic.weight=0"],
            "repels nothing and collapses alone.*with a weight above 0",
        ),
        (
            [f"objectives.{name}.weight=0" for name in ("retrieval", "semantic", "language")],
            "every objective has the weight 0",
        ),
        (["model.dense=false"], r"model\.dense: a new model has no Dense layers"),
        (["model.backbone.static.token_dropout=0.5"], r"a recipe says it as model\.token_dropout"),
        (
            ["validation.questions.path=encyclopedia:train", "validation.questions.kind=parallel"],
            "validation.questions is of kind parallel, and validation reads questions",
        ),
        (["data.questions.path=nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["warm_up={model: default, data: {}}"], r"warm_up: 'model'"),
        (["warm_up={data: {}, training: {steps: 1}, objectives: {context_predicton: {}}}"], "context_predicton"),
        (["data.questions={kind: cloze, path: encyclopedia, options: {max_chars: null}}"], r"options.*'max_chars'"),
        (["data.questions={kind: cloze, path: encyclopedia, options: {keep: often}}"], r"options.*'keep'"),
        # the model is looked for first: large data takes minutes to read
        (["model.backbone=./no/model", "data.questions.path=nowhere.jsonl"], r"\./no/model: is not a model folder"),
        (["data.parallel.langs=[yo]"], "gave no records in yo"),
        (["objectives.retrieval=null", "objectives.semantic=null", "objectives.language=null"], "no objectives"),
        (["validation.questions.path={folder}/one.jsonl"], "one.jsonl holds one question"),
    ],
)
def test_mistakes_in_a_run_are_named(tmp_path, monkeypatch, overrides, says):
    (tmp_path / "one.jsonl").write_text('{"question": "Who?", "passage": "The keeper.", "lang": "en"}\n')
    overrides = [override.replace("{folder}", str(tmp_path)) for override in overrides]
    monkeypatch.setattr("interlingua.training.build.cpu_has_bfloat16", lambda: False)
    if "bf16" in overrides[0] and torch.cuda.is_available():
        pytest.skip("is about machines without bf16: CUDA_VISIBLE_DEVICES= make test")
    with pytest.raises(InterlinguaError, match=says):
        train(resolve(STATIC, overrides), tmp_path / "run")


def test_the_vocabulary_is_that_of_the_data_that_is_trained_on(tmp_path, monkeypatch):
    """A run that was stopped before its first checkpoint, and whose data was mended since."""
    text = tmp_path / "text.tsv"
    tree = {
        "model": {"backbone": {"static": {"vocab_size": 300}}, "encoders": "tied"},
        "training": {"steps": 1, "tensorboard": False},
        "data": {"parallel": {"path": str(text), "batch": 2, "options": {"source_lang": "fi", "target_lang": "en"}}},
        "objectives": {"semantic": {}},
    }

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("interlingua.training.build._trainer", stopped)
    learned = []
    for word in ("aurinko", "kuunvalo"):
        text.write_text(
            "".join(f"{word} on pilvien takana {i}\tit is behind the clouds {i}\n" for i in range(40)), encoding="utf-8"
        )
        with pytest.raises(KeyboardInterrupt):
            train(resolve(tree), tmp_path / "run")
        learned.append((tmp_path / "run/start/tokenizer.json").read_text(encoding="utf-8"))
    assert learned[0] != learned[1]


@pytest.mark.parametrize("reads", ["raw", "contexts"])
def test_a_bank_that_is_too_large_is_said_whatever_its_data_is_called(reads, tmp_path, monkeypatch, caplog):
    tree = {**CONTEXT, "data": {reads: {"kind": "contexts", **CONTEXT["data"]["contexts"]}}}
    tree["objectives"] = {"context_prediction": {"bank": 5000, "reads": {"contexts": reads}}}
    tree["training"] = {"steps": 1, "tensorboard": False}
    monkeypatch.setattr("interlingua.training.build.Trainer.run", lambda _: None)
    train(resolve(tree), tmp_path / "run")
    assert "the memory bank holds 5,000 vectors" in caplog.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], ""),
        (["optimizer.warmup=2", "training.steps=2"], "optimizer.warmup is 2 of 2 steps"),
        (["objectives.semantic.on=passage"], "semantic acts on questions and passages alike"),
        (["objectives.semantic.on=both"], ""),
        (
            ["objectives.retrieval=null", "objectives.hard={kind: retrieval, temperature: 1.0}"],
            r"objectives\.hard\.temperature=0\.05 tells",
        ),
    ],
)
def test_what_a_combination_brings_is_said_before_it_trains(tmp_path, caplog, changes, says):
    train(resolve(STATIC, ["training.steps=3", *changes]), tmp_path / "run")
    notes = [record.getMessage() for record in caplog.records if record.getMessage().startswith("note:")]
    assert len(notes) == bool(says), notes
    assert re.search(says, "".join(notes))


def test_sparse_embeddings_of_a_static_model_are_said_to_change_nothing(tmp_path, caplog):
    train(resolve(STATIC, ["training.steps=3", "optimizer.sparse_embeddings=true"]), tmp_path / "run")
    assert "optimizer.sparse_embeddings changes nothing here" in caplog.text


def test_token_dropout_of_a_transformer_is_said_to_do_nothing(tmp_path, tiny_encoder, caplog):
    tiny_encoder().save(tmp_path / "backbone")
    changes = [f"model.backbone={tmp_path / 'backbone'}", "training.steps=1"]
    train(resolve(STATIC, changes), tmp_path / "run")
    assert "model.token_dropout does nothing here" in caplog.text


@pytest.mark.slow
def test_a_folder_of_another_recipe_and_a_damaged_checkpoint(tmp_path):
    short = resolve(STATIC, ["training.steps=4"])
    train(short, tmp_path)
    with pytest.raises(InterlinguaError, match="another recipe"):
        train(resolve(STATIC, ["seed=9"]), tmp_path)
    shutil.rmtree(tmp_path / "model")
    file = next((tmp_path / "checkpoints").glob("*/model.safetensors"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InterlinguaError, match="the checkpoint is damaged"):
        train(short, tmp_path)


def test_only_what_predicts_subwords_forbids_row_sparse_updates():
    tree = {
        "model": {"backbone": {"scratch": {}}, "encoders": "tied"},
        "data": {"linked": {"path": "documents.jsonl", "batch": 4}},
        "objectives": {"comparable": {"mlm": 0, "condenser": 0}},
        "optimizer": {"sparse_embeddings": True},
        "training": {"steps": 1},
    }
    check(resolve(tree))
    for weight in ("mlm", "condenser"):
        with pytest.raises(InterlinguaError, match="comparable predicts subwords"):
            check(resolve({**tree, "objectives": {"comparable": {"mlm": 0, "condenser": 0, weight: 0.5}}}))


@pytest.mark.slow
def test_a_folder_in_which_another_process_trains_is_refused_or_waited_for(tmp_path, monkeypatch):
    tree = {**STATIC, "training": {**STATIC["training"], "steps": 2}}
    held = "import filelock, sys\nwith filelock.FileLock(sys.argv[1]):\n    print('held', flush=True)\n    input()"
    lock = subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path / LOCK)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert lock.stdout.readline() == "held\n"
    with pytest.raises(Busy, match="another process trains there"):
        train(resolve(tree), tmp_path)
    assert not (tmp_path / "recipe.yaml").exists()
    said = Event()
    monkeypatch.setattr(files.logger, "info", lambda message, *_: said.set() if "this one waits" in message else None)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(train, resolve(tree), tmp_path, wait=True)
        try:
            assert said.wait(60)
            assert not (tmp_path / "recipe.yaml").exists()
        finally:
            lock.kill()  # a killed process holds nothing
            lock.wait()
        waiting.result()
    assert (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["model", "start"])
def test_a_folder_of_somebody_else_is_no_run(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.txt").write_text("mine")
    with pytest.raises(InterlinguaError, match=f"{name}: is there, and of no training"):
        train(resolve(STATIC), tmp_path)
    assert (tmp_path / name / "mine.txt").exists()


@pytest.mark.slow
def test_other_validation_questions_are_not_compared_with_the_first(tmp_path):
    rows = [json.dumps({"question": f"What is {i}?", "passage": f"It is {i}.", "lang": "en"}) for i in range(12)]
    (tmp_path / "held.jsonl").write_text("\n".join(rows))
    tree = {
        **STATIC,
        "validation": {"questions": {"path": str(tmp_path / "held.jsonl")}, "batch": 4, "limit": 12},
        "training": {**STATIC["training"], "steps": 4, "checkpoint_every": 2, "validate_every": 2, "keep": "best"},
    }
    train(resolve(tree), tmp_path / "run")
    for newer in ("model", "checkpoints/step-0000004", "validation"):
        shutil.rmtree(tmp_path / "run" / newer)
    (tmp_path / "held.jsonl").write_text("\n".join(rows[:6]))
    with pytest.raises(InterlinguaError, match=r"validation\.questions: holds others than when the run began"):
        train(resolve(tree), tmp_path / "run")


def test_the_newest_checkpoint_is_that_of_the_highest_step(tmp_path):
    for step in ("9999999", "10000000", "0000042"):
        (tmp_path / f"step-{step}").mkdir()
    assert newest(tmp_path).name == "step-10000000"
