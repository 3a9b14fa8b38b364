"""From a recipe's `data:` entry to a stream: read, filter, keep on disk, draw batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from interlingua.data.cloze import cloze
from interlingua.data.contexts import context_pair, with_context
from interlingua.data.filters import FilterReport, filter_parallel
from interlingua.data.readers import read_documents, read_parallel, read_questions, read_sentences, source_fingerprint
from interlingua.data.records import ContextPair, Document, ParallelPair, QuestionPassage, Sentence
from interlingua.data.store import RecordStore
from interlingua.data.stream import Stream
from interlingua.errors import InterlinguaError
from interlingua.progress import say

CLOZE_OPTIONS = ("seed", "max_sentences", "max_chars", "keep")
KINDS = ("questions", "parallel", "sentences", "documents", "cloze", "contexts")


class DataSpec(BaseModel):
    """One entry of `data:`."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["questions", "parallel", "sentences", "documents", "cloze", "contexts"] | None = Field(
        None, description="what is read; by default what the entry is called")
    path: str | list[str] = Field(description="files, folders or globs; 'encyclopedia:train' is bundled")
    format: str | None = None
    batch: int = Field(48, gt=0)
    langs: list[str] | None = Field(None, description="keep these languages only (for pairs: of the foreign side)")
    origins: list[str] | None = Field(None, description="parallel text: keep pairs of these sources only")
    alpha: float = Field(1.0, ge=0, description="languages are drawn with p ∝ n^alpha; 1: as they come, 0: equally")
    limit: int | None = Field(None, gt=0, description="records per language (nested seeded subsets)")
    one_language: bool = Field(False, description="each batch in one language")
    window: int = Field(5, ge=2, description="contexts: the sentences of a document that count as neighbours")
    filter: bool = Field(
        True, description="parallel text: drop equal, lopsided, short and repeated pairs, and say how many")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the reader, such as threshold: 1.04")
    on_bad_row: Literal["error", "skip"] = "error"

    def paths(self) -> list[str]:
        """The paths as a list."""
        return [self.path] if isinstance(self.path, str) else self.path


def read(name: str, spec: DataSpec) -> Iterator[Any]:
    """The records of one entry: read, filtered, restricted to its languages. An empty result is an error."""
    kind = spec.kind or name
    of_cloze = {key: value for key, value in spec.options.items() if kind == "cloze" and key in CLOZE_OPTIONS}
    rest = {key: value for key, value in spec.options.items() if key not in of_cloze}
    common = {"format": spec.format, "on_bad_row": spec.on_bad_row, **rest}
    readers = {"questions": read_questions, "parallel": read_parallel, "sentences": read_sentences,
               "documents": read_documents, "cloze": read_documents, "contexts": read_documents}
    if kind not in readers:
        raise InterlinguaError(f"data.{name}: say what it holds with kind: {', '.join(KINDS)}.")
    records: Iterable[Any] = (r for path in spec.paths() for r in readers[kind](path, **common))  # type: ignore[operator]
    report = FilterReport()
    if kind == "cloze":
        records = cloze(records, **of_cloze)
    if kind == "contexts":
        records = with_context(records)
    if kind == "parallel" and spec.filter:
        records = filter_parallel(records, report=report)
    count = 0
    for record in records:
        of_origin = spec.origins is None or getattr(record, "origin", None) in spec.origins
        if of_origin and (spec.langs is None or record.lang in spec.langs):
            count += 1
            yield record
    if kind == "parallel" and spec.filter:
        say(f"data.{name}: {report}")
    if count == 0:
        wanted = f" in {', '.join(spec.langs)}" if spec.langs else ""
        wanted += f" from {', '.join(spec.origins)}" if spec.origins else ""
        raise InterlinguaError(f"data.{name}: {', '.join(spec.paths())} gave no records{wanted}.")


def open_store(name: str, spec: DataSpec, folder: Path, build: bool = True) -> RecordStore[Any]:
    """The entry's records on disk under `folder/name`, built unless they are there already for the same entry."""
    if not build:
        return RecordStore.open(folder / name)
    keys = spec.model_dump(include={"kind", "format", "langs", "origins", "filter", "options", "on_bad_row"})
    fingerprint = source_fingerprint(spec.paths(), **keys)
    say(f"data.{name}: reading {', '.join(spec.paths())}")
    return RecordStore.build(folder / name, read(name, spec), fingerprint=fingerprint)


def open_stream(name: str, store: RecordStore[Any], spec: DataSpec, seed: int) -> Stream[Any]:
    """Endless batches of the entry's records; of contexts, a pair of neighbours out of each document."""
    def pair(document: Document, number: int, random: np.random.Generator) -> ContextPair:
        return context_pair(document, number, spec.window, random)

    view = pair if (spec.kind or name) == "contexts" else None
    return Stream(store, spec.batch, seed=seed, alpha=spec.alpha, limit_per_lang=spec.limit,
                  one_language_per_batch=spec.one_language, view=view)


def texts_of(store: RecordStore[Any], most: int, seed: int = 0) -> Iterator[str]:
    """The texts of up to `most` records for learning a vocabulary: every language in turn, records in seeded order."""
    per_language = max(1, most // max(1, len(store.languages)))
    for lang in sorted(store.languages):
        stream = Stream(store, 1, seed=seed, alpha=0.0, langs=[lang])
        for record in islice(stream, min(per_language, len(store.languages[lang]))):
            yield from texts_of_record(record[0])


def texts_of_record(record: Any) -> Iterator[str]:
    """Every text in a record."""
    if isinstance(record, ParallelPair):
        yield from (record.source, record.target)
    elif isinstance(record, QuestionPassage):
        yield record.question
        yield from (passage.text for passage in record.positives)
    elif isinstance(record, Sentence):
        yield record.text
    else:
        yield from record.sentences
