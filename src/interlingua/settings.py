"""Settings: one pydantic class for each thing that has options. It checks them, explains mistakes and documents itself.

Recipes, objectives and readers are such classes. The tables of options in `docs/` are those of `options_table`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from interlingua.errors import BadInput, suggestion


class Settings(BaseModel):
    """Options, each a field with a type, a default, bounds and a description. No other key is taken."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    former_names: ClassVar[Mapping[str, str]] = {}
    """A field's former name → its name; an error tells it to a person who uses the former one."""

    @classmethod
    def checked(cls, options: Mapping[str, Any], where: str) -> Self:
        """`options` as settings. Raises BadInput, naming `where` and the option, for what cannot be."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise BadInput(f"{where}: {explain(error, cls)}") from error


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing wrong, as a person would say it."""
    errors = [(_place(model, details["loc"])[0], details) for details in error.errors()]
    # of a field that takes a name or a mapping, what is wrong within the mapping says more than that it is no name, and
    # a key that is not known more than that another is missing
    field_errors = [(place, details) for place, details in errors if place[:1] == errors[0][0][:1]]
    depth = max(len(place) for place, _ in field_errors)
    candidates = [(place, details) for place, details in field_errors if len(place) == depth]
    place, details = min(candidates, key=lambda entry: entry[1]["type"] == "missing") if depth > 1 else errors[0]
    path = ".".join(str(part) for part in place)
    *parents, name = place or ("",)
    owner = _place(model, details["loc"])[1]
    if details["type"] == "extra_forbidden":
        if (new_name := getattr(owner, "former_names", {}).get(name)) is not None:
            return f"{path} is called {'.'.join([*map(str, parents), new_name])}."
        return f"unknown key '{path}'.{suggestion(str(name), owner.model_fields)}"
    if details["type"] == "missing":
        return f"'{path}' is missing."
    if details["type"] == "model_type":
        return f"'{path}': must be a mapping (got {details['input']!r})."
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "value_error":
        return message if not path else f"'{path}': {message}"
    guess = ""
    if (field := owner.model_fields.get(str(name))) is not None and isinstance(details["input"], str):
        guess = suggestion(details["input"], map(str, _literals(field.annotation)))
    return f"'{path}': {message.lower()} (got {details['input']!r}).{guess if '?' in guess else ''}"


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _place(model: type[BaseModel], path: Sequence[int | str]) -> tuple[list[int | str], type[BaseModel]]:
    """The path of an error without the names that pydantic gives to the alternatives of a field, and the model whose
    field its last part names, walking down the models along the path."""
    place: list[int | str] = []
    owner, remaining = model, list(path)
    while remaining:
        place.append(part := remaining.pop(0))
        owner, field = model, model.model_fields.get(str(part))
        if field is None:
            continue
        if remaining and _union(field) and len(set(get_args(field.annotation)) - {NoneType}) > 1:
            del remaining[0]
        elif len(remaining) > 1 and get_origin(field.annotation) is dict:
            place.append(remaining.pop(0))  # a key, which may be called like a field
        model = next(iter(_models(field.annotation)), model)
    return place, owner


def _union(field: FieldInfo) -> bool:
    return get_origin(field.annotation) in (Union, UnionType)


def _literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _literals(part)]


def options_table(settings: type[BaseModel]) -> str:
    """The options as a Markdown table: name, values, default, meaning."""
    rows = [
        f"| `{name}` | {_values(field)} | {_default(field)} | {field.description or ''} |"
        for name, field in settings.model_fields.items()
    ]
    return "\n".join(["| option | values | default | meaning |", "|---|---|---|---|", *rows])


_KINDS = {int: "whole number", float: "number", bool: "true, false", str: "text"}
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def _values(field: FieldInfo) -> str:
    kinds = get_args(field.annotation) if _union(field) else [field.annotation]
    values = [f"`{value}`" for kind in kinds for value in _literals(kind)]
    values += [_KINDS[kind] for kind in kinds if kind in _KINDS]
    values += ["mapping" for _ in _models(field.annotation)]
    bounds = [
        f"{sign} {bound:g}"
        for constraint in field.metadata
        for name, sign in _SIGNS.items()
        if (bound := getattr(constraint, name, None)) is not None
    ]
    return " ".join([", ".join(values), ", ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{value}`" if isinstance(value, str) else str(value).lower()
