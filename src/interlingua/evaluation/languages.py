"""Language bias: question language x passage language, same-language rate, PEER, Max@R, MRC, language preference."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from interlingua.data.collections import cross, question_translations
from interlingua.data.records import Collection, Query
from interlingua.errors import BadInput
from interlingua.evaluation.measures import Scores, canonical, check_depth, evaluate
from interlingua.evaluation.projection import principal_plane
from interlingua.evaluation.table import render_records
from interlingua.models.protocols import Encoder
from interlingua.retrieval.dense.exact import search, search_exact, tie_ranks
from interlingua.retrieval.retriever import Vectors, embed_passages, embed_queries
from interlingua.retrieval.run import average_precision, gold_ranks


def peer(
    ranking: Sequence[str],
    langs: Mapping[str, str],
    grades: Mapping[str, int],
    *,
    top: int = 20,
    weights: Mapping[int, float] | None = None,
) -> float:
    """Probability of equal expected rank of one ranking, from 0 (ranks depend on the language) to 1 (nothing shows that
    they do). Of rankings that do not depend on it the mean is about ½, as that of any p-value.

    For each level of relevance a Kruskal-Wallis test asks whether the documents of that level have the same expected
    rank whatever their language; PEER is the mean of its p-values with `weights` by level (the same for all levels that
    occur, if not given). Documents are those among the first `top` of `ranking` (ids, best first) and relevant ones
    below, which share the mean of the ranks that are left. `langs`: document → language, all documents there are;
    `grades`: document → level, 0 where it is missing. A level with documents of one language only counts 1. One with
    a single document of each language is left out, since nothing can be seen in it; without any other level, 1.

    Raises BadInput for a `top` under 1 and weights that are no numbers of 0 or more, or all 0.
    """
    if top < 1:
        raise BadInput(f"top={top}: must be at least 1.")
    if weights is not None and (min(weights.values(), default=0) < 0 or not sum(weights.values())):
        raise BadInput(f"weights {dict(weights)}: give numbers of 0 or more by level, not all 0.")
    rank_of = {name: float(rank) for rank, name in enumerate(ranking[:top], 1)}
    tail = (top + 1 + max(len(langs), top + 1)) / 2
    doc_ranks = {name: rank for name, rank in rank_of.items() if name in langs}
    doc_ranks |= {name: tail for name, grade in grades.items() if grade > 0 and name not in rank_of and name in langs}
    values: dict[int, float] = {}
    for level in sorted({grades.get(name, 0) for name in doc_ranks}):
        groups: dict[str, list[float]] = {}
        for name, rank in doc_ranks.items():
            if grades.get(name, 0) == level:
                groups.setdefault(langs[name], []).append(rank)
        ranks = [rank for group in groups.values() for rank in group]
        if 1 < len(groups) == len(ranks):
            continue
        alike = len(groups) < 2 or min(ranks) == max(ranks)
        values[level] = 1.0 if alike else _kruskal(list(groups.values()))
    level_weights = {level: 1.0 if weights is None else weights.get(level, 0.0) for level in values}
    if not sum(level_weights.values()):
        return 1.0
    return float(np.average(list(values.values()), weights=list(level_weights.values())))


def _kruskal(groups: Sequence[Sequence[float]]) -> float:
    """The p-value of the Kruskal-Wallis test, as scipy.stats.kruskal has it. That looks over its arguments for most of
    its time, and PEER asks for a test a question."""
    from scipy.special import chdtrc

    rank_of, ties, count = {}, 0, 0
    for value, members in groupby(sorted(chain(*groups))):
        size = len(list(members))
        rank_of[value] = count + (size + 1) / 2
        ties += size**3 - size
        count += size
    between_groups = sum(sum(rank_of[value] for value in group) ** 2 / len(group) for group in groups)
    statistic = 12 / (count * (count + 1)) * between_groups - 3 * (count + 1)
    return float(chdtrc(len(groups) - 1, statistic / (1 - ties / (count**3 - count))))


TOP, DEEP = 10, 20
"""Results in which languages are counted, and those that PEER looks at."""
RANKED = 500
"""Questions, at most, whose ranks of all passages are compared between languages."""


class MergedPool:
    """The passages of several languages, encoded, in one pool: what of its measures all reports share.

    `collections`: language → collection; `vectors`: language → its passages [passages, dim]. A passage is called
    `language:id`; `spoken` [passages] is the place of its language in `langs`.

    Its measures count the questions that have a gold passage in every language (`golds`), as all of LAReQA's have (11
    relevant sentences each, METHODS §7): a question that lacks one in some language would favour the others.
    """

    def __init__(self, collections: Mapping[str, Collection], vectors: Mapping[str, Vectors]) -> None:
        self.langs, self.collections = list(collections), collections
        self.ids = [f"{lang}:{passage.id}" for lang, one in collections.items() for passage in one.passages]
        self.spoken = np.repeat(np.arange(len(self.langs)), [len(vectors[lang]) for lang in self.langs])
        self.vectors = np.concatenate([vectors[lang] for lang in self.langs])
        self._lang_of = {name: self.langs[place] for name, place in zip(self.ids, self.spoken.tolist(), strict=True)}
        self._ties, self._places = tie_ranks(self.ids), {name: place for place, name in enumerate(self.ids)}

    @property
    def share(self) -> NDArray[np.float64]:
        """[languages]: the share of each in the pool."""
        shares: NDArray[np.float64] = np.bincount(self.spoken, minlength=len(self.langs)) / len(self.spoken)
        return shares

    def golds(self, asked: str) -> tuple[list[int], dict[str, list[list[str]]]]:
        """The questions in `asked` that have a gold passage in every language: their rows in its collection, and
        passage language → the gold passages of each, as `language:id`. Raises BadInput where there is no such one."""
        own = self.collections[asked]
        by_lang = {lang: _relevant(cross(own, one), lang) for lang, one in self.collections.items()}
        rows = [row for row, query in enumerate(own.queries) if all(golds.get(query.id) for golds in by_lang.values())]
        if not rows:
            raise BadInput(f"no question in '{asked}' has a relevant passage in every language.")
        return rows, {lang: [golds[own.queries[row].id] for row in rows] for lang, golds in by_lang.items()}

    def ranks(self, queries: Vectors, golds: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]:
        """For each of `queries` [queries, dim] the ranks of its `golds` (from 1, ascending) in the whole pool."""
        places = [np.array([self._places[name] for name in names], dtype=np.int64) for names in golds]
        return gold_ranks(queries, self.vectors, places, self._ties)

    def first(self, queries: Vectors, depth: int) -> NDArray[np.int64]:
        """[queries, depth]: the passages found, best first; all of a smaller pool."""
        return search_exact(queries, self.vectors, min(depth, len(self.ids)), tie_order=self._ties)[0]

    def preference(self, first: NDArray[np.int64]) -> NDArray[np.float64]:
        """[languages]: the share of each among the first `TOP` results that `first` gave."""
        counts = np.bincount(self.spoken[first[:, :TOP]].ravel(), minlength=len(self.langs))
        shares: NDArray[np.float64] = counts / counts.sum()
        return shares

    def fairness(self, first: NDArray[np.int64], golds: Sequence[Sequence[str]]) -> float:
        """The mean PEER (`peer`) of the questions whose first `DEEP` results `first` gave, and whose gold passages in
        all languages are `golds`."""
        return float(
            np.mean(
                [
                    peer([self.ids[place] for place in row], self._lang_of, dict.fromkeys(names, 1), top=DEEP)
                    for row, names in zip(first.tolist(), golds, strict=True)
                ]
            )
        )


def _relevant(collection: Collection, lang: str) -> dict[str, list[str]]:
    """Query id → its relevant passages as `lang:id`."""
    return {
        query: [f"{lang}:{name}" for name, grade in grades.items() if grade > 0]
        for query, grades in collection.qrels.items()
    }


Matrix = NDArray[np.float64]


def mean_of_others(matrix: Matrix) -> float:
    """The mean of the cells of `matrix` [languages, languages] whose two languages differ."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())


