"""Test collections: load, check, combine and save them."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from interlingua.data import encyclopedia
from interlingua.data.irds import PREFIX, load_irds
from interlingua.data.layouts import (
    StoredPassages,
    find,
    is_squad_collection,
    load_beir,
    load_folder,
    load_mrtydi,
    load_squad,
    named,
)
from interlingua.data.records import Collection, Passage, Qrels, Query
from interlingua.errors import BadInput, suggestion
from interlingua.files import atomic_write, existing
from interlingua.text.detection import can_detect, detect_language
from interlingua.text.languages import language_at_end, normalise_code

logger = logging.getLogger(__name__)

__all__ = ["check", "cross", "load_collection", "merge_collections", "save_collection"]


KINDS = ("passages", "questions")
SENTENCE = re.compile(r"p\d+\.s\d+")
"""The id of a sentence (LAReQA). Each language numbers its own: only questions correspond."""


def correspondence(*collections: Collection) -> str:
    """The ids that correspond in translations: those of "questions" where passages are sentences of LAReQA, else of
    "passages"."""
    firsts = [next(iter(one.passages), None) for one in collections]
    return "questions" if all(one is not None and SENTENCE.fullmatch(one.id) for one in firsts) else "passages"


def merge_collections(
    collections: Sequence[Collection], *, name: str = "", translations: str | None = None
) -> Collection:
    """One pool of all passages and all questions, the ids prefixed by language: passage "p7" of Arabic is "ar:p7".

    The prefix is the collection's language; its name when it has several or another collection has the same.
    Where the collections are translations of one another, `translations` says which of their ids correspond, and a
    question's passage is relevant in every language: "passages" (XQuAD: p7 is one paragraph in all languages) or
    "questions" (LAReQA: q7 is one question in all languages, and each has judged its own sentences).
    Raises BadInput for no collection at all, and for two with the same language and name.
    """
    if not collections:
        raise BadInput("no collections to merge. Name at least one.")
    _known_kind(translations)
    pool = list(zip(_prefixes(collections), collections, strict=True))
    versions: dict[str, list[str]] = {}
    judgements: dict[str, dict[str, int]] = {}
    for prefix, collection in pool:
        for passage in collection.passages:
            versions.setdefault(passage.id, []).append(f"{prefix}:{passage.id}")
        for query, grades in collection.qrels.items():
            judgements.setdefault(query, {}).update({f"{prefix}:{passage}": grade for passage, grade in grades.items()})
    qrels: Qrels = {}
    for prefix, collection in pool:
        for query, grades in collection.qrels.items():
            if translations == "questions":
                merged_grades = dict(judgements[query])
            elif translations == "passages":
                merged_grades = {
                    version: grade for passage, grade in grades.items() for version in versions.get(passage, ())
                }
            else:
                merged_grades = {f"{prefix}:{passage}": grade for passage, grade in grades.items()}
            qrels[f"{prefix}:{query}"] = merged_grades
    passages = [replace(p, id=f"{prefix}:{p.id}") for prefix, one in pool for p in one.passages]
    queries = [replace(q, id=f"{prefix}:{q.id}") for prefix, one in pool for q in one.queries]
    return Collection(name or "+".join(one.name for one in collections), passages, queries, qrels)


def _known_kind(translations: str | None) -> None:
    if translations not in (None, *KINDS):
        raise BadInput(f"translations='{translations}' is unknown.{suggestion(translations, KINDS)}")


def _prefixes(collections: Sequence[Collection]) -> list[str]:
    langs = [one.passage_langs for one in collections]
    distinct = all(len(lang) == 1 for lang in langs) and len({lang[0] for lang in langs}) == len(langs)
    prefixes = [lang[0] for lang in langs] if distinct else [one.name for one in collections]
    if len(set(prefixes)) < len(prefixes):
        raise BadInput(
            f"two collections to merge have the same language and the same name ({prefixes}). "
            "Give them different names."
        )
    return prefixes


def cross(queries_of: Collection, passages_of: Collection, translations: str | None = None) -> Collection:
    """Questions of one collection against the passages of another that is its translation.

    "passages": the ids of passages correspond (XQuAD); relevant is what the first collection judges, as far as the
    second has those passages. "questions": the ids of questions correspond (LAReQA); relevant is what the second
    judges. None: what `correspondence` says of the two. Questions without a judgement left are left out. Raises
    BadInput when none is left.
    """
    _known_kind(translations)
    translations = translations or correspondence(queries_of, passages_of)
    passage_ids = {passage.id for passage in passages_of.passages}
    judgements = queries_of.qrels if translations == "passages" else passages_of.qrels
    qrels: Qrels = {}
    for query in queries_of.queries:
        grades = {passage: grade for passage, grade in judgements.get(query.id, {}).items() if passage in passage_ids}
        if grades:
            qrels[query.id] = grades
    if not qrels:
        raise BadInput(
            f"no question of {queries_of.name} has a relevant passage in {passages_of.name}. "
            f"The ids of their {translations} must correspond, as those of translations do."
        )
    queries = [query for query in queries_of.queries if query.id in qrels]
    name = f"{queries_of.name}→{passages_of.name}"
    return Collection(name, list(passages_of.passages), queries, qrels)


def question_translations(collection: Collection, other: Collection) -> dict[str, Query]:
    """Question id of `collection` → the same question in the language of `other`. Where the ids of passages correspond
    and those of questions do not (XQuAD), the first question of each passage is the first, and so on; else the id tells
    (`correspondence`).

    Questions with several relevant passages, and those of a passage on which the two have unlike numbers of questions,
    have no entry: nothing tells which is which.
    """
    if correspondence(collection, other) == "questions":
        by_id = {query.id: query for query in other.queries}
        return {query.id: by_id[query.id] for query in collection.queries if query.id in by_id}
    others, translations = _by_passage(other), {}
    for passage, questions in _by_passage(collection).items():
        if len(questions) == len(others.get(passage, [])):
            translations.update({query.id: match for query, match in zip(questions, others[passage], strict=True)})
    return translations


def _by_passage(collection: Collection) -> dict[str, list[Query]]:
    """Passage id → the questions that it alone answers, in their order."""
    questions: dict[str, list[Query]] = {}
    for query in collection.queries:
        relevant = [passage for passage, grade in collection.qrels.get(query.id, {}).items() if grade > 0]
        if len(relevant) == 1:
            questions.setdefault(relevant[0], []).append(query)
    return questions


def save_collection(collection: Collection, folder: str | Path) -> None:
    """Write `passages.jsonl.gz`, `queries.tsv.gz` and `qrels.txt`, which `load_collection` reads back, all but the
    metadata of passages; not gzipped in place of files that are not.

    Raises BadInput for ids or questions that these formats cannot hold (a tab, a line break, white space in
    an id), before anything is written.
    """
    _writable(collection)
    folder = Path(folder)
    with atomic_write(find(folder, "passages.jsonl") or folder / "passages.jsonl.gz") as stream:
        for passage in collection.passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text, "lang": passage.lang}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    with atomic_write(find(folder, "queries.tsv") or folder / "queries.tsv.gz") as stream:
        for query in collection.queries:
            stream.write(f"{query.id}\t{query.text}\t{query.lang}\n")
    with atomic_write(folder / "qrels.txt") as stream:
        for query_id, grades in collection.qrels.items():
            for passage_id, grade in grades.items():
                stream.write(f"{query_id} 0 {passage_id} {grade}\n")


def _writable(collection: Collection) -> None:
    ids = [*(p.id for p in collection.passages), *(q.id for q in collection.queries)]
    for item_id in ids:
        if not item_id or item_id.split() != [item_id]:
            raise BadInput(
                f"{collection.name}: the id '{item_id}' has white space, which qrels cannot hold. Give it another id."
            )
    for query in collection.queries:
        if any(character in query.text for character in "\t\r\n"):
            raise BadInput(f"{collection.name}: the question '{query.id}' has a tab or a line break. Remove it.")


LAYOUTS: tuple[tuple[Callable[[Path], object], Callable[[Path, str, str], Collection]], ...] = (
    (is_squad_collection, load_squad),
    (lambda path: find(path, "passages.jsonl"), load_folder),
    (lambda path: find(path, "corpus.jsonl"), load_beir),
    (lambda path: named(path, "docs*.jsonl*"), load_mrtydi),
)

SAMPLE = 1_000
"""Texts that are looked at to tell the languages of a collection: detecting that of each would take half an hour for
three million passages."""
ONE_OF_PASSAGES, ONE_OF_QUERIES = 0.99, 0.8
"""The share of a language from which all texts count as in it. A short question is mistaken more often."""


def load_collection(
    path_or_id: str | Path, *, name: str | None = None, lang: str | None = None, split: str = "test"
) -> Collection:
    """The collection in a folder or file, `ir_datasets:<id>`, or the bundled `encyclopedia:<lang>`.

    Layouts: passages.jsonl + queries.tsv + qrels.txt; BEIR; Mr.TyDi and MIRACL; SQuAD and XQuAD-R JSON; gzipped or
    not. The language is the `lang` field of a row, else `lang`, else what the name ends in (`xquad_ar`), unless the
    passages are surely in another one; else it is detected. `split` is for layouts with several. `encyclopedia` alone
    is the mixed pool of all its languages.
    Raises BadInput for a missing file, a duplicate id, judgements of unknown passages or queries, a bad row.
    """
    code = normalise_code(lang) if lang else ""
    if encyclopedia.is_encyclopedia(path_or_id):
        code = str(path_or_id).partition(":")[2]  # not `lang`: every passage names its own
        collection = (
            encyclopedia.collection(normalise_code(code), split)
            if code
            else merge_collections(
                [encyclopedia.collection(language, split) for language in encyclopedia.languages()],
                name=encyclopedia.NAME,
                translations="passages",
            )
        )
    elif str(path_or_id).startswith(PREFIX):
        collection = load_irds(str(path_or_id).removeprefix(PREFIX), code)
    else:
        collection = _load_path(existing(path_or_id, "collection"), code, split)
    collection.name = name or collection.name
    check(collection, str(path_or_id))
    return collection


def _load_path(path: Path, lang: str, split: str) -> Collection:
    for matches, load in LAYOUTS:
        if matches(path):
            return _with_languages(load(path, split, lang), path)
    raise BadInput(
        f"{path}: not a collection. A folder needs passages.jsonl, queries.tsv and qrels.txt, or "
        "the layout of BEIR, Mr.TyDi or MIRACL; a file must be SQuAD's JSON."
    )


def _with_languages(collection: Collection, path: Path) -> Collection:
    """The collection with a language for all passages and queries that have none, as far as it is known: the one in
    which the name at `path` ends, or what is detected."""
    without_lang = [passage for passage in collection.passages if not passage.lang]
    if not without_lang and all(query.lang for query in collection.queries):
        return collection
    texts = [passage.text or passage.title for passage in without_lang]
    code = language_at_end(path.resolve().name.removesuffix(".gz").removesuffix(".json")) or ""
    code = _unless_contradicted(code, texts, path, "passages")
    langs = iter([code] * len(without_lang) if code else _detected(texts, ONE_OF_PASSAGES))
    collection.passages = [
        passage if passage.lang else replace(passage, lang=next(langs)) for passage in collection.passages
    ]
    questions = [query.text for query in collection.queries if not query.lang]
    main = Counter(passage.lang for passage in collection.passages).most_common(1)
    if main and main[0][0] != code:
        code = _unless_contradicted(code, questions, path, "questions")
    langs = iter([code] * len(questions) if code else _detected(questions, ONE_OF_QUERIES, main[0][0] if main else ""))
    collection.queries = [query if query.lang else replace(query, lang=next(langs)) for query in collection.queries]
    return collection


def _unless_contradicted(code: str, texts: Sequence[str], path: Path, what: str) -> str:
    """The code in which a name ends, or '' with a warning where nearly all of some `texts` surely are in one other
    language, and none is in this one."""
    sample = _some(texts, SAMPLE // 10) if code and can_detect() else ()
    counts = Counter(filter(None, map(detect_language, sample)))
    ((other, count),) = counts.most_common(1) or [("", 0)]
    if counts[code] or count < 10 or count < ONE_OF_QUERIES * counts.total():
        return code
    logger.warning(
        f"{path}: its name ends in '{code}', but its {what} are in '{other}', which is taken. If the name is "
        "right, say so (--lang, lang=…)."
    )
    return ""


def _detected(texts: Sequence[str], threshold: float, default: str = "") -> list[str]:
    """The language of each text: that of nearly all, where their share is `threshold` or more, else each its own, or
    the commonest where that is not sure. `default` where none is."""
    counts = Counter(filter(None, map(detect_language, _some(texts, SAMPLE))))
    main, count = counts.most_common(1)[0] if counts else (default, 0)
    if count >= threshold * sum(counts.values()):
        return [main] * len(texts)
    return [detect_language(text) or main for text in texts]


def _some(texts: Sequence[str], count: int) -> list[str]:
    """`count` of the texts, evenly spaced."""
    return list(texts[:: max(1, -(-len(texts) // count))])


def check(collection: Collection, where: str) -> None:
    """Raise BadInput unless the collection has passages, queries, judgements, unique ids, a language for
    everything, and judges only what it holds. Of passages that stay on disk only the first is read: ir_datasets
    answers for a release, and reading millions of documents would take minutes."""
    stored = isinstance(collection.passages, StoredPassages)
    passages = list(islice(collection.passages, 1)) if stored else collection.passages
    for kind, items in (("passages", passages), ("queries", collection.queries)):
        if not items:
            raise BadInput(f"{where}: no {kind}. Check the files and the split.")
        unlabelled = next((item.id for item in items if not item.lang), None)
        if unlabelled is not None:
            raise BadInput(
                f"{where}: the language of {kind} is unknown ('{unlabelled}'). Give lang=…, add a "
                "field lang, or let the name end in it (mycollection_ar)."
            )
    if not collection.qrels:
        raise BadInput(f"{where}: no judgements. Check the qrels file and the split.")
    _check_ids(collection.queries, collection.qrels, "query", where)
    if not stored:
        _check_ids(passages, chain.from_iterable(collection.qrels.values()), "passage", where)


def _check_ids(items: Iterable[Passage | Query], judged: Iterable[str], kind: str, where: str) -> None:
    """Raise BadInput for an id that occurs twice, and for one that is `judged` and not there. Fewer passages than one
    in a thousand of these are only told, since published collections lack some."""
    ids: set[str] = set()
    for item in items:
        if item.id in ids:
            raise BadInput(f"{where}: the {kind} id '{item.id}' occurs twice. Ids must be unique.")
        ids.add(item.id)
    judged = list(judged)
    unknown = [name for name in judged if name not in ids]
    if unknown and kind == "passage" and 1000 * len(unknown) < len(judged):
        logger.warning(
            f"{where}: {len(unknown):,} judged passage(s) are not there, such as '{unknown[0]}'; they count as not "
            "found"
        )
    elif unknown:
        raise BadInput(
            f"{where}: the qrels name {len(unknown):,} unknown {kind} id(s), the first is "
            f"'{unknown[0]}'. Passages, queries and qrels must be of one release and one split."
        )
