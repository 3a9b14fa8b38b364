"""A recipe's `objectives:` entries → weighted objectives, the summands of the loss, with every option checked."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from pydantic import Field

from interlingua.data.datasets import check_kind
from interlingua.data.stream import Stream
from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.models.folder import DEFAULT, PACKAGE, model_folder, read_routes
from interlingua.models.late_interaction import Model
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.objectives import (
    Comparable,
    ContextPrediction,
    Distillation,
    Language,
    LateInteraction,
    MaskedLanguageModelling,
    Retrieval,
    Semantic,
    StateDistillation,
    TranslationLanguageModelling,
    TranslationRanking,
)
from interlingua.objectives.distillation import Teacher
from interlingua.objectives.masked_lm import MaskedLanguageModelHead
from interlingua.objectives.objective import AnyObjective, Batch, Objective, SpanObjective, TokenObjective
from interlingua.objectives.state_distillation import StateTeacher
from interlingua.settings import Settings
from interlingua.training.backbones import Backbone
from interlingua.training.recipe import Recipe, recipe_text, warm_up_of

logger = logging.getLogger(__name__)

OBJECTIVES: dict[str, type[AnyObjective]] = {
    "retrieval": Retrieval,
    "semantic": Semantic,
    "language": Language,
    "masked_language_modelling": MaskedLanguageModelling,
    "translation_language_modelling": TranslationLanguageModelling,
    "context_prediction": ContextPrediction,
    "late_interaction": LateInteraction,
    "comparable": Comparable,
    "distillation": Distillation,
    "state_distillation": StateDistillation,
    "translation_ranking": TranslationRanking,
}
REPELLING = {"retrieval", "semantic", "translation_ranking", "distillation", "state_distillation"}
"""Objectives that keep the vectors of different texts apart."""
WITHOUT_STATES = "compares and predicts token states, which a static backbone has not. Use a transformer."


@dataclass(frozen=True, slots=True)
class WeightedObjective:
    """One summand of the loss: w_o · loss_o. `reads`: which of the recipe's data stands for a stream of the objective,
    where it is not called so."""

    name: str
    objective: AnyObjective
    weight: float = 1.0
    reads: Mapping[str, str] = field(default_factory=dict)

    def streams(self, available: Iterable[str]) -> list[str]:
        """The data this objective reads, of those that the recipe has; a missing required one is an error."""
        return present(self.name, named(self.objective.streams, self.reads), set(available))

    def batch(self, drawn: Batch) -> Batch:
        """The rows drawn from the recipe's data, under the names of the objective's streams."""
        return {**drawn, **{stream: drawn[name] for stream, name in self.reads.items() if name in drawn}}


def check(recipe: Recipe) -> None:
    """Find what is wrong with a new backbone and the objectives before anything is read or written."""
    Backbone.of(recipe.model.backbone)
    if recipe.validation is not None:
        check_kind("validation.questions", "questions", recipe.validation.questions, "questions", "validation")
    if recipe.training.keep == "best" and recipe.validation is None:
        raise BadInput(
            "training.keep is 'best', but there is no validation to choose by. Add validation.questions, or keep: last."
        )
    for name in recipe.tokenizer_data or ():
        if name not in recipe.data:
            raise BadInput(f"tokenizer_data: '{name}' is no entry of data.{suggestion(name, recipe.data)}")
    specs = {name: spec for name, spec in recipe.objectives.items() if spec is not None}
    entries = {name: (kind_of(name, spec), *options_of(name, spec, recipe)) for name, spec in specs.items()}
    if not entries:
        raise BadInput("the recipe has no objectives.")
    counted = {kind for kind, entry, _ in entries.values() if entry.weight > 0}
    if not counted:
        raise BadInput("every objective has the weight 0, so nothing is trained. Give one a weight above 0.")
    predicting = sorted(kind for kind, _, options in entries.values() if _predicts(kind, options))
    if recipe.optimizer.sparse_embeddings and predicting:
        raise BadInput(
            f"optimizer.sparse_embeddings: {predicting[0]} predicts subwords, which changes all embeddings. "
            "Leave one of them out."
        )
    if any(kind == "language" for kind, _, _ in entries.values()) and not counted & REPELLING:
        raise BadInput(
            "the language loss repels nothing and collapses alone. Add objectives.semantic or retrieval, with a weight "
            "above 0."
        )
    _check_backbone(recipe)
    _check_sampling(recipe, list(entries))
    _check_late_interaction(recipe)
    untied = recipe.model.encoders == "untied"
    for name, (kind, entry, options) in entries.items():
        if isinstance(options, StateDistillation.Settings) and options.on == "both" and untied:
            raise BadInput(
                f"objectives.{name}: it teaches one of two encoders. Set objectives.{name}.on to query or passage, "
                "or model.encoders: tied."
            )
        _check_data(name, entry, _streams(kind, options), recipe)
        _check_vectors(name, OBJECTIVES[kind], recipe)
    if (warm_up := warm_up_of(recipe)) is not None:
        check(warm_up)


def _check_backbone(recipe: Recipe) -> None:
    """Whether a new backbone is told what another place says already."""
    backbone = Backbone.of(recipe.model.backbone)
    if backbone.name is None and recipe.model.dense is not None:
        raise BadInput("model.dense: a new model has no Dense layers. Leave it out.")
    if backbone.static is not None and backbone.static.token_dropout:
        raise BadInput("model.backbone.static.token_dropout: a recipe says it as model.token_dropout. Write it there.")
    scratch = backbone.scratch
    if scratch is not None and scratch.embeddings is not None:
        for option in ("vocab_size", "lowercase"):
            if option in scratch.model_fields_set:
                raise BadInput(
                    f"model.backbone.scratch.{option}: the vocabulary is that of {scratch.embeddings}. Leave it out."
                )


def named(streams: Iterable[str], reads: Mapping[str, str]) -> dict[str, bool]:
    """The recipe's data that stands for the streams of an objective, and whether it must be there."""
    plain = {stream.removesuffix("?"): not stream.endswith("?") for stream in streams}
    return {reads.get(stream, stream): is_needed for stream, is_needed in plain.items()}


