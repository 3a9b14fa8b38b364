from __future__ import annotations

import numpy as np
import pytest

from interlingua.alignment.rotation import csls_matches
from interlingua.errors import InterlinguaError


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_matches_are_those_of_the_whole_matrix(k):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 6)) * rng.uniform(0.1, 9, (80, 1))
    y = rng.normal(size=(40, 6)) + 0.7  # hubs: the nearest by cosine and by CSLS differ
    cosines = unit(x) @ unit(y).T
    of_x = np.sort(cosines, axis=1)[:, -k:].mean(axis=1, keepdims=True)
    of_y = np.sort(cosines, axis=0)[-k:].mean(axis=0)
    csls = 2 * cosines - of_x - of_y
    found = csls_matches(x, y, k)
    np.testing.assert_array_equal(found.forward, csls.argmax(axis=1))
    np.testing.assert_array_equal(found.backward, csls.argmax(axis=0))
    np.testing.assert_allclose(found.cosines, cosines[np.arange(80), csls.argmax(axis=1)], atol=1e-6)
    np.testing.assert_allclose(found.csls, csls.max(axis=1), atol=1e-6)
    assert (found.forward != cosines.argmax(axis=1)).any()
    mutual = [i for i in range(80) if csls[:, csls[i].argmax()].argmax() == i]
    assert found.mutual().tolist() == mutual
    assert 0 < len(mutual) < 40


def test_vectors_without_a_direction_are_named():
    x = np.ones((3, 2))
    x[1] = 0
    with pytest.raises(InterlinguaError, match="row 1"):
        csls_matches(x, np.ones((3, 2)))
    x[1] = np.nan
    with pytest.raises(InterlinguaError, match="row 1"):
        csls_matches(np.ones((3, 2)), x)
