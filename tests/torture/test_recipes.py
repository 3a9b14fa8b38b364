"""Recipes that nobody meant: each trains, or is told in one line before or while it does."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interlingua.errors import InterlinguaError
from interlingua.training.build import train
from interlingua.training.recipe import resolve

pytestmark = pytest.mark.slow
DUAL = {
    "tokenizer_sentences": 200,
    "model": {"backbone": {"static": {"vocab_size": 2500, "dim": 8}}, "encoders": "tied"},
    "data": {
        "questions": {"path": "encyclopedia:train", "batch": 4},
        "parallel": {"path": "encyclopedia:train", "batch": 4},
    },
    "objectives": {"retrieval": {}, "semantic": {}, "language": {}},
    "training": {"steps": 1, "tensorboard": False},
}
CONTEXTS = {
    "tokenizer_sentences": 200,
    "model": {
        "backbone": {
            "scratch": {"vocab_size": 2500, "layers": 1, "hidden": 8, "heads": 2, "intermediate": 8, "max_length": 16}
        },
        "encoders": "tied",
    },
    "data": {
        "contexts": {"path": "encyclopedia:train", "batch": 3},
        "sentences": {"path": "encyclopedia:train", "batch": 3},
    },
    "objectives": {"context_prediction": {"bank": 8}, "masked_language_modelling": {}},
    "training": {"steps": 1, "tensorboard": False},
}
WITHOUT = {"steps"}
"""Options that may rightly ask for days."""
VALUES: tuple[Any, ...] = (
    -1,
    0,
    1,
    2,
    7,
    0.5,
    1.0,
    -0.5,
    1e-300,
    1e300,
    10**12,
    10**30,
    True,
    None,
    "",
    "x",
    "auto",
    "meta",
    "0",
    "../..",
    "\0",
    [],
    [2, 3],
    [[]],
    {},
    {"a": 1},
    {"path": "/dev/null"},
)


def keys(settings: Any, at: str = "") -> Iterator[str]:
    """The path of every option of a recipe, those with options of their own among them."""
    for name, value in settings.items() if isinstance(settings, dict) else ():
        if name not in WITHOUT:
            yield (path := f"{at}{name}")
            yield from keys(value, f"{path}.")


def told(call: Callable[[], object]) -> str:
    """What a person is told, "" where the call succeeds. Any error that nobody expected is raised."""
    try:
        call()
    except InterlinguaError as error:
        return str(error)
    except OSError as error:
        return error.strerror
    except MemoryError:
        return "there is not enough memory"
    return ""


@pytest.mark.parametrize("tree", [DUAL, CONTEXTS], ids=["both losses", "contexts"])
def test_a_recipe_that_nobody_meant_is_told_in_one_line(
    tree: dict[str, Any], tmp_path: Path, drawn: Random, trials: Callable[..., range]
) -> None:
    known = sorted(set(keys(resolve(tree).model_dump())) | set(keys(tree)))
    for number in trials("hostile recipes", 20):
        changed = [f"{drawn.choice(known)}={json.dumps(drawn.choice(VALUES))}" for _ in range(drawn.choice((1, 1, 2)))]
        print(changed)  # shown where one fails
        with warnings.catch_warnings(action="ignore"):
            said = told(lambda: train(resolve(tree, changed), tmp_path / f"{number}"))  # noqa: B023 (called at once)
        assert len(said.splitlines()) <= 1, changed
