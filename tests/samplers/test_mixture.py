"""Mixtures of latents: densities against scipy, draws against their moments, classes by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from probssl.errors import InputError
from probssl.samplers import LatentMixture

rng = np.random.default_rng(0)
A = rng.normal(size=(400, 3)) @ np.diag([1.0, 0.3, 2.0]) + 4
B = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 3)) - 4
LATENTS, LABELS = np.concatenate([A, B]), np.repeat([0, 2], [400, 100])


def test_density_is_that_of_the_normals() -> None:
    mixture = LatentMixture.by_class(LATENTS, LABELS, ["a", "unused", "b"])
    assert mixture.names == ["a", "b"]
    z = rng.normal(size=(2, 7, 3)) * 5
    parts = [
        np.log(share) + multivariate_normal(part.mean(0), np.cov(part.T)).logpdf(z)
        for share, part in ((0.8, A), (0.2, B))
    ]
    slow = np.logaddexp(*parts)
    np.testing.assert_allclose(mixture.log_prob(torch.from_numpy(z)).numpy(), slow, rtol=2e-3)


def test_draws_have_the_moments_of_their_component() -> None:
    mixture = LatentMixture.by_class(LATENTS, LABELS)
    z, chosen = mixture.sample(20_000, torch.Generator().manual_seed(0))
    assert abs(float((chosen == 0).double().mean()) - 0.8) < 0.02
    only, same = mixture.sample(20_000, torch.Generator().manual_seed(1), component=1)
    assert (same == 1).all()
    np.testing.assert_allclose(only.mean(0), B.mean(0), atol=0.1)
    np.testing.assert_allclose(np.cov(only.T.numpy()), np.cov(B.T), atol=0.25)
    again, _ = mixture.sample(20_000, torch.Generator().manual_seed(0))
    assert torch.equal(again, z)


def test_components_are_found_without_labels() -> None:
    mixture = LatentMixture.fit(LATENTS, 2, seed=0)
    order = mixture.weights.argsort(descending=True)
    np.testing.assert_allclose(mixture.weights[order].numpy(), [0.8, 0.2], atol=0.01)
    np.testing.assert_allclose(mixture.means[order].numpy(), [A.mean(0), B.mean(0)], atol=0.1)
    flat = LatentMixture.fit(np.column_stack([A, np.ones(400)]), 1)
    assert torch.isfinite(flat.log_prob(torch.ones(1, 4))).all(), "a latent that never moves"


def test_few_rows_make_few_normals() -> None:
    rng = np.random.default_rng(0)
    z, fresh = rng.normal(size=(60, 12)), torch.from_numpy(rng.normal(size=(2000, 12)))
    truth = -0.5 * float((fresh.square() + math.log(2 * math.pi)).sum(1).mean())
    found = LatentMixture.fit(z, 10)
    assert len(found.weights) == 1
    assert truth - 6 < float(found.log_prob(fresh).mean()) < truth
    assert len(LatentMixture.fit(rng.normal(size=(60, 1)), 10).weights) == 10


def test_classes_of_few_rows_share_a_covariance() -> None:
    rng = np.random.default_rng(0)
    sizes, scale = [300, 1, 5], np.array([1.0, 3.0])
    labels = np.repeat(np.arange(3), sizes)
    z = rng.normal(size=(306, 2)) * scale + 10 * labels[:, None]
    found = LatentMixture.by_class(z, labels)
    apart = np.concatenate([z[labels == c] - z[labels == c].mean(0) for c in range(3)])
    np.testing.assert_allclose(found.covariances[0].numpy(), np.cov(z[:300].T), rtol=1e-4)
    for few in (1, 2):
        np.testing.assert_allclose(found.covariances[few].numpy(), apart.T @ apart / 303, rtol=1e-4)
        np.testing.assert_allclose(found.means[few].numpy(), z[labels == few].mean(0))
    alone = LatentMixture.by_class(z[:4], [0, 1, 2, 3])
    np.testing.assert_allclose(alone.covariances[0].numpy(), np.cov(z[:4].T), rtol=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: LatentMixture.fit(LATENTS, 0),
        lambda: LatentMixture.fit(np.full((3, 2), np.nan)),
        lambda: LatentMixture.by_class(LATENTS, LABELS[:-1]),
        lambda: LatentMixture.by_class(LATENTS, LABELS).sample(0),
        lambda: LatentMixture.by_class(LATENTS, LABELS).sample(1, component=2),
    ],
)
def test_refusals(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
