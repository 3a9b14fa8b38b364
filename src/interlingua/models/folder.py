"""What a model folder says of itself: its modules and where they lie, prompts, similarity. No weights are read."""

from __future__ import annotations

import re
from pathlib import Path

from interlingua.errors import InterlinguaError
from interlingua.models.hub import read_json
from interlingua.models.settings import Settings, check_similarity
from interlingua.models.subwords import DEFAULT_TEMPLATE, check_template

TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "StaticEmbedding": "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding",
    "Router": "sentence_transformers.base.modules.router.Router",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
}
"""Module types by short name, as sentence-transformers 6 writes them. Older paths end in the same short names."""
OURS = "interlingua.json"
ROUTER = "router_config.json"
ROUTES = ("query", "document")
LATE_INTERACTION = "MultiVectorEncoder"
"""The model type that sentence-transformers writes for models with several vectors a text."""
Module = tuple[str, str]
"""Short type name and subfolder ("" for the folder itself)."""


def short_type(name: object, where: str) -> str:
    """The short name of a built-in module type. Raises InterlinguaError for any other: its code is never run."""
    short = str(name).rsplit(".", 1)[-1]
    if str(name).startswith("sentence_transformers.") and short in TYPES:
        return short
    raise InterlinguaError(f"{where}: module type {name} is not supported. Supported: {', '.join(TYPES)}.")


def subfolder(folder: Path, name: object) -> Path:
    """`folder / name` where `name` is one plain folder name or empty; a model file may not name other places."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w-]*|", name):
        raise InterlinguaError(f"{folder}: {name!r} is not a plain folder name.")
    return folder / name


def read_modules(folder: Path) -> list[Module]:
    """modules.json as (short type, subfolder) in order."""
    where = folder / "modules.json"
    try:
        return [(short_type(entry["type"], str(where)), entry["path"]) for entry in read_json(where)]
    except (TypeError, KeyError) as error:
        raise InterlinguaError(f"{where}: is not a list of modules with a type and a path.") from error


def read_settings(folder: Path) -> Settings:
    """Prompts and similarity (sentence-transformers' file) and the title template (ours)."""
    where = folder / "config_sentence_transformers.json"
    config = read_json(where, {})
    prompts = {name: text for name, text in (config.get("prompts") or {}).items() if text is not None}
    for older in ("passage", "corpus"):
        if older in prompts and "document" not in prompts:
            prompts["document"] = prompts[older]
    # that of a late-interaction model compares tokens, and is looked at where such models are read
    similarity = None if config.get("model_type") == LATE_INTERACTION else config.get("similarity_fn_name")
    settings = Settings(prompts=prompts, default_prompt_name=config.get("default_prompt_name"),
                        similarity=check_similarity(similarity, str(where)))
    settings.template = check_template(read_json(folder / OURS, {}).get("template", DEFAULT_TEMPLATE))
    return settings


def read_routes(folder: Path) -> list[tuple[Path, list[Module]]]:
    """Where the modules of each encoder lie, and which they are. A Router has two encoders, of queries and of passages;
    modules after it belong to both. Raises InterlinguaError for another Router."""
    modules = read_modules(folder)
    if not modules or modules[0][0] != "Router":
        return [(folder, modules)]
    where = subfolder(folder, modules[0][1])
    config = read_json(where / ROUTER) or read_json(where / "config.json")
    try:
        types, structure = config["types"], config["structure"]
        routes: list[list[Module]] = [
            [(short_type(types[name], str(where / ROUTER)), name) for name in structure[route]] for route in ROUTES]
    except (TypeError, KeyError) as error:
        raise InterlinguaError(f"{where / ROUTER}: a Router with the routes query and document is needed.") from error
    if where != folder and modules[1:]:
        raise InterlinguaError(f"{folder}: a Router in a subfolder followed by more modules is not supported.")
    return [(where, route + modules[1:]) for route in routes]
