from __future__ import annotations

import random
import sys
from collections import Counter
from types import ModuleType

import numpy as np
import pytest

from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.dense.exact import DenseRetriever, retrieve
from interlingua.retrieval.fusion import interpolate, rrf, weighted_sum
from interlingua.retrieval.pipeline.grammar import parse_pipeline
from interlingua.retrieval.pipeline.run import RetrieverPool, run_pipeline
from interlingua.retrieval.run import Run

PASSAGES = [Passage(f"p{i}", f"w{i % 11} w{i % 7} w{i % 5} u{i}", lang="de") for i in range(60)]
QUERIES = [Query(f"q{i}", f"w{i} w{(i + 3) % 7}", "en") for i in range(8)] + [Query("none", "unknown", "en")]
COLLECTION = Collection("c", PASSAGES, QUERIES, {"q0": {"p0": 1}})


class Overlap:
    """Stands for BM25: scores are shared words; finds nothing where there are none."""

    built = None

    def __init__(self, passages, k1, b=0.4):
        self.words, self.k1, self.b = {p.id: Counter(p.text.split()) for p in passages}, k1, b

    @classmethod
    def build(cls, passages, *, k1=0.9, b=0.4, analyzer=None):
        cls.built[k1, b, analyzer] += 1
        return cls(passages, k1, b)

    def weighted(self, k1, b):
        made = Overlap([], k1, b)
        made.words = self.words
        return made

    def score(self, queries, candidates):
        return Run.from_scores(
            {
                query.id: {
                    name: self.k1 * sum(self.words[name][word] for word in query.text.split())
                    for name in candidates[query.id]
                }
                for query in queries
            }
        )

    def search(self, queries, depth):
        everything = self.score(queries, {query.id: list(self.words) for query in queries})
        return Run.from_scores(
            {query: {name: score for name, score in found if score > 0} for query, found in everything.items()}
        ).truncate(depth)


class Hashed:
    """Bags of words as vectors, another one for each name. Counts what it encodes."""

    def __init__(self, name, similarity="dot"):
        self.name, self.similarity, self.seen = name, similarity, Counter()

    def encode_query(self, sentences, **options):
        return self.vectors(sentences)

    def encode_document(self, sentences, **options):
        self.seen.update(sentences)
        return self.vectors(sentences)

    def vectors(self, sentences):
        rows = np.zeros((len(sentences), 16), dtype=np.float32)
        for row, text in zip(rows, sentences, strict=True):
            for word in text.split():
                row[random.Random(self.name + word).randrange(16)] += 1
        return rows


class Late(DenseRetriever):
    """Stands for the late-interaction retriever."""

    def __init__(self, encoder, passages, **options):
        super().__init__(encoder, passages)
        assert encoder.similarity == "maxsim"
        encoder.similarity = "dot"


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    """BM25 and late interaction of a few lines, so that what is tested is the pipeline."""
    Overlap.built = Counter()
    for name, attribute, value in (
        ("bm25.bm25", "BM25", Overlap),
        ("late_interaction.retriever", "LateInteractionRetriever", Late),
    ):
        module = ModuleType(name)
        setattr(module, attribute, value)
        monkeypatch.setitem(sys.modules, f"interlingua.retrieval.{name}", module)


class Shelf(dict):
    """Models by name, made when first asked for; counts how often each was."""

    def __init__(self):
        self.loads = Counter()

    def __call__(self, name):
        self.loads[name] += 1
        return self.setdefault(name, Hashed(name, "maxsim" if name.startswith("late") else "dot"))


def lexical(depth=1000, k1=0.9):
    return Overlap(PASSAGES, k1).search(QUERIES, depth)


def dense(name, depth=1000):
    return retrieve(Hashed(name), COLLECTION, depth=depth)


def ordered_by(run, scores):
    """`run`'s results with the scores they have in `scores`, which ranks everything."""
    return Run.from_scores({query: {name: dict(scores[query])[name] for name in run.ids(query)} for query in run})


