"""Priors over related latents: against quadrature over ψ, multivariate normal densities, Monte Carlo and descent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from probssl.errors import InputError
from probssl.theory.latent import (
    expected_pinch,
    flat_prior_log_volume,
    log_prior_gaussian,
    log_prior_uniform,
    log_prior_unit_norm,
    optimal_posterior_variance,
    pinch,
)


def latents(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def integral_over_means(z: np.ndarray, variance: float, log_prior) -> float:
    """log ∫ p(ψ) Π_j N(z_j; ψ, σ²) dψ for z [J, L] by quadrature in each dimension."""
    total = 0.0
    for column in z.T:

        def log_density(mean, column=column):
            return log_prior(mean) + stats.norm.logpdf(column, mean, math.sqrt(variance)).sum()

        peak, width = column.mean(), math.sqrt(variance / len(column))
        top = log_density(peak)
        value, _ = integrate.quad(
            lambda mean: math.exp(log_density(mean) - top),  # noqa: B023
            peak - 12 * width,
            peak + 12 * width,
            epsabs=1e-13,
            limit=200,
        )
        total += top + math.log(value)
    return total


@pytest.mark.parametrize(("related", "size"), [(1, 2), (2, 3), (4, 2), (10, 3)])
def test_flat_prior_with_its_constants_by_quadrature(related, size):
    z = latents(related, size)
    exact = integral_over_means(z, 0.15, lambda mean: 0.0)
    assert log_prior_uniform(z, 0.15) == pytest.approx(exact, abs=1e-9)
    # with the exponent J of 2πσ², as if ψ were known to be z̄, and without log J, it would be another number
    at_mean = stats.norm.logpdf(z, z.mean(0), math.sqrt(0.15)).sum()
    assert at_mean - exact == pytest.approx(size / 2 * (math.log(related) - math.log(2 * math.pi * 0.15)), abs=1e-9)


@pytest.mark.parametrize(("related", "size"), [(1, 2), (2, 3), (4, 2)])
def test_gaussian_prior_is_a_normal_density_in_each_dimension_and_the_integral(related, size):
    z = latents(related, size)
    covariance = 0.15 * np.eye(related) + 2.0
    exact = stats.multivariate_normal(np.zeros(related), covariance).logpdf(z.T).sum()
    assert log_prior_gaussian(z, 0.15, 2.0) == pytest.approx(exact, abs=1e-11)
    by_integral = integral_over_means(z, 0.15, lambda mean: stats.norm.logpdf(mean, 0, math.sqrt(2.0)))
    assert log_prior_gaussian(z, 0.15, 2.0) == pytest.approx(by_integral, abs=1e-9)


def test_gaussian_prior_minus_its_exponent_is_one_constant():
    variance, prior_variance, related = 0.15, 2.0, 3
    share = 1 / (variance / prior_variance + related)
    for seed in range(5):
        z = latents(related, 1, seed=seed) * 2
        squares, cross = np.sum(z**2), np.sum(z) ** 2 - np.sum(z**2)
        exponent = -((1 - share) * squares - share * cross) / (2 * variance)
        printed = -((1 - share) * squares + share * cross) / (2 * variance)
        value = log_prior_gaussian(z, variance, prior_variance)
        assert value - exponent == pytest.approx(-1.767921655637, abs=1e-11)
        assert abs(value - printed + 1.767921655637) > 0.1


def test_priors_turn_into_each_other():
    z = latents(4, 3)
    for prior_variance in (1e4, 1e6, 1e8):
        moved = log_prior_gaussian(z, 0.15, prior_variance) + flat_prior_log_volume(3, prior_variance)
        assert moved == pytest.approx(log_prior_uniform(z, 0.15), abs=3 / prior_variance + 1e-11)
    independent = stats.norm.logpdf(z, 0, math.sqrt(0.15)).sum()
    assert log_prior_gaussian(z, 0.15, 1e-12) == pytest.approx(independent, abs=1e-8)


def test_priors_are_densities():
    # the Gaussian one integrates to 1; the flat one over z_2 alone, z_1 held, gives the flat density 1
    grid = np.linspace(-12, 12, 1201)
    step = grid[1] - grid[0]
    first, second = np.meshgrid(grid, grid, indexing="ij")
    z = np.stack([first, second], -1)[..., None]  # [.., J = 2, L = 1]
    assert np.exp(log_prior_gaussian(z, 0.3, 1.5)).sum() * step**2 == pytest.approx(1, abs=1e-9)
    z = np.stack([np.full_like(grid, 0.4), grid], -1)[..., None]
    assert np.exp(log_prior_uniform(z, 0.3)).sum() * step == pytest.approx(1, abs=1e-9)


def test_one_latent_alone_is_not_pinched():
    z = latents(1, 4)
    assert pinch(z) == 0
    assert log_prior_uniform(z, 0.15) == 0


def test_pinch_has_two_forms():
    for related in (2, 3, 10):
        z = latents(7, related, 4, seed=related)
        pairs = np.square(z[:, :, None] - z[:, None]).sum((1, 2, 3)) / (2 * related)
        assert pinch(z) == pytest.approx(pairs, abs=1e-12)
        assert pinch(z).shape == (7,)
        loops = [sum(np.sum((z_j - s.mean(0)) ** 2) for z_j in s) for s in z]
        assert pinch(z) == pytest.approx(loops)
    z = latents(2, 4)
    assert pinch(z) == pytest.approx(np.sum((z[0] - z[1]) ** 2) / 2)
    assert pinch(z + 100.0) == pytest.approx(pinch(z))


@pytest.mark.parametrize(("angle", "expected"), [(0, -6.64), (90, -9.86), (180, -13.07)])
def test_unit_latents_are_rewarded_for_agreeing(angle, expected):
    radians = math.radians(angle)
    z = np.array([[1.0, 0, 0, 0], [math.cos(radians), math.sin(radians), 0, 0]])
    assert log_prior_gaussian(z, 0.15, 2.0) == pytest.approx(expected, abs=5e-3)
    right = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    change = log_prior_gaussian(z, 0.15, 2.0) - log_prior_gaussian(right, 0.15, 2.0)
    assert log_prior_unit_norm(z, 0.15, 2.0) == pytest.approx(change, abs=1e-12)
    assert np.sign(round(float(change), 9)) == np.sign(round(math.cos(radians), 9))


def test_unit_norm_form_differs_from_both_priors_by_a_constant():
    z = latents(20, 5, 3)
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    for exact, form in (
        (log_prior_gaussian(z, 0.15, 2.0), log_prior_unit_norm(z, 0.15, 2.0)),
        (log_prior_uniform(z, 0.15), log_prior_unit_norm(z, 0.15)),
    ):
        assert np.ptp(exact - form) < 1e-11
        assert np.ptp(exact + form) > 1


def test_expected_pinch_against_monte_carlo():
    rng = np.random.default_rng(0)
    means, variances = rng.standard_normal((3, 4)), rng.uniform(0.1, 1.5, (3, 4))
    z = means + np.sqrt(variances) * rng.standard_normal((100_000, 3, 4))
    samples = pinch(z)
    error = samples.std() / math.sqrt(len(z))
    assert expected_pinch(means, variances) == pytest.approx(samples.mean(), abs=4 * error)
    uniform = means + np.sqrt(12 * variances) * (rng.random((100_000, 3, 4)) - 0.5)  # only the moments matter
    assert expected_pinch(means, variances) == pytest.approx(pinch(uniform).mean(), abs=4 * error)
    assert expected_pinch(means, 0 * variances) == pytest.approx(pinch(means))
    assert expected_pinch(np.stack([means] * 2), np.stack([variances] * 2)).shape == (2,)


def negative_elbo(v: float, variance: float, related: int, decoder: float, prior_variance: float) -> float:
    """The negative ELBO of one dimension with posteriors N(0, v) for all J, up to a constant."""
    if math.isinf(prior_variance):
        prior = float(expected_pinch(np.zeros((related, 1)), np.full((related, 1), v))) / (2 * variance)
    else:
        precision = np.linalg.inv(variance * np.eye(related) + prior_variance)
        prior = v * np.trace(precision) / 2
    return prior - related * math.log(v) / 2 + related * decoder * v / 2


@pytest.mark.parametrize(
    ("variance", "related", "decoder", "prior_variance", "expected"),
    [
        (0.15, 10, 0.0, math.inf, 0.1666667),
        (0.15, 10, 0.3 / 0.02, math.inf, 0.0476190),
        (0.15, 2, 0.0, math.inf, 0.3),
        (0.15, 1, 5.0, math.inf, 0.2),
        (0.15, 1, 0.0, 2.0, 2.15),
        (0.15, 4, 3.0, 2.0, None),
    ],
)
def test_optimal_posterior_variance_against_descent(variance, related, decoder, prior_variance, expected):
    value = optimal_posterior_variance(variance, related, decoder_precision=decoder, prior_variance=prior_variance)
    best = optimize.minimize_scalar(
        lambda log_v: negative_elbo(math.exp(log_v), variance, related, decoder, prior_variance),
        bounds=(-8, 4),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert value == pytest.approx(math.exp(best.x), rel=1e-6)
    if expected is not None:
        assert value == pytest.approx(expected, abs=5e-8)


def test_reconstruction_through_a_linear_decoder_has_the_precision_it_is_given():
    # E‖x − Wz‖²/(2σ_x²) grows by v‖w‖²/(2σ_x²) with the variance v of one latent
    rng = np.random.default_rng(0)
    w, noise = rng.standard_normal(6), 0.02
    x, draws = rng.standard_normal(6), rng.standard_normal(200_000)
    costs = [np.mean(((x - np.outer(s * draws, w)) ** 2).sum(1)) / (2 * noise) for s in (1.0, 2.0)]
    assert costs[1] - costs[0] == pytest.approx(3 * w @ w / (2 * noise), rel=0.02)


Z = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pinch(np.zeros(3)), "related, dimensions"),
        (lambda: pinch(np.zeros((0, 3))), "not be empty"),
        (lambda: pinch([[math.nan, 0.0]]), "finite"),
        (lambda: pinch([["a"]]), "array of numbers"),
        (lambda: log_prior_uniform(Z, 0.0), "variance must be a finite number above zero, not 0.0"),
        (lambda: log_prior_uniform(Z, "small"), "variance"),
        (lambda: log_prior_gaussian(Z, 0.1, -1.0), "prior variance"),
        (lambda: log_prior_gaussian(Z, 0.1, math.inf), "prior variance"),
        (lambda: flat_prior_log_volume(0, 1.0), "dimensions"),
        (lambda: log_prior_unit_norm(Z, 0.1, 1.0), "unit length: 1.73205 at 0"),
        (lambda: expected_pinch(Z, np.ones((2, 2))), "of the means"),
        (lambda: expected_pinch(Z, -Z), "not be negative"),
        (lambda: optimal_posterior_variance(0.1, 0), "related"),
        (lambda: optimal_posterior_variance(0.1, 1), "or no finite variance is optimal"),
        (lambda: optimal_posterior_variance(0.1, 2, decoder_precision=-1.0), "decoder precision"),
        (lambda: optimal_posterior_variance(0.1, 2, prior_variance=0.0), "prior variance"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)
