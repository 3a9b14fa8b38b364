from __future__ import annotations

import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder
from interlingua.objectives.masked_lm import MaskedLanguageModelHead


@pytest.fixture
def masked_language_model(tiny_tokenizer, tmp_path):
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    model = XLMRobertaForMaskedLM(
        XLMRobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=66,
            initializer_range=0.2,
            layer_norm_eps=1e-5,
        )
    ).eval()
    torch.nn.init.normal_(model.lm_head.bias)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return model, tmp_path


def test_encoder_and_head_give_the_logits_of_the_masked_language_model(masked_language_model, sentences):
    model, folder = masked_language_model
    encoder = Encoder.load(folder, device="cpu")
    head = MaskedLanguageModelHead(32, len(encoder.tokenizer))
    head.load_from(folder)
    ids = encoder.tokenize(sentences[:3])
    states, lengths = encoder.token_states(ids)
    logits = head(states, encoder.input_embeddings.weight)
    assert logits.shape == (sum(lengths), len(encoder.tokenizer))
    torch.testing.assert_close(logits[: lengths[0]], model(torch.tensor([ids[0]])).logits[0], atol=1e-4, rtol=1e-4)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in head.parameters())
    assert encoder.input_embeddings.weight.grad is not None


def test_a_model_without_a_head_of_these_sizes_is_refused(masked_language_model, tiny_hf_folder):
    with pytest.raises(InterlinguaError, match="no trained lm_head"):
        MaskedLanguageModelHead(32, 10).load_from(tiny_hf_folder)
    with pytest.raises(InterlinguaError, match="other sizes"):
        MaskedLanguageModelHead(32, 10).load_from(masked_language_model[1])


def test_a_folder_that_transformers_does_not_know_is_refused_in_one_line(tiny_static, tmp_path):
    tiny_static().save(tmp_path / "static")
    with pytest.raises(InterlinguaError, match="holds no masked language model"):
        MaskedLanguageModelHead(24, 10).load_from(tmp_path / "static")


def test_weights_missing_from_a_checkpoint_pooler_do_not_depend_on_chance(masked_language_model):
    first, second = (Encoder.load(masked_language_model[1], device="cpu").backbone.model for _ in range(2))
    assert torch.equal(first.pooler.dense.weight, second.pooler.dense.weight)
    assert not first.pooler.dense.weight.requires_grad
