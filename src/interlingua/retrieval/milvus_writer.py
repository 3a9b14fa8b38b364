"""Writing an index in Milvus: a new one, passages added, replaced and deleted, and all term weights made anew."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import islice
from typing import IO, Any

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.progress import say, track
from interlingua.retrieval.index_cache import analyzers_of
from interlingua.retrieval.index_segment import terms_of
from interlingua.retrieval.index_writer import vectors_and_subwords
from interlingua.retrieval.milvus_address import Address
from interlingua.retrieval.milvus_rows import PASSAGE, passage_of, row_of
from interlingua.retrieval.milvus_store import SLICE, About, MilvusStore
from interlingua.retrieval.sparse_bm25 import NONE, document_vector, term_number
from interlingua.retrieval.vectors import TextEncoder, embed_passages

FORMAT = 2
CHUNK = 4096  # passages encoded at a time


@dataclass
class Counts:
    """What BM25 needs of all passages: their number, the sum of their lengths, how many hold each term; and how many
    there are of each language."""

    passages: int = 0
    length: int = 0
    found_in: Counter[int] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)

    def add(self, lang: str, length: int, numbers: Iterable[int], by: int = 1) -> None:
        """Count a passage, or with `by` −1 no longer."""
        self.passages += by
        self.length += by * length
        self.languages[lang] += by
        for number in numbers:
            if number != NONE:
                self.found_in[number] += by

    def add_passage(self, passage: Passage) -> None:
        """Count a passage by its text."""
        terms = terms_of(passage)
        self.add(passage.lang, len(terms), set(map(term_number, terms)))

    def add_row(self, row: Mapping[str, Any], by: int = 1) -> None:
        """Count a passage by its row."""
        self.add(row["lang"], row["length"], map(int, row["sparse"]), by)


def write_index(encoder: TextEncoder, passages: Iterable[Passage], address: Address, client: Any, model: str,
                k1: float, b: float, options: Mapping[str, Any]) -> MilvusStore:
    """Make a new version of the index of `passages` (read once) and let the alias name it when it is whole.

    The passages are counted first, and lie in a temporary file meanwhile: the weights need the mean length. A build
    that was stopped is continued where its rows end if model and passages are the same.
    """
    from interlingua.models.fingerprint import fingerprint

    with tempfile.TemporaryFile() as spool:
        counts, source = _spooled(passages, spool)
        spool.seek(0)
        dim = embed_passages(encoder, [Passage(**json.loads(spool.readline()))], **options).shape[1]
        about = {"format": FORMAT, "model": model, "fingerprint": fingerprint(encoder), "dim": dim,
                 "similarity": encoder.similarity, "k1": k1, "b": b, "mean_length": counts.length / counts.passages,
                 "source": source, **_counted(counts), "next": counts.passages + 1, "writing": True}
        store, done = _target(address, client, about)
        spool.seek(0)
        rows = (Passage(**json.loads(line)) for line in islice(spool, done, None))
        for number, part in _chunks(rows, done + 1, counts.passages):
            store.upsert(_rows(encoder, part, range(number, number + len(part)), about, options))
        store.write_counts(counts.found_in)
        store.write_about({**about, "writing": False})
        store.publish()
    return store


def write_passages(store: MilvusStore, encoder: TextEncoder, passages: Iterable[Passage], *, replace: bool) -> int:
    """Add passages; how many. With `replace` they take the place of those with their ids, and what is there already,
    exactly so, is neither encoded nor counted. Each write of 256 is safe, and found, before the next is begun.

    Raises InterlinguaError for an id that occurs twice, or that is there already and is not to be replaced.
    """
    written = 0
    seen: set[str] = set()
    for _, part in _chunks(iter(passages), 0, None):
        for passage in part:
            if passage.id in seen:
                raise InterlinguaError(f"passage id '{passage.id}' occurs twice. Ids must be unique in an index.")
            seen.add(passage.id)
        old = store.find([passage.id for passage in part], [*PASSAGE, "length", "sparse"])
        if old and not replace:
            raise InterlinguaError(f"{store.address}: has a passage '{min(old)}' already. Replace it with --replace "
                                   "(in Python: replace).")
        new = [one for one in part if one.id not in old or passage_of(old[one.id]) != one]
        if not new:
            continue
        about = store.about()
        fresh = iter(range(about["next"], about["next"] + len(new)))
        numbers = [old[passage.id]["number"] if passage.id in old else next(fresh) for passage in new]
        about["next"] = max(about["next"], *(number + 1 for number in numbers))
        rows = _rows(encoder, new, numbers, about, {})
        _change(store, about, [old[passage.id] for passage in new if passage.id in old], rows)
        written += len(new)
    return written


def delete_passages(store: MilvusStore, ids: Sequence[str]) -> int:
    """Remove passages; the number of them. Ids that are not there are passed over."""
    old = store.find(list(dict.fromkeys(ids)), ["lang", "length", "sparse"])
    if old:
        _change(store, store.about(), old.values(), [])
    return len(old)


def compact(store: MilvusStore) -> None:
    """Count all passages anew, make the weights of their terms with the mean length of now, and let Milvus tidy up.

    This also mends the counts after a writer was stopped between a passage and its counts.
    """
    about = {**store.about(), "writing": True}
    store.write_about(about)
    counts = Counts()
    for rows in store.scan(about["next"], PASSAGE):
        for row in rows:
            counts.add_passage(passage_of(row))
    about |= {**_counted(counts), "mean_length": counts.length / max(1, counts.passages), "round": about["round"] + 1}
    for rows in store.scan(about["next"], [*PASSAGE, "vector", "subwords"]):
        store.upsert([_row(row["number"], passage_of(row), row["vector"], about, row["subwords"]) for row in rows])
    store.write_counts(counts.found_in, about["round"])
    store.drop_counts_before(about["round"])
    store.write_about({**about, "writing": False})
    store.compact()


def _change(store: MilvusStore, about: About, old: Iterable[Mapping[str, Any]], new: Sequence[dict[str, Any]]) -> None:
    """Put `new` rows in the place of `old` ones and count again. Rows come first: a writer that is stopped may leave
    counts that are a little off (which `writing` then tells, and `compact` mends), but loses no passage."""
    change = Counts(about["passages"], about["length"], Counter(), Counter(about["languages"]))
    kept = {row["number"] for row in new}
    gone = []
    for row in old:
        change.add_row(row, -1)
        gone += [row["number"]] * (row["number"] not in kept)
    for row in new:
        change.add_row(row)
    store.write_about({**about, "writing": True})
    store.upsert(new)
    store.delete(gone)
    store.add_counts(change.found_in)
    store.write_about({**about, **_counted(change, about["round"]), "writing": False})


def _counted(counts: Counts, round_: int = 0) -> About:
    languages = {lang: count for lang, count in sorted(counts.languages.items()) if count > 0}
    return {"passages": counts.passages, "length": counts.length, "languages": languages, "round": round_,
            "analyzers": analyzers_of(list(languages))}


def _target(address: Address, client: Any, about: About) -> tuple[MilvusStore, int]:
    """The version to write, and how many of its rows are there already: one that was begun with the same passages and
    model, or a new one. Others that were begun are dropped."""
    for store in MilvusStore.unfinished(address, client):
        begun = store.about()
        if {**begun, "model": ""} == {**about, "model": ""}:
            done = store.rows() // SLICE * SLICE  # the last slice may have been cut off in its middle
            say(f"{address}: goes on after {done:,} passages that an earlier run has written")
            return store, done
        store.drop()
    store = MilvusStore.create(address, client, about["dim"])
    store.write_about(about)
    return store, 0


def _spooled(passages: Iterable[Passage], spool: IO[bytes]) -> tuple[Counts, str]:
    """Write passages to a file, a JSON line each; their counts, and a hash of all of them."""
    counts, seen, source = Counts(), set[str](), sha256()
    for passage in track(passages, "count terms"):
        if passage.id in seen:
            raise InterlinguaError(f"passage id '{passage.id}' occurs twice. Ids must be unique in an index.")
        seen.add(passage.id)
        counts.add_passage(passage)
        line = json.dumps({**asdict(passage), "metadata": dict(passage.metadata)}).encode() + b"\n"
        source.update(line)
        spool.write(line)
    if not counts.passages:
        raise InterlinguaError("there is no passage to index.")
    return counts, source.hexdigest()


def _chunks(passages: Iterator[Passage], number: int, total: int | None) -> Iterator[tuple[int, list[Passage]]]:
    """`CHUNK` passages at a time, with the number of the first."""
    def chunks() -> Iterator[tuple[int, list[Passage]]]:
        start = number
        while part := list(islice(passages, CHUNK)):
            yield start, part
            start += len(part)

    return track(chunks(), f"encode and write ({CHUNK:,} passages each)",
                 None if total is None else -(-(total - number + 1) // CHUNK))


def _rows(encoder: TextEncoder, passages: Sequence[Passage], numbers: Iterable[int], about: About,
          options: Mapping[str, Any]) -> list[dict[str, Any]]:
    vectors, subwords = vectors_and_subwords(encoder, passages, **options)
    held: Sequence[Any] = [[]] * len(passages) if subwords is None else [ids.tolist() for ids in subwords]
    return [_row(number, passage, vector, about, ids)
            for number, passage, vector, ids in zip(numbers, passages, vectors, held, strict=True)]


def _row(number: int, passage: Passage, vector: Any, about: About, subwords: Sequence[int]) -> dict[str, Any]:
    terms = terms_of(passage)
    sparse = document_vector(terms, about["mean_length"], about["k1"], about["b"])
    return row_of(number, passage, len(terms), vector, sparse, subwords)
