"""Make on first use: the public names of a package, kernels that numba compiles, and what threads share.

Elsewhere `functools` is enough: `cached_property` for an attribute, `cache` for the value of each argument. Two threads
may then make a value twice. `Once` is for what must not be made twice at a time: an open table, a loaded model.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class Once(Generic[Value]):
    """A value that `make` makes at the first call, in one thread while others wait. `value` is None until then. What
    `make` raises is raised by the call, and the next call tries again."""

    def __init__(self, make: Callable[[], Value], value: Value | None = None) -> None:
        self.value, self._make, self._making = value, make, Lock()

    def __call__(self) -> Value:
        if self.value is None:
            with self._making:
                if self.value is None:
                    self.value = self._make()
        return self.value


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose public names live in its `modules` (module → its names, with
    spaces between them)."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names


def by_numba(function: Callable[..., Any], **options: Any) -> Any:
    """`function`, compiled by numba with these options when it is first called, and kept on the disk where there is a
    folder that numba may write to. Raises ImportError without numba."""
    from numba import njit  # type: ignore[import-untyped]

    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # there is none
        return njit(**options)(function)


class LateKernel:
    """The module `name` of kernels, once it is worth loading: when the work that a process has done without it comes to
    `worth`. Till then it would save less than the seconds in which it is loaded, and the first time compiled.
    `otherwise` as in `compiled_module`."""

    early = False
    """Whether each is loaded at its first call: a server would otherwise do so while a client waits."""

    def __init__(self, name: str, otherwise: str, worth: float) -> None:
        self.worth, self.work, self._name, self._otherwise = worth, 0.0, name, otherwise

    def __call__(self, work: float) -> ModuleType | None:
        """The module, where it is to be used for so much more `work`; None where it is not, or cannot."""
        self.work += work
        return self._module if self.work >= self.worth or LateKernel.early else None

    @cached_property
    def _module(self) -> ModuleType | None:
        return compiled_module(self._name, self._otherwise)


def compiled_module(name: str, otherwise: str) -> ModuleType | None:
    """The module `name` of interlingua, which needs numba; None without numba, and where numba cannot be
    used, which is said with what is done `otherwise`."""
    try:
        from numba import config

        if config.DISABLE_JIT:
            raise ImportError("NUMBA_DISABLE_JIT is set")
        return import_module(f"interlingua.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        return None
    except ImportError as error:  # for one, a numba that does not know this numpy yet
        logger.warning(f"numba cannot be used ({error}), so {otherwise}, which is slower")
        return None
