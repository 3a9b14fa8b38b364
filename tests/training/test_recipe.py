import json
from collections import Counter

import pytest
import torch
import yaml

from interlingua.errors import BadInput, InterlinguaError
from interlingua.models.folder import model_folder
from interlingua.models.late_interaction import load_any
from interlingua.plain_yaml import parse_yaml
from interlingua.training.build import train
from interlingua.training.recipe import (
    find_recipe,
    raw_recipe,
    read_recipe,
    recipe_folder,
    recipe_text,
    resolve,
    same_recipe,
)
from interlingua.training.weighted import check, training_digest, weighted_objective

BUNDLED = sorted(
    p for p in recipe_folder().rglob("*.yaml") if {"model", "base"} & set(parse_yaml(p.read_text(encoding="utf-8")))
)


@pytest.mark.parametrize("name", ["hu2023/paper", "ccp/finetune", "ccp/xor_finetune", "c3/dpr"])
def test_the_papers_letter_masks_nothing_and_is_chosen_by_all_questions(name):
    found = read_recipe(name, [], "/d")
    assert found.objectives["retrieval"]["mask_false_negatives"] is False
    assert found.validation is None or found.validation.limit == 6_515
    assert read_recipe("hu2023/robust", [], "/d").objectives["retrieval"]["mask_false_negatives"] is True


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        """
model: {backbone: {static: {}}, encoders: tied}
data: {questions: {path: "{data}/q.jsonl", batch: 8}}
objectives: {retrieval: {temperature: 0.05}}
training: {steps: 10}
""",
        encoding="utf-8",
    )
    return path


def test_overrides_and_data_folder(recipe):
    read = read_recipe(recipe, ["training.steps=7", "objectives.retrieval.temperature=0.1", "optimizer.lr=1e-3"], "/d")
    assert (read.training.steps, read.optimizer.lr, read.data["questions"].path) == (7, 1e-3, "/d/q.jsonl")
    assert read.objectives["retrieval"] == {"temperature": 0.1}


def test_values_of_overrides_are_read_as_people_mean_them(recipe):
    read = read_recipe(recipe, ["seed=010", "training.steps=1_000", "model.prompts.query=query: "], "/d")
    assert (read.seed, read.training.steps, read.model.prompts) == (10, 1_000, {"query": "query: "})
    assert read_recipe(recipe, ["seed=0x10"], "/d").seed == 16


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("training.steps=1:30", "'training.steps': input should be a valid integer"),
        ("training.steps=1_", "'training.steps': input should be a valid integer"),
        ("training.steps=0b11", "'training.steps': input should be a valid integer"),
        ("validation={questions: {path: q.jsonl}, limit: 1}", "'validation.limit': input should be greater than 1"),
        ("trainig.steps=3", "unknown key 'trainig'. Did you mean 'training'"),
        ("training.step=3", "unknown key 'training.step'. Did you mean 'steps'"),
        ("data.questoins.batch=3", r"'data\.questoins\.path' is missing\. Did you mean 'questions'"),
        ("data.questions.bach=3", "unknown key 'data.questions.bach'. Did you mean 'batch'"),
        ("training.steps=none", "'training.steps'"),
        ("training.steps", "not an override"),
        ("model.pooling=max", "'model.pooling'"),
        ("model.freeze=[embedings]", r"'model\.freeze': 'embedings' is no part of a model; write embeddings"),
        ("model.freeze=[layers.3-1]", "ends before it begins"),
        ("model.prompts={querry: q}", r"'model\.prompts': role 'querry' is not known"),
        ("validation.questions={path: q, limit: 9}", r"limit is for the data of a training; validation\.limit counts"),
        ("validation.questions={path: q, alpha: 0}", "alpha is for the data of a training. Leave it out"),
        ("training.mix={retrieval: 1}", r"training\.mix is called training\.objective_sampling\.$"),
        ("optimizer.betas=[2,3]", r"'optimizer\.betas\.0': input should be less than 1"),
        ("optimizer.clip=.inf", r"'optimizer\.clip': input should be a finite number"),
        ("seed=-1", "'seed'"),
        ("data.questions.batch=1000000000000", r"'data\.questions\.batch': .*less than or equal to 1000000"),
        ("model.length_power=0.5", r"model\.length_power is called model\.norm_power\.$"),
    ],
)
def test_mistakes_are_named(recipe, override, says):
    with pytest.raises(InterlinguaError, match=says):
        read_recipe(recipe, [override], "/d")


