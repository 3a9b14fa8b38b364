"""Figure 1 of Wu et al. 2022 (CCP): translations in two dimensions, and how far apart their languages lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import ParallelPair
from interlingua.errors import BadInput
from interlingua.evaluation.table import Record, records_table
from interlingua.evaluation.tatoeba import TatoebaResult, check_languages, pair_vectors, tatoeba_accuracy
from interlingua.models.protocols import Encoder, Role
from interlingua.retrieval.retriever import searchable

Plane = NDArray[np.float32]

NOTE = (
    "distance: between the languages' centroids, in units of the spread within a language, over all dimensions; "
    "accuracy: mean of both directions; explained: share of the variance that the picture shows"
)


@dataclass(frozen=True)
class Projection:
    """One model's vectors of translations. `x`, `y` [pairs, 2]: the sentences of `langs[0]` and `langs[1]` on the first
    two principal components of both languages together, which hold the shares `explained` of the variance.

    `distance` is `objectives.geometry.language_distance` and `accuracy` the Tatoeba accuracy, both of whole vectors.
    """

    langs: tuple[str, str]
    x: Plane
    y: Plane
    explained: tuple[float, float]
    distance: float
    accuracy: TatoebaResult


def language_projection(
    encoders: Mapping[str, Encoder], pairs: Sequence[ParallelPair], role: Role = "passage"
) -> dict[str, Projection]:
    """Model → its projection of the same `pairs` (CCP: 1,000 of English and Arabic), encoded as Tatoeba's are.

    Vectors are taken as search takes them: of unit length under cosine. Raises BadInput for pairs of several
    languages, fewer than three, or vectors that do not differ.
    """
    lang = check_languages(pairs, "the pairs")
    if len(pairs) < 3:
        raise BadInput(f"{len(pairs)} pairs: a picture needs three or more.")
    from interlingua.objectives.geometry import language_distance

    first, _, second = lang.partition("-")
    langs, ids = (first, second or "en"), [str(number) for number in range(len(pairs))]
    projections = {}
    for name, encoder in encoders.items():
        x, y = (searchable(side, encoder.similarity, ids, "sentence") for side in pair_vectors(encoder, pairs, role))
        accuracy = TatoebaResult(lang, len(pairs), **tatoeba_accuracy(x, y))
        plane, explained = principal_plane(np.concatenate([x, y]))
        distance = language_distance({langs[0]: x, langs[1]: y})
        projections[name] = Projection(langs, plane[: len(x)], plane[len(x) :], explained, distance, accuracy)
    return projections


def principal_plane(vectors: Any) -> tuple[Plane, tuple[float, float]]:
    """`vectors` [texts, dim ≥ 2] on their first two principal components [texts, 2] float32, and the two shares of
    variance. Centred, computed in float64. Each component's sign makes its largest weight positive, so that equal
    vectors give equal pictures. Raises BadInput when all vectors are equal."""
    matrix = np.asarray(vectors, dtype=np.float64)
    if matrix.ndim != 2 or min(matrix.shape) < 2:
        raise BadInput(f"vectors of shape {matrix.shape}: two texts and two dimensions or more are needed.")
    centred = matrix - matrix.mean(axis=0)
    _, values, components = np.linalg.svd(centred, full_matrices=False)
    shares = values**2
    if shares.sum() <= 1e-12 * (matrix**2).sum():
        raise BadInput("all vectors are equal: there is no plane to show. The model has collapsed.")
    axes = components[:2]
    largest = axes[np.arange(2), np.abs(axes).argmax(axis=1)]
    plane = (centred @ (axes * np.sign(largest)[:, None]).T).astype(np.float32)
    first, second = (float(share / shares.sum()) for share in shares[:2])
    return plane, (first, second)


def projection_table(projections: Mapping[str, Projection], form: str = "text") -> str:
    """The numbers beside the picture, a row for each model: "text" or "markdown"; "tsv" or "json" with all digits."""
    records: list[Record] = [
        {
            "system": name,
            "languages": "-".join(projection.langs),
            "distance": projection.distance,
            "accuracy": projection.accuracy.mean,
            "explained": sum(projection.explained),
            "pairs": projection.accuracy.pairs,
        }
        for name, projection in projections.items()
    ]
    return records_table(records, form, "Projection", NOTE)
