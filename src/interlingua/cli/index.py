"""`interlingua index` and `interlingua search`."""

from __future__ import annotations

import argparse
import json
from typing import Any

NAMES = ("index", "search")


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    parser = verbs.add_parser("index", help="make passages searchable", parents=[common])
    parser.add_argument("model", help="a model folder or name")
    parser.add_argument("passages", nargs="+", help="jsonl files of passages {text, id, title, lang}, or collections")
    parser.add_argument("--out", required=True, metavar="DIR", help="the index folder")
    parser.add_argument("--lang", default="", help="language of passages that do not name theirs")
    parser.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    parser.set_defaults(run=index)
    parser = verbs.add_parser("search", help="ask an index in any language", parents=[common])
    parser.add_argument("index", help="an index folder")
    parser.add_argument("question", nargs="+")
    parser.add_argument("-k", type=int, default=5, help="how many results (5)")
    parser.add_argument("--lang-of-results", default="any", metavar="any|xx,yy",
                        help="only passages in these languages")
    parser.add_argument("--model", metavar="PATH",
                        help="the model that made the index, where it is not at the place the index remembers")
    parser.add_argument("--json", action="store_true", help="one JSON object a result")
    parser.set_defaults(run=search)


def index(arguments: argparse.Namespace) -> None:
    """Build."""
    from interlingua.data.passages import read_sources
    from interlingua.models.dual import DualEncoder
    from interlingua.progress import say
    from interlingua.retrieval.index import Index

    model = DualEncoder.load(arguments.model)
    passages = read_sources(arguments.passages, arguments.lang)
    built = Index.build(model, passages, arguments.out, model_path=arguments.model, overwrite=arguments.overwrite)
    say(f"{arguments.out}: {len(built):,} passages. Try: interlingua search {arguments.out} \"your question\"")


def search(arguments: argparse.Namespace) -> None:
    """Search and print."""
    from interlingua.retrieval.index import Index
    from interlingua.text.languages import find_code

    asked = arguments.lang_of_results
    # an unknown code goes on as it is: the index says which ones it has
    langs = None if asked == "any" else [find_code(lang) or lang for lang in asked.split(",")]
    model = None
    if arguments.model:
        from interlingua.models.dual import DualEncoder

        model = DualEncoder.load(arguments.model)
    hits = Index.open(arguments.index, model).search(" ".join(arguments.question), k=arguments.k, langs=langs)
    for rank, hit in enumerate(hits, 1):
        passage = hit.passage
        if arguments.json:
            print(json.dumps({"rank": rank, "score": hit.score, "id": passage.id, "lang": passage.lang,
                              "title": passage.title, "text": passage.text}, ensure_ascii=False))
        else:
            print(f"{rank:2}. {hit.score:.3f} [{passage.lang or '??'}] {passage.title or passage.id}\n"
                  f"    {passage.text}")
    if not hits and not arguments.json:
        print("no passage in the languages asked for.")
