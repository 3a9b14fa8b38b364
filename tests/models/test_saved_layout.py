"""What we save, sentence-transformers loads and gives the same vectors; what it saves, we load."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer, T5Config, T5EncoderModel

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder
from interlingua.models.layout import TANH, Dense

METHODS = ("encode", "encode_query", "encode_document")


def labse_like(tiny_encoder):
    torch.manual_seed(1)
    encoder = tiny_encoder(normalize=True)
    encoder.dense.append(Dense(32, 32, activation=TANH))
    return encoder


def with_learned_weights(tiny_static):
    encoder = tiny_static(token_weights=True, token_dropout=0.3)
    with torch.no_grad():
        encoder.backbone.log_weights.copy_(torch.linspace(-2, 2, len(encoder.backbone.log_weights)))
    return encoder


KINDS = {
    "cls": lambda e, s: e(),
    "mean": lambda e, s: e(pooling="mean"),
    "mean of layer 1": lambda e, s: e(pooling="mean", layers=3, layer=1),
    "LaBSE": lambda e, s: labse_like(e),
    "prompts": lambda e, s: e(prompts={"query": "query: ", "passage": "passage: "}),
    "short": lambda e, s: e(max_length=16),
    "lengths by role": lambda e, s: Encoder.of(e().parts(), max_length={"query": 12, "passage": 6}, device="cpu"),
    "static": lambda e, s: s(),
    "length of one role": lambda e, s: Encoder.of(e().parts(), max_length={"query": 12}, device="cpu"),
    "static, short, prompts": lambda e, s: s(max_length=4, prompts={"query": "storm "}),
    "static, learned weights": lambda e, s: with_learned_weights(s),
}


@pytest.mark.parametrize("kind", KINDS)
def test_saved_folder_gives_the_same_vectors_in_both_libraries(kind, tiny_encoder, tiny_static, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    encoder = KINDS[kind](tiny_encoder, tiny_static)
    texts = [*sentences, "", "a longer text " * 20]
    encoder.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    again = Encoder.load(tmp_path / "model", device="cpu")
    for method in METHODS:
        ours = getattr(encoder, method)(texts)
        np.testing.assert_allclose(getattr(theirs, method)(texts), ours, atol=1e-5, err_msg=method)
        np.testing.assert_allclose(getattr(again, method)(texts), ours, atol=1e-6)
    if "prompts" in kind or "role" in kind:
        assert not np.allclose(encoder.encode_query(texts), encoder.encode_document(texts), atol=1e-3)


def test_saved_folder_holds_built_in_types_and_no_pickle(tiny_encoder, tmp_path):

    labse_like(tiny_encoder).save(tmp_path / "model")
    types = [entry["type"] for entry in json.loads((tmp_path / "model/modules.json").read_text())]
    assert types == [
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
        "sentence_transformers.base.modules.dense.Dense",
        "sentence_transformers.base.modules.normalize.Normalize",
    ]
    assert {p.suffix for p in (tmp_path / "model").rglob("*") if p.is_file()} == {".json", ".safetensors"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_saving_replaces_a_model_and_nothing_else(tiny_encoder, tmp_path):
    tiny_encoder(seed=1).save(tmp_path / "model")
    encoder = tiny_encoder(seed=2)
    encoder.save(tmp_path / "model")
    np.testing.assert_array_equal(Encoder.load(tmp_path / "model", device="cpu").encode("a"), encoder.encode("a"))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years of work")
    with pytest.raises(InterlinguaError, match="not an earlier save"):
        encoder.save(tmp_path / "thesis")
    assert (tmp_path / "thesis/chapter.txt").exists()


def test_a_failed_save_leaves_the_old_model(tiny_encoder, tmp_path, monkeypatch):
    encoder = tiny_encoder()
    encoder.save(tmp_path / "model")
    before = encoder.encode("a")
    monkeypatch.setattr("interlingua.models.encoder.write_root", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tiny_encoder(seed=5).save(tmp_path / "model")
    np.testing.assert_array_equal(Encoder.load(tmp_path / "model", device="cpu").encode("a"), before)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_loads_what_sentence_transformers_saves(tiny_hf_folder, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    theirs = SentenceTransformer(
        modules=[
            modules.Transformer(str(tiny_hf_folder)),
            modules.Pooling(32, pooling_mode="mean"),
            modules.Dense(32, 7),
            modules.Normalize(),
        ],
        prompts={"query": "ask: ", "document": "read: ", "own": "own: "},
        similarity_fn_name="dot",
    )
    theirs.save(str(tmp_path / "st"))
    ours = Encoder.load(tmp_path / "st", device="cpu")
    for method in METHODS:
        np.testing.assert_allclose(getattr(ours, method)(sentences), getattr(theirs, method)(sentences), atol=1e-5)
    np.testing.assert_allclose(
        ours.encode(sentences, prompt_name="own"), theirs.encode(sentences, prompt_name="own"), atol=1e-5
    )
    assert ours.similarity == "dot"
    with pytest.raises(InterlinguaError, match="no such prompt"):
        ours.encode(sentences, prompt_name="other")


def test_loads_the_older_layout(tiny_encoder, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    encoder = tiny_encoder(pooling="mean")
    encoder.save(tmp_path / "model")
    root = tmp_path / "model"
    listed = json.loads((root / "modules.json").read_text())
    for entry in listed:
        entry["type"] = "sentence_transformers.models." + entry["type"].rsplit(".", 1)[1]
    (root / "modules.json").write_text(json.dumps(listed))
    (root / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    )
    (root / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    old = Encoder.load(root, device="cpu")
    theirs = SentenceTransformer(str(root), device="cpu")
    np.testing.assert_allclose(old.encode(sentences), theirs.encode(sentences), atol=1e-5)
    assert max(map(len, old.tokenize(sentences))) == 9
    (root / "sentence_bert_config.json").rename(root / "sentence_distilbert_config.json")
    assert max(map(len, Encoder.load(root, device="cpu").tokenize(sentences))) == 9


@pytest.mark.slow  # the import
def test_lower_case_survives_a_save(tiny_encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "lake", "A", "LAKE"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False, model_max_length=16)
    config = BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, pad_token_id=0
    )
    root = tmp_path / "model"
    BertModel(config).save_pretrained(root)
    tokenizer.save_pretrained(root)
    (root / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    first = Encoder.load(root, device="cpu")
    assert first.tokenize(["A LAKE"]) == first.tokenize(["a lake"])
    first.save(tmp_path / "saved")
    again = Encoder.load(tmp_path / "saved", device="cpu")
    assert again.tokenize(["A LAKE"]) == first.tokenize(["a lake"])
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(theirs.encode(["A LAKE"]), again.encode(["a lake"]), atol=1e-5)


def test_a_passage_prompt_of_other_makers_is_the_documents(tiny_encoder, sentences, tmp_path):
    expected = tiny_encoder(prompts={"passage": "passage: "}).encode_document(sentences)
    tiny_encoder().save(tmp_path / "model")
    (tmp_path / "model/config_sentence_transformers.json").write_text(json.dumps({"prompts": {"passage": "passage: "}}))
    np.testing.assert_array_equal(Encoder.load(tmp_path / "model", device="cpu").encode_document(sentences), expected)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "modules.json",
            [{"path": "", "type": "my_code.MyTransformer"}],
            "type my_code.MyTransformer is not supported",
        ),
        ("modules.json", [{"path": "", "type": "sentence_transformers.models.CNN"}], "CNN is not supported"),
        (
            "modules.json",
            [{"path": "../..", "type": "sentence_transformers.models.StaticEmbedding"}],
            "not a plain folder",
        ),
        ("modules.json", [{"path": "", "type": "sentence_transformers.models.Pooling"}], "modules Pooling are not"),
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pooling 'max' is not supported"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, r"pooling 'cls\+mean' is not supported"),
        (
            "2_Dense/config.json",
            {"in_features": 32, "out_features": 32, "activation_function": "os.system"},
            "activation 'os.system' is not one of the known",
        ),
        ("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"}, "'manhattan' is not supported"),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim is not supported here"),
        ("interlingua.json", {"template": "{title.__class__} {text}"}, "title template"),
    ],
)
def test_what_is_not_supported_is_named(file, content, message, tiny_encoder, tmp_path):
    labse_like(tiny_encoder).save(tmp_path / "model")
    (tmp_path / "model" / file).write_text(json.dumps(content))
    with pytest.raises(InterlinguaError, match=message):
        Encoder.load(tmp_path / "model", device="cpu")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("interlingua.json", "[1]", "holds a list; an object is expected"),
        ("interlingua.json", "null", "holds null; an object is expected"),
        ("interlingua.json", "[" * 5_000, "cannot be read as JSON"),
        ("interlingua.json", '{"template": 5}', "template is a whole number; text is expected"),
        ("config_sentence_transformers.json", '{"prompts": [1]}', "prompts is a list; an object is expected"),
        ("config_sentence_transformers.json", '{"prompts": {"query": 1}}', "the prompt 'query' is a whole number"),
        ("sentence_bert_config.json", '{"max_seq_length": "x"}', "max_seq_length is text; a whole number is expected"),
        ("sentence_bert_config.json", '{"max_seq_length": -1}', "max_seq_length is -1; at least 1 is needed"),
        ("1_Pooling/config.json", '{"pooling_mode": true}', "pooling_mode is true or false; text or a list"),
        ("config.json", '{"num_hidden_layers": 10000000}', "for which the weights are too few"),
        ("config.json", '{"vocab_size": 10000000000}', "for which the weights are too few"),
        ("config.json", '{"num_attention_heads": 0}', "cannot be loaded as a Hugging Face model"),
        ("config.json", '{"pad_token_id": 1000000}', "cannot be loaded as a Hugging Face model"),
        ("tokenizer_config.json", '{"model_max_length": "x"}', "cannot be loaded as a Hugging Face model"),
        ("tokenizer.json", "null", "cannot be loaded as a Hugging Face model"),
    ],
)
def test_a_file_of_another_shape_is_named(file, content, says, tiny_encoder, tmp_path):
    tiny_encoder().save(tmp_path / "model")
    place = tmp_path / "model" / file
    if content.startswith("{"):  # only this value is another one
        content = json.dumps({**json.loads(place.read_text()), **json.loads(content)})
    place.write_text(content)
    with pytest.raises(InterlinguaError, match=re.escape(says)):
        Encoder.load(tmp_path / "model")


def test_a_model_with_a_decoder_is_named(tiny_tokenizer, tmp_path):
    config = T5Config(vocab_size=len(tiny_tokenizer()), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InterlinguaError, match="a t5 model has an encoder and a decoder; such cannot be read"):
        Encoder.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architectures": ["HF_ColBERT"]}, "is a ColBERT model in its authors' layout"),
        ({"is_encoder_decoder": True}, "has an encoder and a decoder"),
    ],
)
def test_models_that_would_give_other_vectors_are_named(tiny_encoder, tmp_path, change, says):
    tiny_encoder().save(tmp_path)
    for name in ("modules.json", "fingerprint.json"):
        (tmp_path / name).unlink(missing_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(InterlinguaError, match=says):
        Encoder.load(tmp_path)


def test_a_static_model_with_another_dropout_is_named(tiny_static, tmp_path):
    tiny_static().save(tmp_path / "model")
    (tmp_path / "model/interlingua.json").write_text('{"training": {"token_dropout": "much"}}')
    with pytest.raises(InterlinguaError, match="a token_dropout from 0 to below 1"):
        Encoder.load(tmp_path / "model")
