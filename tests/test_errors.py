"""The error tree, and that code which goes on after an error names the class that it expects."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import interlingua
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Busy, Damaged, InterlinguaError, NotFound, Stale
from interlingua.index.local.rows import to_rows
from interlingua.index.local.table import PassageTable

SOURCE = Path(interlingua.__file__).parent
DOORS = {"cli/__init__.py"}
"""Where whatever went wrong is told to a person."""


def names(node: ast.expr | None) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} if node else set()


def let_go(handler: ast.ExceptHandler) -> bool:
    """Whether a handler only raises the error again, as it is."""
    return len(handler.body) == 1 and isinstance(handler.body[0], ast.Raise) and handler.body[0].exc is None


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
    }


def test_every_class_is_an_error_of_ours() -> None:
    for kind in (BadInput, Busy, Damaged, NotFound, Stale):
        assert issubclass(kind, InterlinguaError)
        assert kind.__bases__ == (InterlinguaError,)


@pytest.mark.slow
def test_the_root_is_raised_nowhere_and_caught_at_the_doors_only(trees: dict[str, ast.Module]) -> None:
    raised, caught = set(), set()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and "InterlinguaError" in names(node.func):
                raised.add(path)
            if isinstance(node, ast.ExceptHandler) and "InterlinguaError" in names(node.type) and not let_go(node):
                caught.add(path)
    assert raised == set()
    assert caught == DOORS


@pytest.fixture
def table(tmp_path: Path) -> PassageTable:
    table = PassageTable.create(tmp_path, dim=4)
    vectors = np.eye(3, 4, dtype=np.float32)
    rows = to_rows([Passage(f"p{number}", "a", lang="en") for number in range(3)])
    table.add(table.batch(table.next_number(), rows, vectors))
    return table


def test_a_version_that_a_writer_has_removed_is_stale(table: PassageTable) -> None:
    reader = PassageTable.open(table.folder)
    table.delete(table.numbers()[:1])
    table.compact()
    with pytest.raises(Stale, match=r"a writer has removed version 2 .* version [3-9] is newest"):
        list(reader.batches(("number", "text"), 10))
    reader.refresh()
    assert len(reader.numbers()) == 2


def test_a_file_that_is_missing_is_damage_and_no_race(table: PassageTable) -> None:
    for file in table.folder.glob("passages.lance/data/*"):
        file.unlink()
    with pytest.raises(Damaged, match="cannot be read"):
        list(PassageTable.open(table.folder).batches(("number", "text"), 10))
