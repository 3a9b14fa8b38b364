"""Triples by id and the texts behind them: what a retriever is fine-tuned on, with neither in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interlingua.data.keyed_store import KeyedStore
from interlingua.data.readers.bad_rows import BadRows
from interlingua.data.readers.id_texts import id_passages, id_queries
from interlingua.data.readers.id_triples import IdTriple, read_id_triples
from interlingua.data.readers.source import PathLike, expand
from interlingua.data.records import Passage, Query, QuestionPassage
from interlingua.data.store import Indices
from interlingua.errors import InterlinguaError
from interlingua.files import atomic_folder, existing, restore
from interlingua.progress import track
from interlingua.text.languages import normalise_code

Paths = PathLike | Sequence[PathLike]
MARKER = "triples.json"
VERSION = 1
CHUNK = 1 << 14


class TripleStore:
    """A store of `QuestionPassage` for streams, as `RecordStore` is, in a folder: `queries` and `passages` hold each
    text once, `rows.bin` (int64) for each triple the numbers of its query, its positive and its negatives, `scores.bin`
    (float32) a teacher's scores, if there are any. Everything large is memory-mapped.

    The language of a record is that of its query. All triples have the same number of passages.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = existing(folder, "store of triples")
        facts = _facts(self.folder)
        if facts is None:
            raise InterlinguaError(f"{folder}: no store of triples. Remove the folder and build again.")
        self.fingerprint: str = facts["fingerprint"]
        self.digest: str = facts["digest"]
        self.queries: KeyedStore[Query] = KeyedStore(self.folder / "queries")
        self.passages: KeyedStore[Passage] = KeyedStore(self.folder / "passages")
        count, width = facts["count"], facts["width"]
        self._rows: Indices = _mapped(self.folder / "rows.bin", np.dtype(np.int64), (count, width))
        self._scores: npt.NDArray[np.float32] | None = None
        if facts["scored"]:
            self._scores = _mapped(self.folder / "scores.bin", np.dtype(np.float32), (count, width - 1))
        self.languages: dict[str, range] = {facts["lang"]: range(count)}

    @classmethod
    def build(cls, folder: str | Path, path: Paths, *, queries: Paths, passages: Paths, lang: str = "en",
              passage_lang: str | None = None, scores: bool = False, format: str | None = None,
              on_bad_row: str = "error", fingerprint: str = "") -> TripleStore:
        """Write the store of the triples in `path` and open it; or open what is there when it has the same
        `fingerprint` (never when that is ""). Holds some 40 bytes a passage in memory, and nothing of the triples.

        `queries` and `passages` are the files of their texts (`id_texts`), in the languages `lang` and `passage_lang`
        (the same unless given). Another collection with the same ids, a translated one, makes translate-train of the
        same triples. Formats of triples: `id_triples.TRIPLES`; `scores` says that a TSV has two columns of them.

        A row with an id that has no text, another number of passages than the first, or its positive among the
        negatives is a bad row. A kill leaves what was there before, or nothing.
        """
        folder = restore(folder)
        facts = _facts(folder)
        if facts is not None and fingerprint and facts["fingerprint"] == fingerprint:
            return cls(folder)
        bad = BadRows(on_bad_row)
        lang = normalise_code(lang)
        passage_lang = normalise_code(passage_lang) if passage_lang else lang
        with atomic_folder(folder, MARKER) as new:
            try:
                triples = read_id_triples(path, bad, format=format, scores=scores)
                asked = (query for file in expand(queries) for query in id_queries(file, bad, lang))
                texts = (passage for file in expand(passages) for passage in id_passages(file, bad, passage_lang))
                names = _said(queries), _said(passages)
                writer = _Writer(new, bad, KeyedStore.build(new / "queries", asked, Query, names[0]),
                                 KeyedStore.build(new / "passages", texts, Passage, names[1]), names)
                writer.write(track(triples, "triples"), {"fingerprint": fingerprint, "lang": lang})
            finally:
                bad.report()
        return cls(folder)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> QuestionPassage:
        index = int(index)
        query_row, positive, *negatives = self._rows[index].tolist()
        query = self.queries[query_row]
        scores = () if self._scores is None else tuple(self._scores[index].tolist())
        return QuestionPassage(query.text, (self.passages[positive],), tuple(self.passages[row] for row in negatives),
                               query.lang, query.id, scores)


