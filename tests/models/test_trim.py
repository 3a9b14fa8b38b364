from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from interlingua import Encoder
from interlingua.errors import BadInput
from interlingua.models.trim import trim_vocabulary

LATIN = (0, 1, 2, 5, 6, 10)  # of the sentences of conftest


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder(pooling="mean")


@pytest.mark.parametrize("kind", ["texts", "languages"])
def test_vectors_of_texts_inside_stay_the_same(encoder, sentences, tmp_path, kind):
    inside = [sentences[number] for number in LATIN]
    before = encoder.encode_query(inside)
    kept, whole = (
        trim_vocabulary(encoder, inside) if kind == "texts" else trim_vocabulary(encoder, langs=["en", "fi", "id"])
    )
    assert encoder.backbone.input_embeddings.num_embeddings == kept < 0.8 * whole
    assert np.array_equal(encoder.encode_query(inside), before)
    encoder.save(tmp_path / "trimmed")
    assert np.array_equal(Encoder.load(tmp_path / "trimmed").encode_query(inside), before)


def test_sentence_transformers_reads_a_trimmed_folder(encoder, sentences, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    before = encoder.encode_document(list(sentences))
    trim_vocabulary(encoder, sentences[:4])
    encoder.save(tmp_path)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert np.allclose(theirs.encode_document(list(sentences[:4])), before[:4], atol=1e-5)
    assert np.allclose(theirs.encode_document(list(sentences)), encoder.encode_document(list(sentences)), atol=1e-5)


def test_no_character_becomes_unknown(encoder, sentences):
    tokenizer = encoder.backbone.tokenizer
    unknown = [tokenizer(text)["input_ids"].count(tokenizer.unk_token_id) for text in sentences]
    trim_vocabulary(encoder, sentences[:1])
    tokenizer = encoder.backbone.tokenizer
    assert [tokenizer(text)["input_ids"].count(tokenizer.unk_token_id) for text in sentences] == unknown
    assert tokenizer.mask_token_id == encoder.backbone.input_embeddings.num_embeddings - 1


def test_what_segmentation_and_positions_count_from_stays(encoder, sentences):
    """Unigram weighs an unknown character by its least likely subword; XLM-R counts positions from the padding's id."""
    tokenizer = encoder.backbone.tokenizer
    description = json.loads(tokenizer.backend_tokenizer.to_str())
    rarest = next(
        entry for entry in description["model"]["vocab"] if len(entry[0]) > 3 and entry[0][1:] in sentences[8]
    )
    rarest[1] = -99.0
    encoder.backbone.tokenizer = type(tokenizer)(
        tokenizer_object=Tokenizer.from_str(json.dumps(description)), **tokenizer.special_tokens_map
    )
    pad = encoder.backbone.pad_id
    trim_vocabulary(encoder, sentences[:1])
    after = dict(json.loads(encoder.backbone.tokenizer.backend_tokenizer.to_str())["model"]["vocab"])
    assert min(after.values()) == -99
    assert encoder.backbone.pad_id == encoder.backbone.tokenizer.pad_token_id == pad == 1


def test_what_cannot_be_trimmed_is_told(encoder, tiny_static):
    with pytest.raises(BadInput, match="nothing would be left"):
        trim_vocabulary(encoder, [" ", ""])
    with pytest.raises(BadInput, match="is not a language code"):
        trim_vocabulary(encoder, langs=["english"])
    with pytest.raises(BadInput, match="a static model is not trimmed"):
        trim_vocabulary(tiny_static(), ["a"])
