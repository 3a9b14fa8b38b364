"""Tatoeba: accuracy of the nearest translation, also between languages other than English."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.readers import read_parallel
from interlingua.data.readers.source import PathLike, group
from interlingua.data.readers.tatoeba import FEW, LIMIT
from interlingua.data.records import ParallelPair
from interlingua.errors import BadInput, suggestion
from interlingua.evaluation.table import records_table
from interlingua.files import existing
from interlingua.models.protocols import Encoder, Role, encode_as
from interlingua.retrieval.retriever import Vectors, searchable
from interlingua.text.languages import normalise_code

logger = logging.getLogger(__name__)

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

        Raises BadInput where neither side is English: XTREME has no such pairs.
        """
        _check_xtreme(self.lang)
        return self.backward


def read_sets(paths: PathLike | Sequence[PathLike]) -> dict[str, list[ParallelPair]]:
    """File name → its pairs, of files, folders and globs; two Moses files are one set."""
    units = {str(unit[0] if isinstance(unit, tuple) else unit): unit for unit in group(paths)}
    return {name: list(read_parallel(unit)) for name, unit in units.items()}


def tatoeba_file(encoder: Encoder, path: str | Path, role: Role = "passage") -> TatoebaResult:
    """Accuracy on a file of translations such as `ara-eng.tsv.gz`, both sides read in `role`.

    The languages are those of the file name. Raises BadInput for a file of several languages.
    """
    return tatoeba_pairs(encoder, list(read_parallel(path)), str(path), role)


def tatoeba_pairs(
    encoder: Encoder, pairs: Sequence[ParallelPair], where: str = "the pairs", role: Role = "passage"
) -> TatoebaResult:
    """Accuracy on translations of one language into English, or between two others. `where` names them in errors;
    both sides are read in `role` (the authors of multilingual E5 advise "query" for sentences).

    Raises BadInput for several languages, or none.
    """
    lang = check_languages(pairs, where)
    return TatoebaResult(lang, len(pairs), **tatoeba_accuracy(*pair_vectors(encoder, pairs, role)))


