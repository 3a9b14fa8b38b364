from __future__ import annotations

import copy
import json
import logging
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModel

from interlingua.errors import BadInput, InterlinguaError, NotFound
from interlingua.models.encode import token_batches
from interlingua.models.encoder import Encoder
from interlingua.models.folder import fingerprint
from interlingua.models.layout import Dense


def reference(folder, ids, pooling, layer=-1):
    """Each text alone through transformers, without padding."""
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        states = [model(torch.tensor([text]), output_hidden_states=True).hidden_states[layer][0] for text in ids]
    return torch.stack([s[0] if pooling == "cls" else s.mean(0) for s in states]).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("packed", [True, False])
def test_vectors_are_those_of_each_text_alone(tiny_hf_folder, sentences, pooling, packed):
    encoder = Encoder.load(tiny_hf_folder, pooling=pooling, device="cpu")
    encoder.backbone.packed = packed
    texts = [*sentences, "", "x"]
    expected = reference(tiny_hf_folder, encoder.tokenize(texts), pooling)
    for batch_size in (None, 1, 4):
        np.testing.assert_allclose(encoder.encode(texts, batch_size=batch_size), expected, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
def test_layer_pools_that_hidden_state_and_drops_the_rest(tiny_hf_folder, sentences, layer):
    encoder = Encoder.load(tiny_hf_folder, pooling="mean", layer=layer, device="cpu")
    expected = reference(tiny_hf_folder, encoder.tokenize(sentences), "mean", layer)
    np.testing.assert_allclose(encoder.encode(sentences), expected, atol=1e-5)
    assert encoder.backbone.layers == len(encoder.backbone.model.encoder.layer) == layer


def test_layer_is_refused_where_a_last_norm_would_change_it(tiny_tokenizer, tmp_path):
    from transformers import ModernBertConfig, ModernBertModel

    tokenizer = tiny_tokenizer()
    model = ModernBertModel(
        ModernBertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=32,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            cls_token_id=0,
            sep_token_id=2,
            initializer_range=0.2,
        )
    )
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert Encoder.load(tmp_path, device="cpu").encode(["a", "b c d"]).shape == (2, 32)
    with pytest.raises(InterlinguaError, match="modernbert model cannot be cut"):
        Encoder.load(tmp_path, layer=2, device="cpu")


def test_a_layer_that_does_not_exist_is_named(tiny_hf_folder):
    with pytest.raises(InterlinguaError, match="layer 4: this model has hidden states 0 to 3"):
        Encoder.load(tiny_hf_folder, layer=4, device="cpu")


def test_encode_keeps_order_shape_and_type(tiny_encoder, sentences):
    encoder = tiny_encoder()
    vectors = encoder.encode(sentences)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(sentences), 32)
    np.testing.assert_allclose(encoder.encode(sentences[::-1]), vectors[::-1], atol=1e-5)
    np.testing.assert_allclose(encoder.encode(sentences[3]), vectors[3], atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)
    assert encoder.encode(sentences, convert_to_tensor=True).dtype == torch.float32
    assert [v.shape for v in encoder.encode(sentences[:2], convert_to_numpy=False)] == [(32,), (32,)]
    short = encoder.encode(sentences, truncate_dim=8, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(short, vectors[:, :8] / np.linalg.norm(vectors[:, :8], axis=1, keepdims=True), atol=1e-5)


def test_encode_leaves_training_mode_as_it_was_and_uses_no_dropout(tiny_encoder, sentences):
    encoder = tiny_encoder()
    expected = encoder.encode(sentences)
    encoder.train()
    np.testing.assert_array_equal(encoder.encode(sentences), expected)
    assert encoder.training
    assert not torch.equal(encoder.embed(sentences), encoder.embed(sentences))


def test_encode_spans_windows(tiny_encoder, sentences, monkeypatch):
    encoder = tiny_encoder()
    expected = encoder.encode(sentences)
    monkeypatch.setattr("interlingua.models.encode.WINDOW", 5)
    np.testing.assert_allclose(encoder.encode(sentences), expected, atol=1e-5)


def test_a_text_that_is_no_text_is_named(tiny_encoder):
    with pytest.raises(InterlinguaError, match="text 1: 'None' is NoneType"):
        tiny_encoder().encode(["a", None])


def test_damaged_weights_are_noticed(tiny_encoder):
    encoder = tiny_encoder()
    with torch.no_grad():
        encoder.input_embeddings.weight[:, 0] = float("inf")
    with pytest.raises(InterlinguaError, match="NaN or infinity"):
        encoder.encode(["a"])


def test_token_batches_respect_the_budget_and_lose_nothing():
    lengths = [3, 50, 7, 7, 120, 1, 9]
    batches = list(token_batches(lengths, 60))
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60 for batch in batches)
    assert batches == [[4], [1], [6, 2, 3, 0, 5]]  # the longest first
    assert [len(batch) for batch in token_batches(lengths, texts=3)] == [3, 3, 1]
    assert [len(batch) for batch in token_batches(lengths, 60, texts=3)] == [1, 1, 3, 2]  # both limits hold
    assert list(token_batches(lengths)) == [[4, 1, 6, 2, 3, 0, 5]]
    assert list(token_batches([], 60)) == []


