"""Test collections: loading any published layout, and checking that it holds together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from interlingua.data import encyclopedia
from interlingua.data.collections import beir, folder, irds, mrtydi, squad
from interlingua.data.collections.stored import StoredPassages
from interlingua.data.combine import cross, merge_collections, save_collection
from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.files import existing
from interlingua.progress import say
from interlingua.text.detect import can_detect, detect_language
from interlingua.text.languages import language_at_end, normalise_code

__all__ = ["check", "cross", "load_collection", "merge_collections", "save_collection"]

LAYOUTS: tuple[tuple[Callable[[Path], bool], Callable[[Path, str, str], Collection]], ...] = (
    (squad.matches, squad.load),
    (folder.matches, folder.load),
    (beir.matches, beir.load),
    (mrtydi.matches, mrtydi.load),
)

SAMPLE = 1_000
"""Texts that are looked at to tell the languages of a collection: detecting that of each would take half an hour for
three million passages."""
ONE_OF_PASSAGES, ONE_OF_QUERIES = 0.99, 0.8
"""The share of a language from which all texts count as in it. A short question is mistaken more often."""


def load_collection(path_or_id: str | Path, *, name: str | None = None, lang: str | None = None,
                    split: str = "test") -> Collection:
    """The collection in a folder or file, `ir_datasets:<id>`, or the bundled `encyclopedia:<lang>`.

    Layouts: passages.jsonl + queries.tsv + qrels.txt; BEIR; Mr.TyDi and MIRACL; SQuAD and XQuAD-R JSON; gzipped or
    not. The language is the `lang` field of a row, else `lang`, else what the name ends in (`xquad_ar`), unless the
    passages are surely in another one; else it is detected. `split` is for layouts with several. `encyclopedia` alone
    is the mixed pool of all its languages.
    Raises InterlinguaError for a missing file, a duplicate id, judgements of unknown passages or queries, a bad row.
    """
    code = normalise_code(lang) if lang else ""
    if encyclopedia.is_encyclopedia(path_or_id):
        code = str(path_or_id).partition(":")[2] or code
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
    for matches, load in LAYOUTS:
        if matches(path):
            return _with_languages(load(path, split, lang), path)
    raise InterlinguaError(f"{path}: not a collection. A folder needs passages.jsonl, queries.tsv and qrels.txt, or "
                           "the layout of BEIR, Mr.TyDi or MIRACL; a file must be SQuAD's JSON.")


def _with_languages(collection: Collection, path: Path) -> Collection:
    """The collection with a language for all passages and queries that have none, as far as it is known: the one in
    which the name at `path` ends, or what is detected."""
    nameless = [passage for passage in collection.passages if not passage.lang]
    if not nameless and all(query.lang for query in collection.queries):
        return collection
    texts = [passage.text or passage.title for passage in nameless]
    ends_in = language_at_end(path.resolve().name.removesuffix(".gz").removesuffix(".json")) or ""
    if ends_in and (other := _contradicted(ends_in, texts)):
        say(f"{path}: its name ends in '{ends_in}', but its passages are in '{other}', which is taken. If the name is "
            "right, say so (--lang, lang=…).")
        ends_in = ""
    langs = iter([ends_in] * len(nameless) if ends_in else _detected(texts, ONE_OF_PASSAGES))
    collection.passages = [passage if passage.lang else replace(passage, lang=next(langs))
                           for passage in collection.passages]
    asked = [query.text for query in collection.queries if not query.lang]
    main = Counter(passage.lang for passage in collection.passages).most_common(1)
    langs = iter([ends_in] * len(asked) if ends_in else _detected(asked, ONE_OF_QUERIES, main[0][0] if main else ""))
    collection.queries = [query if query.lang else replace(query, lang=next(langs)) for query in collection.queries]
    return collection


def _contradicted(lang: str, texts: Sequence[str]) -> str:
    """The language in which nearly all of some `texts` surely are, where none is in `lang`; else ''."""
    sure = Counter(filter(None, map(detect_language, _some(texts, SAMPLE // 10) if can_detect() else ())))
    if not sure or sure[lang]:
        return ""
    (main, count), = sure.most_common(1)
    return main if count >= 10 and count >= ONE_OF_QUERIES * sum(sure.values()) else ""


def _detected(texts: Sequence[str], one_from: float, otherwise: str = "") -> list[str]:
    """The language of each text: that of nearly all, where their share is `one_from` or more, else each its own, or
    the commonest where that is not sure. `otherwise` where none is."""
    found = Counter(filter(None, map(detect_language, _some(texts, SAMPLE))))
    main, count = found.most_common(1)[0] if found else (otherwise, 0)
    if count >= one_from * sum(found.values()):
        return [main] * len(texts)
    return [detect_language(text) or main for text in texts]


def _some(texts: Sequence[str], count: int) -> list[str]:
    """`count` of the texts, evenly spaced."""
    return list(texts[:: max(1, -(-len(texts) // count))])


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
