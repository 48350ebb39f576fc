"""Bounds: exact on a small discrete world, Gaussian closed forms against quadrature, determinants and Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from probssl.errors import InputError
from probssl.theory import bounds
from probssl.theory.bounds import (
    canonical_correlations,
    chi_squared_bound,
    donsker_varadhan_bound,
    gaussian_chi_squared,
    gaussian_donsker_varadhan,
    gaussian_kl,
    gaussian_mutual_information,
    gaussian_nwj,
    gaussian_renyi,
    gaussian_tuba,
    gaussian_uba,
    infonce_bound,
    infonce_ceiling,
    jensen_shannon_bound,
    log_normaliser_1d,
    log_softmax_bound,
    nce_limit,
    nce_loss,
    nce_loss_1d,
    nce_loss_at,
    nce_offset,
    nwj_bound,
    nwj_variance_floor,
    positives_and_negatives,
    renyi_bound,
    snl_normaliser,
    tuba_bound,
    tuba_gap,
    uba_bound,
)

DATA = np.array([[1.0, 0.3, -0.2], [0.3, 0.6, 0.1], [-0.2, 0.1, 1.5]])
NOISE = np.array([[0.30, 0.12, 0.0], [0.12, 0.20, 0.05], [0.0, 0.05, 0.40]])
LINE = {"data_variance": 1.0, "noise_variance": 0.5}  # I = ½ log 3 = 0.549306


# --- A discrete world, where averages over the population are exact ---------------------------------------------------

COUNTS = np.random.default_rng(3).integers(1, 9, size=(5, 4)) + 12 * np.eye(5, 4, dtype=int)
JOINT = COUNTS / COUNTS.sum()
PRODUCT = JOINT.sum(1, keepdims=True) * JOINT.sum(0, keepdims=True)
LOG_W = np.log(JOINT / PRODUCT)
INFORMATION = float(np.sum(JOINT * LOG_W))


def population(critic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair as often as it occurs, and for each anchor every x as often as it occurs: sample means are exact."""
    x, x_aug = (index.repeat(COUNTS.ravel()) for index in np.indices(COUNTS.shape).reshape(2, -1))
    others = np.arange(len(COUNTS)).repeat(COUNTS.sum(1))
    return critic[x, x_aug], critic[others[None, :], x_aug[:, None]]


def anchors(values: np.ndarray) -> np.ndarray:
    """One value for each x̃, as often as it occurs, in the order of `population`."""
    return values[np.indices(COUNTS.shape)[1].ravel().repeat(COUNTS.ravel())]


def partitions(critic: np.ndarray) -> np.ndarray:
    return special.logsumexp(critic, b=JOINT.sum(1, keepdims=True), axis=0)


def critics(count: int, size: float = 1.0, seed: int = 0) -> list[np.ndarray]:
    return list(size * np.random.default_rng(seed).standard_normal((count, *COUNTS.shape)))


def test_uba_falls_short_by_the_mean_kl_of_its_model():
    for critic in critics(20):
        positives, _ = population(critic)
        model = JOINT.sum(1, keepdims=True) * np.exp(critic - partitions(critic))  # q(x | x̃), columns sum to 1
        posterior = JOINT / JOINT.sum(0)
        gap = np.sum(JOINT * np.log(posterior / model))
        assert uba_bound(positives, anchors(partitions(critic))) == pytest.approx(INFORMATION - gap, abs=1e-13)


def test_uba_is_tight_at_the_log_likelihood_up_to_a_function_of_the_anchor():
    critic = np.log(JOINT / JOINT.sum(1, keepdims=True)) + np.array([3.0, -1.0, 0.5, 7.0])  # log p(x̃ | x) + c(x̃)
    positives, _ = population(critic)
    assert uba_bound(positives, anchors(partitions(critic))) == pytest.approx(INFORMATION, abs=1e-13)


