"""Trials whose faults are drawn: how many, from which seed, and the table of what was tried and what held.

`INTERLINGUA_TORTURE` is the number of trials of a kind, `INTERLINGUA_TORTURE_SEED` what they are drawn from; `make
torture TRIES=60 SEED=1` sets them.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

TRIES = int(os.environ.get("INTERLINGUA_TORTURE", "5"))
SEED = int(os.environ.get("INTERLINGUA_TORTURE_SEED", "0"))
PROPERTY = "torture"


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of a test, others for each seed."""
    return random.Random(f"{SEED} {zlib.crc32(request.node.name.encode())}")


@pytest.fixture
def trials(record_property: Callable[[str, Any], None]) -> Callable[..., range]:
    """`trials(what)` is the range of the trials of a kind, `times` as many as usual; both are noted."""

    def trials(what: str, times: int = 1) -> range:
        count = times * TRIES
        record_property(PROPERTY, (what, count))
        return range(count)

    return trials


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each kind of trial. A test ends at the first that does not hold, so that then none counts."""
    tried: dict[str, int] = {}
    held: dict[str, int] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", []):
                if name == PROPERTY and report.when == "call":
                    what, count = value
                    tried[what] = tried.get(what, 0) + count
                    held[what] = held.get(what, 0) + (count if outcome == "passed" else 0)
    if tried:
        terminalreporter.section(f"torture, seed {SEED}")
        width = max(map(len, tried))
        terminalreporter.line(f"| {'what':<{width}} |  tried |   held |")
        terminalreporter.line(f"|{'-' * (width + 2)}|-------:|-------:|")
        for what in sorted(tried):
            terminalreporter.line(f"| {what:<{width}} | {tried[what]:>6,} | {held[what]:>6,} |")
