from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probssl.errors import InputError
from probssl.metrics import coding_rate, mcr2
from tests.metrics.codes import blobs, gaussian


@pytest.mark.parametrize("m", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_identity_code_has_the_largest_rate(m, epsilon):
    best = m / 2 * np.log(1 + 1 / epsilon**2)
    assert coding_rate(np.eye(m), epsilon) == pytest.approx(best)
    assert coding_rate(gaussian(500, m), epsilon) <= best + 1e-12


def test_constant_code_has_the_rate_of_one_direction():
    assert coding_rate(np.ones((50, 4))) == pytest.approx(0.5 * np.log(1 + 4 / 0.5))
    assert coding_rate(np.zeros((50, 4))) == 0.0
    assert mcr2(np.ones((50, 4))).reduction == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("shape", [(40, 5), (5, 40), (6, 6)])
def test_rate_against_the_formula(shape):
    z = gaussian(*shape)
    total = np.zeros((shape[1], shape[1]))
    for row in z:
        total += np.outer(row, row)
    expected = 0.5 * np.log(np.linalg.det(np.eye(shape[1]) + shape[1] / (shape[0] * 0.5) * total))
    assert coding_rate(z, normalise=False) == pytest.approx(expected)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    assert coding_rate(z) == pytest.approx(coding_rate(unit, normalise=False))


def test_reduction_against_loops():
    z, y = blobs(90, 4, gap=2.0)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    grouped = 0.0
    for label in range(3):
        part = np.array([row for row, code in zip(unit, y, strict=True) if code == label])
        inside = np.linalg.det(np.eye(4) + 4 / (len(part) * 0.5) * part.T @ part)
        grouped += len(part) / (2 * 90) * np.log(inside)
    result = mcr2(z, y)
    assert result.grouped == pytest.approx(grouped)
    assert result.whole == pytest.approx(coding_rate(z))
    assert result.reduction == pytest.approx(result.whole - result.grouped)


def test_orthogonal_groups_have_the_closed_form():
    z = np.repeat(np.eye(4), 25, axis=0)
    labels = np.repeat(np.arange(4), 25)
    whole = 2 * np.log(1 + 1 / 0.5)
    grouped = 0.5 * np.log(1 + 4 / 0.5)
    result = mcr2(z, labels)
    assert (result.whole, result.grouped) == (pytest.approx(whole), pytest.approx(grouped))
    assert mcr2(z, clusters=4).reduction == pytest.approx(result.reduction)


def test_one_group_reduces_nothing():
    assert mcr2(gaussian(50, 3), np.zeros(50)).reduction == pytest.approx(0, abs=1e-12)


def test_right_groups_beat_shuffled_groups():
    z, y = blobs(300)
    shuffled = np.random.default_rng(0).permutation(y)
    assert mcr2(z, y).reduction > 5 * mcr2(z, shuffled).reduction
    assert mcr2(z, clusters=3).reduction == pytest.approx(mcr2(z, y).reduction)  # k-means finds the groups


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 15), st.integers(1, 6), st.integers(0, 10**6), st.booleans())
def test_range(n, m, seed, normalise):
    labels = np.random.default_rng(seed).integers(0, 3, size=n)
    result = mcr2(gaussian(n, m, seed), labels, normalise=normalise)
    assert -1e-9 <= result.reduction <= result.whole + 1e-12
    k = min(n, m)
    assert coding_rate(gaussian(n, m, seed)) <= k / 2 * np.log(1 + m / (k * 0.25)) + 1e-9


def test_duplicated_columns_double_the_width_in_the_formula():
    z = gaussian(60, 3)
    assert coding_rate(np.hstack([z, z])) == pytest.approx(coding_rate(z, 0.5))


def test_bad_options():
    with pytest.raises(InputError, match="epsilon"):
        coding_rate(np.eye(3), 0.0)
    with pytest.raises(InputError, match="clusters"):
        mcr2(np.eye(3), clusters=1)
    with pytest.raises(InputError, match="overflows"):
        coding_rate(np.full((4, 2), 1e200), normalise=False)
