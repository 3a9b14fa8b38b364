from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.language_maps import LanguageMap, LanguageMaps
from interlingua.models.layout import TANH, Dense


def maps(dim, seed=0):
    """French turned, English not, and everybody else."""
    draw = torch.Generator().manual_seed(seed)

    def one(turned):
        rotation = torch.linalg.qr(torch.randn(dim, dim, generator=draw))[0] if turned else None
        return LanguageMap(torch.randn(dim, generator=draw), 0.5 + torch.rand(dim, generator=draw), rotation)

    return LanguageMaps({"fr": one(True), "en": one(False), "*": one(False)}, {"pivot": "en"})


def by_hand(found, name, vectors, normalize=False):
    one = found.maps[name]
    shift, scale = one.shift.numpy(), one.scale.numpy()
    rotation = np.eye(len(shift)) if one.rotation is None else one.rotation.numpy()
    mapped = np.array([rotation @ ((x - shift) / scale) for x in vectors])
    return mapped / np.linalg.norm(mapped, axis=1, keepdims=True) if normalize else mapped


def calibrated(encoder):
    encoder.language_maps = maps(encoder.dim)
    return encoder


@pytest.mark.parametrize("normalize", [False, True])
def test_encode_applies_the_map_of_the_language(tiny_encoder, sentences, normalize):
    plain = tiny_encoder(normalize=normalize)
    vectors = plain.encode(sentences)
    encoder = calibrated(plain)
    for lang, name in (("fr", "fr"), ("fra", "fr"), ("en-GB", "en"), (None, "*"), ("fi", "*")):
        expected = by_hand(encoder.language_maps, name, vectors, normalize)
        np.testing.assert_allclose(encoder.encode(sentences, lang=lang), expected, atol=1e-5)
    langs = ["fr", "en", None, "fi"] * 4
    mixed = encoder.encode(sentences, lang=langs[: len(sentences)])
    for i, lang in enumerate(langs[: len(sentences)]):
        np.testing.assert_allclose(mixed[i], encoder.encode(sentences[i], lang=lang), atol=1e-5)
    tensor = encoder.encode(sentences, lang="fr", convert_to_tensor=True, truncate_dim=8)
    np.testing.assert_allclose(tensor.numpy(), encoder.encode(sentences, lang="fr")[:, :8], atol=1e-6)
    assert encoder.encode([], lang=[]).shape == (0, 32)


def test_roles_and_tied_models_pass_the_language_on(tiny_encoder, sentences):
    dual = DualEncoder.tied(calibrated(tiny_encoder(prompts={"query": "ask ", "passage": "read "})))
    for role in ("query", "document"):
        expected = dual.query.encode(sentences, role=role, lang="fr")
        assert not np.allclose(expected, dual.query.encode(sentences, role=role), atol=0.1)
        np.testing.assert_array_equal(getattr(dual, f"encode_{role}")(sentences, lang="fr"), expected)
    assert not np.allclose(
        dual.encode_query(sentences, lang="fr"), dual.encode_document(sentences, lang="fr"), atol=0.01
    )


def test_without_a_calibration_the_language_changes_nothing(tiny_encoder, sentences):
    encoder = tiny_encoder()
    expected = encoder.encode(sentences)
    for lang in ("fr", None, ["en"] * len(sentences), ["en"]):
        np.testing.assert_array_equal(encoder.encode(sentences, lang=lang), expected)


def test_gradients_do_not_see_the_calibration(tiny_encoder, sentences):
    encoder = tiny_encoder()
    expected = encoder.embed(sentences)
    assert torch.equal(calibrated(encoder).embed(sentences), expected)


def test_a_language_without_a_map_is_said_once(tiny_encoder, capsys):
    encoder = calibrated(tiny_encoder())
    encoder.encode(["a", "b"], lang="fi")
    encoder.encode(["a", "b"], lang=["fi", "en"])
    encoder.encode(["a"])
    assert capsys.readouterr().err.count("none was fitted for 'fi'") == 1


def test_blocks_do_not_show(monkeypatch):
    vectors = torch.randn(23, 5, generator=torch.Generator().manual_seed(1))
    found = maps(5)
    langs = ["fr", "en", None] * 7 + ["fr", "fr"]
    expected = found.apply(vectors, langs)
    monkeypatch.setattr("interlingua.models.language_maps.BLOCK", 2)
    torch.testing.assert_close(found.apply(vectors, langs), expected)


def test_languages_that_do_not_fit_the_texts_are_refused(tiny_encoder):
    encoder = calibrated(tiny_encoder())
    with pytest.raises(InterlinguaError, match="1 languages for 2 texts"):
        encoder.encode(["a", "b"], lang=["fr"])
    with pytest.raises(InterlinguaError, match="lang 7 is int"):
        encoder.encode(["a", "b"], lang=["fr", 7])
    encoder.language_maps = maps(8)
    with pytest.raises(InterlinguaError, match=r"vectors of size 8, these have 32.*another encoder"):
        encoder.encode(["a"])


def test_fold_is_the_map_as_one_layer():
    found = maps(6)
    vectors = torch.randn(9, 6, generator=torch.Generator().manual_seed(2))
    for name in found.maps:
        weight, bias = found.of(name).fold()
        torch.testing.assert_close(vectors @ weight.T + bias, found.apply(vectors, name), atol=1e-5, rtol=0)
    with pytest.raises(InterlinguaError, match=r"fitted for the language 'fi'\. Known: en, fr"):
        found.of("fi")


