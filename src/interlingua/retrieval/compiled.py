"""Kernels that numba compiles, where it is installed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from interlingua.progress import say


def compiled_module(name: str, otherwise: str) -> ModuleType | None:
    """The module `name` of `interlingua.retrieval`, which needs numba; None without numba, and where numba cannot be
    used, which is said with what is done `otherwise`."""
    try:
        return import_module(f"interlingua.retrieval.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        return None
    except ImportError as error:  # for one, a numba that does not know this numpy yet
        say(f"numba cannot be used ({error}), so {otherwise}, which is slower")
        return None
