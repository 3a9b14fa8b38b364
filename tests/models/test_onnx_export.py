from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder
from interlingua.models.language_maps import LanguageMap, LanguageMaps
from interlingua.models.layout import Dense
from interlingua.models.onnx import export_onnx

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


def outside(folder, texts):
    """The vectors of `texts` by what is in the folder, onnxruntime and tokenizers alone."""
    about = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    encoded = tokenizer.encode_batch(
        [about["prompt"] + text for text in texts], add_special_tokens=about["add_special_tokens"]
    )
    inputs = {
        "input_ids": np.array([one.ids for one in encoded]),
        "attention_mask": np.array([one.attention_mask for one in encoded]),
    }
    return session.run([about["output"]], inputs)[0]


def batches(sentences):
    """Ragged batches: all lengths together, a lone text, one as long as can be, a batch of another size."""
    return [sentences, sentences[3:4], ["a", " ".join(sentences) * 3], sentences[5:12][::-1]]


def assert_same(folder, encoder, sentences, role="passage", **options):
    for texts in batches(sentences):
        expected = encoder.encode(texts, role=role, **options)
        assert np.abs(outside(folder, texts) - expected).max() <= 1e-4


def with_dense(encoder):
    torch.manual_seed(5)
    encoder.dense.append(Dense(encoder.hidden_size, 7, activation="torch.nn.modules.activation.Tanh"))
    return encoder


@pytest.fixture(scope="module")
def exported(tiny_encoder, tmp_path_factory):
    encoder = tiny_encoder(pooling="mean", normalize=True, prompts={"query": "the "})
    encoder.settings.change(max_length={"query": 16, "passage": 48})
    folder = tmp_path_factory.mktemp("onnx") / "exported"
    assert export_onnx(encoder, folder, role="query") == folder / "model.onnx"
    return encoder, folder


@pytest.mark.slow
def test_a_transformer_gives_the_same_vectors_with_its_prompt_and_length(exported, sentences):
    encoder, folder = exported
    assert_same(folder, encoder, sentences, role="query")
    passages = encoder.encode(sentences, role="passage")
    assert np.abs(outside(folder, sentences) - passages).max() > 1e-2  # another prompt and length: not these


@pytest.mark.slow
def test_the_folder_says_what_is_in_it(exported):
    _, folder = exported
    assert {path.name for path in folder.iterdir()} == {"model.onnx", "tokenizer.json", "onnx.json"}
    about = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
    assert (about["dim"], about["prompt"], about["max_length"], about["similarity"]) == (32, "the ", 16, "cosine")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    assert all(isinstance(size, str) for put in session.get_inputs() for size in put.shape)  # no size is fixed


@pytest.mark.slow
def test_the_graph_does_not_read_what_is_padded(exported):
    _, folder = exported
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    ids, mask = np.array([[0, 9, 8, 2]]), np.ones((1, 4), dtype=np.int64)
    more = np.array([[0, 9, 8, 2, 1, 1, 1]]), np.array([[1, 1, 1, 1, 0, 0, 0]])
    alone, padded = (session.run(None, {"input_ids": i, "attention_mask": m})[0] for i, m in ((ids, mask), more))
    assert np.abs(alone - padded).max() <= 1e-5


@pytest.mark.slow
def test_a_static_encoder_with_learned_weights(tiny_static, tmp_path, sentences):
    encoder = tiny_static(token_weights=True)
    with torch.no_grad():
        encoder.backbone.log_weights.normal_(generator=torch.Generator().manual_seed(1))
    export_onnx(encoder, tmp_path / "onnx")
    assert_same(tmp_path / "onnx", encoder, sentences)
    assert not np.any(outside(tmp_path / "onnx", ["", "a"])[0])  # a text without subwords is the zero vector, not NaN


@pytest.mark.slow
def test_a_calibrated_encoder_carries_the_map_of_the_language(tiny_static, tmp_path, sentences):
    encoder = tiny_static()
    shift = torch.linspace(-1, 1, encoder.dim)
    encoder.language_maps = LanguageMaps(
        {"*": LanguageMap(0.1 * shift, torch.ones(encoder.dim)), "fi": LanguageMap(shift, 2 + shift)}
    )
    export_onnx(encoder, tmp_path / "fi", lang="fi")
    export_onnx(encoder, tmp_path / "any")
    assert_same(tmp_path / "fi", encoder, sentences, lang="fi")
    assert_same(tmp_path / "any", encoder, sentences)
    assert encoder.language_maps is not None


def test_a_language_is_refused_where_there_is_no_calibration(tiny_static, tmp_path):
    with pytest.raises(InterlinguaError, match="is not calibrated"):
        export_onnx(tiny_static(), tmp_path / "onnx", lang="fi")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/photo").touch()
    with pytest.raises(InterlinguaError, match="not an earlier save"):
        export_onnx(tiny_static(), tmp_path / "mine")


@pytest.mark.slow
def test_a_bert_with_cls_pooling_and_a_dense_layer(tiny_tokenizer, tmp_path, sentences):
    from transformers import BertConfig, BertModel

    from interlingua.models.layout import Parts
    from interlingua.models.transformer import Transformer

    tokenizer = tiny_tokenizer()
    torch.manual_seed(3)
    model = BertModel(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=40,
            pad_token_id=1,
        )
    )
    encoder = with_dense(Encoder.of(Parts(Transformer(model, tokenizer), "cls"), max_length=40, device="cpu"))
    export_onnx(encoder, tmp_path / "onnx")
    assert outside(tmp_path / "onnx", sentences).shape == (len(sentences), 7)
    assert_same(tmp_path / "onnx", encoder, sentences)
