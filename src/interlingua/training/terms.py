"""A recipe's `objectives:` entries → the summands of the loss, every option checked against the objective's class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from pydantic import Field, ValidationError, create_model
from torch import Tensor

from interlingua.data.stream import Stream
from interlingua.errors import InterlinguaError, suggestion
from interlingua.models.backbones import Backbone
from interlingua.models.dual import DualEncoder
from interlingua.objectives import (
    ContextPrediction,
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
    "context_prediction": ContextPrediction,
}
FROM_MODEL = ("dim", "hidden", "vocabulary", "seed")
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
    named = [name for name, spec in recipe.objectives.items() if spec is not None]
    if not named:
        raise InterlinguaError("the recipe has no objectives.")
    if "language" in named and not {"retrieval", "semantic"} & set(named):
        raise InterlinguaError("the language loss repels nothing and collapses alone. "
                               "Add objectives.semantic or retrieval.")
    _check_mix(recipe, named)
    for name, spec in recipe.objectives.items():
        if spec is None:
            continue
        options, kind = options_of(name, spec, recipe), OBJECTIVES[name]
        if issubclass(kind, Objective):
            size = {"dim": 1} if "dim" in inspect.signature(kind).parameters else {}
            try:
                kind(**size, **{key: value for key, value in options.items() if key != "weight"})
            except InterlinguaError as error:
                raise InterlinguaError(f"objectives.{name}: {error}") from error


def _check_mix(recipe: Recipe, named: list[str]) -> None:
    mix = recipe.training.mix
    if mix is None:
        return
    if recipe.training.step_mode == "alternate":
        raise InterlinguaError("training.mix draws one objective a step, training.step_mode: alternate takes a step "
                               "for each. Leave one of them out.")
    if set(mix) != set(named):
        raise InterlinguaError(f"training.mix has shares for {', '.join(sorted(mix))}; the recipe's objectives are "
                               f"{', '.join(sorted(named))}. Give each one a share.")
    if not all(0 < share < float("inf") for share in mix.values()):
        raise InterlinguaError("training.mix: every share must be a number above 0.")


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
    elif "dim" in inspect.signature(kind).parameters:
        options["dim"] = model.dim
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


def advise(terms: list[Term], recipe: Recipe, streams: Mapping[str, Stream[Any]]) -> None:
    """Say what the person should know about this combination before hours pass."""
    names = {term.name: term.objective for term in terms}
    context = names.get("context_prediction")
    if isinstance(context, ContextPrediction):
        for lang, documents in streams["contexts"].sizes.items():
            if context.bank.size > documents and not context.bank.shared:
                say(f"note: the memory bank holds {context.bank.size:,} vectors, more than the {documents:,} documents "
                    f"in '{lang}': it will hold sentences of one document, and of earlier weights, many times. "
                    "Consider a smaller objectives.context_prediction.bank.")
    retrieval = names.get("retrieval")
    if isinstance(retrieval, Retrieval) and retrieval.similarity == "cosine" and retrieval.temperature >= 0.5:
        say("note: cosine with temperature 1 (the paper's letter) cannot fall below about ln(candidates) − 1; flat is "
            "converged. objectives.retrieval.temperature=0.05 tells hard negatives from easy ones.")
    for name in ("semantic", "language"):
        if name in names and recipe.model.encoders == "tied" and getattr(names[name], "on", "") != "both":
            say(f"note: the encoders are tied, so {name} acts on questions and passages alike whatever `on` says.")


