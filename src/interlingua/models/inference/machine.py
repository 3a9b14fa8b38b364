"""The machine that models compute on, as far as it is known without loading torch: processor, GPUs, threads."""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache
from pathlib import Path

from interlingua import subprocesses

GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvhost-gpu")
"""The device files that Linux has where torch may find a GPU."""


@lru_cache(maxsize=1)
def processor() -> frozenset[str]:
    """The features of the processor by Linux's names (`avx512_vnni`, `amx_bf16`); empty on other systems."""
    if platform.system() != "Linux":
        return frozenset()
    try:
        return frozenset(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return frozenset()


UNITS = {
    "amx_bf16": "AMX bfloat16",
    "amx_int8": "AMX int8",
    "avx512_bf16": "AVX-512 bfloat16",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX VNNI",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "bf16": "ARM bfloat16",
    "i8mm": "ARM int8 matrices",
    "asimddp": "NEON dot products",
    "sve": "SVE",
    "asimd": "NEON",
}
"""Units that a processor may have, by Linux's names of them; the strongest of each family first."""


def units() -> list[str]:
    """The units of `UNITS` that this processor has; empty where that is not known (elsewhere than on Linux)."""
    return [name for flag, name in UNITS.items() if flag in processor()]


def cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 in hardware. Unknown counts as no: emulation is five times slower."""
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & processor())


def has_no_gpu() -> bool:
    """Whether torch surely finds no GPU: on Linux, by its devices."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    return hidden or (platform.system() == "Linux" and not any(Path(device).exists() for device in GPUS))


def threads() -> int:
    """The number of threads that may compute: torch's where it is loaded, else `subprocesses.threads`."""
    return int(sys.modules["torch"].get_num_threads()) if "torch" in sys.modules else subprocesses.threads()
