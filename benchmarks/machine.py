"""The machine that a benchmark runs on: processor, units, versions, and what it can do at most.

    OMP_NUM_THREADS=1 python benchmarks/machine.py

Measured on the threads that torch uses: bytes a second that are read from memory, and multiplications with additions a
second of a large float32 product; on one thread those of the kernel of int8 weights, where there is one.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "numba", "sentence-transformers", "faiss-cpu", "bm25s", "onnxruntime")
FLOATS = 1 << 27
"""Numbers that are read to measure memory: more than any cache holds."""
SIDE = 2_048


def fastest(work: Callable[[], Any], repeat: int = 5) -> float:
    """The least seconds that some work takes."""
    work()
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


@cache
def bandwidth() -> float:
    """Bytes a second that are read from memory."""
    import torch

    numbers = torch.ones(FLOATS)
    return 4 * FLOATS / fastest(lambda: torch.dot(numbers, numbers))


@cache
def float32_peak() -> float:
    """Multiplications with additions a second of a float32 product."""
    import torch

    one, other = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    return SIDE**3 / fastest(lambda: one @ other)


@cache
def int8_peak() -> float | None:
    """The same of a product of whole numbers, by the kernel of int8 weights on one thread; None without it."""
    import numpy as np

    from interlingua.models.inference.int8 import Int8Linear, Part, kernel

    compiled = kernel()
    if compiled is None:
        return None
    draw = np.random.default_rng(0)
    weight = draw.integers(-127, 128, (SIDE, SIDE)).astype(np.int8)
    layer = Int8Linear(Part(weight, np.ones(SIDE, np.float32), np.zeros(SIDE, np.float32)))
    states, out = draw.standard_normal((SIDE, SIDE)).astype(np.float32), np.empty((SIDE, SIDE), np.float32)
    return SIDE**3 / fastest(lambda: compiled.project(states, layer.packed, out, 0, SIDE))


def least(bytes_read: float, products: float, whole: bool = False) -> tuple[float, str]:
    """About the seconds that some work on one thread takes at least, and why: to read so many bytes, or so many
    products, of whole numbers where they are `whole` and this machine has a kernel for them."""
    peak = (int8_peak() if whole else None) or float32_peak()
    return max((bytes_read / bandwidth(), "memory"), (products / peak, "products"))


def say_least(seconds: float, bytes_read: float, products: float, whole: bool = False) -> None:
    """On one thread, print what `least` says beside the `seconds` that some work took at its fastest."""
    from interlingua.models.inference.machine import threads

    if threads() == 1:
        took, why = least(bytes_read, products, whole)
        print(f"      least by {why}, about {took * 1e3:.1f} ms; fastest {seconds * 1e3:.1f} ms ({took / seconds:.0%})")


def name() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    """Print."""
    from interlingua.models.inference.machine import threads, units

    print(f"{name()}: {', '.join(units()) or 'units not known'}")
    bandwidth()  # loads torch, whose threads count
    print(f"{threads()} thread{'s'[: threads() != 1]}, Python {platform.python_version()}", end="")
    for package in PACKAGES:
        try:
            print(f", {package} {version(package)}", end="")
        except PackageNotFoundError:
            continue
    print(f"\nmemory is read at {bandwidth() / 1e9:.1f} GB/s")
    print(f"float32: {float32_peak() / 1e9:.0f} · 10⁹ multiplications with additions a second")
    if (peak := int8_peak()) is not None:
        print(f"int8, one thread: {peak / 1e9:.0f} · 10⁹ a second")


if __name__ == "__main__":
    main()
