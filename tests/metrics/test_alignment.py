from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probssl.errors import InputError
from probssl.metrics import alignment, uniformity
from tests.metrics.codes import gaussian, on_sphere


def test_alignment_of_equal_opposite_and_unrelated_rows():
    z = gaussian(20000, 6)
    assert alignment(z, z) == 0.0
    assert alignment(z, 3 * z) == pytest.approx(0, abs=1e-12)
    assert alignment(z, -z) == pytest.approx(4)
    assert alignment(z, -z, power=1) == pytest.approx(2)
    assert alignment(z, gaussian(20000, 6, seed=1)) == pytest.approx(2, abs=0.02)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0])
def test_alignment_against_loops(power, normalise):
    a, b = gaussian(30, 4), gaussian(30, 4, seed=1)
    total = 0.0
    for x, y in zip(a, b, strict=True):
        if normalise:
            x, y = x / np.sqrt(np.sum(x**2)), y / np.sqrt(np.sum(y**2))
        total += np.sqrt(np.sum((x - y) ** 2)) ** power
    assert alignment(a, b, power=power, normalise=normalise) == pytest.approx(total / 30)


def test_alignment_is_symmetric_and_refuses_unequal_shapes():
    a, b = gaussian(30, 4), gaussian(30, 4, seed=1)
    assert alignment(a, b) == alignment(b, a)
    with pytest.raises(InputError, match="one to one"):
        alignment(a, b[:-1])
    with pytest.raises(InputError, match="power"):
        alignment(a, b, power=0)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_rows_of_any_length_have_a_direction(size):
    a, b = gaussian(30, 4), gaussian(30, 4, seed=1)
    assert alignment(a * size, b) == pytest.approx(alignment(a, b))
    assert uniformity(a * size) == pytest.approx(uniformity(a))


def test_rows_of_zeros_stay_at_the_origin():
    assert alignment(np.zeros((5, 3)), np.eye(5, 3) + 1) == pytest.approx(1)
    assert uniformity(np.zeros((5, 3))) == 0.0


@pytest.mark.parametrize(("d", "expected"), [(2, -1.575027), (10, -3.246504)])
def test_uniform_points_on_the_sphere_have_the_known_value(d, expected):
    assert uniformity(on_sphere(6000, d)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("d", [2, 3, 10])
def test_uniform_points_follow_the_bessel_closed_form(d):
    # E exp(2 t u) over a cosine u of uniform directions is Gamma(d/2) t^(1 - d/2) I_{d/2-1}(2t), times exp(-2t)
    from scipy.special import gamma, ive

    for t in (0.5, 2.0):
        expected = np.log(gamma(d / 2) * t ** (1 - d / 2) * ive(d / 2 - 1, 2 * t))
        assert uniformity(on_sphere(5000, d), t=t) == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("n", [2, 3, 10, 40])
def test_a_regular_simplex_reaches_the_lower_end(n):
    simplex = np.eye(n) - 1 / n
    assert uniformity(simplex) == pytest.approx(-4 * n / (n - 1))
    assert uniformity(np.eye(n)) == pytest.approx(-4)  # identity code: every squared distance is 2


def test_constant_code_reaches_the_upper_end():
    assert uniformity(np.ones((1500, 7))) == pytest.approx(0, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 5.0]))
def test_range(n, m, seed, t):
    a, b = gaussian(n, m, seed), gaussian(n, m, seed + 1)
    assert -2 * t * n / (n - 1) - 1e-9 <= uniformity(a, t=t) <= 1e-9
    assert 0 <= alignment(a, b) <= 4 + 1e-9


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("n", [2, 37, 1030])  # the last spans blocks
def test_uniformity_against_loops(n, normalise):
    z = gaussian(n, 3)
    points = z / np.linalg.norm(z, axis=1, keepdims=True) if normalise else z
    total, pairs = 0.0, 0
    for i in range(n):
        d = np.sum((points[i + 1 :] - points[i]) ** 2, axis=1)
        total += float(np.sum(np.exp(-2 * d)))
        pairs += len(d)
    assert uniformity(z, normalise=normalise) == pytest.approx(np.log(total / pairs))


def test_far_apart_points_do_not_underflow():
    assert uniformity([[0.0], [100.0]], normalise=False) == pytest.approx(-20000)


def test_duplicated_rows_add_pairs_at_distance_zero():
    z = gaussian(50, 4)
    pairs = 50 * 49 / 2
    expected = np.log((50 + 4 * pairs * np.exp(uniformity(z))) / (100 * 99 / 2))
    assert uniformity(np.vstack([z, z])) == pytest.approx(expected)


def test_a_sample_agrees_with_the_whole():
    z = gaussian(4000, 5) + 0.3
    whole = uniformity(z, max_rows=None)
    assert uniformity(z) == whole
    assert uniformity(z, max_rows=2000) == pytest.approx(whole, abs=0.03)
    assert uniformity(z, max_rows=2000, seed=1) == uniformity(z, max_rows=2000, seed=1)
    assert uniformity(z, max_rows=2000, seed=1) != uniformity(z, max_rows=2000, seed=2)


def test_one_row_has_no_pairs():
    with pytest.raises(InputError, match="at least 2 rows"):
        uniformity([[1.0, 2.0]])
    with pytest.raises(InputError, match="t must"):
        uniformity(np.eye(3), t=-1)