class _Writer:
    """Looks up the ids of triples, a chunk at a time, and appends their numbers to the files of a store."""

    def __init__(self, folder: Path, bad: BadRows, queries: KeyedStore[Query], passages: KeyedStore[Passage],
                 names: tuple[str, str]) -> None:
        self.folder, self.bad, self.queries, self.passages, self.names = folder, bad, queries, passages, names
        self.shape: tuple[int, bool] | None = None
        self.count = 0

    def write(self, triples: Iterable[IdTriple], facts: dict[str, Any]) -> None:
        digest = hashlib.blake2b(digest_size=16)
        digest.update((self.queries.records.digest + self.passages.records.digest).encode())
        with open(self.folder / "rows.bin", "wb") as rows_file, open(self.folder / "scores.bin", "wb") as scores_file:
            fitting = filter(self._fits, triples)
            while chunk := tuple(islice(fitting, CHUNK)):
                rows, good = self._rows(chunk)
                scores = np.array([triple.scores for triple, kept in zip(chunk, good, strict=True) if kept], np.float32)
                for values, file in ((rows[good], rows_file), (scores, scores_file)):
                    file.write(values.tobytes())
                    digest.update(values.tobytes())
                self.count += int(good.sum())
        if self.shape is None or not self.count:
            raise InterlinguaError("no triples: the file is empty or every row was left out. Check the source.")
        width, scored = self.shape
        facts |= {"version": VERSION, "count": self.count, "width": width, "scored": scored,
                  "digest": digest.hexdigest()}
        (self.folder / MARKER).write_text(json.dumps(facts, indent=1) + "\n", "utf-8")

    def _fits(self, triple: IdTriple) -> bool:
        """Whether the triple has as many passages as the first one, and scores as that one has."""
        shape = len(triple.passages) + 1, bool(triple.scores)
        if self.shape in (None, shape):
            self.shape = shape
            return True
        self.bad.reject(triple.path, triple.line, f"{_what(shape)}, but the first row had {_what(self.shape)}")
        return False

    def _rows(self, chunk: tuple[IdTriple, ...]) -> tuple[Indices, npt.NDArray[np.bool_]]:
        """Numbers `[triples, ids]`, and which triples have a number for every id and their positive apart."""
        queries = self.queries.rows_of(triple.query for triple in chunk)
        passages = self.passages.rows_of(chain.from_iterable(triple.passages for triple in chunk))
        rows = np.column_stack([queries, passages.reshape(len(chunk), -1)])
        repeated = (rows[:, 2:] == rows[:, 1:2]).any(1)
        good = (rows >= 0).all(1) & ~repeated
        for number in np.flatnonzero(~good).tolist():
            triple, unknown = chunk[number], np.flatnonzero(rows[number] < 0)
            if not len(unknown):
                reason = f"the positive '{triple.passages[0]}' is also a negative"
            else:
                what, where = ("query", self.names[0]) if not unknown[0] else ("passage", self.names[1])
                reason = f"no {what} '{(triple.query, *triple.passages)[unknown[0]]}' in {where}"
            self.bad.reject(triple.path, triple.line, reason)
        return rows, good


def _what(shape: tuple[int, bool] | None) -> str:
    width, scored = shape or (0, False)
    return f"{width - 1} passage(s) {'with' if scored else 'without'} scores"


def _said(paths: Paths) -> str:
    return str(paths) if isinstance(paths, (str, Path)) else ", ".join(map(str, paths))


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, int]) -> npt.NDArray[Any]:
    if path.stat().st_size != shape[0] * shape[1] * dtype.itemsize:
        raise InterlinguaError(f"{path.parent}: damaged, its files do not agree. Remove the folder and build again.")
    return np.memmap(path, dtype, "r", shape=shape)


def _facts(folder: Path) -> dict[str, Any] | None:
    """The contents of `triples.json`, or None when the folder holds no store of this version."""
    try:
        facts = json.loads((folder / MARKER).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and facts.get("version") == VERSION else None
