"""The one error a person is meant to read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InterlinguaError(ValueError):
    """Something the user can mend. The message says what is wrong, where, and what to do.

    The command line prints it as one line and exits with 2; `--debug` shows the traceback.
    """


def suggestion(word: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` when something close to `word` is known, else the known names."""
    names = sorted({*known} - {""})
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""
