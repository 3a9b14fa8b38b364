"""What pytest says at its end about tests that were skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_a_browser(number):
    pytest.skip("the page needs a browser: apt-get install one")

@pytest.mark.gpu
def test_a_device():
    pass

def test_a_package():
    pytest.importorskip("no_such.package")

def test_that_runs():
    pass
"""


@pytest.mark.slow
def test_every_reason_is_one_line_with_its_command(python: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs one\n")
    run = python("-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path, CUDA_VISIBLE_DEVICES="")
    said = run.communicate(120)[0].splitlines()
    assert run.returncode == 0
    start = next(place for place, line in enumerate(said) if line.strip("= ") == "not tested")
    assert said[start + 1 : start + 4] == [
        "3 tests: the page needs a browser: apt-get install one",
        "1 test: needs a CUDA device; on such a machine: make test TORCH=cuda",
        "1 test: needs a package: .venv/bin/pip install no-such",
    ]
    assert "1 passed, 5 skipped" in said[-1]
