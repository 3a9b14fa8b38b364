"""Choose an analyzer for each language: MRR@100 of BM25 by each kind, on every collection of one language.

    python benchmarks/analyzers.py --data path/to/collections
    python benchmarks/analyzers.py --data path/to/collections --languages th ja --segmenters

`--data` is a folder of collections; those in one language are taken, and the bundled encyclopedia's languages with the
questions of both its splits. Prints a table in Markdown: a row for each collection, and one for all the questions of a
language, by which its default is chosen: the first of whitespace, language, char4 and mixed that is within 0.005 of the
best and not under whitespace or char4. Languages with another default are named at the end. Where a language has
neither stems nor spaces, "language" is "ngram", and so it is called as a default.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

from interlingua.data import encyclopedia
from interlingua.data.collections import load_collection
from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import evaluate
from interlingua.retrieval.bm25.bm25 import BM25
from interlingua.text.analyzers import analyzer
from interlingua.text.analyzers.segment import segmenters_of

KINDS = ("whitespace", "language", "char4", "mixed")
"""From the smallest index to the largest."""
NEAR = 0.005
DEPTH = 100


def collections(folder: Path | None) -> Iterator[Collection]:
    """The collections of one language under `folder`, and the encyclopedia's."""
    for path in sorted(folder.iterdir()) if folder else ():
        try:
            found = load_collection(path)
        except InterlinguaError:
            continue
        if found.passage_langs == found.query_langs and len(found.query_langs) == 1:
            yield found
    for lang in encyclopedia.languages():
        one, other = (encyclopedia.collection(lang, split) for split in encyclopedia.SPLITS)
        yield Collection(one.name, one.passages, one.queries + other.queries, one.qrels | other.qrels)


def by_kind(collection: Collection, kinds: list[str]) -> dict[str, list[float]]:
    """Kind → the reciprocal rank of each question."""
    found = {}
    for kind in kinds:
        run = BM25.build(collection.passages, analyzer=kind).search(collection.queries, DEPTH)
        found[kind] = list(evaluate(run, collection.qrels, ["RR@100"]).per_query["RR@100"].values())
    return found


def chosen(means: dict[str, float]) -> str:
    """The kind that the rule above chooses."""
    floor = max(means["whitespace"], means["char4"], max(means.values()) - NEAR)
    return next((kind for kind in KINDS if means[kind] >= floor), max(KINDS, key=means.__getitem__))


def mean(values: list[float]) -> float:
    """The mean, 0 of nothing."""
    return sum(values) / max(1, len(values))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of collections")
    parser.add_argument("--languages", nargs="+", help="only these")
    parser.add_argument("--segmenters", action="store_true", help="dictionary segmenters too (extra `segment`)")
    given = parser.parse_args()
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows: dict[str, list[list[str]]] = defaultdict(list)
    for collection in collections(given.data):
        lang = collection.query_langs[0]
        if given.languages and lang not in given.languages:
            continue
        found = by_kind(collection, [*KINDS, *(segmenters_of(lang) if given.segmenters else ())])
        rows[lang].append(cells(lang, collection.name, found))
        for kind, ranks in found.items():
            values[lang][kind] += ranks
    table, wrong = [], []
    for lang in sorted(rows):
        means = {kind: mean(ranks) for kind, ranks in values[lang].items()}
        default = analyzer(lang).name.partition("/")[2]
        default = "language" if default == "ngram" else default
        if default != chosen(means):
            wrong.append(f"{lang} (by the rule: {chosen(means)})")
        if len(rows[lang]) > 1:
            rows[lang].append(cells(lang, "all questions", values[lang]))
        rows[lang][-1][-1] = f"{analyzer(lang).name} ({analyzer(lang).version})"
        table += rows[lang]
    print(
        tabulate(
            table,
            ["", "collection", "questions", *KINDS, "segmenter", "default (version)"],
            "github",
            disable_numparse=True,
        )
    )
    if wrong:
        print(f"\nanother default than the rule chooses: {', '.join(wrong)}")


def cells(lang: str, name: str, found: dict[str, list[float]]) -> list[str]:
    """A row of the table, without the default."""
    others = [f"{kind} {mean(ranks):.4f}" for kind, ranks in found.items() if kind not in KINDS]
    count = len(found["whitespace"])
    return [lang, name, f"{count:,}", *(f"{mean(found[kind]):.4f}" for kind in KINDS), " ".join(others), ""]


if __name__ == "__main__":
    main()
