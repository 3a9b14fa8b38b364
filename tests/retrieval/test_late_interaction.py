from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.models.encode import TokenVectors
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.retrieval import Run
from interlingua.retrieval.late_interaction import maxsim
from interlingua.retrieval.late_interaction import retriever as late_interaction
from interlingua.retrieval.late_interaction.retriever import LateInteractionRetriever, passage_tokens
from interlingua.retrieval.late_interaction.token_store import DTYPES, TokenStore
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.retriever import OnDemand


class WordEncoder:
    """A token for each word, made of small whole numbers, so that products are exact and many scores equal. Counts
    what it encodes."""

    similarity, dim = "maxsim", 4

    def __init__(self):
        self.queries, self.documents, self.options = [], [], []

    def _encode(self, texts):
        words = [(text if isinstance(text, str) else " ".join(text)).split() for text in texts]
        rows = [
            np.random.default_rng(zlib.crc32(word.encode())).integers(-1, 2, self.dim)
            for text in words
            for word in text
        ]
        vectors = torch.from_numpy(np.array(rows, dtype=np.float32).reshape(-1, self.dim))
        return TokenVectors(vectors, [len(text) for text in words])

    def encode_query(self, sentences, **options):
        self.queries += sentences
        self.options.append(options)
        return self._encode(sentences)

    def encode_document(self, sentences, **options):
        self.documents += sentences
        self.options.append(options)
        return self._encode(sentences)


def words(rng, count):
    return " ".join(f"w{number}" for number in rng.integers(0, 30, count))


RNG = np.random.default_rng(0)
POOL = [
    Passage(f"p{number}", words(RNG, count), lang="fi")
    for number, count in zip(RNG.permutation(200).tolist(), RNG.integers(1, 12, 200), strict=True)
]
QUERIES = [Query(f"q{number}", words(RNG, 5), "sw") for number in range(9)]


def loops(query, passage):
    encoder = WordEncoder()
    asked, tokens = (encoder._encode([text]).vectors.tolist() for text in (query.text, passage.text))
    return sum(max(sum(a * b for a, b in zip(one, other, strict=True)) for other in tokens) for one in asked)


EVERY = Run.from_scores({query.id: {passage.id: loops(query, passage) for passage in POOL} for query in QUERIES})


@pytest.mark.parametrize("depth", [1, 2, 10, 63, 199, 200, 500])
def test_search_is_sorting_all_scores_also_when_a_tie_straddles_the_cut(depth, monkeypatch):
    expected = EVERY.truncate(depth)
    for held in (1, 300, 1 << 22):
        monkeypatch.setattr(late_interaction, "SCORES_HELD", held)
        assert LateInteractionRetriever(WordEncoder(), POOL).search(QUERIES, depth) == expected
    assert {len(expected[query.id]) for query in QUERIES} == {min(depth, 200)}


@pytest.mark.parametrize("at_once", [1, 15, 60, 200])
def test_no_more_candidates_are_held_at_once_than_that(at_once, monkeypatch):
    monkeypatch.setattr(late_interaction, "AT_ONCE", at_once)
    rng = np.random.default_rng(1)
    chosen = {query.id: [POOL[row].id for row in rng.choice(200, 12, replace=False)] for query in QUERIES}
    expected = Run.from_scores({query: {name: dict(EVERY[query])[name] for name in chosen[query]} for query in chosen})
    retriever = LateInteractionRetriever(WordEncoder(), POOL)
    hold, held = retriever._hold, []
    retriever._hold = lambda store: held.append(len(retriever.places) + len(store)) or hold(store)
    assert retriever.score(QUERIES, chosen) == expected
    assert max(held) <= max(at_once, 12)
    apart = OnDemand(lambda passages: LateInteractionRetriever(WordEncoder(), passages), POOL)
    assert apart.score(QUERIES, chosen) == expected
    retriever.search(QUERIES[:1], 1)
    asked = len(retriever.encoder.documents)
    assert retriever.score(QUERIES, chosen) == expected
    assert len(retriever.encoder.documents) == asked  # all are held after a search


