"""A late-interaction model in a sentence-transformers folder: Transformer → Dense → MultiVectorMask → Normalize on the
tokens, built-in types only, as its MultiVectorEncoder reads and writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interlingua.errors import InterlinguaError
from interlingua.models.folder import LATE_INTERACTION, Module, read_modules, read_settings, subfolder
from interlingua.models.hub import read_json
from interlingua.models.layout import (
    read_dense,
    read_transformer,
    write_dense,
    write_json,
    write_normalize,
    write_root,
    write_transformer,
)
from interlingua.models.pooling import Dense
from interlingua.models.settings import Settings

if TYPE_CHECKING:  # it imports transformers' models, which takes seconds
    from interlingua.models.transformer import Transformer

_TOKENS = "token_embeddings"
_MODULES: list[Module] = [("Transformer", ""), ("Dense", "1_Dense"), ("MultiVectorMask", "2_MultiVectorMask"),
                          ("Normalize", "3_Normalize")]


@dataclass
class LateParts:
    """What a late-interaction encoder is made of. `skipped` are vocabulary tokens that a document does not show."""

    backbone: Transformer
    projection: Dense
    settings: Settings
    query_expansion: bool = True
    skipped: tuple[str, ...] = ()


def is_late(folder: Path) -> bool:
    """Whether `folder` holds a model with several vectors a text."""
    return (folder / "modules.json").is_file() and any(kind == "MultiVectorMask" for kind, _ in read_modules(folder))


def read(folder: Path) -> LateParts:
    """Load the modules. Raises InterlinguaError for a folder of another shape, or options that would be lost."""
    modules = read_modules(folder)
    kinds = " ".join(kind for kind, _ in modules)
    if not re.fullmatch(r"Transformer Dense (MultiVectorMask Normalize|Normalize MultiVectorMask)", kinds):
        raise InterlinguaError(f"{folder}: modules {kinds.replace(' ', ' → ') or 'none'} are not supported for late "
                               f"interaction. Supported: {' → '.join(kind for kind, _ in _MODULES)}.")
    similarity = read_json(folder / "config_sentence_transformers.json", {}).get("similarity_fn_name")
    if similarity not in (None, "maxsim"):
        raise InterlinguaError(f"{folder}: similarity {similarity!r} is not supported for late interaction, only "
                               "'maxsim'.")
    paths = {kind: subfolder(folder, name) for kind, name in modules}
    settings = read_settings(folder)
    backbone = read_transformer(paths["Transformer"], settings)
    parts = LateParts(backbone, read_dense(paths["Dense"], _TOKENS), settings,
                      _query_expansion(paths["Transformer"], backbone, settings), _skipped(paths["MultiVectorMask"]))
    if read_json(paths["Normalize"] / "config.json", {}).get("module_input_name") != _TOKENS:
        raise InterlinguaError(f"{paths['Normalize']}: only a Normalize of {_TOKENS} is supported for late "
                               "interaction.")
    return parts


def _query_expansion(folder: Path, backbone: Transformer, settings: Settings) -> bool:
    """Whether queries are filled up with mask tokens; the length they are filled up to becomes the query length."""
    where = folder / "sentence_bert_config.json"
    expansion = read_json(where, {}).get("query_expansion")
    if expansion is None:
        return False
    plain = {"strategy": "fixed", "attend": False, "token": None}
    found = {key: expansion.get(key, default) for key, default in plain.items()}
    if found["token"] == backbone.tokenizer.mask_token:
        found["token"] = None
    if found != plain or not isinstance(expansion.get("length"), int):
        raise InterlinguaError(f"{where}: query_expansion {expansion} is not supported. Supported: strategy 'fixed' "
                               "with a length, filled up with the mask token, which other tokens do not attend to.")
    settings.role_lengths["query"] = expansion["length"]
    return True


def _skipped(folder: Path) -> tuple[str, ...]:
    where = folder / "config.json"
    config = read_json(where, {})
    if config.get("keep_only_token_ids") or config.get("skiplist_tasks", ["document"]) != ["document"]:
        raise InterlinguaError(f"{where}: only a skiplist of documents is supported, without keep_only_token_ids.")
    return tuple(config.get("skiplist_words") or ())


def write(folder: Path, parts: LateParts) -> None:
    """Write the modules into `folder`."""
    for _, name in _MODULES:
        (folder / name).mkdir(exist_ok=True)
    length = parts.settings.length("query")
    expansion = {"strategy": "fixed", "attend": False, "token": None, "length": length}
    write_transformer(folder, parts.backbone, parts.settings,
                      query_expansion=expansion if parts.query_expansion else None)
    write_dense(folder / _MODULES[1][1], parts.projection, _TOKENS)
    write_json(folder / _MODULES[2][1] / "config.json", {
        "skiplist_words": list(parts.skipped), "skiplist_tasks": ["document"], "keep_only_token_ids": None})
    write_normalize(folder / _MODULES[3][1], _TOKENS)
    write_root(folder, _MODULES, parts.settings, LATE_INTERACTION, "maxsim")
