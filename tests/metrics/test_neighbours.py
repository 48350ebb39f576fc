from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from probssl.metrics._neighbours import nearest, vote
from tests.metrics.codes import gaussian


@pytest.mark.parametrize("m", [1, 15, 16, 40])  # both searches
@pytest.mark.parametrize("count", [1, 4])
def test_nearest_against_loops(m, count):
    reference, query = gaussian(80, m), gaussian(20, m, seed=1)
    expected = [sorted(range(80), key=lambda j: float(np.sum((q - reference[j]) ** 2)))[:count] for q in query]
    np.testing.assert_array_equal(nearest(reference, query, count), expected)


@pytest.mark.parametrize("m", [3, 30])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_vote_is_that_of_scikit_learn(m, count):
    reference, query = gaussian(200, m), gaussian(60, m, seed=1)
    codes = np.random.default_rng(0).integers(0, 4, size=200)
    expected = KNeighborsClassifier(count).fit(reference, codes).predict(query)
    np.testing.assert_array_equal(vote(reference, codes, query, count), expected)
