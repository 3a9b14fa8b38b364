"""The error tree: what can go wrong in a way that a person can mend, by what is to be done about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InterlinguaError(ValueError):
    """The root of the tree; never raised itself. The message says what is wrong, where, and what to do.

    The command line prints the message as one line and exits with 2; `--debug` shows the traceback. Code that goes on
    after an error catches one of the classes below, so that a real fault is never taken for an expected one.
    """


class BadInput(InterlinguaError):
    """An argument, an option, a recipe or a record is not valid. To be mended where it was given."""


class NotFound(InterlinguaError):
    """A file, model, index, passage or optional package is not there. To be made, named rightly or installed."""


class Damaged(InterlinguaError):
    """Stored data fails its check, or is in a format that this version does not read. To be built again."""


class Stale(InterlinguaError):
    """Stored data was replaced while it was read. To be read again: this is a race and no fault."""


class Busy(InterlinguaError):
    """Another writer holds it. To be tried again later."""


def suggestion(word: str, known: Iterable[str], *, listing: bool = True) -> str:
    """`" Did you mean 'x'?"` when something close to `word` is known, else the known names, or nothing where these are
    too many for a `listing`."""
    names = sorted({*known} - {""})
    same = [name for name in names if name.casefold() == word.casefold()]
    matches = same or difflib.get_close_matches(word, names, n=1)
    if matches:
        return f" Did you mean '{matches[0]}'?"
    if not listing:
        return ""
    separator = "; " if any("," in name for name in names) else ", "
    return f" Known: {separator.join(names)}." if names else ""
