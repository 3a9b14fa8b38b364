"""Late interaction (ColBERT, Khattab & Zaharia 2020): search and reranking by MaxSim over the tokens of passages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from interlingua.data.records import Passage, Query, batched
from interlingua.errors import BadInput
from interlingua.models.encode import TokenVectors
from interlingua.models.protocols import MultiVectorEncoder
from interlingua.progress import track
from interlingua.retrieval.dense.exact import tie_ranks
from interlingua.retrieval.late_interaction.maxsim import maxsim_matrix, maxsim_scores
from interlingua.retrieval.late_interaction.token_store import Chunk, Floats, TokenStore
from interlingua.retrieval.retriever import Candidates, LazyPassages, chosen_queries, passage_texts
from interlingua.retrieval.run import Run

CHUNK = 1024  # passages encoded at a time: 90 MiB of float32 at 180 tokens of 128
AT_ONCE = 20_000  # new candidates whose vectors are held at once: 2 GB of float32 at 200 tokens of 128
SCORES_HELD = 1 << 22  # scores of all queries with a block of passages


def passage_tokens(encoder: MultiVectorEncoder, passages: Iterable[Passage], **encode_options: Any) -> Iterator[Chunk]:
    """Encode `passages`, `CHUNK` at a time: ids and token vectors, as `TokenStore.build` takes them."""
    for chunk in batched(track(passages, "encode passages"), CHUNK):
        options = {"lang": [passage.lang or None for passage in chunk], **encode_options}
        vectors = encoder.encode_document(passage_texts(chunk), **options)
        yield [passage.id for passage in chunk], _checked(vectors, len(chunk))


class LateInteractionRetriever(LazyPassages[tuple[int, int]]):
    """`passages` compared with queries by the token vectors of `encoder`. Passages are encoded when they are needed
    (`LazyPassages`).

    `store`, built from `passage_tokens` of the same encoder, holds passages that need no encoding any more: with a
    folder of all of them nothing but queries is encoded, and vectors stay on disk. `kept` is the same of passages whose
    vectors are in other stores under other ids: store and row by passage id. `dtype` is how those
    encoded here are held (int8: a quarter of float32, and faster, but rounded); `device` where vectors are kept and
    compared, the CPU without it. `encode_options` go to the encoder.
    """

    def __init__(
        self,
        encoder: MultiVectorEncoder,
        passages: Sequence[Passage],
        *,
        dtype: str = "float32",
        store: TokenStore | None = None,
        kept: Mapping[str, tuple[TokenStore, int]] | None = None,
        device: str | torch.device | None = None,
        **encode_options: Any,
    ) -> None:
        super().__init__(passages)
        self.encoder, self.dtype = encoder, dtype
        self.device, self.encode_options = device, encode_options
        self._stores: list[TokenStore] = []
        if store is not None:
            unknown = set(store.ids) - {passage.id for passage in passages}
            if unknown:
                raise BadInput(
                    f"{len(unknown):,} of {len(store):,} passages with token vectors are not among "
                    f"the passages, '{min(unknown)}' for one. Both must be of one collection."
                )
            self.places |= self._hold(store)
        numbers = dict[int, int]()
        for name, (token_store, row) in (kept or {}).items():
            if id(token_store) not in numbers:
                numbers[id(token_store)] = self._add(token_store)
            self.places[name] = numbers[id(token_store)], row
        self._given = len(self._stores)

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` passages with the highest scores for each query, exactly: what sorting all scores gives. Fewer
        where there are fewer; a passage without tokens, which scores −inf, is the last of all."""
        if depth < 1:
            raise BadInput(f"depth {depth}: must be at least 1.")
        self.need_all()
        query_tokens = self._queries(queries)
        names = [passage.id for passage in self.passages]
        ranks = tie_ranks(names)
        places = np.array([self.places[name] for name in names], dtype=np.int64).reshape(-1, 2)
        best = np.zeros((len(queries), 0), dtype=np.int64)
        scores: Floats = np.zeros((len(queries), 0), dtype=np.float32)
        block = max(1, SCORES_HELD // max(1, len(queries)))
        for number, store in enumerate(self._stores):
            indices = np.flatnonzero(places[:, 0] == number)
            indices = indices[np.argsort(places[indices, 1])]  # as the store has them: it may be on disk
            for start in range(0, len(indices), block):
                part = indices[start : start + block]
                candidates = np.concatenate([best, np.broadcast_to(part, (len(queries), len(part)))], axis=1)
                scores = np.concatenate([scores, maxsim_matrix(query_tokens, store, places[part, 1])], axis=1)
                top = np.lexsort((ranks[candidates], -scores), axis=1)[:, :depth]
                best, scores = np.take_along_axis(candidates, top, axis=1), np.take_along_axis(scores, top, axis=1)
        run = Run()
        for query, row, values in zip(queries, best.tolist(), scores, strict=True):
            run.add(query.id, [names[number] for number in row], values)
        return run

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """The scores of each query of `candidates` with exactly its candidates. Where more than `AT_ONCE` of these are
        new, some queries are scored after others, and what was encoded for them is let go in between.

        Raises BadInput for a candidate that is no passage here, or a query that is not among `queries`.
        """
        candidate_queries = chosen_queries(queries, candidates)
        run = Run()
        for group in self._needed(candidates):
            group_queries = chosen_queries(candidate_queries, group)
            for query, vectors in zip(group_queries, self._queries(group_queries), strict=True):
                ids = candidates[query.id]
                places = np.array([self.places[name] for name in ids], dtype=np.int64).reshape(-1, 2)
                scores: Floats = np.empty(len(ids), dtype=np.float32)
                for number in np.unique(places[:, 0]).tolist():
                    mask = places[:, 0] == number
                    scores[mask] = maxsim_scores(vectors, self._stores[number], places[mask, 1])
                run.add(query.id, ids, scores)
        return run

    def _queries(self, queries: Sequence[Query]) -> TokenVectors:
        langs = [query.lang or None for query in queries]
        options = {"lang": langs, **self.encode_options}
        return _checked(self.encoder.encode_query([query.text for query in queries], **options), len(queries))

    def encode(self, passages: list[Passage]) -> dict[str, tuple[int, int]]:
        """The store and the row of each passage."""
        chunks = passage_tokens(self.encoder, passages, **self.encode_options)
        return self._hold(TokenStore.build(chunks, dtype=self.dtype))

    def _needed(self, candidates: Candidates) -> Iterator[Candidates]:
        """The candidates, encoded; or those of some queries after others, encoded when it is their turn."""
        if len({name for ids in candidates.values() for name in ids} - self.places.keys()) <= AT_ONCE:
            self.need(candidates)
            yield candidates
            return
        group: dict[str, Sequence[str]] = {}
        new: set[str] = set()
        for query, ids in candidates.items():
            missing = {name for name in ids if self.places.get(name, (self._given, 0))[0] >= self._given}
            if group and len(new | missing) > AT_ONCE:
                yield self._encoded_alone(group)
                group, new = {}, set()
            group[query] = ids
            new |= missing
        yield self._encoded_alone(group)

    def _encoded_alone(self, candidates: Candidates) -> Candidates:
        """The candidates, encoded, when what else was encoded here is gone; the stores that were given stay."""
        self._stores = self._stores[: self._given]
        self.places = {name: place for name, place in self.places.items() if place[0] < self._given}
        self.need(candidates)
        return candidates

    def _hold(self, store: TokenStore) -> dict[str, tuple[int, int]]:
        number = self._add(store)
        return {name: (number, row) for row, name in enumerate(store.ids)}

    def _add(self, store: TokenStore) -> int:
        """The number of the store among those that are held, on the device."""
        self._stores.append(store if self.device is None else store.to(self.device))
        return len(self._stores) - 1


def _checked(vectors: TokenVectors, texts: int) -> TokenVectors:
    if len(vectors) != texts:
        raise BadInput(f"the encoder gave token vectors of {len(vectors)} texts for {texts}.")
    return vectors
