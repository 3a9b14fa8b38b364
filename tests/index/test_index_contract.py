"""The calls that every index answers, wherever it is kept, for the process that built it and for any other.

Run as a script (`python test_index_contract.py PLACE`) this file is that other process: it opens the index at PLACE,
goes through all calls and prints what they returned. Set INTERLINGUA_TEST_MILVUS to the URI of a Milvus server, such as
http://localhost:19530, to test against it too; collections called `contract_…` are made there and removed again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from uuid import uuid4

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index.index import build_index, open_index

SERVER = "INTERLINGUA_TEST_MILVUS"
LOCAL, LITE, MILVUS = "a folder", "Milvus Lite", "a Milvus server"
QUESTIONS = ["blue book of the river", "storm", "keeper light light", "xylophone"]


class LetterEncoder:
    """Counts of letters: a text is near texts with the same letters."""

    similarity = "cosine"

    def encode_query(self, sentences, **options):
        letters = "abcdefghijklmnopqrstuvwxyz"
        return np.array([[text.count(letter) + 0.01 for letter in letters] for text in sentences])

    def encode_document(self, sentences, **options):
        return self.encode_query([text if isinstance(text, str) else " ".join(text) for text in sentences])


def collection():
    random = np.random.default_rng(0)
    words = "river bridge storm book blue star town keeper light sea".split()
    return [
        Passage(
            f"p{i}",
            " ".join(random.choice(words, 3 + i % 7)),
            title="Titel" * (i % 5 == 0),
            lang=("en", "de", "fi")[i % 3],
            metadata={"shelf": str(i % 4)} if i % 2 else {},
        )
        for i in range(40)
    ]


def reads(index):
    """What an index returns, one call after another, as JSON can hold it."""

    def told(call):
        with pytest.raises(InterlinguaError) as error:
            call()
        return str(error.value).split(": ", 1)[1]  # without the place

    def listed(hits):
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        return {hit.passage.id: [hit.score, dict(sorted(hit.parts.items()))] for hit in hits}

    index.refresh()
    found = {"len": len(index), "languages": dict(sorted(index.languages.items()))}
    for mode in ("dense", "lexical", "hybrid"):
        for name, narrowed in (
            ("all", {}),
            ("langs", {"langs": ["de", "fi"]}),
            ("where", {"where": {"shelf": "1"}}),
            ("both", {"langs": ["fi"], "where": {"shelf": "3"}}),
            ("none", {"where": {"x": "y"}}),
        ):
            many = index.search_many(QUESTIONS, 100, mode=mode, lang="en", **narrowed)
            found[f"{mode} {name}"] = [listed(hits) for hits in many]
        found[f"{mode} best"] = [hit.score for hit in index.search("storm", 2, mode=mode, lang="en")]
    found["lang each"] = [listed(hits) for hits in index.search_many(QUESTIONS[:2], 100, lang=["de", "fi"])]
    found["default"] = listed(index.search(QUESTIONS[0], 100))
    for name in ("p1", "p5", "new"):
        try:
            passage = index.passage(name)
            found[name] = [passage.id, passage.text, passage.title, passage.lang, dict(passage.metadata)]
        except InterlinguaError as error:
            found[name] = str(error).split(": ", 1)[1]
    found["no such language"] = told(lambda: index.search("storm", langs=["sv"]))
    found["no such mode"] = told(lambda: index.search("storm", mode="fuzzy"))
    info = index.info()
    found["info"] = {key: getattr(info, key) for key in ("passages", "languages", "similarity", "dim", "model")}
    found["parameters"] = [info.k1, info.b, dict(sorted(info.analyzers.items()))]
    return found


def calls(index):
    """All calls: reads, then each way of writing, with all reads after it."""
    steps = {"built": reads(index)}
    changed = [
        Passage("p1", "river " * 5, lang="fi", metadata={"shelf": "1"}),
        collection()[3],
        Passage("newer", "sea of stars", "Titel", "en"),
    ]
    for name, write in (
        ("added", lambda: index.add([Passage("new", "storm storm town", lang="de")])),
        ("replaced", lambda: index.replace(changed)),
        ("deleted", lambda: index.delete(["p5", "p6", "nowhere"])),
        ("compacted", index.compact),
    ):
        steps[name] = {"returned": write(), **reads(index)}
    with pytest.raises(InterlinguaError, match="has a passage 'new' already"):
        index.add([Passage("new", "again", lang="en")])
    return steps


def numbers(found, path=""):
    """All that is in `found`, by its path."""
    if isinstance(found, (dict, list)):
        for key, value in found.items() if isinstance(found, dict) else enumerate(found):
            yield from numbers(value, f"{path}/{key}")
    else:
        yield path, found


def same(found, expected):
    """Equal calls, scores to within rounding."""
    found, expected = dict(numbers(found)), dict(numbers(expected))
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        exact = not isinstance(value, float)
        assert found[path] == (value if exact else pytest.approx(value, rel=1e-5, abs=1e-6)), path


def elsewhere(place):
    """All calls in a process that did not build the index, and ends after them."""
    done = subprocess.run([sys.executable, __file__, place], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a local index answers to the process that built it."""
    folder = tmp_path_factory.mktemp("expected") / "idx"
    return json.loads(json.dumps(calls(build_index(LetterEncoder(), collection(), folder))))


