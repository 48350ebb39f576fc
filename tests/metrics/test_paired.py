"""Paired differences: their errors against loops, and against how differences really scatter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from probssl.metrics.paired import Difference, difference


def test_one_draw_is_the_paired_standard_error():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 1, 50))
    apart = (one - other)[0]
    found = difference(one, other)
    assert found.mean == pytest.approx(apart.mean())
    assert found.error == pytest.approx(apart.std(ddof=1) / math.sqrt(50))


def test_draws_and_rows_against_loops():
    random = np.random.default_rng(1)
    one, other = random.normal(size=(2, 3, 6))
    one[0, 2] = other[0, 2] = one[2, 4] = other[2, 4] = np.nan
    cells = [(d, r, one[d, r] - other[d, r]) for d in range(3) for r in range(6) if not np.isnan(one[d, r])]
    mean = sum(apart for *_, apart in cells) / len(cells)
    squares = 0.0
    for place, groups in ((0, 3), (1, 6)):
        total = sum(sum(cell[2] - mean for cell in cells if cell[place] == group) ** 2 for group in range(groups))
        squares += total * groups / (groups - 1)
    found = difference(one, other)
    assert found.mean == pytest.approx(mean)
    assert found.error == pytest.approx(math.sqrt(squares) / len(cells))


def test_the_error_is_that_of_fresh_rows_and_draws():
    random, means, errors = np.random.default_rng(2), [], []
    for _ in range(300):
        apart = random.normal(size=(1, 40)) + 0.5 * random.normal(size=(10, 1)) + random.normal(size=(10, 40))
        found = difference(apart, np.zeros_like(apart))
        means.append(found.mean)
        errors.append(found.error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)


def test_what_cannot_be_said():
    alike = difference(np.ones((2, 5)), np.ones((2, 5)))
    assert (alike.mean, alike.error, alike.clear) == (0, 0, False)
    assert difference(np.ones((1, 1)), np.zeros((1, 1))).error == math.inf
    assert math.isnan(difference(np.full((1, 3), np.nan), np.zeros((1, 3))).error)
    assert not difference(np.ones((1, 1)), np.zeros((1, 1))).clear
    assert str(Difference(-0.0514, 0.0212)) == "0.05 ± 0.02"
    assert str(Difference(0.0514, 0.0042)) == "0.051 ± 0.004"
