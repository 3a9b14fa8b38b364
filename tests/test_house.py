"""The house as CONTRIBUTING.md describes it: imports only go down, and the tour names what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import interlingua

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "interlingua"
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
FLOORS = re.findall(r"^ (\w+)/ ", PAGE, re.MULTILINE)[::-1]  # the lowest first
TOUR = re.findall(r"^\|.*\| `([\w/]+\.py)` \| (.*) \|$", PAGE, re.MULTILINE)


def imports(path: Path) -> set[str]:
    """The modules of the package that a file names, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    found = {node.module or "" for node in froms} | {f"{n.module}.{alias.name}" for n in froms for alias in n.names}
    found |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in found if name.startswith("interlingua.")}


def test_every_folder_is_a_floor():
    assert sorted(FLOORS) == sorted(path.name for path in PACKAGE.iterdir() if any(path.glob("**/*.py")))


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_only_go_down(floor):
    up = set(FLOORS[FLOORS.index(floor) + 1 :])
    assert not {
        (path.name, name)
        for path in (PACKAGE / floor).rglob("*.py")
        for name in imports(path)
        if name.split(".")[1] in up
    }


def test_no_imports_go_in_a_circle():
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    named = {name: path for name, path in files.items() if path.name != "__init__.py"}
    left = {name: imports(path) & named.keys() for name, path in named.items()}
    while last := [name for name, below in left.items() if not below & left.keys()]:
        for name in last:
            del left[name]
    assert left == {}


@pytest.mark.parametrize(("file", "what"), TOUR, ids=[file for file, _ in TOUR])
def test_the_tour_names_what_is_there(file, what):
    nodes = ast.walk(ast.parse((PACKAGE / file).read_text("utf-8")))
    there = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    named = {name for name in re.findall(r"`(\w+)`", what) if name != "__init__"}
    assert named
    assert named <= there


def test_every_file_that_is_named_is_there():
    examples = {"objectives/alignment_uniformity.py", "data/readers/fast_align.py"}
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|tsv|md|yaml))`", PAGE)) - examples
    assert len(named) > 20
    assert sorted(name for name in named if not ((PACKAGE / name).exists() or (ROOT / name).exists())) == []


def test_a_docstring_begins_with_what_the_thing_is_or_does():
    """A reader of a list of names has its first words alone: "What …" and "Where …" say them last."""
    begins = re.compile(r'^\s*"""(?:What|Which|Where)\b.*', re.MULTILINE)
    for path in sorted((ROOT / "src").rglob("*.py")):
        assert begins.findall(path.read_text(encoding="utf-8")) == [], path


def test_the_version_is_the_same_everywhere():
    version = interlingua.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
