"""Language bias: what an encoder's ranking owes to the language of a passage and not to what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.collection import cross
from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.evaluation.fairness import peer
from interlingua.evaluation.projection import principal_plane
from interlingua.retrieval.dense import search_exact, tie_ranks
from interlingua.retrieval.ranks import average_precision, gold_ranks
from interlingua.retrieval.vectors import TextEncoder, Vectors, embed_passages, embed_queries

Matrix = NDArray[np.float64]
TOP, DEEP = 10, 20  # results in which languages are counted; results that PEER looks at


@dataclass(frozen=True)
class LanguageBias:
    """One encoder on one pool of the same passages in `langs`. Matrices are [question languages, passage languages].

    `share` of each language in the pool; `preference`, the share of each among the first ten results; `peer` by
    question language (`fairness.peer`: about ½ where ranks do not depend on the language). `target` is the mean average
    precision where only the gold passages of one language are in the pool, `pool_map` that with all of them relevant;
    `displacement` the median number of places by which a gold passage stands behind its translation into the question's
    language.

    Of the vectors: `probe`, how often a linear classifier tells the language of a passage that it did not learn from
    (`chance` otherwise); `between`, the share of their variance that lies between languages; `distances`
    [languages, languages], 1 − the cosine of the languages' means; `plane`, language → the passages' places on the
    first two principal components [passages, 2], which hold the shares `explained` of the variance.
    """

    langs: list[str]
    share: NDArray[np.float64]
    preference: Matrix
    peer: NDArray[np.float64]
    target: Matrix
    pool_map: NDArray[np.float64]
    displacement: Matrix
    probe: float
    chance: float
    between: float
    distances: Matrix
    plane: dict[str, NDArray[np.float32]]
    explained: tuple[float, float]

    @property
    def same_language_rate(self) -> float:
        """Share of the first ten in the question's language, mean over languages; 1 / languages is fair in a pool with
        as many passages of each."""
        return float(np.diag(self.preference).mean())


def language_bias(encoder: TextEncoder, collections: Mapping[str, Collection], **encode_options: Any) -> LanguageBias:
    """Ask every language's questions of all languages' passages in one pool.

    `collections`: language → collection; ids correspond across languages, as in XQuAD. Raises InterlinguaError for
    fewer than two languages, ids that do not correspond, fewer than four passages, and vectors that do not differ.
    """
    if len(collections) < 2:
        raise InterlinguaError(f"{len(collections)} languages: bias towards a language needs two.")
    langs = list(collections)
    for lang, one in collections.items():
        if not one.passages:
            raise InterlinguaError(f"{one.name}: has no passage in '{lang}'.")
    held = {lang: embed_passages(encoder, one.passages, **encode_options) for lang, one in collections.items()}
    ids = [f"{lang}:{passage.id}" for lang, one in collections.items() for passage in one.passages]
    spoken = np.repeat(np.arange(len(langs)), [len(held[lang]) for lang in langs])
    pool, ties = np.concatenate([held[lang] for lang in langs]), tie_ranks(ids)
    lang_of = dict(zip(ids, (langs[place] for place in spoken), strict=True))
    rows = []
    for asked in langs:
        queries, golds = _golds(collections, asked)
        wanted = {query.id for query in queries}
        vectors = embed_queries(encoder, collections[asked].queries, **encode_options)[
            [row for row, query in enumerate(collections[asked].queries) if query.id in wanted]]
        rows.append(_row(langs, asked, vectors, golds, ids, lang_of, spoken, pool, ties))
    preference, target, displacement, pool_map, fair = (np.array(column) for column in zip(*rows, strict=True))
    plane, explained = principal_plane(pool)
    means = np.stack([held[lang].astype(np.float64).mean(axis=0) for lang in langs])
    unit = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(float).tiny)
    share = np.bincount(spoken) / len(spoken)
    return LanguageBias(
        langs, share, preference, fair, target, pool_map, displacement,
        probe(pool, spoken, [passage.id for one in collections.values() for passage in one.passages]),
        float(share.max()), between(pool, spoken),
        np.maximum(0, 1 - unit @ unit.T), {lang: plane[spoken == place] for place, lang in enumerate(langs)}, explained)


def probe(vectors: Vectors, langs: NDArray[np.int64], ids: list[str]) -> float:
    """How often the language of a passage is told from its vector by least squares on the vectors of other passages.

    `vectors` [passages, dim], `langs` [passages] numbers from 0. Half of the `ids` are learnt from, the others told:
    translations of one passage, which share an id, are on one side. Raises InterlinguaError for fewer than two ids.
    """
    distinct = sorted(set(ids))
    if len(distinct) < 2:
        raise InterlinguaError("one passage: a probe needs some to learn from and others to tell.")
    learnt = set(distinct[::2])
    known = np.array([name in learnt for name in ids])
    inputs = np.column_stack([vectors.astype(np.float64), np.ones(len(vectors))])
    # ridge: with fewer passages than dimensions least squares would have no single answer
    ridge = 1e-3 * np.eye(inputs.shape[1]) * (inputs[known] ** 2).mean() * known.sum()
    weights = np.linalg.solve(inputs[known].T @ inputs[known] + ridge,
                              inputs[known].T @ np.eye(int(langs.max()) + 1)[langs[known]])
    return float(((inputs[~known] @ weights).argmax(axis=1) == langs[~known]).mean())


def between(vectors: Vectors, langs: NDArray[np.int64]) -> float:
    """The share of the variance of `vectors` [passages, dim] that lies between the means of the languages, 0 to 1."""
    exact = vectors.astype(np.float64)
    means = np.stack([exact[langs == lang].mean(axis=0) for lang in range(int(langs.max()) + 1)])
    whole = ((exact - exact.mean(axis=0)) ** 2).sum()
    return float(((means[langs] - exact.mean(axis=0)) ** 2).sum() / whole) if whole else 0.0


def _golds(collections: Mapping[str, Collection], asked: str) -> tuple[list[Any], dict[str, dict[str, list[str]]]]:
    """The questions in `asked` that have a gold passage in every language: them, and passage language → question →
    gold passages as `language:id`."""
    golds: dict[str, dict[str, list[str]]] = {}
    for lang, one in collections.items():
        pair = collections[asked] if lang == asked else cross(collections[asked], one)
        golds[lang] = {query: [f"{lang}:{name}" for name, grade in grades.items() if grade > 0]
                       for query, grades in pair.qrels.items()}
    kept = [query for query in collections[asked].queries if all(found.get(query.id) for found in golds.values())]
    if not kept:
        raise InterlinguaError(f"no question in '{asked}' has a relevant passage in every language.")
    return kept, {lang: {query.id: found[query.id] for query in kept} for lang, found in golds.items()}


def _row(langs: list[str], asked: str, vectors: Vectors, golds: dict[str, dict[str, list[str]]], ids: list[str],
         lang_of: dict[str, str], spoken: NDArray[np.int64], pool: Vectors, ties: NDArray[np.int64]) -> tuple[Any, ...]:
    """The numbers of one question language: preference, target and displacement by language, pool mAP, PEER."""
    place_of = {name: place for place, name in enumerate(ids)}
    asked_ids = list(golds[asked])
    ranks = {lang: gold_ranks(vectors, pool, [np.array([place_of[name] for name in golds[lang][query]])
                                              for query in asked_ids], ties) for lang in langs}
    every = [np.sort(np.concatenate([ranks[lang][i] for lang in langs])) for i in range(len(asked_ids))]
    target, behind = [], []
    for lang in langs:
        alone = [own - np.searchsorted(every[i], own) + np.arange(len(own)) for i, own in enumerate(ranks[lang])]
        target.append(float(np.mean([average_precision(found) for found in alone])))
        behind.append(float(np.median([own[0] - ranks[asked][i][0] for i, own in enumerate(ranks[lang])])))
    found, _ = search_exact(vectors, pool, min(DEEP, len(pool)), tie_order=ties)
    counted = np.bincount(spoken[found[:, :TOP]].ravel(), minlength=len(langs))
    fair = [peer([ids[place] for place in row], lang_of,
                 {name: 1 for lang in langs for name in golds[lang][query]}, top=DEEP)
            for query, row in zip(asked_ids, found.tolist(), strict=True)]
    return (counted / counted.sum(), target, behind, float(np.mean(list(map(average_precision, every)))),
            float(np.mean(fair)))