def test_bounds_are_ordered_for_every_critic():
    for critic in critics(50, 2.0):
        positives, negatives = population(critic)
        uba = uba_bound(positives, anchors(partitions(critic)))
        chain = [nwj_bound(positives, negatives), donsker_varadhan_bound(positives, negatives), uba, INFORMATION]
        assert chain == sorted(chain)


def test_tuba_falls_short_of_uba_by_its_gap_and_is_minus_snl():
    rng = np.random.default_rng(1)
    for critic in critics(20):
        positives, negatives = population(critic)
        baseline = rng.standard_normal(COUNTS.shape[1])
        value = tuba_bound(positives, negatives, anchors(baseline))
        uba = uba_bound(positives, anchors(partitions(critic)))
        gap = tuba_gap(anchors(partitions(critic)), anchors(baseline))
        assert gap > 0
        assert value == pytest.approx(uba - gap, abs=1e-12)
        snl = np.sum(JOINT * (baseline - critic)) + np.sum(PRODUCT * np.exp(critic - baseline)) - 1
        assert value == pytest.approx(-snl, abs=1e-12)
        assert tuba_bound(positives, negatives, anchors(partitions(critic))) == pytest.approx(uba, abs=1e-12)


def test_donsker_varadhan_is_the_best_tuba_with_a_constant_baseline():
    positives, negatives = population(critics(1)[0])
    best = optimize.minimize_scalar(lambda a: -tuba_bound(positives, negatives, a))
    assert -best.fun == pytest.approx(donsker_varadhan_bound(positives, negatives), abs=1e-10)


def test_nwj_needs_the_constant_one_and_donsker_varadhan_does_not():
    for offset in (-1.0, 0.0, 1.0, 2.0):
        pairs = population(LOG_W + offset)
        lost = math.exp(offset - 1) - (offset - 1) - 1
        assert nwj_bound(*pairs) == pytest.approx(INFORMATION - lost, abs=1e-12)
        assert donsker_varadhan_bound(*pairs) == pytest.approx(INFORMATION, abs=1e-12)


def test_other_divergences_are_reached_at_the_density_ratio_and_nowhere_exceeded():
    mixture = (JOINT + PRODUCT) / 2
    shannon = (np.sum(JOINT * np.log(JOINT / mixture)) + np.sum(PRODUCT * np.log(PRODUCT / mixture))) / 2
    chi = np.sum((JOINT - PRODUCT) ** 2 / PRODUCT)
    assert jensen_shannon_bound(*population(LOG_W)) == pytest.approx(shannon, abs=1e-13)
    assert chi_squared_bound(*population(np.exp(LOG_W))) == pytest.approx(chi, abs=1e-12)
    for critic in critics(50, 0.3):
        assert jensen_shannon_bound(*population(LOG_W + critic)) < shannon
        assert chi_squared_bound(*population(np.exp(LOG_W) + critic)) < chi
    positives, negatives = population(LOG_W)
    loss = -np.mean(special.log_expit(positives)) - np.mean(special.log_expit(-negatives))
    assert loss == pytest.approx(2 * math.log(2) - 2 * shannon, abs=1e-13)  # the minimum of the binary loss
    spectral = np.mean(np.exp(negatives) ** 2) - 2 * np.mean(np.exp(positives))
    assert spectral == pytest.approx(-(1 + chi), abs=1e-12)  # the minimum of the spectral loss


@pytest.mark.parametrize("order", [-0.5, 0.3, 0.7, 1.5, 2.0, 3.0])
def test_renyi_is_reached_at_the_log_ratio_and_nowhere_exceeded(order):
    exact = math.log(np.sum(JOINT**order * PRODUCT ** (1 - order))) / (order * (order - 1))
    assert renyi_bound(*population(LOG_W + 4.0), order) == pytest.approx(exact, abs=1e-12)
    for critic in critics(30, 0.3):
        assert renyi_bound(*population(LOG_W + critic), order) < exact
    if order > 0:  # α R_α is the usual divergence, which grows with its order and passes I at 1
        assert (order * exact < INFORMATION) == (order < 1)


