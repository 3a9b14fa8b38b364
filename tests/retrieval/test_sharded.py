"""Search over vectors in shards: the run of exact search, in bounded memory, continued, divided among processes."""

import tracemalloc
import weakref

import numpy as np
import pytest

from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import BadInput
from interlingua.evaluation.protocol import evaluate_on
from interlingua.experiments.spec import Ranking
from interlingua.retrieval import retrieve
from interlingua.retrieval.dense.sharded import PassageShards, Shards
from interlingua.retrieval.pipeline.grammar import parse_pipeline
from interlingua.retrieval.pipeline.run import searching_models

DIM = 32


class Random:
    """An encoder whose vectors depend on the text alone: small whole numbers, so that many scores are equal."""

    similarity = "dot"

    def __init__(self, scale=1.0, dim=DIM):
        self.scale, self.dim, self.encoded = scale, dim, 0

    def encode_query(self, texts, **options):
        return np.stack([self._vector(text) for text in texts])

    def encode_document(self, texts, **options):
        self.encoded += len(texts) if "lang" in options else 0  # and not the texts that a fingerprint is made of
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text):
        generator = np.random.default_rng(sum(text.encode()) * 7919 + len(text))
        return generator.integers(-2, 3, self.dim).astype(np.float32) * self.scale


def passages(count):
    return [Passage(f"p{(i * 7) % count}", f"passage {i * i}", "", "en") for i in range(count)]


QUERIES = [Query(f"q{i}", f"what is {i}?", "en") for i in range(5)]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [7, 100, 1000])
def test_the_run_is_that_of_exact_search_whatever_the_size_of_a_shard(tmp_path, dtype, size):
    pool = passages(100)
    expected = retrieve(Random(), Collection("c", pool, QUERIES), depth=20)
    found = PassageShards(tmp_path, Random(), iter(pool), dtype=dtype, size=size).search(QUERIES, 20)
    assert found == expected


@pytest.mark.slow
def test_neither_vectors_nor_passages_are_held_together(tmp_path):
    """A pool of 6,000 × 1,024 numbers is 24 MB; a shard of it 0.8 MB."""
    alive = weakref.WeakSet()

    class Watched(Passage):
        __slots__ = ("__weakref__",)

    most = 0

    def stream():
        nonlocal most
        for i in range(6_000):
            one = Watched(f"p{i}", f"passage {i}", "", "en")
            alive.add(one)
            most = max(most, len(alive))
            yield one

    encoder = Random(dim=1024)
    tracemalloc.start()
    try:
        shards = PassageShards(tmp_path, encoder, stream(), size=200)
        shards.search(QUERIES, 10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert encoder.encoded == 6_000
    assert most <= 2 * 200 + 1
    assert peak < 6_000 * 1_024 * 4 / 3


def test_an_interrupted_run_encodes_only_what_is_missing(tmp_path):
    pool = passages(100)

    class Stopped(Random):
        def encode_document(self, texts, **options):
            if self.encoded >= 40:
                raise KeyboardInterrupt
            return super().encode_document(texts, **options)

    with pytest.raises(KeyboardInterrupt):
        PassageShards(tmp_path, Stopped(), pool, size=10)
    encoder = Random()
    assert PassageShards(tmp_path, encoder, pool, size=10).made == 6
    assert encoder.encoded == 60
    # another text, another model: only what is no longer true is made again
    changed = [*pool[:15], Passage(pool[15].id, "another text", "", "en"), *pool[16:]]
    assert PassageShards(tmp_path, Random(), changed, size=10).made == 1
    other = Random(scale=2.0)
    shards = PassageShards(tmp_path, other, pool, size=10)
    assert shards.made == 10
    assert shards.search(QUERIES, 9) == retrieve(other, Collection("c", pool, QUERIES), depth=9)
    file = tmp_path / "shard-000003/vectors.npy"
    file.write_bytes(file.read_bytes()[:-4])
    assert PassageShards(tmp_path, other, pool, size=10).made == 1


def test_a_vector_that_float16_cannot_hold_is_said(tmp_path):
    with pytest.raises(BadInput, match=r"too long for float16\. Store them as float32"):
        PassageShards(tmp_path, Random(scale=1e5), passages(3), dtype="float16")
    with pytest.raises(BadInput, match="shards of 0 passages"):
        PassageShards(tmp_path, Random(), passages(3), size=0)


def test_evaluation_goes_through_shards_where_there_are_more_passages_than_one_holds(tmp_path):
    pool = passages(60)
    qrels = {query.id: {pool[i].id: 1} for i, query in enumerate(QUERIES)}
    given = [Collection("a b", pool, QUERIES, qrels), Collection("c", pool, QUERIES[:2], dict(list(qrels.items())[:2]))]
    plain = evaluate_on(Random(), given, ["RR@10"], 10)
    shards = Shards(tmp_path / "vectors", size=25)
    encoder = Random()
    found = evaluate_on(encoder, given, ["RR@10"], 10, shards=shards)
    assert [one.run for one in found] == [one.run for one in plain]
    assert [one.scores.per_query for one in found] == [one.scores.per_query for one in plain]
    assert encoder.encoded == 60
    assert len(list((tmp_path / "vectors").glob("a-b-*/shard-*"))) == 3
    shards.remove()
    assert not (tmp_path / "vectors").exists()
    evaluate_on(Random(), given, ["RR@10"], 10, shards=Shards(tmp_path / "vectors", size=60))
    assert not (tmp_path / "vectors").exists()


def test_a_hybrid_finds_the_same_with_its_vectors_on_the_disk(tmp_path):
    pool = passages(60)
    qrels = {query.id: {pool[i].id: 1} for i, query in enumerate(QUERIES)}
    given, dev = (Collection(name, pool, QUERIES, qrels) for name in ("c", "dev"))
    hybrid = Ranking("bm25 + {alpha} * {model}", {"alpha": [0.1, 0.5, 1.0]})
    plain = hybrid.scores(Random(), given, ["RR@10"], dev=dev)
    encoder = Random()
    shards = Shards(tmp_path / "vectors", size=25)
    assert hybrid.scores(encoder, given, ["RR@10"], dev=dev, shards=shards) == plain
    assert encoder.encoded == 60
    assert len(list((tmp_path / "vectors").glob("c-*/shard-*"))) == 3


@pytest.mark.parametrize(
    ("pipeline", "searched"),
    [
        ("m", [("m", 10)]),
        ("bm25", []),
        ("bm25 % 50 >> m", []),
        ("m % 50 >> n", [("m", 50)]),
        ("m >> n", [("m", 1000)]),
        ("bm25 + 0.5 * m", [("m", 1000)]),
        ("rrf(bm25, m % 7)", [("m", 7)]),
        ("(bm25 + m) % 20", [("m", 1000)]),
        ("(m + 2 * n) >> o", [("m", 1000), ("n", 1000)]),
    ],
)
def test_models_that_search_all_passages_are_told_from_those_that_rerank(pipeline, searched):
    assert [(stage.name, depth) for stage, depth in searching_models(parse_pipeline(pipeline), 10, 1000)] == searched
