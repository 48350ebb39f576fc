"""Samples of the sphere and the least InfoNCE: exact laws, quadrature beside Monte Carlo, and known numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import kstest

from probssl.errors import InputError
from probssl.theory import sphere
from probssl.theory import sphere_bayes as bayes
from probssl.theory.sphere_samples import sample_anisotropic, sample_uniform, sample_vmf

ANISOTROPIC = [5.0] * 5 + [25.0] * 5  # the world of AnInfoNCE, in the ½ convention


def cosine_cdf(dim: int, kappa: float, points: int = 4001):
    """The distribution function of zᵀz̃ under von Mises–Fisher, by the trapezoidal rule over the angle."""
    angle = np.linspace(0, math.pi, points)
    density = np.exp(kappa * (np.cos(angle) - 1)) * np.sin(angle) ** (dim - 2)
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return lambda t: 1 - np.interp(np.arccos(np.clip(t, -1, 1)), angle, mass / mass[-1])


# --- samples ---


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.0), (2, 4.0), (3, 30.0), (10, 10.0), (128, 60.0)])
def test_vmf_samples_follow_their_law(dim, kappa):
    generator = np.random.default_rng(0)
    z = sample_uniform(5000, dim, generator)
    x = sample_vmf(z, kappa, generator)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-14)
    cosine = np.sum(x * z, axis=1)
    assert kstest(cosine, cosine_cdf(dim, kappa)).pvalue > 0.001
    # around the anchor nothing is preferred: the mean of what is left over is zero
    side = x - cosine[:, None] * z
    assert np.abs(side.mean(axis=0)).max() < 5 / math.sqrt(5000 * dim)


@pytest.mark.parametrize("kappa", [1e6, 1e10])
@pytest.mark.parametrize("dim", [2, 10])
def test_very_concentrated_samples_keep_their_digits(dim, kappa):
    generator = np.random.default_rng(0)
    z = sample_uniform(20_000, dim, generator)
    distance = np.sum((sample_vmf(z, kappa, generator) - z) ** 2, axis=1)
    error = 5 * distance.std() / math.sqrt(len(z))
    assert distance.mean() == pytest.approx(sphere.expected_alignment(dim, kappa), abs=error)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 4.0), (3, 0.1), (10, 10.0), (20, 15.0)])
def test_equal_concentrations_are_von_mises_fisher(dim, kappa):
    generator = np.random.default_rng(1)
    z = sample_uniform(5000, dim, generator)
    x = sample_anisotropic(z, [kappa] * dim, generator)
    assert kstest(np.sum(x * z, axis=1), cosine_cdf(dim, kappa)).pvalue > 0.001


@pytest.mark.parametrize("scales", [(0.5, 3.0), (1.0, 40.0), (200.0, 3.0)])
@pytest.mark.parametrize("anchor", [0.0, 0.7, 1.5])
def test_anisotropic_samples_on_the_circle_follow_their_density(scales, anchor):
    z = np.array([math.cos(anchor), math.sin(anchor)])
    x = sample_anisotropic(np.tile(z, (5000, 1)), scales, np.random.default_rng(2))
    grid = np.linspace(-math.pi, math.pi, 20_001)
    points = np.column_stack([np.cos(grid), np.sin(grid)])
    density = np.exp(-0.5 * ((points - z) ** 2) @ np.array(scales))
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angles = np.arctan2(x[:, 1], x[:, 0])
    assert kstest(angles, lambda a: np.interp(a, grid, mass / mass[-1])).pvalue > 0.001


def test_anisotropic_samples_against_weighted_uniform_points():
    scales, z = np.array([1.0, 4.0, 9.0]), np.array([0.6, 0.0, 0.8])
    generator = np.random.default_rng(3)
    x = sample_anisotropic(np.tile(z, (40_000, 1)), scales, generator)
    uniform = sample_uniform(400_000, 3, generator)
    weight = np.exp(-0.5 * ((uniform - z) ** 2) @ scales)
    weight /= weight.sum()
    np.testing.assert_allclose(x.mean(axis=0), weight @ uniform, atol=0.015)
    np.testing.assert_allclose(x.T @ x / len(x), (uniform * weight[:, None]).T @ uniform, atol=0.015)


def test_displacements_of_the_anisotropic_world():
    generator = np.random.default_rng(4)
    z = sample_uniform(100_000, 10, generator)
    square = (sample_anisotropic(z, ANISOTROPIC, generator) - z) ** 2
    for block, expected in [(slice(0, 5), 0.5660147644), (slice(5, 10), 0.1740965191)]:
        moved = square[:, block].sum(axis=1)
        assert moved.mean() == pytest.approx(expected, abs=4 * moved.std() / math.sqrt(len(z)))


def test_very_unequal_concentrations_can_be_sampled():
    generator = np.random.default_rng(5)
    z = sample_uniform(300, 6, generator)
    x = sample_anisotropic(z, [1.0, 1.0, 1.0, 1e4, 1e4, 1e4], generator)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-14)
    assert np.mean((x - z)[:, 3:] ** 2) == pytest.approx(1e-4, rel=0.2)


def test_a_seed_decides_every_sample():
    z = sample_uniform(50, 4, np.random.default_rng(6))
    for sample in (lambda g: sample_vmf(z, 3.0, g), lambda g: sample_anisotropic(z, [1.0, 2.0, 3.0, 4.0], g)):
        np.testing.assert_array_equal(sample(np.random.default_rng(7)), sample(np.random.default_rng(7)))


# --- vMF positives, uniform negatives ---


def test_least_infonce_has_the_known_values():
    assert bayes.bayes_infonce_vmf(10, 10, 1) == pytest.approx(0.100690709922, abs=1e-12)
    assert bayes.bayes_infonce_vmf(10, 10, 16) == pytest.approx(0.914902366, abs=1e-9)
    assert bayes.bayes_infonce_vmf(10, 1, 16) == pytest.approx(2.786826, abs=1e-6)
    assert bayes.bayes_infonce_vmf(3, 2, 1) == pytest.approx(0.476521498, abs=1e-9)
    for negatives, expected in [(256, -2.424482), (4096, -2.480539), (65536, -2.484223)]:
        assert bayes.bayes_infonce_vmf(10, 10, negatives) - math.log(negatives) == pytest.approx(expected, abs=1e-6)
    limit = bayes.bayes_infonce_vmf(10, 10, 10**12) - math.log(10**12)
    assert limit == pytest.approx(-sphere.vmf_kl_from_uniform(10, 10), abs=1e-10)


def test_the_loss_tends_to_the_cross_entropy():
    # CL-ICA, Theorem 1: L − log M + log |Z| → H(vMF), with an error that falls like 1/M
    errors = [
        bayes.bayes_infonce_vmf(10, 10, m) - math.log(m) + sphere.log_sphere_area(10) - sphere.vmf_entropy(10, 10)
        for m in (65_536, 655_360)
    ]
    assert errors[0] + sphere.vmf_entropy(10, 10) == pytest.approx(0.754520, abs=1e-6)
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.01)


def test_one_negative_against_a_double_integral():
    # M = 1 in three dimensions: t₊ has density ∝ e^{κt}, t₋ is uniform on [−1, 1]
    kappa = 2.0
    constant = kappa / (2 * math.sinh(kappa))
    value = dblquad(
        lambda other, t: constant * math.exp(kappa * t) * 0.5 * math.log1p(math.exp(kappa * (other - t))),
        -1, 1, -1, 1, epsabs=1e-11,
    )[0]  # fmt: skip
    assert bayes.bayes_infonce_vmf(3, kappa, 1) == pytest.approx(value, abs=1e-10)


@pytest.mark.parametrize("dim", [2, 3, 10, 128, 10_000])
def test_nothing_to_learn_costs_the_logarithm_of_the_choices(dim):
    for negatives in (1, 16, 10**6):
        assert bayes.bayes_infonce_vmf(dim, 0, negatives) == pytest.approx(math.log1p(negatives), rel=1e-14)
        assert bayes.bayes_infonce_vmf(dim, 1e-6, negatives) == pytest.approx(math.log1p(negatives), rel=1e-11)


@pytest.mark.parametrize("dim", [2, 3, 10, 128])
def test_least_infonce_keeps_its_bounds_and_falls_with_concentration(dim):
    for negatives in (1, 16, 4096):
        values = [bayes.bayes_infonce_vmf(dim, kappa, negatives) for kappa in (0.1, 1.0, 10.0, 60.0)]
        assert values == sorted(values, reverse=True)
        assert 0 < values[-1] < values[0] < math.log1p(negatives)
        # the bound on mutual information, log(1 + M) − L ≤ I
        assert math.log1p(negatives) - values[-1] < sphere.vmf_kl_from_uniform(dim, 60.0)


def test_finer_quadrature_changes_nothing(monkeypatch):
    cases = [(10, 10.0, 1), (2, 100.0, 5), (128, 50.0, 1000), (10, 30.0, 10**9), (1000, 200.0, 1)]
    values = [bayes.bayes_infonce_vmf(*case) for case in cases]
    blocks = bayes.two_block_limit((3, 4), (2.0, 70.0))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    monkeypatch.setattr(bayes, "_STEP", 0.125)
    monkeypatch.setattr(bayes, "_NODES", nodes)
    monkeypatch.setattr(bayes, "_WEIGHTS", weights)
    np.testing.assert_allclose([bayes.bayes_infonce_vmf(*case) for case in cases], values, rtol=1e-13)
    assert bayes.two_block_limit((3, 4), (2.0, 70.0)).loss == pytest.approx(blocks.loss, rel=1e-13)


@pytest.mark.parametrize("negatives", [1, 16, 256])
def test_the_best_critic_has_the_true_concentration(negatives):
    best = minimize_scalar(
        lambda c: bayes.infonce_vmf(10, 10, 1 / c, negatives),
        bounds=(7, 14),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert best.x == pytest.approx(10, abs=1e-5)
    assert best.fun == pytest.approx(bayes.bayes_infonce_vmf(10, 10, negatives), rel=1e-12)


@pytest.mark.parametrize(
    ("dim", "kappa", "tau", "negatives"), [(2, 3.0, 0.5, 4), (10, 10.0, 0.1, 16), (5, 1.0, 0.2, 1)]
)
def test_quadrature_beside_monte_carlo(dim, kappa, tau, negatives):
    generator = np.random.default_rng(8)
    z = sample_uniform(20_000, dim, generator)
    right = np.sum(z * sample_vmf(z, kappa, generator), axis=1) / tau
    wrong = sample_uniform(20_000 * negatives, dim, generator).reshape(20_000, negatives, dim)
    estimate = bayes.bayes_infonce_monte_carlo(right, np.einsum("ij,ikj->ik", z, wrong) / tau)
    assert estimate.standard_error < 0.02
    exact = bayes.infonce_vmf(dim, kappa, tau, negatives)
    assert estimate.mean == pytest.approx(exact, abs=4 * estimate.standard_error)


def test_a_mismatched_critic_tends_to_its_limit():
    loss = bayes.infonce_vmf(10, 10, 0.25, 10**10) - math.log(10**10)
    assert loss == pytest.approx(sphere.infonce_limit(10, 10, 0.25).total, abs=1e-8)


def test_monte_carlo_ignores_what_depends_on_the_anchor_and_does_not_overflow():
    generator = np.random.default_rng(9)
    right, wrong = generator.standard_normal(50), generator.standard_normal((50, 7))
    plain = bayes.bayes_infonce_monte_carlo(right, wrong)
    losses = [math.log(1 + sum(math.exp(w - r) for w in row)) for r, row in zip(right, wrong, strict=True)]
    assert plain.mean == pytest.approx(np.mean(losses))
    assert plain.standard_error == pytest.approx(np.std(losses, ddof=1) / math.sqrt(50))
    shift = 1e4 * generator.standard_normal(50)
    assert bayes.bayes_infonce_monte_carlo(right + shift, wrong + shift[:, None]).mean == pytest.approx(plain.mean)
    assert bayes.bayes_infonce_monte_carlo([0.0, 0.0], [[5000.0], [-5000.0]]).mean == pytest.approx(2500)


def test_an_equal_metric_is_a_temperature():
    # −½ λ ‖x − z‖² has τ = 1/λ on the sphere; without the ½, as Eq. 3 of AnInfoNCE is printed, τ = 1/(2λ)
    generator = np.random.default_rng(10)
    z, x = sample_uniform(40, 6, generator), sample_uniform(40, 6, generator)
    square = np.sum((z[:, None] - x) ** 2, axis=2)
    for critic, tau in [(-0.5 * 3.7 * square, 1 / 3.7), (-3.7 * square, 1 / (2 * 3.7))]:
        losses = logsumexp(critic, axis=1) - np.diag(critic)
        cosine = z @ x.T / tau
        np.testing.assert_allclose(losses, logsumexp(cosine, axis=1) - np.diag(cosine), atol=1e-13)


# --- anisotropic positives ---


@pytest.mark.parametrize(
    ("truth", "loss", "moved"),
    [
        ((5.0, 25.0), -3.2757159199, (0.5660147644, 0.1740965191)),
        ((10.0, 50.0), -5.4876466871, (0.3503479313, 0.0914052167)),
    ],
)
def test_two_blocks_have_the_known_limit(truth, loss, moved):
    limit = bayes.two_block_limit((5, 5), truth)
    assert limit.loss == pytest.approx(loss, abs=3e-9)
    assert limit.displacement == pytest.approx(moved, abs=3e-9)
    swapped = bayes.two_block_limit((5, 5), truth[::-1])
    assert swapped.loss == pytest.approx(limit.loss, rel=1e-14)
    assert swapped.displacement == pytest.approx(limit.displacement[::-1], rel=1e-13)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (2, 1), (3, 7), (60, 68)])
@pytest.mark.parametrize("kappa", [1e-3, 2.0, 30.0, 500.0])
def test_equal_blocks_are_von_mises_fisher(sizes, kappa):
    limit = bayes.two_block_limit(sizes, (kappa, kappa))
    assert limit.loss == pytest.approx(-sphere.vmf_kl_from_uniform(sum(sizes), kappa), rel=1e-11, abs=1e-14)
    assert sum(limit.displacement) == pytest.approx(sphere.expected_alignment(sum(sizes), kappa), rel=1e-11)
    other = bayes.two_block_limit(sizes, (kappa, kappa), critic=(7.0, 7.0))
    assert other.loss == pytest.approx(sphere.infonce_limit(sum(sizes), kappa, 1 / 7).total, rel=1e-11, abs=1e-13)


def test_two_blocks_of_one_dimension_against_plain_quadrature():
    # on the circle: minus the mean divergence of e^{−½ ‖x − z‖²_Λ} from uniform, by adaptive quadrature and a grid
    first, second = 3.0, 20.0

    def energy(a, b):
        return (first * (np.cos(a) - np.cos(b)) ** 2 + second * (np.sin(a) - np.sin(b)) ** 2) / 2

    grid = np.arange(400) * 2 * math.pi / 400

    def minus_kl(a):
        weight = np.exp(-energy(a, grid))
        return float(weight @ energy(a, grid) / weight.sum() + math.log(weight.mean()))

    expected = quad(minus_kl, 0, 2 * math.pi, epsabs=1e-11)[0] / (2 * math.pi)
    assert bayes.two_block_limit((1, 1), (first, second)).loss == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("truth", "hard", "expected"),
    [
        ((5.0, 25.0), (0.0, 0.0), (5.0, 25.0)),
        ((10.0, 50.0), (0.0, 0.0), (10.0, 50.0)),
        ((30.0, 80.0), (10.0, 24.0), (20.0, 56.0)),
    ],
)
def test_the_best_metric_is_the_true_one_minus_that_of_hard_negatives(truth, hard, expected):
    best = minimize(
        lambda q: bayes.two_block_limit((5, 5), truth, (math.exp(q[0]), math.exp(q[1])), hard=hard).loss,
        np.log([8.0, 8.0]),
        options={"gtol": 1e-8},
    )
    np.testing.assert_allclose(np.exp(best.x), expected, rtol=1e-5)
    subtract = None if hard == (0.0, 0.0) else hard
    np.testing.assert_allclose(bayes.optimal_concentrations(truth, subtract), expected)
    assert bayes.two_block_limit((5, 5), truth, hard=hard).loss == pytest.approx(best.fun, abs=1e-9)


@pytest.mark.parametrize(
    ("truth", "best", "worse"), [((10.0, 50.0), 2 * 9.171, 1.0395), ((5.0, 25.0), 2 * 4.934, 0.8282)]
)
def test_the_best_single_temperature_leaves_a_gap(truth, best, worse):
    found = minimize_scalar(
        lambda c: bayes.two_block_limit((5, 5), truth, (c, c)).loss, bounds=(1, 60), method="bounded"
    )
    assert found.x == pytest.approx(best, abs=2e-3)
    assert found.fun - bayes.two_block_limit((5, 5), truth).loss == pytest.approx(worse, abs=5e-5)


def test_anisotropic_monte_carlo_beside_the_quadratures():
    generator = np.random.default_rng(11)
    equal = bayes.bayes_infonce_anisotropic([10.0] * 10, 16, 8000, generator)
    assert equal.mean == pytest.approx(bayes.bayes_infonce_vmf(10, 10, 16), abs=4 * equal.standard_error)
    many = bayes.bayes_infonce_anisotropic(ANISOTROPIC, 4000, 500, generator)
    limit = bayes.two_block_limit((5, 5), (5.0, 25.0)).loss + math.log(4000)
    assert many.standard_error < 0.1
    assert many.mean == pytest.approx(limit, abs=4 * many.standard_error)


def test_hard_negatives_cost_more_and_leave_less_to_learn():
    generator = np.random.default_rng(12)
    easy = bayes.bayes_infonce_anisotropic([30.0, 60.0, 60.0], 8, 3000, generator)
    hard = bayes.bayes_infonce_anisotropic([30.0, 60.0, 60.0], 8, 3000, generator, hard=[10.0, 20.0, 20.0])
    assert hard.mean > easy.mean + 10 * (hard.standard_error + easy.standard_error)
    many = bayes.bayes_infonce_anisotropic([30.0, 60.0, 60.0], 300, 1500, generator, hard=[10.0, 20.0, 20.0])
    limit = bayes.two_block_limit((1, 2), (30.0, 60.0), hard=(10.0, 20.0)).loss + math.log(300)
    assert many.mean == pytest.approx(limit, abs=4 * many.standard_error + 0.02)


def test_optimal_concentrations_are_a_copy():
    given = np.array([1.0, 2.0])
    out = bayes.optimal_concentrations(given)
    out[0] = 9
    assert given[0] == 1


# --- refusals ---

Z = np.eye(3)
ANY = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_uniform(0, 3, ANY), "count must be a whole number of at least 1, not 0"),
        (lambda: sample_uniform(3, 1, ANY), "dim must be a whole number of at least 2"),
        (lambda: sample_uniform(3, 2, 0), "generator must be a numpy.random.Generator, not 0"),
        (lambda: sample_vmf(2 * Z, 1.0, ANY), "anchors must have unit length: 2 at 0"),
        (lambda: sample_vmf(Z[0], 1.0, ANY), r"anchors must have two dimensions .* shape is \(3,\)"),
        (lambda: sample_vmf(np.ones((2, 1)), 1.0, ANY), "anchors must be vectors of at least two dimensions"),
        (lambda: sample_vmf(Z, -1.0, ANY), "concentration must be a finite number of zero or more"),
        (lambda: sample_anisotropic(Z, [1.0, 2.0], ANY), r"concentrations must have the shape \(3,\), not \(2,\)"),
        (lambda: sample_anisotropic(Z, [1.0, -2.0, 1.0], ANY), "concentrations must be above zero: -2 at 1"),
        (lambda: bayes.bayes_infonce_vmf(3, 1.0, 0), "negatives must be a whole number of at least 1"),
        (lambda: bayes.bayes_infonce_vmf(3, 5000.0, 4), "critics .* up to 1000, .* not 5000, 5000 and 3"),
        (lambda: bayes.infonce_vmf(3, 1.0, 1e-320, 4), "temperature must be large enough"),
        (lambda: bayes.infonce_vmf(3, 1e7, 1.0, 4), "concentrations up to 250000 .* not 1, 1e.07 and 3"),
        (lambda: bayes.infonce_vmf(3, 1.0, 0.0, 4), "temperature must be a finite number above zero"),
        (lambda: bayes.bayes_infonce_monte_carlo([0.0], [[1.0], [2.0]]), "each of the 1 positives, not 2"),
        (lambda: bayes.bayes_infonce_monte_carlo([0.0], [[1.0]]), "at least 2 anchors"),
        (lambda: bayes.bayes_infonce_monte_carlo([[0.0]], [[1.0]]), "positives must have one dimension"),
        (
            lambda: bayes.bayes_infonce_monte_carlo([0.0, 1.0], [[1.0], [math.inf]]),
            "negatives must be finite: inf at 1, 0",
        ),
        (lambda: bayes.bayes_infonce_anisotropic([1.0], 4, 9, ANY), "concentrations must have at least two dimensions"),
        (
            lambda: bayes.bayes_infonce_anisotropic([1.0, 2.0], 4, 1, ANY),
            "samples must be a whole number",
        ),
        (lambda: bayes.optimal_concentrations([5.0, 2.0], [1.0, 2.0]), "not positive definite: 0 at dimension 1"),
        (lambda: bayes.optimal_concentrations([5.0, 2.0], [7.0, 1.0]), "not positive definite: -2 at dimension 0"),
        (lambda: bayes.two_block_limit((5, 0), (1.0, 1.0)), "sizes must be a whole number of at least 1, not 0"),
        (lambda: bayes.two_block_limit((5, 5), (1.0,)), "concentrations must be two numbers, one for each block"),
        (lambda: bayes.two_block_limit((5, 5), (1.0, 1e6)), "concentrations and sizes up to 10000, not 1e.06"),
        (
            lambda: bayes.two_block_limit((5, 5), (1.0, 1.0), (-1.0, 1.0)),
            "critic must be a finite number of zero or more",
        ),
        (lambda: bayes.two_block_limit((5, 5), (1.0, 9.0), hard=(2.0, 1.0)), "not positive definite: -1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