def present(name: str, data: Mapping[str, bool], available: Collection[str]) -> list[str]:
    """The data that an objective reads and that is available. Raises BadInput where it lacks what it needs."""
    for entry, is_needed in data.items():
        if is_needed and entry not in available:
            raise BadInput(
                f"objective '{name}' needs data named '{entry}'; the recipe has "
                f"{', '.join(sorted(available)) or 'none'}."
            )
    return [entry for entry in data if entry in available]


def _streams(kind: str, options: Objective.Settings) -> tuple[str, ...]:
    """The streams of an objective with these options, with a "?" behind those that may be missing."""
    return (options.of,) if isinstance(options, Distillation.Settings) else OBJECTIVES[kind].streams


def _check_data(name: str, entry: Entry, streams: Iterable[str], recipe: Recipe) -> None:
    """Whether the data that an objective reads is there, and of the kinds that it reads."""
    present(name, named(streams, entry.reads), recipe.data)
    for stream in (stream.removesuffix("?") for stream in streams):
        if (data := entry.reads.get(stream, stream)) in recipe.data:
            check_kind(f"data.{data}", data, recipe.data[data], stream, f"objectives.{name}")


def data_trained_on(recipe: Recipe) -> set[str]:
    """The data that the recipe's objectives read. Raises BadInput where it lacks what one of them needs."""
    names: set[str] = set()
    for name, spec in recipe.objectives.items():
        if spec is not None:
            entry, options = options_of(name, spec, recipe)
            names.update(present(name, named(_streams(kind_of(name, spec), options), entry.reads), recipe.data))
    return names


def data_read(recipe: Recipe) -> set[str]:
    """`data_trained_on`, and what a vocabulary is learned from or frequencies are counted in: `tokenizer_data`, else
    all."""
    names = data_trained_on(recipe)
    if Backbone.of(recipe.model.backbone).name is None or recipe.model.sif_coefficient is not None:
        names.update(recipe.tokenizer_data or recipe.data)
    return names


def _predicts(kind: str, options: Objective.Settings) -> bool:
    """Whether an objective predicts masked subwords: of those that read tokens, C3's need not."""
    if isinstance(options, Comparable.Settings):
        return options.mlm > 0 or options.condenser > 0
    return issubclass(OBJECTIVES[kind], TokenObjective) and not isinstance(options, StateDistillation.Settings)


def _check_sampling(recipe: Recipe, names: list[str]) -> None:
    shares = recipe.training.objective_sampling
    if shares is None:
        return
    if recipe.training.step_mode == "alternate":
        raise BadInput(
            "training.objective_sampling draws one objective a step, training.step_mode: alternate takes a step "
            "for each. Leave one of them out."
        )
    if set(shares) != set(names):
        raise BadInput(
            f"training.objective_sampling has shares for {', '.join(sorted(shares))}; the recipe's objectives are "
            f"{', '.join(sorted(names))}. Give each one a share."
        )
    if not all(0 < share < float("inf") for share in shares.values()):
        raise BadInput("training.objective_sampling: every share must be a number above 0.")


