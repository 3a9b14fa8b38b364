"""An encoder made smaller: fewer subwords and layers, and it says again what the whole one says."""

import json
from collections import Counter

import numpy as np
import pytest

from interlingua import Encoder
from interlingua.alignment import Calibration
from interlingua.data.encyclopedia import sentences
from interlingua.errors import BadInput
from interlingua.experiments.shrink import ShrinkSpec, shrink, spread
from interlingua.models.dual import DualEncoder

SPEC = {"texts": ["encyclopedia:train"], "layers": 2, "steps": 60, "batch": 32, "lr": 3e-3, "precision": "float32"}


@pytest.fixture(scope="module")
def teacher(tiny_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shrink") / "teacher"
    encoder = tiny_encoder(layers=3, pooling="mean")
    encoder.settings.prompts = {"query": "query: ", "document": "passage: "}
    encoder.save(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    return folder


def agreement(model, teacher):
    """The correlation of the cosines of texts, all with all, in a model and in its teacher."""
    texts = [sentence.text for sentence in sentences()][::40]
    found = []
    for one in (model, teacher):
        vectors = one.encode_query(texts)
        vectors = vectors - vectors.mean(0)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found.append((vectors @ vectors.T)[np.triu_indices(len(texts), 1)])
    return np.corrcoef(*found)[0, 1]


@pytest.mark.slow
def test_it_learns_what_its_teacher_says_and_goes_on(teacher, tmp_path, caplog):
    spec = ShrinkSpec(**SPEC)
    small = shrink(teacher, tmp_path / "run", spec, "cpu")
    whole, cut = DualEncoder.load(teacher, device="cpu"), DualEncoder.load(tmp_path / "run/cut", device="cpu")
    assert small.query.backbone.layers == 2 < whole.query.backbone.layers
    subwords = [one.query.backbone.input_embeddings.num_embeddings for one in (small, whole)]
    assert subwords[0] <= subwords[1]
    assert agreement(small, whole) > agreement(cut, whole) + 0.05
    assert small.query.settings.prompts == whole.query.settings.prompts
    assert "license: mit" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    caplog.set_level("INFO")
    again = shrink(teacher, tmp_path / "run", spec, "cpu")
    assert "complete" in caplog.text
    assert np.array_equal(again.encode_query(["a river"]), small.encode_query(["a river"]))
    assert Encoder.load(tmp_path / "run/model").backbone.layers == 2
    with pytest.raises(BadInput, match="holds another run, or one with other options"):
        shrink(teacher, tmp_path / "run", spec.model_copy(update={"layers": 1}), "cpu")


def test_a_call_that_was_stopped_early_leaves_nothing_to_one_with_other_options(teacher, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("interlingua.training.build._trainer", stopped)
        for layers in (2, 1):
            with pytest.raises(KeyboardInterrupt):
                shrink(teacher, tmp_path / "run", ShrinkSpec(**SPEC).model_copy(update={"layers": layers}), "cpu")
            assert Encoder.load(tmp_path / "run/start").backbone.layers == layers


def test_layers_are_spread_evenly_and_end_with_the_last():
    assert spread(12, 6) == [1, 3, 5, 7, 9, 11]
    assert spread(12, 4) == [2, 5, 8, 11]
    assert spread(12, 5) == [1, 3, 6, 8, 11]
    assert spread(3, 3) == [0, 1, 2]
    for count in (0, 4):
        with pytest.raises(BadInput, match="cannot be kept"):
            spread(3, count)


def test_other_models_are_refused(tiny_static, tiny_encoder, tmp_path):
    tiny_static(seed=1).save(tmp_path / "static")
    with pytest.raises(BadInput, match="has no layers"):
        shrink(tmp_path / "static", tmp_path / "run", ShrinkSpec(**SPEC), "cpu")
    encoder = tiny_encoder(pooling="mean", normalize=False)
    encoder.settings.similarity = "dot"
    encoder.save(tmp_path / "dot")
    with pytest.raises(BadInput, match="compares by dot product"):
        shrink(tmp_path / "dot", tmp_path / "run", ShrinkSpec(**SPEC), "cpu")
    plain = tiny_encoder(pooling="mean")
    rows = {lang: np.random.default_rng(0).normal(size=(60, plain.dim)) for lang in ("en", "fi")}
    plain.language_maps = Calibration.fit(rows, rotate=None).maps
    plain.save(tmp_path / "calibrated")
    with pytest.raises(BadInput, match="is calibrated"):
        shrink(tmp_path / "calibrated", tmp_path / "run", ShrinkSpec(**SPEC), "cpu")
    assert not (tmp_path / "run/model").exists()


@pytest.mark.slow
def test_a_start_that_was_interrupted_is_made_again(teacher, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("interlingua.experiments.shrink.train", stopped)
    for layers in (1, 2):  # nothing is trained yet, so other options may have the folder
        with pytest.raises(KeyboardInterrupt):
            shrink(teacher, tmp_path, ShrinkSpec(**{**SPEC, "layers": layers}), "cpu")
        assert Encoder.load(tmp_path / "cut").backbone.layers == layers
    (tmp_path / "shrink.json").unlink()  # as a kill between the student and the note leaves it
    with pytest.raises(KeyboardInterrupt):
        shrink(teacher, tmp_path, ShrinkSpec(**{**SPEC, "layers": 1}), "cpu")
    assert Encoder.load(tmp_path / "cut").backbone.layers == 1


@pytest.mark.slow
def test_both_sides_of_pairs_and_named_files_are_texts(teacher, tmp_path):
    (tmp_path / "fi-en.tsv").write_text("".join(f"talo {n}\ta house {n}\n" for n in range(30)), encoding="utf-8")
    (tmp_path / "words.txt").write_text("".join(f"nyumba {n}\n" for n in range(30)), encoding="utf-8")
    spec = {**SPEC, "texts": [str(tmp_path / "fi-en.tsv"), f"sw={tmp_path}/words.txt"], "limit": 20, "steps": 1}
    shrink(teacher, tmp_path / "run", ShrinkSpec(**spec), "cpu")
    lines = (tmp_path / "run/texts.jsonl").read_text("utf-8").splitlines()
    assert Counter(json.loads(line)["lang"] for line in lines) == {"en": 20, "fi": 20, "sw": 20}


def test_fewer_texts_than_a_batch_are_refused(teacher, tmp_path):
    (tmp_path / "words.txt").write_text("".join(f"nyumba {n}\n" for n in range(30)), encoding="utf-8")
    with pytest.raises(BadInput, match="texts: 30 are fewer than a batch of 32"):
        shrink(teacher, tmp_path / "run", ShrinkSpec(**{**SPEC, "texts": [f"sw={tmp_path}/words.txt"]}), "cpu")
    assert not (tmp_path / "run").exists()
