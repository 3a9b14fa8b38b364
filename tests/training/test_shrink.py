"""An encoder made smaller: fewer subwords and layers, and it says again what the whole one says."""

import numpy as np
import pytest

from interlingua import Encoder
from interlingua.data.encyclopedia import sentences
from interlingua.errors import BadInput
from interlingua.models.dual import DualEncoder
from interlingua.training.shrink import ShrinkSpec, shrink, spread

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
    with pytest.raises(BadInput, match="made with other options"):
        shrink(teacher, tmp_path / "run", spec.model_copy(update={"layers": 1}), "cpu")


def test_layers_are_spread_evenly_and_end_with_the_last():
    assert spread(12, 6) == [1, 3, 5, 7, 9, 11]
    assert spread(12, 4) == [2, 5, 8, 11]
    assert spread(12, 5) == [1, 3, 6, 8, 11]
    assert spread(3, 3) == [0, 1, 2]
    for count in (0, 4):
        with pytest.raises(BadInput, match="cannot be kept"):
            spread(3, count)


def test_other_models_are_refused(tiny_static, tmp_path):
    tiny_static(seed=1).save(tmp_path / "static")
    with pytest.raises(BadInput, match="has no layers"):
        shrink(tmp_path / "static", tmp_path / "run", ShrinkSpec(**SPEC), "cpu")
    assert not (tmp_path / "run").exists()
