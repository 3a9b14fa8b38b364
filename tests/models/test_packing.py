from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from interlingua.models import transformer as packing
from interlingua.models.transformer import Transformer

KINDS = {
    "bert": (BertConfig, BertModel),
    "roberta": (RobertaConfig, RobertaModel),
    "camembert": (CamembertConfig, CamembertModel),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel),
}


def backbone(kind, tokenizer, **options):
    config, model = KINDS[kind]
    torch.manual_seed(0)
    return Transformer(
        model(
            config(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=64,
                max_position_embeddings=80,
                initializer_range=0.2,
                pad_token_id=1,
                bos_token_id=0,
                eos_token_id=2,
                **options,
            )
        ),
        tokenizer,
    ).eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_packed_equals_padded_with_its_gradient(kind, pooling, tiny_tokenizer, sentences):
    model = backbone(kind, tiny_tokenizer())
    ids = model.subwords([*sentences, "", *sentences[:3], "a <pad> b"])
    gradients, vectors = [], []
    for packed in (True, False):
        model.packed = packed
        model.zero_grad()
        vectors.append(model.vectors(ids, pooling))
        (vectors[-1] * torch.linspace(-1, 1, 32)).sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(vectors[0], vectors[1], atol=1e-5, rtol=0)
    assert torch.cosine_similarity(*vectors).min() > 0.99999
    assert gradients[0].keys() == gradients[1].keys()
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], atol=1e-3, rtol=1e-3, msg=name)


def first_of_all(model, ids):
    """The first states of each text out of those of all tokens."""
    states, lengths, _ = model.token_states(ids)
    return states[lengths.cumsum(0) - lengths]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [True, False])
def test_first_tokens_alone_equal_the_whole_last_layer(kind, packed, tiny_tokenizer, sentences):
    model = backbone(kind, tiny_tokenizer())
    model.packed = packed
    for texts in ([*sentences, "", *sentences[:3], "a <pad> b"], sentences[:1] * 3):
        ids = model.subwords(texts)
        found = []
        for vectors in (first_of_all(model, ids), model.vectors(ids, "cls")):
            model.zero_grad()
            (vectors * torch.linspace(-1, 1, 32)).sum().backward()
            found.append(
                (vectors, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
            )
        (whole, expected), (first, gradients) = found
        torch.testing.assert_close(first, whole, atol=1e-6, rtol=1e-6)
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[name], atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_cls_pooling_computes_the_last_feed_forward_of_first_tokens_only(packed, pooling, tiny_tokenizer, sentences):
    model = backbone("xlm-roberta", tiny_tokenizer())
    model.packed = packed
    computed = []
    for layer in model.model.encoder.layer:
        layer.intermediate.register_forward_hook(lambda _, inputs, __: computed.append(inputs[0][..., 0].numel()))
    model.vectors(model.subwords(sentences), pooling)
    before, last = computed
    assert last == (len(sentences) if pooling == "cls" else before)
    assert before > len(sentences)


def test_a_model_cut_to_its_embeddings_is_pooled_too(tiny_tokenizer, sentences):
    model = backbone("xlm-roberta", tiny_tokenizer())
    model.cut(0)
    ids = model.subwords(sentences)
    torch.testing.assert_close(model.vectors(ids, "cls"), first_of_all(model, ids))


def test_texts_do_not_see_their_neighbours(tiny_tokenizer, sentences):
    model = backbone("xlm-roberta", tiny_tokenizer())
    ids = model.subwords(sentences)
    alone = torch.cat([model.vectors([text], "mean") for text in ids])
    torch.testing.assert_close(model.vectors(ids, "mean"), alone, atol=1e-5, rtol=0)


def test_runs_group_equal_neighbours_and_positions_restart(tiny_tokenizer):
    model = backbone("xlm-roberta", tiny_tokenizer())
    packed = packing.pack([[0, 2], [0, 2], [0, 9, 1, 9, 2], [0, 2]], model.model.config, torch.device("cpu"))
    assert packed.runs == [(0, 2, 2), (4, 1, 5), (9, 1, 2)]
    # A pad token inside a text keeps position 1 and the count goes on behind it, as in the model's own code.
    assert packed.positions.tolist() == [[2, 3, 2, 3, 2, 3, 1, 4, 5, 2, 3]]


def test_attention_dropout_acts_in_training_only(tiny_tokenizer, sentences):
    model = backbone("xlm-roberta", tiny_tokenizer(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    ids = model.subwords(sentences)
    assert torch.equal(model.vectors(ids, "cls"), model.vectors(ids, "cls"))
    model.train()
    assert not torch.equal(model.vectors(ids, "cls"), model.vectors(ids, "cls"))


def test_other_architectures_are_padded(tiny_tokenizer):
    from transformers import DistilBertConfig, DistilBertModel

    tokenizer = tiny_tokenizer()
    model = Transformer(
        DistilBertModel(
            DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=4, hidden_dim=64, pad_token_id=1)
        ),
        tokenizer,
    ).eval()
    model.packed = True
    assert not model.packs()
    ids = model.subwords(["a b c", "a"])
    alone = torch.cat([model.vectors([text], "mean") for text in ids])
    torch.testing.assert_close(model.vectors(ids, "mean"), alone, atol=1e-5, rtol=0)
