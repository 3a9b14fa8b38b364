"""Writing an index in Milvus: a new one, passages added, replaced and deleted, and all term weights made anew."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from interlingua.data.keys import Keys
from interlingua.data.records import Passage, decode, encode
from interlingua.errors import BadInput
from interlingua.index.metadata import analyzers_of, terms_of
from interlingua.index.milvus.collection import PASSAGE, Address, passage_of, row_of
from interlingua.index.milvus.version import SLICE, IndexRecord, IndexVersion
from interlingua.index.ranking import distinct
from interlingua.index.store import CHUNK, BuildSettings, chunks, encode_passages
from interlingua.models.protocols import Encoder
from interlingua.progress import track
from interlingua.retrieval.bm25.postings import NONE, document_vector, length_of, term_number
from interlingua.retrieval.retriever import embed_passages

if TYPE_CHECKING:
    from interlingua.data.files.walk import SourceNames

logger = logging.getLogger(__name__)


FORMAT = 2
TRACKED = f"encode and write ({CHUNK:,} passages each)"
FIELDS_ROOM = 8_000  # bytes for the keys of metadata there
ROOM = 32_000  # bytes for the names of sources, in the JSON that Milvus keeps 64 KiB of


@dataclass
class Counts:
    """The counts of all passages for BM25: their number, the sum of their lengths, the number that hold each term; and
    the passages of each language, and with each key of metadata (None where that is not counted)."""

    passages: int = 0
    length: int = 0
    found_in: Counter[int] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] | None = field(default_factory=Counter)

    def add(self, lang: str, length: int, numbers: Iterable[int], keys: Iterable[str], by: int = 1) -> None:
        """Count a passage, or with `by` −1 no longer."""
        self.passages += by
        self.length += by * length
        self.languages[lang] += by
        if self.fields is not None:
            for key in keys:
                self.fields[key] += by
        for number in numbers:
            if number != NONE:
                self.found_in[number] += by

    def add_passage(self, passage: Passage) -> None:
        """Count a passage by its text."""
        terms = terms_of(passage)
        self.add(passage.lang, length_of(terms), set(map(term_number, terms)), passage.metadata)

    def add_row(self, row: Mapping[str, Any], by: int = 1) -> None:
        """Count a passage by its row."""
        self.add(row["lang"], row["length"], map(int, row["sparse"]), dict(map(json.loads, row["tags"])), by)


def write_index(
    encoder: Encoder, passages: Iterable[Passage], address: Address, client: Any, settings: BuildSettings
) -> IndexVersion:
    """Make a new version of the index of `passages` (read once) and let the alias name it when it is whole.

    The passages are counted first, and lie in a temporary file meanwhile: the weights need the mean length. A build
    that was stopped is continued where its rows end if model and passages are the same.
    """
    from interlingua.models.folder import fingerprint

    options = settings.encode_options
    with tempfile.TemporaryFile() as spool:
        counts, source = _spooled(passages, spool)
        spool.seek(0)
        dim = embed_passages(encoder, [decode(Passage, spool.readline())], **options).shape[1]
        about = {
            "format": FORMAT,
            "model": settings.model,
            "fingerprint": fingerprint(encoder),
            "dim": dim,
            "similarity": encoder.similarity,
            "k1": settings.k1,
            "b": settings.b,
            "mean_length": counts.length / counts.passages,
            "source": source,
            **_counted(counts),
            "next": counts.passages + 1,
            "writing": True,
            "sources": {} if settings.names is None else _fitting_sources(settings.names),
        }
        store, start = _target(address, client, about)
        spool.seek(0)
        rows = (decode(Passage, line) for line in islice(spool, start, None))
        number = start + 1
        for part in track(chunks(rows), TRACKED, -(-(counts.passages - start) // CHUNK)):
            store.upsert(_rows(encoder, part, range(number, number + len(part)), about, options))
            number += len(part)
        store.write_counts(counts.found_in)
        store.write_about({**about, "writing": False})
        store.publish()
    return store


def write_passages(
    store: IndexVersion,
    encoder: Encoder,
    changes: Iterable[Sequence[tuple[Passage, Mapping[str, Any] | None]]],
    names: SourceNames | None,
) -> int:
    """Write passages, each in the place of a row or None; return their number. Each write of 256 is durable and can be
    found before the next begins. `names` as in `Index.add`."""
    count, saved_names = 0, dict[str, str]()
    for chunk in track(changes, TRACKED):
        about = store.about()
        new_numbers = iter(range(about["next"], about["next"] + len(chunk)))
        numbers = [next(new_numbers) if row is None else row["number"] for _, row in chunk]
        about["next"] = max(about["next"], *(number + 1 for number in numbers))
        if names is not None:
            about["sources"], saved_names = _fitting_sources(names), dict(names.known)
        rows = _rows(encoder, [passage for passage, _ in chunk], numbers, about, {})
        _change(store, about, [row for _, row in chunk if row is not None], rows)
        count += len(chunk)
    if names is not None and names.known != saved_names:  # those of sources without a new passage
        store.write_about({**store.about(), "sources": _fitting_sources(names)})
    return count


def _fitting_sources(names: SourceNames) -> dict[str, str]:
    """The names of sources to keep. Where there is no room for all, those that are needed most: folders, whose files
    are named after them, and short ones."""
    sources = names.known
    selection: dict[str, str] = {}
    room = ROOM
    for name, place in sorted(sources.items(), key=lambda pair: (os.path.isfile(pair[1]), len(pair[1]), pair)):
        room -= len(json.dumps([name, place])) + 2
        if room < 0:
            logger.warning(
                f"there is no room in Milvus to remember where all {len(sources):,} sources are: give them by the same "
                "paths next time"
            )
            break
        selection[name] = place
    return dict(sorted(selection.items()))


def delete_rows(store: IndexVersion, rows: Sequence[Mapping[str, Any]]) -> None:
    """Remove rows."""
    _change(store, store.about(), rows, [])


def compact(store: IndexVersion) -> None:
    """Count all passages anew, make the weights of their terms with the mean length of now, and let Milvus tidy up.

    This also mends the counts after a writer was stopped between a passage and its counts.
    """
    about = {**store.about(), "writing": True}
    store.write_about(about)
    counts = Counts()
    for rows in store.scan(about["next"], PASSAGE):
        for row in rows:
            counts.add_passage(passage_of(row))
    about |= {**_counted(counts), "round": about["round"] + 1}
    if counts.passages:  # an empty index has no mean length: those that come are weighed by the last one
        about["mean_length"] = counts.length / counts.passages
    for rows in store.scan(about["next"], [*PASSAGE, "vector", "subwords"]):
        store.upsert([_row(row["number"], passage_of(row), row["vector"], about, row["subwords"]) for row in rows])
    store.write_counts(counts.found_in, about["round"])
    store.drop_counts_before(about["round"])
    store.write_about({**about, "writing": False})
    store.compact()


def _change(
    store: IndexVersion, about: IndexRecord, old_rows: Iterable[Mapping[str, Any]], new_rows: Sequence[dict[str, Any]]
) -> None:
    """Put `new_rows` in the place of `old_rows` and count again. Rows come first: a writer that is stopped may leave
    counts that are a little off (which `writing` then tells, and `compact` mends), but loses no passage."""
    fields: Counter[str] | None = Counter(about["fields"]) if "fields" in about else None
    change = Counts(about["passages"], about["length"], Counter(), Counter(about["languages"]), fields)
    numbers = {row["number"] for row in new_rows}
    gone_numbers = []
    for row in old_rows:
        change.add_row(row, -1)
        gone_numbers += [row["number"]] * (row["number"] not in numbers)
    for row in new_rows:
        change.add_row(row)
    store.write_about({**about, "writing": True})
    store.upsert(new_rows)
    store.delete(gone_numbers)
    store.add_counts(change.found_in)
    counted = _counted(change, about["round"])
    # passages that were there before keep their terms until all are cut again by `compact`
    counted["analyzers"] |= {lang: cut for lang, cut in about["analyzers"].items() if lang in counted["analyzers"]}
    about = {name: value for name, value in about.items() if name != "fields"}
    store.write_about({**about, **counted, "writing": False})


def _counted(counts: Counts, round_: int = 0) -> IndexRecord:
    languages = {lang: count for lang, count in sorted(counts.languages.items()) if count > 0}
    fields = {key: count for key, count in sorted((counts.fields or {}).items()) if count > 0}
    is_known = counts.fields is not None and len(json.dumps(fields)) <= FIELDS_ROOM
    return {
        **({"fields": fields} if is_known else {}),
        "passages": counts.passages,
        "length": counts.length,
        "languages": languages,
        "round": round_,
        "analyzers": analyzers_of(list(languages)),
    }


def _target(address: Address, client: Any, about: IndexRecord) -> tuple[IndexVersion, int]:
    """The version to write, and how many of its rows are there already: one that was begun with the same passages and
    model, or a new one. Others that were begun are dropped."""
    for store in IndexVersion.unfinished(address, client):
        record = store.about()
        if {**record, "model": "", "sources": {}} == {**about, "model": "", "sources": {}}:
            count = store.rows() // SLICE * SLICE  # the last slice may have been cut off in its middle
            logger.info(f"{address}: goes on after {count:,} passages that an earlier run has written")
            return store, count
        store.drop()
    store = IndexVersion.create(address, client, about["dim"])
    store.write_about(about)
    return store, 0


def _spooled(passages: Iterable[Passage], spool: IO[bytes]) -> tuple[Counts, str]:
    """Write passages to a file, a JSON line each; their counts, and a hash of all of them."""
    counts, source = Counts(), sha256()
    for passage in distinct(track(passages, "count terms"), Keys()):
        counts.add_passage(passage)
        line = encode(passage).encode("utf-8", "surrogatepass") + b"\n"
        source.update(line)
        spool.write(line)
    if not counts.passages:
        raise BadInput("there is no passage to index.")
    return counts, source.hexdigest()


def _rows(
    encoder: Encoder,
    passages: Sequence[Passage],
    numbers: Iterable[int],
    about: IndexRecord,
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    vectors, subwords = encode_passages(encoder, passages, **options)
    ids_of: Sequence[Any] = [[]] * len(passages) if subwords is None else [ids.tolist() for ids in subwords]
    return [
        _row(number, passage, vector, about, ids)
        for number, passage, vector, ids in zip(numbers, passages, vectors, ids_of, strict=True)
    ]


def _row(number: int, passage: Passage, vector: Any, about: IndexRecord, subwords: Sequence[int]) -> dict[str, Any]:
    terms = terms_of(passage)
    sparse = document_vector(terms, about["mean_length"], about["k1"], about["b"])
    return row_of(number, passage, length_of(terms), vector, sparse, subwords)
