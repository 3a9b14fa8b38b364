"""`interlingua train` and `interlingua plan`."""

from __future__ import annotations

import argparse
from typing import Any

NAMES = ("train", "plan")


def add(verbs: Any) -> None:
    """Declare the verbs."""
    for name, help_, run in (
        ("train", "train what a recipe says; the same command resumes", train),
        ("plan", "check a recipe and show what it would do", plan),
    ):
        parser = verbs.add_parser(name, help=help_)
        parser.add_argument("recipe", help="a YAML file, or a bundled recipe such as hu2023/semantic")
        parser.add_argument(
            "set", nargs="*", metavar="key.path=value", help="change the recipe, e.g. training.steps=100"
        )
        parser.add_argument("--data", metavar="DIR", help="what {data} in the recipe stands for")
        if name == "train":
            parser.add_argument("--out", required=True, metavar="DIR", help="the run folder; the model is DIR/model")
            parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: a GPU if there is one)")
        parser.set_defaults(run=run)


def train(arguments: argparse.Namespace) -> None:
    """Train."""
    import os
    from pathlib import Path

    from interlingua.errors import BadInput
    from interlingua.training.build import train as train_recipe
    from interlingua.training.recipe import read_recipe, same_recipe

    recipe, kept = read_recipe(arguments.recipe, arguments.set, arguments.data), Path(arguments.out, "recipe.yaml")
    is_given = os.path.exists(arguments.recipe) and kept.is_file() and kept.samefile(arguments.recipe)
    if is_given and not same_recipe(kept.read_text(encoding="utf-8"), recipe):
        raise BadInput(
            f"--out {arguments.out}: the run would write its own recipe.yaml over {arguments.recipe}. Give another "
            "folder."
        )
    train_recipe(recipe, arguments.out, arguments.device)


def plan(arguments: argparse.Namespace) -> None:
    """Print the resolved recipe and what a step is."""
    import math

    from interlingua.plain_yaml import yaml_text
    from interlingua.training.recipe import read_recipe
    from interlingua.training.weighted import check, data_trained_on

    recipe = read_recipe(arguments.recipe, arguments.set, arguments.data)
    check(recipe)
    print(yaml_text(recipe.model_dump(mode="json", exclude_none=True)))
    for name, spec in recipe.objectives.items():
        if spec is not None:
            print(f"# {name}: weight {spec.get('weight', 1.0)}")
    retrieval = recipe.objectives.get("retrieval")
    reads = (retrieval or {}).get("reads") or {}
    questions = recipe.data.get(reads.get("questions", "questions"))
    if questions is not None and retrieval is not None:
        candidates = questions.batch * (1 + int(retrieval.get("hard_negatives", 1)))
        print(
            f"# retrieval: {questions.batch} questions, up to {candidates} candidates, "
            f"chance loss {math.log(candidates):.3f}"
        )
    for name in sorted(recipe.data.keys() - data_trained_on(recipe)):
        print(f"# data.{name}: no objective reads it")
    print(f"# {recipe.training.steps:,} steps")
