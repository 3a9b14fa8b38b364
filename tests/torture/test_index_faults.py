"""Writers that are really killed, two writers, a full disk: the index is then as it was last acknowledged."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index import Index, check_index
from interlingua.index import store as index_store

pytestmark = pytest.mark.slow
KILLED = -signal.SIGKILL
PROGRAM = """
import os, signal
import numpy as np
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.models.folder import PROBE
from interlingua.index import Index, store as index_store
from interlingua.index.local import build as index_build, caches as index_cache
from interlingua.index.local import store as local_store, table as passage_store

class Encoder:
    similarity = "dot"
    encoded = 0
    def encode_query(self, sentences, **options):
        return np.array([[len(text), text.count("a"), 1.0] for text in sentences])
    def encode_document(self, sentences, **options):
        Encoder.encoded += len(sentences) if list(sentences) != list(PROBE) else 0
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])

def passages(start, stop):
    return [Passage(f"p{n:03}", f"a passage {'a' * (n % 7)} {n}", lang="en") for n in range(start, stop)]

def at(owner, name, times=0, after=False):
    real, count = getattr(owner, name), [0]
    def called(*arguments, **options):
        now = count[0] == times
        count[0] += 1
        if now and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, called)

index_store.CHUNK = 20
"""
"""For the processes that are killed; `at` kills when something is called, or with `after` when that call is done."""
SERVER = """
import json, os, sys, traceback, warnings
warnings.simplefilter("ignore")
import lancedb, torch  # what takes long to import; nothing is opened, so no thread is lost at a fork but a new one
from interlingua.retrieval.dense.int8 import kernel
torch.set_num_threads(1)
kernel()
exec(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    code, place, output = json.loads(line)
    child = os.fork()
    if child == 0:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        try:
            exec(code)
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""
NAMESPACE: dict = {}
exec(PROGRAM.rpartition("index_store.CHUNK")[0], NAMESPACE)
Encoder, passages = NAMESPACE["Encoder"], NAMESPACE["passages"]


class Processes:
    """Runs code in a new process each time, forked from one that has imported everything."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._write(PROGRAM)

    def start(self, code, place, output):
        """Its process id."""
        self._write([textwrap.dedent(code), str(place), str(output)])
        return int(self.server.stdout.readline())

    def run(self, code, place, output):
        """How it ended (0, 1 for an exception, -9 for a kill), and what it printed."""
        output.unlink(missing_ok=True)
        self.start(code, place, output)
        status = int(self.server.stdout.readline())
        return os.waitstatus_to_exitcode(status), output.read_text()

    def _write(self, message):
        self.server.stdin.write(json.dumps(message) + "\n")
        self.server.stdin.flush()


@pytest.fixture(scope="module")
def processes():
    made = Processes()
    yield made
    made.server.stdin.close()
    made.server.wait()


@pytest.fixture
def run(processes, tmp_path_factory):
    output = tmp_path_factory.mktemp("output") / "said"
    return lambda code, place: processes.run(code, place, output)


def content(index):
    return {name: index.passage(name).text for name in [hit.passage.id for hit in index.search("a", 10_000)]}


def texts(chosen):
    return {passage.id: passage.text for passage in chosen}


@pytest.fixture
def built(tmp_path):
    Index.build(Encoder(), passages(0, 100), tmp_path / "idx")
    return tmp_path / "idx"


BUILDS = [
    "at(index_build, 'encode_passages', times=3)",  # between two chunks
    "at(passage_store.PassageTable, 'create')",  # before there is a table
    "at(passage_store.PassageTable, 'add', times=2, after=True)",
    "at(passage_store.PassageTable, 'compact', after=True)",
    "at(index_cache.ArrayFolder, 'write')",  # in front of the cache
    "at(index_cache.Int8Matrix, 'build')",  # within the cache
    "at(index_build, 'move_into_place')",
    "at(os, 'rename', times=2)",
]


@pytest.mark.parametrize("kill", BUILDS)
def test_a_build_that_was_killed_goes_on(tmp_path, run, kill):
    build = "Index.build(Encoder(), passages(0, 100), place)"
    assert run(f"{kill}\n{build}", tmp_path / "idx")[0] == KILLED
    assert not (tmp_path / "idx").exists()
    Encoder.encoded = 0
    index = Index.build(Encoder(), [*passages(90, 110), *passages(0, 80)], tmp_path / "idx")
    assert content(index) == texts([*passages(90, 110), *passages(0, 80)])
    assert [path.name for path in tmp_path.iterdir()] == ["idx"]
    # what had been written is not encoded again: nothing, 60 passages, or all
    assert Encoder.encoded == (100 if "'create'" in kill else 40 if "times=3" in kill or "'add'" in kill else 10)


def test_what_changed_since_a_build_was_killed_is_encoded_again(tmp_path, run, capsys):
    assert (
        run("at(index_cache.ArrayFolder, 'write')\nIndex.build(Encoder(), passages(0, 100), place)", tmp_path / "idx")[
            0
        ]
        == KILLED
    )
    Encoder.encoded = 0
    changed = [Passage("p000", "another text", lang="en"), *passages(1, 60)]
    index = Index.build(Encoder(), changed, tmp_path / "idx")
    assert content(index) == texts(changed)
    assert Encoder.encoded == 1
    assert "went on with a build that was stopped: 59 passages were there, 1 were new" in capsys.readouterr().err


def test_a_build_with_another_model_begins_anew(tmp_path, run):
    assert (
        run("at(index_cache.ArrayFolder, 'write')\nIndex.build(Encoder(), passages(0, 100), place)", tmp_path / "idx")[
            0
        ]
        == KILLED
    )

    class Other(Encoder):
        def encode_query(self, sentences, **options):
            return super().encode_query(sentences)[:, :2]

    index = Index.build(Other(), passages(0, 50), tmp_path / "idx")
    assert (index.info().dim, len(index)) == (2, 50)


WRITES = {
    "index.add(passages(100, 160))": texts(passages(0, 160)),
    "index.replace([Passage(p.id, 'a new text', lang='fi') for p in passages(80, 120)])": texts(passages(0, 80))
    | {f"p{number:03}": "a new text" for number in range(80, 120)},
    "index.delete([p.id for p in passages(0, 60)])": texts(passages(60, 100)),
}
ALL, SUPPLEMENT = 0.0, 0.9
"""Values of `STALE` with which a write makes the cache again, or its supplement."""
POINTS = [
    ("at(local_store.Staged, 'encoded', times=1)", False, ALL),
    ("at(passage_store.PassageTable, VERB)", False, ALL),
    ("at(passage_store.PassageTable, VERB, after=True)", True, ALL),
    ("at(local_store, 'write_cache')", True, ALL),
    ("at(index_cache.Int8Matrix, 'build')", True, ALL),
    ("at(local_store, 'remove_other_caches')", True, ALL),
    ("at(local_store, 'write_supplement')", True, SUPPLEMENT),
    ("at(index_cache.Int8Matrix, 'build')", True, SUPPLEMENT),
    ("at(local_store, 'write_supplement', after=True)", True, SUPPLEMENT),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_was_killed_is_there_whole_or_not_at_all(built, run, write):
    verb = write.partition("(")[0].partition(".")[2]
    for kill, done, stale in POINTS:
        if verb == "delete" and "encoded" in kill:
            continue
        code = f"local_store.FEW, local_store.STALE = 5, {stale}\n{kill.replace('VERB', repr(verb))}\n"
        code += "index = Index.open(place, Encoder())\n"
        assert run(f"{code}{write}", built) == (KILLED, ""), kill
        index = Index.open(built, Encoder())
        expected = WRITES[write] if done else texts(passages(0, 100))
        assert content(index) == expected, kill
        if done:  # the next write goes on from there, and what the killed one left is removed
            assert index.add([Passage("new", "a", lang="en")]) == 1
            index.compact()
            assert content(Index.open(built, Encoder())) == expected | {"new": "a"}
            assert [path.name for path in (built / "caches").iterdir()] == [str(index.info().cache)]
            assert {path.name for path in built.iterdir()} == {
                "index.json",
                "checksums.jsonl",
                "passages.lance",
                "caches",
                "synced.json",
                "writer.lock",
            }
            Index.build(Encoder(), passages(0, 100), built, overwrite=True)


SYNC = """
from interlingua.data.files import Scope
def synced(index):
    new = [Passage(f"s{n}", "a" * n, lang="en", metadata={"source": "docs/a"}) for n in range(100)]
    return str(index.sync(iter(new), Scope(["docs/"])))
"""


@pytest.mark.parametrize(
    ("kill", "counts"),
    [
        ("at(local_store.Staged, 'encoded', times=1)", "100 added, 0 replaced, 1 deleted, 0 unchanged"),
        ("at(passage_store.PassageTable, 'add')", "100 added, 0 replaced, 1 deleted, 0 unchanged"),
        ("at(passage_store.PassageTable, 'add', after=True)", "0 added, 0 replaced, 1 deleted, 100 unchanged"),
        ("at(passage_store.PassageTable, 'delete')", "0 added, 0 replaced, 1 deleted, 100 unchanged"),
        ("at(passage_store.PassageTable, 'delete', after=True)", "0 added, 0 replaced, 0 deleted, 100 unchanged"),
    ],
)
def test_a_sync_that_was_killed_goes_on(tmp_path, run, kill, counts):
    there = Passage("old", "a", lang="en", metadata={"source": "docs/old"})
    Index.build(Encoder(), [there, Passage("other", "a b", lang="en")], tmp_path / "idx")
    code = f"{SYNC}\n{kill}\nsynced(Index.open(place, Encoder()))"
    assert run(code, tmp_path / "idx") == (KILLED, "")
    namespace = dict(NAMESPACE)
    exec(SYNC, namespace)
    index = Index.open(tmp_path / "idx", Encoder())
    assert namespace["synced"](index) == counts
    assert content(index) == {f"s{n}": "a" * n for n in range(100)} | {"other": "a b"}


@pytest.mark.parametrize(
    "kill",
    [
        "at(passage_store.PassageTable, 'compact')",
        "at(passage_store.PassageTable, 'compact', after=True)",
        "at(index_cache.Int8Matrix, 'build')",
        "at(local_store, 'remove_other_caches')",
        "at(index_cache.shutil, 'rmtree', after=True)",
    ],
)
def test_a_compaction_that_was_killed_loses_nothing(built, run, kill):
    Index.open(built, Encoder()).add(passages(100, 110))
    assert run(f"{kill}\nIndex.open(place, Encoder()).compact()", built)[0] == KILLED
    index = Index.open(built, Encoder())
    assert content(index) == texts(passages(0, 110))
    index.compact()
    assert content(index) == texts(passages(0, 110))


def test_killed_at_any_moment_while_adding_one_by_one(built, processes, tmp_path):
    writer = processes.start(
        """
        index = Index.open(place, Encoder())
        for passage in passages(100, 10_000):
            index.add([passage])
            print(passage.id, flush=True)
        """,
        built,
        tmp_path / "said",
    )
    while not (tmp_path / "said").exists() or (tmp_path / "said").read_text().count("\n") < 10:
        pass
    assert len(content(Index.open(built, Encoder()))) > 100  # a reader, while it is being written
    os.kill(writer, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(int(processes.server.stdout.readline())) == KILLED
    acknowledged = {line.strip() for line in (tmp_path / "said").read_text().splitlines(True) if line.endswith("\n")}
    held = set(content(Index.open(built, Encoder())))
    assert set(texts(passages(0, 100))) | acknowledged <= held
    assert len(held) - 100 - len(acknowledged) in (0, 1)  # one may be there before it was said


LATE = """
import torch
from interlingua.models.encode import TokenVectors
from interlingua.index.local import tokens as index_tokens

class Late:
    similarity = "maxsim"
    def encode_query(self, sentences, **options):
        return TokenVectors(torch.eye(4)[[len(text) % 4 for text in sentences]], [1] * len(sentences))
    encode_document = encode_query

index_tokens.PART = 20
"""


MOMENTS = {
    "a build": "Index.build(Encoder(), passages(0, 100), place, overwrite=True)",
    "an add": "Index.open(place, Encoder()).add(passages(100, 160))",
    "a replacement": "Index.open(place, Encoder()).replace([Passage(p.id, 'b', lang='fi') for p in passages(50, 120)])",
    "a deletion": "Index.open(place, Encoder()).delete([p.id for p in passages(0, 60)])",
    "a sync": f"{SYNC}\nsynced(Index.open(place, Encoder()))",
    "a compaction": "Index.open(place, Encoder()).compact()",
    "the keeping of token vectors": f"{LATE}\nIndex.open(place, Encoder()).keep_tokens(Late())",
    "the rebuilding of a cache": "shutil.rmtree(place + '/caches')\nIndex.open(place, Encoder())",
}


@pytest.mark.parametrize("what", MOMENTS)
def test_killed_at_moments_that_are_drawn(what, built, processes, tmp_path, drawn, trials):
    """Before, the index is that of `built`; after, that of a call that was not killed. A sync writes twice: between
    the two it has what is new, and still has what is gone."""
    if what == "a sync":
        Index.open(built, Encoder()).replace([Passage("old", "a", lang="en", metadata={"source": "docs/old"})])
    code = f"import shutil\nlocal_store.FEW, local_store.STALE = 5, 0.0\n{MOMENTS[what]}"
    before = content(Index.open(built, Encoder()))
    begun = time.perf_counter()
    shutil.copytree(built, tmp_path / "whole")
    assert processes.run(code, tmp_path / "whole", tmp_path / "said") == (0, "")
    seconds = time.perf_counter() - begun
    after = content(Index.open(tmp_path / "whole", Encoder()))
    for number in trials(f"kills of {what}"):
        shutil.copytree(built, place := tmp_path / f"{number}")
        (tmp_path / "said").unlink(missing_ok=True)
        writer = processes.start(code, place, tmp_path / "said")
        if not select.select([processes.server.stdout], [], [], drawn.uniform(0, seconds))[0]:
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(writer, signal.SIGKILL)
        processes.server.stdout.readline()
        index = Index.open(place, Encoder())
        assert content(index) in (before, after, *([before | after] if what == "a sync" else [])), number
        index.replace(passages(0, 3))
        index.compact()
        assert not [finding for finding in check_index(place) if finding.advice]
        assert not list(place.rglob(".*.part"))


def test_a_second_writer_is_told_at_once_and_readers_are_not(built, run):
    inside = []

    def slow():
        for passage in passages(100, 103):
            other = (
                run(
                    """
            index = Index.open(place, Encoder())
            for write in (lambda: index.add(passages(200, 201)), lambda: index.delete(["p000"]), index.compact,
                          lambda: Index.build(Encoder(), passages(0, 1), place, overwrite=True)):
                try:
                    write()
                except InterlinguaError as error:
                    print(error)
            print(len(index.search("a", 1000)))
            """,
                    built,
                )
                if not inside
                else None
            )
            inside.append(other)
            yield passage

    assert Index.open(built, Encoder()).add(slow()) == 3
    lines = inside[0][1].splitlines()
    assert ["is being written by another process" in line for line in lines] == [True] * 4 + [False], lines
    assert lines[-1] == "100"
    assert len(Index.open(built, Encoder())) == 103


def test_two_builds_of_one_index(tmp_path):
    def slow():
        yield passages(0, 1)[0]
        with pytest.raises(InterlinguaError, match="is being written by another process"):
            Index.build(Encoder(), passages(0, 9), tmp_path / "idx")
        yield passages(1, 2)[0]

    assert len(Index.build(Encoder(), slow(), tmp_path / "idx")) == 2


FULL = """
import resource
index = Index.open(place, Encoder())
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
limit(%d)
many = [Passage(f"n{n}", "a long passage " * 50 + str(n * 7919), lang="en") for n in range(200)]
try:
    index.add(many)
    print("added")
except (InterlinguaError, OSError) as error:
    print(type(error).__name__, error)
print(len(index.search("a", 1000, lang="en")))
"""


@pytest.mark.parametrize("size", [1_000, 20_000])
def test_a_full_disk_leaves_the_last_good_state(built, run, size):
    lines = run(FULL % size, built)[1].splitlines()
    assert lines[-1] == "100", lines
    assert "added" not in lines
    index = Index.open(built, Encoder())
    assert content(index) == texts(passages(0, 100))
    assert index.add(passages(100, 120)) == 20


@pytest.mark.parametrize(("stale", "written"), [(ALL, "write_cache"), (SUPPLEMENT, "write_supplement")])
def test_a_full_disk_after_the_write_costs_only_the_cache(built, run, stale, written):
    _, said = run(
        f"""
    import errno
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")
    local_store.FEW, local_store.STALE, local_store.{written} = 5, {stale}, full
    index = Index.open(place, Encoder())
    print(index.add(passages(100, 160)), len(index.search("a", 1000)))
    """,
        built,
    )
    assert said.splitlines()[-1].split() == ["60", "160"]
    assert "the passages are written, but not the new cache" in said
    assert len(Index.open(built, Encoder())) == 160


def test_a_build_without_room_says_what_is_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(index_store, "CHUNK", 20)

    def failing():
        yield from passages(0, 50)
        raise InterlinguaError("file.jsonl, line 51: not JSON.")

    with pytest.raises(InterlinguaError, match="line 51"):
        Index.build(Encoder(), failing(), tmp_path / "idx")
    assert "The 40 passages that were encoded are kept in .idx.building.part" in capsys.readouterr().err
    Encoder.encoded = 0
    assert len(Index.build(Encoder(), passages(0, 50), tmp_path / "idx")) == 50
    assert Encoder.encoded == 10


def test_an_id_that_comes_twice_is_an_error_also_when_the_build_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(index_store, "CHUNK", 2)
    twice = [Passage("a", "one"), Passage("b", "two"), Passage("c", "three"), Passage("a", "four")]
    for _ in range(3):
        with pytest.raises(InterlinguaError, match="'a' occurs twice"):
            Index.build(Encoder(), twice, tmp_path / "idx")


def test_keeping_token_vectors_goes_on_after_a_kill(built, run):
    keep = f"{LATE}\n{{}}\nprint('encoded', Index.open(place, Encoder()).keep_tokens(Late()))"
    for place in ("at(token_store.TokenStore, 'build', times=2)", "at(token_store, '_write')"):
        code = keep.format(f"from interlingua.retrieval.late_interaction import token_store\n{place}")
        assert run(code, built)[0] == KILLED
    assert "encoded 60\n" in run(keep.format(""), built)[1]
    assert "encoded 0\n" in run(keep.format(""), built)[1]