ONE_STAGE = {
    "bm25": lambda: lexical(50),
    "bm25(k1=2)": lambda: lexical(50, 2.0),
    "a": lambda: dense("a", 50),
    "late": lambda: dense("late", 50),
    "a % 7": lambda: dense("a", 7),
    "a % 7 % 3": lambda: dense("a", 3),
}
FUSED = {
    "bm25 + 0.5 * a": lambda: interpolate(lexical(), dense("a"), 0.5),
    "0.5 * a + 2 * b + late": lambda: weighted_sum([dense("a"), dense("b"), dense("late")], [0.5, 2.0, 1.0]),
    "bm25 % 5 + a % 3": lambda: interpolate(lexical(5), dense("a", 3), 1.0),
    "rrf(bm25, a)": lambda: rrf([lexical(), dense("a")]),
    "rrf(bm25 % 5, a % 3, b, k=1)": lambda: rrf([lexical(5), dense("a", 3), dense("b")], 1),
    "(bm25 + a) % 9": lambda: interpolate(lexical(), dense("a"), 1.0).truncate(9),
}
RERANKED = {
    "bm25 % 10 >> a": lambda: ordered_by(lexical(10), dense("a")),
    "bm25 >> late": lambda: ordered_by(lexical(), dense("late")),
    "bm25 % 10 >> a % 4": lambda: ordered_by(lexical(10), dense("a")).truncate(4),
    "bm25 % 20 >> a % 10 >> b": lambda: ordered_by(ordered_by(lexical(20), dense("a")).truncate(10), dense("b")),
    "bm25 % 20 >> (a >> b)": lambda: ordered_by(lexical(20), dense("b")),
    "a % 10 >> bm25": lambda: ordered_by(
        dense("a", 10), Overlap(PASSAGES, 0.9).score(QUERIES, {query.id: [p.id for p in PASSAGES] for query in QUERIES})
    ),
    "bm25 % 10 >> a + 0.5 * b": lambda: interpolate(
        ordered_by(lexical(10), dense("a")), ordered_by(lexical(10), dense("b")), 0.5
    ),
    "bm25 % 10 >> rrf(a, late)": lambda: rrf(
        [ordered_by(lexical(10), dense("a")), ordered_by(lexical(10), dense("late"))]
    ),
    "(bm25 % 10 >> a) + 0.5 * late": lambda: interpolate(ordered_by(lexical(10), dense("a")), dense("late"), 0.5),
}


@pytest.mark.parametrize("text", [*ONE_STAGE, *FUSED, *RERANKED])
def test_a_pipeline_is_its_parts_put_together(text):
    expected = (ONE_STAGE | FUSED | RERANKED)[text]().truncate(50)
    found = run_pipeline(parse_pipeline(text), COLLECTION, 50, load=Shelf())
    assert found.keys() == {query.id for query in QUERIES}
    for query in expected:
        assert found.ids(query) == expected.ids(query)
        assert dict(found[query]) == pytest.approx(dict(expected[query]), abs=1e-6)
    assert not lexical()["none"]  # a query without a result stays, also when it is reranked


def test_text_is_read_and_more_than_there_is_gives_what_there_is():
    assert run_pipeline("bm25 % 5000 >> a", COLLECTION, 5000, load=Shelf()) == run_pipeline(
        parse_pipeline("bm25 >> a"), COLLECTION, 100, load=Shelf()
    )
    with pytest.raises(InterlinguaError, match="depth 0"):
        run_pipeline("bm25", COLLECTION, 0)


def test_every_model_is_loaded_once_and_reads_a_passage_once():
    shelf = Shelf()
    run_pipeline("(bm25 % 5 >> a) + 0.5 * a + late % 3 + (bm25(k1=2) % 9 >> a + late)", COLLECTION, 10, load=shelf)
    assert shelf.loads == {"a": 1, "late": 1}
    assert shelf["a"].seen == shelf["late"].seen == {p.text: 1 for p in PASSAGES}
    assert Overlap.built == {(0.9, 0.4, None): 1}  # the passages are analysed once, whatever k1 and b
    stages = RetrieverPool(PASSAGES)
    assert [stages.run(text, QUERIES, 9) for text in ("bm25", "bm25(k1=2)", "bm25")] == [
        lexical(9),
        lexical(9, 2.0),
        lexical(9),
    ]
    Overlap.built.clear()
    run_pipeline("bm25(analyzer=x) + bm25 + bm25(k1=2, analyzer=x)", COLLECTION, 10)
    assert Overlap.built == {(0.9, 0.4, None): 1, (0.9, 0.4, "x"): 1}


