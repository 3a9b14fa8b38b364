from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.folder import check, fingerprint
from interlingua.models.language_maps import LanguageMap, LanguageMaps


def test_a_saved_and_loaded_model_is_the_same(tiny_encoder, tiny_static, tmp_path):
    weighted = tiny_static(token_weights=True)
    with torch.no_grad():
        weighted.backbone.log_weights.add_(0.3)
    for name, dual in {
        "tied": DualEncoder.tied(tiny_encoder()),
        "untied": DualEncoder.untied(tiny_encoder()),
        "static": DualEncoder.tied(weighted),
    }.items():
        dual.save(tmp_path / name)
        recorded = json.loads(json.dumps(fingerprint(dual)))
        check(DualEncoder.load(tmp_path / name, device="cpu"), recorded, name)
    assert fingerprint(tiny_encoder()) == fingerprint(DualEncoder.tied(tiny_encoder()))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda m: m.passage.input_embeddings.weight.data.mul_(1.0001), "weights"),
        (lambda m: m.query.settings.prompts.update(query="query: "), "settings, tokens"),
        (lambda m: setattr(m.passage, "normalize", True), "settings"),
        (lambda m: setattr(m, "similarity", "dot"), "similarity"),
        (
            lambda m: setattr(
                m.passage, "language_maps", LanguageMaps({"*": LanguageMap(torch.zeros(m.dim), torch.ones(m.dim))})
            ),
            "calibration",
        ),
    ],
)
def test_every_change_is_noticed_and_named(change, named, tiny_encoder):
    dual = DualEncoder.untied(tiny_encoder())
    recorded = fingerprint(dual)
    change(dual)
    with pytest.raises(InterlinguaError, match=rf"idx: was made with another model \({named} differ\)"):
        check(dual, recorded, "idx")


def test_any_object_with_the_two_methods_has_one():
    class Lengths:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def encode_query(self, sentences):
            return np.array([[self.scale * len(text)] for text in sentences], dtype=np.float32)

        encode_document = encode_query

    assert fingerprint(Lengths(1)) == fingerprint(Lengths(1)) != fingerprint(Lengths(2))
