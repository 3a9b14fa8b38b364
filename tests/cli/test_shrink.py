"""`interlingua shrink` and `interlingua trim` as a person types them."""

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
        (["--langs", "fi", "--most", "300"], "most frequent subwords of no text"),
        (["--texts", "texts.txt", "--most", "3"], "a vocabulary of 3: special tokens and single characters alone are"),
    ],
)
def test_what_gives_nothing_to_keep_is_one_line(model, tmp_path, monkeypatch, capsys, options, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    assert main(["trim", str(model), *options, "--out", "small"]) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "small").exists()


def test_the_most_frequent_subwords_are_kept(model, sentences, tmp_path, capsys):
    texts = ["--texts", str(tmp_path / "texts.txt")]
    assert main(["trim", str(model), *texts, "--out", str(tmp_path / "all")]) == 0
    size = Encoder.load(tmp_path / "all").backbone.input_embeddings.num_embeddings
    assert main(["trim", str(model), *texts, "--most", str(size - 5), "--out", str(tmp_path / "most")]) == 0
    small = Encoder.load(tmp_path / "most")
    assert small.backbone.input_embeddings.num_embeddings == size - 5
    assert small.encode_query(sentences[:3]).shape == (3, small.dim)


@pytest.mark.slow
def test_a_smaller_model_is_compared_with_the_whole_one(tiny_encoder, tmp_path, capsys):
    tiny_encoder(layers=3, pooling="mean").save(tmp_path / "whole")
    command = f"shrink {tmp_path}/whole --texts encyclopedia:train --layers 0,2 --steps 2 --batch 8 --limit 20"
    assert main([*command.split(), "--on", "encyclopedia:fi", "--out", str(tmp_path / "run")]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0][1:-1]][::2] == ["model, RR@100", "mean", "passages/s"]
    assert [row[1].strip() for row in rows[2:]] == [f"{tmp_path}/whole", f"{tmp_path}/run/model"]
    assert all(0 <= float(row[3]) <= 1 for row in rows[2:])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--layers", "six"], "write a number, such as 6"),
        (["--vocabulary", "few"], "write a number of subwords"),
        (["--layers", "0"], "cannot be kept. Give a number from 1 to 2"),
        (["--layers", "3"], "3 of the model's 2"),
        (["--layers", "0,7"], "this model has the layers 0 to 1"),
        (["--layers", "2", "--vocabulary", "all"], "are all that the model has"),
        (["--layers", "1", "--vocabulary", "7"], "a vocabulary of 7"),
        (["--layers", "1", "--on", "nowhere"], "nowhere"),
        (["--layers", "1", "--steps", "0"], "steps"),
        (["--layers", "1", "--on", "encyclopedia:fi", "--measure", "nonsense"], "nonsense"),
        (["--layers", "1", "--on", "encyclopedia:fi", "--measure", "R@200"], "R@200"),
        (["--layers", "1", "--measure", "R@5"], "--measure is for the comparison of both models"),
        (["--layers", "1", "--precision", "int8"], "--precision is for the comparison of both models"),
        (["--layers", "1", "--on", "encyclopedia:fi", "--precision", "bfloat16"], "no bfloat16 units"),
    ],
)
def test_what_cannot_be_smaller_is_one_line(model, tmp_path, monkeypatch, capsys, options, reason):
    monkeypatch.setattr("interlingua.models.inference.precision.cpu_has_bfloat16", lambda: False)
    texts = str((tmp_path / "texts.txt").rename(tmp_path / "fi.txt"))
    try:
        code = main(["shrink", str(model), "--texts", texts, *options, "--out", str(tmp_path / "run")])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run/model").exists()
