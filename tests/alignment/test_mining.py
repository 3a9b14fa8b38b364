from __future__ import annotations

import numpy as np
import pytest

from interlingua.alignment import margin_scores, mine_bitext
from interlingua.errors import InterlinguaError


def planted_vectors(seed=0, noise=0.05):
    """300 and 400 vectors, 40 rows of which are near-copies of one another: (x, y, {(row of x, row of y)})."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((300, 32)), rng.standard_normal((400, 32))
    rows = rng.permutation(300)[:40], rng.permutation(400)[:40]
    y[rows[1]] = x[rows[0]] + noise * rng.standard_normal((40, 32))
    return x, y, set(zip(*(part.tolist() for part in rows), strict=True))


def by_hand(x, y, k, kind, retrieval, threshold=-np.inf):
    """Mining from the full matrix of margins, with Python's own sort."""
    margins = margin_scores(x, y, k, kind)
    away = -margin_scores(x, y, k, "absolute")
    among_x, among_y = (
        [sorted(range(len(row)), key=row.__getitem__)[:k] for row in rows.tolist()] for rows in (away, away.T)
    )
    forward = {(i, max(near, key=lambda j: margins[i, j])) for i, near in enumerate(among_x)}
    backward = {(max(near, key=lambda i: margins[i, j]), j) for j, near in enumerate(among_y)}
    chosen = {"max": forward | backward, "intersection": forward & backward, "forward": forward}[retrieval]
    found, seen = [], set()
    for i, j in sorted(chosen, key=lambda pair: (-margins[pair], pair)):
        if retrieval != "max" or not {("x", i), ("y", j)} & seen:
            seen |= {("x", i), ("y", j)}
            if margins[i, j] >= threshold:
                found.append((i, j, float(margins[i, j])))
    return found


@pytest.mark.parametrize("kind", ["ratio", "distance", "absolute"])
@pytest.mark.parametrize("retrieval", ["max", "intersection", "forward"])
@pytest.mark.parametrize("k", [1, 4])
def test_mining_is_what_the_full_matrix_gives(k, kind, retrieval):
    x, y, _ = planted_vectors()
    everything = by_hand(x, y, k, kind, retrieval)
    for threshold in (None, everything[35][2] - 1e-4):
        found = mine_bitext(x, y, k, threshold, kind, retrieval)
        expected = by_hand(x, y, k, kind, retrieval, -np.inf if threshold is None else threshold)
        assert [pair[:2] for pair in found] == [pair[:2] for pair in expected]
        assert found.scores == pytest.approx([score for *_, score in expected], abs=1e-5)
        assert len(found) == len(expected) >= 36


def test_planted_pairs_come_first_one_to_one_and_in_order():
    x, y, truth = planted_vectors()
    found = mine_bitext(x, y)
    assert {(i, j) for i, j, _ in list(found)[:40]} == truth
    assert found[39][2] > 1.5 > found[40][2]
    for rows in (found.x, found.y):
        assert len(set(rows.tolist())) == len(rows)
    assert (np.diff(found.scores) <= 0).all()
    assert [(j, i, score) for i, j, score in found] == list(mine_bitext(y, x))


def test_a_threshold_keeps_what_reaches_it():
    x, y, _ = planted_vectors()
    everything = mine_bitext(x, y)
    least = everything[25][2]
    assert list(mine_bitext(x, y, threshold=least)) == list(everything)[:26]
    assert list(mine_bitext(x, y, threshold=np.nextafter(np.float32(least), np.float32(9)))) == list(everything)[:25]
    assert len(mine_bitext(x, y, threshold=99.0)) == 0


def test_a_row_taken_by_a_better_pair_is_left_out():
    x = np.array([[1, 0.0, 0], [1, 0.1, 0]])
    y = np.array([[1, 0.02, 0.0], [0, 0, 1]])
    assert [pair[:2] for pair in mine_bitext(x, y, 1, kind="absolute")] == [(0, 0)]
    assert [pair[:2] for pair in mine_bitext(x, y, 1, kind="absolute", retrieval="forward")] == [(0, 0), (1, 0)]


def test_equal_margins_are_in_order_of_the_rows():
    same = np.eye(3)[[0, 0, 1, 1]]
    assert list(mine_bitext(same, same, 1)) == [(0, 0, 1.0), (2, 2, 1.0)]


def test_proposals_without_a_ratio_are_counted_and_left_out(capsys):
    x, y = np.array([[1.0, 0], [-1, 0.1]]), np.array([[1, 0.1], [1, 0.2]])
    found = mine_bitext(x, y, 2)  # row 1 of x points away from everything: negative / negative would be 1 or more
    assert 1 not in found.x
    assert "the margin 'ratio' is undefined" in capsys.readouterr().err
    assert 1 in mine_bitext(x, y, 2, kind="distance").x


def test_sides_of_any_length():
    x, y, _ = planted_vectors()
    assert len(mine_bitext(x[:1], y)) == 1
    assert len(mine_bitext(x[:3], y[:2], 4)) <= 2
    assert len(mine_bitext(x[:0], y)) == 0


def test_unknown_options_and_wrong_vectors():
    x, y, _ = planted_vectors()
    with pytest.raises(InterlinguaError, match=r"retrieval 'intersect' is unknown. Did you mean 'intersection'"):
        mine_bitext(x, y, retrieval="intersect")
    with pytest.raises(InterlinguaError, match="margin 'cosine' is unknown"):
        mine_bitext(x, y, kind="cosine")
    y[7] = 0
    with pytest.raises(InterlinguaError, match="y, row 7 "):
        mine_bitext(x, y)