@dataclass(frozen=True)
class LanguageMatrix:
    """`scores[question language, passage language]` on one language's passages at a time, and four numbers by
    question language on the merged pool of all languages.

    `pool_map`: mean average precision over the whole pool, where the gold passages of all languages are relevant
    (LAReQA). `same_language_rate`: share of the top 10 that is in the question's language; with no preference it is
    `same_language_share`, that language's share of the pool. `pool_peer`: mean PEER (`peer`) of the first 20, about ½
    where ranks do not depend on the language. All three are of the questions of `MergedPool.golds`, of which there are
    `pool_queries`.
    """

    measure: str
    langs: list[str]
    scores: dict[tuple[str, str], Scores]
    pool_map: dict[str, float]
    same_language_rate: dict[str, float]
    same_language_share: dict[str, float]
    pool_peer: dict[str, float]
    pool_queries: dict[str, int]

    @property
    def values(self) -> NDArray[np.float64]:
        """[question languages, passage languages]: means of `measure`, in the order of `langs`."""
        return np.array([[self.scores[q, p][self.measure] for p in self.langs] for q in self.langs])

    @property
    def monolingual(self) -> float:
        """Mean over the cells whose two languages are the same (English included)."""
        return float(np.diag(self.values).mean())

    @property
    def crosslingual(self) -> float:
        """Mean over the cells whose two languages differ (English included)."""
        return mean_of_others(self.values)

    def records(self) -> list[dict[str, str | float | int]]:
        """One record for each cell, and for each language's AP and same-language rate in the pool, at full precision:
        the matrix for machines."""
        cells = [
            (self.measure, q, p, self.scores[q, p][self.measure], self.scores[q, p].queries)
            for q in self.langs
            for p in self.langs
        ]
        for name, pool in (("AP", self.pool_map), (f"same-language rate @{TOP}", self.same_language_rate)):
            cells += [(name, lang, "all", value, self.pool_queries[lang]) for lang, value in pool.items()]
        fields = ("measure", "questions", "passages", "value", "queries")
        return [dict(zip(fields, cell, strict=True)) for cell in cells]

    def render(self, form: str = "text", *, digits: int = 3) -> str:
        """As "text" or "markdown": a row for each question language, then its numbers on the pool; "tsv" or "json":
        `records`, at full precision."""
        if form not in ("text", "markdown"):
            return render_records(self.records(), form)
        headers = [f"{self.measure}: q \\ p", *self.langs, "mean", "pool mAP", f"same lang @{TOP}"]
        pools = (self.pool_map, self.same_language_rate)
        body = [
            [lang, *row, row.mean(), *(pool[lang] for pool in pools)]
            for lang, row in zip(self.langs, self.values, strict=True)
        ]
        body.append(
            ["mean", *self.values.mean(axis=0), self.values.mean(), *(sum(pool.values()) / len(pool) for pool in pools)]
        )
        text = tabulate(body, headers, tablefmt="github" if form == "markdown" else "simple", floatfmt=f".{digits}f")
        return (
            f"{text}\n\nsame language: {self.monolingual:.{digits}f}, other languages: "
            f"{self.crosslingual:.{digits}f} (means over cells, English included)"
        )


