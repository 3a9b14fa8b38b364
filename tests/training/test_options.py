"""The options of objectives and readers: the pages of the guide show the classes that check them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from interlingua.data.datasets import DataSpec
from interlingua.data.linked import LINKED
from interlingua.data.readers import DOCUMENTS, PARALLEL, QUESTIONS, SENTENCES
from interlingua.data.readers.triples import TRIPLES
from interlingua.errors import InterlinguaError
from interlingua.objectives import Retrieval, Semantic
from interlingua.settings import options_table
from interlingua.training.optimizer import OptimizerSpec
from interlingua.training.recipe import LateInteractionSpec, ModelSpec, Recipe, TrainingSpec, ValidationSpec, resolve
from interlingua.training.weighted import OBJECTIVES, Entry, check, options_of

DOCS = Path(__file__).parents[2] / "docs"
TABLE = re.compile(r"<!-- options of ([\w, ]+) -->\n\n((?:\|.*\n)+)")
SHOWN = {
    name: table.rstrip()
    for page in sorted(DOCS.glob("*.md"))
    for names, table in TABLE.findall(page.read_text("utf-8"))
    for name in names.split(", ")
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_guide_shows_every_option_as_the_class_has_it(name):
    assert SHOWN.get(name) == options_table(OBJECTIVES[name].Settings), f"in docs: {name}"


def test_the_guide_shows_no_other_tables():
    assert sorted(SHOWN) == sorted(OBJECTIVES)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_option_says_what_it_is_for(name):
    assert all(field.description for field in OBJECTIVES[name].Settings.model_fields.values())


RECIPE = (Recipe, ModelSpec, TrainingSpec, OptimizerSpec, ValidationSpec, LateInteractionSpec, Entry)


@pytest.mark.parametrize(
    ("page", "settings"), [*(("train.md", one) for one in RECIPE), ("data.md", DataSpec)], ids=lambda one: str(one)
)
def test_the_guide_names_every_field_of_a_recipe(page, settings):
    text = (DOCS / page).read_text("utf-8")
    assert [name for name in settings.model_fields if not re.search(rf"\b{name}\b", text)] == []


def test_a_wrong_option_is_named_wherever_it_is_given():
    with pytest.raises(InterlinguaError, match="Semantic: unknown key 'tau'"):
        Semantic(tau=0.1)
    with pytest.raises(InterlinguaError, match=r"Retrieval: unknown key 'temprature'\. Did you mean 'temperature'"):
        Retrieval(temprature=0.1)
    with pytest.raises(InterlinguaError, match=r"Semantic: 'duplicates': .* Did you mean 'mask'"):
        Semantic(duplicates="masks")
    with pytest.raises(InterlinguaError, match=r"starts at 0\.01 or above"):
        Retrieval(learnable_temperature=True, temperature=0.001)
    recipe = {"model": {"backbone": {"static": {}}}, "data": {}, "training": {"steps": 1}}
    for options, says in (
        ({"hard_negatives": -1}, "objectives.retrieval: 'hard_negatives': input should be greater than or equal to 0"),
        ({"similarity": "dot"}, "Set model.similarity alone"),
        ({"wieght": 2}, "unknown key 'wieght'. Did you mean 'weight'"),
        ({"weight": float("inf")}, "objectives.retrieval: 'weight': input should be a finite number"),
        ({"reads": {"sentences": "x"}}, "'reads.sentences': it reads questions"),
    ):
        with pytest.raises(InterlinguaError, match=says):
            check(resolve({**recipe, "objectives": {"retrieval": options}}))


def test_a_loss_on_vectors_compares_them_as_search_does():
    recipe = resolve(
        {
            "model": {"backbone": "x", "similarity": "dot"},
            "data": {},
            "objectives": {"retrieval": {"weight": 0.5}, "late_interaction": {}},
            "training": {"steps": 1},
        }
    )
    entry, settings = options_of("retrieval", recipe.objectives["retrieval"], recipe)
    assert (entry.weight, settings.similarity) == (0.5, "dot")
    assert options_of("late_interaction", {}, recipe)[1].similarity == "cosine"  # of tokens: ranks alike with each


@pytest.mark.parametrize(
    "one", [*QUESTIONS, *PARALLEL, *DOCUMENTS, *SENTENCES, *TRIPLES, *LINKED], ids=lambda one: f"{one.name}-{one.what}"
)
def test_a_format_has_the_options_that_its_reader_takes(one):
    taken = {
        name: parameter.default
        for name, parameter in inspect.signature(one.read).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    fields = one.options.model_fields
    assert fields.keys() == taken.keys()
    stated = {name: default for name, default in taken.items() if default is not inspect.Parameter.empty}
    assert {name: fields[name].default for name in stated} == stated