def test_renyi_of_order_one_is_donsker_varadhan():
    pairs = population(critics(1)[0])
    assert renyi_bound(*pairs, 1 + 1e-7) == pytest.approx(donsker_varadhan_bound(*pairs), abs=1e-6)


def one_negative(critic: np.ndarray) -> float:
    """E log softmax with one negative, enumerated over every pair and every negative."""
    pair = np.logaddexp(critic[:, None, :], critic[None, :, :])  # [x, other, x̃]
    log_softmax = critic[:, None, :] - pair
    return float(np.sum(JOINT[:, None, :] * JOINT.sum(1)[None, :, None] * log_softmax))


def test_the_best_infonce_critic_is_pointwise_information_up_to_a_function_of_the_anchor():
    positives, negatives = population(LOG_W)
    each = np.repeat(positives, negatives.shape[1]), negatives.reshape(-1, 1)
    best = one_negative(LOG_W)
    assert infonce_bound(*each) == pytest.approx(best + math.log(2), abs=1e-13)
    assert one_negative(LOG_W + np.array([3.0, -1.0, 0.5, 7.0])) == pytest.approx(best, abs=1e-14)
    assert all(one_negative(LOG_W + change) < best for change in critics(200, 0.05))
    assert best < log_softmax_bound(INFORMATION, 1)


# --- Sample bounds ----------------------------------------------------------------------------------------------------


def test_score_matrix_splits_by_anchor():
    scores = np.arange(9.0).reshape(3, 3)
    positives, negatives = positives_and_negatives(scores)
    assert positives.tolist() == [0, 4, 8]
    assert negatives.tolist() == [[3, 6], [1, 7], [2, 5]]  # row j: the other x_i of column j


def test_infonce_keeps_the_positive_and_so_its_ceiling():
    scores = np.random.default_rng(0).standard_normal((8, 8))
    loss = np.mean([np.log(np.exp(scores[:, i]).sum()) - scores[i, i] for i in range(8)])
    assert infonce_bound(*positives_and_negatives(scores)) == pytest.approx(math.log(8) - loss, abs=1e-14)
    assert infonce_bound(*positives_and_negatives(np.zeros((8, 8)))) == pytest.approx(0, abs=1e-15)
    separated = infonce_bound(*positives_and_negatives(100 * np.eye(8)))
    assert separated == pytest.approx(math.log(8), abs=1e-15) == infonce_ceiling(8)
    for size in (1, 10, 1000):
        assert infonce_bound(*positives_and_negatives(size * scores)) <= math.log(8)


def test_the_loss_without_the_positive_is_no_bound():
    # minus Siamese-EBM Eq. 15 with 1/n: 100.13 at a gap of 100, and 0.1335 for a collapsed critic
    for scores, expected in ((100 * np.eye(8), 100.1335), (np.zeros((8, 8)), 0.1335)):
        positives, negatives = positives_and_negatives(scores)
        without = np.mean(positives - np.log(np.exp(negatives).sum(1) / 8))
        assert without == pytest.approx(expected, abs=1e-4)
        assert without > infonce_bound(positives, negatives)


def gaussian_scores(correlation: float, dims: int, anchors: int, negatives: int, seed: int = 0) -> tuple:
    """log w of correlated normal pairs, and of each anchor with independent draws."""
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((anchors, 1, dims))
    own = correlation * v + math.sqrt(1 - correlation**2) * rng.standard_normal((anchors, 1, dims))
    u = np.concatenate([own, rng.standard_normal((anchors, negatives, dims))], axis=1)
    r2 = correlation**2
    log_w = (correlation * u * v - r2 * (u**2 + v**2) / 2) / (1 - r2) - math.log(1 - r2) / 2
    scores = log_w.sum(-1)
    return scores[:, 0], scores[:, 1:]


