"""The scripts that people copy: each runs as it is, in a process of its own, and prints what its comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "examples"
PRINTED = {
    "train_on_your_data.py": (r"bundled model +MRR@100 of 56 questions: (\.|0\.)\d+", r"the model is .*/model\n$"),
    "new_loss.py": (r"translation, before: 0\.\d+\n", r"translation, after: 0\.\d+\n$"),
    "search.py": (r"\[fi\] ", r"in the notes: The reading room opens at nine\.\n\d+ passages\n$"),
    "own_encoder.py": (r"MRR@100 of \d+ Finnish questions: 0\.[5-9]\d+\nKuka keksi .*\n  0\.\d",),
    "own_retriever.py": (r"full text \+ dense +MRR@100 0\.9\d+\n", r"dense, reranked by full text +MRR@100 0\.9\d+\n$"),
    "own_store.py": (r"lexical +MRR@100 0\.9\d+\n", r"hybrid +MRR@100 0\.9\d+\n1 deleted, \d+ passages\n$"),
}


def test_every_example_is_listed():
    assert sorted(path.name for path in SCRIPTS.glob("*.py")) == sorted(PRINTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_the_example_runs(name, tmp_path):
    done = subprocess.run([sys.executable, SCRIPTS / name, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in PRINTED[name]:
        assert re.search(line, done.stdout), done.stdout
    if name in ("train_on_your_data.py", "new_loss.py"):
        before, after = map(float, re.findall(r"(?:questions|before|after): (\S+)", done.stdout))
        assert after > before + 0.05
