"""Two writers and readers at once, and a disk that fills: each search sees one version, none that was not written."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interlingua.data.records import Passage
from interlingua.index import Index, check_index

sys.path.append(str(Path(__file__).parent))
from length_encoder import HERE, Lengths

pytestmark = pytest.mark.slow
SHARED = 12
"""Passages that every write replaces, all of them."""
WRITER = (
    HERE
    + """
from interlingua.data.records import Passage
from interlingua.errors import Busy
from interlingua.index import Index
from length_encoder import Lengths

place, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(rounds):
    passages = [Passage(f"p{n}", f"a text of {name} {number}", lang="en") for n in range(SHARED)]
    while True:
        try:
            Index.open(place, Lengths()).replace(passages + [Passage(f"{name}{number}", "kept", lang="en")])
            break
        except Busy:
            pass
    print(number, flush=True)
    if number % 7 == 6:
        try:
            Index.open(place, Lengths()).compact()
        except Busy:
            pass
""".replace("SHARED", str(SHARED))
)


def test_two_writers_and_readers(tmp_path: Path, python: Callable[..., Any], trials: Callable[..., range]) -> None:
    place = tmp_path / "idx"
    Index.build(Lengths(), [Passage(f"p{n}", "a text of nobody -1", lang="en") for n in range(SHARED)], place)
    rounds = len(trials("writes of two writers, read meanwhile", 4)) // 2
    writers = [python("-c", WRITER, str(place), name, str(rounds)) for name in ("one", "two")]
    writing = threading.Event()

    def read(open_each_time: bool) -> list[tuple[str, int]]:
        """What was seen, a (writer, round) each time."""
        seen: list[tuple[str, int]] = []
        index = Index.open(place, Lengths())
        while not writing.is_set() or not seen:
            if open_each_time:
                index = Index.open(place, Lengths())
            else:
                index.refresh()
            texts = {hit.passage.text for hit in index.search("a", 10_000) if hit.passage.text != "kept"}
            assert len(texts) == 1, texts
            *_, name, number = texts.pop().split()
            seen.append((name, int(number)))
        return seen

    found: dict[bool, Any] = {}

    def reading(open_each_time: bool) -> None:
        try:
            found[open_each_time] = read(open_each_time)
        except BaseException as error:
            found[open_each_time] = error

    readers = [threading.Thread(target=reading, args=(way,)) for way in (True, False)]
    for reader in readers:
        reader.start()
    try:
        for writer in writers:
            said, wrong = writer.communicate()
            assert (writer.returncode, said.split()) == (0, [str(number) for number in range(rounds)]), wrong
    finally:
        writing.set()
        for reader in readers:
            reader.join()
    for seen in found.values():
        assert isinstance(seen, list), seen
        for name in ("one", "two"):
            mine = [number for writer, number in seen if writer == name]
            assert mine == sorted(mine)  # no version comes back
    held = {hit.passage.id for hit in Index.open(place, Lengths()).search("a", 10_000)}
    assert held == {f"p{n}" for n in range(SHARED)} | {f"{name}{n}" for name in ("one", "two") for n in range(rounds)}
    assert not [finding for finding in check_index(place) if finding.advice]


SMALL_DISK = (
    HERE
    + """
import json, random, shutil
from pathlib import Path
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index import Index
from length_encoder import Lengths

place, seed, writes = Path(sys.argv[1]) / "idx", int(sys.argv[2]), int(sys.argv[3])
drawn = random.Random(seed)
held = {f"p{n}": "a text" for n in range(50)}
Index.build(Lengths(), [Passage(name, text, lang="en") for name, text in held.items()], place)
refused = made = 0
number = 0
while writes or not refused:  # `writes` from the first refusal on
    number, writes = number + 1, writes - bool(refused)
    what = drawn.choice(["add", "add", "add", "replace", "delete", "compact", "cache"])
    names = [f"n{number}-{n}" for n in range(drawn.randrange(1, 200))]
    if what in ("replace", "delete"):
        names = drawn.sample(sorted(held), min(len(held) - 1, len(names)))
    texts = {name: f"{name} " + drawn.randbytes(drawn.randrange(4_000)).hex().replace("f", " ") for name in names}
    passages = [Passage(name, text, lang="en") for name, text in texts.items()]
    after = {**held, **texts} if what in ("add", "replace") else held
    if what == "delete":
        after = {name: text for name, text in held.items() if name not in texts}
    try:
        if what == "cache":
            shutil.rmtree(place / "caches", ignore_errors=True)
        index = Index.open(place, Lengths())
        if what in ("add", "replace"):
            getattr(index, what)(passages)
        elif what == "delete":
            index.delete(names)
        elif what == "compact":
            index.compact()
        held = after
    except (InterlinguaError, OSError) as error:
        assert "space" in str(error) or "disk" in str(error), error
        refused += 1
    index = Index.open(place, Lengths())
    found = {hit.passage.id: hit.passage.text for hit in index.search("a", 100_000, mode="dense")}
    assert found in (held, after), (number, what, len(found), len(held), len(after))
    held = found
    if refused > made and drawn.random() < 0.3:  # somebody makes room
        made = refused
        held = {name: held[name] for name in list(held)[:20]}
        shutil.rmtree(place)
        Index.build(Lengths(), [Passage(*pair, lang="en") for pair in held.items()], place)
print(json.dumps({"refused": refused, "held": len(held)}))
"""
)


def small_disk(tmp_path: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a disk of 14 MB in memory, which only its process sees and which goes with it."""
    mount = 'mount -t tmpfs -o size=14m tmpfs "$0" && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    return subprocess.run([*command, sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A place for a small disk."""
    try:
        possible = small_disk(tmp_path, "").returncode == 0
    except OSError:
        possible = False
    if not possible:
        pytest.skip("needs the right to mount a small disk (unshare --map-root-user --mount)")
    return tmp_path


def test_a_disk_that_fills_leaves_what_was_acknowledged(
    disk: Path, drawn: Random, trials: Callable[..., range]
) -> None:
    writes = len(trials("writes to a disk that fills", 4))
    done = small_disk(disk, SMALL_DISK, str(disk), str(drawn.randrange(1 << 32)), str(writes))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["refused"] > 0


ARRAYS = """
import sys
from pathlib import Path
import numpy as np
from interlingua.array_folder import mapped_array, write_array
place = Path(sys.argv[1]) / "a.npy"
large = (1_000, 5_000)
for write in (
    lambda: mapped_array(place, np.float32, large),
    lambda: write_array(open(place, "wb"), np.ones(large, dtype=np.float32)),
):
    try:
        write()
        print("written")
    except OSError as error:
        print(error.strerror)
    place.unlink(missing_ok=True)
small = mapped_array(place, np.float16, (1_000, 5_000))
small[:] = 2
small.flush()
print(np.load(place).sum(dtype=float))
"""


def test_an_array_without_room_is_an_error_and_not_the_end(disk: Path) -> None:
    done = small_disk(disk, ARRAYS, str(disk))
    assert done.stdout.splitlines() == ["No space left on device"] * 2 + ["10000000.0"], done.stderr