def test_a_reranker_reads_the_candidates_alone():
    shelf = Shelf()
    stages = RetrieverPool(PASSAGES, shelf)
    for depth in (2, 3):
        stages.run(parse_pipeline(f"bm25 % {depth} >> a + late"), QUERIES, 10)
    needed = {name for query in QUERIES for name in lexical(3).ids(query.id)}
    assert len(needed) < len(PASSAGES)
    assert shelf["a"].seen == shelf["late"].seen == {p.text: 1 for p in PASSAGES if p.id in needed}


def test_what_is_reranked_is_a_thousand_deep_unless_it_is_cut(capsys):
    many = [Passage(f"p{i:04}", "w1") for i in range(1500)]
    collection = Collection("c", many, [Query("q", "w1")])
    shelf = Shelf()
    assert len(run_pipeline("bm25 >> a", collection, 100, load=shelf)["q"]) == 100
    assert shelf["a"].seen == {"w1": 1000}
    for depth in (100, 1300):
        shelf = Shelf()
        assert len(run_pipeline("bm25 % 1200 >> a", collection, depth, load=shelf)["q"]) == min(depth, 1200)
        assert shelf["a"].seen == {"w1": 1200}
    assert len(run_pipeline("bm25 >> a", collection, 1300, load=Shelf())["q"]) == 1300
    assert not capsys.readouterr().err
    run_pipeline("(bm25 % 1200 + a % 1200) >> a", collection, 10, load=Shelf())
    assert "the first 1,000 results of each query: 200 results of 1 queries lie deeper" in capsys.readouterr().err


def test_run_files(tmp_path, capsys):
    dense("a", 20).write_trec(tmp_path / "a.run")
    file = f"run({tmp_path}/a.run)"
    assert run_pipeline(file, COLLECTION, 7) == dense("a", 7)
    assert run_pipeline(f"{file} % 5 >> b", COLLECTION, 7, load=Shelf()) == ordered_by(dense("a", 5), dense("b"))
    assert run_pipeline(f"bm25 + {file}", COLLECTION, 60) == interpolate(lexical(), dense("a", 20), 1.0).truncate(60)
    assert run_pipeline(f"a % 5 >> {file}", COLLECTION, 60, load=Shelf()) == dense("a", 5)
    with pytest.raises(InterlinguaError, match=r"a\.run: has no score for \d+ of the results to rerank, the first"):
        run_pipeline(f"b >> {file}", COLLECTION, 60, load=Shelf())
    part = Collection("part", PASSAGES, QUERIES[:2])
    assert run_pipeline(file, part, 7).keys() == {"q0", "q1"}
    assert "a.run: 7 queries are none of the collection's and are left out" in capsys.readouterr().err
    with pytest.raises(InterlinguaError, match=r"a\.run: has results for no query of the collection"):
        run_pipeline(file, Collection("other", PASSAGES, [Query("x", "w1")]), 7)


def test_a_run_of_another_collection_cannot_be_reranked(tmp_path):
    (tmp_path / "x.run").write_text("q0 Q0 p1 1 2.0 t\nq0 Q0 elsewhere 2 1.0 t\n", encoding="utf-8")
    assert run_pipeline(f"run({tmp_path}/x.run)", COLLECTION, 7).ids("q0") == ["p1", "elsewhere"]
    for second in ("a", "late"):
        with pytest.raises(InterlinguaError, match="candidates are no passages of the collection, the first is 'else"):
            run_pipeline(f"run({tmp_path}/x.run) >> {second}", COLLECTION, 7, load=Shelf())


def test_a_query_that_the_file_lacks_has_an_empty_list(tmp_path):
    (tmp_path / "x.run").write_text("q0 Q0 p1 1 2.0 t\n", encoding="utf-8")
    found = run_pipeline(f"run({tmp_path}/x.run) >> a", COLLECTION, 7, load=Shelf())
    assert {query: len(found[query]) for query in found} == {"q0": 1} | {q.id: 0 for q in QUERIES[1:]}


