"""Passages that belong together: those of one document, and those that say the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import regex  # type: ignore[import-untyped]

from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.index.ranking import named
from interlingua.index.store import Row, View
from interlingua.text.languages import nfkc
from interlingua.text.sentences import PARAGRAPH, split_sentences

WINDOW = 64
"""Passages of a document that are looked for at once."""
GAP = 4
"""Windows without a passage, after which a document has ended."""
MOST = 10_000
"""Passages of a document that are read."""
SENTENCES = 20
"""Sentences that two passages may have in common where they meet; what `--overlap` shares beyond them stays twice."""
REACH = 1 << 14
"""Characters in which these are looked for."""
CONTEXT = 2_000
"""Characters before a sentence from which its beginning can be told."""
START = 8
SAID = regex.compile(
    r"[\p{L}\p{M}\p{N}]+"  # words and numbers
    r"|[\p{Sc}%‰°&@±×÷≤≥≠\u2600-\u26ff\U0001f000-\U0001faff]"  # 5 % and 5 €, emoji
    r"|(?<=[\p{L}\p{N}+])[#+]|\+(?=\p{N})"  # C# and C++, +20
    r"|(?<=[\p{L}\p{N}]\s*)(?:[!=<>]=|[*/=~^])(?=\s*[\p{L}\p{N}])"  # x != 1, 1/2
    r"|(?<=[\p{L}\p{N}]\s*)[<>](?=\s*[\p{L}\p{N}])"  # x < 5
    r"|(?<![\p{L}\p{N}])-(?=\p{N})"  # -20
    r"|(?<=\p{N})[.,:](?=\p{N})"  # 1.5
)
"""Words and signs that mean something: all but white space, the punctuation between words, bullets and layout."""
DASH = regex.compile(r"[\p{Pd}−]")


class Document(NamedTuple):
    """The passages that were cut from one document or row, in their order.

    `position` is the place in `passages` of the one that was asked for. `whole` is false where only those near it were
    read.
    """

    passages: list[Passage]
    position: int
    whole: bool = True

    @property
    def source(self) -> str:
        """The file or collection that it comes from, "" where that is not known."""
        return self.passages[0].source

    @property
    def name(self) -> str:
        """Its name: of `handbook/guide.md#3` it is `handbook/guide.md`; the id of a passage that was not cut."""
        return cut_from(self.passages[0])[0]

    @property
    def repeated(self) -> list[int]:
        """For each passage the characters at its beginning that the one before ends with."""
        return [0, *(overlap(before.text, passage.text, passage.lang) for before, passage in pairwise(self.passages))]

    @property
    def parts(self) -> list[str]:
        """The text of each passage, without what the neighbour on the side of `position` says, too: that one stays
        whole."""
        parts, repeated = [], self.repeated
        for place, passage in enumerate(self.passages):
            if place < self.position:
                end = self.passages[place + 1].text[: repeated[place + 1]].rstrip()
                parts.append(passage.text.removesuffix(end).rstrip())
            else:
                parts.append(passage.text[repeated[place] :] if place > self.position else passage.text)
        return parts

    @property
    def text(self) -> str:
        """The text of the passages, each sentence once, with a blank line between two passages."""
        parts = zip(self.passages, self.repeated, strict=True)
        return "\n\n".join(text for passage, start in parts if (text := passage.text[start:].strip()))


def cut_from(passage: Passage) -> tuple[str, int | None]:
    """The name of the document or row that a passage was cut from, and its number there, from 1. A passage that was not
    cut is its own document, without a number."""
    number = passage.metadata.get("chunk", "")
    name = passage.id.removesuffix(f"#{number}")
    if number.isascii() and number.isdecimal() and len(number) < 8 and name != passage.id:
        return name, int(number)
    return passage.id, None


def document_of(view: View[Row], row: Row, around: int | None) -> Document:
    """The document of the passage of a row. With `around` only as many passages before and after it, else at most
    `MOST`, half of them before it. Raises BadInput for an `around` out of range."""
    if around is not None and not 0 <= around <= MOST // 2:
        raise BadInput(f"around={around}: must be from 0 to {MOST // 2:,}.")
    (passage,) = view.passages([row])

    name, number = cut_from(passage)
    if number is None:
        return Document([passage], 0)
    radius = MOST // 2 if around is None else around
    first, end = max(1, number - radius), number + radius + 1
    passages, empty = {number: passage}, 0

    def window(start: int, stop: int) -> dict[int, Passage]:
        ids = {f"{name}#{chunk}": chunk for chunk in range(start, stop)}
        rows = [row for rows in view.find(list(ids)).values() for row in rows]
        matches = (match for match in view.passages(rows) if match.source == passage.source)
        return {ids[match.id]: match for match in matches if cut_from(match) == (name, ids[match.id])}

    for start in range(first, end, WINDOW):
        near = window(start, min(start + WINDOW, end))
        passages |= near
        empty = 0 if near else empty + 1
        if empty == GAP and start > number:
            end = start
            break
    numbers = sorted(passages)
    whole = around is None and first == 1 and (end <= number + radius or not window(end, end + WINDOW))
    return Document([passages[chunk] for chunk in numbers], numbers.index(number), whole)


def versions(names: Sequence[str], view: View[Any]) -> dict[str, list[Passage]]:
    """The passages that each of `names` means (see `named`), in the order of their sources."""
    by_name = named(names, view.find, view.source)
    passages = iter(view.passages([row for rows in by_name.values() for row in rows]))
    return {name: sorted(islice(passages, len(rows)), key=lambda one: one.key) for name, rows in by_name.items()}


def overlap(before: str, text: str, lang: str) -> int:
    """The length in characters of the beginning of `text` that repeats the last sentences of `before`, as `chunk` does,
    with the white space after it. Where several numbers of sentences fit, the least counts."""
    starts = list(islice(_endings(before, text), CONTEXT))
    if not starts:
        return 0
    context = max(0, starts[-1] - CONTEXT)
    place, sentences = len(before), list[int]()
    backwards = (split_sentences(part, lang)[::-1] for part in reversed(PARAGRAPH.split(before[context:])))
    for sentence in islice(chain.from_iterable(backwards), SENTENCES):
        place = before.rindex(sentence, 0, place)
        sentences.append(place)
    start = next((start for start in starts if start in sentences), len(before))
    return len(text) - len(text[len(before) - start :].lstrip()) if start < len(before) else 0


def _endings(before: str, text: str) -> Iterator[int]:
    """The places in the last `REACH` characters of `before` from which on it is the beginning of `text`, the last one
    first. `text` goes on after it."""
    place = len(before)
    while (place := before.rfind(text[:1], max(0, len(before) - min(REACH, len(text) - 1)), place)) >= 0:
        if text.startswith(before[place : place + START]) and text.startswith(before[place:]):
            yield place


def called(passage: Passage) -> str:
    """The name of a passage in an index: its id, after its source where the id does not begin with that."""
    begins = passage.id.startswith(passage.source)
    return passage.id if begins else f"{passage.source}:{passage.id}"


def says(passage: Passage) -> str:
    """The words, numbers and symbols of a passage with its title, in lower case: equal for passages that say the same.
    A text of punctuation alone says what it is."""
    text = DASH.sub("-", nfkc(passage.whole_text).casefold())
    return " ".join(SAID.findall(text)) or text.strip()
