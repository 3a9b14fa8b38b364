"""From a recipe's `data:` entry to a stream: read, filter, keep on disk, draw batches."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from interlingua.array_folder import ArrayFolder, ArrayWriter, Layout
from interlingua.data.contexts import cloze, context_pair, with_context
from interlingua.data.encyclopedia import is_encyclopedia
from interlingua.data.filters import FilterReport, filter_parallel
from interlingua.data.linked import link, read_linked, span_pair
from interlingua.data.readers import read_documents, read_parallel, read_questions, read_sentences, source_fingerprint
from interlingua.data.readers.rows import BadRows
from interlingua.data.readers.source import NoOptions, PathLike, expand
from interlingua.data.readers.triples import IdTriple, id_passages, id_queries, read_id_triples
from interlingua.data.records import (
    ContextPair,
    Document,
    LinkedDocuments,
    ParallelPair,
    Passage,
    Query,
    QuestionPassage,
    Sentence,
    batched,
)
from interlingua.data.store import Indices, KeyedStore, RecordStore, Store
from interlingua.data.stream import Stream, View
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.progress import track
from interlingua.settings import Settings
from interlingua.text.detection import can_detect
from interlingua.text.languages import code_of_pair, normalise_code

logger = logging.getLogger(__name__)

Paths = PathLike | Sequence[PathLike]
TRIPLES = Layout("triples", 2, "triples")
CHUNK = 1 << 14


class TripleStore:
    """A store of `QuestionPassage` for streams, as `RecordStore` is, in an `ArrayFolder`: `queries` and `passages` hold
    each text once, `rows` (int64) for each triple the numbers of its query, its positive and its negatives, `scores`
    (float32) a teacher's scores, if there are any. Everything large is memory-mapped.

    The language of a record is that of its query. All triples have the same number of passages.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with ArrayFolder.open(folder, TRIPLES) as arrays:
            self.fingerprint: str = arrays.facts["fingerprint"]
            self.digest: str = arrays.facts["digest"]
            self.queries: KeyedStore[Query] = KeyedStore(self.folder / "queries")
            self.passages: KeyedStore[Passage] = KeyedStore(self.folder / "passages")
            self.rows: Indices = arrays.array("rows", "int64", (None, None))
            count, width = self.rows.shape
            self._scores: npt.NDArray[np.float32] | None = None
            if arrays.facts["scored"]:
                self._scores = arrays.array("scores", "float32", (count, width - 1))
            self.languages: dict[str, range] = {arrays.facts["lang"]: range(count)}

    @classmethod
    def build(
        cls,
        folder: str | Path,
        path: Paths,
        *,
        queries: Paths,
        passages: Paths,
        lang: str = "en",
        passage_lang: str | None = None,
        scores: bool = False,
        format: str | None = None,
        on_bad_row: str = "error",
        fingerprint: str = "",
    ) -> TripleStore:
        """Write the store of the triples in `path` and open it; or open what is there when it has the same
        `fingerprint` (never when that is ""). Holds some 40 bytes a passage in memory, and nothing of the triples.

        `queries` and `passages` are the files of their texts, in the languages `lang` and `passage_lang`
        (the same unless given). Another collection with the same ids, a translated one, makes translate-train of the
        same triples. Formats of triples: `readers.triples.TRIPLES`; `scores` says that a TSV has two columns of them.

        A row with an id that has no text, another number of passages than the first, or its positive among the
        negatives is a bad row. A kill leaves what was there before, or nothing; a damaged store is built again.
        """
        if fingerprint:
            with suppress(NotFound, Damaged):
                store = cls(folder)
                if store.fingerprint == fingerprint:
                    return store
        bad = BadRows(on_bad_row)
        lang = normalise_code(lang)
        passage_lang = normalise_code(passage_lang) if passage_lang else lang
        with ArrayFolder.write(folder, TRIPLES) as arrays:
            try:
                triples = read_id_triples(path, bad, format=format, scores=scores)
                query_texts = (query for file in expand(queries) for query in id_queries(file, bad, lang))
                texts = (passage for file in expand(passages) for passage in id_passages(file, bad, passage_lang))
                names = _said(queries), _said(passages)
                arrays.facts |= {"fingerprint": fingerprint, "lang": lang}
                _write(
                    arrays,
                    track(triples, "triples"),
                    KeyedStore.build(arrays.path / "queries", query_texts, Query, names[0]),
                    KeyedStore.build(arrays.path / "passages", texts, Passage, names[1]),
                    names,
                    bad,
                )
            finally:
                bad.report()
        return cls(folder)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> QuestionPassage:
        index = int(index)
        query_row, positive, *negatives = self.rows[index].tolist()
        query = self.queries[query_row]
        scores = () if self._scores is None else tuple(self._scores[index].tolist())
        return QuestionPassage(
            query.text,
            (self.passages[positive],),
            tuple(self.passages[row] for row in negatives),
            query.lang,
            query.id,
            scores,
        )


