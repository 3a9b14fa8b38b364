"""Test collections: loading any published layout, and checking that it holds together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from interlingua.data import encyclopedia
from interlingua.data.collections import beir, folder, irds, mrtydi, squad
from interlingua.data.collections.stored import StoredPassages
from interlingua.data.combine import cross, merge_collections, save_collection
from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.files import existing
from interlingua.text.languages import language_at_end, normalise_code

__all__ = ["check", "cross", "load_collection", "merge_collections", "save_collection"]

LAYOUTS: tuple[tuple[Callable[[Path], bool], Callable[[Path, str, str], Collection]], ...] = (
    (squad.matches, squad.load),
    (folder.matches, folder.load),
    (beir.matches, beir.load),
    (mrtydi.matches, mrtydi.load),
)


def load_collection(path_or_id: str | Path, *, name: str | None = None, lang: str | None = None,
                    split: str = "test") -> Collection:
    """The collection in a folder or file, `ir_datasets:<id>`, or the bundled `encyclopedia:<lang>`.

    Layouts: passages.jsonl + queries.tsv + qrels.txt; BEIR; Mr.TyDi and MIRACL; SQuAD and XQuAD-R JSON; gzipped or
    not. The language is the `lang` field of a row, else `lang`, else what the name ends in (`xquad_ar`). `split` is
    for layouts with several. `encyclopedia` alone is the mixed pool of all its languages.
    Raises InterlinguaError for a missing file, a duplicate id, judgements of unknown passages or queries, a bad row.
    """
    code = normalise_code(lang) if lang else ""
    if encyclopedia.is_encyclopedia(path_or_id):
        code = code or str(path_or_id).partition(":")[2]
        loaded = (encyclopedia.collection(normalise_code(code), split) if code else
                  merge_collections([encyclopedia.collection(one, split) for one in encyclopedia.languages()],
                                    name=encyclopedia.NAME, translations="passages"))
    elif str(path_or_id).startswith(irds.PREFIX):
        loaded = irds.load(str(path_or_id).removeprefix(irds.PREFIX), code)
    else:
        loaded = _load_path(existing(path_or_id, "collection"), code, split)
    loaded.name = name or loaded.name
    check(loaded, str(path_or_id))
    return loaded


def _load_path(path: Path, lang: str, split: str) -> Collection:
    bare = path.resolve().name.removesuffix(".gz").removesuffix(".json")
    for matches, load in LAYOUTS:
        if matches(path):
            return load(path, split, lang or language_at_end(bare) or "")
    raise InterlinguaError(f"{path}: not a collection. A folder needs passages.jsonl, queries.tsv and qrels.txt, or "
                           "the layout of BEIR, Mr.TyDi or MIRACL; a file must be SQuAD's JSON.")


def check(collection: Collection, where: str) -> None:
    """Raise InterlinguaError unless the collection has passages, queries, judgements, unique ids, a language for
    everything, and judges only what it holds. Of passages that stay on disk only the first is read: ir_datasets
    answers for a release, and reading millions of documents would take minutes."""
    stored = isinstance(collection.passages, StoredPassages)
    passages = list(islice(collection.passages, 1)) if stored else collection.passages
    for what, items in (("passages", passages), ("queries", collection.queries)):
        if not items:
            raise InterlinguaError(f"{where}: no {what}. Check the files and the split.")
        nameless = next((item.id for item in items if not item.lang), None)
        if nameless is not None:
            raise InterlinguaError(f"{where}: the language of {what} is unknown ('{nameless}'). Give lang=…, add a "
                                   "field lang, or let the name end in it (mycollection_ar).")
    if not collection.qrels:
        raise InterlinguaError(f"{where}: no judgements. Check the qrels file and the split.")
    queries = _ids([item.id for item in collection.queries], "query", where)
    _known([query for query in collection.qrels if query not in queries], "query", where)
    if stored:
        return
    held = _ids([item.id for item in passages], "passage", where)
    _known([passage for judged in collection.qrels.values() for passage in judged if passage not in held],
           "passage", where)


def _ids(ids: list[str], what: str, where: str) -> set[str]:
    unique = set(ids)
    if len(unique) < len(ids):
        seen: set[str] = set()
        twice = next(item for item in ids if item in seen or seen.add(item))  # type: ignore[func-returns-value]
        raise InterlinguaError(f"{where}: the {what} id '{twice}' occurs twice. Ids must be unique.")
    return unique


def _known(unknown: list[str], what: str, where: str) -> None:
    if unknown:
        raise InterlinguaError(f"{where}: the qrels name {len(unknown):,} unknown {what} id(s), the first is "
                               f"'{unknown[0]}'. Passages, queries and qrels must be of one release and one split.")
