from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from probssl.errors import InputError
from probssl.metrics import rankme, spectra
from tests.metrics.codes import gaussian, rotation


@pytest.mark.parametrize("m", [1, 2, 7, 64])
def test_orthonormal_code_uses_every_dimension(m):
    assert rankme(np.eye(m)) == pytest.approx(m)
    assert rankme(rotation(2 * m)[:, :m] * 3) == pytest.approx(m)
    assert rankme(rotation(2 * m)[:m]) == pytest.approx(m)  # wide: n is the limit


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("level", [0.0, 1.0, 0.1, -3e7])
def test_constant_code_has_rank_one(level, centre):
    assert rankme(np.full((50, 4), level), centre=centre) == pytest.approx(1.0, abs=1e-12)


def test_closed_form_of_two_singular_values():
    p = np.array([3.0, 1.0]) / 4
    assert rankme(np.diag([3.0, 1.0])) == pytest.approx(np.exp(-np.sum(p * np.log(p))))


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (9, 9), (15, 9)])
def test_rankme_against_loops(shape):
    z = gaussian(*shape)
    values = [np.sqrt(max(v, 0)) for v in np.linalg.eigvalsh(z @ z.T if shape[0] < shape[1] else z.T @ z)]
    entropy = 0.0
    for value in values:
        share = value / sum(values)
        entropy -= share * np.log(share)
    assert rankme(z) == pytest.approx(np.exp(entropy), rel=1e-9)


def test_small_singular_values_survive_in_tall_codes():
    values = np.array([1.0, 1e-9, 1e-11])  # far below what the Gram matrix resolves
    z = np.linalg.qr(gaussian(5000, 3))[0] * values @ rotation(3)
    share = values / values.sum()
    entropy = -np.sum(share * np.log(share))
    assert np.log(rankme(z)) == pytest.approx(entropy, rel=1e-5)


def test_the_papers_smoothing_makes_no_difference():
    z = gaussian(500, 20)
    s = np.linalg.svd(z, compute_uv=False)
    p = s / s.sum() + 1e-7
    assert rankme(z) == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=1e-5)


def test_the_mean_counts_as_a_direction_unless_removed():
    z = gaussian(2000, 5)
    assert rankme(z + 1e6) < 1.01
    assert rankme(z + 1e6, centre=True) == pytest.approx(rankme(z, centre=True), rel=1e-6)


numbers = st.floats(-1e3, 1e3, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-3)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=numbers), st.booleans())
def test_range(z, centre):
    assert 1 - 1e-9 <= rankme(z, centre=centre) <= min(z.shape) + 1e-9
    result = spectra(z)
    limit = min(max(z.shape[0] - 1, 0), z.shape[1])
    assert 0 <= result.numerical_rank <= limit
    assert 1 - 1e-9 <= result.effective_rank <= max(limit, 1) + 1e-9
    assert result.eigenvalues.shape == (z.shape[1],)


def test_spectra_against_numpy():
    z = gaussian(200, 5) @ np.diag([3, 2, 1, 0.5, 0.1]) + np.arange(5)
    result = spectra(z)
    np.testing.assert_allclose(result.mean, z.mean(0))
    np.testing.assert_allclose(result.variance, z.var(0))
    np.testing.assert_allclose(result.eigenvalues, np.linalg.eigvalsh(np.cov(z.T, bias=True))[::-1])
    assert result.eigenvalues.sum() == pytest.approx(result.variance.sum())


def test_spectra_of_a_constant_code():
    result = spectra(np.full((10, 3), 0.1))
    np.testing.assert_array_equal(result.eigenvalues, np.zeros(3))
    np.testing.assert_array_equal(result.variance, np.zeros(3))
    assert (result.effective_rank, result.numerical_rank) == (1.0, 0)


def test_one_row_has_no_spread():
    assert spectra([[1.0, 2.0]]).numerical_rank == 0
    assert rankme([[1.0, 2.0]]) == pytest.approx(1.0)


def test_ranks_of_known_spectra():
    z = np.sqrt(12) * np.vstack([np.eye(6), -np.eye(6)])[:, :4] / np.sqrt(2)
    assert spectra(z).effective_rank == pytest.approx(4)
    assert spectra(np.hstack([z, z])).numerical_rank == 4  # duplicated columns add nothing
    weak = z * [1, 1, 1, 1e-3]  # its eigenvalue is 1e-6 of the largest
    assert spectra(weak).numerical_rank == 3
    assert spectra(weak, threshold=1e-7).numerical_rank == 4
    with pytest.raises(InputError, match="threshold"):
        spectra(z, threshold=0)
