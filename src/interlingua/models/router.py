"""Two encoders in one sentence-transformers folder: its built-in Router with the routes query and document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.models.hub import read_json
from interlingua.models.layout import (
    TYPES,
    Module,
    Parts,
    read_modules,
    read_parts,
    read_settings,
    short_type,
    subfolder,
    write_parts,
    write_root,
)

_CONFIG = "router_config.json"
_ROUTES = ("query", "document")


def write(folder: Path, query: Parts, passage: Parts) -> None:
    """Write both encoders into `folder`. Prompts of a role are taken from that role's encoder.

    Raises InterlinguaError when the two join title and text differently: a folder has one template.
    """
    if query.settings.template != passage.settings.template:
        raise InterlinguaError("the two encoders join title and text by different templates; a saved model has one.")
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for route, parts in zip(_ROUTES, (query, passage), strict=True):
        modules = write_parts(folder, parts, route)
        types |= {name: TYPES[kind] for kind, name in modules}
        structure[route] = [name for _, name in modules]
    config: dict[str, Any] = {"types": types, "structure": structure, "parameters": {
        "default_route": "document", "allow_empty_key": True, "route_mappings": {}}}
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    prompts = {**passage.settings.prompts, "query": query.settings.prompts.get("query", "")}
    write_root(folder, [("Router", "")], replace(passage.settings, prompts=prompts))


def read(folder: Path) -> tuple[Parts, Parts]:
    """The query and the passage encoder of a Router folder; modules after the Router belong to both."""
    modules = read_modules(folder)
    where = subfolder(folder, modules[0][1])
    config = read_json(where / _CONFIG) or read_json(where / "config.json")
    try:
        types, structure = config["types"], config["structure"]
        routes: list[list[Module]] = [
            [(short_type(types[name], str(where / _CONFIG)), name) for name in structure[route]] for route in _ROUTES]
    except (TypeError, KeyError) as error:
        raise InterlinguaError(f"{where / _CONFIG}: a Router with the routes query and document is needed.") from error
    if where != folder and modules[1:]:
        raise InterlinguaError(f"{folder}: a Router in a subfolder followed by more modules is not supported.")
    query, passage = (read_parts(where, route + modules[1:], read_settings(folder)) for route in routes)
    return query, passage
