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
from interlingua.errors import InterlinguaError
from interlingua.evaluation.table import render_records
from interlingua.retrieval.vectors import TextEncoder, searchable

NOTE = ("forward: a sentence of the language looks for its translation; backward: the other way; "
        "avg: every file counts the same")


@dataclass(frozen=True)
class TatoebaResult:
    """A file's accuracies. `lang` is the side that is not English; `forward` asks with it, `backward` finds it."""

    lang: str
    pairs: int
    forward: float
    backward: float
    mean: float


def tatoeba_file(encoder: TextEncoder, path: str | Path) -> TatoebaResult:
    """Accuracy on a file of translations such as `ara-eng.tsv.gz`, both sides read by the passage encoder.

    The languages are those of the file name. Raises InterlinguaError for a file of several languages.
    """
    pairs = list(read_parallel(path))
    langs = sorted({pair.lang for pair in pairs})
    if len(langs) != 1:
        raise InterlinguaError(f"{path}: holds {', '.join(langs) or 'no pairs'}. Give one file for each language.")
    vectors = [encoder.encode_document([getattr(pair, side) for pair in pairs]) for side in ("source", "target")]
    if pairs[0].source_lang == "en":
        vectors.reverse()
    return TatoebaResult(langs[0], len(pairs), **tatoeba_accuracy(*vectors))


def tatoeba_table(systems: Mapping[str, Mapping[str, TatoebaResult]], form: str = "text") -> str:
    """system → file → result as "text" or "markdown", a row for each file and their macro mean; "tsv" or "json" at
    full precision."""
    records: list[dict[str, str | float | int | None]] = []
    for system, results in systems.items():
        records += [{"system": system, "file": file, "language": found.lang, "forward": found.forward,
                     "backward": found.backward, "mean": found.mean, "pairs": found.pairs}
                    for file, found in results.items()]
        means = {key: sum(getattr(found, key) for found in results.values()) / len(results)
                 for key in ("forward", "backward", "mean")}
        records.append({"system": system, "file": None, "language": "avg", **means,
                        "pairs": sum(found.pairs for found in results.values())})
    if form not in ("text", "markdown"):
        return render_records(records, form)
    body = [["" if cell is None else cell for cell in record.values()] for record in records]
    text = tabulate(body, ["Tatoeba", *list(records[0])[1:]], tablefmt="github" if form == "markdown" else "simple",
                    floatfmt=".3f", intfmt=",")
    return f"{text}\n\n{NOTE}"


def tatoeba_accuracy(x: Any, y: Any, *, textual: tuple[Sequence[str], Sequence[str]] | None = None) -> dict[str, float]:
    """Accuracy of cosine nearest neighbours between translations `x`, `y` [pairs, dim] (row i of one translates
    row i of the other).

    Returns fractions: "forward" (each x looks for its y), "backward" (each y for its x) and their "mean", which
    CCP and LASER report; XTREME reports one direction only, so the two are not comparable. A hit is the same
    row; with `textual` = (texts of x, texts of y) a hit is the same text, as LASER's option of that name, which
    forgives sentences that occur twice. Among equal similarities the first row wins.

    Raises InterlinguaError for shapes that differ, zero vectors and NaN.
    """
    x, y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.float32)
    if x.ndim != 2 or x.shape != y.shape or not len(x):
        raise InterlinguaError(f"shapes {x.shape} and {y.shape}: both must be the same [pairs, dim], with a pair.")
    sides = [searchable(side, "cosine", [str(i) for i in range(len(side))], "sentence") for side in (x, y)]
    texts = textual or (range(len(x)), range(len(y)))
    if any(len(side) != len(x) for side in texts):
        raise InterlinguaError(f"{len(texts[0])} and {len(texts[1])} texts for {len(x)} pairs: the numbers must agree.")
    forward = _accuracy(sides[0], sides[1], texts[1])
    backward = _accuracy(sides[1], sides[0], texts[0])
    return {"forward": forward, "backward": backward, "mean": (forward + backward) / 2}


def _accuracy(questions: NDArray[np.float32], answers: NDArray[np.float32], keys: Sequence[Any]) -> float:
    from interlingua.retrieval.dense import search_exact

    nearest = search_exact(questions, answers, 1)[0][:, 0]
    return sum(bool(keys[found] == keys[i]) for i, found in enumerate(nearest.tolist())) / len(questions)
