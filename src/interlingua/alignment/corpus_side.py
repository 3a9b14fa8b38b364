"""A side of a comparable corpus: its distinct sentences, and their vectors on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.readers.bad_rows import BadRow, json_object, lang_of, string
from interlingua.data.readers.bucc import read_sentences
from interlingua.data.readers.source import columns, head
from interlingua.errors import InterlinguaError
from interlingua.files import read_lines
from interlingua.progress import track
from interlingua.text.languages import normalise_code

WINDOW = 16_384  # sentences encoded together


@dataclass
class CorpusSide:
    """Distinct sentences in the order in which they first come. `ids` are those of first comings, `repeated` says which
    sentences came again; `rows`, `empty` and `zero` count what was given, what was blank, and sentences whose vector is
    zero (a static encoder that knows no part of them)."""

    name: str
    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    repeated: list[bool] = field(default_factory=list)
    rows: int = 0
    empty: int = 0
    zero: int = 0

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]], name: str) -> CorpusSide:
        """From `(id, sentence)`. White space around a sentence does not count."""
        side = cls(name)
        places: dict[str, int] = {}
        for identifier, sentence in rows:
            side.rows += 1
            text = sentence.strip()
            if not text:
                side.empty += 1
            elif text in places:
                side.repeated[places[text]] = True
            else:
                places[text] = len(side.texts)
                side.texts.append(text)
                side.ids.append(identifier)
                side.repeated.append(False)
        return side

    @classmethod
    def read(cls, path: str | Path, lang: str | None = None) -> CorpusSide:
        """From a file of one sentence a line, of `id <tab> sentence`, or of jsonl, gzipped or not. A jsonl row has a
        `text` (a sentence) or is a document of `sentences`; with `lang`, rows that name another language are left to
        whoever reads that one. An id that is not given is the number of the line, from 1 (of a document's sentences
        `line.sentence`)."""
        side = cls.of(read_rows(Path(path), lang), str(path) if lang is None else f"{path} ({lang})")
        if not side.texts:
            raise InterlinguaError(f"{side.name}: holds no sentence ({side.rows:,} lines, all blank).")
        return side

    def encode(self, encode: Callable[..., Any], path: Path, *, lang: str | None = None, half: bool = False
               ) -> NDArray[Any]:
        """Encode all sentences, a window at a time, into the .npy file at `path`: [sentences, dim] float32, or float16
        with `half`; returns it memory-mapped. `encode(texts)` gives vectors; it is told `lang` where that is given.
        A sentence whose vector is zero is left out of the side, and counted."""
        options = {} if lang is None else {"lang": lang}
        vectors: np.memmap[Any, Any] | None = None
        dtype = np.float16 if half else np.float32
        keep: list[int] = []
        for start in track(range(0, len(self.texts), WINDOW), f"encode {self.name} (of {WINDOW:,} sentences)"):
            found = np.asarray(encode(self.texts[start : start + WINDOW], **options), dtype=dtype)
            if vectors is None:
                vectors = np.lib.format.open_memmap(path, "w+", dtype, (len(self.texts), found.shape[1]))
            known = np.flatnonzero(found.any(axis=1))
            vectors[len(keep) : len(keep) + len(known)] = found[known]
            keep += (known + start).tolist()
        if vectors is None or not keep:
            raise InterlinguaError(f"{self.name}: has no sentence of which the encoder knows a part.")
        vectors.flush()
        self.zero = len(self.texts) - len(keep)
        self.texts, self.ids = [self.texts[i] for i in keep], [self.ids[i] for i in keep]
        self.repeated = [self.repeated[i] for i in keep]
        stored: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return stored[: len(keep)]

    def said(self) -> str:
        """What became of the rows, in words."""
        parts = [f"{self.rows:,} lines", f"{len(self.texts):,} distinct sentences"]
        again = self.rows - self.empty - self.zero - len(self.texts)
        parts += [f"{count:,} {what}" for count, what in
                  ((again, "came again"), (self.empty, "blank"), (self.zero, "with a zero vector")) if count]
        return f"{self.name}: {', '.join(parts)}"


def read_rows(path: Path, lang: str | None = None) -> Iterator[tuple[str, str]]:
    """`(id, sentence)` of each line, also of a blank one; the format is recognised by the beginning of the file."""
    start = head(path)
    if start.lstrip().startswith("{"):
        for number, line in read_lines(path):
            yield from _parsed(path, number, line, lang)
    elif columns(start) == {2}:
        yield from read_sentences(path)
    else:
        for number, line in read_lines(path):
            if "\t" in line:
                raise InterlinguaError(f"{path}, line {number}: a tab. Give a file of one sentence a line, of id <tab> "
                                       "sentence, or of jsonl with text.")
            yield str(number), line


def _parsed(path: Path, number: int, line: str, lang: str | None) -> list[tuple[str, str]]:
    if not line.strip():
        return [(str(number), "")]
    try:
        row = json_object(line)
        if lang is not None and row.get("lang") and lang_of(row, None) != normalise_code(lang):
            return []
        name = string(row, "id", str(number))
        sentences = row.get("sentences")
        if sentences is None:
            return [(name, string(row, "text") if row.get("text") != "" else "")]
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            raise BadRow("'sentences' must be a list of texts")
        return [(f"{name}.{place}", sentence) for place, sentence in enumerate(sentences, 1)]
    except BadRow as bad:
        raise InterlinguaError(f"{path}, line {number}: {bad}. Mend the line or take it out.") from bad
