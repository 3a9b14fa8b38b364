"""The contract of `models/protocols.py`, held against every encoder: ours, and the one that people copy."""

from __future__ import annotations

import json
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from interlingua.alignment import Calibration
from interlingua.errors import BadInput, InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import TokenVectors
from interlingua.models.folder import check, fingerprint
from interlingua.models.inference import precision
from interlingua.models.inference.light import LightEncoder
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.models.protocols import has_token_vectors
from interlingua.models.static.encoder import StaticEncoder

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_encoder.py"
PROMPTS = {"query": "question: ", "document": "text: "}
PRECISIONS = ["float32", "bfloat16", "int8"]
KINDS = [
    "transformer",
    "static",
    "static without torch",
    "tied",
    "untied",
    "calibrated",
    "late interaction",
    "example",
    *PRECISIONS,
    "float32 without torch",
    "int8 without torch",
]
ROUNDING = {"bfloat16": 0.005}
"""How far a component of a text's vector may move with the other texts of its batch, where not 1e-5."""
LANGS = ["fr", "fi", None]


@pytest.fixture(scope="module")
def made(tiny_encoder, tiny_static, sentences, tmp_path_factory):
    """`made(kind, seed)`: an encoder of each kind; of another seed it gives other vectors."""
    patched = pytest.MonkeyPatch()
    patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    patched.setattr(precision, "KEPT", 0)  # conversions of small models are kept too
    patched.setattr(precision, "cpu_has_bfloat16", lambda: True)  # torch computes bfloat16 on any processor
    yield encoders(tiny_encoder, tiny_static, tmp_path_factory)
    patched.undo()


def encoders(tiny_encoder, tiny_static, tmp_path_factory):
    example = runpy.run_path(str(EXAMPLE))["Trigrams"]

    def untorched(seed):
        folder = tmp_path_factory.mktemp("static") / "model"
        tiny_static(seed=seed, prompts=PROMPTS).save(folder)
        return StaticEncoder.load(folder)

    def calibrated(seed):
        encoder = tiny_encoder(prompts=PROMPTS)
        clouds = {
            lang: np.random.default_rng([seed, number]).standard_normal((60, encoder.dim))
            for number, lang in enumerate(("en", "fr"))
        }
        encoder.language_maps = Calibration.fit(clouds, rotate=None).maps
        return encoder

    def for_inference(name, seed, light=False):
        folder = tmp_path_factory.mktemp("model") / "model"
        tiny_encoder(seed=seed, pooling="mean", prompts=PROMPTS).save(folder)
        whole = DualEncoder.load(folder, precision=name, device="cpu")
        if not light:
            return whole
        encoder = LightEncoder.load(folder, name)
        assert encoder is not None
        return encoder

    kinds = {
        "transformer": lambda seed: tiny_encoder(seed=seed, prompts=PROMPTS),
        "static": lambda seed: tiny_static(seed=seed, prompts=PROMPTS),
        "static without torch": untorched,
        "tied": lambda seed: DualEncoder.tied(tiny_encoder(seed=seed, prompts=PROMPTS), similarity="dot"),
        "untied": lambda seed: DualEncoder(tiny_encoder(prompts=PROMPTS), tiny_encoder(seed=seed + 5, prompts=PROMPTS)),
        "calibrated": calibrated,
        "late interaction": lambda seed: LateInteractionEncoder.start(
            tiny_encoder(prompts=PROMPTS), dim=8, query_length=24, document_length=40, seed=seed
        ),
        "example": lambda seed: example(64 + seed),
        **{name: partial(for_inference, name) for name in PRECISIONS},
        **{f"{name} without torch": partial(for_inference, name, light=True) for name in ("float32", "int8")},
    }
    held = {}
    return lambda kind, seed=0: held.setdefault((kind, seed), kinds[kind](seed))


def test_every_implementation_is_held_against_it(made):
    assert {made(kind).similarity for kind in KINDS} == {"cosine", "dot", "maxsim"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["encode_query", "encode_document"])
def test_texts_become_vectors_in_their_order(made, sentences, kind, role):
    encoder = made(kind)
    texts = sentences[:3] if role == "encode_query" else [sentences[0], ("A title", sentences[1]), sentences[2]]
    found = getattr(encoder, role)(texts, lang=LANGS)
    backwards = getattr(encoder, role)(texts[::-1], lang=LANGS[::-1])
    alone = getattr(encoder, role)(texts[1:2], lang=LANGS[1:2])
    if has_token_vectors(encoder):
        assert isinstance(found, TokenVectors)
        assert found.vectors.dtype == torch.float32
        assert (found.vectors.device.type, found.vectors.ndim, len(found)) == ("cpu", 2, 3)
        for number in range(3):
            torch.testing.assert_close(found[number], backwards[2 - number], atol=1e-5, rtol=0)
        torch.testing.assert_close(found[1], alone[0], atol=1e-5, rtol=0)
        return
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert (found.ndim, len(found)) == (2, 3)
    near = ROUNDING.get(kind, 1e-5)
    np.testing.assert_allclose(backwards[::-1], found, atol=near, rtol=0)
    np.testing.assert_allclose(alone[0], found[1], atol=near, rtol=0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "example"])
def test_what_is_no_list_of_texts_is_refused(made, kind):
    for given in ({"text": "a"}, {"a", "b"}, b"a"):
        with pytest.raises(BadInput, match=f"{type(given).__name__} given to encode: give a text, or a list of texts"):
            made(kind).encode_query(given, lang=None)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "example"])
def test_the_encoder_adds_the_prompt_of_the_role(made, sentences, kind):
    encoder = made(kind)
    query, document = (
        getattr(found, "vectors", found)
        for found in (encoder.encode_query(sentences[:1]), encoder.encode_document(sentences[:1]))
    )
    assert query.shape != document.shape or float(abs(query - document).max()) > 1e-3


def test_the_language_chooses_the_map_of_a_calibrated_encoder(made, sentences):
    encoder = made("calibrated")
    one, other = (encoder.encode_document(sentences[:1], lang=[lang]) for lang in ("fr", "en"))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_fingerprint_tells_encoders_apart_and_can_be_kept(made, kind):
    kept = json.loads(json.dumps(fingerprint(made(kind))))
    check(made(kind), kept, "the index")
    with pytest.raises(InterlinguaError, match="the index: was made with another model"):
        check(made(kind, 1), kept, "the index")
