"""The search engine over many real texts: how fast it is built, how much memory that takes, how long a question takes.

    python benchmarks/index.py --parallel "DATA/train/parallel/*.tsv.gz" --passages 50000 100000 200000

Each size is built in a process of its own by the bundled model (--model), from sentences of both sides of parallel
text, then asked questions one at a time: every hundredth passage, cut to its first eight words, in all three modes.
Prints passages a second, the peak resident memory of the process that built, in all and without the files that it has
mapped, and of each mode the median and the 95th percentile in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
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


def passages(files: list[str], count: int) -> Any:
    """The first `count` distinct sentences, from all files in turn."""
    from interlingua.data.readers import read_parallel
    from interlingua.data.records import Passage

    streams, seen = [iter(read_parallel(file)) for file in files], set()
    while streams and len(seen) < count:
        for stream in list(streams):
            pair = next(stream, None)
            if pair is None:
                streams.remove(stream)
                continue
            for text, lang in ((pair.source, pair.source_lang), (pair.target, pair.target_lang)):
                if text not in seen and len(seen) < count:
                    seen.add(text)
                    yield Passage(f"p{len(seen)}", text, "", lang)


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
    from interlingua.models.late_interaction import load_any

    encoder, found = load_any(model), {}
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        with own_memory() as seen:
            index = Index.build(encoder, passages(files, count), Path(folder) / "index")
        found["passages/s"] = len(index) / (time.perf_counter() - start)
        found["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found["without files"] = max(seen) / 1024
        asked = [(" ".join(p.text.split()[:8]), p.lang) for p in islice(passages(files, count), 0, None, 100)][:MOST]
        for mode in MODES:
            times = []
            for text, lang in asked:
                start = time.perf_counter()
                index.search(text, 10, mode=mode, lang=lang)
                times.append(1000 * (time.perf_counter() - start))
            times.sort()
            found[f"{mode} p50 ms"], found[f"{mode} p95 ms"] = times[len(times) // 2], times[int(len(times) * 0.95)]
    return found


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
        printed = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append({"passages": f"{count:,}", **json.loads(printed.splitlines()[-1])})
    print(tabulate(rows, headers="keys", floatfmt=",.1f"))


if __name__ == "__main__":
    main()
