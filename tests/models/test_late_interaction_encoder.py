"""Late interaction: the vectors are ColBERT's and sentence-transformers', and a folder is taken for what it is."""

from __future__ import annotations

import json
import string

import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.language_maps import LanguageMaps
from interlingua.models.late_interaction import LateInteractionEncoder, load_any
from interlingua.models.layout import Dense
from interlingua.training.backbones import build_encoder

LENGTHS = {"query_length": 24, "document_length": 40}


@pytest.fixture
def late(tiny_encoder):
    def make(seed=0, prompts=None, template=None, **options):
        encoder = tiny_encoder(prompts=prompts, template=template)
        return LateInteractionEncoder.start(encoder, seed=seed, **{"dim": 8, **LENGTHS, **options})

    return make


def close(ours, theirs, atol=1e-5):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, torch.as_tensor(b), atol=atol, rtol=0)


KINDS = {
    "plain": {},
    "no expansion": {"query_expansion": False},
    "no punctuation": {"skip_punctuation": True},
    "prompts": {"prompts": {"query": "query: ", "passage": "passage: "}},
    "short": {"document_length": 9},
}


@pytest.mark.parametrize("kind", KINDS)
def test_saved_folder_gives_the_same_vectors_in_both_libraries(kind, late, sentences, tmp_path):
    from sentence_transformers import MultiVectorEncoder

    encoder = late(**KINDS[kind])
    texts = [*sentences, "", "a longer text " * 20, "<mask>", "a [Q] b [D]", "<pad> x <mask>", "a , b. 。 c"]
    encoder.save(tmp_path / "model")
    theirs = MultiVectorEncoder(str(tmp_path / "model"), device="cpu")
    again = load_any(tmp_path / "model", device="cpu")
    assert isinstance(again, LateInteractionEncoder)
    assert theirs.similarity_fn_name == encoder.similarity == again.similarity
    for method in ("encode_query", "encode_document"):
        ours = getattr(encoder, method)(texts)
        close(ours, getattr(theirs, method)(texts))
        assert torch.equal(ours.vectors, getattr(again, method)(texts).vectors)


def test_saved_folder_holds_built_in_types_and_no_pickle(late, tmp_path):
    late().save(tmp_path / "model")
    types = [entry["type"] for entry in json.loads((tmp_path / "model/modules.json").read_text())]
    assert types == [
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.base.modules.dense.Dense",
        "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
        "sentence_transformers.base.modules.normalize.Normalize",
    ]
    assert {p.suffix for p in (tmp_path / "model").rglob("*") if p.is_file()} == {".json", ".safetensors"}


def test_what_sentence_transformers_saves_loads_here(tiny_hf_folder, sentences, tmp_path):
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense as TheirDense
    from sentence_transformers.base.modules import Normalize as TheirNormalize
    from sentence_transformers.base.modules import Transformer as TheirTransformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    transformer = TheirTransformer(
        str(tiny_hf_folder), query_length=20, document_length=30, query_expansion={"strategy": "fixed", "length": 20}
    )
    theirs = MultiVectorEncoder(
        device="cpu",
        modules=[
            transformer,
            TheirDense(32, 6, bias=True, activation_function=torch.nn.Tanh(), module_input_name="token_embeddings"),
            MultiVectorMask(skiplist_words=list(string.punctuation)),
            TheirNormalize("token_embeddings"),
        ],
    )
    theirs.save_pretrained(str(tmp_path / "theirs"))
    ours = load_any(tmp_path / "theirs", device="cpu")
    assert ours.dim == 6
    close(ours.encode_query(sentences), theirs.encode_query(list(sentences)))
    close(ours.encode_document(sentences), theirs.encode_document(list(sentences)))
    ours.save(tmp_path / "ours")
    close(
        ours.encode_document(sentences),
        MultiVectorEncoder(str(tmp_path / "ours"), device="cpu").encode_document(list(sentences)),
    )


def test_markers_have_ids_after_the_vocabulary_and_stand_behind_the_opening_token(tiny_encoder):
    plain, start = tiny_encoder(), tiny_encoder()
    start.backbone.model.config.initializer_range = 1e-3  # the rows that are there are of size 0.2
    encoder = LateInteractionEncoder.start(start, **LENGTHS)
    size = len(plain.tokenizer)
    query, document = encoder.tokenize(["a b"], "query")[0], encoder.tokenize(["a b"], "passage")[0]
    words = plain.tokenize(["a b"])[0]
    assert document == [words[0], size + 1, *words[1:]]
    assert query == [words[0], size, *words[1:], *[encoder.tokenizer.mask_token_id] * (24 - len(words) - 1)]
    table = encoder.input_embeddings.weight
    assert len(table) == size + 2
    assert torch.equal(table[:size], plain.input_embeddings.weight)
    assert 0.5 < table[size:].std() / table[:size].std() < 2
    assert not torch.equal(table[size], table[size + 1])