def _write(
    folder: ArrayWriter,
    triples: Iterable[IdTriple],
    queries: KeyedStore[Query],
    passages: KeyedStore[Passage],
    names: tuple[str, str],
    bad: BadRows,
) -> None:
    """Look up the ids of triples, a chunk at a time, and append their numbers to the arrays of a store. `names` are
    those of the files of `queries` and `passages`."""
    digest = hashlib.blake2b((queries.records.digest + passages.records.digest).encode(), digest_size=16)
    first: IdTriple | None = None
    count = 0

    def fits(triple: IdTriple) -> bool:
        """Whether the triple has as many passages as the first one, and scores as that one has."""
        nonlocal first
        first = first or triple
        if len(triple.passages) != len(first.passages) or bool(triple.scores) != bool(first.scores):
            bad.reject(triple.path, triple.line, f"{_shape(triple)}, but the first row had {_shape(first)}")
            return False
        return True

    for chunk in batched(filter(fits, triples), CHUNK):
        rows = np.column_stack(
            [
                queries.rows_of(triple.query for triple in chunk),
                passages.rows_of(chain.from_iterable(triple.passages for triple in chunk)).reshape(len(chunk), -1),
            ]
        )
        valid = (rows >= 0).all(1) & ~(rows[:, 2:] == rows[:, 1:2]).any(1)
        for number in np.flatnonzero(~valid).tolist():
            triple, unknown = chunk[number], np.flatnonzero(rows[number] < 0)
            if not len(unknown):
                reason = f"the positive '{triple.passages[0]}' is also a negative"
            else:
                kind, source = ("query", names[0]) if not unknown[0] else ("passage", names[1])
                reason = f"no {kind} '{(triple.query, *triple.passages)[unknown[0]]}' in {source}"
            bad.reject(triple.path, triple.line, reason)
        scores = np.array([triple.scores for triple, ok in zip(chunk, valid, strict=True) if ok], np.float32)
        for name, values in (("rows", rows[valid]), ("scores", scores)):
            if values.size:
                folder.add(name, values)
            digest.update(values.tobytes())
        count += int(valid.sum())
    if first is None or not count:
        raise BadInput("no triples: the file is empty or every row was left out. Check the source.")
    folder.facts |= {"scored": bool(first.scores), "digest": digest.hexdigest()}


def _shape(triple: IdTriple) -> str:
    return f"{len(triple.passages)} passage(s) {'with' if triple.scores else 'without'} scores"


def _said(paths: Paths) -> str:
    return str(paths) if isinstance(paths, (str, Path)) else ", ".join(map(str, paths))


class ClozeOptions(Settings):
    """The options of an entry of kind `cloze` that are not its reader's."""

    seed: int = Field(0, description="of the sentences that are drawn")
    max_sentences: int = Field(8, ge=2, description="sentences of a window")
    max_chars: int = Field(1_200, gt=0, description="characters of a window")
    keep: float = Field(0.1, ge=0, le=1, description="how often the question stays in its passage")


class LinkOptions(Settings):
    """The options of an entry of kind `linked` that are not its reader's."""

    source: str = Field("en", description="the language that is linked with every other; any: every two")


OWN_OPTIONS: dict[str, type[Settings]] = {"cloze": ClozeOptions, "linked": LinkOptions}
"""Options that are not the reader's but of what is made of its records."""
FILE_OPTIONS = ("queries", "passages", "source_documents", "target_documents")
"""Options that name files."""
Kind = Literal["questions", "triples", "parallel", "sentences", "documents", "cloze", "contexts", "linked"]


