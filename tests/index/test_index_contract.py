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
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from interlingua.data.files import Scope
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, InterlinguaError, Stale
from interlingua.index import Document, Index
from interlingua.index.index import build_index, open_index
from interlingua.serving.watch import Watch

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from own_store import MemoryStore, MemoryView

SERVER = "INTERLINGUA_TEST_MILVUS"
LOCAL, OWN, LITE, MILVUS = "a folder", "a store of one's own", "Milvus Lite", "a Milvus server"
FILTER = {"any": [{"year": {"gte": 2000, "lt": "2011"}, "not": {"shelf": ["1", "2"]}}, {"day": {"gt": "2024-03"}}]}
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
            metadata={"shelf": str(i % 4), "year": str(1990 + i)} if i % 2 else {"day": f"2024-0{1 + i % 5}-03"},
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
            ("none", {"where": {"shelf": "y"}}),
            ("filter", {"where": FILTER, "langs": ["de", "en"]}),
        ):
            many = index.search_many(QUESTIONS, 100, mode=mode, lang="en", **narrowed)
            found[f"{mode} {name}"] = [listed(hits) for hits in many]
        kept = index.search("storm", 3, mode=mode, lang="en", group_by="shelf")
        found[f"{mode} groups"] = [[hit.group, hit.more] for hit in kept]
        once = index.search("storm", 5, mode=mode, lang="en", distinct=True)
        found[f"{mode} distinct"] = [[hit.passage.id, [one.id for one in hit.same]] for hit in once]
        least = index.search("storm", 100, mode=mode, lang="en")[3].score
        found[f"{mode} least"] = listed(index.search("storm", 100, mode=mode, lang="en", min_score=least))
        found[f"{mode} best"] = [hit.score for hit in index.search("storm", 2, mode=mode, lang="en")]
    found["lang each"] = [listed(hits) for hits in index.search_many(QUESTIONS[:2], 100, lang=["de", "fi"])]
    found["default"] = listed(index.search(QUESTIONS[0], 100))
    for name in ("p1", "p5", "new"):
        try:
            passage = index.passage(name)
            found[name] = [passage.id, passage.text, passage.title, passage.lang, dict(passage.metadata)]
        except InterlinguaError as error:
            found[name] = str(error).split(": ", 1)[1]
        found[f"{name} versions"] = [passage.text for passage in index.versions(name)]
    found["no such language"] = told(lambda: index.search("storm", langs=["sv"]))
    found["fields"] = index.fields
    found["facets"] = index.facets(["shelf", "day"])
    found["narrowed facets"] = index.facets(["shelf", "year"], ["de"], where={"not": {"shelf": "1"}}, most=3)
    found["no such facet"] = told(lambda: index.facets(["shelve"]))
    found["no such key"] = told(lambda: index.search("storm", where={"not": {"shelve": "1"}}))
    found["no range"] = told(lambda: index.search("storm", where={"shelf": {"gt": "2024-01-05"}}))
    found["no such mode"] = told(lambda: index.search("storm", mode="fuzzy"))
    info = index.info()
    found["info"] = {key: getattr(info, key) for key in ("passages", "languages", "similarity", "dim", "model")}
    found["parameters"] = [info.k1, info.b, dict(sorted(info.analyzers.items()))]
    return found


def synced(index):
    """What the calls that know sources return: a folder is brought to what it holds, and passages are deleted by source
    and by metadata."""

    def of(source, id, text, **metadata):
        return Passage(id, text, lang="en", metadata={"source": source, **metadata})

    kept, changed, other = of("docs/a", "1", "sea"), of("docs/b", "1", "light", shelf="1"), of("docs-b", "1", "star")
    index.add([kept, changed, of("docs/a", "2", "town"), of("docs/sub/c", "1", "storm"), of("docs/d", "1", "blue")])
    index.add([other, of("docs-b", "2", "bridge", shelf="9")])
    now = [kept, of("docs/b", "1", "light light", shelf="1"), of("docs/a", "3", "keeper")]

    def sync(dry_run):
        scope = Scope(["docs/", "q"])
        scope.unread.add("docs/d")
        done = index.sync(iter(now), scope, dry_run=dry_run, allow_empty=True)
        return [str(done), done.by_source(), len(index)]

    index.add([of("q", "1", "a question")])
    returned = [sync(True), sync(False), sync(False)]
    chunks = [of("docs/long", f"docs/long#{n}", f"chunk {n}", chunk=str(n)) for n in range(1, 81)]
    index.add([*chunks, of("other", "docs/long#7", "of another source", chunk="7")])
    assert index.document("docs/long:docs/long#7").passages == chunks
    assert index.document("docs/long#80", around=2) == Document(chunks[-3:], 2, False)
    index.delete(sources=["other", "docs/long"])
    with pytest.raises(BadInput, match=r"'docs/': no passage was given, but .* has 4 passages from it"):
        index.sync(iter([]), Scope(["docs/"]))
    assert index.passage("docs/b:1").text == "light light"
    with pytest.raises(BadInput, match="not both at once"):
        index.delete(["1"], where={"shelf": "9"})
    returned += [index.delete(where={"shelf": "9"}, dry_run=True), index.delete(where={"shelf": "9"})]
    returned += [index.delete(where={"shelf": "1"}, sources=["docs-b", "docs/a"])]
    returned += [index.delete(sources=["docs"]), index.delete(sources=["docs/"]), index.delete(["docs-b:1"])]
    return returned


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
        ("synced", lambda: synced(index)),
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


