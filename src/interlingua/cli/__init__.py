"""The command line: one file a verb, no logic of its own, nothing heavy imported before a verb runs."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from interlingua import __version__
from interlingua.cli import compare, demo, encode, evaluate, index, inspect, reproduce, train
from interlingua.errors import InterlinguaError, suggestion

VERBS = (train, evaluate, encode, index, reproduce, compare, inspect, demo)

DESCRIPTION = """\
Train, evaluate and search with encoders that read meaning, not language.

  interlingua demo                                                  see it work, in five minutes
  interlingua train hu2023/semantic --data DIR --out runs/sema      train a retriever; the same command resumes
  interlingua evaluate runs/sema/model --on COLLECTION ...          a table per language
  interlingua index runs/sema/model passages.jsonl --out idx        make passages searchable
  interlingua search idx "où est né Alan Turing ?"                  ask in any language
"""


class Parser(argparse.ArgumentParser):
    """argparse with a suggestion for a misspelt verb, and exit code 2 in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """One line and the way out."""
        if "invalid choice" in message and "'" in message:
            message = f"unknown verb '{message.split(chr(39))[1]}'." + suggestion(message.split("'")[1], names())
        self.exit(2, f"interlingua: {message} See `{self.prog} --help`.\n")


def names() -> list[str]:
    """Every verb."""
    return [name for verb in VERBS for name in verb.NAMES]


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = Parser(prog="interlingua", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"interlingua {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS,
                        help="show the traceback of an error")
    for verb in VERBS:
        verb.add(verbs, common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0 done, 2 something the user can mend, 130 stopped."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.verb is None:
        parser.print_help()
        return 0
    try:
        arguments.run(arguments)
    except InterlinguaError as error:
        return _fail(str(error), 2, arguments.debug)
    except KeyboardInterrupt:
        return _fail("stopped.", 130, arguments.debug)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'system'}: {error.strerror or error}.", 2, arguments.debug)
    return 0


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"interlingua: {' '.join(message.split())}", file=sys.stderr)
    return code