def _check_late_interaction(recipe: Recipe) -> None:
    if recipe.model.late_interaction is None:
        return
    if recipe.model.encoders != "tied":
        raise BadInput(
            "model.late_interaction has one encoder for queries and passages. "
            "Set model.encoders: tied, or leave it out."
        )
    if is_static(recipe):
        raise BadInput("model.late_interaction needs a transformer; model.backbone is static.")
    names = ("pooling", "dense", "normalize", "max_length")
    options = [name for name in names if getattr(recipe.model, name) is not None]
    options += ["similarity"] * (recipe.model.similarity != "cosine")
    if options:
        raise BadInput(
            f"model.{options[0]} has no meaning beside model.late_interaction: every token has a "
            "vector of unit length, and query_length and document_length are the lengths. "
            "Leave it out."
        )


def _check_vectors(name: str, kind: type[AnyObjective], recipe: Recipe) -> None:
    """Whether the objective compares what the model gives: one vector a text, or one a token."""
    late = recipe.model.late_interaction is not None
    if issubclass(kind, TokenObjective) and is_static(recipe):
        raise BadInput(f"objectives.{name} {WITHOUT_STATES}")
    if late and (issubclass(kind, SpanObjective) or not (kind.multi_vector or issubclass(kind, TokenObjective))):
        raise BadInput(
            f"objectives.{name} is not for a model with model.late_interaction, which gives one "
            "vector a token. Use objectives.late_interaction, or leave model.late_interaction out."
        )
    if kind.multi_vector and not late:
        raise BadInput(
            f"objectives.{name} compares tokens, but the model gives one vector a text. Add model.late_interaction."
        )


def is_static(recipe: Recipe) -> bool:
    """Whether the backbone is known to be static: a new one, the bundled model, or all encoders in a folder. Of a model
    that may have to be fetched it is seen when it is loaded."""
    backbone = Backbone.of(recipe.model.backbone)
    if (name := backbone.name) is None:
        return backbone.static is not None
    if name != DEFAULT and not name.startswith(PACKAGE) and not os.path.isdir(os.path.expanduser(name)):
        return False
    folder = model_folder(name)
    return (folder / "modules.json").is_file() and all(
        [kind for kind, _ in modules[:1]] == ["StaticEmbedding"] for _, modules in read_routes(folder)
    )


def kind_of(name: str, spec: dict[str, Any]) -> str:
    """The name in `OBJECTIVES` of an entry: its `kind`, else its own name."""
    kind = spec.get("kind") or name
    if kind not in OBJECTIVES:
        where = f"objectives.{name}" if kind == name else f"objectives.{name}.kind: '{kind}'"
        raise BadInput(f"{where} is not known.{suggestion(str(kind), OBJECTIVES)}")
    return str(kind)


class Entry(Settings):
    """The options of every entry of `objectives:`, beside those of its objective."""

    weight: float = Field(1.0, ge=0, description="w_o, what its loss is multiplied by")
    kind: str | None = Field(None, description="which objective it is, where the entry has another name")
    reads: dict[str, str] = Field({}, description="which data it reads where that has another name: {questions: cloze}")


def options_of(name: str, spec: dict[str, Any], recipe: Recipe) -> tuple[Entry, Objective.Settings]:
    """One entry of `objectives:`, checked: what is said of it, and the options of its objective."""
    kind, where = OBJECTIVES[kind_of(name, spec)], f"objectives.{name}"
    keys = [*kind.Settings.model_fields, *Entry.model_fields]
    if unknown := sorted(spec.keys() - set(keys)):
        raise BadInput(f"{where}: unknown key '{unknown[0]}'.{suggestion(unknown[0], keys)}")
    entry = Entry.checked({key: value for key, value in spec.items() if key in Entry.model_fields}, where)
    streams = [stream.removesuffix("?") for stream in kind.streams]
    if strange := entry.reads.keys() - set(streams):
        raise BadInput(f"{where}: 'reads.{min(strange)}': it reads {', '.join(streams)}.")
    for stream, data in entry.reads.items():
        if data not in recipe.data:
            raise BadInput(f"{where}: 'reads.{stream}': '{data}' is no entry of data.{suggestion(data, recipe.data)}")
    options = {key: value for key, value in spec.items() if key not in Entry.model_fields}
    # the similarity of tokens is the objective's own matter: search ranks alike with each
    if "similarity" in keys and not (kind.multi_vector or issubclass(kind, TokenObjective)):
        options = {"similarity": recipe.model.similarity, **options}
        if options["similarity"] != recipe.model.similarity:
            raise BadInput(
                f"{where}.similarity is '{options['similarity']}' but model.similarity is "
                f"'{recipe.model.similarity}': search would compare otherwise than training did. "
                "Set model.similarity alone."
            )
    return entry, kind.Settings.checked(options, where)


def training_digest(recipe: Recipe) -> str:
    """Equal for recipes that train the same model: 32 hex digits over everything but the description, objectives that
    are switched off, and data that nothing reads (`data_read`)."""
    objectives = {name: spec for name, spec in recipe.objectives.items() if spec is not None}
    names = data_read(recipe)
    data = {name: spec for name, spec in recipe.data.items() if name in names}
    canonical = recipe.model_copy(update={"description": "", "objectives": objectives, "data": data})
    return blake2b(recipe_text(canonical).encode(), digest_size=16).hexdigest()


