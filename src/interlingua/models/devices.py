"""Where to compute and in which number format: what the processor has, never what it would emulate."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import torch

from interlingua.errors import InterlinguaError

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def default_device(device: str | torch.device | None) -> torch.device:
    """`device`, or the CUDA device if there is one, or the CPU."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise InterlinguaError(f"device {device!r} is not known. Use 'cpu', 'cuda' or 'cuda:1'.") from error


@lru_cache(maxsize=1)
def cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 in hardware. Unknown counts as no: emulation is five times slower."""
    if platform.system() != "Linux":
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags))


def compute_dtype(device: torch.device, asked: str | torch.dtype | None) -> torch.dtype:
    """The format `encode` computes in: float32 on a CPU, float16 on CUDA (as DPR encodes), or what was asked for.

    Raises InterlinguaError when the processor would only emulate what was asked for.
    """
    if asked is None:
        return torch.float16 if device.type == "cuda" else torch.float32
    dtype = _DTYPES.get(asked) if isinstance(asked, str) else asked
    if dtype is None or dtype not in _DTYPES.values():
        raise InterlinguaError(f"dtype {asked!r} is not supported. Use {', '.join(_DTYPES)}.")
    if device.type == "cpu" and (dtype == torch.float16 or (dtype == torch.bfloat16 and not cpu_has_bfloat16())):
        raise InterlinguaError(f"dtype {asked}: this CPU would emulate it, slower than float32. Leave dtype out.")
    return dtype


@contextmanager
def full_float32() -> Iterator[None]:
    """Within the block no TF32: a training run may have allowed it, and its 10-bit mantissa makes ties."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
