"""The command line: one file a verb, no logic of its own, nothing heavy imported before a verb runs."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from interlingua import __version__
from interlingua.cli import calibrate, demo, encode, info, inspect, mine, shrink, train
from interlingua.cli.evaluate import compare, evaluate, report, reproduce
from interlingua.cli.index import backup, build, check, compact, delete, search, serve, sync, tokens, write
from interlingua.cli.parser import SHELLS, SHOWN, Parser, PrintCompletion, VerbParser
from interlingua.cli.streams import lasting_streams
from interlingua.errors import InterlinguaError
from interlingua.pipes import forget_pipes
from interlingua.progress import harmless, shown
from interlingua.subprocesses import use_memory_sparingly

VERBS = (
    train,
    evaluate,
    encode,
    build,
    write,
    sync,
    delete,
    compact,
    tokens,
    check,
    backup,
    search,
    serve,
    info,
    reproduce,
    compare,
    report,
    calibrate,
    shrink,
    mine,
    inspect,
    demo,
)

DESCRIPTION = """\
Train, evaluate and search with encoders that read meaning, not language.

  interlingua demo                                                  see it work, in a minute or two
  interlingua train hu2023/semantic --data DIR --out runs/sema      train a retriever; the same command resumes
  interlingua evaluate runs/sema/model --on COLLECTION ...          a table per language
  interlingua index runs/sema/model passages.jsonl --out idx        make passages searchable
  interlingua add idx more.jsonl                                    change an index: also sync, replace, delete
  interlingua search idx "où est né Alan Turing ?"                  ask in any language
  interlingua serve idx                                             a search page and an HTTP API
"""


def names() -> list[str]:
    """Every verb."""
    return [name for verb in VERBS for name in verb.NAMES]


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = Parser(prog="interlingua", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"interlingua {__version__}")
    for option, description in SHOWN.items():
        parser.add_argument(option, action="store_true", help=description)
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help="print a script that completes commands in this shell",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", parser_class=VerbParser)
    for verb in VERBS:
        verb.add(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0 done, 2 something the user can mend, 70 a defect of interlingua, 130 stopped."""
    debug = False
    with lasting_streams():
        try:
            parser = build_parser()
            arguments = _parsed(parser, argv)
            debug = arguments.debug
            if arguments.verb is None:
                parser.print_help()
            else:
                _run(arguments)
            sys.stdout.flush()
        except InterlinguaError as error:
            return _fail(str(error), 2, debug)
        except KeyboardInterrupt as stopped:  # a training says how far it is
            return _fail(str(stopped) or "stopped.", 130, debug)
        except OSError as error:
            from interlingua.files import DISK_FULL

            full = error.errno in DISK_FULL
            advice = " Make room (or raise the limit), and give the same command again." if full else ""
            return _fail(f"{_file_of(error)}: {error.strerror or error}.{advice}", 2, debug)
        except Exception as error:
            if _is_memory(error):
                return _fail("there is not enough memory for this. Give it less at once.", 2, debug)
            # nobody expected it, so nobody can say what to do about it
            return _fail(f"this is a defect in interlingua ({_summary(error)}).{_kept()}", 70, debug)
    return 0


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    try:
        return parser.parse_args(argv)
    except SystemExit:  # of --help and --version, too
        sys.stdout.flush()
        raise


def _run(arguments: argparse.Namespace) -> None:
    use_memory_sparingly()
    forget_pipes()  # where one process runs several commands
    level = logging.DEBUG if arguments.debug else logging.WARNING if arguments.quiet else logging.INFO
    with shown(level):
        arguments.run(arguments)


def _summary(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _kept() -> str:
    """Keep the traceback of the current error in a file, and say in words where."""
    from interlingua.files import cache_folder

    with suppress(OSError):
        folder = cache_folder() / "crashes"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{datetime.now():%Y-%m-%d-%H-%M-%S}-{os.getpid()}.txt"
        versions = f"interlingua {__version__}, Python {platform.python_version()}, {platform.platform()}"
        file.write_text(f"{versions}\n{traceback.format_exc()}", "utf-8")
        return f" Please report it with {file}, which says where it happened."
    return " --debug shows where. Please report it."


def _is_memory(error: Exception) -> bool:
    """Whether an error says that memory cannot be had: torch says it in a RuntimeError."""
    reported = "allocate memory" in str(error) or "out of memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and reported)


def _file_of(error: OSError) -> str:
    """The name by which the person knows the file: a temporary `.name.xxxxxxxx.part` was to become `name`."""
    path = Path(str(error.filename2 or error.filename or "system"))
    return str(path.with_name(re.sub(r"^\.(.+)\.\w{8}\.part$", r"\1", path.name)))


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(harmless(f"interlingua: {' '.join(message.split())}"), file=sys.stderr)
    return code
