"""`interlingua add`, `replace`, `sync`, `delete`, `compact` and `tokens`: what changes an index that is there."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable
from threading import Event
from typing import Any

from interlingua.cli.options import (
    counted,
    durability_option,
    filter_of,
    filter_option,
    index_argument,
    model_option,
    opened,
    passage_options,
    precision_option,
    read_passages,
)
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

logger = logging.getLogger(__name__)

NAMES = ("add", "replace", "sync", "delete", "compact", "tokens")
LISTED = 20
"""Sources that a summary names."""

ADD = """\
Add passages to an index. A passage whose id is there already is an error.

  interlingua add idx news.jsonl
  interlingua add idx faq.csv --columns text=answer id=number
"""
REPLACE = """\
Put passages in place of those with their ids, and add new ones. What did not change is not encoded again.

  interlingua replace idx handbook/
  interlingua replace idx handbook/guide.md          one file of that folder
"""
SYNC = """\
Bring an index to what files and folders hold now: add what is new, replace what changed, delete what is gone. Passages
from elsewhere stay. What did not change is not encoded again.

  interlingua sync idx handbook/ faq.csv --dry-run   say what would change
  interlingua sync idx handbook/ faq.csv
  interlingua sync idx handbook/old.md               one file of that folder; where it is gone, its passages go
  interlingua sync idx handbook/ --watch             go on and sync what changes, also while it is served

A file that cannot be read as a whole keeps the passages that it has; it is named, and the exit code is 2. Files that
have not changed since they were synced are not read again, unless --read-all is given.
"""
DELETE = """\
Delete passages by their ids, or by sources and metadata. An id means all passages that have it, SOURCE:ID one of them.

  interlingua delete idx handbook/guide.md#3
  interlingua delete idx faq.csv:7 faq.csv:8
  interlingua delete idx --source faq.csv            all of a file
  interlingua delete idx --source handbook/ --filter topic=storm --dry-run
"""
COMPACT = """\
Tidy up after many changes: make the caches again, join files, remove what only old versions need.

  interlingua compact idx
  interlingua compact idx --approximate              for millions of passages: index the vectors
