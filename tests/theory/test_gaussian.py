"""Gaussian pairs: closed forms against quadrature, determinants and Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from probssl.errors import InputError
from probssl.theory.bounds import jensen_shannon_bound
from probssl.theory.gaussian import (
    canonical_correlations,
    gaussian_chi_squared,
    gaussian_donsker_varadhan,
    gaussian_kl,
    gaussian_mutual_information,
    gaussian_nwj,
    gaussian_renyi,
    gaussian_tuba,
    gaussian_uba,
)

from .small_worlds import DATA, NOISE, gaussian_scores


def quadrature(scale: float, data: float, noise: float) -> tuple[float, float, float]:
    """E_joint[s log w], E log Z and E_product[w^s] on the line."""
    nodes, weights = special.roots_hermitenorm(100)
    weights = weights / weights.sum()
    total = data + noise

    def ratio(x, x_aug):
        return stats.norm.logpdf(x_aug, x, math.sqrt(noise)) - stats.norm.logpdf(x_aug, 0, math.sqrt(total))

    x = math.sqrt(data) * nodes
    joint = scale * np.einsum("i,j,ij", weights, weights, ratio(x[:, None], x[:, None] + math.sqrt(noise) * nodes))
    log_w = scale * ratio(x[:, None], math.sqrt(total) * nodes)
    log_z = special.logsumexp(log_w, b=weights[:, None], axis=0)
    return joint, float(weights @ log_z), float(weights @ np.exp(log_z))


@pytest.mark.parametrize("scale", [0.0, 0.5, 0.8, 1.0, 1.3])
@pytest.mark.parametrize(("data", "noise"), [(1.0, 0.9), (0.4, 1.3)])
def test_gaussian_bounds_of_a_scaled_critic_by_quadrature(scale, data, noise):
    joint, log_z, moment = quadrature(scale, data, noise)
    assert gaussian_uba(data, noise, scale) == pytest.approx(joint - log_z, abs=1e-9)
    assert gaussian_donsker_varadhan(data, noise, scale) == pytest.approx(joint - math.log(moment), abs=1e-9)
    assert gaussian_tuba(data, noise, scale, 0.4) == pytest.approx(joint + 0.4 + 1 - math.exp(0.4) * moment, abs=1e-9)
    assert gaussian_nwj(data, noise, scale, 0.4) == pytest.approx(joint + 0.4 - math.exp(-0.6) * moment, abs=1e-9)
    if scale not in (0, 1):
        renyi = math.log(moment) / (scale * (scale - 1))
        assert gaussian_renyi(data, noise, scale) == pytest.approx(renyi, abs=1e-9)


def joint_precision() -> tuple[np.ndarray, np.ndarray]:
    joint = np.block([[DATA, DATA], [DATA, DATA + NOISE]])
    product = np.block([[DATA, 0 * DATA], [0 * DATA, DATA + NOISE]])
    return np.linalg.inv(joint), np.linalg.inv(product)


@pytest.mark.parametrize("order", [-0.05, 0.2, 0.5, 0.9, 1.1, 1.7, 2.0])
def test_gaussian_renyi_against_determinants(order):
    p, q = joint_precision()
    log_det = [np.linalg.slogdet(matrix)[1] for matrix in (p, q, order * p + (1 - order) * q)]
    log_moment = (order * log_det[0] + (1 - order) * log_det[1] - log_det[2]) / 2
    exact = log_moment / (order * (order - 1))
    assert gaussian_renyi(DATA, NOISE, order) == pytest.approx(exact, abs=1e-11)


def test_gaussian_renyi_limits_and_where_it_is_infinite():
    information = gaussian_mutual_information(DATA, NOISE)
    p, q = joint_precision()
    reverse = gaussian_kl(np.zeros(6), np.linalg.inv(q), np.zeros(6), np.linalg.inv(p))
    forward = gaussian_kl(np.zeros(6), np.linalg.inv(p), np.zeros(6), np.linalg.inv(q))
    assert gaussian_renyi(DATA, NOISE, 1) == information == pytest.approx(forward, abs=1e-12)
    assert gaussian_renyi(DATA, NOISE, 0) == pytest.approx(reverse, abs=1e-11)
    assert gaussian_renyi(DATA, NOISE, 1 + 1e-7) == pytest.approx(information, abs=1e-6)
    assert gaussian_renyi(DATA, NOISE, 1e-8) == pytest.approx(reverse, abs=1e-5)
    assert gaussian_renyi(DATA, NOISE, 2) == pytest.approx(math.log1p(gaussian_chi_squared(DATA, NOISE)) / 2)
    assert gaussian_renyi(DATA, NOISE, 2) == pytest.approx(information)
    largest = canonical_correlations(DATA, NOISE)[0]
    assert math.isfinite(gaussian_renyi(DATA, NOISE, 1 + 0.999 / largest))
    assert gaussian_renyi(DATA, NOISE, 1 + 1.001 / largest) == math.inf
    assert gaussian_renyi(DATA, NOISE, 1 - 1.001 / largest) == math.inf
    assert gaussian_donsker_varadhan(DATA, NOISE, 1 + 1.001 / largest) == -math.inf
    assert gaussian_tuba(DATA, NOISE, 1 + 1.001 / largest) == -math.inf


def test_gaussian_information_and_correlations():
    exact = np.linalg.slogdet(np.eye(3) + np.linalg.solve(NOISE, DATA))[1] / 2
    assert gaussian_mutual_information(DATA, NOISE) == pytest.approx(exact, abs=1e-13)
    correlations = canonical_correlations(DATA, NOISE)
    squared = np.linalg.eigvals(np.linalg.solve(DATA + NOISE, DATA)).real
    assert correlations == pytest.approx(np.sqrt(np.sort(squared)[::-1]), abs=1e-12)
    assert gaussian_chi_squared(DATA, NOISE) == pytest.approx(np.prod(1 / (1 - correlations**2)) - 1, rel=1e-12)
    assert gaussian_mutual_information(np.zeros((2, 2)), np.eye(2)) == 0.0
    assert gaussian_mutual_information(np.ones((2, 2)), np.eye(2)) == pytest.approx(math.log(3) / 2)


@pytest.mark.parametrize("scale", [0.0, 0.4, 1.0, 2.5])
def test_gaussian_uba_falls_short_by_the_mean_kl_of_the_euclidean_energy(scale):
    total = DATA + NOISE
    gain = np.linalg.solve(total, DATA).T  # E[x | x̃] = gain x̃
    posterior = DATA - gain @ DATA
    precision = np.linalg.inv(DATA) + scale * np.linalg.inv(NOISE)
    model = np.linalg.inv(precision)
    slope = scale * model @ np.linalg.inv(NOISE)
    points = math.sqrt(3) * np.linalg.cholesky(total).T  # exact for quadratics: KL is one in x̃
    gap = np.mean([gaussian_kl(gain @ x, posterior, slope @ x, model) for x in points])
    information = gaussian_mutual_information(DATA, NOISE)
    assert gaussian_uba(DATA, NOISE, scale) == pytest.approx(information - gap, abs=1e-11)


def test_gaussian_values_at_the_optimal_critic_and_around_it():
    information = gaussian_mutual_information(DATA, NOISE)
    for value in (gaussian_uba, gaussian_donsker_varadhan, gaussian_tuba, gaussian_nwj):
        assert value(DATA, NOISE) == pytest.approx(information, abs=1e-13)
        assert max(value(DATA, NOISE, scale) for scale in (0.9, 0.99, 1.01, 1.1)) < information
    assert gaussian_nwj(DATA, NOISE, 1.0, 0.0) == pytest.approx(information - 1 / math.e, abs=1e-12)
    best = optimize.minimize_scalar(lambda offset: -gaussian_tuba(DATA, NOISE, 0.7, offset))
    assert -best.fun == pytest.approx(gaussian_donsker_varadhan(DATA, NOISE, 0.7), abs=1e-10)
    assert gaussian_donsker_varadhan(DATA, NOISE, 0.7) <= gaussian_uba(DATA, NOISE, 0.7)
    assert gaussian_uba(DATA, NOISE, 0.0) == 0.0
    assert gaussian_uba(DATA, NOISE, -1e3) == -math.inf


def test_jensen_shannon_and_chi_squared_of_a_gaussian_pair_by_quadrature():
    r2 = 1 / 3
    nodes, weights = special.roots_hermitenorm(100)
    weights = weights / weights.sum()
    u, v = np.meshgrid(nodes, nodes, indexing="ij")
    both = np.outer(weights, weights)
    log_w = (math.sqrt(r2) * u * v - r2 * (u**2 + v**2) / 2) / (1 - r2) - math.log(1 - r2) / 2
    w = np.exp(log_w)
    assert np.sum(both * w**2) - 1 == pytest.approx(gaussian_chi_squared(0.5, 1.0), rel=1e-10)
    mixed = np.log((1 + w) / 2)
    shannon = np.sum(both * (w * (log_w - mixed) - mixed)) / 2
    pairs = gaussian_scores(math.sqrt(r2), 1, 200_000, 2)
    assert jensen_shannon_bound(*pairs) == pytest.approx(shannon, abs=2e-3)
    assert shannon < math.log(2)


def test_gaussian_kl_matches_the_forms_of_negative_free_learning():
    covariance = np.array([[3.0, 0.4], [0.4, 0.1]])
    value = gaussian_kl(np.zeros(2), covariance, np.zeros(2), np.eye(2))
    assert value == pytest.approx((np.trace(covariance) - 2 - np.linalg.slogdet(covariance)[1]) / 2, abs=1e-13)
    z = np.random.default_rng(0).multivariate_normal(np.zeros(2), covariance, 200_000)
    ratio = stats.multivariate_normal(np.zeros(2), covariance).logpdf(z) - stats.multivariate_normal([0, 0]).logpdf(z)
    assert value == pytest.approx(ratio.mean(), abs=4 * ratio.std() / math.sqrt(len(z)))
    shift, gamma = np.array([0.7, -1.2]), 3.0
    moved, still = (gaussian_kl(mean, np.eye(2), np.zeros(2), np.eye(2) / gamma) for mean in (shift, np.zeros(2)))
    assert moved - still == pytest.approx(gamma / 2 * shift @ shift, abs=1e-14)
    assert gaussian_kl(0.4, 0.7, 0.0, 1.9) == pytest.approx((0.7 / 1.9 + 0.16 / 1.9 - 1 + math.log(1.9 / 0.7)) / 2)


def test_values_too_large_for_a_number_are_infinite():
    strong = 1e10 * np.eye(60)
    assert math.isfinite(gaussian_mutual_information(strong, np.eye(60)))
    assert gaussian_chi_squared(strong, np.eye(60)) == math.inf
    assert gaussian_tuba(1.0, 1.0, 1.0, 800.0) == -math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_mutual_information(DATA, np.eye(2)), r"data covariance must have the shape \(2, 2\)"),
        (lambda: gaussian_mutual_information(np.eye(2), np.diag([1.0, 0.0])), "noise covariance must be positive"),
        (
            lambda: gaussian_mutual_information(np.diag([1.0, -0.1]), np.eye(2)),
            "negative eigenvalues: the smallest is -0.1",
        ),
        (lambda: gaussian_mutual_information(-1.0, 1.0), "negative eigenvalues"),
        (
            lambda: gaussian_mutual_information([[1.0, 0.5], [0.0, 1.0]], np.eye(2)),
            "symmetric: 0.5 at 0, 1 and 0 at 1, 0",
        ),
        (lambda: gaussian_mutual_information(np.zeros(3), np.eye(3)), "square"),
        (lambda: gaussian_uba(1.0, 1.0, math.nan), "scale"),
        (lambda: gaussian_tuba(1.0, 1.0, 1.0, math.inf), "offset"),
        (lambda: gaussian_renyi(1.0, 1.0, math.inf), "order"),
        (
            lambda: gaussian_kl([0.0, 1.0], np.eye(2), [0.0], np.eye(3)),
            r"other covariance must have the shape \(2, 2\)",
        ),
        (lambda: gaussian_kl([0.0, 1.0], np.eye(2), [0.0], np.eye(2)), r"other mean must have the shape \(2,\)"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)
