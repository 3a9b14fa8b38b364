"""The quality of dense, lexical and hybrid search in an index, and of hybrid search with other weights.

    python benchmarks/hybrid.py --model default --data DATA/dev --questions 200
    python benchmarks/hybrid.py --model default --data DATA/dev --questions 4000 --native --weights
    python benchmarks/hybrid.py --model multilingual-e5-small --precision int8 --tokens --langs ar en zh --weights \
        --data DATA/dev --questions 40

Indexes each collection for itself and asks its questions: of XQuAD in the passages' own language, and from and to
English; of the other collections as people asked them. Prints the mean reciprocal rank (RR@100) of each group, of each
native collection, and of each group over the languages that no choice is made on ("held", common.py). Then the bundled
encyclopedia, eleven languages in one index, and XQuAD, twelve: average precision, where a passage that answers is
relevant in every language, the reciprocal rank of that in the question's own, and how often this one comes before its
translations. "without subwords" leaves out what is matched subword by subword (retrieval/late_interaction/static.py),
"without phonetic keys" what is found by its sound (text/phonetic.py);
"weight" is that of the dense score, one for all languages (index/ranking.py). With --tokens the token states of a
transformer are kept, and "without subwords" is without them; --langs limits XQuAD to some languages and leaves out all
else, --native all but the native collections.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from tabulate import tabulate

from common import HELD
from interlingua.data.collections import cross, load_collection
from interlingua.data.records import Collection, Passage
from interlingua.evaluation import evaluate
from interlingua.index import ranking as hybrid
from interlingua.index.index import Index
from interlingua.index.metadata import Question
from interlingua.models.late_interaction import load_any
from interlingua.retrieval.run import Run

LANGS = "ar de el en es hi ro ru th tr vi zh".split()
BUNDLED = "ar bn en fi id ja ko ru sw te th".split()
NATIVE = {
    "ar": "arcd_ar",
    "ko": "tydiqa_train_ko",
    "sw": "tydiqa_train_sw",
    "th": "iapp_valid_th",
    "zh-tw": "drcd_dev_zhtw",
}
WEIGHTS = (0.1, 0.2, 0.4, 0.7)


def tests(data: Path, langs: list[str]) -> dict[str, list[Collection]]:
    """Group → collections, each with its passages and questions."""
    xquad = {lang: load_collection(data / f"xquad_{lang}") for lang in langs}
    others = [lang for lang in langs if lang != "en"]
    native = [] if langs != LANGS else [load_collection(data / name) for name in NATIVE.values()]
    return {
        "same language": list(xquad.values()),
        **({"native": native} if native else {}),
        "to English": [cross(xquad[lang], xquad["en"]) for lang in others],
        "from English": [cross(xquad["en"], xquad[lang]) for lang in others],
    }


def found(index: Index, asked: Mapping[str, str | Question], mode: str) -> Run:
    """The first 100 passages for each question, given as its id and text."""
    run = Run()
    for name, hits in zip(asked, index.search_many(list(asked.values()), 100, mode=mode), strict=True):
        run.add(name, [hit.passage.id for hit in hits], [hit.score for hit in hits])
    return run


def ask(index: Index, collection: Collection, count: int, weights: Sequence[float]) -> dict[str, float]:
    """System → mean reciprocal rank over a seeded sample of the questions."""
    asked = [query for query in collection.queries if any(collection.qrels[query.id].values())]
    asked = {query.id: query.text for query in random.Random(0).sample(asked, min(count, len(asked)))}
    qrels = {name: collection.qrels[name] for name in asked}
    return {
        system: evaluate(found(index, asked, mode), qrels, ["RR@100"])["RR@100"] for system, mode in systems(weights)
    }


def pool(
    model: Any, name: str, held: Mapping[str, Collection], count: int, weights: Sequence[float]
) -> list[dict[str, Any]]:
    """A row for each system on passages in many languages in one index, translations of one another; up to `count`
    questions of each language. The language of a question is detected, or in the last row not known at all."""
    passages = [Passage(f"{lang}:{p.id}", p.text, p.title, lang) for lang, one in held.items() for p in one.passages]
    asked, whole, own = {}, {}, {}
    for lang, one in held.items():
        for query in [query for query in one.queries if any(one.qrels[query.id].values())][:count]:
            golds = [passage for passage, grade in one.qrels[query.id].items() if grade > 0]
            asked[f"{lang}:{query.id}"] = query.text
            own[f"{lang}:{query.id}"] = {f"{lang}:{gold}": 1 for gold in golds}
            whole[f"{lang}:{query.id}"] = {f"{other}:{gold}": 1 for other in held for gold in golds}
    unknown = {query: Question(text, "") for query, text in asked.items()}
    with TemporaryDirectory() as folder:
        index, rows = Index.build(model, passages, Path(folder) / "index"), []
        for system, mode in chain(systems(weights), [("language unknown", "hybrid")]):
            run = found(index, unknown if system == "language unknown" else asked, mode)
            precision, first = evaluate(run, whole, ["AP"])["AP"], evaluate(run, own, ["RR@100"])["RR@100"]
            best = {query: next((name for name, _ in run[query] if name in whole[query]), None) for query in asked}
            before = [name in own[query] for query, name in best.items() if name is not None]
            values = {"AP": precision, "own language, RR": first, "own language first": fmean(before)}
            rows.append({f"{name}, one pool": system, **values})
    return rows


def systems(weights: Sequence[float]) -> Iterator[tuple[str, str]]:
    """Name and mode of each way to search, which is in force until the next is asked for."""
    yield from (("lexical", "lexical"), ("dense", "dense"), ("hybrid", "hybrid"))
    with settings(None, matched=False):
        yield "without subwords", "hybrid"
    with settings(None, heard=False):
        yield "without phonetic keys", "hybrid"
    for weight in weights:
        with settings(weight):
            yield f"weight {weight}", "hybrid"


@contextmanager
def settings(weight: float | None, *, matched: bool = True, heard: bool = True) -> Iterator[None]:
    """Search with one `weight` of meaning for all languages (None: as it is), with subwords `matched` or not, and with
    phonetic keys `heard` or not."""
    is_foreign = Question.is_foreign
    names = ("OWN", "FOREIGN", "OWN_STATES", "FOREIGN_STATES", "UNKNOWN")
    before = {name: getattr(hybrid, name) for name in (*names, "MATCHED")}
    for name in names if weight is not None else ():
        setattr(hybrid, name, weight)
    hybrid.MATCHED = hybrid.MATCHED if matched else 0
    Question.is_foreign = is_foreign if heard else lambda self, lang: False
    yield
    Question.is_foreign = is_foreign
    for name, value in before.items():
        setattr(hybrid, name, value)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=200, help="of each collection (200)")
    parser.add_argument("--precision", help="of the model's weights; none: as it is trained")
    parser.add_argument("--tokens", action="store_true", help="keep token states")
    parser.add_argument("--weights", nargs="*", type=float, default=WEIGHTS, help="of meaning, tried one by one")
    parser.add_argument("--langs", nargs="+", default=LANGS, help="of XQuAD, English among them")
    parser.add_argument("--pools", action="store_true", help="only the pools of many languages")
    parser.add_argument("--native", action="store_true", help="only the questions of native speakers")
    arguments = parser.parse_args()
    model, table = load_any(arguments.model, precision=arguments.precision), defaultdict(dict)
    for group, collections in () if arguments.pools else tests(arguments.data, arguments.langs).items():
        if arguments.native and group != "native":
            continue
        each = []
        for number, collection in enumerate(collections):
            with TemporaryDirectory() as folder:
                passages = [Passage(p.id, p.text, p.title, p.lang) for p in collection.passages]
                index = Index.build(model, passages, Path(folder) / "index")
                if arguments.tokens:
                    index.keep_tokens()
                each.append(ask(index, collection, arguments.questions, arguments.weights))
            if group == "native":
                for system, value in each[-1].items():
                    table[system][list(NATIVE)[number]] = value
        spoken = list(NATIVE) if group == "native" else arguments.langs
        if len(spoken) > len(each):
            spoken = [lang for lang in spoken if lang != "en"]
        held = [one for lang, one in zip(spoken, each, strict=True) if lang in HELD]
        for system in each[0]:
            table[system][group] = fmean(one[system] for one in each)
            if held:
                table[system][f"{group}, held"] = fmean(one[system] for one in held)
    print(tabulate([{"RR@100": system, **values} for system, values in table.items()], headers="keys", floatfmt=".3f"))
    if arguments.langs != LANGS or arguments.native:
        return
    pools = {
        "encyclopedia": {lang: load_collection(f"encyclopedia:{lang}") for lang in BUNDLED},
        "XQuAD": {lang: load_collection(arguments.data / f"xquad_{lang}") for lang in LANGS},
    }
    for name, held in pools.items():
        print(
            "\n"
            + tabulate(pool(model, name, held, arguments.questions, arguments.weights), headers="keys", floatfmt=".3f")
        )


if __name__ == "__main__":
    main()
