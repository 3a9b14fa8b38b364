"""`interlingua index`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

NAMES = ("index",)
MODEL_FILES = ("modules.json", "config.json", "*.safetensors", "pytorch_model*.bin")

DESCRIPTION = """\
Make passages searchable, and keep them so.

  interlingua index MODEL handbook/ faq.csv --out idx    jsonl, csv, tsv, Parquet, text, Markdown, HTML, folders
  interlingua index handbook/ --out idx                  with the model that comes along
  interlingua index --add idx more.jsonl                 new passages
  interlingua index --replace idx handbook/              new passages, and other ones in place of those with their ids
  interlingua index --delete idx handbook/guide.md#3     passages by their ids
  interlingua index --tokens idx RERANKER                keep its token vectors: --rerank RERANKER is quick then
  interlingua index --compact idx                        tidy up after many changes
  interlingua index --info idx                           what is in it

A build that was stopped goes on where it was when the same command is given again.
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "index",
        help="make passages searchable",
        parents=[common],
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="[MODEL] FILE",
        help="a model folder or name, then files, folders and collections of passages; ids after "
        "--delete; models after --tokens",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--out",
        "--store",
        metavar="DIR",
        help="make an index: its folder, milvus://host:port/name, or milvus:file.db/name for Milvus Lite",
    )
    for option, explained in (
        ("add", "add passages to an index"),
        ("replace", "add or replace passages by their ids"),
        ("delete", "delete passages by id, source:id"),
        ("tokens", "keep the token vectors of a late-interaction model that reranks"),
        ("compact", "make its caches again, remove old versions"),
        ("info", "say what is in an index"),
    ):
        what.add_argument(f"--{option}", metavar="IDX", help=explained)
    parser.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="with --out: encode on a Ray cluster (auto, host:6379), or on this machine alone (local); "
        "without an address on the cluster of this machine, else on it alone",
    )
    parser.add_argument("--lang", default="", help="language of passages that do not name theirs (else detected)")
    parser.add_argument("--chunk-chars", type=int, metavar="N", help="characters of a passage that is cut (800)")
    parser.add_argument("--overlap", type=int, metavar="N", help="sentences that a passage has of the one before (1)")
    parser.add_argument(
        "--columns",
        action=Repeated,
        form="(text|title|id|lang)=",
        metavar="text=COLUMN",
        help="which columns of tables are text, title, id and lang, where they have other names",
    )
    parser.add_argument(
        "--on-bad-row",
        choices=["error", "skip"],
        default="error",
        help="stop at a row that cannot be read, or count and list it",
    )
    parser.add_argument(
        "--model",
        metavar="PATH",
        help="with --add and --replace: the model, where it is not at the place the index remembers",
    )
    dense = parser.add_mutually_exclusive_group()
    dense.add_argument(
        "--approximate",
        action="store_true",
        default=None,
        help="with --compact: index the vectors for approximate search (done by itself for millions)",
    )
    dense.add_argument(
        "--exact",
        dest="approximate",
        action="store_false",
        help="with --compact: search exactly; to be said each time where there are millions",
    )
    parser.add_argument(
        "--durability",
        choices=["full", "process"],
        help="with --add, --replace and --delete: full, the default, waits until a power cut cannot "
        "undo the change; process does not",
    )
    parser.add_argument("--json", action="store_true", help="with --info: one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Build an index, or do to one what was asked."""

    verb = next(
        name for name in ("out", "add", "replace", "delete", "tokens", "compact", "info") if getattr(arguments, name)
    )
    takes = {"out": "files", "add": "files", "replace": "files", "delete": "ids", "tokens": "a model"}.get(verb)
    if takes and not arguments.inputs:
        raise BadInput(f"--{verb}: needs {takes}. See `interlingua index --help`.")
    if arguments.ray is not None and verb != "out":
        raise BadInput(f"--ray: encodes a new index, so it goes with --out and not with --{verb}.")
    if arguments.approximate is not None and (verb != "compact" or arguments.compact.startswith("milvus:")):
        raise BadInput("--approximate, --exact: go with --compact and the folder of an index.")
    if verb == "tokens" and arguments.tokens.startswith("milvus:"):
        raise BadInput("--tokens: a store in Milvus keeps none. Its reranker encodes what it reranks.")
    if arguments.durability and verb not in ("add", "replace", "delete"):
        raise BadInput(
            f"--durability: goes with --add, --replace and --delete. What --{verb} writes is always on the disk."
        )
    if not takes and arguments.inputs:
        raise BadInput(f"--{verb}: takes nothing but the index, and '{arguments.inputs[0]}' was given too.")
    if verb == "out":
        build(arguments)
    else:
        change(arguments, verb)


def build(arguments: argparse.Namespace) -> None:
    """A new index."""
    from interlingua.data.files import SourceNames
    from interlingua.index.index import build_index
    from interlingua.models.dual import DualEncoder
    from interlingua.progress import say

    names = SourceNames()
    first, *rest = arguments.inputs
    name, sources = ("default", arguments.inputs) if not rest or is_passages(first) else (first, rest)
    options: dict[str, Any] = {"overwrite": arguments.overwrite, "names": names}
    if arguments.ray is not None:
        from interlingua.index.ray import build_index_on_ray

        built = build_index_on_ray(
            name, passages(arguments, sources, names), arguments.out, address=arguments.ray, **options
        )
    else:
        model = DualEncoder.load(name)
        built = build_index(model, passages(arguments, sources, names), arguments.out, model_path=name, **options)
    say(f'{arguments.out}: {counted(built)}. Try: interlingua search {arguments.out} "your question"')


def change(arguments: argparse.Namespace, verb: str) -> None:
    """Add, replace, delete, compact or describe."""
    from interlingua.index.index import open_index
    from interlingua.progress import say

    place = getattr(arguments, verb)
    durability = arguments.durability or "full"
    if arguments.model:
        from interlingua.index.metadata import load_to_encode

        index = open_index(place, load_to_encode(arguments.model), durability=durability)
    else:
        index = open_index(place, durability=durability)
    if verb == "info":
        show(index.info(), arguments.json)
    elif verb == "compact":
        index.compact(*[] if arguments.approximate is None else [arguments.approximate])
        say(f"{place}: is compact; {counted(index)}")
    elif verb == "tokens":
        keep_tokens(index, place, arguments.inputs)
    elif verb == "delete":
        gone = index.delete(arguments.inputs)
        say(f"{place}: {gone:,} passages deleted; {counted(index)}")
    else:
        from interlingua.data.files import SourceNames

        names = SourceNames()
        written = getattr(index, verb)(passages(arguments, arguments.inputs, names), names)
        say(f"{place}: {written:,} passages {'added' if verb == 'add' else 'added or changed'}; {counted(index)}")


def keep_tokens(index: Any, place: str, models: list[str]) -> None:
    """Token vectors for rerankers."""
    from interlingua.models.late_interaction import load_any
    from interlingua.progress import say

    for model in models:
        say(
            f"{place}: {index.keep_tokens(load_any(model)):,} passages encoded by {model}. "
            f'Try: interlingua search {place} --rerank {model} "your question"'
        )


def passages(arguments: argparse.Namespace, sources: list[str], names: Any) -> Any:
    """What the files hold, named by `names`, which the index knows or will keep."""
    from interlingua.data.passages import read_sources

    given = {"chunk_chars": arguments.chunk_chars, "overlap": arguments.overlap}
    options = {name: value for name, value in given.items() if value is not None}
    for pair in arguments.columns or ():
        name, sign, column = pair.partition("=")
        if not sign or not column:
            raise BadInput(f"--columns '{pair}': write text=COLUMN, title=COLUMN, id=COLUMN or lang=COLUMN.")
        options.setdefault("columns", {})[name] = column
    return read_sources(sources, arguments.lang, names, on_bad_row=arguments.on_bad_row, **options)


def is_passages(name: str) -> bool:
    """Whether a first argument is passages already, so that no model was named."""
    from interlingua.data.passages import is_collection
    from interlingua.files import is_input

    path = Path(name)
    if path.is_dir() and any(any(path.glob(pattern)) for pattern in MODEL_FILES):
        return False
    return is_input(name) or is_collection(name) or (path.is_dir() and any(path.iterdir()))


def counted(index: Any) -> str:
    """How many passages an index has, in which languages."""
    languages = sorted(index.languages.items(), key=lambda pair: (-pair[1], pair[0]))
    return f"{len(index):,} passages: " + ", ".join(f"{lang or 'unknown'} {count:,}" for lang, count in languages)


def show(info: Any, as_json: bool) -> None:
    """Print what `Index.info` says."""
    from dataclasses import asdict

    if as_json:
        print(json.dumps(asdict(info), ensure_ascii=False))
        return
    print(f"passages   {info.passages:,}")
    for lang, count in sorted(info.languages.items(), key=lambda pair: (-pair[1], pair[0])):
        print(f"           {lang or '??':3} {count:>9,}  {info.analyzers.get(lang, '')}")
    print(f"model      {info.model or 'not named'}: {info.dim} dimensions, {info.similarity}")
    print(f"lexical    BM25, k1={info.k1}, b={info.b}")
    print(
        f"version    {info.version}; cache of version {info.cache}, {info.newer:,} newer and {info.deleted:,} "
        "deleted rows beside it"
    )
