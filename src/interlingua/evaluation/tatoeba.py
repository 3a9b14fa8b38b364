"""Tatoeba: does the nearest sentence in the other language mean the same? (Artetxe & Schwenk 2019)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from interlingua.data.readers import read_parallel
from interlingua.data.readers.pairing import group
from interlingua.data.readers.source import PathLike
from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError, suggestion
from interlingua.evaluation.table import render_records
from interlingua.retrieval.vectors import TextEncoder, Vectors, searchable

PROTOCOLS = {
    "both": "forward: a sentence of the language looks for its translation (of de-fr, one in de); backward: the other "
            "way; avg: every file counts the same",
    "xtreme": "xtreme: an English sentence looks for its translation, one direction only, not to be compared with "
              "means of two; avg: every file counts the same",
}


@dataclass(frozen=True)
class TatoebaResult:
    """A file's accuracies. `lang` is the side that is not English; `forward` asks with it, `backward` finds it.
    Where neither side is English, `lang` is `de-fr` and `forward` asks with the first."""

    lang: str
    pairs: int
    forward: float
    backward: float
    mean: float

    @property
    def xtreme(self) -> float:
        """XTREME's accuracy: English asks, the other language is searched, and that is all (Hu et al. 2020).

        Raises InterlinguaError where neither side is English: XTREME has no such pairs.
        """
        _check_xtreme(self.lang)
        return self.backward


def read_sets(paths: PathLike | Sequence[PathLike]) -> dict[str, list[ParallelPair]]:
    """File name → its pairs, of files, folders and globs; two Moses files are one set."""
    units = {str(unit[0] if isinstance(unit, tuple) else unit): unit for unit in group(paths)}
    return {name: list(read_parallel(unit)) for name, unit in units.items()}


def tatoeba_file(encoder: TextEncoder, path: str | Path) -> TatoebaResult:
    """Accuracy on a file of translations such as `ara-eng.tsv.gz`, both sides read by the passage encoder.

    The languages are those of the file name. Raises InterlinguaError for a file of several languages.
    """
    return tatoeba_pairs(encoder, list(read_parallel(path)), str(path))


def tatoeba_pairs(encoder: TextEncoder, pairs: Sequence[ParallelPair], where: str = "the pairs") -> TatoebaResult:
    """Accuracy on translations of one language into English, or between two others. `where` names them in errors.

    Raises InterlinguaError for several languages, or none.
    """
    lang = check_languages(pairs, where)
    return TatoebaResult(lang, len(pairs), **tatoeba_accuracy(*pair_vectors(encoder, pairs)))


def check_languages(pairs: Sequence[ParallelPair], where: str, protocol: str = "both") -> str:
    """The language that all `pairs` share: "fi", or "de-fr" without English. Raises InterlinguaError unless it is one,
    and one that the protocol knows. `where` names the pairs in the error."""
    langs = sorted({pair.lang for pair in pairs})
    if len(langs) != 1:
        raise InterlinguaError(f"{where}: holds {', '.join(langs) or 'no pairs'}. Give one file for each language.")
    if _known(protocol) == "xtreme":
        _check_xtreme(langs[0])
    return langs[0]


def pair_vectors(encoder: TextEncoder, pairs: Sequence[ParallelPair]) -> tuple[Vectors, Vectors]:
    """Vectors [pairs, dim] of both sides by the passage encoder, each told its language; English comes second."""
    sides: tuple[list[str], list[str]] = ([], [])
    for pair in pairs:
        turned = pair.source_lang == "en"
        sides[turned].append(pair.source)
        sides[not turned].append(pair.target)
    langs = (pairs[0].source_lang, pairs[0].target_lang)
    if langs[0] == "en":
        langs = langs[::-1]
    x, y = (encoder.encode_document(texts, lang=lang) for texts, lang in zip(sides, langs, strict=True))
    return x, y


def tatoeba_table(
    systems: Mapping[str, Mapping[str, TatoebaResult]], form: str = "text", protocol: str = "both"
) -> str:
    """system → file → result as "text" or "markdown", a row for each file and their macro mean; "tsv" or "json" at
    full precision. `protocol`: "both" directions and their mean, or "xtreme", its one direction."""
    shown = ("xtreme",) if _known(protocol) == "xtreme" else ("forward", "backward", "mean")
    records: list[dict[str, str | float | int | None]] = []
    for system, results in systems.items():
        records += [{"system": system, "file": file, "language": found.lang,
                     **{key: getattr(found, key) for key in shown}, "pairs": found.pairs}
                    for file, found in results.items()]
        means = {key: sum(getattr(found, key) for found in results.values()) / len(results) for key in shown}
        records.append({"system": system, "file": None, "language": "avg", **means,
                        "pairs": sum(found.pairs for found in results.values())})
    if form not in ("text", "markdown"):
        return render_records(records, form)
    body = [["" if cell is None else cell for cell in record.values()] for record in records]
    text = tabulate(body, ["Tatoeba", *list(records[0])[1:]], tablefmt="github" if form == "markdown" else "simple",
                    floatfmt=".3f", intfmt=",")
    return f"{text}\n\n{PROTOCOLS[protocol]}"


def tatoeba_accuracy(
    x: Any, y: Any, *, textual: tuple[Sequence[str], Sequence[str]] | None = None, protocol: str = "both"
) -> dict[str, float]:
    """Accuracy of cosine nearest neighbours between translations `x`, `y` [pairs, dim] (row i of one translates
    row i of the other).

    Returns fractions: "forward" (each x looks for its y), "backward" (each y for its x) and their "mean", which
    CCP and LASER report. With protocol "xtreme", `y` is English and looks for its `x`: that direction alone, under the
    name "xtreme" (Hu et al. 2020), since it is not comparable with a mean of two. A hit is the same
    row; with `textual` = (texts of x, texts of y) a hit is the same text, as LASER's option of that name, which
    forgives sentences that occur twice. Among equal similarities the first row wins.

    Raises InterlinguaError for shapes that differ, zero vectors, NaN and an unknown protocol.
    """
    _known(protocol)
    x, y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.float32)
    if x.ndim != 2 or x.shape != y.shape or not len(x):
        raise InterlinguaError(f"shapes {x.shape} and {y.shape}: both must be the same [pairs, dim], with a pair.")
    sides = [searchable(side, "cosine", [str(i) for i in range(len(side))], "sentence") for side in (x, y)]
    texts = textual or (range(len(x)), range(len(y)))
    if any(len(side) != len(x) for side in texts):
        raise InterlinguaError(f"{len(texts[0])} and {len(texts[1])} texts for {len(x)} pairs: the numbers must agree.")
    backward = _accuracy(sides[1], sides[0], texts[0])
    if protocol == "xtreme":
        return {"xtreme": backward}
    forward = _accuracy(sides[0], sides[1], texts[1])
    return {"forward": forward, "backward": backward, "mean": (forward + backward) / 2}


def _accuracy(questions: NDArray[np.float32], answers: NDArray[np.float32], keys: Sequence[Any]) -> float:
    from interlingua.retrieval.dense import search_exact

    nearest = search_exact(questions, answers, 1)[0][:, 0]
    return sum(bool(keys[found] == keys[i]) for i, found in enumerate(nearest.tolist())) / len(questions)


def _known(protocol: str) -> str:
    if protocol not in PROTOCOLS:
        raise InterlinguaError(f"protocol '{protocol}' is unknown.{suggestion(protocol, PROTOCOLS)}")
    return protocol


def _check_xtreme(lang: str) -> None:
    if "-" in lang:
        raise InterlinguaError(f"{lang}: XTREME asks in English, and neither side is. Take both directions and their "
                               "mean (protocol both) for such pairs.")
