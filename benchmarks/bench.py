"""Run the benchmarks of docs/benchmarks.md and write what they print into it.

    make bench                 # what needs no data; DATA=folder for the others, too
    python benchmarks/bench.py --data DATA --only search maxsim

The page says what is run: each comment `<!-- run: SCRIPT OPTIONS -->` is followed by what the command printed last, up
to `<!-- end -->`. Commands run one after another, each in a process of its own with the threads of --threads. One that
fails, or that needs data where none is given, leaves its part of the page as it is, and is named.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from glob import glob, has_magic
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/benchmarks.md"
PART = re.compile(r"(?s)(<!-- run: (?P<command>[^>]+) -->\n).*?(<!-- end -->)")
MINUTES = 5
"""How long one command may take."""


def shown(command: str, threads: int) -> str:
    """The command as a person types it."""
    return f"OMP_NUM_THREADS={threads} python benchmarks/{command}"


def ran(command: str, data: str, threads: int) -> str:
    """What a command prints. Raises CalledProcessError or TimeoutExpired."""
    words: list[str] = []
    for word in shlex.split(command.replace("DATA", data), posix=False):
        quoted = word.strip('"')
        words += sorted(glob(word)) if has_magic(word) and quoted == word else [quoted]  # as a shell does
    found = subprocess.run(
        [sys.executable, str(Path(__file__).parent / words[0]), *words[1:]],
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60 * MINUTES,
    )
    return found.stdout.strip()


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("DATA", ""), help="the folder with train/ and dev/")
    parser.add_argument("--only", nargs="+", help="scripts, without .py")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    left = []

    def part(match: re.Match[str]) -> str:
        command = match["command"].strip()
        script = command.partition(".py")[0]
        if given.only and script not in given.only:
            return match[0]
        if "DATA" in command and not given.data:
            left.append(f"{command}: needs --data")
            return match[0]
        start = time.perf_counter()
        print(f"{shown(command, given.threads)} …", flush=True)
        try:
            said = ran(command, given.data, given.threads)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            left.append(f"{command}: {error}")
            return match[0]
        took = time.perf_counter() - start
        print(f"    {took:.0f} s", flush=True)
        said = said.replace(given.data, "DATA") if given.data else said
        when = f"{datetime.now(UTC):%Y-%m-%d}, {took:.0f} s"
        return f"{match[1]}\n```\n$ {shown(command, given.threads)}    # {when}\n{said}\n```\n\n{match[3]}"

    PAGE.write_text(PART.sub(part, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for one in left:
        print(f"left as it was: {one}", file=sys.stderr)
    if left:
        sys.exit(1)


if __name__ == "__main__":
    main()
