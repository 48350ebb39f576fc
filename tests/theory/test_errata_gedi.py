"""GEDI: printed formulas beside the right ones, against enumeration, autograd, quadrature and optimisation.

docs/errata.md tells what each test is about. Everything is float64 unless a test is about float32.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch.distributions import MultivariateNormal, kl_divergence

PAIRS = [(a, b) for a in range(10) for b in range(10) if a + b <= 9]


def cross_entropy(p, q):
    return -np.sum(special.xlogy(p, q), axis=-1)


def entropy(p):
    return cross_entropy(p, p)


# --- the two clustering terms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clusters", "floor"), [(2, 0.693147), (10, 2.302585), (100, 4.605170)])
def test_losses_are_positive_means_to_minimise(clusters, floor):
    def terms(p, p_aug):
        return cross_entropy(p_aug, p).mean(), cross_entropy(np.full(clusters, 1 / clusters), p.mean(0))

    best = np.eye(clusters)[np.arange(4 * clusters) % clusters]
    assert terms(best, best) == (pytest.approx(0, abs=1e-12), pytest.approx(floor, abs=1e-6))
    rng = np.random.default_rng(0)
    for sharpness in (0.1, 1, 10):
        p, p_aug = special.softmax(sharpness * rng.normal(size=(2, 40, clusters)), axis=-1)
        invariance, prior = terms(p, p_aug)
        assert invariance > 0
        assert prior > floor - 1e-12
        # The underbraces of Eq. 3 call these positive sums L_INV and L_PRIOR, which breaks Eq. 4 ...
        assert 40 * (invariance + prior) > -40 * np.log(clusters)
        # ... while minus the sums, as in Eq. 30 and 33, satisfies it. The bound is for n labels: −n ln c.
        assert -40 * (invariance + prior) <= -40 * np.log(clusters)
    if clusters == 10:
        assert -40 * np.log(clusters) == pytest.approx(-92.1034, abs=1e-4)


def test_auxiliary_distribution_is_a_product_of_means():
    n = c = 3
    p = np.random.default_rng(0).dirichlet(np.ones(c), size=n)
    prior = np.full(c, 1 / c)
    labellings = list(itertools.product(range(c), repeat=n))
    printed = np.array([np.mean([p[j, y[j]] for j in range(n)]) for y in labellings])
    right = np.array([np.prod([p.mean(0)[label] for label in y]) for y in labellings])
    assert printed.sum() == pytest.approx(c ** (n - 1))  # 9: not a distribution
    assert right.sum() == pytest.approx(1)
    weight = np.prod([[prior[label] for label in y] for y in labellings], axis=1)
    of_equation_27 = n * prior @ np.log(p.mean(0))
    assert weight @ np.log(right) == pytest.approx(of_equation_27, abs=1e-12)
    assert weight @ np.log(printed) > of_equation_27 + 1


@pytest.mark.parametrize(
    ("clusters", "weights", "collapsed", "free"),
    [(2, (1, 1), 1.38629, 0.69315), (2, (50, 10), 24.404, 6.931), (10, (50, 25), 128.748, 57.565)],
)
def test_the_clustering_terms_together_exclude_collapse(clusters, weights, collapsed, free):
    uniform = np.full(clusters, 1 / clusters)

    def constant_encoder(logits):  # every x gets the same prediction s
        s = special.softmax(logits)
        return weights[0] * entropy(s) + weights[1] * cross_entropy(uniform, s)

    rng = np.random.default_rng(0)
    starts = [np.zeros(clusters), *(3 * np.eye(clusters)[:1]), *rng.normal(scale=2, size=(12, clusters))]
    best = min(optimize.minimize(constant_encoder, start, method="BFGS").fun for start in starts)
    assert best == pytest.approx(collapsed, abs=1e-3)
    onehot = np.eye(clusters)
    reached = weights[0] * entropy(onehot).mean() + weights[1] * cross_entropy(uniform, onehot.mean(0))
    assert reached == pytest.approx(free, abs=1e-3)
    assert best > 1.9 * reached  # each term alone is at its least for some constant s, their sum never
    assert entropy(onehot[0]) == 0
    assert cross_entropy(uniform, uniform) == pytest.approx(np.log(clusters))


def test_the_best_constant_prediction_need_not_be_uniform():
    def value(logits, invariance, prior):
        s = special.softmax(logits)
        return invariance * entropy(s) - prior * np.log(s).mean()

    for clusters, invariance, prior in ((2, 50, 10), (3, 1, 1), (10, 50, 25)):
        uniform = value(np.zeros(clusters), invariance, prior)
        start = np.arange(clusters) == 0
        found = optimize.minimize(value, 2.0 * start, args=(invariance, prior)).fun
        assert found < uniform - 1e-3


def test_a_constant_encoder_need_not_predict_uniformly():
    rng = np.random.default_rng(0)
    centres, k = rng.normal(size=(5, 4)), rng.normal(size=5)  # U [h, c] and the constant g(x) = k
    prediction = special.softmax(k @ centres)
    uniform = np.full(4, 0.25)
    assert np.abs(prediction - uniform).max() > 0.1
    assert cross_entropy(uniform, prediction) > np.log(4) + 0.1  # above its minimum H(u), which is not a maximum
    flat = centres - np.outer(k, k @ centres) / (k @ k)  # only for centres that k does not tell apart
    assert special.softmax(k @ flat) == pytest.approx(uniform)


def test_cluster_collapse_puts_all_mass_on_one_cluster():
    uniform, values = np.full(10, 0.1), []
    for leak in (1e-2, 1e-4, 1e-8):
        p = np.full((50, 10), leak / 9)
        p[:, 3] = 1 - leak
        mean = p.mean(0)
        assert mean[3] == pytest.approx(1 - leak)  # printed: 0 there, and 1 at the nine others (sum 9)
        values.append(cross_entropy(uniform, mean))
    assert values == pytest.approx([6.12, 10.27, 18.56], abs=0.01)  # without bound


def test_label_inconsistency():
    def loss(logits_aug, logits):
        return cross_entropy(special.softmax(logits_aug), special.softmax(logits))

    assert loss(np.zeros(2), np.zeros(2)) == pytest.approx(np.log(2))  # t' = t, and not optimal
    assert loss(np.array([50.0, 0.0]), np.array([63.0, 3.0])) == pytest.approx(1.16e-20, rel=0.01)  # optimal, t' ≠ t
    # Footnote 12: a permutation of data points that share a cluster changes nothing, though nothing has collapsed.
    logits = np.array([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
    swapped = logits[[1, 0, 2, 3]]
    assert (swapped == logits).all()
    assert special.softmax(logits, axis=1).mean(0) == pytest.approx([0.5, 0.5])


# --- other methods in the same language -------------------------------------------------------------------------------


def test_covariance_term_has_a_minus():
    rng = np.random.default_rng(0)
    eye = torch.eye(3, dtype=torch.float64)
    gamma = 0.7

    def bound(covariance, gaps):  # −KL − KL of Lemma 2, by torch
        centre = torch.zeros(3, dtype=torch.float64)
        first = kl_divergence(MultivariateNormal(centre, covariance), MultivariateNormal(centre, eye))
        prior = MultivariateNormal(centre, eye / gamma)
        second = sum(kl_divergence(MultivariateNormal(gap, eye), prior) for gap in gaps)
        return -(first + second).item()

    def objective(covariance, gaps, sign):
        return torch.logdet(covariance).item() + sign * gamma * gaps.square().sum().item()

    roots = rng.normal(size=(2, 3, 5))
    covariances = [torch.tensor(3 * r @ r.T / np.trace(r @ r.T)) for r in roots]  # batch norm keeps the trace
    gaps = [torch.tensor(g) for g in rng.normal(size=(2, 4, 3))]
    gain = bound(covariances[0], gaps[0]) - bound(covariances[1], gaps[1])
    right, printed = (objective(covariances[0], gaps[0], s) - objective(covariances[1], gaps[1], s) for s in (-1, 1))
    assert right / 2 == pytest.approx(gain, abs=1e-12)
    assert abs(printed / 2 - gain) > 0.5

    covariance = covariances[0].numpy()
    log_det = np.linalg.slogdet(covariance)[1]
    x = rng.multivariate_normal(np.zeros(3), covariance, size=100_000)
    log_ratio = stats.multivariate_normal.logpdf(x, cov=covariance) - stats.multivariate_normal.logpdf(x, cov=np.eye(3))
    error = 5 * log_ratio.std() / np.sqrt(len(x))
    assert log_ratio.mean() == pytest.approx(-log_det / 2, abs=error)  # ½(Tr Σ − 3) = 0 here
    assert abs(log_ratio.mean() - log_det / 2) > error  # the sign of the last line printed


def test_swav_is_divided_by_the_temperature():
    rng = np.random.default_rng(0)
    tau, centres, codes = 0.3, rng.normal(size=(4, 3)), rng.normal(size=(4, 6))  # U [h, c], G [h, n]
    q = rng.dirichlet(np.ones(3), size=6)
    scores = (centres.T @ codes).T / tau  # [n, c]
    bound = np.sum(q * special.log_softmax(scores, axis=1)) + entropy(q).sum()
    constant = -special.logsumexp(scores, axis=1).sum()
    swav = np.trace(q @ centres.T @ codes) + tau * entropy(q).sum()
    assert swav / tau + constant == pytest.approx(bound, abs=1e-12)
    assert abs(tau * swav + constant - bound) > 1  # printed


def test_infonce_needs_every_pair():
    rng = np.random.default_rng(0)
    n = 6
    scores = rng.normal(size=(n, n)) + 4 * np.eye(n)  # f(x_k, z_i)
    diagonal = np.diag(scores)
    right = np.mean(diagonal - special.logsumexp(scores, axis=0) + np.log(n))  # Eq. 20
    printed = np.mean(diagonal) - special.logsumexp(diagonal) + np.log(n)  # last lines of appendix G
    assert 1.3 < right <= np.log(n)
    assert printed <= 0  # Jensen, for any scores: it cannot bound an information from below
    assert abs(printed) < 0.6

    # Lemma 1 as printed has each point as its own positive: it spreads points whatever the augmentation is.
    simplex = np.eye(4) - 0.25
    simplex /= np.linalg.norm(simplex, axis=1, keepdims=True)

    def instance(z, tau=0.5):
        cosines = z @ z.T / tau
        return np.mean(np.diag(cosines) - special.logsumexp(cosines, axis=1))

    assert instance(simplex) == pytest.approx(-np.log(1 + 3 * np.exp(-8 / 3)), abs=1e-12)
    assert instance(simplex) == pytest.approx(-0.189339, abs=1e-6)
    for seed in range(20):
        z = np.random.default_rng(seed).normal(size=(4, 4))
        assert instance(z / np.linalg.norm(z, axis=1, keepdims=True)) < instance(simplex)


def test_barlow_weight_is_squared_and_whitened_sign():
    rng = np.random.default_rng(0)
    correlation, weight = rng.uniform(-1, 1, size=(5, 5)), 0.3
    eye = np.eye(5)
    mask = weight * np.ones((5, 5)) + (1 - weight) * eye
    as_written = np.sum((correlation * mask - eye) ** 2)
    on, off = np.sum((np.diag(correlation) - 1) ** 2), np.sum((correlation * (1 - eye)) ** 2)
    assert as_written == pytest.approx(on + weight**2 * off)
    assert abs(as_written - (on + weight * off)) > 0.5  # Barlow Twins as published

    g, g_aug = rng.normal(size=(2, 7, 5))
    g /= np.linalg.norm(g, axis=1, keepdims=True)
    g_aug /= np.linalg.norm(g_aug, axis=1, keepdims=True)
    squares = np.sum((g - g_aug) ** 2)
    assert squares == pytest.approx(2 * 7 - 2 * np.trace(g @ g_aug.T))  # to maximise −squares, maximise +Tr(GG'ᵀ)


# --- the constraint on sums -------------------------------------------------------------------------------------------


def sum_loss(logits):
    """−log Σ_{a+b≤9} p₁(a) p₂(b) p₃(a + b), from logits [3, 10]."""
    first, second, third = torch.log_softmax(logits, -1)
    a, b = torch.tensor(PAIRS).T
    return -torch.logsumexp(first[a] + second[b] + third[a + b], 0)


def test_probability_of_a_sum():
    logits = torch.tensor(np.random.default_rng(0).normal(size=(3, 10)), requires_grad=True)
    p = torch.softmax(logits, -1).detach().numpy()
    brute = sum(p[0, a] * p[1, b] * p[2, c] for a in range(10) for b in range(10) for c in range(10) if a + b == c)
    loss = sum_loss(logits)
    assert len(PAIRS) == 55
    assert loss.item() == pytest.approx(-np.log(brute), abs=1e-12)
    (gradient,) = torch.autograd.grad(loss, logits)
    share = np.zeros((3, 10))  # posterior marginals given that the sum holds
    for a, b in PAIRS:
        share[[0, 1, 2], [a, b, a + b]] += p[0, a] * p[1, b] * p[2, a + b] / brute
    assert gradient.numpy() == pytest.approx(p - share, abs=1e-12)

    flat = torch.zeros(3, 10, dtype=torch.float64)
    assert sum_loss(flat).item() == pytest.approx(2.900422, abs=1e-6)  # −log 0.055
    # Eq. 9 read literally: thirty independent facts of probability 0.1.
    one_class_each = len(PAIRS) * 0.1**3 * 0.9**27
    assert one_class_each == pytest.approx(0.0032, abs=1e-4)
    masks = np.arange(1024)
    size = np.array([bin(m).count("1") for m in masks])
    chance = 0.1**size * 0.9 ** (10 - size)
    derived = 0.0
    for mask in masks:  # all sets of classes of the first digit, against all of the second
        sums = np.zeros(1024, dtype=int)
        for a in range(10):
            if mask >> a & 1:
                sums |= masks << a & 1023
        derived += chance[mask] * np.sum(chance * (1 - 0.9 ** size[sums]))
    assert derived == pytest.approx(0.0498, abs=1e-4)  # worlds in which some sum can be derived


def test_probability_of_a_sum_in_single_precision():
    nines = torch.zeros(3, 10)
    nines[:, 9] = 120
    product = nines.clone().requires_grad_()
    p = torch.softmax(product, -1)
    a, b = torch.tensor(PAIRS).T
    value = torch.log((p[0, a] * p[1, b] * p[2, a + b]).sum())
    value.backward()
    assert value.item() == -np.inf
    assert product.grad.isnan().any()
    stable = nines.clone().requires_grad_()
    loss = sum_loss(stable)
    loss.backward()
    assert loss.item() == pytest.approx(119.3069, abs=1e-3)
    assert stable.grad.isfinite().all()


def test_addition_learns_from_the_constraint_alone():
    """With the printed weights of Table 9 (INV 0, NESY 0) any relabelling of the classes is as good."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(30, 10))
    order = rng.permutation(10)
    moved = logits[:, order]
    assert special.logsumexp(moved, axis=1) == pytest.approx(special.logsumexp(logits, axis=1))  # L_GEN: log p(x) + c
    priors = [entropy(special.softmax(v, axis=1).mean(0)) for v in (logits, moved)]
    assert priors[0] == pytest.approx(priors[1])  # L_PRIOR
    losses = [sum(sum_loss(torch.tensor(v[i : i + 3])).item() for i in range(0, 30, 3)) for v in (logits, moved)]
    assert abs(losses[0] - losses[1]) > 0.1  # L_NESY = −log p(c) is what tells classes apart
    zeros = torch.zeros(3, 10, dtype=torch.float64)
    zeros[:, 0] = 60
    assert sum_loss(zeros).item() == pytest.approx(0.0, abs=1e-12)  # "everything is a 0" satisfies it