def labse_like(tiny_encoder):
    encoder = tiny_encoder(normalize=True)
    encoder.dense.append(Dense(32, 16, activation=TANH))
    return encoder


@pytest.mark.parametrize("kind", ["plain", "normalised", "LaBSE", "static"])
def test_a_folded_model_is_the_same_in_sentence_transformers(kind, tiny_encoder, tiny_static, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    encoder = calibrated(
        {
            "plain": lambda: tiny_encoder(prompts={"query": "ask "}),
            "static": tiny_static,
            "normalised": lambda: tiny_encoder(normalize=True),
            "LaBSE": lambda: labse_like(tiny_encoder),
        }[kind]()
    )
    expected = encoder.encode(sentences, lang="fr")
    folded = encoder.folded("fr")
    assert encoder.language_maps is not None
    folded.save(tmp_path / "fr")
    assert not (tmp_path / "fr/calibration.safetensors").exists()
    theirs = SentenceTransformer(str(tmp_path / "fr"), device="cpu")
    again = Encoder.load(tmp_path / "fr", device="cpu")
    for vectors in (folded.encode(sentences), theirs.encode(sentences), again.encode(sentences, lang="de")):
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(theirs.encode_query(sentences), encoder.encode_query(sentences, lang="fr"), atol=1e-5)
    assert again.dim == encoder.dim
    again.save(tmp_path / "twice")
    np.testing.assert_allclose(Encoder.load(tmp_path / "twice", device="cpu").encode(sentences), expected, atol=1e-5)
    with pytest.raises(InterlinguaError, match="no calibration to fold in"):
        folded.folded("fr")
    with pytest.raises(InterlinguaError, match="'fi'"):
        encoder.folded("fi")


def test_saving_keeps_the_calibration_and_the_plain_model(tiny_encoder, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    plain = tiny_encoder(normalize=True)
    vectors = plain.encode(sentences)
    encoder = calibrated(plain)
    encoder.save(tmp_path / "model")
    again = Encoder.load(tmp_path / "model", device="cpu")
    assert again.language_maps.about == {"pivot": "en"}
    np.testing.assert_allclose(again.encode(sentences, lang="fr"), encoder.encode(sentences, lang="fr"), atol=1e-6)
    again.save(tmp_path / "again")
    assert {
        name: tensor.tolist() for name, tensor in load_file(tmp_path / "again/calibration.safetensors").items()
    } == {name: tensor.tolist() for name, tensor in load_file(tmp_path / "model/calibration.safetensors").items()}
    dual = DualEncoder.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(dual.encode_query(sentences, lang="fr"), encoder.encode(sentences, lang="fr"), atol=1e-6)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(theirs.encode(sentences), vectors, atol=1e-5)
    plain.language_maps = None
    plain.save(tmp_path / "model")
    assert Encoder.load(tmp_path / "model", device="cpu").language_maps is None


def test_two_encoders_keep_one_calibration_each(tiny_encoder, sentences, tmp_path):
    dual = DualEncoder.untied(tiny_encoder())
    dual.query.language_maps, dual.passage.language_maps = maps(32, 1), maps(32, 2)
    dual.save(tmp_path / "dual")
    again = DualEncoder.load(tmp_path / "dual", device="cpu")
    for method in ("encode_query", "encode_document"):
        np.testing.assert_allclose(
            getattr(again, method)(sentences, lang="fr"), getattr(dual, method)(sentences, lang="fr"), atol=1e-6
        )
    assert not torch.equal(again.query.language_maps.of("fr").shift, again.passage.language_maps.of("fr").shift)
    dual.query.language_maps = None
    dual.save(tmp_path / "dual")
    again = DualEncoder.load(tmp_path / "dual", device="cpu")
    assert again.query.language_maps is None
    assert again.passage.language_maps is not None


def test_a_calibration_of_other_vectors_is_left_out_and_said(tiny_encoder, tmp_path, capsys):
    encoder = calibrated(tiny_encoder(pooling="mean"))
    encoder.save(tmp_path / "model")
    for options in ({"pooling": "cls"}, {"layer": 1}, {"normalize": True}):
        capsys.readouterr()
        assert Encoder.load(tmp_path / "model", device="cpu", **options).language_maps is None
        assert "calibration is left out" in capsys.readouterr().err
    same = Encoder.load(tmp_path / "model", device="cpu", pooling="mean", normalize=False, max_length=9)
    assert same.language_maps is not None
    assert copy.deepcopy(same).language_maps.languages == ["en", "fr"]
    trained = DualEncoder.load(tmp_path / "model", device="cpu", for_training=True)
    assert trained.query.language_maps is None
    assert "training changes the vectors" in capsys.readouterr().err


def test_a_damaged_calibration_stops_the_model_from_loading(tiny_encoder, tmp_path):
    calibrated(tiny_encoder()).save(tmp_path / "model")
    path = tmp_path / "model/calibration.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InterlinguaError, match=r"calibration\.safetensors: cannot be read"):
        Encoder.load(tmp_path / "model", device="cpu")


def test_norwegian_has_one_map_whatever_it_is_called():
    maps = LanguageMaps({name: LanguageMap(torch.zeros(2), torch.ones(2)) for name in ("nb", "en", "*")})
    found = [maps.find(lang) for lang in ("no", "nor", "no-NO", "nb", "nn", "fi", None)]
    assert found == ["nb", "nb", "nb", "nb", None, None, "*"]