@dataclass(frozen=True)
class StoredVectors:
    """Vectors of Tatoeba's sentences that another program made (CRISS, a closed model): for the pairs called `fr`, with
    English, `fr-en.fr.npy` and `fr-en.en.npy` in `folder`, for those called `de-el` `de-el.de.npy` and `de-el.el.npy`.
    Each `[pairs, dim]` of floats, row i for line i of the test."""

    folder: Path

    def accuracy(self, name: str, pairs: Sequence[ParallelPair]) -> TatoebaResult | None:
        """The accuracy on the pairs called `name`; None where the folder has no vectors of them.

        Raises BadInput for one side without the other, another number of rows than pairs, and what is no array.
        """
        first, _, second = name.partition("-")
        second = second or "en"
        files = [existing(self.folder, "folder") / f"{first}-{second}.{lang}.npy" for lang in (first, second)]
        if not any(file.exists() for file in files):
            return None
        x, y = (self._read(existing(file), len(pairs)) for file in files)
        return TatoebaResult(check_languages(pairs, name), len(pairs), **tatoeba_accuracy(x, y))

    def _read(self, file: Path, rows: int) -> NDArray[np.float32]:
        try:
            vectors = np.load(file, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise BadInput(f"{file}: is no array as numpy.save writes it ({error}).") from error
        if vectors.ndim != 2 or len(vectors) != rows or vectors.dtype.kind != "f":
            raise BadInput(
                f"{file}: holds {vectors.dtype} {list(vectors.shape)}; floats of {rows:,} rows are needed, one for "
                "each line of the test."
            )
        return np.asarray(vectors, np.float32)


def check_languages(pairs: Sequence[ParallelPair], where: str, protocol: str = "both") -> str:
    """The language that all `pairs` share: "fi", or "de-fr" without English. Raises BadInput unless it is one,
    and one that the protocol knows. `where` names the pairs in the error."""
    langs = sorted({pair.lang for pair in pairs})
    if len(langs) != 1:
        raise BadInput(f"{where}: holds {', '.join(langs) or 'no pairs'}. Give one file for each language.")
    if _known(protocol) == "xtreme":
        _check_xtreme(langs[0])
    return langs[0]


def pair_vectors(encoder: Encoder, pairs: Sequence[ParallelPair], role: Role = "passage") -> tuple[Vectors, Vectors]:
    """Vectors [pairs, dim] of both sides in one role, each told its language; English comes second."""
    sides: tuple[list[str], list[str]] = ([], [])
    for pair in pairs:
        turned = pair.source_lang == "en"
        sides[turned].append(pair.source)
        sides[not turned].append(pair.target)
    langs = (pairs[0].source_lang, pairs[0].target_lang)
    if langs[0] == "en":
        langs = langs[::-1]
    encode = encode_as(encoder, role)
    x, y = (encode(texts, lang=lang) for texts, lang in zip(sides, langs, strict=True))
    return x, y


def tatoeba_records(
    systems: Mapping[str, Mapping[str, TatoebaResult]], protocol: str = "both"
) -> list[dict[str, str | float | int | None]]:
    """The rows of `tatoeba_table`, nothing rounded; the file of a mean is None."""
    keys = ("xtreme",) if _known(protocol) == "xtreme" else ("forward", "backward", "mean")
    records: list[dict[str, str | float | int | None]] = []
    for system, results in systems.items():
        records += [
            {
                "system": system,
                "file": file,
                "language": result.lang,
                **{key: getattr(result, key) for key in keys},
                "pairs": result.pairs,
            }
            for file, result in results.items()
        ]
        means = {key: sum(getattr(result, key) for result in results.values()) / len(results) for key in keys}
        records.append(
            {
                "system": system,
                "file": None,
                "language": "avg",
                **means,
                "pairs": sum(result.pairs for result in results.values()),
            }
        )
    return records


def tatoeba_table(
    systems: Mapping[str, Mapping[str, TatoebaResult]], form: str = "text", protocol: str = "both"
) -> str:
    """system → file → result as "text" or "markdown", a row for each file and their macro mean; "tsv" or "json" at
    full precision. `protocol`: "both" directions and their mean, or "xtreme", its one direction."""
    return records_table(tatoeba_records(systems, protocol), form, "Tatoeba", PROTOCOLS[protocol])


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

    Raises BadInput for shapes that differ, zero vectors, NaN and an unknown protocol.
    """
    _known(protocol)
    x, y = (side.detach().float().cpu() if hasattr(side, "detach") else side for side in (x, y))
    x, y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.float32)
    if x.ndim != 2 or x.shape != y.shape or not len(x):
        raise BadInput(f"shapes {x.shape} and {y.shape}: both must be the same [pairs, dim], with a pair.")
    sides = [searchable(side, "cosine", [str(i) for i in range(len(side))], "sentence") for side in (x, y)]
    texts = textual or (range(len(x)), range(len(y)))
    if any(len(side) != len(x) for side in texts):
        raise BadInput(f"{len(texts[0])} and {len(texts[1])} texts for {len(x)} pairs: the numbers must agree.")
    backward = _accuracy(sides[1], sides[0], texts[0])
    if protocol == "xtreme":
        return {"xtreme": backward}
    forward = _accuracy(sides[0], sides[1], texts[1])
    return {"forward": forward, "backward": backward, "mean": (forward + backward) / 2}


def _accuracy(questions: NDArray[np.float32], answers: NDArray[np.float32], keys: Sequence[Any]) -> float:
    from interlingua.retrieval.dense.exact import search_exact

    nearest = search_exact(questions, answers, 1)[0][:, 0]
    return sum(bool(keys[row] == keys[i]) for i, row in enumerate(nearest.tolist())) / len(questions)


def _known(protocol: str) -> str:
    if protocol not in PROTOCOLS:
        raise BadInput(f"protocol '{protocol}' is unknown.{suggestion(protocol, PROTOCOLS)}")
    return protocol


def _check_xtreme(lang: str) -> None:
    if "-" in lang:
        raise BadInput(
            f"{lang}: XTREME asks in English, and neither side is. Take both directions and their "
            "mean (protocol both) for such pairs."
        )


Sets = Mapping[str, Sequence[ParallelPair]]
"""name, such as the file's → its pairs, all of the same two languages."""


@dataclass(frozen=True)
class Joined:
    """The pairs that a join through English gave. `repeated` pairs were left out since a sentence of theirs was taken
    already, `over` since there were more than the limit."""

    pairs: list[ParallelPair]
    repeated: int
    over: int


def pivot_pairs(first: Sequence[ParallelPair], second: Sequence[ParallelPair], limit: int = LIMIT) -> Joined:
    """Pairs of a foreign sentence of `first` and one of `second` that translate the identical English sentence.

    One to one: every sentence, the English one too, is used once, in the order of `first`; what else would have been
    joined is counted as repeated. At most `limit` pairs, as the Tatoeba test has. Raises BadInput for a pair
    without an English side, or both sets of one language.
    """
    left, right = [_foreign(pair) for pair in first], [_foreign(pair) for pair in second]
    langs = [{lang for _, lang, _ in side} for side in (left, right)]
    if [len(side) for side in langs] != [1, 1] or langs[0] == langs[1]:
        languages = " and ".join(", ".join(sorted(side)) or "nothing" for side in langs)
        raise BadInput(f"a join through English needs one language on each side, two in all; given: {languages}.")
    translations: dict[str, list[tuple[str, str]]] = {}
    for english, lang, text in right:
        translations.setdefault(english, []).append((lang, text))
    pairs: list[ParallelPair] = []
    used: Counter[tuple[str, str]] = Counter()
    repeated = 0
    for english, lang, text in left:
        for other, translated in translations.get(english, ()):
            sentences = (("en", english), (lang, text), (other, translated))
            if any(used[sentence] for sentence in sentences):
                repeated += 1
                continue
            used.update(sentences)
            pairs.append(ParallelPair(text, translated, lang, other))
    return Joined(pairs[:limit], repeated, len(pairs[limit:]))


def pairs_between(codes: str, sets: Sets) -> tuple[str, list[ParallelPair]]:
    """The pairs of two languages such as "de-fr": those of the set that holds just these two, in either order, else
    joined through English. Returns the name of what they come from, and them; says how many a join gave.

    Raises BadInput for codes that are not two languages, and where `sets` hold no way from one to the other.
    """
    parts = codes.split("-")
    if len(parts) != 2:
        raise BadInput(f"'{codes}': a pair is written as two languages, like de-fr.")
    source, target = (normalise_code(part) for part in parts)
    if source == target:
        raise BadInput(f"'{codes}': both are '{source}'. A pair needs two languages.")
    langs_of = {
        name: {lang for pair in pairs for lang in (pair.source_lang, pair.target_lang)} for name, pairs in sets.items()
    }
    direct = [name for name, langs in langs_of.items() if langs == {source, target}]
    if direct:
        name = _only(direct, f"{source} and {target}")
        return name, [
            pair
            if pair.source_lang == source
            else replace(pair, source=pair.target, target=pair.source, source_lang=source, target_lang=target)
            for pair in sets[name]
        ]
    english = {lang: [name for name, langs in langs_of.items() if langs == {lang, "en"}] for lang in (source, target)}
    for lang, names in english.items():
        if not names:
            raise BadInput(
                f"'{codes}': no file has '{lang}' and English, and none has {source} and {target}."
                f"{suggestion(lang, set().union(*langs_of.values()))}"
            )
    names = [_only(files, f"{lang} and English") for lang, files in english.items()]
    joined = pivot_pairs(sets[names[0]], sets[names[1]])
    if not joined.pairs:
        raise BadInput(
            f"'{codes}': {names[0]} and {names[1]} have no English sentence in common. Give a file "
            f"of {source} and {target}."
        )
    left_out = "".join(
        f", {count:,} {why}"
        for count, why in ((joined.repeated, "left out as repeated"), (joined.over, "over the limit"))
        if count
    )
    few = f"; an accuracy over fewer than {FEW} says little" if len(joined.pairs) < FEW else ""
    plural = "s" * (len(joined.pairs) > 1)
    logger.info(f"{source}-{target}: {len(joined.pairs):,} pair{plural} through English{left_out}{few}")
    return " + ".join(Path(name).name for name in names), joined.pairs


def _foreign(pair: ParallelPair) -> tuple[str, str, str]:
    """(English text, other language, other text)."""
    if pair.source_lang == "en":
        return pair.source, pair.target_lang, pair.target
    if pair.target_lang == "en":
        return pair.target, pair.source_lang, pair.source
    raise BadInput(f"a pair of {pair.source_lang} and {pair.target_lang} cannot be joined through English.")


def _only(names: Sequence[str], what: str) -> str:
    if len(names) > 1:
        raise BadInput(f"{' and '.join(names)}: both hold {what}. Give one of them.")
    return names[0]
