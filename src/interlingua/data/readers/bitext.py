"""BUCC 2018: two sets of sentences as `id <tab> sentence`, and the pairs of ids that translate each other.

`fr-en.training.fr`, `fr-en.training.en`, `fr-en.training.gold`; likewise `fr-en.sample.*`, without gold `fr-en.test.*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interlingua.data.readers.rows import BadRow, BadRows
from interlingua.data.readers.source import PathLike, filled_lines, plain_name
from interlingua.errors import BadInput
from interlingua.files import existing
from interlingua.text.languages import normalise_code

Gold = frozenset[tuple[str, str]]
WHOLE = "Mend the file or fetch it again: a test set is read whole or not at all."


@dataclass(frozen=True)
class Comparable:
    """Two sets of sentences to be mined, `(id, sentence)` each, their languages, and the pairs of ids to be found."""

    x: list[tuple[str, str]]
    y: list[tuple[str, str]]
    gold: Gold
    x_lang: str
    y_lang: str

    @property
    def pair(self) -> str:
        return f"{self.x_lang}-{self.y_lang}"


def bucc_pairs(folder: PathLike, split: str = "training") -> list[str]:
    """The language pairs whose files of `split` lie in `folder` or its sub-folders: ["de-en", "fr-en", …]."""
    pairs = {
        match[1]
        for file in existing(folder, "folder").rglob(f"*.{split}.*")
        if (match := re.fullmatch(rf"(\w+-\w+)\.{split}\.gold", plain_name(file)))
    }
    return sorted(pairs)


def read_bucc(folder: PathLike, pair: str, split: str = "training") -> Comparable:
    """The `split` ("training" or "sample") of a `pair` such as "fr-en", in `folder` or a sub-folder; .gz too.

    Raises BadInput for a missing file, a bad row, an id that comes twice or is not there.
    """
    codes = pair.split("-")
    if len(codes) != 2:
        raise BadInput(f"BUCC pair '{pair}': two codes are needed, like fr-en.")
    x, y, gold = (_file(Path(folder), f"{pair}.{split}.{end}") for end in (*codes, "gold"))
    sides = list(read_sentences(x)), list(read_sentences(y))
    pairs = read_gold(gold)
    for side, file, place in zip(sides, (x, y), (0, 1), strict=True):
        unknown = {ids[place] for ids in pairs} - {identifier for identifier, _ in side}
        if unknown:
            raise BadInput(f"{gold}: {len(unknown):,} ids are not in {file} ({min(unknown)}, …). {WHOLE}")
    return Comparable(*sides, pairs, normalise_code(codes[0]), normalise_code(codes[1]))


def read_sentences(path: PathLike) -> Iterator[tuple[str, str]]:
    """`(id, sentence)` of each line `id <tab> sentence`."""
    seen: set[str] = set()

    def parse(line: str) -> tuple[str, str]:
        identifier, tab, sentence = line.partition("\t")
        if not tab or not identifier:
            raise BadRow("id <tab> sentence is needed")
        if " " in identifier:
            raise BadRow("the id holds a space: this looks like a table of translations")
        if identifier in seen:
            raise BadRow(f"the id '{identifier}' comes twice")
        seen.add(identifier)
        return identifier, sentence

    return BadRows(advice=WHOLE).parsed(Path(path), filled_lines(Path(path)), parse)


def read_gold(path: PathLike) -> Gold:
    """The pairs of ids on the lines `id <tab> id`."""
    pairs = set(BadRows(advice=WHOLE).parsed(Path(path), filled_lines(Path(path)), _two_ids))
    if not pairs:
        raise BadInput(f"{path}: holds no pair. {WHOLE}")
    return frozenset(pairs)


def _two_ids(line: str) -> tuple[str, str]:
    ids = line.split("\t")
    if len(ids) != 2 or not all(ids):
        raise BadRow("id <tab> id is needed")
    return ids[0], ids[1]


def _file(folder: Path, name: str) -> Path:
    files = sorted(file for file in existing(folder, "folder").rglob(f"{name}*") if plain_name(file) == name)
    if len(files) != 1:
        problem = f"no {name} (or .gz)" if not files else f"{name} {len(files)} times"
        raise BadInput(
            f"{folder}: {problem} in the folder and its sub-folders. BUCC 2018 has, for each pair and "
            "split, two files of sentences and one .gold."
        )
    return files[0]
