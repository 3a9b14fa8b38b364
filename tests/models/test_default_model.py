"""The encoder that comes with the package: small, offline, the same everywhere, and of use in many languages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interlingua import DualEncoder, Encoder
from interlingua.data.collections import cross, load_collection
from interlingua.errors import InterlinguaError
from interlingua.evaluation.protocol import evaluate_on
from interlingua.models.folder import canonical_model_name, model_folder

BOX = Path(model_folder("default"))
GREETINGS = [
    "The river flows into the sea.",
    "Der Fluss mündet ins Meer.",
    "El río desemboca en el mar.",
    "نظام المدارس جديد",
    "Stock prices fell again today.",
]


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load("default")


def test_it_is_small_and_in_a_known_layout():
    assert sum(file.stat().st_size for file in BOX.rglob("*") if file.is_file()) <= 25 * 1024 * 1024
    assert {entry["type"].rsplit(".", 1)[-1] for entry in json.loads((BOX / "modules.json").read_text())} == {
        "StaticEmbedding",
        "Normalize",
    }
    assert (BOX / "README.md").is_file()


@pytest.mark.slow
def test_sentence_transformers_reads_it_as_it_is(encoder):
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(BOX), device="cpu")
    np.testing.assert_allclose(theirs.encode(GREETINGS), encoder.encode(GREETINGS), atol=1e-6)


def test_translations_are_near(encoder):
    river, fluss, rio, _, stocks = encoder.encode(GREETINGS)
    assert min(river @ fluss, river @ rio) > max(river @ stocks, fluss @ stocks, rio @ stocks) + 0.1


@pytest.mark.slow
def test_a_changed_file_is_an_error(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(BOX, folder)
    Encoder.load(folder)
    file = folder / "tokenizer.json"
    text = json.loads(file.read_text(encoding="utf-8"))
    text["model"]["vocab"] = [
        [piece, score] if piece != "?" else ["¿?", score] for piece, score in text["model"]["vocab"]
    ]
    file.write_text(json.dumps(text, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(InterlinguaError, match="another model"):
        Encoder.load(folder)


@pytest.mark.slow
def test_it_finds_topics_it_never_saw_across_languages():
    model = DualEncoder.load("default")
    english = load_collection("encyclopedia:en")
    for lang in ("fi", "id", "ru"):
        own = load_collection(f"encyclopedia:{lang}")
        same, across = evaluate_on(model, [own, cross(own, english)], ["RR@100"])
        assert same.scores["RR@100"] > 0.6
        assert across.scores["RR@100"] > 0.2


def test_a_folder_called_default_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("default", "other"):
        (tmp_path / name).mkdir()
    assert [canonical_model_name(name) for name in ("default", "other", "gone", "")] == [
        "default",
        str(tmp_path / "other"),
        "gone",
        "",
    ]


@pytest.mark.parametrize("name", ["numpy//etc", "numpy/../..", "__main__/x", "no_such_package/x"])
def test_a_package_gives_its_own_folders_only(name):
    with pytest.raises(InterlinguaError, match="package"):
        model_folder(f"package:{name}")


@pytest.mark.slow
def test_the_default_model_is_loaded_without_the_models_of_transformers():
    code = (
        "import sys; from interlingua.models.late_interaction import load_any;"
        "load_any('default').encode_query('tea');"
        "assert 'transformers.modeling_utils' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
