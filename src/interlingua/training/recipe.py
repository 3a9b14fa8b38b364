"""A recipe: one YAML file that says what is trained on what. Every field has a meaning in a paper; an unknown key is
an error with a suggestion; `key.path=value` on the command line overrides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from interlingua.data.datasets import DataSpec
from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.files import existing, read_lines
from interlingua.models.folder import stored_role
from interlingua.plain_yaml import parse_yaml, yaml_text
from interlingua.settings import Settings
from interlingua.training.optimizer import OptimizerSpec

Length = Annotated[int, Field(ge=1, le=1_000_000)]
"""Subwords of a text."""


class LateInteractionSpec(Settings):
    """One vector a token (ColBERT). Lengths count special tokens and the marker."""

    dim: int = Field(128, ge=1, le=65_536, description="size of a token's vector")
    query_length: int = Field(32, ge=4, description="tokens of a question")
    document_length: int = Field(180, ge=4, description="tokens of a passage")
    query_expansion: bool = Field(True, description="fill queries up with mask tokens")
    skip_punctuation: bool = Field(False, description="documents have no vectors of punctuation")


class GrownSettings(Settings):
    """Settings with fields that came `later`: they are written only where they have another value than the default, so
    the digests of recipes stay as they were."""

    later: ClassVar[frozenset[str]]

    @model_serializer(mode="wrap")
    def _written(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = fields(self)
        left_out = {name for name in self.later if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in values.items() if name not in left_out}


class ModelSpec(GrownSettings):
    """The `model:` part."""

    later = frozenset(["dense", "dropout", "sif_coefficient"])
    former_names: ClassVar = {"length_power": "norm_power"}

    backbone: str | dict[str, Any] = Field(
        description="a name, a folder, {name: …, layers: …}, {scratch: …} or {static: …}"
    )
    freeze: list[str] = Field([], description="what training leaves as it is: embeddings, layers.3, layers.0-3")
    pooling: Literal["cls", "mean"] | None = Field(
        None, description="how token states become one vector; none: as the folder says, else mean"
    )
    layer: int | None = Field(None, description="pool this hidden state (0 = embeddings)")
    dense: bool | None = Field(
        None,
        description="keep the Dense layers that a folder has after its pooling, such as LaBSE's; none: unless another "
        "last layer or pooling is taken",
    )
    normalize: bool | None = Field(None, description="bring vectors to unit length; none: as the folder says")
    encoders: Literal["untied", "tied"] = Field(
        "untied", description="one encoder for questions and one for passages, or one for both"
    )
    similarity: Literal["cosine", "dot"] = Field(
        "cosine", description="how vectors are compared, in training and in search"
    )
    max_length: Length | dict[str, Length] | None = Field(
        None, description="tokens of a text that are read, of all or by role: {query: 64, passage: 256}"
    )
    prompts: dict[str, str] | None = Field(None, description="text put before a `query` or a `document`")
    template: str | None = Field(None, description="how title and text are joined; 'pair' for a text pair")
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of a transformer while it is trained; none: as its folder says"
    )
    token_dropout: float = Field(0.0, ge=0, lt=1, description="static backbones: tokens dropped while training")
    norm_power: float = Field(
        1.0,
        gt=0,
        le=1,
        description="static backbones: the power to which the lengths of the "
        "trained subword vectors are raised in the saved model",
    )
    sif_coefficient: float | None = Field(
        None,
        gt=0,
        description="static backbones: the a of smooth inverse frequency, a / (a + p), by which subword vectors are "
        "multiplied in the saved model; none: they are not",
    )
    late_interaction: LateInteractionSpec | None = Field(None, description="one vector a token instead of one a text")

    @field_validator("prompts")
    @classmethod
    def _roles(cls, prompts: dict[str, str] | None) -> dict[str, str] | None:
        for role in prompts or ():
            try:
                stored_role(role)
            except BadInput as error:
                raise ValueError(str(error).rstrip(".")) from error
        return prompts

    @field_validator("freeze")
    @classmethod
    def _parts(cls, parts: list[str]) -> list[str]:
        for part in parts:
            match = re.fullmatch(r"embeddings|layers\.(\d+)(?:-(\d+))?", part)
            if match is None:
                raise ValueError(f"{part!r} is no part of a model; write embeddings, layers.3 or layers.0-3")
            if match[2] is not None and int(match[2]) < int(match[1]):
                raise ValueError(f"{part!r} ends before it begins")
        return parts

    @model_validator(mode="after")
    def _one_encoder(self) -> ModelSpec:
        """Late interaction has one encoder; markers tell the roles apart."""
        if self.late_interaction is not None and "encoders" not in self.model_fields_set:
            self.encoders = "tied"
        return self


class TrainingSpec(GrownSettings):
    """The `training:` part."""

    later = frozenset(["balance_gradients", "own_batches"])
    former_names: ClassVar = {"mix": "objective_sampling"}

    steps: int = Field(gt=0, description="steps of the optimizer")
    step_mode: Literal["accumulate", "alternate"] = Field(
        "accumulate", description="one optimizer step on the sum of the losses, or one for each in turn"
    )
    accumulate: int = Field(1, gt=0, le=1_000_000, description="batches a step; their gradients are averaged")
    own_batches: bool = Field(
        False,
        description="several processes: each reads whole batches of its own, `accumulate` of all together a step; else "
        "they share the texts of every batch",
    )
    objective_sampling: dict[str, float] | None = Field(
        None, description="one objective a step, drawn with these shares, instead of their sum"
    )
    share_forward: bool = Field(True, description="objectives on one stream share its encoding")
    balance_gradients: bool = Field(
        False, description="scale each contrastive objective's gradient on the vectors to the norm of its weight"
    )
    precision: Literal["auto", "float32", "bf16", "fp16"] = Field(
        "auto", description="of the encoder; auto: float32 on a CPU, bf16 on a GPU that has it, else fp16"
    )
    gradient_cache: int | None = Field(None, gt=0, description="texts per chunk; None: no cache")
    chunk_tokens: int = Field(16_384, gt=0, description="tokens in one forward pass, padding counted")
    log_every: int = Field(100, gt=0, description="steps between two lines of the log")
    checkpoint_every: int = Field(500, gt=0, description="steps between two checkpoints")
    keep_checkpoints: int = Field(2, gt=0, description="how many of the newest are kept")
    validate_every: int = Field(500, gt=0, description="steps between two validations")
    keep: Literal["last", "best"] = Field("last", description="which weights become the model (best: by validation)")
    tensorboard: bool = Field(True, description="write events too, where TensorBoard is installed")


class ValidationSpec(Settings):
    """The `validation:` part: held-out questions whose retrieval loss (NLL) is followed."""

    questions: DataSpec = Field(description="questions held out from training")
    limit: int = Field(2_000, gt=1, description="how many are used, at most")
    batch: int = Field(48, gt=1, le=1_000_000, description="questions compared with one another")

    @field_validator("questions")
    @classmethod
    def _read_in_order(cls, questions: DataSpec) -> DataSpec:
        for name in ("limit", "batch", "alpha", "one_language", "window"):
            if getattr(questions, name) != DataSpec.model_fields[name].default:
                instead = f"; validation.{name} counts" if name in ("limit", "batch") else ""
                raise ValueError(f"{name} is for the data of a training{instead}. Leave it out")
        return questions


class Recipe(Settings):
    """One run."""

    description: str = Field("", description="what the run is for")
    seed: int = Field(42, ge=0, lt=1 << 63, description="of everything random")
    model: ModelSpec = Field(description="what is trained")
    data: dict[str, DataSpec] = Field(description="what is read: streams of the objectives; none leaves one out")
    objectives: dict[str, dict[str, Any] | None] = Field(description="the summands of the loss; none switches one off")
    optimizer: OptimizerSpec = Field(OptimizerSpec(), description="AdamW and its schedule")  # type: ignore[call-arg]
    training: TrainingSpec = Field(description="how many steps, and how they are taken")
    validation: ValidationSpec | None = Field(None, description="held-out questions to follow the training by")
    tokenizer_sentences: int = Field(300_000, gt=0, description="texts that a new tokenizer is trained on")
    tokenizer_data: list[str] | None = Field(
        None,
        min_length=1,
        description="the entries of data it is trained on, each a like share, languages by its "
        "alpha; None: all, languages alike",
    )
    warm_up: dict[str, Any] | None = Field(None, description="a recipe (its model defaults to this one's) run first")

    @field_validator("data", mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        """Without the entries of a base recipe that are switched off."""
        return {name: spec for name, spec in data.items() if spec is not None} if isinstance(data, dict) else data


def recipe_text(recipe: Recipe) -> str:
    """A checked recipe as the YAML that is kept beside its run."""
    return yaml_text(recipe.model_dump(mode="json"))


def kept_recipe(text: str) -> Recipe | None:
    """The recipe of a text kept beside a run, or None where it is none. What it does not mention has its default: a
    field that did not exist yet when the run began, or had another name, changes nothing."""
    try:
        return Recipe.model_validate(_renamed(parse_yaml(text)))
    except (yaml.YAMLError, ValidationError):
        return None


def same_recipe(kept: str, recipe: Recipe) -> bool:
    """Whether the text kept beside a run says the same as `recipe`."""
    previous = kept_recipe(kept)
    return previous is not None and recipe_text(previous) == recipe_text(recipe)


def warm_up_of(recipe: Recipe) -> Recipe | None:
    """The checked recipe of the warm-up. It has one vector a text, and evens out no lengths and weighs no frequencies,
    which the run itself does, unless it says otherwise itself."""
    if recipe.warm_up is None:
        return None
    tree = {"seed": recipe.seed, "tokenizer_sentences": recipe.tokenizer_sentences, **recipe.warm_up}
    inherited = recipe.model.model_dump(mode="json")
    inherited |= {"encoders": "tied", "late_interaction": None, "norm_power": 1.0, "sif_coefficient": None}
    own = recipe.warm_up.get("model") or {}
    tree["model"] = inherited | own if isinstance(own, dict) else own
    return resolve(tree, data="{data}", where="warm_up")  # filled in already, or as it stands in a plan


def _renamed(tree: Any) -> Any:
    """A kept recipe with the names that its fields have now."""
    if not isinstance(tree, dict):
        return tree
    tree = tree | {"warm_up": _renamed(tree.get("warm_up"))}
    for part, names in (("model", ModelSpec.former_names), ("training", TrainingSpec.former_names)):
        if isinstance(tree.get(part), dict):
            tree[part] = {names.get(name, name): option for name, option in tree[part].items()}
    return tree


def recipe_folder() -> Path:
    """The folder of the papers' recipes."""
    return Path(__file__).parent.parent / "recipes"


