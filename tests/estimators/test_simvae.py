"""SimVAEEncoder: scikit-learn's own checks, and what rows, latents and nats must agree on."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from probssl import SimVAEEncoder
from probssl.errors import InputError
from probssl.objectives.generative import GaussianLikelihood


@parametrize_with_checks([SimVAEEncoder(steps=3, related=2, samples=2)])
@pytest.mark.filterwarnings("ignore::probssl.errors.CollapseWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def line():
    """Rows on a noisy line in three features of very different units."""
    rng = np.random.default_rng(0)
    t = rng.normal(size=(600, 1))
    return (t @ [[1.0, -2.0, 0.5]] + 0.3 * rng.normal(size=(600, 3))) * [1.0, 100.0, 0.01] + [5.0, 0.0, 1.0]


@pytest.fixture(scope="module")
def fitted(line):
    model = SimVAEEncoder(
        1,
        related=4,
        settings={"pairing.preservation": 1.0, "pairing.noise": 0.2},
        components=1,
        steps=300,
        batch_size=64,
        random_state=0,
    )
    return model.fit(line)


def test_rows_come_back_in_their_units(line, fitted):
    z = fitted.transform(line)
    assert z.shape == (600, 1)
    again = fitted.inverse_transform(z)
    assert np.all(np.mean((again - line) ** 2, 0) < 0.5 * line.var(0))
    sampled, components = fitted.sample(3000)
    assert set(components) == {0}
    np.testing.assert_allclose(sampled.mean(0), line.mean(0), atol=0.25 * line.std(0).max(), rtol=0.3)
    np.testing.assert_allclose(sampled.std(0), line.std(0), rtol=0.15, err_msg="with the errors of the likelihood")
    assert np.corrcoef(sampled.T)[0, 1] < -0.75


def test_uncertainty_is_that_of_the_posterior(line, fitted):
    spread = fitted.uncertainty(line)
    assert spread.shape == (600, 1)
    assert (spread > 0).all()
    assert spread.max() < fitted.transform(line).std()


def test_nats_are_in_the_units_of_the_data(line, fitted):
    found = fitted.score_samples(line)
    exact = multivariate_normal(line.mean(0), np.cov(line.T)).logpdf(line)
    assert found.mean() < exact.mean() + 0.1, "a bound, of a model with other noise"
    assert found.mean() > exact.mean() - 1.5
    assert fitted.score(line) == pytest.approx(found.mean())
    far = line + np.array([0.0, 0.0, 1.0])
    assert fitted.score(far) < found.mean() - 100
    scaled = clone(fitted).fit(line * [2.0, 1.0, 1.0])
    assert scaled.score(line * [2.0, 1.0, 1.0]) == pytest.approx(found.mean() - np.log(2), abs=0.02)


def test_a_seed_decides_and_pickles_keep(line, fitted):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(line), fitted.transform(line))
    np.testing.assert_array_equal(copy.sample(4)[0], fitted.sample(4)[0])


def test_images():
    x, _ = load_digits(return_X_y=True)
    images = (x[:200].reshape(-1, 1, 8, 8) * 15).astype(np.uint8)
    images.flags.writeable = False
    model = SimVAEEncoder(4, related=2, steps=2, random_state=0).fit(x)
    with pytest.raises(InputError, match="tables of 64 features, but X is images"):
        model.transform(images)
    model.set_params(pairing="simvae-mnist", settings={"encoder.widths": 4}, steps=20, batch_size=32).fit(images)
    assert not hasattr(model, "n_features_in_")
    assert model.transform(images).shape == (200, 4)
    assert model.uncertainty(images[:5]).shape == (5, 4)
    assert model.inverse_transform(model.transform(images[:5])).shape == (5, 1, 8, 8)
    assert model.sample(3)[0].shape == (3, 1, 8, 8)
    numbers = model.score_samples(images[:5])
    np.testing.assert_allclose(numbers, model.score_samples((images[:5] / 255).astype(np.float32)), rtol=1e-5)
    for wrong in (x, images[:, :, :4]):
        with pytest.raises(InputError, match="images of shape"):
            model.transform(wrong)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"encoder": "conv"}, "is for images"),
        ({"related": 1}, "related"),
        ({"components": 0}, "components"),
        ({"samples": 2.5}, "samples"),
        ({"settings": {"encoder.hidden": "wide"}}, "encoder.hidden cannot be 'wide'"),
        ({"likelihood": "bernoulli"}, "use gaussian"),
        ({"likelihood": "cauchy"}, "cauchy"),
        ({"likelihood": GaussianLikelihood(0.2), "likelihood_variance": 0.1}, "likelihood was given as an object"),
        ({"likelihood_variance": -1.0}, "variance of the likelihood must be positive"),
    ],
)
def test_refusals(line, options, told):
    with pytest.raises(InputError, match=told):
        SimVAEEncoder(**options).fit(line)


def test_likelihoods_and_decoders_of_your_own(line):
    decoder = nn.Linear(2, 3)
    before = decoder.weight.clone()
    model = SimVAEEncoder(
        2, likelihood=GaussianLikelihood(0.3), settings={"objective.decoder": decoder}, steps=3, random_state=0
    ).fit(line)
    assert model.objective_.likelihood.variance == 0.3
    assert model.objective_.decoder.weight.shape == (3, 2)
    assert torch.equal(decoder.weight, before)
    assert not torch.equal(model.objective_.decoder.weight, before)
    assert SimVAEEncoder(steps=1, related=2).fit(line).objective_.likelihood.variance == 0.1
    assert SimVAEEncoder(steps=1, related=2, likelihood_variance=0.2).fit(line).objective_.likelihood.variance == 0.2


def test_latents_must_have_the_model_s_dimensions(fitted):
    with pytest.raises(InputError, match=r"\[n, 1\]"):
        fitted.inverse_transform(np.zeros((3, 2)))