def test_addition_digits_are_not_uniform():
    count = np.zeros(10)
    for a, b in PAIRS:
        for digit in (a, b, a + b):
            count[digit] += 1
    marginal = count / count.sum()
    assert marginal == pytest.approx((21 - np.arange(10)) / 165)
    assert entropy(marginal) == pytest.approx(2.287294, abs=1e-6)
    assert 400 * (np.log(10) - entropy(marginal)) == pytest.approx(6.12, abs=0.01)  # paid by the true labelling
    for leak in (1e-4, 1e-8):  # at collapse the entropy's regret is bounded, the cross-entropy's is not
        collapsed = np.full(10, leak / 9)
        collapsed[0] = 1 - leak
        assert np.log(10) - entropy(collapsed) < np.log(10)
        assert cross_entropy(np.full(10, 0.1), collapsed) > 10


# --- sampling and detection -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "noise", "spread", "temperature"), [(0.01**2 / 2, 0.01, 1.0, 1.0), (1.0, 0.01, 100.0, 5e-5)]
)
def test_langevin_temperature(step, noise, spread, temperature):
    # x ← x − η∇E + noise·ξ on E = x²/(2s²) is an autoregression: its stationary variance is known exactly.
    factor = 1 - step / spread
    variance = noise**2 / (1 - factor**2)
    assert noise**2 / (2 * step) == pytest.approx(temperature)
    assert variance / spread == pytest.approx(temperature, rel=0.01)
    rng = np.random.default_rng(0)
    value = np.sqrt(variance) * rng.normal(size=20_000)  # chains started in the stationary law stay there
    for _ in range(50):
        value = value - step * value / spread + noise * rng.normal(size=value.shape)
    assert value.var() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize(("std", "auroc"), [(2.0, 0.981), (0.8, 0.247)])
def test_detection_score_may_order_the_other_way(std, auroc):
    # s(x) = −‖∇ log p(x)‖ for p = N(0, I₁₀) is −‖x‖, so the AUROC is the law of a ratio of two chi-squares.
    assert stats.f.cdf(std**2, 10, 10) == pytest.approx(auroc, abs=1e-3)
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=(2000, 10)), std * rng.normal(size=(2000, 10))
    score = [-np.linalg.norm(x, axis=1) for x in (inside, outside)]
    assert np.mean(score[0][:, None] > score[1]) == pytest.approx(auroc, abs=0.03)