def language_matrix(
    encoder: Encoder,
    collections: Mapping[str, Collection],
    measure: str = "RR@100",
    depth: int = 100,
    cells: Container[tuple[str, str]] | None = None,
    **encode_options: Any,
) -> LanguageMatrix:
    """Search every language's passages with every language's questions, then all passages at once.

    `collections`: language → collection; ids correspond across languages, as in XQuAD. Questions and passages
    of each language are encoded once. `depth` passages are retrieved for a cell; the merged pool is ranked whole.
    With `cells`, (question language, passage language), only those are searched beside the pool, and what the matrix
    says of all cells (`values`, `render`) is not to be had.
    Raises BadInput for fewer than two languages, a measure that looks deeper than `depth`, ids that do not
    correspond (`interlingua.data.collections.cross`), or a language without a question of `MergedPool.golds`.
    """
    check_depth(measure, depth)
    if len(collections) < 2:
        raise BadInput("one language, or none: a matrix needs two. Give a collection for each.")
    langs = list(collections)
    queries = {lang: embed_queries(encoder, c.queries, **encode_options) for lang, c in collections.items()}
    passages = {lang: embed_passages(encoder, c.passages, **encode_options) for lang, c in collections.items()}
    scores: dict[tuple[str, str], Scores] = {}
    for q_lang in langs:
        row_of = {query.id: row for row, query in enumerate(collections[q_lang].queries)}
        for p_lang in langs:
            if cells is not None and (q_lang, p_lang) not in cells:
                continue
            pair = collections[q_lang] if q_lang == p_lang else cross(collections[q_lang], collections[p_lang])
            query_ids, passage_ids = [query.id for query in pair.queries], [passage.id for passage in pair.passages]
            vectors = queries[q_lang][[row_of[name] for name in query_ids]]
            run = search(vectors, query_ids, passages[p_lang], passage_ids, depth)
            scores[q_lang, p_lang] = evaluate(run, pair.qrels, [measure])
    pool = MergedPool(collections, passages)
    pool_map, rate, peers, counts = {}, {}, {}, {}
    for place, lang in enumerate(langs):
        rows, golds = pool.golds(lang)
        all_golds = [list(chain(*parts)) for parts in zip(*golds.values(), strict=True)]
        counts[lang] = len(rows)
        ranks, first = pool.ranks(queries[lang][rows], all_golds), pool.first(queries[lang][rows], DEEP)
        pool_map[lang] = sum(map(average_precision, ranks)) / len(ranks)
        rate[lang], peers[lang] = float(pool.preference(first)[place]), pool.fairness(first, all_golds)
    share = dict(zip(langs, pool.share.tolist(), strict=True))
    return LanguageMatrix(canonical(measure), langs, scores, pool_map, rate, share, peers, counts)