@pytest.mark.parametrize("kernels", [True, False])
def test_score_gives_exactly_the_candidates_with_the_scores_of_search(kernels, monkeypatch):
    if not kernels:
        monkeypatch.setattr(maxsim, "kernels", lambda: None)
    rng = np.random.default_rng(1)
    chosen = {
        query.id: [POOL[i].id for i in rng.permutation(200)[:size]]
        for query, size in zip(QUERIES, (0, 1, 7, 200, 30, 30, 30, 30, 30), strict=True)
    }
    found = LateInteractionRetriever(WordEncoder(), POOL).score(QUERIES, chosen)
    every = {name: dict(EVERY[name]) for name in EVERY}
    assert found == Run.from_scores({name: {one: every[name][one] for one in ids} for name, ids in chosen.items()})
    first = Run.from_scores({name: {one: rank for rank, one in enumerate(ids)} for name, ids in chosen.items()})
    assert rerank(first, QUERIES, LateInteractionRetriever(WordEncoder(), POOL)) == found


def test_each_passage_is_encoded_once_and_only_when_needed():
    encoder = WordEncoder()
    retriever = LateInteractionRetriever(encoder, POOL)
    assert encoder.documents == []
    names = [passage.id for passage in POOL]
    texts = {passage.id: passage.text for passage in POOL}
    retriever.score(QUERIES, {query.id: names[:60] for query in QUERIES})
    assert encoder.documents == [texts[name] for name in names[:60]]
    assert encoder.queries == [query.text for query in QUERIES]
    again = retriever.score(QUERIES, {"q3": names[50:70], "q1": names[10:65]})
    assert sorted(encoder.documents) == sorted(texts[name] for name in names[:70])
    assert again["q3"] == [pair for pair in EVERY["q3"] if pair[0] in names[50:70]]
    assert retriever.search(QUERIES, 200) == EVERY
    assert retriever.search(QUERIES[:1], 200)["q0"] == EVERY["q0"]
    assert sorted(encoder.documents) == sorted(texts.values())


def test_passages_are_encoded_a_chunk_at_a_time_with_their_titles_and_languages(monkeypatch):
    monkeypatch.setattr(late_interaction, "CHUNK", 2)
    pool = [Passage("1", "a b", "Title", "de"), Passage("2", "c"), Passage("3", "d", lang="fi")]
    encoder = WordEncoder()
    chunks = list(passage_tokens(encoder, iter(pool), batch_size=7))
    assert [ids for ids, _ in chunks] == [["1", "2"], ["3"]]
    assert encoder.documents == [("Title", "a b"), "c", "d"]
    assert encoder.options == [{"lang": ["de", None], "batch_size": 7}, {"lang": ["fi"], "batch_size": 7}]
    LateInteractionRetriever(encoder, pool, lang=None).search(QUERIES[:1], 1)
    assert encoder.options[2:] == [{"lang": None}] * 3


