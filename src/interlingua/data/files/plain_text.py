"""Plain text: paragraphs end at blank lines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from interlingua.data.files.blocks import Block, Blocks
from interlingua.files import open_input

LINE = 1 << 16
"""Characters of a line that are read at once."""


def read_text(path: Path) -> Iterator[Block]:
    """The paragraphs of a file. Lines inside a paragraph stay as they are."""
    blocks = Blocks()
    for line, first in lines(path):
        if first and not line.strip():
            blocks.end()
        else:
            blocks.add(line)
        yield from blocks.take()
    blocks.finish()
    yield from blocks.take()


def lines(path: Path) -> Iterator[tuple[str, bool]]:
    """(line with its end, True) of a text file; of a very long line parts, of which only the first has True. Lines end
    at \\n, \\r\\n or \\r."""
    first = True
    with io.TextIOWrapper(open_input(path), encoding="utf-8-sig") as stream:
        while line := stream.readline(LINE):
            yield line, first
            first = line.endswith("\n")