class DataSpec(Settings):
    """One entry of `data:`."""

    kind: Kind | None = Field(None, description="what is read; by default what the entry is called")
    path: str | list[str] = Field(description="files, folders or globs; 'encyclopedia:train' is bundled")
    format: str | None = Field(None, description="the format of the files; none: recognised by their content")
    batch: int = Field(48, gt=0, le=1_000_000, description="records a step")
    langs: list[str] | None = Field(None, description="keep these languages only (for pairs: of the foreign side)")
    origins: list[str] | None = Field(None, description="parallel text: keep pairs of these sources only")
    alpha: float = Field(1.0, ge=0, description="languages are drawn with p ∝ n^alpha; 1: as they come, 0: equally")
    limit: int | None = Field(None, gt=0, description="records per language (nested seeded subsets)")
    one_language: bool = Field(False, description="each batch in one language")
    window: int = Field(5, ge=2, description="contexts: the sentences of a document that count as neighbours")
    filter: bool | Literal["languages"] = Field(
        True,
        description="parallel text: drop equal, lopsided, short and repeated pairs, and say how many; `languages`: also"
        " those with a side in another language than its own",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="options of the reader, such as threshold: 1.04")
    on_bad_row: Literal["error", "skip"] = Field(
        "error", description="error: stop at a row that cannot be used; skip: count and list such rows"
    )

    @field_validator("langs")
    @classmethod
    def _codes(cls, langs: list[str] | None) -> list[str] | None:
        """As records have them: "zh-CN" is "zh", "iw" is "he". The pairs of two other languages than English are called
        by both, such as "ko-tr", in either order."""
        return langs if langs is None else [code_of_pair(tag) or normalise_code(tag) for tag in langs]

    def paths(self) -> list[str]:
        """The paths as a list."""
        return [self.path] if isinstance(self.path, str) else self.path

    def files(self) -> list[str]:
        """The paths, and those that the options name."""
        values = (self.options.get(key, []) for key in FILE_OPTIONS)
        return [*self.paths(), *(str(path) for item in values for path in (item if isinstance(item, list) else [item]))]


class TripleOptions(Settings):
    """The options of an entry of kind `triples`: where the texts of the ids are."""

    queries: str | list[str] = Field(description="files of the queries")
    passages: str | list[str] = Field(description="a translated collection with the same ids makes translate-train")
    lang: str = Field("en", description="of the queries")
    passage_lang: str | None = Field(None, description="of the passages, where it is another")
    scores: bool = Field(False, description="a TSV has a teacher's scores in two columns before the ids")


READERS: dict[str, Callable[..., Iterable[Any]]] = {
    "questions": read_questions,
    "parallel": read_parallel,
    "sentences": read_sentences,
    "documents": read_documents,
    "cloze": read_documents,
    "contexts": read_documents,
    "linked": read_linked,
}
"""The reader of an entry's files, by the kind of record that they hold."""
STREAMS: dict[str, tuple[Kind, ...]] = {
    "questions": ("questions", "triples", "cloze"),
    "parallel": ("parallel",),
    "sentences": ("sentences",),
    "contexts": ("contexts",),
    "linked": ("linked",),
}
"""The kinds of data that give the records of an objective's stream."""


def check_kind(where: str, name: str, spec: DataSpec, stream: str, reader: str) -> None:
    """Raise BadInput unless the entry `where` of a recipe, called `name`, gives the records of `stream` that `reader`
    reads."""
    kind = spec.kind or name
    if kind not in get_args(Kind):
        raise _without_kind(where)
    if kind not in STREAMS[stream]:
        fitting = " or ".join(", ".join(STREAMS[stream]).rsplit(", ", 1))
        raise BadInput(f"{where} is of kind {kind}, and {reader} reads {stream}. Give data of kind {fitting}.")


def _without_kind(where: str) -> BadInput:
    return BadInput(f"{where}: say what it holds with kind: {', '.join(get_args(Kind))}.")


def read(name: str, spec: DataSpec) -> Iterator[Any]:
    """The records of one entry: read, restricted to its languages and origins, filtered. No record is an error."""
    kind = spec.kind or name
    settings = OWN_OPTIONS.get(kind, NoOptions)
    given = {key: value for key, value in spec.options.items() if key in settings.model_fields}
    rest = {key: value for key, value in spec.options.items() if key not in given}
    own = settings.checked(given, f"data.{name}.options").model_dump()
    if conflicts := rest.keys() & {"path", "format", "on_bad_row"}:
        raise BadInput(f"data.{name}.options: {min(conflicts)} is a key of its own: data.{name}.{min(conflicts)}.")
    if spec.filter == "languages" and not can_detect():
        raise NotFound(
            f"data.{name}.filter: languages needs py3langid: pip install 'interlingua[index]'. Or write filter: true."
        )
    options = {"format": spec.format, "on_bad_row": spec.on_bad_row, **rest}
    if kind not in READERS:
        raise _without_kind(f"data.{name}")
    records: Iterable[Any] = (r for source in _sources(kind, spec.paths()) for r in READERS[kind](source, **options))
    report = FilterReport()
    if kind == "cloze":
        records = cloze(records, **own)
    if kind == "contexts":
        records = with_context(records)
    if kind == "linked":
        records = link(records, langs=spec.langs, **own)
    count = 0
    wanted = {"lang": spec.langs if kind != "linked" else None, "origin": spec.origins}
    chosen = {field: values for field, values in wanted.items() if values is not None}
    restriction = f" in {', '.join(spec.langs)}" if spec.langs else ""
    restriction += f" from {', '.join(spec.origins)}" if spec.origins else ""
    found = {field: Counter[str]() for field in chosen}
    turned = {"-".join(reversed(lang.split("-"))): lang for lang in spec.langs or () if "-" in lang}

    def value(record: Any, field: str) -> str:
        text = getattr(record, field, "")
        return turned.get(text, text) if field == "lang" and text not in chosen[field] else text

    records = (r for r in records if all(value(r, field) in values for field, values in chosen.items()))
    if kind == "parallel" and spec.filter:  # now, as a pair that is wanted is no duplicate of one that is not
        records = filter_parallel(records, languages=spec.filter == "languages", report=report)
    for record in records:
        count += 1
        for field in chosen:
            found[field][value(record, field)] += 1
        yield record
    if kind == "parallel" and spec.filter:
        logger.info(f"data.{name}{restriction}: {report}")
    for field, values in chosen.items() if count else ():
        parts = ", ".join(f"{value} {found[field][value]:,}" for value in values)
        level = logging.INFO if all(found[field][value] for value in values) else logging.WARNING
        logger.log(level, f"data.{name}: {count:,} taken, {'in' if field == 'lang' else 'from'} {parts}")
    if count == 0:
        raise BadInput(f"data.{name}: {', '.join(spec.paths())} gave no records{restriction}.")