def weighted_objective(
    name: str,
    spec: dict[str, Any],
    model: Model,
    recipe: Recipe,
    *,
    first: bool = True,
    teachers: Mapping[str, Teacher | StateTeacher] | None = None,
) -> WeightedObjective:
    """The summand of the loss that an entry of `objectives:` describes. `first`: this process is the one that says
    what is done. `teachers`: those of the entries that learn from one."""
    (entry, settings), kind = options_of(name, spec, recipe), OBJECTIVES[kind_of(name, spec)]
    options = dict(settings)
    if issubclass(kind, TokenObjective) and isinstance(model.passage.backbone, StaticEmbedding):
        raise BadInput(f"objectives.{name} {WITHOUT_STATES}")
    if kind in (Distillation, StateDistillation):
        options["teacher"] = (teachers or {})[name]
    objective = kind.for_model(model, recipe.seed, options)
    head = objective.head if isinstance(objective, MaskedLanguageModelling | Comparable) else None
    if head is not None:
        description = start_head(head, recipe)
        if first:
            logger.info(f"objectives.{name}: {description}")
    return WeightedObjective(name, objective, entry.weight, entry.reads)


def start_head(head: MaskedLanguageModelHead, recipe: Recipe) -> str:
    """Give a head the weights that the recipe's backbone was pretrained with, where there are any; what it has."""
    backbone = Backbone.of(recipe.model.backbone)
    if backbone.name is None:
        return "a new head, since the model is new"
    if (layer := backbone.layers if recipe.model.layer is None else recipe.model.layer) is not None:
        return f"a new head, since the pretrained one is not for the states of layer {layer}"
    try:
        head.load_from(backbone.name)
    except NotFound as error:
        return f"a new head. {error}"
    return f"the pretrained head of {backbone.name}"


def advise(objectives: list[WeightedObjective], recipe: Recipe, streams: Mapping[str, Stream[Any]]) -> None:
    """Say what the person should know about this combination before hours pass."""
    for weighted in objectives:
        _advise_on(weighted, recipe, streams)
    for name, source in streams.items():
        if source.batch_size > (records := sum(source.sizes.values())):
            logger.warning(
                f"note: data.{name}.batch is {source.batch_size:,}, and there are {records:,} records: a batch holds "
                "some of them several times, and a contrastive loss compares them with one another."
            )
    if recipe.optimizer.warmup >= recipe.training.steps > 1:
        logger.warning(
            f"note: optimizer.warmup is {recipe.optimizer.warmup:,} of {recipe.training.steps:,} steps, so the "
            "learning rate only rises. Set it to a tenth of the steps, for example."
        )


def _advise_on(weighted: WeightedObjective, recipe: Recipe, streams: Mapping[str, Stream[Any]]) -> None:
    objective, name = weighted.objective, weighted.name
    if isinstance(objective, ContextPrediction) and not ((bank := objective.bank).shared or bank.total):
        (stream,) = weighted.streams(streams)
        for lang, documents in streams[stream].sizes.items():
            if bank.size > documents:
                logger.warning(
                    f"note: the memory bank holds {bank.size:,} vectors, more than the {documents:,} documents in "
                    f"'{lang}': it will hold sentences of one document, and of earlier weights, many times. "
                    f"Consider a smaller objectives.{name}.bank."
                )
    in_batch = isinstance(objective, (Semantic, TranslationRanking)) or (
        isinstance(objective, Retrieval) and not objective.settings.hard_negatives
    )
    for entry in weighted.streams(streams) if in_batch else ():
        if streams[entry].batch_size == 1:
            logger.warning(
                f"note: data.{entry}.batch is 1, so objectives.{name} compares a text with itself alone, and learns "
                "nothing. training.accumulate does not change that: take a greater batch."
            )
    if (
        isinstance(objective, Retrieval)
        and objective.settings.similarity == "cosine"
        and objective.settings.temperature >= 0.5
    ):
        logger.warning(
            "note: cosine with temperature 1 (the paper's letter) cannot fall below about ln(candidates) − 1; flat is "
            f"converged. objectives.{name}.temperature=0.05 tells hard negatives from easy ones."
        )
    if isinstance(objective, Comparable) and objective.condenser is not None and not recipe.optimizer.warmup:
        logger.warning(
            "note: the Condenser head starts at random, and what it first asks of a pretrained model may harm it. "
            "Set optimizer.warmup, to a tenth of the steps for example."
        )
    if recipe.model.encoders == "tied" and (recipe.objectives[name] or {}).get("on", "both") != "both":
        logger.warning(
            f"note: the encoders are tied, so {name} acts on questions and passages alike whatever `on` says."
        )
