"""Rerank a first stage; score long documents by their best window (MaxP)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput
from interlingua.models.protocols import AnyEncoder, has_token_vectors, side_of
from interlingua.retrieval.retriever import Candidates, Retriever, Scorer, chosen_queries
from interlingua.retrieval.run import Run

if TYPE_CHECKING:
    from interlingua.retrieval.late_interaction.token_store import TokenStore

logger = logging.getLogger(__name__)


def model_retriever(
    encoder: AnyEncoder, passages: Sequence[Passage], kept: Mapping[str, tuple[TokenStore, int]] | None = None
) -> Retriever:
    """The retriever of `passages` by `encoder`, one of `interlingua.models.late_interaction.load_any` or the like:
    MaxSim of its token vectors where its similarity is "maxsim", else the similarity of one vector a text. `kept` says
    where token vectors of passages are already, by their ids."""
    if has_token_vectors(encoder):
        from interlingua.retrieval.late_interaction.retriever import LateInteractionRetriever

        return LateInteractionRetriever(encoder, passages, kept=kept)
    from interlingua.retrieval.dense.exact import DenseRetriever

    return DenseRetriever(encoder, passages)


DEPTH = 1000


def rerank(run: Run, queries: Sequence[Query], scorer: Scorer, depth: int = DEPTH) -> Run:
    """The first `depth` results of each query of `run`, in the order of `scorer`'s scores.

    For each query a permutation of these results: nothing is lost and nothing added. Results beyond `depth` are left
    out, and their number is logged. A query with an empty list stays, with an empty list; queries that are not in
    `run` stay out. Raises BadInput for a query of `run` that is not among `queries`, a `depth` under 1, or a
    scorer that does not score exactly its candidates.
    """
    if depth < 1:
        raise BadInput(f"depth {depth}: must be at least 1.")
    candidates = {query_id: run.ids(query_id) for query_id in run}
    excess = {query_id: len(ids) - depth for query_id, ids in candidates.items() if len(ids) > depth}
    if excess:
        logger.info(
            f"reranking the first {depth:,} results of each query: {sum(excess.values()):,} results of "
            f"{len(excess):,} queries lie deeper and are left out"
        )
    candidates = {query_id: ids[:depth] for query_id, ids in candidates.items()}
    candidate_queries = chosen_queries(queries, candidates)
    lists = {query_id: ids for query_id, ids in candidates.items() if ids}
    scored = scorer.score([query for query in candidate_queries if query.id in lists], lists) if lists else Run()
    reranked = Run()
    for query_id, ids in candidates.items():
        results = scored.get(query_id, []) if ids else []
        names, scores = [name for name, _ in results], [score for _, score in results]
        if len(names) != len(ids) or set(names) != set(ids):
            raise BadInput(
                f"query '{query_id}': the scorer gave {len(names):,} scores for {len(ids):,} "
                f"candidates, none for {len(set(ids) - set(names)):,} of them. A scorer scores "
                "exactly its candidates."
            )
        reranked.add(query_id, names, scores)
    return reranked


WINDOW, STRIDE = 180, 90
Split = Callable[[Sequence[Passage]], list[list[Passage]]]

# Lower than every character of an id: windows of equal scores then lie in the order of their documents, so that
# where a search for windows is cut does not decide which of two tied documents is found.
_SEPARATOR = "\0"


class MaxP:
    """`passages` as their windows under a retriever of windows, `build(windows)`; a passage's score is the largest of
    its windows' (Dai & Callan 2019).

    `split` gives the texts of each passage (`subword_windows` makes one); each keeps the passage's title and language.
    """

    def __init__(self, build: Callable[[list[Passage]], Retriever], passages: Sequence[Passage], split: Split) -> None:
        windows: list[Passage] = []
        self._windows: dict[str, list[str]] = {}
        for passage, texts in zip(passages, split(passages), strict=True):
            names = [f"{passage.id}{_SEPARATOR}{number}" for number in range(len(texts))]
            self._windows[passage.id] = names
            windows += [replace(window, id=name) for name, window in zip(names, texts, strict=True)]
        self.retriever, self._count = build(windows), len(windows)

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` passages with the best windows, exactly: windows are searched deeper until they are enough."""
        best: dict[str, dict[str, float]] = {}
        width = depth * -(-self._count // max(1, len(self._windows)))
        rest = list(queries)
        while rest:
            run = self.retriever.search(rest, width)
            best |= {query.id: _best(run, query.id) for query in rest}
            # a list shorter than asked for has all there is
            rest = [query for query in rest if len(best[query.id]) < depth and len(run.get(query.id, [])) >= width]
            width *= 2
        return Run.from_scores({query.id: best[query.id] for query in queries}).truncate(depth)

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """The best window of exactly these candidates."""
        candidate_queries = chosen_queries(queries, candidates)
        unknown = [name for ids in candidates.values() for name in ids if name not in self._windows]
        if unknown:
            raise BadInput(
                f"{len(unknown):,} candidates are not among the passages, the first is "
                f"'{unknown[0]}'. The first stage must be of the same collection."
            )
        windows = {
            query_id: [window for name in ids for window in self._windows[name]] for query_id, ids in candidates.items()
        }
        run = self.retriever.score(candidate_queries, windows)
        return Run.from_scores({query.id: _best(run, query.id) for query in candidate_queries})


def _best(windows: Run, query_id: str) -> dict[str, float]:
    """Passage → the score of its best window, from windows in rank order."""
    best: dict[str, float] = {}
    for name, score in windows.get(query_id, []):
        best.setdefault(name.rpartition(_SEPARATOR)[0], score)
    return best


def subword_windows(encoder: AnyEncoder, window: int = WINDOW, stride: int = STRIDE) -> Split:
    """A splitter into windows of `window` of the encoder's own subwords, special tokens, prompt and title counted: what
    the model reads of a window is the whole window. The next one starts `stride` subwords later.

    The title stands in each window (one that would fill more than half of it is cut), so that a window of a titled
    passage holds less text; it starts earlier then, if need be, and no text is left out. A passage that fits is its
    own only window. Windows are cut between subwords, also inside a word: read by itself, a window may come out a
    subword longer or shorter. Raises BadInput for a window longer than the model reads, or a stride longer
    than the window.
    """
    side = side_of(encoder, "passage")
    if not all(hasattr(side, name) for name in ("settings", "tokenize", "tokenizer")):
        raise BadInput(f"{type(encoder).__name__} has no tokenizer, so its windows cannot be measured.")
    limit, extra = side.settings.length("passage"), len(side.tokenize([""], "passage")[0])
    # between title and text some templates have more: a pair has two special tokens
    with_title = len(side.tokenize([("a", "")], "passage")[0]) - len(_offsets(side.tokenizer, ["a"])[0])
    title_extra = max(extra, with_title)
    if limit is not None and window > limit:
        raise BadInput(
            f"windows of {window} tokens: this model reads {limit} of a passage, the rest would be "
            f"lost. Write maxp={limit}/{min(stride, limit // 2)}."
        )
    if not 0 < stride <= window or window < 2 * (title_extra + 1):
        raise BadInput(
            f"windows of {window} tokens every {stride}: the window must be longer than "
            f"{2 * title_extra + 1} tokens, and the stride between 1 and the window."
        )

    def split(passages: Sequence[Passage]) -> list[list[Passage]]:
        titles = _offsets(side.tokenizer, [passage.title for passage in passages])
        texts = _offsets(side.tokenizer, [passage.text for passage in passages])
        return [
            _windows(passage, title, text, window - (title_extra if title else extra), window // 2, stride)
            for passage, title, text in zip(passages, titles, texts, strict=True)
        ]

    return split


def _offsets(tokenizer: Any, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """(first character, character after the last) of each subword of each text, without special tokens."""
    if not texts:
        return []
    offsets: list[list[tuple[int, int]]] = tokenizer(
        list(texts),
        add_special_tokens=False,
        truncation=False,
        padding=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )["offset_mapping"]
    return offsets


def _windows(
    passage: Passage,
    title: Sequence[tuple[int, int]],
    text: Sequence[tuple[int, int]],
    limit: int,
    title_limit: int,
    stride: int,
) -> list[Passage]:
    """Windows of `limit` subwords, title and text together."""
    if len(title) + len(text) <= limit:
        return [passage]
    title_length = min(len(title), title_limit)
    heading = passage.title[: title[title_length - 1][1]] if title_length else ""
    size = limit - title_length
    windows = []
    for start in range(0, len(text), min(stride, size)):
        stop = start + size
        first = text[start][0] if start else 0
        last = text[stop][0] if stop < len(text) else len(passage.text)
        windows.append(Passage(passage.id, passage.text[first:last], heading, passage.lang))
        if stop >= len(text):
            break
    return windows or [Passage(passage.id, passage.text, heading, passage.lang)]
