"""New collections out of old ones: a mixed-language pool, questions across languages, a folder on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from interlingua.data.records import Collection, Passage, Qrels, Query
from interlingua.errors import InterlinguaError, suggestion
from interlingua.files import atomic_write

KINDS = ("passages", "questions")


def merge_collections(collections: Sequence[Collection], *, name: str = "", translations: str | None = None,
                      ) -> Collection:
    """One pool of all passages and all questions, the ids prefixed by language: passage "p7" of Arabic is "ar:p7".

    The prefix is the collection's language; its name when it has several or another collection has the same.
    Where the collections are translations of one another, `translations` says which of their ids correspond, and a
    question's passage is relevant in every language: "passages" (XQuAD: p7 is one paragraph in all languages) or
    "questions" (LAReQA: q7 is one question in all languages, and each has judged its own sentences).
    Raises InterlinguaError for no collection at all, and for two with the same language and name.
    """
    if not collections:
        raise InterlinguaError("no collections to merge. Name at least one.")
    _known_kind(translations)
    pool = list(zip(_prefixes(collections), collections, strict=True))
    held: dict[str, list[str]] = {}
    judged: dict[str, dict[str, int]] = {}
    for prefix, one in pool:
        for passage in one.passages:
            held.setdefault(passage.id, []).append(f"{prefix}:{passage.id}")
        for query, grades in one.qrels.items():
            judged.setdefault(query, {}).update({f"{prefix}:{passage}": grade for passage, grade in grades.items()})
    qrels: Qrels = {}
    for prefix, one in pool:
        for query, grades in one.qrels.items():
            if translations == "questions":
                found = dict(judged[query])
            elif translations == "passages":
                found = {version: grade for passage, grade in grades.items() for version in held[passage]}
            else:
                found = {f"{prefix}:{passage}": grade for passage, grade in grades.items()}
            qrels[f"{prefix}:{query}"] = found
    passages = [Passage(f"{prefix}:{p.id}", p.text, p.title, p.lang) for prefix, one in pool for p in one.passages]
    queries = [Query(f"{prefix}:{q.id}", q.text, q.lang) for prefix, one in pool for q in one.queries]
    return Collection(name or "+".join(one.name for one in collections), passages, queries, qrels)


def _known_kind(translations: str | None) -> None:
    if translations not in (None, *KINDS):
        raise InterlinguaError(f"translations='{translations}' is unknown.{suggestion(translations, KINDS)}")


def _prefixes(collections: Sequence[Collection]) -> list[str]:
    langs = [one.passage_langs for one in collections]
    alone = all(len(lang) == 1 for lang in langs) and len({lang[0] for lang in langs}) == len(langs)
    prefixes = [lang[0] for lang in langs] if alone else [one.name for one in collections]
    if len(set(prefixes)) < len(prefixes):
        raise InterlinguaError(f"two collections to merge have the same language and the same name ({prefixes}). "
                               "Give them different names.")
    return prefixes


def cross(queries_of: Collection, passages_of: Collection, translations: str = "passages") -> Collection:
    """Questions of one collection against the passages of another that is its translation.

    "passages": the ids of passages correspond (XQuAD); relevant is what the first collection judges, as far as the
    second has those passages. "questions": the ids of questions correspond (LAReQA); relevant is what the second
    judges. Questions without a judgement left are left out. Raises InterlinguaError when none is left.
    """
    _known_kind(translations)
    known = {passage.id for passage in passages_of.passages}
    judged = queries_of.qrels if translations == "passages" else passages_of.qrels
    qrels: Qrels = {}
    for query in queries_of.queries:
        kept = {passage: grade for passage, grade in judged.get(query.id, {}).items() if passage in known}
        if kept:
            qrels[query.id] = kept
    if not qrels:
        raise InterlinguaError(f"no question of {queries_of.name} has a relevant passage in {passages_of.name}. "
                               f"The ids of their {translations} must correspond, as those of translations do.")
    queries = [query for query in queries_of.queries if query.id in qrels]
    name = f"{queries_of.name}→{passages_of.name}"
    return Collection(name, list(passages_of.passages), queries, qrels)


def question_translations(collection: Collection, other: Collection) -> dict[str, Query]:
    """Question id of `collection` → the same question in the language of `other`, where the ids of passages correspond
    and those of questions do not (XQuAD): of each passage, the first question is the first, and so on.

    Questions with several relevant passages, and those of a passage on which the two have unlike numbers of questions,
    have no entry: nothing tells which is which.
    """
    theirs, found = _by_passage(other), {}
    for passage, questions in _by_passage(collection).items():
        if len(questions) == len(theirs.get(passage, [])):
            found.update({one.id: two for one, two in zip(questions, theirs[passage], strict=True)})
    return found


def _by_passage(collection: Collection) -> dict[str, list[Query]]:
    """Passage id → the questions that it alone answers, in their order."""
    found: dict[str, list[Query]] = {}
    for query in collection.queries:
        relevant = [passage for passage, grade in collection.qrels.get(query.id, {}).items() if grade > 0]
        if len(relevant) == 1:
            found.setdefault(relevant[0], []).append(query)
    return found


def save_collection(collection: Collection, folder: str | Path) -> None:
    """Write `passages.jsonl.gz`, `queries.tsv.gz` and `qrels.txt`, which `load_collection` reads back as they are.

    Raises InterlinguaError for ids or questions that these formats cannot hold (a tab, a line break, white space in
    an id), before anything is written.
    """
    _writable(collection)
    folder = Path(folder)
    with atomic_write(folder / "passages.jsonl.gz") as stream:
        for passage in collection.passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text, "lang": passage.lang}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    with atomic_write(folder / "queries.tsv.gz") as stream:
        for query in collection.queries:
            stream.write(f"{query.id}\t{query.text}\t{query.lang}\n")
    with atomic_write(folder / "qrels.txt") as stream:
        for number, grades in collection.qrels.items():
            for judged, grade in grades.items():
                stream.write(f"{number} 0 {judged} {grade}\n")


def _writable(collection: Collection) -> None:
    ids = [*(p.id for p in collection.passages), *(q.id for q in collection.queries)]
    for one in ids:
        if not one or one.split() != [one]:
            raise InterlinguaError(f"{collection.name}: the id '{one}' has white space, which qrels cannot hold. "
                                   "Give it another id.")
    for query in collection.queries:
        if any(character in query.text for character in "\t\r\n"):
            raise InterlinguaError(f"{collection.name}: the question '{query.id}' has a tab or a line break. "
                                   "Remove it.")