@pytest.fixture(
    scope="module",
    params=[
        LOCAL,
        pytest.param(
            LITE,
            marks=pytest.mark.skipif(
                find_spec("milvus_lite") is None,
                reason="Milvus Lite is not installed (pip install 'interlingua[milvus]')",
            ),
        ),
        pytest.param(
            MILVUS,
            marks=pytest.mark.skipif(
                not os.environ.get(SERVER), reason=f"{SERVER} names no Milvus server (http://host:19530)"
            ),
        ),
    ],
)
def store(request, tmp_path_factory):
    """A kind of store, and a place of it for each name."""
    folder, run = tmp_path_factory.mktemp("contract"), uuid4().hex[:8]
    uri = os.environ.get(SERVER, "")
    server = f"milvus:{uri}" if uri.startswith("https:") else f"milvus:{uri.removeprefix('http:')}"
    places = {
        LOCAL: f"{folder}/{{}}",
        LITE: f"milvus:{folder}/{{}}.db/docs",
        MILVUS: f"{server.rstrip('/')}/contract_{run}_{{}}",
    }
    yield request.param, places[request.param].format
    if request.param == MILVUS:
        from pymilvus import MilvusClient

        client = MilvusClient(uri=uri, token=os.environ.get("MILVUS_TOKEN", ""))
        for name in client.list_collections():
            if found := re.match(rf"(contract_{run}_\w+?)_v1(_terms)?$", name):
                if not found[2]:
                    client.drop_alias(found[1])
                client.drop_collection(name)


@pytest.fixture(scope="module")
def here(store):
    """What the process that built an index in the store gets from it."""
    index = build_index(LetterEncoder(), collection(), store[1]("here"))
    found = json.loads(json.dumps(calls(index)))
    if store[0] == LITE:
        index.close()
    return found


def test_every_store_answers_as_the_local_index(here, expected):
    for step in ("built", "compacted"):  # in between, Milvus weighs terms by the mean length of the build
        same(here[step], expected[step])
    for step, found in here.items():
        names = [name for name in found if name.startswith(("dense", "len", "p", "new", "returned"))]
        same({name: found[name] for name in names}, {name: expected[step][name] for name in names})
    assert here["built"]["dense all"][0].keys() == {f"p{i}" for i in range(40)}
    assert here["built"]["lexical all"][3] == {}  # xylophone
    assert [here[step].get("returned") for step in here] == [None, 1, 2, 2, None]
    assert [here[step]["len"] for step in here] == [40, 41, 42, 40, 40]


@pytest.mark.slow
def test_a_process_that_did_not_build_the_index_gets_the_same(store, here):
    kind, place = store[0], store[1]("there")
    index = build_index(LetterEncoder(), collection(), place)
    if kind == LITE:
        index.close()  # or the other process may not open it
    found = elsewhere(place)
    same(found, here)
    if kind == LITE:
        index = open_index(place, LetterEncoder())
    same(json.loads(json.dumps(reads(index))), {key: found["compacted"][key] for key in here["built"]})
    again = open_index(place, LetterEncoder())
    assert again.passage("new").text == "storm storm town"
    for one in (index, again) if kind != LOCAL else ():
        one.close()


@pytest.mark.slow
def test_milvus_lite_tells_a_second_process_in_one_line_that_it_serves_one(tmp_path):
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed (pip install 'interlingua[milvus]')")
    place = f"milvus:{tmp_path}/lite.db/docs"
    first = build_index(LetterEncoder(), collection()[:3], place)
    second = open_index(place, LetterEncoder())
    second.close()
    assert first.search("storm", 1)  # still open here
    told = subprocess.run(
        [sys.executable, "-m", "interlingua", "info", place], capture_output=True, text=True, timeout=240
    )
    first.close()
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        f"interlingua: {tmp_path}/lite.db: Milvus Lite cannot open it. It serves one process at a "
        "time: end the other one, or keep the index on a Milvus server.\n"
    )


if __name__ == "__main__":
    print(json.dumps(calls(open_index(sys.argv[1], LetterEncoder()))))
