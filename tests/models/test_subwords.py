from __future__ import annotations

import numpy as np
import pytest

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder

TITLE, TEXT = "Two rivers", "The lighthouse keeper wrote every storm into a small blue book."


def test_a_title_is_joined_by_the_template(tiny_encoder):
    encoder = tiny_encoder()
    assert encoder.tokenize([(TITLE, TEXT), ("", TEXT)]) == encoder.tokenize([f"{TITLE} {TEXT}", TEXT])
    dashed = tiny_encoder(template="{title} - {text}")
    assert dashed.tokenize([(TITLE, TEXT)]) == encoder.tokenize([f"{TITLE} - {TEXT}"])


def test_braces_in_a_text_are_text(tiny_encoder):
    encoder = tiny_encoder()
    assert encoder.tokenize([("{text}", "{title}{0}")]) == encoder.tokenize(["{text} {title}{0}"])


def test_pair_is_the_tokenizers_pair_and_survives_saving(tiny_encoder, tmp_path):
    encoder = tiny_encoder(template="pair", prompts={"passage": "p "})
    expected = encoder.tokenizer("p " + TITLE, TEXT)["input_ids"]
    assert encoder.tokenize([(TITLE, TEXT)], "passage") == [expected]
    assert expected.count(2) == 3
    assert encoder.tokenize([("", TEXT)]) == encoder.tokenize([TEXT])
    encoder.save(tmp_path / "model")
    again = Encoder.load(tmp_path / "model", device="cpu")
    assert again.tokenize([(TITLE, TEXT)], "passage") == [expected]
    np.testing.assert_array_equal(again.encode_document([(TITLE, TEXT)]), encoder.encode_document([(TITLE, TEXT)]))


@pytest.mark.parametrize("template", ["{title} {text}", "pair"])
def test_truncation_cuts_the_text_and_keeps_title_and_closing_token(tiny_encoder, template):
    encoder = tiny_encoder(template=template, max_length=12)
    whole = tiny_encoder(template=template).tokenize([(TITLE, TEXT)])[0]
    assert encoder.tokenize([(TITLE, TEXT)])[0] == [*whole[:11], 2]
    assert encoder.tokenizer.decode(whole[:11]).startswith(("Two rivers", "<s>Two rivers", "<s> Two rivers"))


def test_truncation_is_that_of_the_tokenizer(tiny_encoder, sentences):
    encoder = tiny_encoder(max_length=10)
    expected = encoder.tokenizer(sentences, truncation=True, max_length=10)["input_ids"]
    # The call above left its truncation on the shared tokenizer; it must not leak into ours.
    assert encoder.tokenize(sentences) == expected
    encoder.settings.max_length = None
    assert max(map(len, encoder.tokenize(sentences))) > 10


def test_length_and_prompt_follow_the_role(tiny_hf_folder, sentences):
    encoder = Encoder.load(
        tiny_hf_folder,
        max_length={"query": 6, "passage": 9},
        device="cpu",
        prompts={"query": "query: ", "passage": "passage: "},
    )
    for role, length, prompt in (("query", 6, "query: "), ("passage", 9, "passage: "), ("document", 9, "passage: ")):
        ids = encoder.tokenize(sentences, role)
        assert max(map(len, ids)) == length
        assert ids == [
            text[: length - 1] + text[-1:] if len(text) > length else text
            for text in encoder.tokenizer([prompt + s for s in sentences])["input_ids"]
        ]
    assert max(map(len, encoder.tokenize(sentences))) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 65}, "positions for 64 tokens at most"),
        ({"max_length": 0}, "give a number of tokens"),
        ({"max_length": {"question": 5}}, "role 'question' is not known. Known: document"),
        ({"template": "{title}"}, "title template"),
        ({"template": "{title!r} {text}"}, "title template"),
        ({"pooling": "max"}, "pooling 'max' is not supported"),
        ({"device": "gpu"}, "device 'gpu' is not known"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message, tiny_hf_folder):
    with pytest.raises(InterlinguaError, match=message):
        Encoder.load(tiny_hf_folder, **{"device": "cpu", **options})


def test_a_length_of_special_tokens_only_is_refused(tiny_encoder):
    with pytest.raises(InterlinguaError, match="larger than the 2 special tokens"):
        tiny_encoder(max_length=2).tokenize(["a"])


def test_half_a_character_is_a_plain_error(tiny_encoder):
    with pytest.raises(InterlinguaError, match="not valid Unicode"):
        tiny_encoder().tokenize([TEXT, "\udcff"])