def test_the_opening_token_of_id_0_is_never_taken_for_padding(late):
    """XLM-R: 0 is <s> and 1 is <pad>. It counts, is attended to, and is not replaced."""
    encoder = late()
    ids = encoder.tokenize(["who wrote", "a"], "document")
    assert ids[0][0] == 0 == ids[1][0]
    vectors = encoder.embed_ids(ids, "document")
    assert vectors.counts == [len(text) for text in ids]
    other = [[3, *text[1:]] for text in ids]
    assert (encoder.embed_ids(other, "document").vectors - vectors.vectors).abs().max() > 1e-3


def test_expansion_sees_the_query_and_is_not_seen(late):
    short, long = late(), late(query_length=40)
    a, b = (encoder.encode_query(["who wrote the first book"]) for encoder in (short, long))
    real = len(short.backbone.subwords(["[Q] who wrote the first book"])[0])
    assert (a.counts, b.counts) == ([24], [40])
    torch.testing.assert_close(a[0], b[0][:24], atol=1e-5, rtol=0)  # 16 more masks change nothing for the others
    others = short.encode_query(["what a small blue book"])
    assert (a[0][real + 1 :] - others[0][real + 1 :]).abs().max() > 1e-2
    bare = late(query_expansion=False).encode_query(["who wrote the first book"])
    torch.testing.assert_close(bare[0], a[0][:real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["encode_query", "encode_document"])
def test_vectors_do_not_depend_on_the_batch_and_packing(method, late, sentences):
    encoder = late()
    whole = getattr(encoder, method)(sentences)
    torch.testing.assert_close(whole.vectors.norm(dim=1), torch.ones(len(whole.vectors)))
    close(whole, [getattr(encoder, method)(text)[0] for text in sentences])
    close(whole, getattr(encoder, method)(sentences, batch_size=3))
    encoder.backbone.packed = False
    close(whole, getattr(encoder, method)(sentences))
    role = method.removeprefix("encode_")
    close(whole, encoder.embed(sentences, role))
    assert not whole.vectors.requires_grad
    assert encoder.embed(sentences, role).vectors.requires_grad


def test_documents_without_punctuation_lose_those_tokens_alone(late):
    full, encoder = late(), late(skip_punctuation=True)
    text = "stars, rivers. 灯台守は。"
    ids = full.tokenize([text], "document")[0]
    tokens = full.tokenizer.convert_ids_to_tokens(ids)
    kept = [place for place, token in enumerate(tokens) if token not in (",", ".", "。")]
    assert len(kept) == len(ids) - 3
    torch.testing.assert_close(encoder.encode_document(text)[0], full.encode_document(text)[0][kept])
    assert torch.equal(encoder.encode_query(text).vectors, full.encode_query(text).vectors)
    assert encoder.encode_document(", . 。").counts[0] >= 3  # special tokens and marker stay


def test_titles_and_nothing(late):
    encoder = late(template="{title}: {text}")
    assert torch.equal(encoder.encode_document([("a", "b")]).vectors, encoder.encode_document("a: b").vectors)
    empty = encoder.encode_document([])
    assert (len(empty), empty.vectors.shape) == (0, (0, 8))
    assert encoder.encode_document("").counts == [3]
    assert encoder.embed([], "query").vectors.shape == (0, 8)


def test_start_is_the_same_for_the_same_seed(late):
    a, b, c = late(seed=1), late(seed=1), late(seed=2)
    torch.manual_seed(5)
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(x, y)
    assert not torch.equal(a.projection.linear.weight, c.projection.linear.weight)
    assert a.projection.linear.bias is None


def test_start_from_any_encoder(tiny_hf_folder, tiny_encoder, tiny_static, capsys):
    late = LateInteractionEncoder.start(Encoder.load(tiny_hf_folder, device="cpu"), **LENGTHS)
    assert (late.dim, late.projection.linear.in_features) == (128, 32)
    e5 = tiny_encoder(prompts={"query": "query: ", "passage": "passage: "})
    e5.dense.append(Dense(32, 32))
    e5.language_maps = LanguageMaps({})
    late = LateInteractionEncoder.start(e5, **LENGTHS)
    assert late.settings.prompts == {"query": "[Q] query: ", "document": "[D] passage: "}
    assert "Dense layers and calibration are left out" in capsys.readouterr().err
    with pytest.raises(InterlinguaError, match="needs a transformer"):
        LateInteractionEncoder.start(tiny_static())
    scratch = build_encoder(
        {"scratch": {"vocab_size": 200, "layers": 1, "hidden": 8, "heads": 2, "max_length": 40}},
        texts=["a b c d e f g"] * 20,
        device="cpu",
    )
    assert LateInteractionEncoder.start(scratch, **LENGTHS).encode_document("a b").counts[0] > 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"document_length": 180}, "document_length 180 is not possible; this model has positions for 64"),
        ({"query_length": 65}, "query_length 65 is not possible"),
        ({"query_length": 0}, "query_length 0"),
        ({"dim": 0}, "dim 0"),
    ],
)
def test_impossible_options(late, options, said):
    with pytest.raises(InterlinguaError, match=said):
        late(**options)


