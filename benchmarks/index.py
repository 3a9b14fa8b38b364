"""The search engine over many real texts: how fast it is built, how much memory that takes, how long a question takes.

    python benchmarks/index.py --parallel "DATA/train/parallel/*.tsv.gz" --passages 50000 100000 200000
    python benchmarks/index.py --parallel "DATA/train/parallel*/*.tsv.gz" --passages 10000 100000 1000000 10000000

Each size is built in a process of its own by the bundled model (--model), from sentences of both sides of parallel
text, then asked questions one at a time, with compiled kernels as a server does: every hundredth passage, cut to its
first eight words, in all three modes.
Where there are more passages than distinct sentences, a sentence comes again with its second half from another
sentence in its language.

Prints passages a second; the peak resident memory of the process that built, in all and without the files that it has
mapped (a set of the passages of this script, up to 53 bytes each, included); megabytes on the disk; of each mode the
median and the 95th percentile in milliseconds; and of some questions the share of the ten best of exact hybrid search
that a hybrid search finds. Of three sizes and more a last row says how each number grows: the exponent of the power of
the passages that fits best.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

MODES = ("lexical", "dense", "hybrid")
MOST = 200  # questions
COMPARED = 50  # of them, at the most, with exact search


def passages(files: list[str], count: int) -> Any:
    """`count` different passages: the distinct sentences from all files in turn, then these with changes."""
    from interlingua.data.keys import Keys
    from interlingua.data.records import Passage

    given, known = 0, Keys()
    for again in range(count):
        before = given
        earlier: dict[str, deque[str]] = {}  # of each language
        for text, lang in sentences(files):
            if given >= count:
                return
            held = earlier.setdefault(lang, deque(maxlen=max(1, again)))
            whole = text if again == 0 else joined(text, held[0]) if len(held) == again else ""
            held.append(text)
            if whole and known.add((lang, whole)):
                given += 1
                yield Passage(f"p{given}", whole, "", lang)
        if given == before:
            raise SystemExit(f"the files give {given:,} different passages, also with changes: ask for fewer")


def sentences(files: list[str]) -> Iterator[tuple[str, str]]:
    """Both sides of all pairs with their languages, from all files in turn."""
    from interlingua.data.readers import read_parallel

    streams = [iter(read_parallel(file)) for file in files]
    while streams:
        for stream in list(streams):
            pair = next(stream, None)
            if pair is None:
                streams.remove(stream)
                continue
            yield pair.source, pair.source_lang
            yield pair.target, pair.target_lang


def joined(text: str, other: str) -> str:
    """The first half of a text and the second one of another: of its words, or letters where there are no spaces."""
    space = " " if " " in text else ""
    first, second = (one.split(" ") if space else list(one) for one in (text, other))
    return space.join([*first[: (len(first) + 1) // 2], *second[len(second) // 2 :]])


@contextmanager
def own_memory() -> Iterator[list[int]]:
    """KiB of resident memory that is no file's, looked at twenty times a second until the block ends."""
    seen: list[int] = []
    done = Event()

    def look() -> None:
        while not done.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            seen.append(next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def one(model: str, files: list[str], count: int) -> dict[str, Any]:
    """Build, ask, and say how long it took."""
    from interlingua.index.index import Index
    from interlingua.lazy import LateKernel
    from interlingua.models.late_interaction import load_any

    LateKernel.early = True  # as in a server
    encoder, found = load_any(model), {}
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        with own_memory() as seen:
            index = Index.build(encoder, passages(files, count), Path(folder) / "index")
        found["passages/s"] = len(index) / (time.perf_counter() - start)
        found["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found["without files"] = max(seen) / 1024
        found["MB"] = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
        some = islice(passages(files, count), 0, 100 * MOST, 100)
        asked = [(" ".join(p.text.split()[:8]), p.lang) for p in some]
        for mode in MODES:
            times = []
            for text, lang in asked:
                start = time.perf_counter()
                index.search(text, 10, mode=mode, lang=lang)
                times.append(1000 * (time.perf_counter() - start))
            times.sort()
            found[f"{mode} p50 ms"], found[f"{mode} p95 ms"] = times[len(times) // 2], times[int(len(times) * 0.95)]
        shares = [share_of_exact(index, text, lang) for text, lang in asked[:: MOST // COMPARED]]
        found["of the exact 10"] = sum(shares) / len(shares)
    return found


def share_of_exact(index: Any, text: str, lang: str) -> float:
    """The share of the ten best of exact hybrid search that a hybrid search finds. A search in given languages, here
    in all, is exact."""
    exact = {hit.passage.id for hit in index.search(text, 10, langs=list(index.languages), lang=lang)}
    return len(exact & {hit.passage.id for hit in index.search(text, 10, lang=lang)}) / len(exact) if exact else 1.0


def growth(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For each number the x of the n^x that fits it best, by least squares of logarithms."""
    import numpy as np

    sizes = np.log([row["passages"] for row in rows])
    names = [name for name in rows[0] if name not in ("passages", "of the exact 10")]
    return {name: float(np.polyfit(sizes, np.log([row[name] for row in rows]), 1)[0]) for name in names}


def main() -> None:
    """Run each size in a process of its own and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--parallel", required=True, help="files of sentence pairs, a glob")
    parser.add_argument("--passages", type=int, nargs="+", default=[200_000])
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(one(arguments.model, sorted(glob(arguments.parallel)), arguments.child)))
        return
    from tabulate import tabulate

    rows = []
    for count in arguments.passages:
        call = [
            sys.executable,
            __file__,
            "--model",
            arguments.model,
            "--parallel",
            arguments.parallel,
            "--child",
            str(count),
        ]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True)
        if done.returncode:  # it has said why
            sys.exit(done.returncode)
        rows.append({"passages": count, **json.loads(done.stdout.splitlines()[-1])})
    shown = [{name: f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for name, x in row.items()} for row in rows]
    if len(rows) > 2:
        shown.append({"passages": "n^x, x =", **{name: f"{x:.2f}" for name, x in growth(rows).items()}})
    print(tabulate(shown, headers="keys", disable_numparse=True, stralign="right"))


if __name__ == "__main__":
    main()
