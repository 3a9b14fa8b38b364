"""Which languages a parallel file holds, and which files belong together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from interlingua.data.readers.source import PathLike, expand, plain_name
from interlingua.errors import InterlinguaError
from interlingua.text.languages import find_code, normalise_code

TwoFiles = tuple[Path, Path]
_PAIR = re.compile(r"(?:^|[._])([A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?)-([A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?)(?=[._]|$)")


def languages_in_name(path: Path) -> tuple[str, str] | None:
    """The pair of codes in a file name, in its order: "WikiMatrix.en-fi.tsv.gz" → ("en", "fi"), or None."""
    for first, second in _PAIR.findall(plain_name(path)):
        codes = find_code(first), find_code(second)
        if codes[0] and codes[1]:
            return codes[0], codes[1]
    return None


def languages_of(path: Path, source_lang: str | None, target_lang: str | None) -> tuple[str, str]:
    """The languages of the first and the second column: those given, else those in the file name."""
    named = languages_in_name(path) or (None, None)
    source, target = source_lang or named[0], target_lang or named[1]
    if not source or not target:
        raise InterlinguaError(f"{path}: the file name tells no pair of languages (like ar-en.tsv). "
                               "Give source_lang and target_lang.")
    return normalise_code(source), normalise_code(target)


def language_suffix(path: Path) -> str | None:
    """The language that a Moses file name ends in: "corpus.ar.gz" → "ar", "tatoeba.ara-eng.ara" → "ar", else None."""
    suffix = Path(plain_name(path)).suffix
    return find_code(suffix[1:]) if suffix else None


def group(paths: PathLike | Iterable[PathLike]) -> list[Path | TwoFiles]:
    """The files of a path with Moses files put together two by two: the one that is not English with the English one
    (of two that are not English, in the order of their names). A path may be their common beginning: "corpus" for
    corpus.ar and corpus.en. Raises InterlinguaError for a file without a partner and for partners that cannot be told.
    """
    files = [file for one in ([paths] if isinstance(paths, (str, Path)) else paths) for file in files_of(one)]
    stems: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if language_suffix(file):
            stems[_stem(file)].append(file)
    units: list[Path | TwoFiles] = []
    for file in files:
        if not language_suffix(file):
            units.append(file)
        elif (sides := stems.pop(_stem(file), None)) is not None:
            units += _couples(sides)
    return units


def files_of(path: PathLike) -> list[Path]:
    """`expand`, where the common beginning of Moses files means all of them."""
    here = Path(path)
    if not here.exists() and here.parent.is_dir():
        sides = sorted(file for file in here.parent.iterdir() if _stem(file) == here and language_suffix(file))
        if sides:
            return sides
    return expand(path)


def _stem(file: Path) -> Path:
    return file.parent / Path(plain_name(file)).stem


def _couples(sides: list[Path]) -> list[Path | TwoFiles]:
    if len(sides) == 1:
        others = sorted(file for file in sides[0].parent.iterdir()
                        if _stem(file) == _stem(sides[0]) and language_suffix(file) and file != sides[0])
        if len(others) != 1:
            found = ", ".join(file.name for file in others) or "none"
            raise InterlinguaError(f"{sides[0]}: one side of a parallel corpus; the other side cannot be told "
                                   f"(found: {found}). Give both files.")
        sides = [*sides, others[0]]
    by_lang = {language_suffix(file): file for file in sides}
    if len(by_lang) < len(sides):
        raise InterlinguaError(f"{sides[0]}: two files beside each other are of the same language. Give the two files.")
    if len(sides) == 2:
        named = languages_in_name(sides[0])
        order = named if named and set(named) == set(by_lang) else sorted(by_lang, key=lambda code: code == "en")
        return [(by_lang[order[0]], by_lang[order[1]])]
    if "en" not in by_lang:
        raise InterlinguaError(f"{sides[0]}: {len(sides)} languages and none is English. Give two files at a time.")
    return [(file, by_lang["en"]) for code, file in by_lang.items() if code != "en"]