def test_a_stored_collection_is_not_encoded_again(tmp_path):
    TokenStore.build(passage_tokens(WordEncoder(), POOL), path=tmp_path / "all")
    encoder = WordEncoder()
    retriever = LateInteractionRetriever(encoder, POOL, store=TokenStore.open(tmp_path / "all"))
    assert retriever.search(QUERIES, 20) == EVERY.truncate(20)
    assert encoder.documents == []
    part = TokenStore.build(passage_tokens(WordEncoder(), POOL[30:90]), path=tmp_path / "part")
    assert LateInteractionRetriever(encoder, POOL, store=part).search(QUERIES, 20) == EVERY.truncate(20)
    assert len(encoder.documents) == 140
    with pytest.raises(InterlinguaError, match="170 of 200 passages with token vectors"):
        LateInteractionRetriever(encoder, POOL[:30], store=TokenStore.open(tmp_path / "all"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_number_formats_and_devices(dtype):
    # components of −1, 0 and 1 are exact in float16, and in int8 up to the rounding of its scale
    for device in (None, "cpu"):
        found = LateInteractionRetriever(WordEncoder(), POOL, dtype=dtype, device=device).search(QUERIES, 200)
        for query in QUERIES:
            assert dict(found[query.id]) == pytest.approx(dict(EVERY[query.id]), abs=1e-5)


def test_stores_of_others_are_moved_to_the_device_and_leave_room_for_new_passages(monkeypatch):
    store = TokenStore.build(passage_tokens(WordEncoder(), POOL[:100]))
    kept = {name: (store, row) for row, name in enumerate(store.ids)}
    retriever = LateInteractionRetriever(WordEncoder(), POOL, kept=kept, device="meta")
    assert retriever._stores[0].tokens.device.type == "meta"
    monkeypatch.setattr(late_interaction, "AT_ONCE", 6)
    retriever = LateInteractionRetriever(WordEncoder(), POOL, kept=kept)
    hold, numbers = retriever._hold, []
    retriever._hold = lambda store: numbers.append(len(store)) or hold(store)
    ids = [passage.id for passage in POOL]
    retriever.score(QUERIES, {f"q{n}": ids[:50] + ids[100 + 3 * n : 103 + 3 * n] for n in range(4)})
    assert numbers == [6, 6]


def test_an_empty_passage_comes_last_and_is_not_lost():
    pool = [Passage("z", ""), *POOL[:5]]
    retriever = LateInteractionRetriever(WordEncoder(), pool)
    found = retriever.search(QUERIES, 10)
    for query in QUERIES:
        assert found[query.id][-1] == ("z", -np.inf)
        assert len(found[query.id]) == 6
    assert retriever.score(QUERIES, {"q0": ["z"]})["q0"] == [("z", -np.inf)]


def test_nothing_asked_and_nothing_to_search():
    assert len(LateInteractionRetriever(WordEncoder(), POOL).search([], 5)) == 0
    assert len(LateInteractionRetriever(WordEncoder(), POOL).score(QUERIES, {})) == 0
    assert LateInteractionRetriever(WordEncoder(), []).search(QUERIES[:1], 5)["q0"] == []


class Wrong(WordEncoder):
    def encode_document(self, sentences, **options):
        return self._encode(sentences[1:])


def test_what_cannot_be_searched_or_scored_is_refused():
    retriever = LateInteractionRetriever(WordEncoder(), POOL)
    with pytest.raises(InterlinguaError, match=r"no passages of the collection, the first is\s+'nowhere'"):
        retriever.score(QUERIES, {"q0": ["p1", "nowhere"]})
    with pytest.raises(InterlinguaError, match="'q99'"):
        retriever.score(QUERIES, {"q99": ["p1"]})
    with pytest.raises(InterlinguaError, match="'p1' occurs twice"):
        retriever.score(QUERIES, {"q0": ["p1", "p1"]})
    with pytest.raises(InterlinguaError, match="'p1' occurs twice"):
        LateInteractionRetriever(WordEncoder(), [Passage("p1", "a"), Passage("p1", "b")]).search(QUERIES, 1)
    with pytest.raises(InterlinguaError, match="depth 0"):
        retriever.search(QUERIES, 0)
    with pytest.raises(InterlinguaError, match="of 199 texts for 200"):
        LateInteractionRetriever(Wrong(), POOL).search(QUERIES, 1)


def test_with_a_late_interaction_encoder(tiny_encoder, sentences):
    encoder = LateInteractionEncoder.start(tiny_encoder(), dim=16, query_length=8, document_length=20)
    pool = [Passage(str(number), text) for number, text in enumerate(sentences)]
    queries = [Query(str(number), text[:20]) for number, text in enumerate(sentences)]
    found = LateInteractionRetriever(encoder, pool).search(queries, 100)
    encoder.eval()
    with torch.inference_mode():
        asked, tokens = encoder.embed([query.text for query in queries], "query"), encoder.embed(sentences, "document")
    for query, vectors in zip(queries, asked, strict=True):
        expected = {
            passage.id: float((vectors @ other.T).amax(1).sum()) for passage, other in zip(pool, tokens, strict=True)
        }
        assert dict(found[query.id]) == pytest.approx(expected, abs=1e-4)
