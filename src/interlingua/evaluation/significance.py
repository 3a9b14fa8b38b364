"""Paired tests and 95% intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Qrels
from interlingua.errors import BadInput, suggestion
from interlingua.evaluation.measures import canonical, evaluate
from interlingua.retrieval.run import Run

FLIPS = 10_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """System A against system B on one collection: two-tailed, paired by query.

    `difference` = mean A − mean B; `p_corrected` accounts for the other comparisons of the same family;
    `significant` = p_corrected < alpha.
    """

    name: str
    measure: str
    mean_a: float
    mean_b: float
    difference: float
    p: float
    p_corrected: float
    significant: bool
    n: int
    test: str
    correction: str | None

    def __str__(self) -> str:
        corrected = f", {self.correction} {self.p_corrected:.3g}" if self.correction else ""
        verdict = "significant" if self.significant else "not significant"
        if self.test == "t" and self.p == 1.0 and abs(self.difference) > 1e-12 and self.n > 1:
            verdict = "not decidable, as all differences are the same; use the permutation test"
        return (
            f"{self.name}: {self.measure} {self.mean_a:.4f} vs {self.mean_b:.4f}, "
            f"difference {self.difference:+.4f} over {self.n:,} queries, "
            f"paired {self.test} test p = {self.p:.3g}{corrected}: {verdict}"
        )


def compare(
    run_a: Run,
    run_b: Run,
    qrels: Qrels,
    measure: str,
    test: str = "t",
    correction: str | None = "holm",
    *,
    alpha: float = 0.05,
    seed: int = 0,
) -> Comparison:
    """Test whether `run_a` and `run_b` differ in `measure` on the queries of `qrels`.

    `test`: "t" (paired t) or "permutation" (10,000 random sign flips). One comparison needs no correction;
    test several at once with `compare_all`.
    """
    return compare_all({"A vs B": (run_a, run_b, qrels)}, measure, test, correction, alpha=alpha, seed=seed)[0]


def compare_all(
    collections: Sequence[tuple[Run, Run, Qrels]] | Mapping[str, tuple[Run, Run, Qrels]],
    measure: str,
    test: str = "t",
    correction: str | None = "holm",
    *,
    alpha: float = 0.05,
    seed: int = 0,
) -> list[Comparison]:
    """One comparison for each `(run A, run B, qrels)`, as one family of tests: p-values are corrected together.

    `correction`: "holm", "bonferroni" or "none" (None is the same). Names of collections come from the mapping's keys.
    """
    by_name = collections if isinstance(collections, Mapping) else {str(i): c for i, c in enumerate(collections, 1)}
    pairs = []
    for run_a, run_b, qrels in by_name.values():
        values = [evaluate(run, qrels, [measure]).per_query[measure] for run in (run_a, run_b)]
        pairs.append([np.array([value[query_id] for query_id in qrels]) for value in values])
    p_values = [paired_p(a, b, test, seed=seed) for a, b in pairs]
    correction = None if correction == "none" else correction
    corrected = correct(p_values, correction)
    return [
        Comparison(
            name,
            canonical(measure),
            float(a.mean()),
            float(b.mean()),
            float((a - b).mean()),
            p,
            p_corrected,
            p_corrected < alpha,
            len(a),
            test,
            correction,
        )
        for name, (a, b), p, p_corrected in zip(by_name, pairs, p_values, corrected, strict=True)
    ]


def paired_p(a: NDArray[np.float64], b: NDArray[np.float64], test: str = "t", *, seed: int = 0) -> float:
    """Two-tailed p-value of paired values [queries]. The t-test says nothing of differences that do not vary, and gives
    1; the permutation test flips their signs as it does with others."""
    if test not in ("t", "permutation"):
        raise BadInput(f"unknown test '{test}'.{suggestion(test, ['t', 'permutation'])}")
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    n = len(differences)
    if n < 2:
        return 1.0
    if test == "t":
        if np.ptp(differences) <= 1e-12:  # subtraction leaves noise where the differences are equal
            return 1.0
        from scipy.stats import t  # type: ignore[import-untyped]

        statistic = differences.mean() / (differences.std(ddof=1) / np.sqrt(n))
        return float(2 * t.sf(abs(statistic), n - 1))
    generator = np.random.default_rng(seed)
    extreme, step = 0, max(1, (1 << 22) // n)
    for start in range(0, FLIPS, step):
        signs = generator.integers(0, 2, size=(min(step, FLIPS - start), n), dtype=np.int8) * 2 - 1
        extreme += int((abs(signs @ differences) >= abs(differences.sum()) - 1e-9).sum())
    return (extreme + 1) / (FLIPS + 1)


CORRECTIONS = ("bonferroni", "holm", "none")


def correct(p_values: Sequence[float], correction: str | None) -> list[float]:
    """p-values corrected for being a family: "bonferroni" (× number of tests), "holm" (step-down), or None."""
    count = len(p_values)
    if correction is None:
        return list(p_values)
    if correction == "bonferroni":
        return [min(1.0, p * count) for p in p_values]
    if correction != "holm":
        raise BadInput(f"unknown correction '{correction}'.{suggestion(str(correction), CORRECTIONS)}")
    corrected, largest = [0.0] * count, 0.0
    for place, i in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[i] * (count - place)))
        corrected[i] = largest
    return corrected


LEVEL = 0.95
HELD = 1 << 22  # resampled values in memory at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95% interval; `method` says in words which kind of interval it is, and over `n` what."""

    mean: float
    low: float
    high: float
    method: str
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] ({self.method}, n={self.n})"


