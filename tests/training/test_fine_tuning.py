"""Whole runs on triples by id and with a teacher: they resume as they began, and learn what they are meant to."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from interlingua.data.readers import read_parallel, read_questions
from interlingua.models.dual import DualEncoder
from interlingua.training.build import train
from interlingua.training.recipe import resolve
from interlingua.training.trainer import Trainer

MODEL = {"backbone": {"static": {"vocab_size": 3000, "dim": 24}}, "encoders": "tied"}


def recipe(data, objectives, steps, root=None):
    settings = {"steps": steps, "checkpoint_every": 4, "log_every": 4, "tensorboard": False}
    return resolve(
        {
            "model": MODEL,
            "data": data,
            "objectives": objectives,
            "training": settings,
            "optimizer": {"lr": 0.02, "warmup": 2},
        },
        data=str(root),
    )


@pytest.fixture(scope="module")
def marco(tmp_path_factory):
    """The bundled questions in MS MARCO's layout: each with its passage and that of another."""
    root = tmp_path_factory.mktemp("marco")
    questions = list(read_questions("encyclopedia:train"))
    passages = {one.positives[0].id: " ".join(one.positives[0].text.split()) for one in questions}
    names = list(passages)
    files = {
        "queries": [(str(i), one.question) for i, one in enumerate(questions)],
        "collection": passages.items(),
        "triples": [
            (str(i), one.positives[0].id, names[names.index(one.positives[0].id) - 1])
            for i, one in enumerate(questions)
        ],
    }
    for name, rows in files.items():
        (root / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return root


@pytest.mark.slow
def test_a_run_on_triples_resumes_to_the_same_weights(marco, tmp_path, monkeypatch):
    data = {
        "questions": {
            "kind": "triples",
            "path": "{data}/triples.tsv",
            "batch": 6,
            "options": {"queries": "{data}/queries.tsv", "passages": ["{data}/collection.tsv"]},
        }
    }
    on_triples = recipe(data, {"retrieval": {"temperature": 0.05}}, 12, marco)
    train(on_triples, tmp_path / "whole")
    step = Trainer._step

    def until_seven(self, parts, number, measure):
        if number == 7:
            raise KeyboardInterrupt
        return step(self, parts, number, measure)

    monkeypatch.setattr(Trainer, "_step", until_seven)
    with pytest.raises(KeyboardInterrupt):
        train(on_triples, tmp_path / "broken")
    monkeypatch.undo()
    train(on_triples, tmp_path / "broken")
    whole, again = (
        load_file(next((tmp_path / run / "model").rglob("model.safetensors"))) for run in ("whole", "broken")
    )
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def nearest(a, b):
    """How many rows of a have the same row of b as their nearest."""
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    return float(((a @ b.T).argmax(1) == np.arange(len(a))).mean())


PAIRS = {"parallel": {"path": "encyclopedia:train", "batch": 32, "langs": ["fi"]}}


@pytest.fixture(scope="module")
def fi_en():
    return list(read_parallel("encyclopedia:train", source_lang="fi"))


@pytest.mark.slow
def test_a_student_goes_where_the_teacher_is(tmp_path, tiny_static, fi_en):
    DualEncoder.tied(tiny_static(seed=3)).save(tmp_path / "teacher")
    lesson = {"distillation": {"teacher": str(tmp_path / "teacher"), "weight": 24.0}}
    model = train(recipe(PAIRS, lesson, 45), tmp_path / "run")
    teacher = DualEncoder.load(tmp_path / "teacher").encode_document([pair.target for pair in fi_en])
    start = DualEncoder.load(tmp_path / "run/start")
    for side in ("source", "target"):
        texts = [getattr(pair, side) for pair in fi_en]
        before, after = (nearest(one.encode_document(texts), teacher) for one in (start, model))
        assert before < 0.1
        assert after > 0.5


@pytest.mark.slow
def test_entries_that_centre_and_that_do_not_share_what_one_teacher_was_asked(tmp_path, tiny_static, caplog):
    DualEncoder.tied(tiny_static(seed=3)).save(tmp_path / "teacher")
    asked = {"model": str(tmp_path / "teacher"), "vectors": str(tmp_path / "vectors")}
    lessons = {
        "distillation": {"teacher": asked, "lang": "en"},
        "centred": {"kind": "distillation", "teacher": {**asked, "centre": True}, "lang": None},
    }
    with caplog.at_level("INFO"):
        train(recipe(PAIRS, lessons, 2), tmp_path / "run")
    assert caplog.text.count("the teacher's vectors of") == 1


@pytest.mark.slow
def test_translation_ranking_brings_translations_together(tmp_path, fi_en):
    model = train(recipe(PAIRS, {"translation_ranking": {}}, 20), tmp_path / "run")
    sides = [[getattr(pair, side) for pair in fi_en] for side in ("source", "target")]
    before, after = (
        nearest(*map(one.encode_document, sides)) for one in (DualEncoder.load(tmp_path / "run/start"), model)
    )
    assert after > before + 0.3
