"""Two encoders in one sentence-transformers folder: its built-in Router with the routes query and document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.models.folder import ROUTER, ROUTES, TYPES, read_routes, read_settings
from interlingua.models.layout import Parts, read_parts, write_parts, write_root


def write(folder: Path, query: Parts, passage: Parts) -> None:
    """Write both encoders into `folder`. Prompts of a role are taken from that role's encoder.

    Raises InterlinguaError when the two join title and text differently: a folder has one template.
    """
    if query.settings.template != passage.settings.template:
        raise InterlinguaError("the two encoders join title and text by different templates; a saved model has one.")
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for route, parts in zip(ROUTES, (query, passage), strict=True):
        modules = write_parts(folder, parts, route)
        types |= {name: TYPES[kind] for kind, name in modules}
        structure[route] = [name for _, name in modules]
    config: dict[str, Any] = {"types": types, "structure": structure, "parameters": {
        "default_route": "document", "allow_empty_key": True, "route_mappings": {}}}
    (folder / ROUTER).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    prompts = {**passage.settings.prompts, "query": query.settings.prompts.get("query", "")}
    write_root(folder, [("Router", "")], replace(passage.settings, prompts=prompts))


def read(folder: Path) -> tuple[Parts, Parts]:
    """The query and the passage encoder of a Router folder."""
    query, passage = (read_parts(where, modules, read_settings(folder)) for where, modules in read_routes(folder))
    return query, passage
