"""A recipe's `objectives:` entries → the summands of the loss, every option checked against the objective's class."""

from __future__ import annotations

import inspect
from typing import Any, cast

from pydantic import Field, ValidationError, create_model
from torch import Tensor

from interlingua.errors import InterlinguaError, suggestion
from interlingua.models.backbones import Backbone
from interlingua.models.dual import DualEncoder
from interlingua.objectives import (
    Language,
    MaskedLanguageModelling,
    Retrieval,
    Semantic,
    TranslationLanguageModelling,
)
from interlingua.objectives.objective import Objective, TokenObjective
from interlingua.progress import say
from interlingua.training.recipe import Recipe, Strict, explain
from interlingua.training.step import Term

OBJECTIVES: dict[str, type[Objective] | type[TokenObjective]] = {
    "retrieval": Retrieval,
    "semantic": Semantic,
    "language": Language,
    "masked_language_modelling": MaskedLanguageModelling,
    "translation_language_modelling": TranslationLanguageModelling,
}
FROM_MODEL = ("hidden", "vocabulary", "seed")
"""Options that a recipe does not give: the model and its seed say them."""


def check(recipe: Recipe) -> None:
    """Find what is wrong with a new backbone and the objectives before anything is read or written."""
    if not isinstance(recipe.model.backbone, str):
        try:
            Backbone.model_validate(recipe.model.backbone)
        except ValidationError as error:
            raise InterlinguaError(f"model.backbone: {explain(error, Backbone)}") from error
    if recipe.training.keep == "best" and recipe.validation is None:
        raise InterlinguaError("training.keep is 'best', but there is no validation to choose by. "
                               "Add validation.questions, or keep: last.")
    if not any(spec is not None for spec in recipe.objectives.values()):
        raise InterlinguaError("the recipe has no objectives.")
    for name, spec in recipe.objectives.items():
        if spec is None:
            continue
        options, kind = options_of(name, spec, recipe), OBJECTIVES[name]
        if issubclass(kind, Objective):
            try:
                kind(**{key: value for key, value in options.items() if key != "weight"})
            except InterlinguaError as error:
                raise InterlinguaError(f"objectives.{name}: {error}") from error


def options_of(name: str, spec: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The options (and `weight`) of one entry of `objectives:`, checked against the objective's class."""
    if name not in OBJECTIVES:
        raise InterlinguaError(f"objectives.{name} is not known.{suggestion(name, OBJECTIVES)}")
    parameters = inspect.signature(OBJECTIVES[name], eval_str=True).parameters
    fields = {key: (p.annotation, ... if p.default is p.empty else p.default) for key, p in parameters.items()
              if key not in FROM_MODEL}
    options = create_model(name, __base__=Strict, weight=(float, Field(1.0, allow_inf_nan=False)),
                           **fields)  # type: ignore[call-overload]
    given = {"similarity": recipe.model.similarity} if "similarity" in parameters else {}
    if spec.get("similarity", recipe.model.similarity) != recipe.model.similarity:
        raise InterlinguaError(f"objectives.{name}.similarity is '{spec['similarity']}' but model.similarity is "
                               f"'{recipe.model.similarity}': search would compare otherwise than training did. "
                               "Set model.similarity alone.")
    try:
        return dict(options.model_validate({**given, **spec}))
    except ValidationError as error:
        raise InterlinguaError(f"objectives.{name}: {explain(error, options)}") from error


def term_of(name: str, spec: dict[str, Any], model: DualEncoder, recipe: Recipe, *, first: bool = True) -> Term:
    """The summand of the loss that an entry of `objectives:` describes. `first`: this process is the one that says
    what is done."""
    options, kind = options_of(name, spec, recipe), OBJECTIVES[name]
    weight = options.pop("weight")
    if issubclass(kind, TokenObjective):
        rows = len(cast(Tensor, model.passage.input_embeddings.weight))
        options |= {"hidden": model.passage.hidden_size, "vocabulary": rows, "seed": recipe.seed}
    objective = kind(**options)
    if isinstance(objective, MaskedLanguageModelling):
        said = start_head(objective, recipe)
        if first:
            say(f"objectives.{name}: {said}")
    return Term(name, objective, weight)


def start_head(objective: MaskedLanguageModelling, recipe: Recipe) -> str:
    """Give the objective the head that the recipe's backbone was pretrained with, where there is one; what it has."""
    backbone = recipe.model.backbone
    if not isinstance(backbone, str):
        return "a new head, since the model is new"
    if recipe.model.layer is not None:
        return f"a new head, since the pretrained one is not for the states of layer {recipe.model.layer}"
    try:
        objective.head.load_from(backbone)
    except InterlinguaError as error:
        return f"a new head. {error}"
    return f"the pretrained head of {backbone}"


def advise(terms: list[Term], recipe: Recipe) -> None:
    """Say what the person should know about this combination before hours pass."""
    names = {term.name: term.objective for term in terms}
    retrieval = names.get("retrieval")
    if isinstance(retrieval, Retrieval) and retrieval.similarity == "cosine" and retrieval.temperature >= 0.5:
        say("note: cosine with temperature 1 (the paper's letter) cannot fall below about ln(candidates) − 1; flat is "
            "converged. objectives.retrieval.temperature=0.05 tells hard negatives from easy ones.")
    if "language" in names and not {"retrieval", "semantic"} & set(names):
        raise InterlinguaError("the language loss repels nothing and collapses alone. "
                               "Add objectives.semantic or retrieval.")
    for name in ("semantic", "language"):
        if name in names and recipe.model.encoders == "tied" and getattr(names[name], "on", "") != "both":
            say(f"note: the encoders are tied, so {name} acts on questions and passages alike whatever `on` says.")


