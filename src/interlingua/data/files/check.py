"""Is a file text that can be read? Looked at before its first passage, so that no file is read by half."""

from __future__ import annotations

import codecs
from pathlib import Path

from interlingua.data.files.report import BadFile
from interlingua.files import UNREADABLE, open_input

CHUNK = 1 << 20
LONGEST_LINE = 1 << 26
"""Bytes of a line of a table: a longer one is no row, and would have to be held in memory."""


def check_text(path: Path, rows: bool = False) -> bool:
    """Whether the file, gzipped or not, holds anything but white space.

    Raises BadFile, with line and byte, for bytes that are not UTF-8 (a BOM is), NUL, a broken gzip file, and in a file
    of `rows` a line of more than 64 MiB.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    filled, place, line, width = False, 0, 1, 0
    try:
        with open_input(path) as stream:
            while True:
                raw = stream.read(CHUNK)
                if place == 0 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise BadFile("UTF-16, as its first two bytes say. Convert it with `iconv -f UTF-16 -t UTF-8`")
                zero = raw.find(b"\0")
                if zero >= 0:
                    at = line + raw.count(b"\n", 0, zero)
                    raise BadFile(f"a NUL at byte {place + zero:,} of the file, so this is no text", at)
                pending: bytes = decoder.getstate()[0]
                try:
                    filled = bool(decoder.decode(raw, final=not raw).lstrip("\ufeff").strip()) or filled
                except UnicodeDecodeError as error:
                    at = error.start - len(pending)
                    raise BadFile(f"not UTF-8 ({error.reason} at byte {place + at:,} of the file). Convert it with "
                                  "`iconv -t UTF-8`", line + raw.count(b"\n", 0, max(0, at))) from error
                if not raw:
                    return filled
                longest, width = _widest(raw, width)
                if rows and longest > LONGEST_LINE:
                    raise BadFile(f"a line of more than {LONGEST_LINE >> 20} MiB", line)
                place, line = place + len(raw), line + raw.count(b"\n")
    except UNREADABLE as error:
        raise BadFile(f"cannot be read ({error})") from error


def _widest(raw: bytes, before: int) -> tuple[int, int]:
    """(bytes of the longest line in `raw`, or of the one that `before` bytes precede; bytes of the line at its end)."""
    first, last = raw.find(b"\n"), raw.rfind(b"\n")
    if first < 0:
        return before + len(raw), before + len(raw)
    return before + first, len(raw) - last - 1  # what lies between is shorter than `raw`