def error_bar(positives: np.ndarray, negatives: np.ndarray) -> float:
    scores = np.concatenate([positives[:, None], negatives], axis=1)
    return float(np.std(positives - special.logsumexp(scores, axis=1)) / math.sqrt(len(scores)))


@pytest.mark.parametrize(("n", "expected"), [(2, 0.243), (8, 0.464), (64, 0.534)])
def test_infonce_of_a_gaussian_pair_grows_towards_its_information(n, expected):
    pairs = gaussian_scores(math.sqrt(2 / 3), 1, 400_000 // n, n - 1)
    value, error = infonce_bound(*pairs), error_bar(*pairs)
    information = gaussian_mutual_information(1.0, 0.5)
    assert information == pytest.approx(0.549306, abs=5e-7)
    assert value == pytest.approx(expected, abs=0.01 + 4 * error)
    assert value < min(information, infonce_ceiling(n)) + 4 * error


def test_infonce_of_two_candidates_by_quadrature():
    nodes, weights = special.roots_hermitenorm(80)
    weights = weights / weights.sum()
    r = math.sqrt(2 / 3)
    v, noise, other = nodes[:, None, None], nodes[None, :, None], nodes[None, None, :]
    u = r * v + math.sqrt(1 - r**2) * noise

    def log_w(u):
        return (r * u * v - r**2 * (u**2 + v**2) / 2) / (1 - r**2)

    mean = np.einsum("i,j,k,ijk", weights, weights, weights, special.log_expit(log_w(u) - log_w(other)))
    pairs = gaussian_scores(r, 1, 400_000, 1)
    assert infonce_bound(*pairs) == pytest.approx(math.log(2) + mean, abs=4 * error_bar(*pairs))
    assert math.log(2) + mean == pytest.approx(0.238734163, abs=1e-8)


@pytest.mark.parametrize(
    ("k", "expected", "ceiling"),
    [(2, -0.562, -0.077), (4, -0.920, -0.588), (16, -1.923, -1.812), (64, -3.194, -3.153)],
)
def test_expected_log_softmax_stays_below_information_minus_log_of_all_candidates(k, expected, ceiling):
    information = gaussian_mutual_information(0.64 / 0.36 * np.eye(2), np.eye(2))  # correlation 0.8 twice
    assert information == pytest.approx(1.0217, abs=5e-5)
    assert log_softmax_bound(information, k) == pytest.approx(ceiling, abs=6e-4)
    pairs = gaussian_scores(0.8, 2, 600_000 // k, k)
    value = infonce_bound(*pairs) - infonce_ceiling(k + 1)
    assert value == pytest.approx(expected, abs=0.002 + 4 * error_bar(*pairs))
    assert value < log_softmax_bound(information, k)


def test_log_softmax_bound_is_never_positive():
    assert log_softmax_bound(10.0, 3) == 0.0


def test_nwj_has_the_variance_of_its_density_ratio():
    information = gaussian_mutual_information(0.5, 1.0)
    _, negatives = gaussian_scores(math.sqrt(1 / 3), 1, 200_000, 5)
    variance = np.var(np.exp(negatives))
    assert variance == pytest.approx(gaussian_chi_squared(0.5, 1.0), rel=0.05)
    assert gaussian_chi_squared(0.5, 1.0) == pytest.approx(math.expm1(2 * information))
    assert nwj_variance_floor(information, 5) == pytest.approx(math.expm1(information) / 5)
    assert nwj_variance_floor(information, 5) <= variance / 5
    chi = np.sum((JOINT - PRODUCT) ** 2 / PRODUCT)
    assert nwj_variance_floor(INFORMATION, 1) <= chi
    assert nwj_variance_floor(1e4, 1) == math.inf


# --- Gaussian closed forms --------------------------------------------------------------------------------------------


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


# --- NCE and SNL ------------------------------------------------------------------------------------------------------


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


def test_nce_offset_of_a_batch():
    assert nce_offset(1 / 256) == pytest.approx(-5.541263545, abs=5e-10) == -math.log(255)
    assert nce_offset(0.5) == 0.0


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


# --- Refusals ---------------------------------------------------------------------------------------------------------

FLAT, ROWS = np.zeros(3), np.zeros((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: positives_and_negatives(np.zeros((2, 3))), "square"),
        (lambda: positives_and_negatives([[1.0]]), "at least 2"),
        (lambda: positives_and_negatives([["a", "b"], ["c", "d"]]), "array of numbers"),
        (lambda: uba_bound(FLAT, np.zeros(2)), "2 log partitions for 3"),
        (lambda: tuba_bound(FLAT, ROWS, np.zeros(2)), "one per anchor"),
        (lambda: tuba_bound(FLAT, ROWS, math.nan), "log baseline must be finite"),
        (lambda: tuba_gap([0.0, math.inf], 0.0), r"index \[1\]"),
        (lambda: nwj_bound(FLAT, FLAT), "2 dimension"),
        (lambda: nwj_bound(FLAT, np.zeros((2, 2))), "3 positives"),
        (lambda: donsker_varadhan_bound([], ROWS), "not be empty"),
        (lambda: infonce_bound([0, 1, math.nan], ROWS), "positives must be finite"),
        (lambda: infonce_ceiling(0), "candidates"),
        (lambda: infonce_ceiling(2.5), "whole number"),
        (lambda: log_softmax_bound(-1.0, 3), "mutual information"),
        (lambda: log_softmax_bound(1.0, True), "negatives"),
        (lambda: nwj_variance_floor(1.0, 0), "negatives"),
        (lambda: renyi_bound(FLAT, ROWS, 1), "limits"),
        (lambda: renyi_bound(FLAT, ROWS, "two"), "order"),
        (lambda: gaussian_mutual_information(DATA, np.eye(2)), "alike in size"),
        (lambda: gaussian_mutual_information(np.eye(2), np.diag([1.0, 0.0])), "noise covariance must be positive"),
        (lambda: gaussian_mutual_information(np.diag([1.0, -0.1]), np.eye(2)), "negative eigenvalues"),
        (lambda: gaussian_mutual_information(-1.0, 1.0), "negative eigenvalues"),
        (lambda: gaussian_mutual_information([[1.0, 0.5], [0.0, 1.0]], np.eye(2)), "symmetric"),
        (lambda: gaussian_mutual_information(np.zeros(3), np.eye(3)), "square"),
        (lambda: gaussian_uba(1.0, 1.0, math.nan), "scale"),
        (lambda: gaussian_tuba(1.0, 1.0, 1.0, math.inf), "offset"),
        (lambda: gaussian_renyi(1.0, 1.0, math.inf), "order"),
        (lambda: gaussian_kl([0.0, 1.0], np.eye(2), [0.0], np.eye(3)), "agree in size"),
        (lambda: nce_loss(FLAT, ROWS, 0.0), "ratio must be a finite number above 0"),
        (lambda: nce_offset(1.0), "strictly between"),
        (lambda: nce_offset(0.0), "prior"),
        (lambda: nce_limit(math.nan, 0.0), "mean energy"),
        (lambda: nce_loss_1d(1.0, data_variance=0.0, noise_variance=1.0, precision=1.0), "data variance"),
        (lambda: nce_loss_1d(1.0, data_variance=1.0, noise_variance=1.0, precision=-1.0), "precision"),
        (lambda: nce_loss_at(math.inf, 0.0, 1.0, precision=1.0, **LINE), "anchor"),
        (lambda: snl_normaliser(math.nan, 0.0), "log normaliser"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_every_public_function_says_what_it_computes():
    for name, value in vars(bounds).items():
        if callable(value) and getattr(value, "__module__", "") == bounds.__name__ and not name.startswith("_"):
            assert value.__doc__
