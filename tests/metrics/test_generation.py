"""The Fréchet distance against closed forms of normal laws, and the features it is taken of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from probssl.errors import InputError
from probssl.metrics.generation import Extractor, frechet_distance, pixel_components


def exactly(mean: np.ndarray, covariance: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """Rows whose sample mean and covariance are these and not only near them."""
    x = np.random.default_rng(seed).normal(size=(rows, len(mean)))
    x -= x.mean(0)
    root = linalg.sqrtm(covariance).real
    return x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T @ root + mean


def test_equals_the_closed_form_of_two_normal_laws() -> None:
    rng = np.random.default_rng(1)
    means = rng.normal(size=(2, 4))
    covariances = [a @ a.T + 0.1 * np.eye(4) for a in rng.normal(size=(2, 4, 4))]
    root = linalg.sqrtm(covariances[0])
    cross = linalg.sqrtm(root @ covariances[1] @ root).real
    expected = np.square(means[0] - means[1]).sum() + np.trace(covariances[0] + covariances[1] - 2 * cross)
    sets = [exactly(means[k], covariances[k], 50 + 30 * k, k) for k in range(2)]
    assert frechet_distance(*sets) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(*sets[::-1]) == pytest.approx(expected, rel=1e-9)


def test_of_commuting_covariances_it_is_the_distance_of_their_roots() -> None:
    scales = np.array([[1.0, 2.0, 0.0], [3.0, 0.5, 0.0]])  # the last feature is constant in both sets
    x = exactly(np.zeros(2), np.eye(2), 40, 0)
    sets = [np.column_stack([x * scale[:2], np.ones(40)]) for scale in scales]
    assert frechet_distance(*sets) == pytest.approx(np.square(scales[0] - scales[1]).sum(), rel=1e-9)


def test_of_a_set_with_itself_it_is_nothing_though_its_covariance_is_singular() -> None:
    x = np.random.default_rng(0).normal(size=(20, 100)) * np.logspace(-6, 3, 100)  # fewer rows than features
    size = np.square(x).sum() / 20
    assert frechet_distance(x, x[::-1]) < 1e-12 * size
    assert frechet_distance(x, x + 2) == pytest.approx(400, rel=1e-6)


def test_is_unchanged_by_rotation_and_translation() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(30, 5)), 2 * rng.normal(size=(40, 5)) + 1
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    assert frechet_distance(a @ rotation + 3, b @ rotation + 3) == pytest.approx(frechet_distance(a, b), rel=1e-9)
    assert frechet_distance(10 * a, 10 * b) == pytest.approx(100 * frechet_distance(a, b), rel=1e-9)


def test_all_components_of_pixels_keep_the_distance_and_the_name_says_what_they_are() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(size=(60, 1, 3, 4)), rng.uniform(size=(50, 1, 3, 4)) ** 2
    found = pixel_components(a, 12)
    assert found.title == "FD(pixel PCA 12)"
    assert found.distance(a, b) == pytest.approx(frechet_distance(a.reshape(60, 12), b.reshape(50, 12)), rel=1e-9)
    assert pixel_components(a, 3).distance(a, b) < found.distance(a, b)


def test_data_lie_between_equal_sets_and_noise() -> None:
    rng = np.random.default_rng(4)
    data, other, noise = (rng.normal(size=(200, 6)) * scale for scale in (1.0, 1.0, 3.0))
    plain = Extractor("rows", lambda x: x)
    assert 0 < plain.distance(data, other) < 0.5 < plain.distance(data, noise)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.zeros((1, 2)), np.zeros((5, 2)), "first set needs at least 2 rows"),
        (np.zeros((5, 3)), np.zeros((5, 2)), "3 and 2 dimensions"),
        (np.full((5, 2), np.nan), np.zeros((5, 2)), "finite"),
    ],
)
def test_refuses_in_one_sentence(first: np.ndarray, second: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        frechet_distance(first, second)
