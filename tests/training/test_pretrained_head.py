"""Masked-language modelling on a pretrained backbone starts from the head that was pretrained with it."""

import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from interlingua.errors import BadInput
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.training.build import train
from interlingua.training.recipe import resolve
from interlingua.training.weighted import weighted_objective

NAMES = ("masked_language_modelling", "translation_language_modelling")


@pytest.fixture(scope="module")
def pretrained(tiny_tokenizer, tmp_path_factory):
    """A tiny masked language model and the folder it was saved in."""
    folder, tokenizer = tmp_path_factory.mktemp("pretrained"), tiny_tokenizer()
    torch.manual_seed(0)
    model = XLMRobertaForMaskedLM(
        XLMRobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=66,
            layer_norm_eps=1e-5,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
        )
    )
    torch.nn.init.normal_(model.lm_head.bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.lm_head, folder


def recipe_of(backbone, name=NAMES[0], **model):
    backbone = backbone if isinstance(backbone, dict) else str(backbone)
    return resolve(
        {
            "model": {"backbone": backbone, "encoders": "tied", **model},
            "data": {
                "sentences": {"path": "encyclopedia:train", "batch": 4},
                "parallel": {"path": "encyclopedia:train", "batch": 4},
            },
            "objectives": {name: {}},
            "training": {"steps": 1, "tensorboard": False},
        }
    )


def head_of(recipe, encoder, name=NAMES[0]):
    return weighted_objective(name, {}, DualEncoder.tied(encoder), recipe).objective.head


@pytest.mark.parametrize("name", NAMES)
def test_the_head_is_the_pretrained_one(pretrained, capsys, name):
    theirs, folder = pretrained
    ours = head_of(recipe_of(folder, name), Encoder.load(folder, device="cpu"), name)
    for parameter in ("dense.weight", "layer_norm.weight", "bias"):
        assert torch.equal(ours.get_parameter(parameter), theirs.get_parameter(parameter))
    assert capsys.readouterr().err == f"objectives.{name}: the pretrained head of {folder}\n"


def test_without_a_head_it_is_new_and_said_so(pretrained, tmp_path, capsys):
    _, folder = pretrained
    encoder = Encoder.load(folder, device="cpu")
    encoder.save(tmp_path / "saved")
    head = head_of(recipe_of(tmp_path / "saved"), encoder)
    assert not head.bias.any()
    assert "masked_language_modelling: a new head. " in capsys.readouterr().err


def test_a_cut_model_has_a_new_head(pretrained, capsys):
    _, folder = pretrained
    encoder = Encoder.load(folder, device="cpu", layer=0)
    assert not head_of(recipe_of(folder, layer=0), encoder).bias.any()
    assert "a new head, since the pretrained one is not for the states of layer 0" in capsys.readouterr().err


def test_a_run_starts_from_it(pretrained, tmp_path, capsys):
    _, folder = pretrained
    train(recipe_of(folder), tmp_path / "run", "cpu")
    assert f"the pretrained head of {folder}" in capsys.readouterr().err


def test_with_late_interaction_it_is_the_pretrained_one_too(pretrained, capsys):
    theirs, folder = pretrained
    recipe = recipe_of(folder, late_interaction={"dim": 8, "document_length": 64})
    model = LateInteractionEncoder.start(Encoder.load(folder, device="cpu"), dim=8, document_length=64)
    ours = weighted_objective(NAMES[0], {}, model, recipe).objective.head
    assert "the pretrained head of" in capsys.readouterr().err
    known = len(theirs.bias)
    assert len(ours.bias) == known + 2  # the markers of questions and passages
    assert torch.equal(ours.bias[:known], theirs.bias)
    assert not ours.bias[known:].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_static_backbone_is_refused_before_data_is_read(name, tmp_path):
    with pytest.raises(BadInput, match=f"{name} compares and predicts token states, which a static backbone has not"):
        train(recipe_of({"static": {}}, name), tmp_path / "run")
    assert not (tmp_path / "run").exists()
