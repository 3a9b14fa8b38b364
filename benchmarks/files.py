"""Many small files and one large export: how fast they are indexed and synced, and how much memory that takes.

    python benchmarks/files.py --files 10000 100000
    python benchmarks/files.py --export 100 300               # MB of jsonl; --format parquet

The texts are sentences of the bundled encyclopedia in eleven languages, three a file, in folders of 250, and a number,
so that no two are alike; rows of the export name their language. Each command runs in a process of its own, on the
threads that --threads says: `index` of all, `sync` without a change, once more, and after one file (one row) in a
hundred has changed. Printed are the seconds on the clock and of the processors, the passages a second of both, and the
peak resident memory: all (getrusage), and what is no file that is mapped into memory (looked at ten times a second).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

SENTENCES = 3
IN_A_FOLDER = 250


def texts(count: int, changed: bool = False) -> Iterator[tuple[str, str]]:
    """(language, text) of so many passages; with `changed` one in a hundred is another."""
    from interlingua.data import encyclopedia

    by_lang: dict[str, list[str]] = {}
    for sentence in encyclopedia.sentences():
        by_lang.setdefault(sentence.lang, []).append(sentence.text)
    draw, langs = random.Random(0), sorted(by_lang)
    for number in range(count):
        lang = draw.choice(langs)
        words = " ".join(draw.choices(by_lang[lang], k=SENTENCES))
        yield lang, f"{number + changed * (number % 100 == 0)} {words}"


def write_files(folder: Path, count: int, changed: bool = False) -> None:
    for number, (_, text) in enumerate(texts(count, changed)):
        if changed and number % 100:
            continue
        path = folder / f"{number // IN_A_FOLDER:04}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_export(file: Path, megabytes: int, changed: bool = False) -> None:
    """Rows of jsonl until the file has so many MB; of Parquet as many rows."""
    rows, size = [], 0
    with open(file.with_suffix(".jsonl"), "w", encoding="utf-8") as stream:
        for number, (lang, text) in enumerate(texts(1 << 40, changed)):
            line = json.dumps({"id": str(number), "text": text, "lang": lang}, ensure_ascii=False) + "\n"
            size += len(line.encode())
            stream.write(line)
            if size > megabytes * 1_000_000:
                break
    if file.suffix == ".parquet":
        import pyarrow as arrow
        from pyarrow import json as arrow_json
        from pyarrow import parquet

        rows = arrow_json.read_json(file.with_suffix(".jsonl"))
        parquet.write_table(rows.cast(arrow.schema([(name, arrow.string()) for name in rows.column_names])), file)
        file.with_suffix(".jsonl").unlink()


def run(*argv: str, threads: int) -> tuple[float, float, int, int, str]:
    """The seconds of a command, those of processors, its peak memory in MB, also without files, and what it said."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "interlingua", *argv], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    own, done = [0], Event()
    looking = Thread(target=_look, args=(process.pid, own, done))
    looking.start()
    said = process.stderr.read()
    done.set()
    looking.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(said)
    busy = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - start, busy, usage.ru_maxrss * 1024 // 1_000_000, max(own) * 1024 // 1_000_000, said


def _look(process: int, own: list[int], done: Event) -> None:
    while not done.wait(0.1):
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
            own.append(next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")))


def measure(what: str, place: Path, source: str, change: object, threads: int) -> None:
    """Run the four commands, and print a row for each."""
    index = str(place / "idx")
    time.sleep(2)  # a file that was written just before is read once more by the first sync
    for name, argv in (
        ("index", ["index", source, "--out", index]),
        ("sync", ["sync", index, source]),
        ("sync again", ["sync", index, source]),
        ("1% changed", ["sync", index, source]),
    ):
        if name == "1% changed" and callable(change):
            change()
        seconds, busy, memory, own, said = run(*argv, threads=threads)
        last = said.strip().splitlines()[-1]
        count = int(re.findall(r"([\d,]+) passages", last)[-1].replace(",", ""))
        speed = f"{seconds:,.1f} | {busy:,.1f} | {count / seconds:,.0f} | {count / busy:,.0f}"
        print(f"| {what} | {name} | {speed} | {memory:,} | {own:,} |", flush=True)


def main() -> None:
    """Write the files, run the commands, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[], help="numbers of small files")
    parser.add_argument("--export", type=int, nargs="+", default=[], help="MB of one large file")
    parser.add_argument("--format", choices=["jsonl", "parquet"], default="jsonl")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    arguments = parser.parse_args()
    columns = [
        "files",
        "command",
        "seconds",
        "processor seconds",
        "passages/s",
        "passages/processor second",
        "peak MB",
        "without mapped files",
    ]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for count in arguments.files:
        with TemporaryDirectory() as name:
            folder = Path(name) / "files"
            write_files(folder, count)
            measure(
                f"{count:,} files",
                Path(name),
                str(folder),
                lambda folder=folder, count=count: write_files(folder, count, True),
                arguments.threads,
            )
    for size in arguments.export:
        with TemporaryDirectory() as name:
            file = Path(name) / f"export.{arguments.format}"
            write_export(file, size)
            measure(
                f"{size:,} MB",
                Path(name),
                str(file),
                lambda file=file, size=size: write_export(file, size, True),
                arguments.threads,
            )


if __name__ == "__main__":
    main()