def test_translated_queries_are_for_bm25_and_a_file_for_the_stage_that_names_it(tmp_path, monkeypatch):
    asked = []
    score = Overlap.score
    monkeypatch.setattr(
        Overlap,
        "score",
        lambda self, queries, candidates: (
            asked.append([(query.text, query.lang) for query in queries]) or score(self, queries, candidates)
        ),
    )
    translated = [Query(query.id, f"w{number}", "de") for number, query in enumerate(QUERIES)]
    words = [(query.text, "de") for query in translated]
    found = run_pipeline("bm25 % 5 >> a", COLLECTION, 5, load=Shelf(), translated=translated[::-1])
    assert asked.pop() == words
    first = Overlap(PASSAGES, 0.9).search(translated, 5)
    assert found == ordered_by(first, dense("a"))  # the model reads the questions as they were asked
    asked.clear()
    with pytest.raises(InterlinguaError, match="the translations: no translation of 7 of 9 queries, the first is 'q2'"):
        run_pipeline("bm25", COLLECTION, 5, translated=translated[:2])
    (tmp_path / "t.tsv").write_text("".join(f"{query.id}\tw5\n" for query in QUERIES), encoding="utf-8")
    run_pipeline(f"bm25(queries={tmp_path}/t.tsv)", COLLECTION, 5, translated=translated)
    assert asked.pop() == [("w5", "de")] * len(QUERIES)
    same = run_pipeline(f"a(queries={tmp_path}/t.tsv)", COLLECTION, 5, load=Shelf())
    assert {same.ids(query)[0] for query in same} == {same.ids("q0")[0]}
    Overlap.built.clear()
    shelf = Shelf()
    run_pipeline(f"bm25 + bm25(queries={tmp_path}/t.tsv) + a + a(queries={tmp_path}/t.tsv)", COLLECTION, 5, load=shelf)
    assert Overlap.built == {(0.9, 0.4, None): 1}
    assert shelf["a"].seen == {p.text: 1 for p in PASSAGES}
    (tmp_path / "t.tsv").write_text("q0\tw5\n", encoding="utf-8")
    with pytest.raises(InterlinguaError, match=r"t\.tsv: no translation of 8 of 9 queries, the first is 'q1'"):
        run_pipeline(f"a % 5 >> bm25(queries={tmp_path}/t.tsv)", COLLECTION, 5, load=Shelf())


def test_windows_of_a_model(tiny_encoder, sentences):
    long = [Passage(f"p{i}", " ".join(sentences[i:] + sentences[:i]), lang="en") for i in range(6)]
    collection = Collection("long", long, [Query("q", sentences[2])])
    encoder = tiny_encoder()
    found = run_pipeline("m(maxp=20/10)", collection, 4, load=lambda name: encoder)
    reranked = run_pipeline("m % 3 >> m(maxp=20/10)", collection, 4, load=lambda name: encoder)
    assert len(found["q"]) == 4
    whole = dict(run_pipeline("m(maxp=20/10)", collection, 6, load=lambda name: encoder)["q"])
    first = run_pipeline("m % 3", collection, 3, load=lambda name: encoder)
    assert dict(reranked["q"]) == pytest.approx({name: whole[name] for name in first.ids("q")}, abs=1e-6)
    assert whole != dict(run_pipeline("m", collection, 6, load=lambda name: encoder)["q"])


def test_a_name_that_is_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InterlinguaError, match=r"\./bm52: is not a model folder"):
        run_pipeline("./bm52", COLLECTION, 5)
    with pytest.raises(InterlinguaError, match=r"bm52: no such folder here.* Did you mean 'bm25'\?"):
        run_pipeline("bm52 % 10", COLLECTION, 5)


def test_a_tree_that_cuts_inside_a_second_stage_is_refused():
    from interlingua.retrieval.pipeline.grammar import Cut, Lexical, Model, Rerank

    with pytest.raises(InterlinguaError, match="'a % 5' is to rerank, and would lose what it cuts"):
        run_pipeline(Rerank(Lexical(), Cut(Model("a"), 5)), COLLECTION, 5, load=Shelf())
