"""`interlingua sync`: bring an index to what files and folders hold."""

from __future__ import annotations

import argparse
import glob
import logging
import os
import signal
from threading import Event
from typing import Any

from interlingua.cli.options import counted, dry_run_option, opened, read_passages, sources_of_an_index
from interlingua.errors import BadInput

logger = logging.getLogger(__name__)

NAMES = ("sync",)
LISTED = 20
"""Sources that a summary names."""

DESCRIPTION = """\
Bring an index to what files and folders hold now: add what is new, replace what changed, delete what is gone. Passages
from elsewhere stay. What did not change is not encoded again.

  interlingua sync idx handbook/ faq.csv --dry-run   say what would change
  interlingua sync idx handbook/ faq.csv
  interlingua sync idx handbook/old.md               one file of that folder; where it is gone, its passages go
  interlingua sync idx handbook/ --watch             go on and sync what changes, also while it is served

A file that cannot be read as a whole keeps the passages that it has; it is named, and the exit code is 2. Files that
have not changed since they were synced are not read again, unless --read-all is given.
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("sync", help="bring an index to what files and folders hold now", description=DESCRIPTION)
    sources_of_an_index(parser)
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Bring sources to what they hold now."""
    from interlingua.data.files import Scope, SourceNames

    if arguments.watch:
        watch(arguments)
        return
    index, names, scope = opened(arguments, durability=arguments.durability), SourceNames(), Scope()
    changes = index.sync(
        read_passages(arguments, arguments.files, names, scope),
        scope,
        names,
        allow_empty=arguments.allow_empty,
        dry_run=arguments.dry_run,
        read_all=arguments.read_all,
    )
    lines = [" ".join(line.splitlines()) for line in changes.by_source()]
    others = [f"… and {len(lines) - LISTED:,} more sources"] if len(lines) > LISTED else []
    suffix = " (nothing is written: --dry-run)" if arguments.dry_run else f"; {counted(index)}"
    logger.info("\n".join([*lines[:LISTED], *others, f"{arguments.index}: {changes}{suffix}"]))
    if scope.unread and arguments.on_bad_row != "skip":
        examples = ", ".join([*sorted(scope.unread)[:3], *["…"][: len(scope.unread) > 3]])
        raise BadInput(
            f"{len(scope.unread):,} of the sources could not be read as a whole ({examples}): "
            f"{changes.kept.total():,} passages of theirs that were not found are kept. The rest is done. "
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
    if patterns := [path for path in arguments.files if glob.has_magic(path) and not os.path.exists(path)]:
        raise BadInput(
            f"{patterns[0]}: is a pattern, of which no change is seen. Give the folder, or sync without --watch."
        )
    stop = Event()

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def end(number: int, frame: object) -> None:
        stop.set()
        restore()

    watcher = Watcher(arguments.files, stop, without=[arguments.index])
    index = opened(arguments, durability=arguments.durability)
    index.encoder  # noqa: B018
    handlers = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
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
