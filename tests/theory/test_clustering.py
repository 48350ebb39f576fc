"""Clustering: minima by optimisation over predictions, the table of failures by exhibiting each one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, special

from probssl.errors import InputError
from probssl.theory.bounds import infonce_bound, infonce_ceiling, positives_and_negatives
from probssl.theory.clustering import (
    ADMITS,
    AGREEMENT_BELOW,
    CLUSTERS_BELOW,
    CONSTANT_BELOW,
    EXCLUDED_TOGETHER,
    FAILURE_MODES,
    INVARIANCE_MINIMUM,
    clustering_minimum,
    collapsed_minimum,
    diagnose_clustering,
    invariance_term,
    learnt_prior_minimum,
    learnt_prior_term,
    open_failure_modes,
    prior_minimum,
    prior_term,
    proto_cpc,
)


def predictions(n: int, c: int, sharpness: float = 1.0, seed: int = 0) -> np.ndarray:
    return special.softmax(sharpness * np.random.default_rng(seed).standard_normal((n, c)), axis=1)


def balanced(n: int, c: int) -> np.ndarray:
    return np.eye(c)[np.arange(n) % c]


# --- Terms and their minima -------------------------------------------------------------------------------------------


def test_terms_against_loops():
    p, q = predictions(7, 3), predictions(7, 3, seed=1)
    invariance = np.mean([-sum(q[i, y] * math.log(p[i, y]) for y in range(3)) for i in range(7)])
    assert invariance_term(p, q) == pytest.approx(invariance, abs=1e-14)
    prior = [0.2, 0.5, 0.3]
    by_hand = -sum(prior[y] * math.log(sum(p[i, y] for i in range(7)) / 7) for y in range(3))
    assert prior_term(p, prior) == pytest.approx(by_hand, abs=1e-14)
    assert prior_term(p) == pytest.approx(prior_term(p, np.full(3, 1 / 3)), abs=1e-15)


@pytest.mark.parametrize(("c", "minimum"), [(2, 0.693147), (10, 2.302585), (100, 4.605170)])
def test_balanced_one_hot_predictions_reach_both_minima(c, minimum):
    p = balanced(4 * c, c)
    assert prior_minimum(c) == pytest.approx(minimum, abs=5e-7)
    assert invariance_term(p, p) == 0.0 == INVARIANCE_MINIMUM
    assert prior_term(p) == pytest.approx(prior_minimum(c), abs=1e-14)
    assert clustering_minimum(c, 50.0, 10.0) == pytest.approx(10 * math.log(c))
    assert -40 * prior_minimum(10) == pytest.approx(-92.1034, abs=5e-5)  # the sum over 40 inputs of Eq. 4


def test_minimum_under_an_uneven_prior_is_its_entropy():
    prior = np.array([0.5, 0.25, 0.25])
    p = np.eye(3)[[0, 0, 1, 2]]
    assert prior_minimum(prior) == pytest.approx(1.5 * math.log(2))
    assert prior_term(p, prior) == pytest.approx(prior_minimum(prior), abs=1e-15)
    assert prior_minimum([1.0, 0.0]) == 0.0


def test_no_predictions_do_better_and_only_balanced_one_hot_ones_do_as_well():
    for seed in range(200):
        p = predictions(6, 3, sharpness=10 ** np.random.default_rng(seed).uniform(-1, 1.5), seed=seed)
        q = predictions(6, 3, sharpness=3.0, seed=seed + 1000)
        for augmented in (p, q):
            assert invariance_term(p, augmented) + prior_term(p) > math.log(3)
    unbalanced = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    assert invariance_term(unbalanced, unbalanced) + prior_term(unbalanced) > math.log(3) + 0.05


def test_descent_on_logits_finds_the_minimum():
    def loss(flat: np.ndarray) -> float:
        p = special.softmax(flat.reshape(4, 2), axis=1)
        return invariance_term(p, p) + 0.5 * prior_term(p)

    starts = np.random.default_rng(0).standard_normal((5, 8))
    best = min(optimize.minimize(loss, 3 * start, method="BFGS").fun for start in starts)
    assert best == pytest.approx(clustering_minimum(2, 1.0, 0.5), abs=1e-4)


def test_the_prior_term_is_the_cross_entropy_with_a_product_of_means():
    # The auxiliary law of labels is Π_i p̄(y_i), which sums to 1; the printed mean of p(y_j | x_j) sums to c^(n − 1).
    p, n, c = predictions(3, 3), 3, 3
    labels = list(itertools.product(range(c), repeat=n))
    product = [math.prod(p.mean(0)[y] for y in ys) for ys in labels]
    printed = [np.mean([p[j, y] for j, y in enumerate(ys)]) for ys in labels]
    assert sum(product) == pytest.approx(1)
    assert sum(printed) == pytest.approx(c ** (n - 1)) == 9
    assert n * prior_term(p) == pytest.approx(-np.mean(np.log(product)), abs=1e-13)
    assert n * prior_term(p) != pytest.approx(-np.mean(np.log(printed)), abs=1.0)


@pytest.mark.parametrize(("leak", "expected"), [(1e-2, 6.12), (1e-4, 10.27), (1e-8, 18.56)])
def test_the_prior_term_grows_without_bound_as_one_cluster_takes_all(leak, expected):
    p = np.full((5, 10), leak / 9)
    p[:, 3] = 1 - leak
    assert prior_term(p) == pytest.approx(expected, abs=5e-3)
    assert prior_term(np.eye(10)[[3, 3, 3]]) == math.inf
    assert prior_term(np.eye(10)[[3]]) == math.inf


def test_equal_logits_are_neither_needed_nor_enough_for_invariance():
    unsure = special.softmax(np.zeros((1, 2)), axis=1)
    assert invariance_term(unsure, unsure) == pytest.approx(0.693147, abs=5e-7)
    p, q = special.softmax([[63.0, 3.0]], axis=1), special.softmax([[50.0, 0.0]], axis=1)
    assert invariance_term(p, q) == pytest.approx(1.2e-20, rel=0.05)


# --- Collapse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "weights", "collapsed", "free"),
    [(2, (1, 1), 1.38629, 0.69315), (2, (50, 10), 24.404, 6.931), (10, (50, 25), 128.748, 57.565)],
)
def test_a_constant_encoder_cannot_reach_the_minimum_of_both_terms(c, weights, collapsed, free):
    best = collapsed_minimum(c, *weights)
    assert best.value == pytest.approx(collapsed, abs=6e-4)
    assert clustering_minimum(c, *weights) == pytest.approx(free, abs=6e-4)
    constant = np.tile(best.prediction, (5, 1))
    value = weights[0] * invariance_term(constant, constant) + weights[1] * prior_term(constant)
    assert value == pytest.approx(best.value, rel=1e-12)


@pytest.mark.parametrize("c", [2, 3, 4, 10])
@pytest.mark.parametrize("weights", [(1, 1), (5, 1), (1, 5), (1, 1.05), (1, 1.3), (2, 1.9), (0.01, 1), (100, 1)])
def test_collapsed_minimum_against_descent_over_all_constant_predictions(c, weights):
    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        log_s = special.log_softmax(logits)
        s = np.exp(log_s)
        value = -weights[0] * s @ log_s - weights[1] * log_s.mean()
        slope = -weights[0] * s * (log_s - s @ log_s) + weights[1] * (s - 1 / c)
        return value, slope

    starts = np.random.default_rng(0).standard_normal((30, c)) * 3
    best = min(optimize.minimize(loss, start, jac=True, method="BFGS").fun for start in starts)
    assert collapsed_minimum(c, *weights).value == pytest.approx(best, rel=1e-7)
    assert collapsed_minimum(c, *weights).value > clustering_minimum(c, *weights) + 1e-3


def test_the_collapsed_prediction_is_uniform_only_when_the_prior_weighs_more():
    assert collapsed_minimum(2, 1, 1).prediction == pytest.approx([0.5, 0.5])
    assert collapsed_minimum(10, 1, 3).prediction == pytest.approx(np.full(10, 0.1))
    for c, weights in ((2, (1.01, 1)), (3, (1, 1)), (10, (1, 1)), (10, (1, 1.05))):
        s = collapsed_minimum(c, *weights).prediction
        assert s[0] > 1 / c + 0.05
        assert s.sum() == pytest.approx(1)
        assert s[1:] == pytest.approx(np.full(c - 1, s[1]))


@pytest.mark.parametrize("weights", [(1e3, 1.0), (1e14, 1.0), (1e100, 1e-100), (1e100, 1e100), (1e-100, 1e-100)])
def test_collapsed_minimum_keeps_its_digits_under_extreme_weights(weights):
    best = collapsed_minimum(10, *weights)
    other = float(best.prediction[1])
    log_first, log_other = math.log1p(-9 * other), math.log(other)
    entropy = -math.exp(log_first) * log_first - 9 * other * log_other
    by_hand = weights[0] * entropy - weights[1] * (log_first + 9 * log_other) / 10
    assert best.value == pytest.approx(by_hand, rel=1e-12)


def test_each_term_alone_admits_collapse():
    assert collapsed_minimum(5, 1.0, 0.0).value == 0.0 == clustering_minimum(5, 1.0, 0.0)
    assert collapsed_minimum(5, 1.0, 0.0).prediction.tolist() == [1, 0, 0, 0, 0]
    assert collapsed_minimum(5, 0.0, 1.0).value == pytest.approx(math.log(5)) == clustering_minimum(5, 0.0, 1.0)


# --- The table --------------------------------------------------------------------------------------------------------


def test_the_table_is_that_of_theorem_1():
    assert {term: set(modes) for term, modes in ADMITS.items()} == {
        "generative": {"cluster", "label"},
        "invariance": {"representation", "cluster"},
        "prior": {"representation", "label"},
    }
    reasons = [reason for modes in (*ADMITS.values(), *EXCLUDED_TOGETHER.values()) for reason in modes.values()]
    assert all(reason and not reason.endswith(".") for reason in reasons)


@pytest.mark.parametrize(
    ("terms", "left_open"),
    [
        (["generative"], {"cluster", "label"}),
        (["invariance"], {"representation", "cluster"}),
        (["prior"], {"representation", "label"}),
        (["generative", "invariance"], {"cluster"}),
        (["generative", "prior"], {"label"}),
        (["invariance", "prior"], set()),  # Theorem 1 read term by term would leave representation collapse open
        (["generative", "invariance", "prior"], set()),
    ],
)
def test_open_failure_modes(terms, left_open):
    modes = open_failure_modes(terms)
    assert set(modes) == left_open
    assert modes == open_failure_modes(iter([*terms, *terms]))
    for mode, reason in modes.items():
        assert mode in FAILURE_MODES
        assert all(ADMITS[term][mode] in reason for term in terms)


def test_each_admitted_failure_attains_the_minimum_of_its_term_and_each_other_one_does_not():
    n, c = 12, 3
    right = balanced(n, c)
    swapped = right[np.random.default_rng(0).permutation(n)]
    one_cluster = np.eye(c)[np.zeros(n, dtype=int)]
    uniform = np.full((n, c), 1 / c)
    assert invariance_term(one_cluster, one_cluster) == 0  # representation, cluster
    assert prior_term(uniform) == pytest.approx(math.log(c))  # representation
    assert prior_term(swapped) == prior_term(right)  # label
    assert invariance_term(right, swapped) == math.inf
    assert prior_term(one_cluster) == math.inf
    # the density sees logsumexp, whichever cluster carries it
    logits = np.random.default_rng(0).standard_normal((n, c))
    carried = special.logsumexp(logits, axis=1, keepdims=True) + np.array([0.0, -800.0, -800.0])
    assert special.logsumexp(carried, axis=1) == pytest.approx(special.logsumexp(logits, axis=1), abs=1e-14)


# --- ProtoCPC ---------------------------------------------------------------------------------------------------------


def test_protocpc_below_infonce_below_its_ceiling():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        n, c = int(rng.integers(2, 12)), int(rng.integers(2, 6))
        teacher, student = predictions(n, c, 3.0, seed), rng.standard_normal((n, c)) * 4
        scores = teacher @ student.T  # [k, i]: teacher of x_k, student of the anchor x_i
        infonce = infonce_bound(*positives_and_negatives(scores))
        assert proto_cpc(teacher, student) <= infonce + 1e-12
        assert infonce <= infonce_ceiling(n)
        mean = teacher.mean(0)
        by_hand = np.mean([teacher[i] @ student[i] - math.log(mean @ np.exp(student[i])) for i in range(n)])
        assert proto_cpc(teacher, student) == pytest.approx(by_hand, abs=1e-12)


# --- Diagnosis --------------------------------------------------------------------------------------------------------


def test_a_right_clustering_is_healthy():
    p = balanced(60, 3)
    diagnosis = diagnose_clustering(p, p)
    assert diagnosis.healthy
    assert diagnosis.failures == {}
    assert (diagnosis.invariance, diagnosis.agreement, diagnosis.certainty) == (INVARIANCE_MINIMUM, 1, 1)
    assert diagnosis.prior_gap == pytest.approx(0, abs=1e-14)
    assert diagnosis.spread == pytest.approx(2 / 3)
    assert diagnosis.largest_share == pytest.approx(1 / 3)


def test_each_failure_is_named():
    rng = np.random.default_rng(0)
    right = 0.97 * balanced(300, 3) + 0.01
    constant = np.tile([0.6, 0.3, 0.1], (300, 1))
    one_cluster = 0.998 * np.eye(3)[np.zeros(300, dtype=int)] + 0.002 / 3
    assert set(diagnose_clustering(right, right).failures) == set()
    assert set(diagnose_clustering(constant, constant).failures) == {"representation"}
    assert set(diagnose_clustering(one_cluster, one_cluster).failures) == {"cluster"}
    assert set(diagnose_clustering(right, right[rng.permutation(300)]).failures) == {"label"}
    assert "the largest has 99.9%, 1 are in use" in diagnose_clustering(one_cluster, one_cluster).failures["cluster"]
    for value in (right, constant, one_cluster):
        for mode, sentence in diagnose_clustering(value, value).failures.items():
            assert sentence.startswith(FAILURE_MODES[mode])


def test_a_collapse_shows_in_the_gaps():
    best = collapsed_minimum(10, 50, 25)
    p = np.tile(best.prediction, (20, 1))
    diagnosis = diagnose_clustering(p, p)
    total = 50 * (diagnosis.invariance - INVARIANCE_MINIMUM) + 25 * diagnosis.prior_gap
    assert total == pytest.approx(128.748 - 57.565, abs=1e-3)
    assert not diagnosis.healthy


def test_a_few_inputs_that_change_cluster_are_no_inconsistency():
    p = balanced(100, 2)
    for moved, inconsistent in ((10, False), (40, True)):
        q = p.copy()
        q[:moved] = q[:moved, ::-1]
        diagnosis = diagnose_clustering(p, q)
        assert ("label" in diagnosis.failures) is inconsistent
        assert diagnosis.agreement == pytest.approx(1 - moved / 100 / 0.5, rel=0.05)


def test_predictions_that_nothing_decides_are_inconsistent_though_no_augmentation_changes_them():
    unsure = 0.5 + 0.2 * (2 * balanced(100, 2) - 1)
    diagnosis = diagnose_clustering(unsure, unsure)
    assert diagnosis.prior_gap == pytest.approx(0, abs=1e-14)
    assert diagnosis.agreement == pytest.approx((2 * 0.2) ** 2, rel=0.1)  # 0.58 of drawn labels agree, 0.5 by chance
    assert diagnosis.certainty == diagnosis.agreement
    assert set(diagnosis.failures) == {"label"}


def test_agreement_is_cohens_kappa_of_drawn_labels():
    p, q = predictions(15, 4, 2.0), predictions(15, 4, 2.0, seed=1)
    same = p @ q.T
    by_chance = (same.sum() - np.trace(same)) / (15 * 14)
    expected = (np.trace(same) / 15 - by_chance) / (1 - by_chance)
    assert diagnose_clustering(p, q).agreement == pytest.approx(expected, abs=1e-12)
    one = np.eye(4)[np.zeros(15, dtype=int)]
    assert diagnose_clustering(one, one).agreement == 1
    even = np.full((15, 4), 0.25)
    assert diagnose_clustering(even, even).agreement == pytest.approx(0, abs=1e-12)


def test_thresholds_are_where_the_docs_say():
    for most, named in ((88, False), (89, True)):
        p = np.eye(2)[[0] * most + [1] * (100 - most)]
        assert ("cluster" in diagnose_clustering(p, p).failures) is named
        assert diagnose_clustering(p, p, p.mean(0)).healthy, "its prior asks for it"
        assert ("cluster" in diagnose_clustering(p, p, price=2.0).failures) is named
    for used, named in ((3, True), (4, False)):
        p = np.eye(10)[np.arange(120) % used]
        assert ("cluster" in diagnose_clustering(p, p).failures) is named
        assert diagnose_clustering(p, p).used == pytest.approx(used)
    assert CLUSTERS_BELOW == 0.5
    for width, named in ((0.9 * CONSTANT_BELOW, True), (1.1 * CONSTANT_BELOW, False)):
        p = np.tile([0.5, 0.5], (10, 1)) + width * np.outer([1, -1] * 5, [1, -1])
        assert ("representation" in diagnose_clustering(p, p).failures) is named
    assert AGREEMENT_BELOW == 1 / 3


@pytest.mark.parametrize("price", [1.5, 2.0, 10.0])
def test_a_learnt_prior_is_the_best_of_all_priors(price):
    p = predictions(30, 4, 2.0)
    mean = p.mean(0)

    def loss(logits):
        prior = special.softmax(logits)
        return -np.sum(prior * np.log(mean)) + price * np.sum(prior * np.log(prior))

    assert learnt_prior_term(p, price) == pytest.approx(optimize.minimize(loss, np.zeros(4)).fun, abs=1e-6)
    assert learnt_prior_term(balanced(40, 4), price) == pytest.approx(learnt_prior_minimum(4, price))
    one = np.eye(4)[np.zeros(40, dtype=int)]
    diagnosis = diagnose_clustering(one, one, price=price)
    assert set(diagnosis.failures) == {"cluster"}
    assert diagnosis.prior_gap == pytest.approx((price - 1) * math.log(4))
    few = np.eye(4)[np.arange(40) % 2]  # half of the clusters empty, which a learnt prior allows
    assert diagnose_clustering(few, few, price=price).healthy


def test_uneven_prior_and_single_precision():
    p = np.eye(3)[[0, 0, 1, 2]]
    assert diagnose_clustering(p, p, [0.5, 0.25, 0.25]).prior_gap == pytest.approx(0, abs=1e-15)
    assert diagnose_clustering(p, p).prior_gap > 0.05
    soft = predictions(50, 10).astype(np.float32)
    assert diagnose_clustering(soft, soft).prior == pytest.approx(prior_term(soft))


# --- Refusals ---------------------------------------------------------------------------------------------------------

GOOD = np.full((3, 2), 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: open_failure_modes([]), "at least one of generative, invariance, prior"),
        (lambda: open_failure_modes(["invariance", "contrast"]), "not 'contrast'"),
        (lambda: invariance_term(GOOD, GOOD[:2]), r"augmented predictions must have the shape \(3, 2\)"),
        (lambda: invariance_term(GOOD[0], GOOD[0]), "two dimensions"),
        (lambda: invariance_term(GOOD * 1.1, GOOD), "predictions must sum to 1 over clusters: 1.1 at 0"),
        (
            lambda: invariance_term(GOOD, [[1.5, -0.5]] * 3),
            "augmented predictions must not be negative: -0.5 at 0, 1",
        ),
        (lambda: prior_term(np.full((2, 2), math.nan)), "predictions must be finite: nan at 0, 0"),
        (lambda: prior_term([["a", "b"]]), "array of numbers"),
        (lambda: prior_term(np.ones((4, 1))), "at least two clusters"),
        (lambda: prior_term(GOOD, [0.2, 0.3, 0.5]), "prior must have the 2 clusters of the predictions, not 3"),
        (lambda: prior_minimum(1), "clusters"),
        (lambda: prior_minimum([0.5, 0.6]), "prior"),
        (lambda: clustering_minimum(3, -1.0, 1.0), "invariance weight"),
        (lambda: clustering_minimum(3, 1.0, math.inf), "prior weight"),
        (lambda: collapsed_minimum(3, 0.0, 0.0), "above zero"),
        (lambda: collapsed_minimum(3, 1e308, 1.0), r"invariance weight must be 0 or lie between .* not 1e\+308"),
        (lambda: collapsed_minimum(3, 1.0, 1e-310), "prior weight must be 0 or lie between 1e-100"),
        (lambda: collapsed_minimum(2.5), "clusters"),
        (lambda: collapsed_minimum(True), "clusters"),
        (lambda: proto_cpc(GOOD, np.zeros((2, 2))), "student"),
        (lambda: diagnose_clustering(GOOD[:1], GOOD[:1]), "at least 2 rows"),
        (lambda: diagnose_clustering(GOOD, GOOD, [1.0]), "prior"),
        (lambda: diagnose_clustering(GOOD, GOOD, [0.5, 0.5], price=2.0), "given or learnt at a price, not both"),
        (lambda: learnt_prior_term(GOOD, 1.0), "price of a learnt prior must be above 1 and finite, not 1.0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)
