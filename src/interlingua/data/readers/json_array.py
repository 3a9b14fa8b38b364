"""The objects of one huge JSON array, one at a time (DPR's training file is several GB in a single array)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.files import UNREADABLE, open_input

CHUNK = 1 << 20
LARGEST = 1 << 26


def json_array(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """`(line number, object)` for every element of the array that the file consists of.

    Holds one element and one chunk of 1 Mi characters. Raises InterlinguaError with the line for anything that is
    not an array of objects, a truncated file, or an element of more than 64 Mi characters.
    """
    try:
        with io.TextIOWrapper(open_input(path), encoding="utf-8-sig") as stream:
            yield from _Window(path, stream).elements()
    except UnicodeDecodeError as error:
        raise InterlinguaError(f"{path}: not UTF-8 ({error}). Convert the file with `iconv -t UTF-8`.") from error
    except UNREADABLE as error:
        raise InterlinguaError(f"{path}: cannot be read ({error}).") from error


class _Window:
    """The part of the file that is in memory, and the number of the line that it starts on."""

    def __init__(self, path: Path, stream: io.TextIOBase) -> None:
        self.path, self.stream = path, stream
        self.text, self.start, self.line = "", 0, 1

    def elements(self) -> Iterator[tuple[int, dict[str, Any]]]:
        decode = json.JSONDecoder().raw_decode
        self._expect("[", "a JSON array")
        if self._peek() == "]":
            self._advance(1)
        else:
            while True:
                yield self._element(decode)
                if self._peek() == "]":
                    self._advance(1)
                    break
                self._expect(",", "',' or ']' after an element")
        if self._peek():
            self._fail("text after the end of the array")

    def _element(self, decode: Any) -> tuple[int, dict[str, Any]]:
        if self._peek() != "{":
            self._fail("the array must consist of objects")
        while True:
            try:
                value, end = decode(self.text, self.start)
            except RecursionError as error:
                raise InterlinguaError(f"{self.path}, line {self.line}: nested too deeply.") from error
            except ValueError as error:
                # Either the element is cut off at the end of the window, or it is no JSON: only more text can tell.
                if len(self.text) - self.start > LARGEST or not self._more():
                    self._fail(f"an element that is not JSON or is cut off ({error})")
                continue
            line = self.line
            self._advance(end - self.start)
            return line, value

    def _more(self) -> bool:
        held = self.text[self.start:]
        # Reading as much as is held keeps the work linear when an element spans many chunks.
        chunk = self.stream.read(max(CHUNK, len(held)))
        self.text, self.start = held + chunk, 0
        return bool(chunk)

    def _peek(self) -> str:
        """The next character that is not white space; '' at the end of the file."""
        while True:
            while self.start < len(self.text):
                if self.text[self.start] not in " \t\r\n":
                    return self.text[self.start]
                self._advance(1)
            if not self._more():
                return ""

    def _advance(self, characters: int) -> None:
        self.line += self.text.count("\n", self.start, self.start + characters)
        self.start += characters

    def _expect(self, character: str, what: str) -> None:
        if self._peek() != character:
            self._fail(f"{what} is needed")
        self._advance(1)

    def _fail(self, reason: str) -> None:
        raise InterlinguaError(f"{self.path}, line {self.line}: {reason}. Fetch or write the file again.")
