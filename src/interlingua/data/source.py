"""From a recipe's `data:` entry to a stream: read, filter, keep on disk, draw batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interlingua.data.cloze import cloze
from interlingua.data.contexts import context_pair, with_context
from interlingua.data.filters import FilterReport, filter_parallel
from interlingua.data.linked import read_linked
from interlingua.data.readers import read_documents, read_parallel, read_questions, read_sentences, source_fingerprint
from interlingua.data.records import ContextPair, Document, LinkedDocuments, ParallelPair, QuestionPassage, Sentence
from interlingua.data.spans import link, span_pair
from interlingua.data.store import RecordStore, Store
from interlingua.data.stream import Stream, View
from interlingua.data.triples import TripleStore
from interlingua.errors import InterlinguaError
from interlingua.progress import say

OWN_OPTIONS = {"cloze": ("seed", "max_sentences", "max_chars", "keep"), "linked": ("source",)}
"""Options that are not the reader's but of what is made of its records."""
FILE_OPTIONS = ("queries", "passages", "source_documents", "target_documents")
"""Options that name files."""
KINDS = ("questions", "triples", "parallel", "sentences", "documents", "cloze", "contexts", "linked")


class DataSpec(BaseModel):
    """One entry of `data:`."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["questions", "triples", "parallel", "sentences", "documents", "cloze", "contexts",
                  "linked"] | None = Field(None, description="what is read; by default what the entry is called")
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

    def files(self) -> list[str]:
        """The paths, and those that the options name."""
        named = (self.options.get(key, []) for key in FILE_OPTIONS)
        return [*self.paths(), *(str(path) for one in named for path in (one if isinstance(one, list) else [one]))]


class TripleOptions(BaseModel):
    """The options of an entry of kind `triples`: where the texts of the ids are."""

    model_config = ConfigDict(extra="forbid")

    queries: str | list[str]
    passages: str | list[str] = Field(description="a translated collection with the same ids makes translate-train")
    lang: str = Field("en", description="of the queries")
    passage_lang: str | None = Field(None, description="of the passages, where it is another")
    scores: bool = Field(False, description="a TSV has a teacher's scores in two columns before the ids")


def read(name: str, spec: DataSpec) -> Iterator[Any]:
    """The records of one entry: read, filtered, restricted to its languages. An empty result is an error."""
    kind = spec.kind or name
    own = {key: value for key, value in spec.options.items() if key in OWN_OPTIONS.get(kind, ())}
    rest = {key: value for key, value in spec.options.items() if key not in own}
    common = {"format": spec.format, "on_bad_row": spec.on_bad_row, **rest}
    readers = {"questions": read_questions, "parallel": read_parallel, "sentences": read_sentences,
               "documents": read_documents, "cloze": read_documents, "contexts": read_documents,
               "linked": read_linked}
    if kind not in readers:
        raise InterlinguaError(f"data.{name}: say what it holds with kind: {', '.join(KINDS)}.")
    records: Iterable[Any] = (r for path in spec.paths() for r in readers[kind](path, **common))  # type: ignore[operator]
    report = FilterReport()
    if kind == "cloze":
        records = cloze(records, **own)
    if kind == "contexts":
        records = with_context(records)
    if kind == "linked":
        records = link(records, langs=spec.langs, **own)
    if kind == "parallel" and spec.filter:
        records = filter_parallel(records, report=report)
    count = 0
    for record in records:
        of_origin = spec.origins is None or getattr(record, "origin", None) in spec.origins
        if of_origin and (spec.langs is None or kind == "linked" or record.lang in spec.langs):
            count += 1
            yield record
    if kind == "parallel" and spec.filter:
        say(f"data.{name}: {report}")
    if count == 0:
        wanted = f" in {', '.join(spec.langs)}" if spec.langs else ""
        wanted += f" from {', '.join(spec.origins)}" if spec.origins else ""
        raise InterlinguaError(f"data.{name}: {', '.join(spec.paths())} gave no records{wanted}.")


def open_store(name: str, spec: DataSpec, folder: Path, build: bool = True) -> Store[Any]:
    """The entry's records on disk under `folder/name`, built unless they are there already for the same entry."""
    triples = (spec.kind or name) == "triples"
    if not build:
        return TripleStore(folder / name) if triples else RecordStore.open(folder / name)
    keys = spec.model_dump(include={"kind", "format", "langs", "origins", "filter", "options", "on_bad_row"})
    fingerprint = source_fingerprint(spec.files(), **keys)
    say(f"data.{name}: reading {', '.join(spec.paths())}")
    if triples:
        return _triples(name, spec, folder / name, fingerprint)
    return RecordStore.build(folder / name, read(name, spec), fingerprint=fingerprint)


def _triples(name: str, spec: DataSpec, folder: Path, fingerprint: str) -> TripleStore:
    if spec.langs is not None or spec.origins is not None:
        raise InterlinguaError(f"data.{name}: triples of ids are in one language (options.lang): leave out langs and "
                               "origins.")
    try:
        options = TripleOptions.model_validate(spec.options)
    except ValidationError as error:
        first = error.errors()[0]
        raise InterlinguaError(f"data.{name}.options.{first['loc'][0]}: {first['msg'].lower()}. Triples of ids take "
                               f"{', '.join(TripleOptions.model_fields)}.") from error
    return TripleStore.build(folder, spec.paths(), **options.model_dump(), format=spec.format,
                             on_bad_row=spec.on_bad_row, fingerprint=fingerprint)


def open_stream(name: str, store: Store[Any], spec: DataSpec, seed: int) -> Stream[Any]:
    """Endless batches of the entry's records; of contexts, a pair of neighbours out of each document; of linked
    documents, their texts and where to cut them."""
    def pair(document: Document, number: int, random: np.random.Generator) -> ContextPair:
        return context_pair(document, number, spec.window, random)

    views: dict[str, View] = {"contexts": pair, "linked": span_pair}
    return Stream(store, spec.batch, seed=seed, alpha=spec.alpha, limit_per_lang=spec.limit,
                  one_language_per_batch=spec.one_language, view=views.get(spec.kind or name))


def texts_of(store: Store[Any], most: int, seed: int = 0, alpha: float = 0.0) -> Iterator[str]:
    """The texts of up to `most` records for learning a vocabulary: of every language, in turn, a share ∝ n^alpha of
    what is asked for (or all it has), records in seeded order."""
    sizes = {lang: len(store.languages[lang]) for lang in sorted(store.languages)}
    total = sum(size**alpha for size in sizes.values())
    for lang, size in sizes.items():
        share = max(1, int(most * size**alpha / total))
        stream = Stream(store, 1, seed=seed, alpha=0.0, langs=[lang])
        for record in islice(stream, min(share, size)):
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
    elif isinstance(record, LinkedDocuments):
        yield from (*record.source.sentences, *record.target.sentences)
    else:
        yield from record.sentences
