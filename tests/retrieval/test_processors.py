"""What is found depends neither on what oneDNN may use of the processor nor on the kernels that are chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from interlingua.models.inference.machine import processor
from interlingua.retrieval.dense.int8 import kernel

SCRIPT = """
import hashlib, json, sys
import numpy as np
import torch
from interlingua.models.inference import machine
if sys.argv[1] == "no units":
    machine.processor = lambda: frozenset({"avx2"})
from interlingua.alignment.mining import mine_bitext
from interlingua.data.records import Passage
from interlingua.models.static.encoder import StaticEncoder
from interlingua.retrieval.dense.exact import search_exact
from interlingua.retrieval.dense.int8 import Int8Matrix, kernel
from interlingua.retrieval.late_interaction.static import KERNEL, StaticMaxSim
torch.set_num_threads(1)
draw = np.random.default_rng(0)
rows = draw.standard_normal((6_000, 96)).astype(np.float32)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
asked = rows[::60] + 0.1 * draw.standard_normal((100, 96)).astype(np.float32)
asked /= np.linalg.norm(asked, axis=1, keepdims=True)

def told(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

matrix = Int8Matrix.build(rows)
found = matrix.search(asked, rows, 10)
words = StaticMaxSim.of(StaticEncoder.load("default"))
subwords = words.subwords([Passage(str(i), "a lighthouse by the sea " * i + "Leuchtturm") for i in range(9)])
matched = []
for KERNEL.worth in (float("inf"), 0):
    question = words.question("who keeps the light burning at night beside the northern sea today")
    matched.append(words.scores(question, subwords))
mined = mine_bitext(asked, rows[:2_000], k=4)
print(json.dumps({
    "search": told(*found), "as float32": told(*search_exact(asked, rows, 10)), "pairs": told(mined.x, mined.y),
    "scores": told(mined.scores), "subwords": told(matched[1]), "subwords by NumPy": told(matched[0]),
    "units": bool(kernel().BYTES), "left": matrix.counts["float32"],
}))
"""


@pytest.mark.slow
def test_results_are_equal_whatever_onednn_may_use(tmp_path):
    if kernel() is None or "avx512_vnni" not in processor():
        pytest.skip("numba or vpdpbusd is not here: there is one kernel only")
    ways = {
        "as it is": {},
        "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
        "no units": {},
        "another target": {"NUMBA_CPU_NAME": "generic"},
    }
    found = {}
    for way, setting in ways.items():
        # numba keeps targets apart, and not what a process says of its units
        cache = tmp_path / ("no units" if way == "no units" else "numba")
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, way],
            env=os.environ | {"NUMBA_CACHE_DIR": str(cache)} | setting,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found[way] = json.loads(ran.stdout)
    assert [found[way].pop("units") for way in ways] == [True, True, True, False, False]
    assert [found[way].pop("left") for way in ways] == [0, 0, 0, 0, 0]  # no query was left to float32
    assert found["as it is"]["search"] == found["as it is"]["as float32"]
    assert found["as it is"]["subwords"] == found["as it is"]["subwords by NumPy"]
    for way in ways:
        assert found[way] == found["as it is"], way
