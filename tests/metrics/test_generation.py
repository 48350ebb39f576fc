"""Fréchet distances and likelihoods against closed forms of normal laws, features that are trained, and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import linalg, stats
from torch import nn

from probssl.encoders import seeded
from probssl.errors import InputError
from probssl.metrics.generation import (
    Extractor,
    frechet_distance,
    likelihood_bound,
    pixel_components,
    reconstruction_error,
    trained_features,
)
from probssl.objectives import VAE, GaussianLikelihood, SimVAE


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


# --- reconstructions and likelihood -----------------------------------------------------------------------------------


def test_reconstruction_error_of_a_value_and_of_an_image() -> None:
    x = np.random.default_rng(0).uniform(size=(30, 1, 4, 5))
    y = x + 0.1
    found = reconstruction_error(x, y)
    assert found.per_value == pytest.approx(0.01)
    assert found.total == pytest.approx(0.2)
    assert found.standard_error == pytest.approx(0, abs=1e-12)
    each = np.square(x - x[::-1]).sum((1, 2, 3))
    mixed = reconstruction_error(torch.from_numpy(x), x[::-1])
    assert mixed.total == pytest.approx(each.mean())
    assert mixed.standard_error == pytest.approx(each.std(ddof=1) / math.sqrt(30))
    levels = (255 * x).astype(np.uint8)
    assert reconstruction_error(levels, levels / 255.0).total == 0.0
    assert reconstruction_error(x[:1], y[:1]).standard_error == math.inf
    with pytest.raises(InputError, match="shape"):
        reconstruction_error(x, y[1:])
    with pytest.raises(InputError, match="finite"):
        reconstruction_error(x, np.full_like(x, np.nan))


def linear_model() -> tuple[VAE, nn.Module, np.ndarray]:
    """A VAE x = Wz + N(0, 0.3 I), an encoder that is nothing like its posterior, and the covariance of x."""
    model = seeded(0, lambda: VAE(GaussianLikelihood(0.3), decoder=nn.Linear(2, 5, bias=False)).bind(dim=2))
    nn.init.zeros_(model.log_variance[-1].bias)  # narrow posteriors, as they begin, need very many draws
    weight = model.decoder.weight.detach().double().numpy()
    return model, seeded(1, lambda: nn.Linear(5, 2)), weight @ weight.T + 0.3 * np.eye(5)


def test_the_bound_rises_to_the_likelihood_of_a_linear_model() -> None:
    model, encoder, covariance = linear_model()
    x = np.random.default_rng(0).multivariate_normal(np.zeros(5), covariance, size=300).astype(np.float32)
    exact = stats.multivariate_normal(np.zeros(5), covariance).logpdf(x)
    one, many = (likelihood_bound(model, encoder, x, samples=k) for k in (1, 500))
    assert one.nats < many.nats < exact.mean() + 0.02
    assert many.nats == pytest.approx(exact.mean(), abs=0.05)
    assert many.bits_per_dim == pytest.approx(-many.nats / 5 / math.log(2))
    assert many.standard_error == pytest.approx(exact.std(ddof=1) / math.sqrt(300), rel=0.1)
    assert (many.samples, many.observations) == (500, 300)


def test_bounds_are_seeded_batched_and_leave_models_as_they_were() -> None:
    model, encoder, _ = linear_model()
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    model.train()
    encoder.eval()
    found = likelihood_bound(model, encoder, x, samples=3, batch_size=16)
    assert found == likelihood_bound(model, encoder, x, samples=3, batch_size=16)
    assert found != likelihood_bound(model, encoder, x, samples=3, seed=1)
    standard = likelihood_bound(model, encoder, x, samples=3, batch_size=16, log_prior=model.log_prior)
    assert standard == found
    wide = likelihood_bound(model, encoder, x, samples=3, batch_size=16, log_prior=lambda z: model.log_prior(z) - 1)
    assert wide.nats == pytest.approx(found.nats - 1, abs=1e-5)
    assert (model.training, encoder.training) == (True, False)
    assert likelihood_bound(model, encoder, x[:1]).standard_error == math.inf
    with pytest.raises(InputError, match="samples"):
        likelihood_bound(model, encoder, x, samples=0)


def test_sets_of_related_observations_have_a_bound_together() -> None:
    model = SimVAE(decoder=nn.Linear(2, 5), related=3, mean_variance=1.0).bind(dim=2)
    x = torch.randn(3, 20, 5, generator=torch.Generator().manual_seed(0))
    found = likelihood_bound(model, nn.Linear(5, 2), x, samples=4, sets=True)
    assert found.observations == 20
    assert found.bits_per_dim == pytest.approx(-found.nats / 15 / math.log(2))
    with pytest.raises(InputError, match="related"):
        likelihood_bound(model, nn.Linear(5, 2), x[0], sets=True)


# --- features that are trained ----------------------------------------------------------------------------------------


def bars(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Upright and level bars somewhere in small images."""
    rng = np.random.default_rng(seed)
    images, labels = rng.integers(40, size=(count, 1, 8, 8), dtype=np.uint8), rng.integers(2, size=count)
    for image, label, at in zip(images, labels, rng.integers(8, size=count), strict=True):
        image[0][(slice(None), at) if label else (at, slice(None))] = 220
    return images, labels


def test_trained_features_are_named_and_see_what_tells_classes_apart() -> None:
    images, labels = bars(400, 0)
    found = trained_features(images, labels, epochs=6, dim=8)
    assert found.title.startswith("FD(conv classifier, 6 epochs on 320 images, ")
    assert float(found.title.split(", ")[-1].rstrip("%)")) > 90
    other, kinds = bars(300, 1)
    assert np.asarray(found.features(other)).shape == (300, 8)
    level = other[kinds == 0]
    assert found.distance(images, other) < 0.2 * found.distance(images, level)
    again = trained_features(images, labels, epochs=6, dim=8)
    np.testing.assert_array_equal(found.features(other[:5]), again.features(other[:5]))
    np.testing.assert_allclose(found.features(other[:5]), found.features(other[:5] / 255.0), atol=1e-5)


def test_trained_features_may_be_judged_on_other_images() -> None:
    images, labels = bars(60, 0)
    found = trained_features(images, labels, held_out=bars(20, 1), epochs=1)
    assert "1 epochs on 60 images" in found.name
    with pytest.raises(InputError, match="two classes"):
        trained_features(images, np.zeros(60))
    with pytest.raises(InputError, match="channels, height, width"):
        trained_features(images[:, 0], labels)


def test_bytes_are_numbers_from_0_to_1() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4), dtype=np.uint8)
    features = pixel_components(images, 4)
    assert features.distance(images, images / 255.0) == pytest.approx(0, abs=1e-9)


def test_the_bound_of_a_model_in_double_precision() -> None:
    model = VAE(decoder=nn.Linear(2, 3)).bind(dim=2).double()
    assert math.isfinite(likelihood_bound(model, nn.Linear(3, 2).double(), torch.randn(5, 3), samples=2).nats)
