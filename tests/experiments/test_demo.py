"""The demonstration from end to end, with few steps."""

import json
import shutil
from pathlib import Path

import pytest

from interlingua.cli import main
from interlingua.data import encyclopedia
from interlingua.errors import BadInput
from interlingua.experiments import demo
from interlingua.index.index import Index
from interlingua.models.dual import DualEncoder
from interlingua.training.recipe import raw_recipe


def short(path):
    """The demonstration's own recipe, with few steps."""
    tree = raw_recipe(path)
    tree["training"] |= {"steps": 4, "log_every": 2, "checkpoint_every": 4}
    return tree


@pytest.mark.slow
def test_the_demonstration_runs_and_runs_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "raw_recipe", short)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    headings = [line[:2] for line in out.splitlines() if line.startswith(("A. ", "B. "))]
    assert headings == ["A.", "B."]
    assert out.count("question and passages in one language, MRR@100") == 2
    assert out.count("questions in each language, English passages, MRR@100") == 2
    for system in ("bundled ", "+ retrieval ", "+ semantic "):
        assert sum(line.startswith(system) for line in out.splitlines()) == 4
    assert f"interlingua serve {tmp_path}/index" in out
    section = out.partition('README.md, "')[2].partition('"')[0]
    assert f"\n## {section}\n" in (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    header = next(line for line in out.splitlines() if line.startswith("RR@100"))
    assert set(encyclopedia.languages()) <= set(header.split())
    for chosen in demo.QUESTIONS:
        name, _, lang = chosen.partition(":")
        topic = next(topic for topic in encyclopedia.topics() if topic.id == name)
        assert f"[{lang}] {topic.question[lang]}" in out
    assert len(Index.open(tmp_path / "index")) == len(encyclopedia.topics()) * len(encyclopedia.languages())
    assert DualEncoder.load(tmp_path / "semantic/model").tied
    for run in ("retrieval", "semantic"):
        log = [json.loads(line) for line in (tmp_path / run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        assert log[-1]["step"] == 4
        assert ("semantic/loss" in log[-1]) == (run == "semantic")
    assert main(["demo", "--out", str(tmp_path)]) == 0
    again = capsys.readouterr()
    assert again.err.count("complete; the model is") == 2
    assert again.out == out

    shutil.rmtree(tmp_path / "semantic/start")  # as it is after the package has another model
    shutil.copytree(tmp_path / "semantic/model", tmp_path / "semantic/start")
    assert main(["demo", "--out", str(tmp_path)]) == 0
    anew = capsys.readouterr()
    assert anew.err.count("complete; the model is") == 1
    assert f"{tmp_path}/semantic: began from the bundled model of another version; it is trained anew." in anew.err
    assert anew.out == out


def test_what_is_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "semantic/start").mkdir(parents=True)
    (tmp_path / "semantic/recipe.yaml").write_text("model: {backbone: xlm-roberta-base}\n")
    with pytest.raises(BadInput, match="semantic: holds another run"):
        demo.demo(tmp_path)
    assert (tmp_path / "semantic/start").is_dir()
    (tmp_path / "other/index").mkdir(parents=True)
    with pytest.raises(BadInput, match="is there, and of no demonstration"):
        demo.demo(tmp_path / "other")


def test_the_questions_of_the_demonstration_are_in_the_encyclopedia():
    topics = {topic.id: topic for topic in encyclopedia.topics()}
    for chosen in demo.QUESTIONS:
        name, _, lang = chosen.partition(":")
        assert topics[name].question[lang]
        assert topics[name].split == "train"