def _sources(kind: str, paths: list[str]) -> Iterable[str | list[str]]:
    """The sources that a reader is given one by one: a path; of parallel text all files, as x.ar and x.en are one."""
    if kind not in ("parallel", "sentences") or len(paths) == 1:
        return paths
    files = [path for path in paths if not is_encyclopedia(path)]
    sources: list[str | list[str]] = []
    for path in paths:
        if is_encyclopedia(path):
            sources.append(path)
        elif files not in sources:
            sources.append(files)
    return sources


def open_store(name: str, spec: DataSpec, folder: Path, build: bool = True) -> Store[Any]:
    """The entry's records on disk under `folder/name`, built unless they are there already for the same entry."""
    triples = (spec.kind or name) == "triples"
    if not build:
        return TripleStore(folder / name) if triples else RecordStore.open(folder / name)
    keys = spec.model_dump(include={"kind", "format", "langs", "origins", "filter", "options", "on_bad_row"})
    fingerprint = source_fingerprint(spec.files(), **keys)
    logger.info(f"data.{name}: reading {', '.join(spec.paths())}")
    if triples:
        return _triples(name, spec, folder / name, fingerprint)
    return RecordStore.build(folder / name, read(name, spec), fingerprint=fingerprint)


def _triples(name: str, spec: DataSpec, folder: Path, fingerprint: str) -> TripleStore:
    if spec.langs is not None or spec.origins is not None:
        raise BadInput(f"data.{name}: triples of ids are in one language (options.lang): leave out langs and origins.")
    options = TripleOptions.checked(spec.options, f"data.{name}.options")
    return TripleStore.build(
        folder,
        spec.paths(),
        **options.model_dump(),
        format=spec.format,
        on_bad_row=spec.on_bad_row,
        fingerprint=fingerprint,
    )


def open_stream(name: str, store: Store[Any], spec: DataSpec, seed: int) -> Stream[Any]:
    """Endless batches of the entry's records; of contexts, a pair of neighbours out of each document; of linked
    documents, their texts and where to cut them."""

    def pair(document: Document, number: int, random: np.random.Generator) -> ContextPair:
        return context_pair(document, number, spec.window, random)

    views: dict[str, View] = {"contexts": pair, "linked": span_pair}
    return Stream(
        store,
        spec.batch,
        seed=seed,
        alpha=spec.alpha,
        limit_per_lang=spec.limit,
        one_language_per_batch=spec.one_language,
        view=views.get(spec.kind or name),
    )


def texts_of(store: Store[Any], most: int, seed: int = 0, alpha: float = 0.0) -> Iterator[str]:
    """The texts of `texts_by_language`, one language after another."""
    for _, texts in texts_by_language(store, most, seed, alpha):
        yield from texts


def texts_by_language(
    store: Store[Any], most: int, seed: int = 0, alpha: float = 0.0
) -> Iterator[tuple[str, Iterator[str]]]:
    """The texts of up to `most` records for learning a vocabulary: of every language, in turn, a share ∝ n^alpha of
    what is asked for (or all it has), records in seeded order. A record's language is that of all its texts."""
    sizes = {lang: len(store.languages[lang]) for lang in sorted(store.languages)}
    total = sum(size**alpha for size in sizes.values())
    for lang, size in sizes.items():
        share = max(1, int(most * size**alpha / total))
        stream = Stream(store, 1, seed=seed, alpha=0.0, langs=[lang])
        records = islice(stream, min(share, size))
        yield lang, chain.from_iterable(texts_of_record(record) for (record,) in records)


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
