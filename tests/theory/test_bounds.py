"""Bounds from a critic's values: exact on a small discrete world, and against quadrature for Gaussian pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special

from probssl.errors import InputError
from probssl.theory.bounds import (
    chi_squared_bound,
    donsker_varadhan_bound,
    infonce_bound,
    infonce_ceiling,
    infonce_losses,
    jensen_shannon_bound,
    log_softmax_bound,
    nwj_bound,
    nwj_variance_floor,
    positives_and_negatives,
    renyi_bound,
    tuba_bound,
    tuba_gap,
    uba_bound,
)
from probssl.theory.gaussian import gaussian_chi_squared, gaussian_mutual_information

from .small_worlds import (
    COUNTS,
    INFORMATION,
    JOINT,
    LOG_W,
    PRODUCT,
    anchors,
    critics,
    gaussian_scores,
    partitions,
    population,
)

# --- A discrete world, where averages over the population are exact ---------------------------------------------------


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


def test_infonce_losses_are_never_negative_and_cost_little_when_right():
    scores = np.random.default_rng(0).standard_normal((8, 8))
    positives, negatives = positives_and_negatives(scores)
    by_hand = [math.log(np.exp(scores[:, i]).sum()) - scores[i, i] for i in range(8)]
    assert infonce_losses(positives, negatives) == pytest.approx(by_hand, abs=1e-14)
    assert infonce_losses([50.0], [[0.0]])[0] == pytest.approx(math.exp(-50), rel=1e-12)  # where 1 − softmax is lost


# --- Refusals ---------------------------------------------------------------------------------------------------------

FLAT, ROWS = np.zeros(3), np.zeros((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: positives_and_negatives(np.zeros((2, 3))), "square"),
        (lambda: positives_and_negatives([[1.0]]), "at least 2"),
        (lambda: positives_and_negatives([["a", "b"], ["c", "d"]]), "scores must be an array of numbers, not of <U1"),
        (lambda: uba_bound(FLAT, np.zeros(2)), r"log partitions must have the shape \(3,\), not \(2,\)"),
        (lambda: tuba_bound(FLAT, ROWS, np.zeros(2)), "one for each anchor"),
        (lambda: tuba_bound(FLAT, ROWS, math.nan), "log baseline must be finite: nan"),
        (lambda: tuba_gap([0.0, math.inf], 0.0), "log partitions must be finite: inf at 1"),
        (lambda: tuba_gap([0.0, 1.0], [0.0, 1.0, 2.0]), "one for each anchor"),
        (lambda: nwj_bound(FLAT, FLAT), "negatives must have two dimensions"),
        (lambda: nwj_bound(FLAT, np.zeros((2, 2))), "each of the 3 positives, not 2"),
        (lambda: donsker_varadhan_bound([], ROWS), "not be empty"),
        (lambda: infonce_bound([0, 1, math.nan], ROWS), "positives must be finite: nan at 2"),
        (lambda: infonce_ceiling(0), "candidates"),
        (lambda: infonce_ceiling(2.5), "whole number"),
        (lambda: log_softmax_bound(-1.0, 3), "mutual information must be a finite number of zero or more, not -1.0"),
        (lambda: log_softmax_bound(1.0, True), "negatives"),
        (lambda: nwj_variance_floor(1.0, 0), "negatives"),
        (lambda: renyi_bound(FLAT, ROWS, 1), "limits"),
        (lambda: renyi_bound(FLAT, ROWS, "two"), "order"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)
