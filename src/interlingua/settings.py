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
    errors = [(_place(model, found["loc"])[0], found) for found in error.errors()]
    # of a field that takes a name or a mapping, what is wrong within the mapping says more than that it is no name, and
    # a key that is not known more than that another is missing
    here = [(place, found) for place, found in errors if place[:1] == errors[0][0][:1]]
    deepest = max(len(place) for place, _ in here)
    within = [(place, found) for place, found in here if len(place) == deepest]
    place, first = min(within, key=lambda one: one[1]["type"] == "missing") if deepest > 1 else errors[0]
    path = ".".join(str(part) for part in place)
    *parents, name = place or ("",)
    owner = _place(model, first["loc"])[1]
    if first["type"] == "extra_forbidden":
        if (now := getattr(owner, "former_names", {}).get(name)) is not None:
            return f"{path} is called {'.'.join([*map(str, parents), now])}."
        return f"unknown key '{path}'.{suggestion(str(name), owner.model_fields)}"
    if first["type"] == "missing":
        return f"'{path}' is missing."
    if first["type"] == "model_type":
        return f"'{path}': must be a mapping (got {first['input']!r})."
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return said if not path else f"'{path}': {said}"
    guess = ""
    if (field := owner.model_fields.get(str(name))) is not None and isinstance(first["input"], str):
        guess = suggestion(first["input"], map(str, _literals(field.annotation)))
    return f"'{path}': {said.lower()} (got {first['input']!r}).{guess if '?' in guess else ''}"


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _place(model: type[BaseModel], path: Sequence[int | str]) -> tuple[list[int | str], type[BaseModel]]:
    """The path of an error without the names that pydantic gives to the alternatives of a field, and the model whose
    field its last part names, walking down the models along the path."""
    place: list[int | str] = []
    owner, left = model, list(path)
    while left:
        place.append(part := left.pop(0))
        owner, field = model, model.model_fields.get(str(part))
        if field is None:
            continue
        if left and _union(field) and len(set(get_args(field.annotation)) - {NoneType}) > 1:
            del left[0]
        elif len(left) > 1 and get_origin(field.annotation) is dict:
            place.append(left.pop(0))  # a key, which may be called like a field
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
    named = [f"`{value}`" for kind in kinds for value in _literals(kind)]
    named += [_KINDS[kind] for kind in kinds if kind in _KINDS]
    named += ["mapping" for _ in _models(field.annotation)]
    bounds = [
        f"{sign} {bound:g}"
        for one in field.metadata
        for name, sign in _SIGNS.items()
        if (bound := getattr(one, name, None)) is not None
    ]
    return " ".join([", ".join(named), ", ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{value}`" if isinstance(value, str) else str(value).lower()
