"""Training that is killed at moments that are drawn ends with the weights and the log of one that never was."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from interlingua.training.build import train
from interlingua.training.recipe import resolve

sys.path.append(str(Path(__file__).parents[1]))
from small_recipes import CONTEXT, STATIC

pytestmark = pytest.mark.slow
TRAINING = {"steps": 40, "checkpoint_every": 3, "log_every": 1, "tensorboard": False}
DUAL = {**STATIC, "model": {**STATIC["model"], "encoders": "untied"}, "training": TRAINING}
CONTEXTS = {**CONTEXT, "training": {**TRAINING, "accumulate": 2}}


def files(run: Path) -> dict[str, bytes]:
    """The trained model, and what was logged of each step."""
    chosen = [run / "log.jsonl", *(path for path in sorted((run / "model").rglob("*")) if path.is_file())]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in chosen}


@pytest.mark.parametrize("tree", [DUAL, CONTEXTS], ids=["both losses", "contexts with a bank"])
def test_training_is_killed_as_often_as_it_is_tried(
    tree: dict[str, Any], tmp_path: Path, python: Callable[..., Any], drawn: Random, trials: Callable[..., range]
) -> None:
    """The same command goes on after each kill. Where it comes to its end, the next one begins anew."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    train(resolve(tree), tmp_path / "whole")
    expected = files(tmp_path / "whole")
    command = ["-m", "interlingua", "--quiet", "train", str(recipe), "--out"]

    def ended(place: Path) -> float:
        begun = time.perf_counter()
        process = python(*command, str(place))
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert files(place) == expected
        shutil.rmtree(place)
        return time.perf_counter() - begun

    python("-c", "pass").communicate()  # the first one loads the packages
    seconds = ended(tmp_path / "unbroken")
    place, kills = tmp_path / "broken", 0
    for _ in trials("kills of a training run"):
        process = python(*command, str(place))
        process.process.join(drawn.uniform(0, seconds))
        process.kill()
        _, said = process.communicate()
        if process.returncode == 0:
            assert files(place) == expected
            shutil.rmtree(place)
        else:
            assert process.returncode == -signal.SIGKILL, said
            kills += 1
    assert kills
    ended(place)