def bootstrap_interval(
    values: Sequence[float] | Mapping[str, float], *, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Percentile bootstrap over queries: how far the mean would move with other questions of the same kind.

    `values` are per-query values of one measure. It says nothing about other training seeds.
    """
    array = _values(values)
    low, high = _percentiles(_bootstrap_means(array, resamples, np.random.default_rng(seed)))
    return Interval(float(array.mean()), low, high, "bootstrap over queries", len(array))


def stratified_interval(
    values: Mapping[str, Sequence[float] | Mapping[str, float]], *, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Percentile bootstrap of a macro average: queries are resampled within each language, each language's
    mean counts the same.

    `values`: language → per-query values. Languages are resampled independently; where they hold translations
    of the same questions (XQuAD) their means move together and the true interval is wider.
    """
    if not values:
        raise BadInput("no language to average over.")
    generator = np.random.default_rng(seed)
    arrays = [_values(values[lang]) for lang in sorted(values)]
    macro = np.mean([_bootstrap_means(array, resamples, generator) for array in arrays], axis=0)
    low, high = _percentiles(macro)
    queries = sum(map(len, arrays))
    mean = float(np.mean([array.mean() for array in arrays]))
    return Interval(mean, low, high, "bootstrap over queries within each language", queries)


def seed_interval(values: Sequence[float]) -> Interval:
    """mean ± t_{0.975, n−1} · s / √n over n training seeds (one value of the measure for each).

    It says how far another training run would land, on these same questions. Raises BadInput for
    fewer than two seeds; three is the least that should be reported.
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    array = _values(values)
    if len(array) < 2:
        raise BadInput("one seed has no interval. Train with at least two seeds, better three to five.")
    mean = float(array.mean())
    half = float(t.ppf((1 + LEVEL) / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))
    return Interval(mean, mean - half, mean + half, "t interval over seeds", len(array))


def spread_ratio(first: Sequence[float], last: Sequence[float]) -> Interval:
    """The standard deviation of `last` over that of `first`, with its 95% interval (F distribution): a ratio whose
    interval lies under 1 says that the values vary less. With a few seeds the interval is very wide.

    Raises BadInput for fewer than three values on a side, or values of `first` that do not vary.
    """
    from scipy.stats import f  # type: ignore[import-untyped]

    one, two = _values(first), _values(last)
    if min(len(one), len(two)) < 3:
        raise BadInput("a standard deviation between seeds needs three seeds at least.")
    if (base := float(one.std(ddof=1))) == 0:
        raise BadInput("the first values do not vary: there is no ratio of standard deviations.")
    ratio = float(two.std(ddof=1)) / base
    low, high = f.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], len(two) - 1, len(one) - 1)
    return Interval(
        ratio,
        ratio / float(np.sqrt(high)),
        ratio / float(np.sqrt(low)),
        "F interval of the ratio of standard deviations between seeds",
        len(one) + len(two),
    )


def _values(values: Sequence[float] | Mapping[str, float]) -> NDArray[np.float64]:
    array = np.array(list(values.values()) if isinstance(values, Mapping) else list(values), dtype=np.float64)
    if not len(array) or not np.isfinite(array).all():
        raise BadInput(f"{len(array)} values, all of which must be numbers, and at least one: no interval.")
    return array


def _bootstrap_means(array: NDArray[np.float64], resamples: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """[resamples]: means of samples with replacement, made a bounded number at a time."""
    if resamples < 1:
        raise BadInput(f"resamples={resamples}: at least 1 is needed, 10,000 is usual.")
    step = max(1, HELD // len(array))
    return np.concatenate(
        [
            array[generator.integers(len(array), size=(min(step, resamples - start), len(array)))].mean(axis=1)
            for start in range(0, resamples, step)
        ]
    )


def _percentiles(means: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
