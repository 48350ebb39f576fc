"""CL-ICA: printed formulas beside the right ones, against quadrature, autograd and sampling.

docs/errata.md tells what each test is about.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, linalg, optimize, special, stats
from torch import nn

from probssl.energies import Cosine, PNorm
from probssl.objectives import InfoNCE
from probssl.pairings import Views
from probssl.worlds import RealSpace, laplace, normal
from tests.theory.errata_tools import cosine_rule, log_area, log_mean_exp, vmf_kl

D, KAPPA = 10, 10.0


def mean_cosine(kappa, d=D):
    return special.ive(d / 2, kappa) / special.ive(d / 2 - 1, kappa)


# --- the sphere -------------------------------------------------------------------------------------------------------


def test_matching_radius():
    tau = 0.3
    t, w = cosine_rule(D)

    def cross_entropy(radius):  # between vMF(κ) and q ∝ e^{h(z)ᵀh(z̃)/τ} with h(z) = radius · z
        scale = radius**2 / tau
        return -scale * mean_cosine(KAPPA) + log_mean_exp(scale * t, w) + log_area(D)

    found = optimize.minimize_scalar(cross_entropy, bounds=(0.05, 5), method="bounded", options={"xatol": 1e-9})
    assert found.x == pytest.approx(np.sqrt(tau * KAPPA), abs=1e-5)  # √3
    assert found.fun == pytest.approx(0.754273192675, abs=1e-9)
    entropy = log_area(D) - vmf_kl(KAPPA, 0.0, D)
    assert found.fun == pytest.approx(entropy, abs=1e-9)  # H(vMF): the conditionals match
    assert cross_entropy(np.sqrt(tau / KAPPA)) == pytest.approx(3.175876, abs=1e-6)  # the radius printed
    assert found.x**2 / tau == pytest.approx(KAPPA, abs=1e-4)  # κzᵀz̃ = h(z)ᵀh(z̃)/τ ...
    assert abs(found.x**2 - KAPPA) > 6  # ... not h(z)ᵀh(z̃)


def test_alignment_and_uniformity_compare_two_points():
    tau, m, n = 1 / KAPPA, 4096, 1500
    t, w = cosine_rule(D)
    right = -mean_cosine(KAPPA) / tau + log_mean_exp(t / tau, w)
    printed = -1 / tau + log_mean_exp(t / tau, w)  # Eq. 10 with h(z)ᵀh(z) in the alignment
    assert right == pytest.approx(-2.484470, abs=1e-6)
    assert printed == pytest.approx(-6.147786, abs=1e-6)
    rng = np.random.default_rng(0)  # the loss itself, through cosines: exact in law, M → ∞ limit within 0.004
    grid = np.linspace(-1, 1, 4001)
    density = (1 - grid**2) ** ((D - 3) / 2)

    def cosines(concentration, shape):
        cumulative = np.cumsum(density * np.exp(concentration * (grid - 1)))
        return grid[np.searchsorted(cumulative / cumulative[-1], rng.uniform(size=shape)).clip(0, 4000)]

    positive = cosines(KAPPA, n) / tau
    negative = special.logsumexp(cosines(0.0, (n, m)) / tau, axis=1)
    losses = np.logaddexp(positive, negative) - positive - np.log(m)
    error = 4 * losses.std() / np.sqrt(n) + 0.004
    assert losses.mean() == pytest.approx(right, abs=error)
    assert abs(losses.mean() - printed) > 20 * error
    missing = log_mean_exp(t * tau, w)  # Eq. 21 as it stands, with "τ" for "/τ"
    assert abs(missing - log_mean_exp(t / tau, w)) > 3


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_losses_of_the_image_experiments_compare_two_points(p):
    rng = np.random.default_rng(0)
    h, h_pos, h_neg = rng.normal(size=(3, 50, 4))

    def power(a, b):
        return np.sum(np.abs(a - b) ** p, axis=-1)

    assert power(h, h).max() == 0  # Eq. 71 as printed
    assert np.log(np.mean(np.exp(-power(h, h)))) == 0  # Eq. 72 as printed
    assert power(h, h_pos).mean() > 1
    assert np.log(np.mean(np.exp(-power(h[:, None], h_neg)), axis=1)).mean() < -1
    tensors = torch.tensor(h), torch.tensor(h_pos)
    assert PNorm(p).paired(*tensors).numpy() == pytest.approx(power(h, h_pos))  # the p-th power, no temperature
    assert PNorm(p).paired(*tensors).numpy() == pytest.approx(np.linalg.norm(h - h_pos, ord=p, axis=1) ** p)


def test_normaliser_integrates_over_the_other_point():
    angle = np.arange(400) * 2 * np.pi / 400
    bent = angle + 0.6 * np.sin(angle)  # h bends the circle
    h = np.stack([np.cos(bent), np.sin(bent)], axis=1)
    kernel = np.exp(h @ h.T / 0.5)  # rows z, columns z̃
    cell = 2 * np.pi / 400
    right = kernel / (kernel.sum(1, keepdims=True) * cell)  # C_h(z) = ∫ … dz̃
    printed = kernel / (kernel.sum(0, keepdims=True) * cell)  # C_h(z̃) = ∫ … dz
    assert (right.sum(1) * cell) == pytest.approx(1)
    assert np.abs(printed.sum(1) * cell - 1).max() > 0.1


def test_density_estimates_are_smoothed():
    alpha = 2.0
    kernel, _ = integrate.quad(lambda x: np.exp(-alpha * abs(x) - x**2 / 2) / np.sqrt(2 * np.pi), -30, 30, points=[0])
    truth = 1 / np.sqrt(2 * np.pi)
    assert truth == pytest.approx(0.3989, abs=1e-4)
    assert kernel / alpha == pytest.approx(0.1681, abs=1e-4)  # Lemma 1 as printed
    assert kernel * alpha / 2 == pytest.approx(0.3362, abs=1e-4)  # with the right constant: still not p(0)
    for n in (1, 2, 3):
        mass, _ = integrate.quad(lambda r, n=n: np.exp(log_area(n)) * r ** (n - 1) * np.exp(-alpha * r), 0, 60)
        assert mass == pytest.approx(np.exp(log_area(n)) * special.gamma(n) / alpha**n)  # ∫ e^{−α‖x‖} dx over Rⁿ
    t, w = cosine_rule(3)
    density = np.exp(5 - log_mean_exp(5 * t, w) - log_area(3))  # vMF(5) on S² at its mode
    smooth = np.exp(log_mean_exp(8 * t, w) - log_mean_exp(5 * t, w) - log_mean_exp(3 * t, w) - log_area(3))
    assert density == pytest.approx(0.7958, abs=1e-4)
    assert smooth == pytest.approx(0.2992, abs=1e-4)  # after a vMF(3) kernel


def test_normaliser_is_not_one_over_the_area():
    t, w = cosine_rule(D)
    normaliser = np.exp(log_area(D) + log_mean_exp(KAPPA * t, w))
    bessel = (2 * np.pi) ** (D / 2) * special.iv(D / 2 - 1, KAPPA) / KAPPA ** (D / 2 - 1)
    assert normaliser == pytest.approx(bessel, rel=1e-10)
    assert normaliser == pytest.approx(1201.057, abs=1e-2)
    assert np.exp(-log_area(D)) == pytest.approx(0.039213, abs=1e-6)  # |Z|⁻¹


def test_chain_rule_of_a_rotation():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    rotation = torch.tensor(linalg.expm(np.triu(np.ones((4, 4)), 1) - np.tril(np.ones((4, 4)), -1)))
    z, other = torch.randn(2, 4, dtype=torch.float64, generator=generator)

    def h(x):
        return torch.tanh(weights @ x)

    (truth,) = torch.autograd.grad(h(rotation @ z.requires_grad_()) @ h(rotation @ other), z)
    jacobian = torch.autograd.functional.jacobian(h, (rotation @ z).detach())
    inner = jacobian.T @ h(rotation @ other)
    assert torch.allclose(rotation.T @ inner, truth, atol=1e-12)
    assert (rotation @ inner - truth).abs().max() > 0.5  # Eq. 40 as printed
    # Proposition 2: h keeps dot products up to κ and maps the unit sphere to itself only if κ = 1.
    orthogonal = rotation.numpy()
    scaled = np.sqrt(2.0) * orthogonal @ (z.detach().numpy() / np.linalg.norm(z.detach().numpy()))
    assert scaled @ scaled == pytest.approx(2.0)  # dot products doubled: the image has radius √2


def test_simclr_keeps_its_positive():
    n, m = 5, 255
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    noise = torch.randn(2, n, 3, dtype=torch.float64, generator=generator)
    views = Views(x=x, augmented=x + 0.3 * noise)
    both = torch.cat([views.augmented[0], views.augmented[1]])
    cosines = torch.nn.functional.normalize(both, dim=1)
    logits = (cosines @ cosines.T / 0.5).numpy()
    kept, left_out = [], []
    for i in range(2 * n):  # Chen et al. 2020, Eq. 1: k ≠ i, and the positive is one of the k
        j = (i + n) % (2 * n)
        others = [logits[i, k] for k in range(2 * n) if k != i]
        negatives = [logits[i, k] for k in range(2 * n) if k not in (i, j)]
        kept.append(special.logsumexp(others) - logits[i, j])
        left_out.append(special.logsumexp(negatives) - logits[i, j])
    simclr = InfoNCE(Cosine(0.5), candidates="two-view", pair="augmented")
    assert simclr(nn.Identity(), views).total.item() == pytest.approx(np.mean(kept), abs=1e-9)
    assert np.mean(kept) - np.mean(left_out) > 0.1
    # At a constant encoder the two differ too: log(M + 1) against log M.
    alike = Views(x=torch.zeros(m + 1, 2), augmented=torch.zeros(1, m + 1, 2))
    assert InfoNCE(Cosine(0.5))(nn.Identity(), alike).total.item() == pytest.approx(np.log(m + 1), abs=1e-4)
    assert np.log(m + 1) - np.log(m) == pytest.approx(0.0039, abs=1e-4)


def test_the_weakest_conditional_is_almost_uniform():
    assert mean_cosine(1.0) == pytest.approx(0.0991784, abs=1e-7)
    assert vmf_kl(1.0, 0.0, D) == pytest.approx(0.0493848, abs=1e-7)
    assert mean_cosine(KAPPA) == pytest.approx(0.6336684, abs=1e-7)
    assert vmf_kl(KAPPA, 0.0, D) == pytest.approx(2.4844696, abs=1e-7)


# --- the line and the box ---------------------------------------------------------------------------------------------


def box_rule(n=400):
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1) / 2, weights / 2


def test_the_bound_by_the_largest_density_is_a_lower_bound():
    z, w = box_rule()
    distance = 25 * (z[:, None] - z) ** 2  # δ(h(z), h(z̃)) with h(z) = 5z, and λδ of the truth

    def values(density):
        truth = np.exp(-distance) / (np.exp(-distance) @ w)[:, None]  # p(z̃ | z) on [0, 1]
        align = (w * density) @ (truth * distance) @ w
        cross_entropy = align + (w * density) @ np.log(np.exp(-distance) @ w)
        bound = align + (w * density) @ np.log(np.exp(-distance) @ (w * density)) - np.log(density.max())
        return cross_entropy, bound

    cross_entropy, bound = values(6 * z * (1 - z))
    assert (cross_entropy, bound) == pytest.approx((-0.64644, -0.93391), abs=1e-4)
    assert bound < cross_entropy  # printed: at least the cross-entropy
    assert np.diff(values(np.ones_like(z))) == pytest.approx(0, abs=1e-12)  # equality for a uniform marginal


@pytest.mark.parametrize(("rate", "p", "factor"), [(25.0, 2, 5.0), (20.0, 1, 20.0), (400.0, 2, 20.0)])
def test_matching_map_is_a_rescaling(rate, p, factor):
    moment = 1 / (p * rate)  # E|x|^p under e^{−rate|x|^p}
    numerator, _ = integrate.quad(lambda x: x**p * np.exp(-rate * x**p), 0, 5, points=[0.05, 0.2])
    denominator, _ = integrate.quad(lambda x: np.exp(-rate * x**p), 0, 5, points=[0.05, 0.2])
    assert numerator / denominator == pytest.approx(moment, rel=1e-6)

    def cross_entropy(c):  # with q_h ∝ e^{−|cz − cz̃|^p} on the line
        return c**p * moment - np.log(c) + np.log(2 * special.gamma(1 + 1 / p))

    found = optimize.minimize_scalar(cross_entropy, bounds=(0.1, 60), method="bounded", options={"xatol": 1e-9})
    assert found.x == pytest.approx(factor, abs=1e-4)  # λ^{1/p}
    assert cross_entropy(1.0) > found.fun + 0.9  # the identity, which is named as an example


def conditional_on_the_box(log_density, n=2000):
    z = (np.arange(n) + 0.5) / n
    weight = np.exp(log_density(np.abs(z[:, None] - z)))
    normaliser = weight.mean(1)
    return z, weight / normaliser[:, None], normaliser


@pytest.mark.parametrize(("beta", "rate", "shared"), [(2, 200.0, 1.647), (1, 20.0, 1.418)])
def test_generalised_normal_as_the_released_code_draws_it(beta, rate, shared):
    """λ = 0.05 is a standard deviation for β = 2 and the scale of a Laplace distribution for β = 1."""
    law = stats.norm(scale=0.05) if beta == 2 else stats.laplace(scale=0.05)
    x = np.linspace(0, 0.4, 7)
    assert law.pdf(x) / law.pdf(0) == pytest.approx(np.exp(-rate * x**beta))  # the rate of Eq. 50
    world = normal(RealSpace(1), 0.05) if beta == 2 else laplace(RealSpace(1), 0.05)
    z = torch.from_numpy(x).unsqueeze(1)
    assert world.log_prob(z, torch.zeros_like(z)).numpy() == pytest.approx(law.logpdf(x))

    def information(log_density):  # I(z; z̃) of one coordinate, z uniform on [0, 1], in nats
        _, p, _ = conditional_on_the_box(log_density, 600)
        return np.mean(p * np.log(p / p.mean(0)))

    assert information(law.logpdf) == pytest.approx(shared, abs=1e-3)
    assert information(lambda r: -0.05 * r**beta) < 1e-3  # λ as a rate: pairs all but independent
    if beta == 2:
        as_scale = information(lambda r: -((r / 0.05) ** 2))
        assert as_scale == pytest.approx(1.973, abs=1e-3)  # narrower by √2


def test_truncated_conditionals_break_the_marginal():
    z, p, normaliser = conditional_on_the_box(stats.norm(scale=0.05).logpdf)
    marginal = p.mean(0)  # of z̃, when z is uniform; Eq. 51 asks for 1 everywhere
    assert marginal[0] == pytest.approx(0.695, abs=2e-3)
    assert marginal.max() == pytest.approx(1.072, abs=2e-3)
    assert marginal[len(z) // 2] == pytest.approx(1, abs=1e-6)
    assert normaliser[0] / normaliser[len(z) // 2] == pytest.approx(0.501, abs=5e-3)
    middle = p[len(z) // 2]
    assert np.sqrt(middle @ (z - z[len(z) // 2]) ** 2 / len(z)) == pytest.approx(0.05, abs=1e-4)
