"""How well an index ranks by meaning, by words and by both, and what other weights of the two would give.

    python benchmarks/hybrid.py --model default --data DATA/dev --questions 200

Indexes each collection for itself and asks its questions: of XQuAD in the passages' own language, and from and to
English; of the other collections as people asked them. Prints the mean reciprocal rank (RR@100) of each group, and of
each native collection. The weight is that of the dense scores beside the lexical ones (index_search.dense_weight).
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from tabulate import tabulate

from interlingua.data.collection import cross, load_collection
from interlingua.data.records import Collection, Passage
from interlingua.models.loading import load_any
from interlingua.retrieval import index_search
from interlingua.retrieval.index import Index

LANGS = "ar de el en es hi ro ru th tr vi zh".split()
NATIVE = {"ar": "arcd_ar", "ko": "tydiqa_train_ko", "sw": "tydiqa_train_sw", "th": "iapp_valid_th",
          "zh-tw": "drcd_dev_zhtw"}
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)


def tests(data: Path) -> dict[str, list[Collection]]:
    """Group → collections, each with its passages and questions."""
    xquad = {lang: load_collection(data / f"xquad_{lang}") for lang in LANGS}
    others = [lang for lang in LANGS if lang != "en"]
    return {"same language": list(xquad.values()),
            "native": [load_collection(data / name) for name in NATIVE.values()],
            "to English": [cross(xquad[lang], xquad["en"]) for lang in others],
            "from English": [cross(xquad["en"], xquad[lang]) for lang in others]}


def reciprocal(ids: list[str], relevant: dict[str, int]) -> float:
    """1 / the rank of the first relevant passage, 0 where none is among the first 100."""
    return next((1 / rank for rank, name in enumerate(ids[:100], 1) if relevant.get(name, 0) > 0), 0.0)


def ask(index: Index, collection: Collection, count: int) -> dict[str, float]:
    """System → mean reciprocal rank over a seeded sample of the questions."""
    asked = [query for query in collection.queries if any(collection.qrels[query.id].values())]
    asked = random.Random(0).sample(asked, min(count, len(asked)))
    texts, found = [query.text for query in asked], defaultdict(list)
    for mode in ("lexical", "dense", "hybrid"):
        for query, hits in zip(asked, index.search_many(texts, 100, mode=mode), strict=True):
            found[mode].append(reciprocal([hit.passage.id for hit in hits], collection.qrels[query.id]))
            if mode != "hybrid":
                continue
            lexical, dense = ({hit.passage.id: hit.parts[part] for hit in hits} for part in ("lexical", "dense"))
            for weight in WEIGHTS:  # of the first 100 by the weight in force
                ids = index_search.fuse(lexical, dense, weight).ids("q")
                found[f"dense × {weight}"].append(reciprocal(ids, collection.qrels[query.id]))
    return {system: fmean(values) for system, values in found.items()}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=200, help="of each collection (200)")
    arguments = parser.parse_args()
    model, table = load_any(arguments.model), defaultdict(dict)
    for group, collections in tests(arguments.data).items():
        each = []
        for number, collection in enumerate(collections):
            with TemporaryDirectory() as folder:
                passages = [Passage(p.id, p.text, p.title, p.lang) for p in collection.passages]
                each.append(ask(Index.build(model, passages, Path(folder) / "index"), collection, arguments.questions))
            if group == "native":
                for system, value in each[-1].items():
                    table[system][list(NATIVE)[number]] = value
        for system in each[0]:
            table[system][group] = fmean(one[system] for one in each)
    print(tabulate([{"RR@100": system, **values} for system, values in table.items()], headers="keys", floatfmt=".3f"))


if __name__ == "__main__":
    main()