def test_expansion_needs_a_mask_token(tiny_encoder):
    encoder = tiny_encoder()
    encoder.tokenizer.mask_token = None
    with pytest.raises(InterlinguaError, match="no mask token"):
        LateInteractionEncoder.start(encoder, **LENGTHS)


def test_each_kind_of_folder_is_taken_for_what_it_is(late, tiny_encoder, tmp_path):
    late().save(tmp_path / "late")
    tiny_encoder().save(tmp_path / "single")
    DualEncoder.untied(tiny_encoder()).save(tmp_path / "untied")
    for name in ("single", "untied"):
        assert isinstance(load_any(tmp_path / name, device="cpu"), DualEncoder)
        with pytest.raises(InterlinguaError, match="holds no late-interaction model"):
            LateInteractionEncoder.load(tmp_path / name)
    for kind in (Encoder, DualEncoder):
        with pytest.raises(InterlinguaError, match=r"LateInteractionEncoder\.load"):
            kind.load(tmp_path / "late", device="cpu")
    assert not load_any(tmp_path / "late", device="cpu").training
    assert load_any(tmp_path / "late", device="cpu", for_training=True).training


FOREIGN = {
    "attend": (
        "sentence_bert_config.json",
        {"query_expansion": {"strategy": "fixed", "attend": True, "length": 8}},
        "query_expansion",
    ),
    "min": ("sentence_bert_config.json", {"query_expansion": {"strategy": "min", "length": 8}}, "query_expansion"),
    "longer than the positions": (
        "sentence_bert_config.json",
        {"query_expansion": {"strategy": "fixed", "length": 10**6}},
        "1000000 tokens; the model has positions for",
    ),
    "no length": (
        "sentence_bert_config.json",
        {"query_expansion": {"strategy": "fixed", "length": True}},
        "query_expansion",
    ),
    "queries skipped": ("2_MultiVectorMask/config.json", {"skiplist_tasks": ["query", "document"]}, "skiplist"),
    "allow list": ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [5]}, "keep_only_token_ids"),
    "meanmaxsim": ("config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}, "meanmaxsim"),
    "dense on the pooled vector": ("1_Dense/config.json", {"module_input_name": "sentence_embedding"}, "Dense"),
    "normalize of the pooled vector": (
        "3_Normalize/config.json",
        {"module_input_name": "sentence_embedding"},
        "Normalize",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_options_that_would_be_lost_are_refused(what, late, tmp_path):
    file, changes, said = FOREIGN[what]
    late().save(tmp_path / "model")
    path = tmp_path / "model" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InterlinguaError, match=said):
        load_any(tmp_path / "model", device="cpu")


def test_a_folder_of_another_shape_is_refused(late, tmp_path):

    late().save(tmp_path / "model")
    path = tmp_path / "model/modules.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:3]))
    with pytest.raises(InterlinguaError, match="Transformer → Dense → MultiVectorMask are not supported"):
        load_any(tmp_path / "model", device="cpu")


def test_an_unknown_skiplist_word_is_said(late, tmp_path, capsys):
    late().save(tmp_path / "model")
    path = tmp_path / "model/2_MultiVectorMask/config.json"
    path.write_text(json.dumps({"skiplist_words": [",", "☃☃"], "skiplist_tasks": ["document"]}))
    loaded = load_any(tmp_path / "model", device="cpu")
    assert "1 tokens of the skiplist are not in the vocabulary and have no effect: ☃☃" in capsys.readouterr().err
    assert len(loaded.encode_document("a,")[0]) == len(late().encode_document("a,")[0]) - 1


def test_vectors_that_are_not_numbers_are_an_error(late, monkeypatch):
    encoder = late()
    with torch.no_grad():
        encoder.input_embeddings.weight[encoder.tokenize(["stars"], "document")[0][2]] = float("nan")
    for window in (1, 2):  # the number is that of the text in the whole call
        monkeypatch.setattr("interlingua.models.encode.WINDOW", window)
        with pytest.raises(InterlinguaError, match="text 1: its vectors hold NaN"):
            encoder.encode_document(["who", "stars"])
