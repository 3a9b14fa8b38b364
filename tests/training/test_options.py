"""The options of objectives and readers: the pages of the guide show the classes that check them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import interlingua
from interlingua.alignment.rotation import Adversarial
from interlingua.data.datasets import DataSpec
from interlingua.data.linked import LINKED
from interlingua.data.readers import DOCUMENTS, PARALLEL, QUESTIONS, SENTENCES
from interlingua.data.readers.triples import TRIPLES
from interlingua.errors import InterlinguaError
from interlingua.objectives import Retrieval, Semantic
from interlingua.serving.service import ServeSettings
from interlingua.settings import Settings, options_table
from interlingua.training.backbones import Backbone, Scratch, Static
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


def all_settings(kind=Settings):
    """Every class of settings, but those of the tables of papers."""
    for module in pkgutil.walk_packages(interlingua.__path__, "interlingua."):
        if not module.name.startswith(("interlingua.experiments", "interlingua.__main__")):
            importlib.import_module(module.name)
    found, left = set(), [kind]
    while left:
        found |= (new := set(left.pop().__subclasses__()) - found)
        left += new
    return sorted((one for one in found if "experiments" not in one.__module__), key=lambda one: one.__qualname__)


def test_every_option_says_what_it_is_for():
    kinds = {kind for kind in all_settings() if kind.__module__.startswith("interlingua.")}
    assert {Scratch, Static, Backbone, Adversarial, ServeSettings, *RECIPE, DataSpec} <= kinds
    silent = {f"{kind.__qualname__}.{n}" for kind in kinds for n, f in kind.model_fields.items() if not f.description}
    assert silent == set()


RECIPE = (Recipe, ModelSpec, TrainingSpec, OptimizerSpec, ValidationSpec, LateInteractionSpec, Entry)


@pytest.mark.parametrize(
    ("page", "settings"), [*(("train.md", one) for one in RECIPE), ("data.md", DataSpec)], ids=lambda one: str(one)
)
def test_the_guide_names_every_field_of_a_recipe(page, settings):
    text = (DOCS / page).read_text("utf-8")
    assert [name for name in settings.model_fields if not re.search(rf"\b{name}\b", text)] == []


SECTIONS = {
    "": Recipe,
    "model": ModelSpec,
    "optimizer": OptimizerSpec,
    "training": TrainingSpec,
    "validation": ValidationSpec,
}


def sections():
    """The rows of the table of recipes in the guide, by the part that a bold name begins."""
    found, part = {"": ""}, ""
    for row in re.findall(r"^\| .*", (DOCS / "train.md").read_text("utf-8").partition("## Backbones")[0], re.MULTILINE):
        if (begun := re.match(r"\| \*\*`(\w+)`\*\*", row)) is not None:
            part = begun[1]
            found[""] += f"{row}\n"
        found[part] = found.get(part, "") + f"{row}\n"
    return found


@pytest.mark.parametrize("part", SECTIONS)
def test_the_guide_has_every_field_of_a_recipe_and_its_default_in_its_part(part):
    rows = sections()[part]
    for name, field in SECTIONS[part].model_fields.items():
        own = [row for row in rows.splitlines() if re.search(rf"`(?:\w+: )?{name}\b", row)]
        assert own, f"no row for {name}"
        default = field.default
        if isinstance(default, bool):
            shown = [str(default).lower()]
        elif isinstance(default, int | float | str) and not field.is_required():
            shown = [f"{default}", f"{default:g}".replace("e-0", "e-")] if not isinstance(default, str) else [default]
        else:
            continue
        assert any(re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w.]\w)", row) for one in shown for row in own), (
            f"the default of {name}, {shown[0]}, is not in {own}"
        )


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
    _, _, taken = inspect.signature(one.read, eval_str=True).parameters.values()
    assert taken.annotation is one.options
