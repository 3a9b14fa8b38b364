from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder
from interlingua.models.subwords import token_counts
from interlingua.training.backbones import build_encoder, train_tokenizer

SCRATCH = {"scratch": {"vocab_size": 300, "layers": 2, "hidden": 16, "heads": 2, "intermediate": 32, "max_length": 32}}
STATIC = {"static": {"vocab_size": 300, "dim": 8, "token_dropout": 0.15}}


@pytest.fixture
def corpus(sentences):
    pytest.importorskip("sentencepiece")
    return [" ".join(s.split()[i:]) for s in sentences for i in range(4)]


def test_a_name_or_path_is_loaded(tiny_hf_folder, sentences):
    for path in (tiny_hf_folder, str(tiny_hf_folder)):
        encoder = build_encoder(path, pooling="cls", device="cpu")
        expected = Encoder.load(tiny_hf_folder, pooling="cls", device="cpu").encode(sentences)
        np.testing.assert_array_equal(encoder.encode(sentences), expected)


@pytest.mark.parametrize(("layers", "kept"), [(2, [0, 1]), ([0, 2], [0, 2]), ([0, 1, 2], [0, 1, 2])])
def test_a_named_backbone_keeps_the_layers_that_are_chosen(tiny_encoder, sentences, tmp_path, layers, kept):
    whole = tiny_encoder(layers=3)
    whole.save(tmp_path / "whole")
    cut = build_encoder({"name": str(tmp_path / "whole"), "layers": layers}, device="cpu")
    assert cut.backbone.layers == len(kept)
    for new, old in enumerate(kept):
        pairs = zip(cut.backbone.stack()[new].parameters(), whole.backbone.stack()[old].parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    cut.save(tmp_path / "cut")
    again = Encoder.load(tmp_path / "cut", device="cpu")
    assert again.backbone.layers == len(kept)
    np.testing.assert_array_equal(again.encode(sentences), cut.encode(sentences))
    same = np.allclose(cut.encode(sentences), whole.encode(sentences), atol=1e-3)
    assert same == (len(kept) == 3)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (4, "layer 4: this model has hidden states 0 to 3"),
        ([0, 3], "layers 0, 3: this model has the layers 0 to 2"),
        ([1, 0], r"layers 1, 0: .*each once, in rising order"),
        ([1, 1], "each once"),
        ([-1], "layers -1: this model has the layers 0 to 2"),
        ([], r"layers \(none\): .*Name some"),
    ],
)
def test_layers_that_a_model_does_not_have_are_named(tiny_encoder, tmp_path, layers, message):
    tiny_encoder(layers=3).save(tmp_path)
    with pytest.raises(InterlinguaError, match=message):
        build_encoder({"name": str(tmp_path), "layers": layers}, device="cpu")


@pytest.mark.parametrize("spec", [SCRATCH, STATIC])
def test_a_new_backbone_follows_from_texts_and_seed(spec, corpus, sentences, tmp_path):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    encoders = [build_encoder(spec, texts=iter(corpus), seed=seed, device="cpu") for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    one, two, other = (encoder.encode(sentences) for encoder in encoders)
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other, atol=1e-2)
    encoders[0].save(tmp_path / "m")
    again = Encoder.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(again.encode(sentences), one)


def test_scratch_has_the_shape_asked_for(corpus, sentences):
    encoder = build_encoder(
        SCRATCH,
        texts=corpus,
        pooling="cls",
        max_length={"query": 8, "passage": 30},
        prompts={"query": "q "},
        template="pair",
        device="cpu",
    )
    config = encoder.backbone.model.config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (2, 16, len(encoder.tokenizer))
    assert (encoder.pooling, encoder.pad_id, encoder.backbone.positions) == ("cls", 1, 32)
    assert len(encoder.tokenize(["a b c d e f g h i j k"], "query")[0]) == 8


def test_a_length_for_one_role_leaves_the_other_as_it_is(corpus):
    encoder = build_encoder(SCRATCH, texts=corpus, max_length={"query": 8}, device="cpu")
    long = "a b c d e f g h i j k " * 9
    assert [len(encoder.tokenize([long], role)[0]) for role in ("query", "passage")] == [8, 32]
    encoder.settings.change(max_length={"passage": 16})
    assert [len(encoder.tokenize([long], role)[0]) for role in ("query", "passage")] == [8, 16]


@pytest.mark.parametrize("length", [64.9, True, 0, "a", {"query": 64.9}, {"query": True}, {"passage": None}, {}])
def test_what_is_no_number_of_tokens_is_named(corpus, length):
    encoder = build_encoder(SCRATCH, texts=corpus, device="cpu")
    with pytest.raises(InterlinguaError, match="give a number of tokens, or one per role"):
        encoder.settings.change(max_length=length)


def test_lengths_of_a_folder_end_at_the_positions(corpus, tmp_path):
    build_encoder(SCRATCH, texts=corpus, device="cpu").save(tmp_path / "model")
    file = tmp_path / "model/sentence_bert_config.json"
    file.write_text(json.dumps({"max_seq_length": 1000, "query_length": 500}))
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    long = "a b c d e f g h i j k " * 9
    assert [len(encoder.tokenize([long], role)[0]) for role in ("query", "passage")] == [32, 32]
    assert encoder.encode([long], role="query").shape == (1, 16)


