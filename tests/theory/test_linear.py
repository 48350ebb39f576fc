"""Linear encoders: every closed form against Monte Carlo, quadrature or autograd, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, optimize
from torch import nn

from probssl.energies import Asymmetric, Euclidean
from probssl.errors import InputError
from probssl.objectives import Fisher
from probssl.pairings import GaussianNoise, LinearMixture, MaskAndNoise
from probssl.pairings.views import Needs
from probssl.theory.linear import (
    GaussianPair,
    Moments,
    asymmetric_fisher_encoders,
    dropped_directions,
    fisher_gram,
    fisher_loss,
    fisher_minimum,
    kl_gram,
    kl_loss,
    kl_minimum,
    must_collapse,
    shifted_noise_gram,
)

from .small_worlds import DATA, NOISE

SHIFT = np.array([0.4, -0.3, 0.2])
SHEAR = np.array([[1.0, 0.8], [-0.6, 0.5]])


def normal(rows: int, covariance: np.ndarray, seed: int = 0) -> np.ndarray:
    root = np.linalg.cholesky(covariance)
    return np.random.default_rng(seed).standard_normal((rows, len(covariance))) @ root.T


def linear(weight: np.ndarray, bias: np.ndarray | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            layer.bias.copy_(torch.from_numpy(bias))
    return layer


def best_weight(loss_of_gram: object, rank: int, size: int, starts: int = 10) -> float:
    """The least value over W [rank, size], by descent with numerical gradients from many starts: slow and obvious."""
    assert callable(loss_of_gram)

    def loss(flat: np.ndarray) -> float:
        w = flat.reshape(rank, size)
        return float(loss_of_gram(w.T @ w))

    rng = np.random.default_rng(5)
    return min(optimize.minimize(loss, rng.standard_normal(rank * size), method="BFGS").fun for _ in range(starts))


# --- Fisher -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [None, SHIFT], ids=["centred", "shifted"])
@pytest.mark.parametrize("outputs", [2, 3, 5])
def test_fisher_loss_is_that_of_the_objective(shift: np.ndarray | None, outputs: int) -> None:
    """The closed form is the mean of the trained loss, whose gradient comes from autograd, over 400,000 pairs."""
    weight = np.random.default_rng(1).standard_normal((outputs, 3))
    pairing = GaussianNoise(covariance=torch.from_numpy(NOISE), mean=0.0 if shift is None else torch.from_numpy(shift))
    x = torch.from_numpy(normal(400_000, DATA))
    views = pairing(x, Needs(score=True), torch.Generator().manual_seed(0))
    measured = Fisher(Euclidean())(linear(weight), views).total.item()
    assert fisher_loss(weight.T @ weight, Moments.of_gaussian_noise(NOISE, shift)) == pytest.approx(measured, rel=0.01)


def test_moments_of_samples_give_the_loss_of_those_samples_exactly() -> None:
    weight = np.random.default_rng(1).standard_normal((4, 3))
    pairing = MaskAndNoise(0.7, 0.3)
    x = torch.from_numpy(normal(500, DATA))
    views = pairing(x, Needs(score=True), torch.Generator().manual_seed(0))
    assert views.score is not None
    moments = Moments.of_samples(x.numpy(), views.augmented[0].numpy(), views.score[0].numpy())
    measured = Fisher(Euclidean())(linear(weight), views).total.item()
    assert fisher_loss(weight.T @ weight, moments) == pytest.approx(measured, rel=1e-12)


def test_corollary_2_2_and_its_minimum() -> None:
    moments = Moments.of_gaussian_noise(NOISE, SHIFT)
    second = NOISE + np.outer(SHIFT, SHIFT)
    np.testing.assert_allclose(fisher_gram(moments), np.linalg.inv(second), rtol=1e-12)
    np.testing.assert_allclose(shifted_noise_gram(NOISE, SHIFT), np.linalg.inv(second), rtol=1e-12)
    inverse = np.linalg.inv(NOISE)
    expected = SHIFT @ inverse @ inverse @ SHIFT / (1 + SHIFT @ inverse @ SHIFT)
    assert fisher_minimum(moments) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(np.trace(inverse - np.linalg.inv(second)), rel=1e-12)
    assert fisher_minimum(Moments.of_gaussian_noise(NOISE)) == pytest.approx(0, abs=1e-13)


def test_the_theorems_need_half_of_the_squared_distance() -> None:
    """With δ = ‖Wx − Wx̃‖² instead, the best Gram matrix halves: 1 / (2 · 0.36)."""
    found = optimize.minimize_scalar(lambda g: fisher_loss([[2 * g]], Moments.of_gaussian_noise([[0.36]])))
    assert found.x == pytest.approx(1.388888889, abs=1e-7)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_rank_m_keeps_the_largest_eigenvalues(rank: int) -> None:
    moments = Moments.of_gaussian_noise(NOISE, SHIFT)
    eigenvalues = np.linalg.eigvalsh(np.linalg.inv(moments.second))[::-1]
    expected = np.trace(np.linalg.inv(NOISE)) - eigenvalues[:rank].sum()
    assert fisher_minimum(moments, rank) == pytest.approx(expected, rel=1e-12)
    assert best_weight(lambda g: fisher_loss(g, moments), rank, 3) == pytest.approx(expected, rel=1e-6)
    assert np.linalg.matrix_rank(fisher_gram(moments, rank), tol=1e-8) == rank


def test_more_outputs_than_inputs_change_nothing() -> None:
    moments = Moments.of_gaussian_noise(NOISE, SHIFT)
    np.testing.assert_array_equal(fisher_gram(moments, 7), fisher_gram(moments))


def test_lemma_2_1_solves_a_lyapunov_equation_not_the_printed_product() -> None:
    data = np.array([[1.0, 0.3], [0.3, 0.6]])
    moments = Moments.of_linear_map(SHEAR, data, np.diag([0.1, 0.4]))
    best = fisher_gram(moments)
    np.testing.assert_allclose(best, [[2.88432, 1.03128], [1.03128, 0.82203]], atol=1e-5)
    assert fisher_minimum(moments) - moments.score_power == pytest.approx(-3.50160, abs=1e-5)
    printed = moments.slope @ np.linalg.inv(moments.second)
    assert np.abs(printed - printed.T).max() > 0.1, "the printed optimum is not symmetric, so it is no WᵀW"
    assert fisher_loss((printed + printed.T) / 2, moments) - moments.score_power == pytest.approx(-2.51083, abs=1e-5)
    assert best_weight(lambda g: fisher_loss(g, moments), 2, 2) == pytest.approx(fisher_minimum(moments), rel=1e-7)


def test_linear_map_moments_are_those_of_the_pairing() -> None:
    data = np.array([[1.0, 0.3], [0.3, 0.6]])
    noise, shift = np.array([[0.1, 0.03], [0.03, 0.4]]), np.array([0.2, -0.1])
    pairing = LinearMixture(
        torch.from_numpy(SHEAR[None]), covariance=torch.from_numpy(noise), mean=torch.from_numpy(shift)
    )
    x = torch.from_numpy(normal(400_000, data))
    views = pairing(x, Needs(score=True), torch.Generator().manual_seed(0))
    assert views.score is not None
    sampled = Moments.of_samples(x.numpy(), views.augmented[0].numpy(), views.score[0].numpy())
    exact = Moments.of_linear_map(SHEAR, data, noise, shift)
    np.testing.assert_allclose(sampled.second, exact.second, atol=0.01)
    np.testing.assert_allclose(sampled.slope, exact.slope, atol=0.03)
    assert sampled.score_power == pytest.approx(exact.score_power, rel=0.01)


def test_clipping_eigenvalues_is_not_the_projection() -> None:
    moments = Moments(np.diag([1.0, 10.0]), np.array([[1.0, 4.0], [4.0, -3.0]]), 0.0)
    best = fisher_gram(moments)
    np.testing.assert_allclose(best, [[1.45880, 0.46630], [0.46630, 0.14905]], atol=1e-5)
    assert fisher_loss(best, moments) == pytest.approx(-4.74204, abs=1e-5)
    from scipy.linalg import solve_continuous_lyapunov

    values, basis = np.linalg.eigh(solve_continuous_lyapunov(moments.second, 2 * moments.slope))
    clipped = (basis * np.maximum(values, 0)) @ basis.T
    assert fisher_loss(clipped, moments) == pytest.approx(-4.39400, abs=1e-5)


@pytest.mark.parametrize("size", [2, 5, 12, 60])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_meets_its_kkt_conditions(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size))
    moments = Moments(root @ root.T / size + 0.05 * np.eye(size), rng.standard_normal((size, size)), 0.0)
    best = fisher_gram(moments)
    multiplier = best @ moments.second + moments.second @ best - moments.slope - moments.slope.T
    assert np.linalg.eigvalsh(best)[0] >= -1e-10
    assert np.linalg.eigvalsh(multiplier)[0] >= -1e-8
    assert np.abs(best @ multiplier).max() < 1e-7


@pytest.mark.parametrize("rank", [1, 2])
def test_rank_m_without_common_eigenvectors(rank: int) -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((3, 3))
    moments = Moments(root @ root.T + np.eye(3), rng.standard_normal((3, 3)) + 2 * np.eye(3), 0.0)
    assert fisher_minimum(moments, rank) == pytest.approx(
        best_weight(lambda g: fisher_loss(g, moments), rank, 3, 20), rel=1e-6
    )


@pytest.mark.parametrize("linear_map", [np.diag([1.0, -1.0]), SHEAR], ids=["reflection", "shear"])
def test_rank_one_is_never_better_than_rank_two(linear_map: np.ndarray) -> None:
    moments = Moments.of_linear_map(linear_map, np.eye(2), 0.25 * np.eye(2))
    assert fisher_minimum(moments, 1) >= fisher_minimum(moments) - 1e-12


# --- collapse ---------------------------------------------------------------------------------------------------------


def test_theorem_2_3_is_false_in_three_ways() -> None:
    reflection = Moments.of_linear_map(np.diag([1.0, -1.0]), np.eye(2), 0.25 * np.eye(2))
    assert np.linalg.det(reflection.slope) < 0
    np.testing.assert_allclose(fisher_gram(reflection), np.diag([4.0, 0.0]), atol=1e-9)
    assert not must_collapse(reflection)
    assert dropped_directions(reflection) == 1

    point_reflection = Moments.of_linear_map(-np.eye(2), np.eye(2), 0.25 * np.eye(2))
    assert np.linalg.det(point_reflection.slope) > 0
    np.testing.assert_array_equal(fisher_gram(point_reflection), np.zeros((2, 2)))
    assert must_collapse(point_reflection)
    assert dropped_directions(point_reflection) == 2

    steep = np.array([[1.0, 10.4], [10.4, 25.0]])
    noise = np.array([[0.989184, -0.02496], [-0.02496, 24.931584]])
    nothing_dropped = Moments.of_linear_map(steep, 1e-4 * np.eye(2), noise)
    assert np.linalg.det(nothing_dropped.slope) == pytest.approx(-83.16)
    np.testing.assert_allclose(fisher_gram(nothing_dropped), [[1.0, 0.8], [0.8, 1.0]], atol=1e-6)
    assert dropped_directions(nothing_dropped) == 0


@pytest.mark.parametrize("seed", range(20))
def test_collapse_if_and_only_if_the_symmetric_part_is_not_positive(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, slope = rng.standard_normal((2, 3, 3))
    slope -= rng.uniform(0, 3) * np.eye(3)
    moments = Moments(root @ root.T + 0.1 * np.eye(3), slope, 0.0)
    collapsed = np.linalg.eigvalsh(slope + slope.T)[-1] <= 0
    assert must_collapse(moments) == collapsed
    assert (np.linalg.norm(fisher_gram(moments)) == 0) == collapsed


def test_masking_a_linear_encoder_never_collapses_it() -> None:
    moments = Moments.of_mask_and_noise(0.1, 0.25, np.eye(3))
    assert dropped_directions(moments) == 0


# --- masking ----------------------------------------------------------------------------------------------------------


def test_masking_moments_and_optimum() -> None:
    np.testing.assert_allclose(
        fisher_gram(Moments.of_mask_and_noise(0.8, 0.1, np.eye(2))), 3.809524 * np.eye(2), atol=1e-6
    )
    x = torch.from_numpy(normal(1_000_000, DATA))
    views = MaskAndNoise(0.8, 0.5)(x, Needs(score=True), torch.Generator().manual_seed(0))
    assert views.score is not None
    sampled = Moments.of_samples(x.numpy(), views.augmented[0].numpy(), views.score[0].numpy())
    exact = Moments.of_mask_and_noise(0.8, 0.5, DATA, sampled.score_power)
    np.testing.assert_allclose(sampled.second, exact.second, atol=0.005)
    np.testing.assert_allclose(sampled.slope, exact.slope, atol=0.01)
    assert fisher_minimum(exact) == pytest.approx(fisher_minimum(sampled), rel=0.02)


# --- asymmetric energies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("linear_map", [np.eye(2), -np.eye(2), np.diag([1.0, -1.0]), SHEAR])
def test_an_asymmetric_energy_reaches_zero_where_a_symmetric_one_cannot(linear_map: np.ndarray) -> None:
    noise, shift = np.array([[0.1, 0.03], [0.03, 0.4]]), np.array([0.4, -0.3])
    pair = asymmetric_fisher_encoders(linear_map, noise, shift)
    energy = Asymmetric(Euclidean(), by="encoder", network=linear(pair.augmented, pair.offset)).bind()
    pairing = LinearMixture(
        torch.from_numpy(linear_map[None]), covariance=torch.from_numpy(noise), mean=torch.from_numpy(shift)
    )
    x = torch.from_numpy(normal(200, np.eye(2)))
    views = pairing(x, Needs(score=True), torch.Generator().manual_seed(0))
    assert Fisher(energy)(linear(pair.original), views).total.item() == pytest.approx(0, abs=1e-20)
    assert fisher_minimum(Moments.of_linear_map(linear_map, np.eye(2), noise, shift)) > 0.1


# --- KL ---------------------------------------------------------------------------------------------------------------


def kl_by_quadrature(g: float, data: float, noise: float, shift: float) -> float:
    """E_x̃ KL(p ‖ q) in one dimension, everything integrated numerically."""

    def normal_log(x: np.ndarray, mean: float | np.ndarray, variance: float) -> np.ndarray:
        return -0.5 * (x - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)

    x = np.linspace(-9 * data**0.5, 9 * data**0.5, 2001)

    def kl(x_aug: float) -> float:
        log_p = normal_log(x, 0, data) + normal_log(x_aug - x, shift, noise)
        log_q = normal_log(x, 0, data) - 0.5 * g * (x - x_aug) ** 2
        log_p, log_q = (v - np.log(integrate.trapezoid(np.exp(v), x)) for v in (log_p, log_q))
        return float(integrate.trapezoid(np.exp(log_p) * (log_p - log_q), x))

    x_aug = np.linspace(shift - 8 * (data + noise) ** 0.5, shift + 8 * (data + noise) ** 0.5, 401)
    weights = np.exp(normal_log(x_aug, shift, data + noise))
    return float(integrate.trapezoid(weights * np.array([kl(v) for v in x_aug]), x_aug))


@pytest.mark.parametrize(("g", "shift"), [(0.0, 0.3), (0.7, 0.0), (2.5, 0.5), (2.0, 0.0)])
def test_equation_104_by_quadrature(g: float, shift: float) -> None:
    closed = kl_loss([[g]], GaussianPair([[1.3]], [[0.5]], [shift]))
    assert closed == pytest.approx(kl_by_quadrature(g, 1.3, 0.5, shift), abs=1e-9)


def test_equation_104_by_monte_carlo_in_three_dimensions() -> None:
    pair = GaussianPair(DATA, NOISE, SHIFT)
    weight = np.random.default_rng(1).standard_normal((2, 3))
    g, p, n = weight.T @ weight, np.linalg.inv(DATA), np.linalg.inv(NOISE)
    x = normal(200_000, DATA)
    x_aug = x + SHIFT + normal(200_000, NOISE, seed=1)

    def log_posterior(precision: np.ndarray, pull: np.ndarray) -> np.ndarray:
        mean = np.linalg.solve(precision, pull.T).T
        return -0.5 * np.einsum("ni,ij,nj->n", x - mean, precision, x - mean) + 0.5 * np.linalg.slogdet(precision)[1]

    ratio = log_posterior(n + p, (x_aug - SHIFT) @ n) - log_posterior(g + p, x_aug @ g)
    standard_error = ratio.std() / len(ratio) ** 0.5
    assert kl_loss(g, pair) == pytest.approx(ratio.mean(), abs=4 * standard_error)
    assert standard_error < 0.01


def test_theorem_2_5_and_its_minimum() -> None:
    pair = GaussianPair(DATA, NOISE, SHIFT)
    best = kl_gram(pair)
    np.testing.assert_allclose(best, np.linalg.inv(NOISE + np.outer(SHIFT, SHIFT)), rtol=1e-12)
    assert kl_minimum(pair) == pytest.approx(kl_loss(best, pair), abs=1e-12)
    assert kl_minimum(pair) > 0.1, "with a shift the minimum is not zero"
    rng = np.random.default_rng(0)
    for _ in range(50):
        change = rng.standard_normal((3, 3)) * 0.1
        assert kl_loss(best + change @ change.T, pair) > kl_minimum(pair)
    assert best_weight(lambda g: kl_loss(g, pair), 3, 3, 3) == pytest.approx(kl_minimum(pair), abs=1e-7)


def test_without_shift_the_minimum_is_zero_and_collapse_costs_the_information() -> None:
    pair = GaussianPair(DATA, NOISE)
    assert kl_loss(np.linalg.inv(NOISE), pair) == pytest.approx(0, abs=1e-12)
    assert kl_minimum(pair) == 0
    information = 0.5 * np.linalg.slogdet(np.eye(3) + np.linalg.inv(NOISE) @ DATA)[1]
    assert kl_loss(np.zeros((3, 3)), pair) == pytest.approx(information, rel=1e-12)
    assert pair.information == pytest.approx(information, rel=1e-12)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("shift", [None, SHIFT], ids=["centred", "shifted"])
def test_rank_m_of_the_kl_loss(rank: int, shift: np.ndarray | None) -> None:
    pair = GaussianPair(DATA, NOISE, shift)
    found = kl_minimum(pair, rank)
    assert found == pytest.approx(best_weight(lambda g: kl_loss(g, pair), rank, 3), abs=1e-7)
    assert kl_minimum(pair) < found < pair.information


def skewed_kl(g: float, shift: float) -> float:
    """I + E[δ + log Z] for a skewed mixture of two Gaussians and noise of variance 0.36, by quadrature."""
    x = np.linspace(-7, 9, 1601)
    density = 0.7 * np.exp(-0.5 * (x + 0.6) ** 2 / 0.16) / 0.4 + 0.3 * np.exp(-0.5 * (x - 1.4) ** 2 / 0.81) / 0.9
    density /= integrate.trapezoid(density, x)
    noise = np.exp(-0.5 * (x[None, :] - x[:, None] - shift) ** 2 / 0.36) / np.sqrt(2 * np.pi * 0.36)  # [x, x̃]
    joint = density[:, None] * noise
    marginal = integrate.trapezoid(joint, x, axis=0)  # p(x̃)
    energy = 0.5 * g * (x[:, None] - x[None, :]) ** 2
    log_z = np.log(integrate.trapezoid(density[:, None] * np.exp(-energy), x, axis=0))
    log_ratio = np.log(noise + 1e-300) - np.log(marginal + 1e-300)[None, :]
    return float(integrate.trapezoid(integrate.trapezoid(joint * (log_ratio + energy + log_z[None, :]), x, axis=0), x))


def test_theorem_2_4_needs_no_gaussian_data_but_theorem_2_5_does() -> None:
    """Without shift the optimum is the noise precision for skewed data too; with shift the formula then fails."""
    centred = optimize.minimize_scalar(lambda g: skewed_kl(g, 0.0), bounds=(1, 5), method="bounded")
    assert centred.x == pytest.approx(1 / 0.36, abs=1e-4)
    assert centred.fun == pytest.approx(0, abs=1e-9)
    shifted = optimize.minimize_scalar(lambda g: skewed_kl(g, 0.5), bounds=(0.5, 5), method="bounded")
    printed = kl_gram(GaussianPair([[1.0]], [[0.36]], [0.5]))[0, 0]
    assert printed == pytest.approx(1 / 0.61)
    assert abs(shifted.x - printed) > 0.05
    assert skewed_kl(shifted.x, 0.5) < skewed_kl(printed, 0.5) - 1e-4


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Moments.of_gaussian_noise([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: Moments.of_gaussian_noise([[1.0, 0.5], [0.2, 1.0]]), "symmetric"),
        (lambda: Moments.of_gaussian_noise(np.eye(2), [1.0]), r"shift must have the shape \(2,\), not \(1,\)"),
        (
            lambda: Moments.of_mask_and_noise(1.5, 0.1, np.eye(2)),
            "preservation must be a number of at most one, not 1.5",
        ),
        (lambda: Moments(np.eye(2), np.eye(3), 0.0), r"slope must have the shape \(2, 2\), not \(3, 3\)"),
        (lambda: Moments(np.eye(2), np.eye(2), -1.0), "zero or more, not -1.0"),
        (lambda: Moments.of_samples(np.zeros((4, 2)), np.zeros((4, 2)), np.zeros((4, 3))), r"one shape \[n, d\]"),
        (lambda: Moments.of_gaussian_noise(np.zeros((2, 3))), "square"),
        (lambda: Moments.of_gaussian_noise(np.full((2, 2), np.nan)), "finite"),
        (lambda: GaussianPair(np.eye(2), np.eye(3)), r"covariance of the data must have the shape \(3, 3\)"),
        (lambda: Moments.of_linear_map(np.eye(3), np.eye(2), np.eye(2)), "the linear map must have the shape"),
        (lambda: Moments.of_linear_map(np.eye(2), -np.eye(2), np.eye(2)), "negative eigenvalues: the smallest is -1"),
        (lambda: Moments.of_mask_and_noise(0.5, 0.0, np.eye(2)), "noise must be a finite number above zero, not 0.0"),
        (lambda: fisher_loss(np.eye(3), Moments.of_gaussian_noise(np.eye(2))), "Gram matrix must have the shape"),
        (lambda: kl_minimum(GaussianPair(np.eye(2), np.eye(2)), 2.5), "rank must be a whole number"),
        (lambda: kl_loss(-5 * np.eye(2), GaussianPair(np.eye(2), np.eye(2))), "positive definite"),
        (lambda: kl_gram(GaussianPair(np.eye(2), np.eye(2)), 0), "rank must be a whole number of at least 1, not 0"),
        (
            lambda: fisher_gram(Moments.of_gaussian_noise(np.eye(2)), 0),
            "rank must be a whole number of at least 1, not 0",
        ),
    ],
)
def test_broken_assumptions_are_refused(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(InputError, match=sentence):
        make()
