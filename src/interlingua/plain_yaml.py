"""YAML as people mean it: `on`, `off`, `yes` and `no` are words (a parameter, Norwegian), 1e-5 is a number."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """SafeLoader with the booleans, integers and floats of YAML 1.2, and `_` between digits."""


REPLACED = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
INT = re.compile(r"^(?:[-+]?[0-9](?:_?[0-9])*|0o[0-7]+|0x[0-9a-fA-F]+)$")
FLOAT = re.compile(r"^[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf|\.nan)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """010 is ten; 0o10 and 0x10 are eight and sixteen."""
    text = str(loader.construct_scalar(node))
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


_Loader.add_constructor("tag:yaml.org,2002:int", _int)


class _Strict(_Loader):
    """`_Loader` to which a key that is given twice is an error."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping as it is written, before aliases are filled in."""
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"'{key.value}' is given twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also puts texts in quotes which `_Loader` alone would read as numbers."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", INT, list("-+0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def yaml_text(tree: Any) -> str:
    """The YAML text of a tree of plain values, which `parse_yaml` reads back as it is."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


MOST_VALUES = 100_000
"""Values in a YAML text, those behind an alias counted each time: a few lines of aliases can stand for billions."""


def parse_yaml(text: str, *, unique: bool = True) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError, also for one that holds itself or more than `MOST_VALUES`, and
    for a key that a mapping has twice; not `unique`, the last one counts."""
    try:
        tree = yaml.load(text, Loader=_Strict if unique else _Loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    stack, count = [(tree, 0)], 0
    while stack:
        value, depth = stack.pop()
        count += 1
        if count > MOST_VALUES or depth > 100:
            raise yaml.YAMLError(f"it is nested too deeply, or holds more than {MOST_VALUES:,} values")
        children = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        stack += [(child, depth + 1) for child in children]
    return tree
