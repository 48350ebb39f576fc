"""NCE and SNL: on the line against adaptive quadrature, on a discrete world exactly, and in their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from probssl.errors import InputError
from probssl.theory.bounds import jensen_shannon_bound, tuba_gap, uba_bound
from probssl.theory.gaussian import gaussian_chi_squared, gaussian_mutual_information
from probssl.theory.normaliser import (
    log_normaliser_1d,
    nce_limit,
    nce_loss,
    nce_loss_1d,
    nce_loss_at,
    snl_normaliser,
)

from .small_worlds import LOG_W, anchors, critics, partitions, population

LINE = {"data_variance": 1.0, "noise_variance": 0.5}  # I = ½ log 3 = 0.549306


def test_nce_on_the_line_against_adaptive_quadrature():
    precision, ratio = 1.3, 3.0

    def at(x_aug: float) -> float:
        bias = log_normaliser_1d(x_aug, data_variance=1.0, precision=precision)

        def logit(x):
            return -0.5 * precision * (x - x_aug) ** 2 - bias - math.log(ratio)

        def joint(x):
            return -special.log_expit(logit(x)) * stats.norm.pdf(x, x_aug / 1.5, math.sqrt(1 / 3))

        def product(x):
            return -special.log_expit(-logit(x)) * stats.norm.pdf(x)

        parts = [integrate.quad(f, -14, 14, epsabs=1e-13, limit=300)[0] for f in (joint, product)]
        value = (parts[0] + ratio * parts[1]) / (1 + ratio)
        if abs(x_aug) < 3:
            assert nce_loss_at(x_aug, bias, ratio, precision=precision, **LINE) == pytest.approx(value, abs=1e-11)
        return value

    step = math.sqrt(1.5) / 4  # the trapezium rule is exact to rounding for a bell times an analytic function
    anchors = step * np.arange(-28, 29)
    mean = sum(step * stats.norm.pdf(x, 0, math.sqrt(1.5)) * at(float(x)) for x in anchors)
    assert nce_loss_1d(ratio, precision=precision, **LINE) == pytest.approx(mean, abs=1e-10)


def test_normaliser_on_the_line():
    for x_aug in (0.0, 0.8):
        exact = integrate.quad(lambda x: stats.norm.pdf(x, 0, 1.1) * math.exp(-0.65 * (x - x_aug) ** 2), -12, 12)[0]  # noqa: B023
        value = log_normaliser_1d(x_aug, data_variance=1.21, precision=1.3)
        assert value == pytest.approx(math.log(exact), abs=1e-10)


def learnt_bias(ratio: float, precision: float, x_aug: float = 0.0) -> float:
    def loss(bias):
        return nce_loss_at(x_aug, bias, ratio, precision=precision, **LINE)

    return float(optimize.minimize_scalar(loss, bracket=(-1.0, 0.5), tol=1e-12).x)


@pytest.mark.parametrize("ratio", [1, 10, 255])
def test_nce_learns_the_normaliser_of_a_right_energy_for_every_ratio(ratio):
    for x_aug in (0.0, 0.9):
        exact = log_normaliser_1d(x_aug, data_variance=1.0, precision=2.0)
        assert learnt_bias(ratio, 2.0, x_aug) == pytest.approx(exact, abs=2e-7)


def test_nce_learns_the_normaliser_of_a_wrong_energy_only_in_the_limit():
    exact = log_normaliser_1d(0.0, data_variance=1.0, precision=1.3)
    assert exact == pytest.approx(-0.4165, abs=5e-5)
    errors = [learnt_bias(ratio, 1.3) - exact for ratio in (1, 10, 255, 10_000)]
    assert errors[0] == pytest.approx(-0.384115 - exact, abs=1e-6)  # the root of its derivative by adaptive quadrature
    assert errors == sorted(errors, reverse=True)
    assert 0 < errors[-1] < 1e-5


def test_nce_tends_to_maximum_likelihood_plus_one():
    mean_energy = 0.5 * 1.3 * 0.5
    mean_log_z = -0.5 * math.log(2.3) - 0.5 * 1.3 * 1.5 / 2.3
    assert mean_energy + mean_log_z == pytest.approx(-0.51536760, abs=5e-9)
    limit = nce_limit(mean_energy, mean_log_z)
    rescaled = {k: (k + 1) * nce_loss_1d(k, precision=1.3, **LINE) - math.log(k) for k in (1e2, 1e4, 1e6)}
    assert rescaled[1e6] == pytest.approx(0.48463372, abs=5e-9)
    for k, error in ((1e2, 1.2e-2), (1e4, 1.3e-4), (1e6, 1.3e-6)):
        assert rescaled[k] - limit == pytest.approx(error, rel=0.05)
    # maximum likelihood of q(x | x̃) itself lies the entropy of the data higher
    entropy = 0.5 * math.log(2 * math.pi * math.e)
    assert mean_energy + mean_log_z + entropy == pytest.approx(0.90357, abs=5e-6)


def test_nce_error_is_half_of_one_plus_chi_squared_over_the_ratio():
    limit = nce_limit(0.5, -gaussian_mutual_information(1.0, 4.0) - 0.5)
    for k in (1e2, 1e3, 1e4):
        loss = nce_loss_1d(k, data_variance=1.0, noise_variance=4.0, precision=0.25)
        error = (k + 1) * loss - math.log(k) - limit
        assert error * k == pytest.approx((1 + gaussian_chi_squared(1.0, 4.0)) / 2, rel=1 / k)


def test_nce_loss_of_samples():
    positives, negatives = population(critics(1)[0])
    k = 5.0
    by_hand = -(np.log(1 / (1 + np.exp(math.log(k) - positives)))).mean() / (1 + k)
    by_hand -= k / (1 + k) * np.log(1 - 1 / (1 + np.exp(math.log(k) - negatives))).mean()
    assert nce_loss(positives, negatives, k) == pytest.approx(by_hand, abs=1e-13)
    best = nce_loss(*population(LOG_W), k)
    assert all(nce_loss(*population(LOG_W + change), k) > best for change in critics(50, 0.1))
    # with one negative to a positive it is the binary loss of Jensen–Shannon, halved
    assert nce_loss(positives, negatives, 1) == pytest.approx(math.log(2) - jensen_shannon_bound(positives, negatives))


def test_nce_loss_is_bounded_below_in_its_bias():
    for bias in (-500.0, 500.0):  # the printed sign of Eq. 27 gives −248.75 at −500
        assert nce_loss(-np.full(4, bias), -np.full((4, 3), bias), 1.0) == pytest.approx(250.0)


@pytest.mark.parametrize(("z", "log_z"), [(0.3, -1.203972804326), (2.7, 0.993251773010)])
def test_snl_is_minimal_at_the_log_normaliser(z, log_z):
    best = optimize.minimize_scalar(lambda bias: float(snl_normaliser(math.log(z), bias)), tol=1e-12)
    assert best.fun == pytest.approx(log_z, abs=1e-12)
    assert best.x == pytest.approx(log_z, abs=1e-6)
    assert snl_normaliser(math.log(z), 50.0) == pytest.approx(49.0)
    assert snl_normaliser(math.log(z), -50.0) > 1e21  # so there is no maximum
    assert snl_normaliser(math.log(z), 0.2) - log_z == pytest.approx(tuba_gap(math.log(z), 0.2), abs=1e-12)


def test_snl_at_the_log_normaliser_is_the_likelihood():
    critic = critics(1)[0]
    positives, negatives = population(critic)
    bias = anchors(partitions(critic))
    snl = np.mean(bias - positives) + np.mean(np.exp(negatives - bias[:, None])) - 1
    assert snl == pytest.approx(-uba_bound(positives, bias), abs=1e-13)


FLAT, ROWS = np.zeros(3), np.zeros((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nce_loss(FLAT, ROWS, 0.0), "ratio must be a finite number above zero, not 0.0"),
        (lambda: nce_limit(math.nan, 0.0), "mean energy"),
        (lambda: nce_loss_1d(1.0, data_variance=0.0, noise_variance=1.0, precision=1.0), "data variance"),
        (lambda: nce_loss_1d(1.0, data_variance=1.0, noise_variance=1.0, precision=-1.0), "precision"),
        (lambda: nce_loss_at(math.inf, 0.0, 1.0, precision=1.0, **LINE), "anchor"),
        (lambda: snl_normaliser(math.nan, 0.0), "log normaliser"),
        (lambda: snl_normaliser([0.0, 1.0], [0.0, 1.0, 2.0]), "must be alike"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)
