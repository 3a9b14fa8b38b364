"""Run the benchmarks of docs/benchmarks.md, on one thread, and write what they print into it.

    make bench                 # what needs no data; DATA=folder for the others, too
    python benchmarks/bench.py --data DATA --only search maxsim

The page says what is run: each comment `<!-- run: SCRIPT OPTIONS -->` is followed by what the command printed last, up
to `<!-- end -->`. Commands run one after another, each in a process of its own, for `MINUTES` at most. Where one fails,
its part of the page stays as it is; it is named, and the exit code is 1. What needs data where none is given is left
out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from glob import escape, glob, has_magic
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/benchmarks.md"
PART = re.compile(r"(?s)(<!-- run: (?P<command>[^>]+?) -->\n).*?(<!-- end -->)")
MINUTES = 5


def words(command: str, data: str) -> list[str]:
    """The words of a command with the folder `data` in them, as a shell gives them: what is not quoted is a pattern.
    Raises FileNotFoundError for a pattern that no file has."""
    found: list[str] = []
    for word in shlex.split(command, posix=False):
        bare = word.strip('"')
        if bare != word or not has_magic(word):
            found.append(bare.replace("DATA", data))
        elif files := sorted(glob(word.replace("DATA", escape(data)))):
            found += files
        else:
            raise FileNotFoundError(f"{word}: no such files")
    return found


def ran(given: list[str]) -> str:
    """What a command prints. Raises RuntimeError where it fails or takes too long."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / given[0]), *given[1:]],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=60 * MINUTES)
        except BaseException as error:
            with suppress(OSError):  # with the processes that it has started
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"took more than {MINUTES} minutes") from error
            raise
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}")
    return said.strip()


def write(command: str, text: str) -> None:
    """Put `text` into the part of the page that is of this command."""

    def part(match: re.Match[str]) -> str:
        return f"{match[1]}\n{text}\n\n{match[3]}" if match["command"] == command else match[0]

    PAGE.write_text(PART.sub(part, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="the folder with train/ and dev/")
    parser.add_argument("--only", nargs="+", help="scripts, without .py")
    given = parser.parse_args()
    data = str(Path(given.data).resolve()) if given.data else ""
    commands = [match["command"] for match in PART.finditer(PAGE.read_text(encoding="utf-8"))]
    scripts = {command.partition(".py")[0] for command in commands}
    if unknown := set(given.only or ()) - scripts:
        parser.error(f"{', '.join(sorted(unknown))}: not on the page, which has {', '.join(sorted(scripts))}")
    failed = []
    for command in commands:
        if given.only and command.partition(".py")[0] not in given.only:
            continue
        if "DATA" in command and not data:
            print(f"left out, as it needs --data: {command}", flush=True)
            continue
        shown = f"OMP_NUM_THREADS=1 python benchmarks/{command}"
        print(shown, end="", flush=True)
        start = time.perf_counter()
        try:
            said = ran(words(command, data))
        except (RuntimeError, OSError) as error:
            failed.append(f"{command}: {error}")
            print(": failed", flush=True)
            continue
        took = f"{time.perf_counter() - start:.0f} s"
        print(f": {took}", flush=True)
        said = said.replace(data, "DATA") if data else said
        write(command, f"```\n$ {shown}    # {datetime.now(UTC):%Y-%m-%d}, {took}\n{said}\n```")
    for one in failed:
        print(f"left as it was: {one}", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