"""
TOKENS = """\
Keep the token vectors of late-interaction models, so that `--rerank MODEL` need not encode passages; without a model
the token states of the index's own transformer, which hybrid search then compares too. What is kept already stays: give
the command again after many changes.

  interlingua tokens idx runs/late/model
  interlingua tokens idx
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verbs."""

    def verb(name: str, help: str, description: str, run: Callable[[argparse.Namespace], None]) -> Any:
        parser = verbs.add_parser(name, help=help, parents=[common], description=description)
        index_argument(parser)
        parser.set_defaults(run=run)
        return parser

    for name, help, description, run in (
        ("add", "add passages to an index", ADD, write),
        ("replace", "replace passages of an index, and add new ones", REPLACE, write),
        ("sync", "bring an index to what files and folders hold now", SYNC, sync),
    ):
        parser = verb(name, help, description, run)
        parser.add_argument("files", nargs="+", metavar="FILE", help="files, folders and collections of passages")
        model_option(parser)
        precision_option(parser)
        durability_option(parser)
        passage_options(parser)
    dry_run_option(parser)
    parser.add_argument(
        "--allow-empty",
        action="store_true",
        help="delete all passages of a folder that is empty or gone, which is an error otherwise",
    )
    parser.add_argument(
        "--watch", action="store_true", help="go on, and sync what changes, until it is stopped (Ctrl-C, SIGTERM)"
    )
    parser.add_argument(
        "--read-all", action="store_true", help="read also files that have not changed since they were synced"
    )
    parser = verb("delete", "delete passages of an index", DELETE, delete)
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids, or SOURCE:ID")
    parser.add_argument(
        "--source",
        action=Repeated,
        default=[],
        metavar="SOURCE",
        help="all passages of a source, as results name it; handbook/ means all whose names begin so",
    )
    filter_option(parser, "all passages with these metadata; with --source those of the source")
    dry_run_option(parser)
    durability_option(parser)
    parser = verb("compact", "tidy up an index after many changes", COMPACT, compact)
    dense = parser.add_mutually_exclusive_group()
    dense.add_argument(
        "--approximate",
        action="store_true",
        default=None,
        help="index the vectors for approximate search (done by itself for millions)",
    )
    dense.add_argument(
        "--exact",
        dest="approximate",
        action="store_false",
        help="search exactly; to be said each time where there are millions",
    )
    parser = verb("tokens", "keep the token vectors of rerankers in an index", TOKENS, tokens)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="late-interaction models, folders or names")


def dry_run_option(parser: argparse.ArgumentParser) -> None:
    """--dry-run, of verbs that delete more than what was named."""
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")


def write(arguments: argparse.Namespace) -> None:
    """Add or replace."""
    from interlingua.data.files import SourceNames

    index, names = opened(arguments, durability=arguments.durability), SourceNames()
    written = getattr(index, arguments.verb)(read_passages(arguments, arguments.files, names), names)
    what = "added" if arguments.verb == "add" else "added or changed"
    logger.info(f"{arguments.index}: {written:,} passages {what}; {counted(index)}")


def sync(arguments: argparse.Namespace) -> None:
    """Bring sources to what they hold now."""
    from interlingua.data.files import Scope, SourceNames

    if arguments.watch:
        watch(arguments)
        return
    index, names, scope = opened(arguments, durability=arguments.durability), SourceNames(), Scope()
    done = index.sync(
        read_passages(arguments, arguments.files, names, scope),
        scope,
        names,
        allow_empty=arguments.allow_empty,
        dry_run=arguments.dry_run,
        read_all=arguments.read_all,
    )
    lines = done.by_source()
    more = [f"… and {len(lines) - LISTED:,} more sources"] if len(lines) > LISTED else []
    would = " (nothing is written: --dry-run)" if arguments.dry_run else f"; {counted(index)}"
    logger.info("\n".join([*lines[:LISTED], *more, f"{arguments.index}: {done}{would}"]))
    if scope.unread and arguments.on_bad_row != "skip":
        some = ", ".join([*sorted(scope.unread)[:3], *["…"][: len(scope.unread) > 3]])
        raise BadInput(
            f"{len(scope.unread):,} of the sources could not be read as a whole ({some}): "
            f"{done.kept.total():,} passages of theirs that were not found are kept. The rest is done. "
            "Mend them and give the same command again, or accept that with --on-bad-row skip."
        )


def watch(arguments: argparse.Namespace) -> None:
    """Sync, and again whenever something changes, until SIGINT or SIGTERM comes; a second one ends it at once."""
    from interlingua.data.files.watch import Watcher
    from interlingua.data.passages import is_collection
    from interlingua.index.watching import Watching

    for option in ("dry_run", "read_all"):
        if getattr(arguments, option):
            raise BadInput(f"--watch and --{option.replace('_', '-')} do not go together. Give one of them.")
    if collections := [path for path in arguments.files if is_collection(path)]:
        raise BadInput(f"{collections[0]}: is a test collection, which is not watched. Sync it without --watch.")
    stop = Event()

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)

    def end(number: int, frame: object) -> None:
        stop.set()
        restore()

    watcher = Watcher(arguments.files, stop, without=[arguments.index])
    index = opened(arguments, durability=arguments.durability)
    index.encoder  # noqa: B018
    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    watching = Watching(
        index,
        watcher,
        lambda paths, names, scope, report: read_passages(arguments, paths, names, scope, report),
        arguments.allow_empty,
    )
    try:
        watching.run()
    finally:
        restore()
    logger.info(f"{arguments.index}: stopped; {counted(index)}")


def delete(arguments: argparse.Namespace) -> None:
    """Delete by ids, or by sources and metadata."""
    if not (arguments.ids or arguments.source or arguments.filter):
        raise BadInput("say what to delete: ids, --source or --filter. See `interlingua delete --help`.")
    where = filter_of(arguments)
    index = opened(arguments, durability=arguments.durability)
    count = index.delete(arguments.ids, sources=arguments.source, where=where, dry_run=arguments.dry_run)
    would = "would be " * arguments.dry_run
    logger.info(f"{arguments.index}: {count:,} passages {would}deleted; {counted(index)}")


def compact(arguments: argparse.Namespace) -> None:
    """Make the caches again."""

    index = opened(arguments)
    index.compact(arguments.approximate)
    logger.info(f"{arguments.index}: is compact; {counted(index)}")


def tokens(arguments: argparse.Namespace) -> None:
    """Keep token vectors for rerankers, or for hybrid search."""
    from interlingua.models.late_interaction import load_any

    index = opened(arguments)
    if not arguments.models:
        logger.info(f"{arguments.index}: {index.keep_tokens():,} passages encoded for hybrid search by token states.")
    for model in arguments.models:
        logger.info(
            f"{arguments.index}: {index.keep_tokens(load_any(model)):,} passages encoded by {model}. "
            f'Try: interlingua search {arguments.index} --rerank {model} "your question"'
        )
