"""A static model without torch: the vectors, the ids and the identity that the model has with it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from interlingua import DualEncoder, Encoder
from interlingua.data import encyclopedia
from interlingua.errors import InterlinguaError
from interlingua.index.metadata import load_to_encode
from interlingua.models.folder import fingerprint, model_folder
from interlingua.models.language_maps import ANY, LanguageMap, LanguageMaps
from interlingua.models.layout import Dense
from interlingua.models.static.encoder import StaticEncoder


def same(folder, texts, **options):
    """Assert that the model in `folder` gives the same vectors with torch and without, and is the same model."""
    ours, theirs = StaticEncoder.load(folder), DualEncoder.load(folder)
    assert (ours.dim, ours.similarity) == (theirs.dim, theirs.similarity)
    assert fingerprint(ours) == fingerprint(theirs)
    for role in ("query", "passage"):
        assert ours.encoder(role).tokenize(texts, role) == theirs.encoder(role).tokenize(texts, role)
    for verb in ("encode_query", "encode_document"):
        found, expected = getattr(ours, verb)(texts, **options), getattr(theirs, verb)(texts, **options)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)
    return ours


@pytest.mark.slow
def test_the_bundled_model_gives_the_same_vectors_in_every_language():
    texts = ["", " ", "\u200b", "x", "naïve café №5", ("Title", "text"), ("", "text"), "word " * 2_000]
    texts += [sentence.text for sentence in encyclopedia.sentences()][::9]
    assert len({sentence.lang for sentence in list(encyclopedia.sentences())[::9]}) == len(encyclopedia.languages())
    encoder = same("default", texts)
    assert not encoder.encode_query("").any()
    assert encoder.encode_query("tea").shape == (encoder.dim,)
    np.testing.assert_array_equal(encoder.encode_query(["a", "tea"])[1], encoder.encode_query("tea"))


@pytest.mark.parametrize(
    "model",
    [
        {"token_weights": True, "token_dropout": 0.4},
        {"normalize": False},
        {"max_length": 5},
        {"prompts": {"query": "where ", "document": "here "}, "template": "{text} {title}"},
    ],
    ids=lambda model: next(iter(model)),
)
def test_every_setting_of_a_static_model_counts(tmp_path, tiny_static, sentences, model):
    encoder = tiny_static(**model)
    if encoder.backbone.log_weights is not None:
        torch.nn.init.normal_(encoder.backbone.log_weights, generator=torch.Generator().manual_seed(1))
    encoder.save(tmp_path / "model")
    same(tmp_path / "model", [*sentences, "", ("two", "rivers"), sentences[0] * 20])


def test_options_of_encoding(tmp_path, tiny_static, sentences):
    tiny_static(normalize=False).save(tmp_path / "model")
    same(
        tmp_path / "model",
        sentences,
        normalize_embeddings=True,
        truncate_dim=7,
        lang="fi",
        batch_size=3,
        show_progress_bar=False,
    )
    same(tmp_path / "model", sentences, prompt="two ")


@pytest.mark.parametrize("kind", ["int8", "mapping", "float16", "bfloat16"])
def test_every_layout_of_the_rows_is_read(tmp_path, tiny_static, sentences, kind):
    encoder = tiny_static()
    rows = encoder.backbone.embedding.weight.detach()
    encoder.backbone.int8 = kind == "int8"
    encoder.save(tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    if kind == "mapping":
        turned = torch.arange(len(rows)).flip(0)
        save_file(
            {"embeddings": rows[turned].contiguous(), "mapping": turned, "weights": torch.linspace(0.5, 2, len(rows))},
            file,
        )
    elif kind != "int8":
        save_file({"embedding.weight": rows.to(getattr(torch, kind))}, file)
    same(tmp_path / "model", sentences)
    Encoder.load(tmp_path / "model").save(tmp_path / "again")
    stored = load_file(tmp_path / "again/model.safetensors").values()
    assert any(tensor.dtype == torch.int8 for tensor in stored) == (kind == "int8")  # no other becomes it unasked


def test_a_folder_of_model2vec(tmp_path, tiny_static, sentences):
    """Its own module stands in ".", and the folder of the second one is not there."""
    tiny_static().save(tmp_path / "model")
    place = tmp_path / "model"
    types = ("StaticEmbedding", ".", "Normalize", "1_Normalize")
    modules = [
        {"idx": n, "name": str(n), "path": types[2 * n + 1], "type": f"sentence_transformers.models.{types[2 * n]}"}
        for n in (0, 1)
    ]
    before = Encoder.load(place).encode(sentences)
    for file in (*(place / "0_StaticEmbedding").glob("*"), *(place / "1_Normalize").glob("*")):
        shutil.move(file, place / file.name) if file.parent.name[0] == "0" else file.unlink()
    for name in ("fingerprint.json", "config_sentence_transformers.json"):
        (place / name).unlink(missing_ok=True)
    (place / "modules.json").write_text(json.dumps(modules))
    np.testing.assert_allclose(Encoder.load(place).encode(sentences), before, atol=1e-6)
    np.testing.assert_allclose(StaticEncoder.load(place).encode_query(sentences), before, atol=1e-6)


def test_two_encoders_of_a_router(tmp_path, tiny_static, sentences):
    DualEncoder(tiny_static(seed=1), tiny_static(seed=2)).save(tmp_path / "model")
    encoder = same(tmp_path / "model", sentences)
    assert abs(encoder.encode_query(sentences) - encoder.encode_document(sentences)).max() > 0.1


def test_other_models_are_left_to_torch(tmp_path, tiny_static, tiny_encoder):
    dense, mapped = tiny_static(), tiny_static()
    dense.dense.append(Dense(24, 8))
    mapped.language_maps = LanguageMaps({ANY: LanguageMap(torch.zeros(24), torch.ones(24))})
    for name, encoder in {"dense": dense, "mapped": mapped, "transformer": tiny_encoder()}.items():
        encoder.save(tmp_path / name)
        assert StaticEncoder.load(tmp_path / name) is None
        np.testing.assert_allclose(
            load_to_encode(tmp_path / name).encode_query("two rivers"),
            Encoder.load(tmp_path / name).encode_query("two rivers"),
            rtol=0,
            atol=3e-6,
        )


def test_a_damaged_model_is_an_error(tmp_path, tiny_static):
    tiny_static().save(tmp_path / "whole")
    rows = tiny_static().backbone.embedding.weight.detach()

    def damaged(change):
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "model")
        change(tmp_path / "model")
        for load in (StaticEncoder.load, Encoder.load):
            with pytest.raises(InterlinguaError) as error:
                load(tmp_path / "model")
            yield str(error.value)

    weights = "model.safetensors"
    content = (tmp_path / "whole" / weights).read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for kept in (0, 5, header - 3, header, len(content) - 1):
        for said in damaged(lambda folder, kept=kept: (folder / weights).write_bytes(content[:kept])):
            assert "cannot be read as a static embedding" in said
    for tensors, message in (
        ({"rows": rows}, "holds rows"),
        ({"embeddings": rows, "weights": rows[:3, 0]}, "do not fit"),
        ({"embeddings": rows, "mapping": torch.arange(len(rows)) + 1}, "do not fit"),
        ({"embedding.weight": rows[:, 0]}, "do not fit"),
        ({"embedding.weight": rows[:9]}, "only 9 rows"),
    ):
        held = {name: tensor.contiguous() for name, tensor in tensors.items()}
        for said in damaged(lambda folder, held=held: save_file(held, folder / weights)):
            assert message in said
    for said in damaged(lambda folder: (folder / "tokenizer.json").write_text("{")):
        assert "cannot be read as a static embedding" in said
    for said in damaged(lambda folder: (folder / weights).unlink()):
        assert "no weights here" in said


def test_a_changed_model_and_a_poisoned_one_are_noticed(tmp_path, tiny_static):
    shutil.copytree(model_folder("default"), tmp_path / "model")
    kept = json.loads((tmp_path / "model/fingerprint.json").read_text())
    (tmp_path / "model/fingerprint.json").write_text(json.dumps({**kept, "weights": "0"}))
    with pytest.raises(InterlinguaError, match="another model"):
        StaticEncoder.load(tmp_path / "model")
    poisoned = tiny_static()
    with torch.no_grad():
        poisoned.backbone.embedding.weight.fill_(float("nan"))
    poisoned.save(tmp_path / "poisoned")
    with pytest.raises(InterlinguaError, match="text 1: its vector holds NaN"):
        StaticEncoder.load(tmp_path / "poisoned").encode_query(["", "two"])
