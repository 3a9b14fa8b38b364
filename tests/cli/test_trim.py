"""`interlingua trim` as a person types it."""

from __future__ import annotations

import numpy as np
import pytest

from interlingua import Encoder
from interlingua.cli import main


@pytest.fixture
def model(tiny_encoder, sentences, tmp_path):
    tiny_encoder(pooling="mean").save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(sentences[:3]), encoding="utf-8")
    return tmp_path / "model"


def test_a_trimmed_model_gives_the_same_vectors(model, sentences, tmp_path, capsys):
    out = tmp_path / "small"
    assert main(["trim", str(model), "--texts", str(tmp_path / "texts.txt"), "--langs", "ko", "--out", str(out)]) == 0
    assert f"{out}: " in capsys.readouterr().err
    texts = [*sentences[:3], sentences[8]]
    before, after = Encoder.load(model), Encoder.load(out)
    assert np.array_equal(before.encode_query(texts), after.encode_query(texts))
    size = [(folder / "model.safetensors").stat().st_size for folder in (model, out)]
    assert size[1] < size[0]


def test_a_trimmed_model_keeps_its_card(model, tmp_path, capsys):
    (model / "README.md").write_text("---\nlicense: mit\n---\nWeights: https://example.org\n", encoding="utf-8")
    assert main(["trim", str(model), "--texts", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "small")]) == 0
    card = (tmp_path / "small/README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: mit\n---\nWeights: https://example.org\n\nTrimmed by `interlingua trim` to ")
    capsys.readouterr()
    assert main(["info", str(tmp_path / "small")]) == 0
    assert "mit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "say what to keep"),
        (["--texts", "empty.txt"], "nothing would be left"),
        (["--langs", "xx-nowhere"], "is not a language code"),
    ],
)
def test_what_gives_nothing_to_keep_is_one_line(model, tmp_path, monkeypatch, capsys, options, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    assert main(["trim", str(model), *options, "--out", "small"]) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "small").exists()