def find_recipe(name: str | Path) -> Path:
    """A path to a YAML file, or the name of a bundled recipe (`hu2023/semantic`)."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.exists():
        return path
    bundled = recipe_folder() / str(name).removeprefix("recipes/")
    for candidate in (bundled, bundled.with_suffix(".yaml")) if bundled.name else ():
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise BadInput(f"{name}: no such recipe, it is a folder. Give a YAML file, or the name of a bundled recipe.")
    names = [str(p.relative_to(recipe_folder()).with_suffix("")) for p in recipe_folder().rglob("*.yaml")]
    if path.suffix in (".yaml", ".yml") and not str(name).startswith("recipes/"):
        existing(path, "recipe")
    raise NotFound(f"{name}: no such recipe.{suggestion(str(name), names)}")


def read_recipe(name: str | Path, overrides: Sequence[str] = (), data: str | None = None) -> Recipe:
    """The recipe of a file with `key.path=value` overrides; `{data}` in it stands for the folder `data`.

    A recipe may start from another: `base: other.yaml` (relative to it) is read first and then changed.
    """
    tree = raw_recipe(find_recipe(name))
    if "title" in tree:
        raise BadInput(f"{name}: is a table, not a recipe. Use `interlingua reproduce {name}`.")
    for override in overrides:
        change = _change(override)
        _check_left_out(tree, change, f"'{override}'")
        tree = merge(tree, change)
    return resolve(tree, data=data, where=str(name))


def read_yaml(path: Path) -> Any:
    """The value of a YAML file. Raises BadInput naming it when it is no YAML or not UTF-8."""
    try:
        return deepcopy(_parsed("".join(f"{line}\n" for _, line in read_lines(path))))
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error


@lru_cache(64)
def _parsed(text: str) -> Any:
    """The value of a YAML text, which is not to be changed: a plan reads one recipe for many rows."""
    return parse_yaml(text)


def raw_recipe(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The YAML of a recipe merged over its `base`. `above` are the recipes whose base it is."""
    if path.resolve() in above:
        raise BadInput(f"{path}: is, perhaps through others, its own base. Take one `base` out.")
    tree = read_yaml(path)
    if not isinstance(tree, dict):
        raise BadInput(f"{path}: a recipe is a mapping with model, data, objectives and training.")
    if (base := tree.pop("base", None)) is not None:
        if not isinstance(base, str):
            raise BadInput(f"{path}: base: {base!r} is not the name of a file.")
        under = raw_recipe(existing(path.parent / base, "base recipe"), (*above, path.resolve()))
        _check_left_out(under, tree, str(path))
        return merge(under, tree)
    return tree