def test_static_starts_with_frequent_subwords_weighing_little(corpus):
    encoder = build_encoder(STATIC, texts=corpus, device="cpu")
    counts = token_counts(encoder.tokenizer.backend_tokenizer, corpus)
    norms = encoder.input_embeddings.weight.norm(dim=1)
    unseen = [t for t in range(len(encoder.tokenizer)) if not counts[t]]
    frequent = [t for t, _ in counts.most_common(10)]
    assert norms[frequent].mean() < norms[unseen].mean() / 5
    assert encoder.backbone.token_dropout == 0.15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"scratch": {"layer": 3}}, r"unknown key 'scratch\.layer'\. Did you mean 'layers'"),
        ({"scratch": {}, "static": {}}, "exactly one of name, scratch and static"),
        ({}, "exactly one of name, scratch and static"),
        ({"name": "default", "scratch": {}}, "exactly one of name, scratch and static"),
        ({"scratch": {}, "layers": 2}, "layers are chosen from a named model"),
        ({"name": "default", "layers": 0}, "layers: 0 leaves no layer; give at least 1"),
        ({"name": "default", "layers": 1}, "a static backbone has mean pooling, no layers"),
        ({"scratch": {"hidden": 10, "heads": 4}}, "not a multiple of heads"),
        ({"static": {"token_dropout": 1.5}}, "static.token_dropout"),
        ({"static": {}}, "give `texts`"),
    ],
)
def test_a_wrong_spec_is_explained(spec, message):
    with pytest.raises(InterlinguaError, match=message):
        build_encoder(spec)


def test_a_trained_tokenizer_has_xlm_rs_special_tokens_and_pairs(corpus):
    tokenizer = train_tokenizer(corpus, 300)
    assert [tokenizer.convert_ids_to_tokens(i) for i in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokenizer.mask_token_id == len(tokenizer) - 1
    assert len(tokenizer) <= 300
    one, two = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("the sea", "a blue book"))
    assert tokenizer("the sea")["input_ids"] == [0, *one, 2]
    assert tokenizer("the sea", "a blue book")["input_ids"] == [0, *one, 2, 2, *two, 2]
    assert tokenizer.decode(tokenizer("a small <mask> book")["input_ids"], skip_special_tokens=True) == "a small book"


def test_a_trained_tokenizer_reads_every_script_and_is_the_same_every_time(corpus, sentences):
    tokenizer, second = (train_tokenizer(iter(corpus), 600, character_coverage=1.0) for _ in range(2))
    assert tokenizer.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()
    for sentence in sentences:
        assert 3 not in tokenizer(sentence)["input_ids"], sentence
    # Full-width letters and odd white space are normalised (NFKC); case only where asked.
    assert tokenizer("Ｔｈｅ  ｂｏｏｋ ")["input_ids"] == tokenizer("The book")["input_ids"]
    assert tokenizer("THE BOOK")["input_ids"] != tokenizer("the book")["input_ids"]
    lower = train_tokenizer(corpus, 600, lowercase=True)
    assert lower("THE BOOK")["input_ids"] == lower("the book")["input_ids"]


def test_bytes_stand_for_characters_without_a_token(corpus):
    plain, bytewise = (train_tokenizer(corpus, 600, byte_fallback=fallback) for fallback in (False, True))
    assert plain.unk_token_id in plain("龘")["input_ids"]
    assert bytewise.tokenize("龘")[-3:] == ["<0xE9>", "<0xBE>", "<0x98>"]
    assert bytewise.tokenize("龘") != bytewise.tokenize("龖")
    assert len(bytewise) <= 600


def test_too_little_text_is_said():
    pytest.importorskip("sentencepiece")
    with pytest.raises(InterlinguaError, match="Give more text"):
        train_tokenizer([], 300)
    with pytest.raises(InterlinguaError, match="too small"):
        train_tokenizer(["a"], 3)


def test_a_transformer_starts_with_the_vectors_of_a_static_model(tiny_static, sentences, tmp_path):
    static = tiny_static(dim=16)
    static.save(tmp_path / "static")
    spec = {"scratch": {**SCRATCH["scratch"], "embeddings": str(tmp_path / "static")}}
    encoder = build_encoder(spec, texts=[], seed=1, device="cpu")
    rows, start = static.input_embeddings.weight, encoder.input_embeddings.weight
    assert torch.nn.functional.cosine_similarity(rows, start[: len(rows)]).min() > 0.999
    assert start.std().item() == pytest.approx(0.02, rel=0.01)
    assert [ids[1:-1] for ids in encoder.tokenize(sentences)] == static.tokenize(sentences)
    encoder.save(tmp_path / "m")
    np.testing.assert_allclose(Encoder.load(tmp_path / "m").encode(sentences), encoder.encode(sentences), atol=1e-5)
    with pytest.raises(InterlinguaError, match="must be a static model of 32 dimensions"):
        build_encoder({"scratch": {**spec["scratch"], "hidden": 32}}, texts=[])
