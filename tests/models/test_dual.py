from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder

OPTIONS = {"prompts": {"query": "ask ", "passage": "read "}, "max_length": 40}


def changed(dual):
    """The passage encoder moved away from the query encoder, as training does."""
    with torch.no_grad():
        for parameter in dual.passage.parameters():
            parameter.add_(0.05 * torch.sin(torch.arange(parameter.numel(), dtype=torch.float32)).view_as(parameter))
    return dual


@pytest.mark.parametrize("normalize", [False, True])
def test_untied_loads_in_sentence_transformers_with_the_same_vectors(tiny_encoder, sentences, tmp_path, normalize):
    from sentence_transformers import SentenceTransformer

    dual = changed(DualEncoder.untied(tiny_encoder(normalize=normalize, **OPTIONS), similarity="dot"))
    dual.save(tmp_path / "dual")
    queries, passages = dual.encode_query(sentences), dual.encode_document(sentences)
    assert not np.allclose(queries, passages, atol=1e-2)
    theirs = SentenceTransformer(str(tmp_path / "dual"), device="cpu")
    assert theirs.similarity_fn_name == "dot"
    np.testing.assert_allclose(theirs.encode_query(sentences), queries, atol=1e-5)
    np.testing.assert_allclose(theirs.encode_document(sentences), passages, atol=1e-5)
    again = DualEncoder.load(tmp_path / "dual", device="cpu")
    assert (again.tied, again.similarity, again.dim) == (False, "dot", 32)
    np.testing.assert_array_equal(again.encode_query(sentences), queries)
    np.testing.assert_array_equal(again.encode_document(sentences), passages)
    with pytest.raises(InterlinguaError, match=r"Load it with DualEncoder\.load"):
        Encoder.load(tmp_path / "dual")


def test_untied_static_and_lengths_by_role(tiny_static, tiny_hf_folder, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    for name, encoder in {
        "static": tiny_static(),
        "lengths": Encoder.load(tiny_hf_folder, max_length={"query": 6, "passage": 12}, device="cpu"),
    }.items():
        dual = changed(DualEncoder.untied(encoder))
        dual.save(tmp_path / name)
        theirs = SentenceTransformer(str(tmp_path / name), device="cpu")
        np.testing.assert_allclose(theirs.encode_query(sentences), dual.encode_query(sentences), atol=1e-5)
        np.testing.assert_allclose(theirs.encode_document(sentences), dual.encode_document(sentences), atol=1e-5)


def test_tied_is_one_encoder_and_saves_as_one(tiny_encoder, sentences, tmp_path):
    encoder = tiny_encoder(**OPTIONS)
    dual = DualEncoder.tied(encoder, similarity="dot")
    assert dual.tied is True
    assert dual.query is dual.passage is encoder
    assert not any(name.startswith(("own_passage", "passage")) for name in dual.state_dict())
    dual.save(tmp_path / "tied")
    assert json.loads((tmp_path / "tied/config_sentence_transformers.json").read_text())["similarity_fn_name"] == "dot"
    again = DualEncoder.load(tmp_path / "tied", device="cpu")
    assert (again.tied, again.similarity) == (True, "dot")
    np.testing.assert_array_equal(again.encode_query(sentences), encoder.encode_query(sentences))
    np.testing.assert_array_equal(
        Encoder.load(tmp_path / "tied", device="cpu").encode(sentences), encoder.encode(sentences)
    )


def test_untied_encoders_share_nothing(tiny_encoder, sentences):
    dual = DualEncoder.untied(tiny_encoder())
    assert dual.tied is False
    assert not {p.data_ptr() for p in dual.query.parameters()} & {p.data_ptr() for p in dual.passage.parameters()}
    dual.embed(sentences, "passage").sum().backward()
    assert all(p.grad is None for p in dual.query.parameters())
    torch.testing.assert_close(dual.embed(sentences, "query"), dual.embed(sentences, "document"), atol=1e-6, rtol=0)


def test_training_mode_is_asked_for(tiny_encoder, tmp_path):
    DualEncoder.tied(tiny_encoder()).save(tmp_path / "m")
    assert not DualEncoder.load(tmp_path / "m", device="cpu").training
    model = DualEncoder.load(tmp_path / "m", device="cpu", for_training=True)
    assert model.training
    assert model.query.backbone.model.training


def test_encoders_that_do_not_fit_are_refused(tiny_encoder, tmp_path):
    with pytest.raises(InterlinguaError, match="vectors of size 32, the passage encoder of size 16"):
        DualEncoder(tiny_encoder(), tiny_encoder(hidden=16))
    with pytest.raises(InterlinguaError, match="'euclid' is not supported"):
        DualEncoder.tied(tiny_encoder(), similarity="euclid")
    with pytest.raises(InterlinguaError, match="different templates"):
        DualEncoder(tiny_encoder(), tiny_encoder(template="pair")).save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InterlinguaError, match="role 'answer' is not known"):
        DualEncoder.tied(tiny_encoder()).embed(["a"], "answer")


def test_a_router_without_both_routes_is_named(tiny_encoder, tmp_path):
    DualEncoder.untied(tiny_encoder()).save(tmp_path / "m")
    file = tmp_path / "m/router_config.json"
    config = json.loads(file.read_text())
    del config["structure"]["query"]
    file.write_text(json.dumps(config))
    with pytest.raises(InterlinguaError, match="routes query and document is needed"):
        DualEncoder.load(tmp_path / "m", device="cpu")


def test_training_goes_on_with_both_encoders_of_a_model_of_two(tiny_encoder, sentences, tmp_path):
    """Supervised XOR-Retrieve starts from the two encoders that Natural Questions made."""
    from interlingua.training.build import dual_of
    from interlingua.training.recipe import ModelSpec

    first = changed(DualEncoder.untied(tiny_encoder(normalize=False), similarity="dot"))
    first.save(tmp_path / "dual")
    spec = ModelSpec(backbone=str(tmp_path / "dual"), encoders="untied", similarity="dot")
    again = dual_of(spec, None, None, 0)
    assert again.similarity == "dot"
    for role in ("query", "passage"):
        expected = first.encoder(role).encode(sentences, role=role)
        np.testing.assert_array_equal(again.encoder(role).encode(sentences, role=role), expected)
    with pytest.raises(InterlinguaError, match="holds two encoders"):
        dual_of(spec.model_copy(update={"encoders": "tied"}), None, None, 0)
