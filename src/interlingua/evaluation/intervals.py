"""95% intervals, each labelled with what it is: queries resampled, queries resampled within languages, or seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError

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
        raise InterlinguaError("no language to average over.")
    generator = np.random.default_rng(seed)
    arrays = [_values(values[lang]) for lang in sorted(values)]
    macro = np.mean([_bootstrap_means(array, resamples, generator) for array in arrays], axis=0)
    low, high = _percentiles(macro)
    queries = sum(map(len, arrays))
    mean = float(np.mean([array.mean() for array in arrays]))
    return Interval(mean, low, high, "bootstrap over queries within each language", queries)


def seed_interval(values: Sequence[float]) -> Interval:
    """mean ± t_{0.975, n−1} · s / √n over n training seeds (one value of the measure for each).

    It says how far another training run would land, on these same questions. Raises InterlinguaError for
    fewer than two seeds; three is the least that should be reported.
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    array = _values(values)
    if len(array) < 2:
        raise InterlinguaError("one seed has no interval. Train with at least two seeds, better three to five.")
    mean = float(array.mean())
    half = float(t.ppf((1 + LEVEL) / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))
    return Interval(mean, mean - half, mean + half, "t interval over seeds", len(array))


def _values(values: Sequence[float] | Mapping[str, float]) -> NDArray[np.float64]:
    array = np.array(list(values.values()) if isinstance(values, Mapping) else list(values), dtype=np.float64)
    if not len(array) or not np.isfinite(array).all():
        raise InterlinguaError(f"{len(array)} values, all of which must be numbers, and at least one: no interval.")
    return array


def _bootstrap_means(
    array: NDArray[np.float64], resamples: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """[resamples]: means of samples with replacement, made a bounded number at a time."""
    if resamples < 1:
        raise InterlinguaError(f"resamples={resamples}: at least 1 is needed, 10,000 is usual.")
    step = max(1, HELD // len(array))
    return np.concatenate([
        array[generator.integers(len(array), size=(min(step, resamples - start), len(array)))].mean(axis=1)
        for start in range(0, resamples, step)
    ])


def _percentiles(means: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