def made(kind, place, **options):
    """A new index of the collection in a kind of store."""
    if kind == OWN:
        index = Index(MemoryStore(LetterEncoder()), LetterEncoder())
        assert index.add(collection()) == len(collection())
        return index
    return build_index(LetterEncoder(), collection(), place, **options)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a local index answers to the process that built it."""
    return json.loads(json.dumps(calls(made(LOCAL, tmp_path_factory.mktemp("expected") / "idx"))))


@pytest.fixture(
    scope="module",
    params=[
        LOCAL,
        OWN,
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
        OWN: "",
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
    with closing(made(store[0], store[1]("here"))) as index:
        return json.loads(json.dumps(calls(index)))


@pytest.fixture(scope="module")
def plain(store):
    """The collection in the store, as it was built."""
    with closing(made(store[0], store[1]("plain"))) as index:
        yield index


@pytest.mark.slow
def test_every_store_answers_as_the_local_index(here, expected):
    for step in ("built", "compacted"):  # in between, Milvus weighs terms by the mean length of the build
        same(here[step], expected[step])
    for step, found in here.items():
        names = [name for name in found if name.startswith(("dense", "len", "p", "new", "returned"))]
        same({name: found[name] for name in names}, {name: expected[step][name] for name in names})
    assert here["built"]["dense all"][0].keys() == {f"p{i}" for i in range(40)}
    assert here["built"]["lexical all"][3] == {}  # xylophone
    assert here["built"]["fields"] == ["day", "shelf", "year"]
    assert here["built"]["facets"]["shelf"] == {"1": 10, "3": 10}
    years = [str(1990 + i) for i in range(40) if i % 4 == 3 and i % 3 == 1]
    assert here["built"]["narrowed facets"] == {"shelf": {"3": len(years)}, "year": dict.fromkeys(years[:3], 1)}
    assert [here[step].get("returned") for step in here if step != "synced"] == [None, 1, 2, 2, None]
    assert [here[step]["len"] for step in here] == [40, 41, 42, 40, 40, 40]
    lines = ["docs/a: 1 added, 1 deleted", "docs/b: 1 replaced", "docs/d: 1 kept", "docs/sub/c: 1 deleted"]
    first = ["1 added, 1 replaced, 3 deleted, 1 unchanged", [*lines, "q: 1 deleted"]]
    assert here["synced"]["returned"] == [
        [*first, 48],
        [*first, 46],
        ["0 added, 0 replaced, 0 deleted, 3 unchanged", ["docs/d: 1 kept"], 46],
        *(1, 1, 0, 0, 4, 1),
    ]


@pytest.mark.slow
def test_a_process_that_did_not_build_the_index_gets_the_same(store, here):
    kind, place = store[0], store[1]("there")
    if kind == OWN:
        return  # no other process has it
    index = made(kind, place)
    if kind == LITE:
        index.close()  # or the other process may not open it
    found = elsewhere(place)
    same(found, here)
    if kind == LITE:
        index = open_index(place, LetterEncoder())
    same(json.loads(json.dumps(reads(index))), {key: found["compacted"][key] for key in here["built"]})
    again = open_index(place, LetterEncoder())
    assert again.passage("new").text == "storm storm town"
    index.close()
    again.close()


@pytest.mark.slow
def test_what_one_store_cannot_do_it_says_in_one_line(store):
    class Late(LetterEncoder):
        similarity = "maxsim"

    kind, place = store[0], store[1]("cannot")
    with closing(made(kind, place)) as index:
        if kind != LOCAL:
            for approximate in (True, False):
                with pytest.raises(BadInput, match="has one kind of dense search"):
                    index.compact(approximate)
            with pytest.raises(BadInput, match="keeps no token vectors"):
                index.keep_tokens(Late())
        index.compact(None)
        assert index.search("storm", langs=[]) == []
        with pytest.raises(BadInput, match=r"k=0"):
            index.search("storm", k=0)
    if kind in (LITE, MILVUS):
        with pytest.raises(BadInput, match="a Milvus server decides by itself"):
            open_index(place, LetterEncoder(), durability="process")


FILTERS = [
    ({"shelf": "1"}, lambda shelf, year, day: shelf == "1"),
    ({"shelf": ["1", "9"]}, lambda shelf, year, day: shelf == "1"),
    ({"not": {"shelf": "1"}}, lambda shelf, year, day: shelf != "1"),
    ({"year": {"gt": 1995, "lte": 2001.0}}, lambda shelf, year, day: bool(year) and 1995 < int(year) <= 2001),
    ({"year": {"gte": "1995"}, "shelf": "3"}, lambda shelf, year, day: shelf == "3" and int(year) >= 1995),
    ({"day": {"gte": "2024-02-03", "lt": "2024-05"}}, lambda shelf, year, day: "2024-02-03" <= day < "2024-05"),
    ({"not": {"day": {"lt": 2025}}}, lambda shelf, year, day: not day),
    ({"year": {"gt": 3000}}, lambda shelf, year, day: False),
    ({"any": [{"shelf": "1"}, {"all": [{"not": {"day": "2024-01-03"}}, {"day": ["2024-01-03", "2024-03-03"]}]}]},
     lambda shelf, year, day: shelf == "1" or day == "2024-03-03"),
]  # fmt: skip


def test_a_filter_lets_the_same_through_in_every_store(plain):
    for where, expected in FILTERS:
        fields = {one.id: [one.metadata.get(key, "") for key in ("shelf", "year", "day")] for one in collection()}
        wanted = {id for id, values in fields.items() if expected(*values)}
        for mode in ("dense", "hybrid"):
            assert {hit.passage.id for hit in plain.search("river star", 100, where=where, mode=mode)} == wanted, where
        assert plain.delete(where=where, dry_run=True) == len(wanted)


def test_groups_are_the_best_of_each_and_as_many_as_there_are(plain):
    for mode in ("dense", "lexical", "hybrid"):
        hits = plain.search("river star", 100, mode=mode, lang="en", where={"not": {"day": {"gt": 2000}}})
        for k in (1, 2, 9):
            kept = plain.search("river star", k, mode=mode, lang="en", where={"shelf": ["1", "3"]}, group_by="shelf")
            first = {hit.passage.metadata["shelf"]: hit for hit in reversed(hits)}
            best = sorted(first.values(), key=lambda hit: hits.index(hit))[:k]
            assert [hit.passage.id for hit in kept] == [hit.passage.id for hit in best]
            for hit in kept:
                assert hit.more == sum(one.passage.metadata["shelf"] == hit.group for one in hits) - 1
        alone = plain.search("river star", 100, mode=mode, lang="en", group_by="source")
        assert [(hit.group, hit.more) for hit in alone] == [(None, 0)] * len(alone)
        assert len(alone) > 10
    with pytest.raises(BadInput, match=r"no passage has metadata 'shelve'\. Did you mean 'shelf'"):
        plain.search("river", group_by="shelve")


def test_a_question_in_what_is_no_language_and_one_without_text(plain):
    assert plain.search("river", lang="eng") == plain.search("river", lang="en")
    assert plain.search("river", langs="eng") == plain.search("river", langs=["en"])
    assert plain.facets("shelf", ["fin"]) == plain.facets(["shelf"], ["fi"])
    with pytest.raises(BadInput, match=r"'english' is not a language code.*Did you mean 'en'"):
        plain.search("river", lang="english")
    for mode in ("dense", "lexical", "hybrid"):
        with pytest.raises(BadInput, match="the question is empty"):
            plain.search(" \n", mode=mode)
        with pytest.raises(BadInput, match="question 2 is empty"):
            plain.search_many(["river", ""], mode=mode)
    with pytest.raises(BadInput, match="put it in a list"):
        plain.search_many("river")


def test_passages_in_what_is_no_language_and_in_another_code_of_one(store):
    with closing(made(store[0], store[1]("tags"))) as index:
        with pytest.raises(BadInput, match=r"passage 'new': 'english' is not a language code.*Did you mean 'en'"):
            index.add([Passage("new", "a storm", lang="english")])
        index.add([Passage("new", "a storm", lang="zh-TW")])
        assert index.passage("new").lang == "zh"
        assert [hit.passage.id for hit in index.search("storm", langs=["zh"])] == ["new"]


def test_an_index_is_built_of_languages_alone(tmp_path):
    passages = [Passage("a", "river", lang="eng"), Passage("b", "river", lang="en_GB"), Passage("c", "river")]
    assert Index.build(LetterEncoder(), passages, tmp_path / "one").languages == {"en": 2, "": 1}
    with pytest.raises(BadInput, match="passage 'b': 'klingon!' is not a language code"):
        Index.build(LetterEncoder(), [passages[0], Passage("b", "river", lang="klingon!")], tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_the_vectors_of_every_store_are_those_that_were_encoded(store):
    with closing(made(store[0], store[1]("vectors"))) as index:
        index.delete(["p0"])
        parts = list(index.vectors())
    found = {passage.id: vector for part in parts for passage, vector in zip(*part, strict=True)}
    assert found.keys() == {f"p{number}" for number in range(1, 40)}
    [texts] = [[(one.title, one.text) if one.title else one.text for one in collection()]]
    rows = LetterEncoder().encode_document(texts)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for number, passage in enumerate(collection()[1:], 1):
        assert found[passage.id] == pytest.approx(rows[number], abs=1e-6)


class Faulty:
    """`MemoryView.dense` raises these errors, one a call, before it answers; `refreshed` counts in between."""

    def __init__(self, monkeypatch, *errors):
        self.errors, self.refreshed = list(errors), 0
        dense, refresh = MemoryView.dense, MemoryStore.refresh

        def failing(view, vectors, depth):
            if self.errors:
                raise self.errors.pop(0)
            return dense(view, vectors, depth)

        def refreshing(store):
            self.refreshed += 1
            return refresh(store)

        monkeypatch.setattr(MemoryView, "dense", failing)
        monkeypatch.setattr(MemoryStore, "refresh", refreshing)


@pytest.fixture(scope="module")
def own():
    return made(OWN, "")


def test_a_version_that_goes_during_a_search_is_searched_again(own, monkeypatch):
    expected = own.search_many(QUESTIONS)
    faulty = Faulty(monkeypatch, Stale("gone"), Stale("gone again"))
    assert own.search_many(QUESTIONS) == expected
    assert (faulty.errors, faulty.refreshed) == ([], 3)
    Faulty(monkeypatch, *[Stale("gone for good")] * 3)
    with pytest.raises(Stale, match="gone for good"):
        own.search_many(QUESTIONS)


def test_a_version_that_goes_during_a_count_is_counted_again(own, monkeypatch):
    expected, counts, errors = own.facets(["shelf"]), MemoryView.counts, [Stale("gone"), Stale("gone again")]

    def failing(view, key):
        if errors:
            raise errors.pop(0)
        return counts(view, key)

    monkeypatch.setattr(MemoryView, "counts", failing)
    assert own.facets(["shelf"]) == expected
    assert not errors


def test_a_version_that_goes_while_a_passage_is_looked_up_is_looked_up_again(own, monkeypatch):
    find, errors = MemoryView.find, []

    def failing(view, ids):
        if errors:
            raise errors.pop(0)
        return find(view, ids)

    passage = collection()[0]
    monkeypatch.setattr(MemoryView, "find", failing)
    for ask, expected in (
        (lambda: own.passage(passage.id), passage),
        (lambda: own.found(iter([passage.id])), {passage.id: [passage]}),
    ):
        errors[:] = [Stale("gone"), Stale("gone again")]
        assert ask() == expected
        assert not errors


def test_an_index_in_a_store_of_ones_own_is_not_watched(own):
    watch = Watch(own, pace=1.0)
    watch.start()
    assert not watch._thread.is_alive()


def test_a_store_that_is_damaged_is_not_asked_again(own, monkeypatch):
    faulty = Faulty(monkeypatch, Damaged("the disk"), Damaged("the disk"))
    with pytest.raises(Damaged, match="the disk"):
        own.search("storm")
    assert (len(faulty.errors), faulty.refreshed) == (1, 1)


def test_an_index_built_anew_with_another_model_is_refused():
    class Other(LetterEncoder):
        def encode_query(self, sentences, **options):
            return super().encode_query(sentences)[:, ::-1] + 1

    class BuiltAnew(MemoryStore):
        other: MemoryStore | None = None

        @property
        def view(self):
            return super().view if self.other is None else self.other.view

    index, other = Index(BuiltAnew(LetterEncoder()), LetterEncoder()), MemoryStore(Other())
    assert index.add(collection()[:3]) == 3
    index.store.other = other
    for _ in range(2):  # not only the first time
        with pytest.raises(Stale, match="made with another model"):
            index.search("storm")
    with pytest.raises(BadInput, match="made with another model"):
        Index(other, LetterEncoder())


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
