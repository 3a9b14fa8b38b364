"""`interlingua info` of models and of the installation; that of an index is in test_index.py."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from interlingua.cli import main
from interlingua.files import cache_folder
from interlingua.models.dual import DualEncoder
from interlingua.models.language_maps import LanguageMap, LanguageMaps
from interlingua.models.late_interaction import LateInteractionEncoder


def told(capsys, *argv):
    """The lines and the JSON object of one command."""
    capsys.readouterr()
    assert main(["info", *map(str, argv)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["info", *map(str, argv), "--json"]) == 0
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines}, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_calibrated_transformer_with_a_licence(tiny_encoder, tmp_path, capsys):
    encoder = tiny_encoder(layers=3, max_length=48, prompts={"query": "query: ", "passage": "passage: "})
    encoder.settings.change(max_length={"query": 16, "passage": 48})
    maps = {lang: LanguageMap(torch.zeros(32), torch.ones(32)) for lang in ("fi", "ar", "*")}
    encoder.language_maps = LanguageMaps(maps)
    encoder.save(tmp_path / "model")
    DualEncoder(encoder, tiny_encoder(layers=3, max_length=48), similarity="dot").save(tmp_path / "two")
    (tmp_path / "model/README.md").write_text("---\ntags: [x]\nlicense: mit\n---\nlicense: gpl\n")
    lines, info = told(capsys, tmp_path / "model")
    assert info == {
        "folder": str(tmp_path / "model"),
        "kind": "transformer (xlm-roberta)",
        "encoders": 1,
        "dim": 32,
        "layers": 3,
        "similarity": "cosine",
        "max_length": {"query": 16, "passage": 48},
        "prompts": {"query": "query: ", "passage": "passage: "},
        "languages": ["ar", "fi"],
        "licence": "mit",
    }
    assert (lines["layers"], lines["calibrated"], lines["licence"]) == ("3", "ar fi", "mit")
    assert lines["prompts"] == "query: 'query: ', passage: 'passage: '"
    lines, info = told(capsys, tmp_path / "two")
    assert (info["encoders"], info["similarity"], info["licence"]) == (2, "dot", "")
    assert info["prompts"] == {"query": "query: "}
    assert info["max_length"] == {"query": 16, "passage": 48}
    assert lines["licence"] == "not named in the folder"


@pytest.mark.slow
def test_a_late_interaction_model_and_the_bundled_one(tiny_encoder, tmp_path, capsys):
    LateInteractionEncoder.start(tiny_encoder(), dim=8, query_length=12, document_length=24).save(tmp_path / "late")
    lines, info = told(capsys, tmp_path / "late")
    assert (info["kind"], info["dim"], info["layers"]) == ("late interaction, transformer (xlm-roberta)", 8, 2)
    assert lines["dimensions"] == "8 for each token, maxsim"
    lines, info = told(capsys, "default")
    assert (info["kind"], info["dim"], info["layers"], info["licence"]) == ("static", 320, 0, "cc-by-sa-4.0")
    assert lines["layers"] == "none"


def test_an_index_with_its_sources_and_metadata(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kb").mkdir()
    for number in range(7):
        Path(f"kb/{number}.txt").write_text(f"text number {number}\n", encoding="utf-8")
    assert main(["index", "kb", "--out", "idx"]) == 0
    lines, info = told(capsys, "idx")
    assert info["sources"] == {f"kb/{number}.txt": 1 for number in range(7)}
    assert info["metadata"] == ["chunk", "source"]
    shown = ", ".join(f"kb/{number}.txt 1" for number in range(5))
    assert (lines["sources"], lines["metadata"]) == (f"{shown}, … (7 in all, see --json)", "chunk, source")


def test_the_installation(capsys, monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name == "matplotlib":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    lines, info = told(capsys, "--system")
    assert (info["python"], info["torch"]) == (".".join(map(str, sys.version_info[:3])), torch.__version__)
    assert (info["threads"], info["caches"]) == (torch.get_num_threads(), str(cache_folder()))
    assert info["processor"][0] == torch.backends.cpu.get_cpu_capability()
    assert info["extras"]["plots"] == {"matplotlib": None}
    assert info["extras"]["index"]["lancedb"] == real("lancedb")
    assert not {"dev", "docs"} & info["extras"].keys()
    assert lines["[plots]"] == "matplotlib missing (pip install 'interlingua[plots]')"
    assert "pip" not in lines["[index]"]


@pytest.mark.parametrize(
    ("flags", "units", "precision"),
    [
        (
            {"avx2", "avx512f", "avx512_vnni", "amx_bf16"},
            ["AMX bfloat16", "AVX-512 VNNI", "AVX-512", "AVX2"],
            "bfloat16",
        ),
        ({"asimd", "sve"}, ["SVE", "NEON"], "float32"),
        (set(), [], "float32"),  # as on other systems than Linux
    ],
)
def test_the_units_of_the_processor(flags, units, precision, monkeypatch, capsys):
    for module in ("machine", "precision"):
        monkeypatch.setattr(f"interlingua.models.inference.{module}.processor", lambda: frozenset(flags))
    for module in ("int8", "precision"):  # without numba
        monkeypatch.setattr(f"interlingua.models.inference.{module}.kernel", lambda: None)
    lines, info = told(capsys, "--system")
    assert info["units"] == units
    assert lines["units"] == (", ".join(units) or "not known")
    assert info["chosen"]["precision auto"] == precision
    assert info["chosen"]["int8 encoding"] == "NumPy"


@pytest.mark.parametrize("bits", [8, 16])
def test_the_kernels_are_told(bits, monkeypatch, capsys):
    for home in ("models.inference.int8", "retrieval.dense.int8"):
        monkeypatch.setattr(f"interlingua.{home}.kernel", lambda: SimpleNamespace(BYTES=bits == 8))
    chosen = told(capsys, "--system")[1]["chosen"]
    assert chosen["int8 encoding"] == f"compiled, products of {bits} bits"
    assert chosen["exact search"] == f"compiled, products of {bits} bits, then float32"


@pytest.mark.parametrize("command", ["info", "info default --system", "info nowhere", "info ."])
def test_mistakes_are_one_line(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("interlingua: ")
