"""SimVAE: printed formulas beside the right ones, against quadrature, Gaussian algebra and enumeration.

docs/errata.md tells what each test is about. Notation: J related samples, L latent and D data dimensions, σ² the
variance of p(z | y), σ_x² that of p(x | z).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special, stats
from torch import nn

PRIOR, LIKELIHOOD = 0.15, 0.02  # the paper's σ² and σ_x²


# --- the objective ----------------------------------------------------------------------------------------------------

X = np.array([[0.5, -0.2, 0.1], [0.4, -0.3, 0.3]])  # J = 2 samples in D = 3 dimensions
W = np.array([0.6, -0.3, 0.2])  # a linear decoder of one latent


def expected_terms(mean, var):
    """E_q of the squared reconstruction error and of Σ(z_j − z̄)², and Σ log v, for q = Π N(m_j, v_j)."""
    error = np.sum((X - mean[:, None] * W) ** 2) + W @ W * np.sum(var)
    pinch = np.sum((mean - mean.mean()) ** 2) + (1 - 1 / len(mean)) * np.sum(var)
    return error, pinch, np.sum(np.log(var))


def right(mean, var):
    """The negative ELBO less its constant."""
    error, pinch, logs = expected_terms(mean, var)
    return error / (2 * LIKELIHOOD) - logs / 2 + pinch / (2 * PRIOR)


def printed(mean, var):
    """Algorithm 1: squared errors over D, and the entropy added."""
    error, pinch, logs = expected_terms(mean, var)
    return error / X.shape[1] + logs / 2 + pinch / (2 * PRIOR)


def exact(mean, var):
    """−log p(x | y) + KL(q ‖ p(z | x, y)), by quadrature over both latents, with a flat prior of density 1 on ψ."""
    z = np.linspace(-2.5, 2.5, 1500)
    first, second = z[:, None], z[None, :]
    log_prior = stats.norm.logpdf(first - second, scale=np.sqrt(2 * PRIOR))  # ∫ N(z₁; ψ, σ²) N(z₂; ψ, σ²) dψ
    log_like = [stats.norm.logpdf(x[:, None], W[:, None] * z, np.sqrt(LIKELIHOOD)).sum(0) for x in X]
    log_joint = log_prior + log_like[0][:, None] + log_like[1][None, :]
    cell = 2 * np.log(z[1] - z[0])
    log_evidence = special.logsumexp(log_joint) + cell
    log_q = stats.norm.logpdf(first, mean[0], np.sqrt(var[0])) + stats.norm.logpdf(second, mean[1], np.sqrt(var[1]))
    kl = np.sum(np.exp(log_q + cell) * (log_q - log_joint + log_evidence))
    return -log_evidence + kl


CONSTANT = 0.5 * (2 * 3 * np.log(2 * np.pi * LIKELIHOOD) + np.log(2 * np.pi * PRIOR) + np.log(2)) - (
    np.log(2 * np.pi) + 1
)


@pytest.mark.parametrize("mean", [np.array([0.7, 0.6]), np.array([0.2, 0.9])])
@pytest.mark.parametrize("var", [np.array([0.03, 0.05]), np.array([0.1, 0.02])])
def test_objective_is_the_negative_elbo(mean, var):
    assert right(mean, var) + CONSTANT == pytest.approx(exact(mean, var), abs=1e-6)


def test_printed_objective_is_not_the_negative_elbo():
    points = [(np.array(m), np.array(v)) for m, v in (([0.7, 0.6], [0.03, 0.05]), ([0.2, 0.9], [0.1, 0.02]))]
    gap = [printed(*point) - exact(*point) for point in points]
    assert abs(gap[0] - gap[1]) > 3  # not a constant, as the gap of the right one is


def test_entropy_is_subtracted():
    mean = np.zeros(2)
    for log_var in (-10.0, -100.0, -700.0):
        assert printed(mean, np.full(2, np.exp(log_var))) < log_var + 1  # falls without bound
        assert right(mean, np.full(2, np.exp(log_var))) > -log_var

    def best_variance(pull):  # argmin of ½ pull·v − ½ log v
        found = optimize.minimize_scalar(lambda u: pull * np.exp(u) / 2 - u / 2, bounds=(-9, 3), method="bounded")
        return np.exp(found.x)

    pinch = 0.9 / PRIOR  # (J − 1)/(Jσ²) with the paper's J = 10
    assert best_variance(pinch) == pytest.approx(PRIOR * 10 / 9, rel=1e-4)
    assert best_variance(pinch) == pytest.approx(0.1667, abs=1e-4)
    decoder = 0.3 / LIKELIHOOD  # ‖w‖²/σ_x² for a linear decoder
    assert best_variance(pinch + decoder) == pytest.approx(0.047619, abs=1e-5)


@pytest.mark.parametrize(("pixels", "ratio"), [(28 * 28, 19_600), (3 * 32 * 32, 76_800), (3 * 64 * 64, 307_200)])
def test_weight_of_the_reconstruction(pixels, ratio):
    x, mean = np.random.default_rng(0).normal(size=(2, pixels))

    def nll(variance):
        return -stats.norm.logpdf(x, mean, np.sqrt(variance)).sum()

    error = np.sum((x - mean) ** 2)
    moved = np.sum((x - 1.1 * mean) ** 2)
    slope = (-stats.norm.logpdf(x, 1.1 * mean, np.sqrt(LIKELIHOOD)).sum() - nll(LIKELIHOOD)) / (moved - error)
    assert slope == pytest.approx(25)  # 1/(2σ_x²)
    assert slope / (1 / pixels) == pytest.approx(ratio)  # printed: 1/D, which is σ_x² = D/2


# --- the prior over a set of related latents --------------------------------------------------------------------------


@pytest.mark.parametrize("related", [1, 2, 5, 10])
def test_flat_prior_has_a_constant(related):
    z = np.random.default_rng(related).normal(size=related)
    pinch = np.sum((z - z.mean()) ** 2)

    def density(psi):
        return np.exp(stats.norm.logpdf(z, psi, np.sqrt(PRIOR)).sum() + pinch / (2 * PRIOR))  # scaled to avoid zeros

    truth = np.log(integrate.quad(density, z.mean() - 4, z.mean() + 4, epsabs=0, epsrel=1e-11)[0]) - pinch / (2 * PRIOR)
    constant = -0.5 * ((related - 1) * np.log(2 * np.pi * PRIOR) + np.log(related))
    assert -pinch / (2 * PRIOR) + constant == pytest.approx(truth, abs=1e-9)
    independent = -0.5 * related * np.log(2 * np.pi * PRIOR)  # J factors, as one would guess from Eq. 6
    assert abs(-pinch / (2 * PRIOR) + independent - truth) > 0.02
    pairs = sum((a - b) ** 2 for a in z for b in z) / (2 * related)
    assert pinch == pytest.approx(pairs)


def test_gaussian_prior_rewards_agreement():
    variance, spread = 0.15, 1.0  # σ², γ²
    ratio = variance / spread

    def exact_log(z):  # [J, L]: independent coordinates, covariance σ²I + γ²11ᵀ over the J samples
        covariance = variance * np.eye(len(z)) + spread
        return sum(stats.multivariate_normal.logpdf(column, cov=covariance) for column in z.T)

    def closed(z, sign):
        share = 1 / (ratio + len(z))
        total = np.sum(z**2)
        cross = np.sum(z.sum(0) ** 2) - total  # Σ_{j≠k} z_j·z_k
        return -((1 - share) * total + sign * share * cross) / (2 * variance)

    rng = np.random.default_rng(0)
    points = [rng.normal(size=(3, 2)) for _ in range(5)]
    gaps = {sign: [exact_log(z) - closed(z, sign) for z in points] for sign in (-1, 1)}
    assert np.ptp(gaps[-1]) < 1e-10  # right: off by a constant
    assert np.ptp(gaps[1]) > 5  # printed sign of the cross term

    angles = np.radians([0, 90, 180])
    pairs = [np.array([[1.0, 0.0], [np.cos(a), np.sin(a)]]) for a in angles]
    truth = np.array([exact_log(z) for z in pairs])
    assert (np.diff(truth) < -3).all()  # agreement is likelier
    unit_norm = np.array([2 * np.cos(a) / (2 * variance * (ratio + 2)) for a in angles])
    assert truth - truth[0] == pytest.approx(unit_norm - unit_norm[0], abs=1e-10)  # e^{+Σ z_j·z_k/(2σ²(a+J))}
    assert (np.diff(-unit_norm) > 3).all()  # the last line printed rewards opposite vectors


def test_completed_square_is_a_product():
    z, ratio = np.array([0.3, -0.1, 0.4]), 0.15
    scale = (ratio + 3) / (2 * PRIOR)
    rest = -(np.sum(z**2) - np.sum(z) ** 2 / (ratio + 3)) / (2 * PRIOR)
    centre = z.sum() / (ratio + 3)

    def integral(form, reach):
        return integrate.quad(form, -reach, reach, points=[centre], limit=200)[0]

    def before(psi):
        return np.exp(-(ratio * psi**2 + np.sum((z - psi) ** 2)) / (2 * PRIOR))

    def product(psi):
        return np.exp(-scale * (psi - centre) ** 2) * np.exp(rest)

    def printed_sum(psi):
        return np.exp(-scale * (psi - centre) ** 2) + np.exp(rest)

    assert integral(product, 20) == pytest.approx(integral(before, 20), rel=1e-9)
    assert integral(printed_sum, 20) > 20 * integral(before, 20)
    assert integral(printed_sum, 200) == pytest.approx(10 * integral(printed_sum, 20), rel=0.3)  # it diverges


# --- InfoNCE ----------------------------------------------------------------------------------------------------------


def small_joint():
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(16)).reshape(4, 4) + 0.25 * np.eye(4)
    return joint / joint.sum()


def infonce(joint, similarity, negatives, score):
    """E of the score of the positive among k + 1 candidates, every outcome enumerated."""
    marginal = joint.sum(0)
    total = 0.0
    for x, positive in np.ndindex(joint.shape):
        for others in itertools.product(range(len(marginal)), repeat=negatives):
            chance = joint[x, positive] * np.prod(marginal[list(others)])
            total += chance * score(similarity[x, [positive, *others]])
    return total


def log_softmax_first(values):
    return values[0] - special.logsumexp(values)


def test_similarities_are_exponentiated():
    joint = small_joint()
    pmi = np.log(joint / np.outer(joint.sum(1), joint.sum(0)))
    best = infonce(joint, pmi, 1, log_softmax_first)
    rng = np.random.default_rng(1)
    for _ in range(40):
        assert infonce(joint, pmi + 0.1 * rng.normal(size=pmi.shape), 1, log_softmax_first) < best
    shifted = pmi + rng.normal(size=(4, 1))  # a constant for each x, not one for all
    assert infonce(joint, shifted, 1, log_softmax_first) == pytest.approx(best, abs=1e-12)

    def printed(values):
        with np.errstate(invalid="ignore"):
            return np.log(values[0] / values.sum())

    assert np.isnan(infonce(joint, pmi, 1, printed))  # similarities may be negative
    assert infonce(joint, np.exp(pmi), 1, printed) == pytest.approx(best, abs=1e-12)  # it needs e^sim
    assert best < 0  # so "+L" is to be maximised, as in Eq. 1; A.3 calls the same quantity −L


@pytest.mark.parametrize("negatives", [1, 2, 3, 4])
def test_infonce_bound_counts_the_positive(negatives):
    joint = small_joint()
    ratio = joint / np.outer(joint.sum(1), joint.sum(0))
    information = np.sum(joint * np.log(ratio))
    value = infonce(joint, np.log(ratio), negatives, log_softmax_first)
    right = information - np.log(negatives + 1)
    assert value <= right
    assert value > right - 0.3
    printed = information - np.log(negatives - 1) if negatives > 1 else np.inf
    assert printed > right + 0.5  # looser: log(k + 1) against log(k − 1)
    # The step marked ≈ goes the other way, by Jensen, so that the printed chain proves nothing ...
    replaced = -np.sum(joint * np.log1p(negatives / ratio))  # k negatives, each with E p(z | z⁻) = p(z)
    assert value >= replaced
    assert replaced <= information - np.log(negatives)
    # ... and a uniform choice among k + 1 candidates has probability 1/(k + 1), not 1/k.
    assert (negatives + 1) * (1 / negatives) > 1


def test_related_latents_and_the_label_are_not_the_same_condition():
    rng = np.random.default_rng(0)
    label, given = rng.dirichlet(np.ones(3)), rng.dirichlet(np.full(4, 0.5), size=3)  # p(y), p(z | y)
    triple = label[:, None, None] * given[:, :, None] * given[:, None, :]  # p(y, z, z⁺)
    pair = triple.sum(0)
    marginal = pair.sum(1)
    information = np.sum(pair * np.log(pair / np.outer(marginal, marginal)))
    conditional = np.sum(triple * np.log(given[:, :, None] * given[:, None, :] / np.outer(marginal, marginal)))
    about_label = np.sum(triple * np.log(triple / (label[:, None, None] * pair)))
    assert conditional == pytest.approx(information + about_label)  # the last step of A.3 adds I(y; z, z⁺)
    assert about_label > 0.1

    aggregate, prior = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.3, 0.5])
    crossed = -np.sum(aggregate * np.log(prior))
    assert crossed == pytest.approx(stats.entropy(aggregate) + stats.entropy(aggregate, prior))
    assert abs(crossed - stats.entropy(prior)) > 0.1  # −E_q log p(z) is not the entropy of p


# --- settings ---------------------------------------------------------------------------------------------------------


def test_shapes_of_the_networks():
    def encode(side):
        layers = [nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(3, 16, 4), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 32, 3, 1, 1)]
        channels = [32, 64, 128, 256]
        layers += [nn.Conv2d(a, b, 3, 2, 1) for a, b in itertools.pairwise(channels)]
        return nn.Sequential(*layers)(torch.zeros(1, 3, side, side)).flatten(1).shape[1]

    assert encode(64) == 4096  # Table 4 fits CelebA at 64 × 64
    assert encode(32) == 1024  # and not CIFAR10 at 32 × 32
    for latent in (10, 64):  # what a Gaussian with diagonal covariance takes: a mean and a variance each
        parameters = torch.zeros(1, 2 * latent)
        mean, log_var = parameters.chunk(2, dim=1)
        assert torch.distributions.Normal(mean, (log_var / 2).exp()).rsample().shape == (1, latent)


def test_numbers_read_off_the_page():
    assert 8 * np.exp(-5) == pytest.approx(0.0539, abs=1e-4)  # "8e^{−5}" means 8e-5
    sizes = {"MNIST": 60_000, "CIFAR10": 50_000, "CelebA": 163_000}
    assert [np.log(n) for n in sizes.values()] == pytest.approx([11.0, 10.8, 12.0], abs=0.05)  # printed: 5 to 10
    p = np.array([0.5, 0.3, 0.2])
    assert -np.log(p.max()) == pytest.approx(min(-np.log(p)))  # k = −log max p; arg max is an index, not a number