@dataclass(frozen=True)
class LanguageBias:
    """One encoder on one pool of the same passages in `langs`. Matrices are [question languages, passage languages].

    `share` of each language in the pool; `preference`, the share of each among the first ten results; `peer` by
    question language (`fairness.peer`: about ½ where ranks do not depend on the language). `target` is the mean average
    precision where only the gold passages of one language are in the pool, `pool_map` that with all of them relevant;
    `displacement` the median number of places by which a gold passage stands behind its translation into the question's
    language. `own_first`, by question language, is the share of questions whose first gold passage is in their own
    language (the preference that MLAIRE, Jang et al. 2026, asks for), and `worst_rank` the mean rank of their last one
    (Max@R, Hong et al. 2026), which is the number of gold passages where nothing stands before them. `agreement`
    [question languages, question languages] is Spearman's correlation of the ranks that a question gives to the
    passages of the pool in two languages, the mean over questions, `RANKED` at most (`rank_agreement`).

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
    own_first: NDArray[np.float64]
    worst_rank: NDArray[np.float64]
    agreement: Matrix
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

    @property
    def rank_correlation(self) -> float:
        """Mean rank correlation (MRC, Yang et al. 2025): `agreement` over all pairs of different languages. 1 where a
        question's language changes nothing."""
        return mean_of_others(self.agreement)


