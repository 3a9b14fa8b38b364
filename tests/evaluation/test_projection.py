from __future__ import annotations

import json

import numpy as np
import pytest

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.evaluation import language_projection, projection_table
from interlingua.evaluation.plots import plot_projections
from interlingua.evaluation.projection import principal_plane

RNG = np.random.default_rng(7)
MEANINGS = RNG.normal(size=(40, 8))
PAIRS = [ParallelPair(f"en{i}", f"ar{i}", "en", "ar") for i in range(40)]


class Planted:
    """The meaning of sentence i, a little noise, and `gap` in one direction for every Arabic sentence."""

    similarity = "dot"

    def __init__(self, gap):
        self.gap = gap

    def encode_document(self, texts, *, lang, **options):
        assert all(text.startswith(lang) for text in texts)
        noise = np.random.default_rng(len(lang) + (lang == "ar")).normal(scale=0.01, size=(len(texts), 8))
        vectors = MEANINGS[[int(text[2:]) for text in texts]] + noise
        vectors[:, 0] += self.gap * (lang == "ar")
        return vectors.astype(np.float32)


def test_the_plane_is_that_of_the_largest_variance():
    # planted: directions u and v of an orthonormal basis hold nearly all variance, 9 to 1
    basis = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
    spread = RNG.normal(size=(500, 6)) * [3, 1, 0.01, 0.01, 0.01, 0.01]
    plane, explained = principal_plane(spread @ basis.T + 50)
    centred = spread - spread.mean(axis=0)
    for axis in (0, 1):
        assert abs(np.corrcoef(plane[:, axis], centred[:, axis])[0, 1]) > 0.99
    assert plane.mean(axis=0) == pytest.approx([0, 0], abs=1e-4)
    assert explained == pytest.approx(tuple(np.var(plane, axis=0) / centred.var(axis=0).sum()), rel=1e-4)
    assert explained[0] > explained[1] > 0.05


def test_no_signs_are_left_to_chance():
    vectors = RNG.normal(size=(30, 5))
    plane, _ = principal_plane(vectors)
    np.testing.assert_allclose(principal_plane(vectors[::-1])[0][::-1], plane, atol=1e-5)
    np.testing.assert_allclose(principal_plane(vectors * 3)[0], plane * 3, atol=1e-5)


def test_one_plane_for_both_languages_and_numbers_of_the_whole_space():
    found = language_projection({"apart": Planted(20.0), "together": Planted(0.0)}, PAIRS)
    apart, together = found["apart"], found["together"]
    assert apart.langs == together.langs == ("ar", "en")
    assert apart.x.shape == apart.y.shape == (40, 2)
    # the gap is the first component: Arabic (x) on its side, English on the other
    assert (apart.x[:, 0] > 5).all()
    assert (apart.y[:, 0] < -5).all()
    np.testing.assert_allclose(together.x, together.y, atol=0.1)
    x, y = (Planted(20.0).encode_document([f"{lang}{i}" for i in range(40)], lang=lang) for lang in ("ar", "en"))
    spread = np.sqrt(np.mean([((side - side.mean(0)) ** 2).sum(1).mean() for side in (x, y)]))
    assert apart.distance == pytest.approx(np.linalg.norm(x.mean(0) - y.mean(0)) / spread, rel=1e-4)
    assert together.distance < 0.01
    assert together.accuracy.mean == 1.0 > apart.accuracy.mean
    assert (apart.accuracy.lang, apart.accuracy.pairs) == ("ar", 40)


def test_the_numbers_as_a_table():
    found = language_projection({"apart": Planted(20.0), "together": Planted(0.0)}, PAIRS)
    first, second = json.loads(projection_table(found, "json"))
    assert first == {
        "system": "apart",
        "languages": "ar-en",
        "distance": found["apart"].distance,
        "accuracy": found["apart"].accuracy.mean,
        "explained": sum(found["apart"].explained),
        "pairs": 40,
    }
    assert second["system"] == "together"
    text = projection_table(found)
    assert text.splitlines()[2].split()[:3] == ["apart", "ar-en", f"{found['apart'].distance:.3f}"]
    assert "between the languages' centroids" in text


def test_the_picture_has_a_panel_for_each_model(tmp_path):
    pytest.importorskip("matplotlib")
    found = language_projection({"apart": Planted(20.0), "together": Planted(0.0)}, PAIRS)
    drawn = plot_projections(found, tmp_path / "p.svg", highlighted=3).read_text(encoding="utf-8")
    assert drawn.count('id="axes_') == 2
    # in each panel two marks of one colour for each highlighted pair
    for color in ("#2ca02c", "#d62728", "#9467bd"):
        assert drawn.count(f"fill: {color}; stroke: #000000") == 2 * 2


def test_what_has_no_picture_is_refused():
    with pytest.raises(InterlinguaError, match="2 pairs: a picture needs three"):
        language_projection({"m": Planted(1.0)}, PAIRS[:2])
    with pytest.raises(InterlinguaError, match="holds ar, fi"):
        language_projection({"m": Planted(1.0)}, [*PAIRS, ParallelPair("a", "b", "fi", "en")])
    with pytest.raises(InterlinguaError, match="all vectors are equal"):
        principal_plane(np.ones((5, 3)))
    with pytest.raises(InterlinguaError, match="two dimensions or more"):
        principal_plane(np.ones((5, 1)))
