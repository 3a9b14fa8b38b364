"""The processor time of a command from its start to its end, on a small index by the bundled model.

    python benchmarks/start.py --repeat 5
    python benchmarks/start.py --repeat 5 --models multilingual-e5-small multilingual-e5-small:int8

With --models, which may have a precision behind a colon, a hybrid search in an index by each of them comes along.
Each command runs in a process of its own, once before it is measured; all of them take turns. Prints the seconds of
processor time (user and system together): the least and the median.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median

from tabulate import tabulate

from common import options
from interlingua.cli import main as interlingua

QUESTION = "où est né Alan Turing ?"


def seconds(words: list[str]) -> float:
    """Processor time of `python -m interlingua` with these words."""
    before = os.times()
    subprocess.run([sys.executable, "-m", *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, repeat=5)
    parser.add_argument("--models", nargs="*", default=[], metavar="MODEL[:PRECISION]")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        index = f"{folder}/idx"
        interlingua(["index", "encyclopedia:en", "--out", index])
        commands = {"--help": ["--help"], "info": ["info", index]}
        for mode in ("lexical", "dense", "hybrid"):
            commands[f"search --mode {mode}"] = ["search", index, QUESTION, "--mode", mode]
        for number, name in enumerate(arguments.models):
            model, _, precision = name.partition(":")
            more = ["--precision", precision] if precision else []
            interlingua(["index", model, "encyclopedia:en", "--out", f"{index}{number}", *more])
            commands[f"search, {name}"] = ["search", f"{index}{number}", QUESTION]
        for words in commands.values():
            seconds(["interlingua", *words])
        found: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.repeat):
            for name, words in commands.items():
                found[name].append(seconds(["interlingua", *words]))
    print(
        tabulate(
            [(f"interlingua {name}", min(times), median(times)) for name, times in found.items()],
            headers=["", "least", "median"],
            floatfmt=".2f",
        )
    )


if __name__ == "__main__":
    main()