def language_bias(encoder: Encoder, collections: Mapping[str, Collection], **encode_options: Any) -> LanguageBias:
    """Ask every language's questions of all languages' passages in one pool.

    `collections`: language → collection; ids correspond across languages, as in XQuAD. Raises BadInput for
    fewer than two languages, ids that do not correspond, a language without a question of `MergedPool.golds`, no
    question in common, fewer than four passages, and vectors that do not differ.
    """
    if len(collections) < 2:
        raise BadInput("one language, or none: bias towards a language needs two. Give a collection for each.")
    langs = list(collections)
    for lang, collection in collections.items():
        if not collection.passages:
            raise BadInput(f"{collection.name}: has no passage in '{lang}'.")
    passages = {lang: embed_passages(encoder, c.passages, **encode_options) for lang, c in collections.items()}
    pool = MergedPool(collections, passages)
    rows, asked = [], {}
    for q_lang in langs:
        questions, golds = pool.golds(q_lang)
        vectors = embed_queries(encoder, collections[q_lang].queries, **encode_options)[questions]
        rows.append(_row(pool, q_lang, vectors, golds))
        ids = [collections[q_lang].queries[row].id for row in questions]
        asked[q_lang] = dict(zip(ids, vectors, strict=True))
    preference, target, displacement, pool_map, peers, own_first, worst_rank = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    versions = {lang: _versions(collections[langs[0]], one) for lang, one in collections.items()}
    shared = [
        {lang: versions[lang][name].id for lang in langs}
        for name in asked[langs[0]]
        if all(name in versions[lang] and versions[lang][name].id in asked[lang] for lang in langs)
    ]
    if not shared:
        raise BadInput("no question is asked in every language, so none can be compared with itself.")
    shared = shared[:: -(-len(shared) // RANKED)]
    plane, explained = principal_plane(pool.vectors)
    means = np.stack([passages[lang].astype(np.float64).mean(axis=0) for lang in langs])
    unit = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(float).tiny)
    return LanguageBias(
        langs,
        pool.share,
        preference,
        peers,
        target,
        pool_map,
        displacement,
        own_first,
        worst_rank,
        rank_agreement([np.stack([asked[lang][names[lang]] for names in shared]) for lang in langs], pool.vectors),
        probe(pool.vectors, pool.spoken, [passage.id for c in collections.values() for passage in c.passages]),
        float(pool.share.max()),
        between(pool.vectors, pool.spoken),
        np.maximum(0, 1 - unit @ unit.T),
        {lang: plane[pool.spoken == place] for place, lang in enumerate(langs)},
        explained,
    )


def _versions(own: Collection, other: Collection) -> dict[str, Query]:
    """Question id of `own` → the same question of `other`: `question_translations`, and of those that several passages
    answer the one with its id and its judgements."""
    same = {query.id: query for query in other.queries if own.qrels.get(query.id) == other.qrels.get(query.id)}
    several = {name: query for name, query in same.items() if len(other.qrels.get(name, {})) > 1}
    return several | question_translations(own, other)


def rank_agreement(queries: Sequence[Vectors], passages: Vectors) -> Matrix:
    """[languages, languages]: Spearman's correlation of the ranks that `passages` [passages, dim] have for the same
    question in two languages, the mean over questions (RC of Yang et al. 2025, "Language bias in information
    retrieval", eq. 1). `queries`: for each language [questions, dim], the same questions in the same order. Passages of
    equal score share a rank; 0 where all have the same score."""
    from scipy.stats import rankdata

    total = np.zeros((len(queries), len(queries)))
    for question in zip(*queries, strict=True):
        ranks = rankdata(np.stack(question) @ passages.T, axis=1)
        ranks -= ranks.mean(axis=1, keepdims=True)
        ranks /= np.maximum(np.linalg.norm(ranks, axis=1, keepdims=True), np.finfo(float).tiny)
        total += ranks @ ranks.T
    return total / len(queries[0])


def probe(vectors: Vectors, langs: NDArray[np.int64], ids: list[str]) -> float:
    """Accuracy of a linear probe that predicts the language of a passage from its vector, by least squares.

    `vectors` [passages, dim], `langs` [passages] numbers from 0. Half of the `ids` are learnt from, the others told:
    translations of one passage, which share an id, are on one side. Raises BadInput for fewer than two ids.
    """
    distinct = sorted(set(ids))
    if len(distinct) < 2:
        raise BadInput("one passage: a probe needs some to learn from and others to tell.")
    train_ids = set(distinct[::2])
    train = np.array([name in train_ids for name in ids])
    inputs = np.column_stack([vectors.astype(np.float64), np.ones(len(vectors))])
    # ridge: with fewer passages than dimensions least squares would have no single answer
    ridge = 1e-3 * np.eye(inputs.shape[1]) * (inputs[train] ** 2).mean() * train.sum()
    weights = np.linalg.solve(
        inputs[train].T @ inputs[train] + ridge, inputs[train].T @ np.eye(int(langs.max()) + 1)[langs[train]]
    )
    return float(((inputs[~train] @ weights).argmax(axis=1) == langs[~train]).mean())


def between(vectors: Vectors, langs: NDArray[np.int64]) -> float:
    """The share of the variance of `vectors` [passages, dim] that lies between the means of the languages, 0 to 1."""
    exact = vectors.astype(np.float64)
    means = np.stack([exact[langs == lang].mean(axis=0) for lang in range(int(langs.max()) + 1)])
    total = ((exact - exact.mean(axis=0)) ** 2).sum()
    return float(((means[langs] - exact.mean(axis=0)) ** 2).sum() / total) if total else 0.0


def _row(pool: MergedPool, q_lang: str, vectors: Vectors, golds: Mapping[str, Sequence[list[str]]]) -> tuple[Any, ...]:
    """The numbers of one question language: preference, target and displacement by language, pool mAP, PEER, the share
    of questions whose first gold passage is in it, and the mean rank of their last."""
    ranks = {lang: pool.ranks(vectors, golds[lang]) for lang in pool.langs}
    all_ranks = [np.sort(np.concatenate([ranks[lang][i] for lang in pool.langs])) for i in range(len(vectors))]
    target, displacement = [], []
    for lang in pool.langs:
        single = [own - np.searchsorted(all_ranks[i], own) + np.arange(len(own)) for i, own in enumerate(ranks[lang])]
        target.append(float(np.mean([average_precision(places) for places in single])))
        displacement.append(float(np.median([own[0] - ranks[q_lang][i][0] for i, own in enumerate(ranks[lang])])))
    first = pool.first(vectors, DEEP)
    fair = pool.fairness(first, [[name for lang in pool.langs for name in golds[lang][i]] for i in range(len(first))])
    precision = float(np.mean(list(map(average_precision, all_ranks))))
    own_first = float(np.mean([ranks[q_lang][i][0] == every[0] for i, every in enumerate(all_ranks)]))
    worst_rank = float(np.mean([every[-1] for every in all_ranks]))
    return pool.preference(first), target, displacement, precision, fair, own_first, worst_rank
