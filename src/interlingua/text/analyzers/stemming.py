"""Snowball's stemmers, by PyStemmer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from interlingua.errors import InterlinguaError


def snowball(algorithm: str) -> Callable[[str], str]:
    """The stemmer of that name ("porter", "german", …): one word, folded, to its stem.

    Raises InterlinguaError where PyStemmer is not installed or too old for it.
    """
    stemmer = _module()
    if algorithm not in stemmer.algorithms():
        raise InterlinguaError(f"the Snowball stemmer '{algorithm}' is not in PyStemmer {stemmer.version()}. "
                               "Get a newer one: pip install -U PyStemmer")
    return cast("Callable[[str], str]", stemmer.Stemmer(algorithm).stemWord)


def snowball_version() -> str:
    """PyStemmer's version, which stands for the rules of its stemmers."""
    return str(_module().version())


def _module() -> Any:
    try:
        import Stemmer
    except ImportError:
        raise InterlinguaError("stemming needs PyStemmer: pip install 'interlingua[index]'. Or take the analyzer "
                               "'char4'.") from None
    return Stemmer