def _check_left_out(under: dict[str, Any], over: dict[str, Any], where: str) -> None:
    """Raise BadInput where a null leaves out an entry that is not there: a misspelt one would stay."""
    for part in ("data", "objectives"):
        entries, changes = under.get(part) or {}, over.get(part)
        if isinstance(entries, dict) and isinstance(changes, dict):  # else an error, once the whole is checked
            for name in (name for name, value in changes.items() if value is None and name not in entries):
                known = suggestion(str(name), map(str, entries))
                raise BadInput(f"{where}: {part}.{name}: null leaves out what is not there.{known}")


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid upon `under`, mappings key by key."""
    merged = dict(under)
    for key, value in over.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if nested else value
    return merged


def resolve(
    tree: dict[str, Any], overrides: Sequence[str] = (), data: str | None = None, where: str = "recipe"
) -> Recipe:
    """Apply overrides and `{data}`, then check everything."""
    for override in overrides:
        tree = merge(tree, _change(override))
    _check_paths(tree.get("data"), where)
    return Recipe.checked(_fill(tree, data, where), where)


def _check_paths(data: Any, where: str) -> None:
    """Raise BadInput where an entry of `data` without a path is another's name misspelt."""
    entries = data if isinstance(data, dict) else {}
    pathless = [name for name, entry in entries.items() if isinstance(entry, dict) and "path" not in entry]
    for name in pathless:
        if near := suggestion(str(name), (str(other) for other in entries if other not in pathless), listing=False):
            raise BadInput(f"{where}: 'data.{name}.path' is missing.{near}")


def _change(override: str) -> dict[str, Any]:
    """The mapping that an override `key.path=value` stands for."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise BadInput(f"'{override}' is not an override. Write key.path=value, such as training.steps=100.")
    *parents, name = key.strip().split(".")
    try:
        parsed = parse_yaml(value)
        # a prompt such as `query: ` is no mapping
        change: dict[str, Any] = {name: value if value.rstrip()[-1:] == ":" and isinstance(parsed, dict) else parsed}
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        quoted = f" Put it in quotes: {key}='{value}'." if value.startswith("{data}") else ""
        raise BadInput(f"'{override}': the value is not valid YAML: {reason}.{quoted}") from error
    for parent in reversed(parents):
        change = {parent: change}
    return change


def _fill(tree: Any, data: str | None, where: str) -> Any:
    if isinstance(tree, dict):
        return {key: _fill(value, data, where) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_fill(value, data, where) for value in tree]
    if isinstance(tree, str) and "{data}" in tree:
        if data is None:
            raise BadInput(f"{where}: this recipe reads files under {{data}}. Say where they are with --data FOLDER.")
        return tree.replace("{data}", data)
    return tree