@pytest.mark.parametrize("packed", [True, False])
def test_token_states_are_ragged_and_in_order(tiny_hf_folder, sentences, packed):
    encoder = Encoder.load(tiny_hf_folder, device="cpu")
    encoder.backbone.packed = packed
    ids = encoder.tokenize(sentences)
    states, lengths, early = encoder.token_states(ids, layer=1)
    assert lengths.tolist() == [len(text) for text in ids]
    assert states.shape == early.shape == (sum(lengths), encoder.hidden_size)
    model = AutoModel.from_pretrained(tiny_hf_folder).eval()
    start = int(lengths[:4].sum())
    output = model(torch.tensor([ids[4]]), output_hidden_states=True)
    torch.testing.assert_close(states[start : start + len(ids[4])], output.last_hidden_state[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(early[start : start + len(ids[4])], output.hidden_states[1][0], atol=1e-5, rtol=0)
    plain, _ = encoder.token_states(ids)
    torch.testing.assert_close(plain, states, atol=1e-5, rtol=0)


def test_embed_has_a_gradient_for_every_used_weight(tiny_encoder, sentences):
    encoder = tiny_encoder()
    encoder.embed(sentences, "query").square().sum().backward()
    without = {name for name, p in encoder.named_parameters() if p.requires_grad and p.grad is None}
    assert without == set()
    assert encoder.embed([], "query").shape == (0, 32)


def test_dense_and_normalize_come_after_pooling(tiny_encoder, sentences):
    encoder = tiny_encoder()
    raw = torch.from_numpy(encoder.encode(sentences))
    dense = Dense(32, 5, activation="torch.nn.modules.activation.Tanh")
    encoder.dense.append(dense)
    encoder.normalize = True
    assert encoder.dim == 5
    expected = torch.nn.functional.normalize(torch.tanh(raw @ dense.linear.weight.T + dense.linear.bias), dim=1)
    np.testing.assert_allclose(encoder.encode(sentences), expected.detach().numpy(), atol=1e-5)
    other = copy.deepcopy(encoder)
    other.dense[0] = Dense(32, 5)
    other.dense[0].load_state_dict(dense.state_dict())
    assert fingerprint(other) != fingerprint(encoder) == fingerprint(copy.deepcopy(encoder))


def test_another_layer_or_pooling_leaves_out_the_dense_layers(tiny_encoder, sentences, tmp_path, caplog):
    encoder = tiny_encoder(layers=2, pooling="mean")
    plain = copy.deepcopy(encoder)
    encoder.dense.append(Dense(32, 5, activation="torch.nn.modules.activation.Tanh"))
    encoder.save(tmp_path / "dense")
    plain.save(tmp_path / "plain")
    for options in ({"layer": 1}, {"layer": [0]}, {"pooling": "cls"}, {"dense": False}):
        expected = Encoder.load(tmp_path / "plain", **{k: v for k, v in options.items() if k != "dense"})
        np.testing.assert_allclose(
            Encoder.load(tmp_path / "dense", **options).encode(sentences), expected.encode(sentences), atol=1e-6
        )
    assert caplog.text.count("the Dense layers are left out") == 3
    for options in ({}, {"layer": 2}, {"pooling": "mean"}, {"layer": [1]}, {"layer": 1, "dense": True}):
        assert Encoder.load(tmp_path / "dense", **options).dim == 5


def test_half_precision_that_a_cpu_would_emulate_is_refused(tiny_hf_folder, monkeypatch):
    monkeypatch.setattr("interlingua.models.encode.cpu_has_bfloat16", lambda: False)
    for dtype in ("bfloat16", "float16"):
        with pytest.raises(InterlinguaError, match="would emulate it"):
            Encoder.load(tiny_hf_folder, device="cpu", dtype=dtype)
    monkeypatch.setattr("interlingua.models.encode.cpu_has_bfloat16", lambda: True)
    encoder = Encoder.load(tiny_hf_folder, device="cpu", dtype="bfloat16")
    assert encoder.encode(["a b"]).dtype == np.float32


def test_a_device_that_is_not_there_is_named(tiny_hf_folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device, says in (("cuda", "'cuda': no CUDA device is there"), ("mps", "'mps': is not there"), ("gpu", "known")):
        with pytest.raises(BadInput, match=says):
            Encoder.load(tiny_hf_folder, device=device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BadInput, match="'cuda:2': there are 2, from cuda:0 on"):
        Encoder.load(tiny_hf_folder, device="cuda:2")


def test_a_name_is_loaded_by_load():
    with pytest.raises(BadInput, match=r"A folder or a name is loaded: Encoder\.load\('default'\)"):
        Encoder("default")


def test_vectors_cannot_be_cut_to_nothing(tiny_encoder, tiny_static):
    for encoder in (tiny_encoder(), tiny_static()):
        assert encoder.encode(["a"], truncate_dim=3).shape == (1, 3)
        with pytest.raises(BadInput, match=r"truncate_dim 1.5: must be a whole number, at least 1"):
            encoder.encode(["a"], truncate_dim=1.5)
        with pytest.raises(BadInput, match="truncate_dim 0: must be at least 1"):
            encoder.encode(["a"], truncate_dim=0)
        with pytest.raises(BadInput, match=r"truncate_dim 999: .* at most the "):
            encoder.encode(["a"], truncate_dim=999)
        with pytest.raises(BadInput, match="int given to encode"):
            encoder.encode(5)


def test_folders_that_cannot_be_loaded_say_why(tiny_hf_folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InterlinguaError, match=r"looked for modules\.json and config\.json"):
        Encoder.load(empty)
    with pytest.raises(NotFound, match="is not a model folder"):
        Encoder.load(tmp_path / "nowhere")
    pickled = tmp_path / "pickled"
    shutil.copytree(tiny_hf_folder, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(InterlinguaError, match=r"pytorch_model\.bin only, a pickle.*Convert"):
        Encoder.load(pickled)
    torn = tmp_path / "torn"
    shutil.copytree(tiny_hf_folder, torn)
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(InterlinguaError, match="cannot be loaded"):
        Encoder.load(torn)
    other = tmp_path / "other"
    shutil.copytree(tiny_hf_folder, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 5}))
    with pytest.raises(InterlinguaError, match="weights are missing"):
        Encoder.load(other)


@pytest.mark.gpu
def test_cuda_gives_the_same_vectors(tiny_hf_folder, sentences):
    expected = Encoder.load(tiny_hf_folder, device="cpu").encode(sentences)
    exact = Encoder.load(tiny_hf_folder, device="cuda", dtype="float32")
    np.testing.assert_allclose(exact.encode(sentences), expected, atol=1e-4)
    exact.backbone.packed = True
    np.testing.assert_allclose(exact.encode(sentences), expected, atol=1e-4)
    half = Encoder.load(tiny_hf_folder, device="cuda").encode(sentences)
    cosine = (half * expected).sum(1) / np.linalg.norm(half, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosine.min() > 0.999


def test_an_e5_folder_without_prompts_is_said(tiny_encoder, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("interlingua.models.encoder"), "warning", said.append)
    for name in ("models--intfloat--multilingual-e5-small/snapshots/1", "my-e5", "bge5"):
        tiny_encoder().save(tmp_path / name)
        Encoder.load(tmp_path / name, prompts={"query": "query: ", "passage": "passage: "})
        assert not said
        Encoder.load(tmp_path / name)
        assert ["names no prompts" in message for message in said] == [True] * (name != "bge5")
        said.clear()
