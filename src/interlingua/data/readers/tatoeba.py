"""Tatoeba: the test files that LASER publishes, and pairs of any two languages out of the dump.

LASER: `tatoeba.fra-eng.fra` and `tatoeba.fra-eng.eng`, up to 1,000 sentences and their translations line by line, 112
languages with English. The dump: `sentences.csv` (`id <tab> language <tab> text`) and `links.csv` (`id <tab> id`), also
gzipped.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from interlingua.data.readers.source import PathLike, filled_lines, group
from interlingua.data.records import ParallelPair
from interlingua.data.stream import key_of
from interlingua.errors import BadInput
from interlingua.files import existing
from interlingua.text.languages import find_code, language_key

LIMIT = 1000
"""Pairs of a test set."""
FEW = 100
"""An accuracy over fewer pairs says little: of one pair it is 1.0."""
WHOLE = "Fetch the file again: a test set is read whole or not at all."


def read_dump(
    folder: PathLike, pairs: Sequence[str], *, limit: int = LIMIT, least: int = FEW, seed: int = 0
) -> dict[str, list[ParallelPair]]:
    """Pairs such as "de-el" → sentences that the dump in `folder` links with each other, never through a third one.

    A seeded sample of at most `limit` pairs, in which every sentence occurs once; it depends on the sentences and links
    alone, not on their order in the files. Holds the ids of the languages' sentences and the texts of the sample.

    Raises BadInput for a missing file, a bad row, a pair that is no pair, and for one with fewer than `least` pairs.
    """
    sentences, links = (_file(Path(folder), name) for name in ("sentences.csv", "links.csv"))
    codes = {pair: _codes(pair) for pair in pairs}
    langs = sorted({code for tags in codes.values() for code in tags})
    lang_of = _languages(sentences, langs)
    samples = {}
    for pair, chosen in _linked(links, lang_of, {pair: tuple(map(langs.index, tags)) for pair, tags in codes.items()}):
        samples[pair] = _one_to_one(chosen, limit, key_of(seed, "tatoeba", *codes[pair]))
    few = [f"{pair} ({len(chosen):,})" for pair, chosen in samples.items() if len(chosen) < least]
    if few:
        raise BadInput(
            f"{folder}: too few sentences are linked for {', '.join(few)}; {least} pairs at least are needed. An "
            "accuracy over fewer says nothing. Leave the pairs out, or fetch the whole dump."
        )
    texts = _texts(sentences, {int(number) for chosen in samples.values() for number in np.ravel(chosen)})
    return {
        pair: [
            ParallelPair(texts[a], texts[b], *codes[pair], group=f"tatoeba:{a}-{b}", origin="tatoeba")
            for a, b in chosen.tolist()
        ]
        for pair, chosen in samples.items()
    }


def laser_sets(folder: PathLike) -> dict[str, list[Path]]:
    """The language of each of LASER's files in `folder`, as it is spelt there ("fra") → its files, for `read_parallel`.
    Also `fra-eng.tsv.gz`.

    Raises BadInput where there is none.
    """
    units: dict[str, list[list[Path]]] = {}
    for unit in group(existing(folder, "folder")):
        files = list(unit) if isinstance(unit, tuple) else [unit]
        stem = next((part for part in files[0].name.split(".") if part.endswith("-eng")), None)
        if stem is not None:
            units.setdefault(stem.removesuffix("-eng"), []).append(files)
    if not units:
        raise BadInput(f"{folder}: no file of Tatoeba, such as tatoeba.fra-eng.fra with tatoeba.fra-eng.eng.")
    if duplicates := [lang for lang, sets in units.items() if len(sets) > 1]:
        raise BadInput(f"{folder}: several sets of files of {', '.join(duplicates)} and English. Keep one of each.")
    return {lang: sets[0] for lang, sets in units.items()}


def _file(folder: Path, name: str) -> Path:
    zipped = folder / f"{name}.gz"
    return zipped if zipped.is_file() else existing(folder / name, "file of the Tatoeba dump")


def _codes(pair: str) -> tuple[str, str]:
    first, _, second = pair.partition("-")
    codes = find_code(first), find_code(second)
    if codes[0] is None or codes[1] is None or codes[0] == codes[1]:
        raise BadInput(f"'{pair}' is not a pair of two languages. Write it as de-el.")
    return codes[0], codes[1]


def _rows(path: Path, cells: int, layout: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in filled_lines(path):
        row = line.split("\t")
        if len(row) != cells or not row[0].isdecimal():
            raise BadInput(f"{path}, line {number}: {layout} is needed. {WHOLE}")
        yield number, row


def _languages(path: Path, langs: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """`[highest id + 1]`: the place in `langs` of a sentence's language, −1 for another or none."""
    place = {language_key(lang): number for number, lang in enumerate(langs)}  # Norwegian is mostly Bokmål there
    ids, kinds = array("q"), array("h")
    for _, (number, lang, _text) in _rows(path, 3, "id <tab> language <tab> text"):
        kind = place.get(language_key(lang))
        if kind is not None:
            ids.append(int(number))
            kinds.append(kind)
    lang_of = np.full(max(ids, default=0) + 1, -1, np.int16)
    lang_of[np.frombuffer(ids, np.int64)] = np.frombuffer(kinds, np.int16)
    return lang_of


Links = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def _linked(
    path: Path, lang_of: np.ndarray[tuple[int], np.dtype[np.int16]], pairs: dict[str, tuple[int, ...]]
) -> Iterator[tuple[str, Links]]:
    """Each pair of languages with its links `[links, 2]`, the first language first."""
    arrays = {places: array("q") for places in pairs.values()}
    langs = {place for places in arrays for place in places}
    for number, row in _rows(path, 2, "id <tab> id"):
        if not row[1].isdecimal():
            raise BadInput(f"{path}, line {number}: id <tab> id is needed. {WHOLE}")
        a, b = int(row[0]), int(row[1])
        if a < len(lang_of) and b < len(lang_of) and lang_of[a] in langs:
            # links are written both ways round; where one way is missing the other counts too
            for first, second in ((a, b), (b, a)):
                links = arrays.get((int(lang_of[first]), int(lang_of[second])))
                if links is not None:
                    links.extend((first, second))
    for pair, places in pairs.items():
        yield pair, np.unique(np.frombuffer(arrays[places], np.int64).reshape(-1, 2), axis=0)


def _one_to_one(links: Links, limit: int, seed: int) -> Links:
    """At most `limit` of the links, drawn at random, no id twice."""
    seen: set[int] = set()
    chosen: list[list[int]] = []
    for row in np.random.default_rng(seed).permutation(len(links)):
        pair = links[row].tolist()
        if len(chosen) < limit and seen.isdisjoint(pair):
            seen.update(pair)
            chosen.append(pair)
    return np.array(chosen, np.int64).reshape(-1, 2)


def _texts(path: Path, ids: set[int]) -> dict[int, str]:
    texts = {}
    for _, (number, _lang, text) in _rows(path, 3, "id <tab> language <tab> text"):
        if int(number) in ids:
            texts[int(number)] = text
    return texts