def test_missing_data_folder_and_missing_recipe(recipe, tmp_path):
    with pytest.raises(InterlinguaError, match="--data"):
        read_recipe(recipe)
    with pytest.raises(InterlinguaError, match="no such recipe"):
        read_recipe(tmp_path / "other.yaml")
    with pytest.raises(InterlinguaError, match="Did you mean 'hu2023/semantic'"):
        find_recipe("hu2023/semantik")


def test_base_is_read_first_and_null_removes(tmp_path, recipe):
    child = tmp_path / "child.yaml"
    child.write_text("base: r.yaml\ntraining: {steps: 3}\nobjectives: {semantic: {weight: 2.0}}\n", encoding="utf-8")
    tree = raw_recipe(child)
    assert tree["training"] == {"steps": 3}
    assert set(tree["objectives"]) == {"retrieval", "semantic"}
    assert resolve(tree, ["objectives.semantic=null"], "/d").objectives["semantic"] is None
    overrides = ["data.parallel={path: p.tsv, batch: 4}", "data.questions=null"]
    assert list(resolve(tree, overrides, "/d").data) == ["parallel"]


def test_a_null_that_leaves_out_nothing_is_told(tmp_path, recipe):
    """A misspelt name would leave what was meant in the run."""
    with pytest.raises(BadInput, match=r"data\.question: null leaves out what is not there\. Did you mean 'questions'"):
        read_recipe(recipe, ["data.question=null"], "/d")
    child = tmp_path / "child.yaml"
    child.write_text("base: r.yaml\nobjectives: {retrieva: null}\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"child\.yaml: objectives\.retrieva: .* Did you mean 'retrieval'"):
        raw_recipe(child)
    for kind in ("[]", "3", "null"):  # no mapping: said once the whole is checked
        child.write_text(f"base: r.yaml\ndata: {kind}\n", encoding="utf-8")
        with pytest.raises(BadInput, match="data"):
            read_recipe(child, data="/d")


@pytest.mark.parametrize("path", BUNDLED, ids=lambda p: p.stem)
def test_every_bundled_recipe_is_valid(path):
    if path.stem == "languages":
        pytest.skip("a part that others start from")
    assert read_recipe(path, data="/data").training.steps > 0


def test_balancing_is_written_out_only_where_it_is_on(recipe):
    """The text of a recipe says whether a run folder is its own: off must read as before there was the option."""
    off, on = (read_recipe(recipe, [f"training.balance_gradients={value}"], "/d") for value in ("false", "true"))
    assert "balance_gradients" not in recipe_text(off)
    assert recipe_text(off) == recipe_text(read_recipe(recipe, data="/d"))
    assert resolve(parse_yaml(recipe_text(on))) == on != off


def test_broken_yaml(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_text("model: [", encoding="utf-8")
    with pytest.raises(InterlinguaError, match=r"not valid YAML.*Put it in quotes: data\.x\.path='\{data\}/a\.tsv'"):
        resolve({}, ["data.x.path={data}/a.tsv"])
    with pytest.raises(InterlinguaError, match="not valid YAML"):
        read_recipe(path)


def test_a_kept_recipe_without_a_newer_field_is_the_same_recipe() -> None:
    recipe = read_recipe("hu2023/semantic", data="/d")
    kept = parse_yaml(recipe_text(recipe))
    del kept["training"]["accumulate"]
    assert same_recipe(yaml.safe_dump(kept, sort_keys=False), recipe)
    kept["training"]["steps"] += 1
    assert not same_recipe(yaml.safe_dump(kept, sort_keys=False), recipe)
    assert not same_recipe("a: [", recipe)
    kept["training"]["steps"] -= 1
    kept["model"]["length_power"] = kept["model"].pop("norm_power")
    kept["training"]["mix"] = kept["training"].pop("objective_sampling")
    assert same_recipe(yaml.safe_dump(kept, sort_keys=False), recipe)
    kept["model"]["length_power"] = 0.5
    assert not same_recipe(yaml.safe_dump(kept, sort_keys=False), recipe)
    assert not same_recipe("a: 1", recipe)


def test_an_entry_may_be_an_objective_of_another_name_on_data_of_another_name():
    tree = {
        "model": {"backbone": {"static": {}}},
        "training": {"steps": 1},
        "data": {"questions": {"path": "encyclopedia:train"}, "documents": {"kind": "cloze", "path": "x"}},
        "objectives": {
            "retrieval": {},
            "raw": {"kind": "retrieval", "reads": {"questions": "documents"}, "temperature": 0.1, "weight": 0.5},
        },
    }
    recipe = resolve(tree)
    check(recipe)
    term = weighted_objective("raw", recipe.objectives["raw"], None, recipe)
    assert (term.name, term.weight, term.streams(recipe.data)) == ("raw", 0.5, ["documents"])
    assert term.objective.settings.temperature == 0.1
    for change, message in (
        ({"kind": "retrievel"}, "kind: 'retrievel' is not known. Did you mean 'retrieval'"),
        ({"reads": {"question": "documents"}}, "reads.question"),
        ({"reads": {"questions": "documets"}}, "'documets' is no entry of data. Did you mean 'documents'"),
    ):
        wrong = resolve({**tree, "objectives": {"raw": {**tree["objectives"]["raw"], **change}}})
        with pytest.raises(InterlinguaError, match=message):
            check(wrong)


def test_the_vocabulary_comes_from_the_entry_that_is_named(tmp_path):
    tree = {
        "model": {"backbone": {"static": {"vocab_size": 600}}, "encoders": "tied"},
        "training": {"steps": 1, "tensorboard": False},
        "tokenizer_data": ["sentences"],
        "data": {
            "questions": {"path": "encyclopedia:train"},
            "sentences": {"path": "encyclopedia:train", "langs": ["fi"]},
        },
        "objectives": {"retrieval": {}},
    }
    model = train(resolve(tree), tmp_path / "run")
    fi, te = (model.query.tokenize([text])[0] for text in ("kahvipensaan siemenistä", "కాఫీ గింజలు"))
    unknown = model.query.backbone.subwords.tokenizer.token_to_id("<unk>")
    assert unknown not in fi
    assert unknown in te
    with pytest.raises(InterlinguaError, match=r"tokenizer_data: .* Did you mean"):
        train(resolve({**tree, "tokenizer_data": ["sentence"]}), tmp_path / "other")


@pytest.mark.slow
def test_a_vocabulary_is_learned_from_each_text_once(tmp_path):
    entry = {"path": "encyclopedia:train", "langs": ["fi"]}
    tree = {
        "model": {"backbone": {"static": {"vocab_size": 600}}, "encoders": "tied"},
        "training": {"steps": 1, "tensorboard": False},
        "tokenizer_data": ["sentences", "repeated"],
        "data": {
            "questions": {"path": "encyclopedia:train"},
            "sentences": entry,
            "repeated": {**entry, "kind": "sentences"},
        },
        "objectives": {"retrieval": {}},
    }
    once, twice = (
        train(resolve({**tree, "tokenizer_data": names}), tmp_path / str(len(names)))
        for names in (["sentences"], ["sentences", "repeated"])
    )
    assert torch.equal(once.query.backbone.folded(), twice.query.backbone.folded())  # also begun from the same counts


@pytest.mark.parametrize("text", ["1e5", "1e-5", "-3E7", "on", "no", "1.5", "~", "0x1f", "1_000", "2024-01-01", ""])
def test_a_recipe_is_read_back_as_it_was_written(recipe, text):
    read = read_recipe(recipe, data="/d")
    named = read.model_copy(update={"description": text})
    assert parse_yaml(recipe_text(named))["description"] == text
    assert same_recipe(recipe_text(named), named)


@pytest.mark.slow
def test_a_warm_up_evens_out_no_lengths(tmp_path):
    step = {"steps": 1, "tensorboard": False}
    tree = {
        "model": {"backbone": {"static": {"vocab_size": 600}}, "encoders": "tied", "norm_power": 0.5},
        "training": step,
        "data": {"questions": {"path": "encyclopedia:train"}},
        "objectives": {"retrieval": {}},
        "optimizer": {"lr": 1e-12},
    }
    warm = {name: tree[name] for name in ("training", "data", "objectives", "optimizer")}
    train(resolve({**tree, "warm_up": warm}), tmp_path)
    first, last = (load_any(tmp_path / place).query.backbone.folded() for place in ("warm_up/start", "model"))
    assert last.norm(dim=1).tolist() == pytest.approx(first.norm(dim=1).sqrt().tolist(), rel=1e-4)


@pytest.mark.slow
def test_frequent_subwords_of_any_language_weigh_less_in_the_saved_model(tmp_path):
    texts = {"en": ["the storm and the sea"] * 3000 + ["the keeper"] * 10, "fi": ["ja ja ja meri", "talo"]}
    rows = [{"lang": lang, "text": text} for lang, some in texts.items() for text in some]
    (tmp_path / "texts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tree = {
        "tokenizer_data": ["sentences"],
        "model": {"backbone": {"static": {"vocab_size": 300}}, "encoders": "tied"},
        "training": {"steps": 1, "checkpoint_every": 1, "tensorboard": False},
        "data": {"questions": {"path": "encyclopedia:train"}, "sentences": {"path": str(tmp_path / "texts.jsonl")}},
        "objectives": {"retrieval": {}},
    }
    plain = train(resolve(tree), tmp_path / "plain")
    weighed = train(resolve(tree, ["model.sif_coefficient=0.02"]), tmp_path / "weighed")
    shares, tokenize = Counter(), plain.query.backbone.subwords
    for some in texts.values():
        found = Counter(number for ids in tokenize(some) for number in ids)
        for number, count in found.items():  # a language of few subwords counts as one of 10,000
            shares[number] = max(shares[number], count / max(found.total(), 10_000))
    ratio = weighed.query.backbone.folded().norm(dim=1) / plain.query.backbone.folded().norm(dim=1)
    expected = [0.02 / (0.02 + shares[number]) for number in range(len(ratio))]
    assert ratio.tolist() == pytest.approx(expected, rel=1e-4)
    assert min(expected) < 0.2
    assert "sif_coefficient" not in recipe_text(resolve(tree))


def test_a_batch_of_more_records_than_there_are_is_told(tmp_path, caplog):
    row = '{{"question": "who is {0}?", "passage": "{0} is one of three"}}\n'
    (tmp_path / "few.jsonl").write_text("".join(map(row.format, ("anna", "bert", "carl"))), encoding="utf-8")
    tree = {
        "model": {"backbone": "default", "encoders": "tied"},
        "training": {"steps": 1, "tensorboard": False},
        "data": {"questions": {"path": str(tmp_path / "few.jsonl"), "batch": 3}},
        "objectives": {"retrieval": {}},
    }
    train(resolve(tree), tmp_path / "all")
    assert "data.questions.batch" not in caplog.text
    train(resolve(tree, ["data.questions.batch=4"]), tmp_path / "twice")
    assert "data.questions.batch is 4, and there are 3 records" in caplog.text
    assert "compares a text with itself alone" not in caplog.text
    train(resolve(tree, ["data.questions.batch=1", "objectives.retrieval.hard_negatives=0"]), tmp_path / "alone")
    assert "data.questions.batch is 1, so objectives.retrieval compares a text with itself alone" in caplog.text


def test_data_that_nothing_reads_is_said_and_not_opened(tmp_path, caplog):
    caplog.set_level("INFO")
    tree = {
        "model": {"backbone": "default", "encoders": "tied"},
        "training": {"steps": 1, "tensorboard": False},
        "data": {"questions": {"path": "encyclopedia:train", "batch": 4}, "raw": {"path": "nowhere.txt"}},
        "objectives": {"retrieval": {}},
    }
    tree["data"]["raw"]["kind"] = "sentences"
    train(resolve(tree), tmp_path / "run")
    assert "data.raw: it is not read, since no objective asks for it" in caplog.text
    with pytest.raises(InterlinguaError, match=r"nowhere\.txt: no such file"):  # its subwords would be counted
        train(resolve(tree, ["model.sif_coefficient=0.02"]), tmp_path / "counted")


def test_recipes_that_count_other_subwords_train_other_models():
    tree = {
        "model": {"backbone": "default", "encoders": "tied"},
        "training": {"steps": 1},
        "data": {"questions": {"path": "q"}, "sentences": {"path": "a"}},
        "objectives": {"retrieval": {}},
    }
    one, other = resolve(tree), resolve(tree, ["data.sentences.path=b"])
    assert training_digest(one) == training_digest(other)
    counted = [resolve(tree, ["model.sif_coefficient=0.02", f"data.sentences.path={path}"]) for path in ("a", "b")]
    assert training_digest(counted[0]) != training_digest(counted[1])


def test_what_a_recipe_cannot_train_is_said_before_anything_is_read():
    tree = {
        "model": {"backbone": "default", "encoders": "tied"},
        "training": {"steps": 1},
        "data": {"questions": {"path": "nowhere.jsonl"}},
        "objectives": {"retrieval": {}, "semantic": {}, "distillation": {"teacher": "default", "of": "sentences"}},
    }
    with pytest.raises(BadInput, match="objective 'semantic' needs data named 'parallel'; the recipe has questions"):
        check(resolve(tree))
    with pytest.raises(BadInput, match="objective 'distillation' needs data named 'sentences'"):
        check(resolve(tree, ["objectives.semantic=null"]))
    tree = resolve(tree, ["objectives.semantic=null", "objectives.distillation.of=questions"]).model_dump()
    check(resolve(tree))
    for change, says in (
        ("data.questions.kind=sentences", "data.questions is of kind sentences, and objectives.retrieval reads ques"),
        ("data.questions.kind=sentences", r"reads questions\. Give data of kind questions, triples or cloze\."),
        ("objectives.retrieval.reads={questions: more}", "data.more: say what it holds with kind: questions, triples"),
        ("validation={questions: {path: x, kind: parallel}}", "validation.questions is of kind parallel, and validati"),
    ):
        with pytest.raises(BadInput, match=says):
            check(resolve(tree, ["data.more={path: x}", change]))
    check(resolve(tree, ["data.questions.kind=triples"]))
    other = ["data.sentences={path: x, kind: cloze}", "objectives.retrieval.reads={questions: sentences}"]
    check(resolve(tree, [*other, "objectives.distillation=null"]))  # an entry may be called as another stream is
    other = ["data.contexts={path: x, kind: sentences}", "objectives.distillation.reads={sentences: contexts}"]
    check(resolve(tree, [*other, "objectives.distillation.of=sentences"]))
    masked = ["data.sentences={path: x}", "objectives.masked_language_modelling={}"]
    for backbone in ("default", str(model_folder("default")), "package:interlingua/models/default", "{static: {}}"):
        with pytest.raises(BadInput, match=r"masked_language_modelling .*which a static backbone has not"):
            check(resolve(tree, [*masked, f"model.backbone={backbone}"]))
    check(resolve(tree, [*masked, "model.backbone=xlm-roberta-base"]))


@pytest.mark.slow
def test_lengths_are_evened_out_in_the_saved_model_only(tmp_path):
    tree = {
        "model": {"backbone": {"static": {"vocab_size": 600}}, "encoders": "tied", "norm_power": 0.5},
        "training": {"steps": 2, "checkpoint_every": 2, "tensorboard": False},
        "data": {"questions": {"path": "encyclopedia:train"}},
        "objectives": {"retrieval": {}},
    }
    even = train(resolve(tree), tmp_path / "even")
    plain = train(resolve(tree, ["model.norm_power=1.0"]), tmp_path / "plain")
    rows, long = (model.query.backbone.folded().norm(dim=1) for model in (even, plain))
    assert rows.tolist() == pytest.approx((long**0.5).tolist(), rel=1e-4)
