"""The API's page, made of its OpenAPI description: plain HTML, no script, nothing from another host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-family: ui-monospace, monospace; font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { overflow-x: auto; padding: .75rem; background: #8881; }
"""


def docs_page(spec: Mapping[str, Any]) -> str:
    """The whole page."""
    schemas = spec["components"]["schemas"]
    parts = [_operation(path, method, operation, schemas)
             for path, methods in spec["paths"].items() for method, operation in methods.items()]
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f'<title>{escape(spec["info"]["title"])}</title><link rel="stylesheet" href="/docs.css">'
            f'<h1>{escape(spec["info"]["title"])}</h1><p>{escape(spec["info"]["description"])} '
            f'The description for programs is <a href="/openapi.json">openapi.json</a>.</p>{"".join(parts)}</html>')


def _operation(path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    asked = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    body = _fields(asked, schemas) if asked else ""
    answers = "".join(f"<tr><td><code>{code}</code></td><td>{escape(answer['description'])}</td></tr>"
                      for code, answer in operation["responses"].items())
    return (f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['summary'])}.</p>{body}"
            f"<table><tr><th>status</th><th></th></tr>{answers}</table>")


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    model = _resolved(schema, schemas)
    required = model.get("required", ())
    rows = [f"<tr><td><code>{escape(name)}</code></td><td><code>{escape(_type(field, schemas))}</code></td>"
            f"<td>{'' if name in required else '<code>' + escape(json.dumps(field.get('default'))) + '</code>'}</td>"
            f"<td>{escape(field.get('description', ''))}</td></tr>" for name, field in model["properties"].items()]
    return f"<table><tr><th>field</th><th>type</th><th>without it</th><th></th></tr>{''.join(rows)}</table>"


def _type(field: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """A short name of a type: `list of string`, `"float" | "base64"`, `integer 1–1000`."""
    if "$ref" in field:
        inner = _resolved(field, schemas)
        return "{" + ", ".join(f"{name}: {_type(one, schemas)}" for name, one in inner["properties"].items()) + "}"
    if "anyOf" in field:
        return " | ".join(_type(one, schemas) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return " | ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field['items'], schemas)}"
    if field.get("type") == "object":
        return f"{{string: {_type(field.get('additionalProperties', {}), schemas)}}}"
    least, most = field.get("minimum"), field.get("maximum")
    span = f" {least}–{most}" if most is not None else f" from {least}" if least is not None else ""
    return f"{field.get('type', 'anything')}{span}"


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found
