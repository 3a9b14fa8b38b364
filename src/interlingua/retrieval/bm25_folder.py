"""A BM25 index on disk: its terms and postings, the ids of its passages, and which analyzers cut them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.files import atomic_folder, existing
from interlingua.retrieval.postings import Postings
from interlingua.retrieval.run import docid_order
from interlingua.text.analyzers import Analyzer, analyzer

FORMAT = 1
MARKER = "bm25.json"


@dataclass(frozen=True)
class Indexed:
    """What was found in passages: all of BM25 but its parameters. The number of a term is its place in `terms`, the
    number of a passage its place in `ids`; `analyzers` by language code, "" for none."""

    ids: list[str]
    terms: dict[str, int]
    postings: Postings
    analyzers: Mapping[str, Analyzer]

    @cached_property
    def rows(self) -> dict[str, int]:
        """The number of each passage by its id."""
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def ties(self) -> NDArray[np.int64]:
        """[passages]: the place of each among all when ordered by id descending, the project's tie order."""
        return np.argsort(docid_order(self.ids))


def write_bm25(path: str | Path, indexed: Indexed, k1: float, b: float) -> None:
    """Write a folder, whole or not at all. It replaces an earlier save, and nothing else."""
    analyzers = {lang: [chosen.name, chosen.version] for lang, chosen in sorted(indexed.analyzers.items())}
    with atomic_folder(path, MARKER) as folder:
        indexed.postings.save(folder / "postings.safetensors")
        _write(folder / "ids.json", indexed.ids)
        _write(folder / "terms.json", list(indexed.terms))
        _write(folder / MARKER, {"format": FORMAT, "k1": k1, "b": b, "analyzers": analyzers})


def read_bm25(path: str | Path) -> tuple[Indexed, float, float]:
    """What `write_bm25` wrote: the index, k1 and b.

    Raises InterlinguaError for a folder that is no BM25 index, a damaged one, or an analyzer whose version here is
    another than the one that cut the passages.
    """
    folder = existing(path, "BM25 index")
    if not (folder / MARKER).is_file():
        raise InterlinguaError(f"{folder}: is not a BM25 index (no {MARKER}).")
    about = _read(folder / MARKER, dict)
    if about.get("format") != FORMAT:
        raise InterlinguaError(f"{folder}: has BM25 format {about.get('format')}, {FORMAT} is known. Build it again.")
    ids, terms = _names(folder / "ids.json"), _names(folder / "terms.json")
    postings = Postings.load(folder / "postings.safetensors", len(ids), len(terms))
    made, numbers = about.get("analyzers"), [about.get("k1"), about.get("b")]
    if not isinstance(made, dict) or not all(isinstance(number, float) for number in numbers):
        raise _damaged(folder / MARKER, "analyzers, k1 or b are missing or not what they should be")
    analyzers = {lang: _same(folder, lang, named) for lang, named in made.items()}
    return Indexed(ids, {term: number for number, term in enumerate(terms)}, postings, analyzers), *numbers


def _same(folder: Path, lang: str, named: object) -> Analyzer:
    """The analyzer with this name and version, `named`, if it is the same here."""
    if not isinstance(named, list) or len(named) != 2 or not all(isinstance(part, str) for part in named):
        raise _damaged(folder / MARKER, f"the analyzer of '{lang}' has no name and version")
    name, version = named
    here = analyzer(lang, name.rpartition("/")[2])
    if (here.name, here.version) != (name, version):
        raise InterlinguaError(f"{folder}: was cut by the analyzer {name} ({version}), here it is {here.name} "
                               f"({here.version}), which may cut queries otherwise. Build the index again, or install "
                               "those versions.")
    return here


def _names(file: Path) -> list[str]:
    names: list[str] = _read(file, list)
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise _damaged(file, "not a list of different names")
    return names


def _write(file: Path, content: object) -> None:
    file.write_bytes(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")


def _read(file: Path, kind: type) -> Any:
    try:
        content = json.loads(file.read_bytes().decode("utf-8", "surrogatepass"))
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from error
    if not isinstance(content, kind):
        raise _damaged(file, f"no {kind.__name__}")
    return content


def _damaged(file: Path, reason: object) -> InterlinguaError:
    return InterlinguaError(f"{file}: is damaged ({reason}). Build the index again.")
