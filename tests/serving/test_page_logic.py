"""What the page computes, without a browser: its modules run in Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from interlingua import serving

NODE = shutil.which("node")


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="the page's modules run in Node: apt-get install nodejs")
def test_the_modules_of_the_page(tmp_path: Path) -> None:
    shutil.copytree(Path(serving.__file__).with_name("page"), tmp_path, dirs_exist_ok=True)
    shutil.copy(Path(__file__).with_name("page_logic.mjs"), tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')  # else Node reads .js files as scripts
    done = subprocess.run(
        [str(NODE), "--test", "--test-reporter=spec", "page_logic.mjs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail 0" in done.stdout
    assert "pass 16" in done.stdout, done.stdout  # all of them ran
