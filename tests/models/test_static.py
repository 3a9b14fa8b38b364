from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder


def test_a_vector_is_the_unit_mean_of_the_subwords_and_zero_without_any(tiny_static, sentences):
    encoder = tiny_static()
    rows = encoder.input_embeddings.weight
    vectors = encoder.encode([*sentences, ""])
    for text, vector in zip(sentences, vectors, strict=False):
        mean = rows[encoder.tokenizer(text, add_special_tokens=False)["input_ids"]].mean(0)
        np.testing.assert_allclose(vector, (mean / mean.norm()).detach().numpy(), atol=1e-6)
    assert not vectors[-1].any()


def test_gradients_are_row_sparse(tiny_static, sentences):
    for weights in (False, True):
        encoder = tiny_static(token_weights=weights)
        encoder.train()
        encoder.embed(sentences[:2], "query").sum().backward()
        gradient = encoder.input_embeddings.weight.grad
        assert gradient.is_sparse
        used = {token for ids in encoder.tokenize(sentences[:2]) for token in ids}
        assert set(gradient.coalesce().indices()[0].tolist()) == used


def test_learned_weights_weigh_and_fold(tiny_static, sentences):
    encoder = tiny_static(token_weights=True)
    ids = encoder.tokenize(sentences)
    with torch.no_grad():
        encoder.backbone.log_weights.copy_(torch.linspace(-1, 1, len(encoder.backbone.log_weights)))
    folded = encoder.backbone.folded()
    expected = torch.stack([folded[text].mean(0) for text in ids])
    torch.testing.assert_close(encoder.backbone.vectors(ids), expected)
    encoder.embed(sentences).sum().backward()
    assert encoder.backbone.log_weights.grad.abs().sum() > 0


def test_token_dropout_drops_whole_tokens_and_never_all(tiny_static, sentences):
    encoder = tiny_static(token_dropout=0.6)
    ids = [*encoder.tokenize(sentences), [7], []]
    still = encoder.backbone.vectors(ids)
    encoder.train()
    torch.manual_seed(0)
    draws = torch.stack([encoder.backbone.vectors(ids) for _ in range(20)])
    assert not torch.allclose(draws[0, 0], still[0])
    # A text of one token always keeps it; an empty one stays zero.
    torch.testing.assert_close(draws[:, -2], still[-2].expand(20, -1))
    assert not draws[:, -1].any()
    assert (draws[:, :-1].abs().sum(-1) > 0).all()
    torch.manual_seed(0)
    assert torch.equal(encoder.backbone.vectors(ids), draws[0])


def test_many_texts_equal_few(tiny_static, sentences):
    encoder = tiny_static()
    many = encoder.encode(sentences * 50)
    np.testing.assert_allclose(many, np.tile(encoder.encode(sentences), (50, 1)), atol=1e-6)


def test_what_a_static_backbone_cannot_do_is_said(tiny_static, sentences):
    with pytest.raises(InterlinguaError, match="no token states"):
        tiny_static().token_states([[1]])
    for options in ({"pooling": "cls"}, {"layer": 2}, {"max_length": {"query": 4}}):
        with pytest.raises(InterlinguaError, match="a static backbone has mean pooling"):
            tiny_static(**options)
    with pytest.raises(InterlinguaError, match="token_dropout 1"):
        tiny_static(token_dropout=1.0)


def test_int8_rows_are_near_and_load_in_sentence_transformers(tmp_path, tiny_static, sentences):
    from sentence_transformers import SentenceTransformer

    encoder = tiny_static()
    with torch.no_grad():  # rows of very different length, as learned weights make them
        encoder.backbone.embedding.weight.mul_(torch.logspace(-4, 1, len(encoder.backbone.embedding.weight))[:, None])
    exact = encoder.encode(sentences)
    encoder.backbone.int8 = True
    encoder.save(tmp_path / "small")
    loaded = Encoder.load(tmp_path / "small")
    rows, near = encoder.backbone.embedding.weight, loaded.backbone.embedding.weight
    assert ((rows - near).abs() <= rows.abs().amax(1, keepdim=True) / 253).all()
    assert (loaded.encode(sentences) * exact).sum(1).min() > 0.999
    assert loaded.backbone.int8  # so that training it on keeps the size
    theirs = SentenceTransformer(str(tmp_path / "small"), device="cpu")
    np.testing.assert_allclose(theirs.encode(sentences), loaded.encode(sentences), atol=1e-6)
    stored = load_file(tmp_path / "small/model.safetensors")
    assert {name: tensor.dtype for name, tensor in stored.items()} == {
        "embeddings": torch.int8,
        "weights": torch.float32,
    }


def test_model2vec_mapping(tmp_path, tiny_static, sentences):
    encoder = tiny_static()
    encoder.save(tmp_path / "model")
    rows = encoder.backbone.embedding.weight.detach()
    mapping = torch.arange(len(rows)).flip(0)
    save_file({"embeddings": rows[mapping].contiguous(), "mapping": mapping}, tmp_path / "model/model.safetensors")
    np.testing.assert_allclose(Encoder.load(tmp_path / "model").encode(sentences), encoder.encode(sentences), atol=1e-6)


def test_frequent_subwords_weigh_less(tiny_static, sentences):
    encoder = tiny_static(token_weights=True)
    before = encoder.backbone.folded()
    frequencies = torch.linspace(0, 0.1, len(before))
    encoder.backbone.down_weight(frequencies, 0.02)
    for row, old, p in zip(encoder.backbone.folded(), before, frequencies.tolist(), strict=True):
        torch.testing.assert_close(row, old * (0.02 / (0.02 + p)))


def test_lengths_are_evened_out_and_directions_kept(tiny_static, sentences):
    encoder = tiny_static(token_weights=True)
    with torch.no_grad():
        encoder.backbone.log_weights.copy_(torch.linspace(-2, 2, len(encoder.backbone.log_weights)))
    before = encoder.backbone.folded()
    encoder.backbone.even_out(0.5)
    after = encoder.backbone.folded()
    torch.testing.assert_close(after.norm(dim=1), before.norm(dim=1) ** 0.5)
    assert torch.nn.functional.cosine_similarity(before, after).min() > 0.999
