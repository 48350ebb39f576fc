"""AnInfoNCE: printed claims beside the right ones, by quadrature over two blocks of a sphere and by sampling.

docs/errata.md tells what each test is about. The world is that of the paper: z uniform on S⁹, and
p(z⁺ | z) ∝ exp(−a‖Δ₁‖² − b‖Δ₂‖²), with Δ₁ and Δ₂ the first and last five coordinates of z⁺ − z. Averaged over
directions, everything depends on t = ‖z₁‖² ~ Beta(5/2, 5/2) alone, so that integrals are one- or two-dimensional.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special
from torch import nn

from probssl.energies import Anisotropic, Cosine
from probssl.objectives import InfoNCE
from probssl.pairings import Views

BLOCK = 5
_nodes, _weights = special.roots_jacobi(32, BLOCK / 2 - 1, BLOCK / 2 - 1)
T, W = (1 + _nodes) / 2, _weights / _weights.sum()  # Σ W f(T) = E f(t)


def log_f(k):
    """log E e^{k u} for u the first coordinate of a uniform point of S⁴."""
    k, order = np.abs(k) + 1e-12, BLOCK / 2 - 1
    return special.gammaln(BLOCK / 2) + order * np.log(2 / k) + np.log(special.ive(order, k)) + k


def log_kernel(a, b, t, s):
    """log of e^{−a‖Δ₁‖² − b‖Δ₂‖²} averaged over directions, for ‖z₁‖² = t and ‖z₁⁺‖² = s."""
    near = log_f(2 * a * np.sqrt(t * s)) + log_f(2 * b * np.sqrt((1 - t) * (1 - s)))
    return near - a * (t + s) - b * (2 - t - s)


def log_c(a, b, t=T, density=1.0):
    """log C(z)/|S⁹|: the normaliser of the conditional, or of the critic over negatives of a given density."""
    return special.logsumexp(log_kernel(a, b, np.asarray(t)[..., None], T), b=W * density, axis=-1)


def moments(a, b):
    """E‖Δ₁‖² and E‖Δ₂‖² of the exact conditional, by quadrature."""
    t, s = T[:, None], T
    p = np.exp(log_kernel(a, b, t, s) - log_c(a, b)[:, None]) * W[:, None] * W

    def square(c, t, s):  # t + s − 2√(ts) E cos
        k = 2 * c * np.sqrt(t * s)
        return t + s - 2 * np.sqrt(t * s) * special.ive(BLOCK / 2, k) / special.ive(BLOCK / 2 - 1, k)

    return np.sum(p * square(a, t, s)), np.sum(p * square(b, 1 - t, 1 - s))


def best_concentrations(first, second, log_normaliser=None):
    """argmin over Λ̂ of E‖Δ‖²_Λ̂ + E log E e^{−‖·‖²_Λ̂}, the loss less log M for an identity encoder and M → ∞."""
    log_normaliser = log_c if log_normaliser is None else log_normaliser

    def loss(x):
        return x[0] * first + x[1] * second + W @ log_normaliser(x[0], x[1])

    return optimize.minimize(loss, [3.0, 10.0], method="BFGS", options={"gtol": 1e-9}).x


def unit(z):
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def sphere(n, rng):
    return unit(rng.normal(size=(n, 2 * BLOCK)))


def from_grid(log_density, grid, rng):
    """One draw a row of a density given by its logarithm on a grid, [n, g] → [n]."""
    cumulative = np.cumsum(np.exp(log_density - log_density.max(1, keepdims=True)), axis=1)
    chosen = rng.uniform(size=len(cumulative)) * cumulative[:, -1]
    spacing = grid[1] - grid[0]
    return grid[(cumulative < chosen[:, None]).sum(1)] + spacing * rng.uniform(-0.5, 0.5, size=len(cumulative))


def exact_positive(z, a, b, rng, size=200):
    """Draws of p(z⁺ | z): first ‖z₁⁺‖², then each direction from its own von Mises-Fisher law."""
    grid = (np.arange(size) + 0.5) / size
    t = np.sum(z[:, :BLOCK] ** 2, axis=1)[:, None]
    log_prior = (BLOCK / 2 - 1) * (np.log(grid) + np.log1p(-grid))
    s = from_grid(log_kernel(a, b, t, grid) + log_prior, grid, rng)[:, None].clip(0, 1)
    blocks = []
    for c, part, length in ((a, z[:, :BLOCK], s), (b, z[:, BLOCK:], 1 - s)):
        k = 2 * c * np.linalg.norm(part, axis=1, keepdims=True) * np.sqrt(length)
        cosine = from_grid(k * (2 * grid - 1) + (BLOCK - 3) / 2 * np.log(4 * grid * (1 - grid)), 2 * grid - 1, rng)
        cosine = cosine[:, None].clip(-1, 1)
        mean = unit(part)
        side = rng.normal(size=part.shape)
        side = unit(side - np.sum(side * mean, axis=1, keepdims=True) * mean)
        blocks.append(np.sqrt(length) * (cosine * mean + np.sqrt(1 - cosine**2) * side))
    return np.concatenate(blocks, axis=1)


def sampled_moments(z, positive):
    squares = (z - positive) ** 2
    return squares[:, :BLOCK].sum(1).mean(), squares[:, BLOCK:].sum(1).mean()


# --- conventions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "limit", "first", "second", "batch_loss"),
    [
        (5.0, 25.0, -5.4876466871, 0.3503479313, 0.0914052167, 2.25),  # Λ = 5/25 put into Eq. 2 as it stands
        (2.5, 12.5, -3.2757159199, 0.5660147644, 0.1740965191, 4.32),  # Λ = 5/25 in the convention with a half
    ],
)
def test_the_half_of_the_exponent(a, b, limit, first, second, batch_loss):
    assert moments(a, b) == pytest.approx((first, second), abs=1e-8)
    least = a * first + b * second + W @ log_c(a, b)
    assert least == pytest.approx(limit, abs=1e-8)  # loss − log M as M → ∞

    rng = np.random.default_rng(0)
    n, m = 3000, 1998  # as many negatives as a batch of 1000 pairs has
    z = sphere(n, rng)
    positive = exact_positive(z, a, b, rng)
    assert sampled_moments(z, positive) == pytest.approx((first, second), rel=0.04)  # standard error 1 %
    negative = sphere(m, rng)
    root = np.sqrt(np.repeat([a, b], BLOCK))
    near = np.sum((root * (z - positive)) ** 2, axis=1)
    far = np.sum((root * z) ** 2, 1)[:, None] + np.sum((root * negative) ** 2, 1) - 2 * (root * z) @ (root * negative).T
    losses = near + np.logaddexp(-near, special.logsumexp(-far, axis=1))
    assert losses.mean() == pytest.approx(batch_loss, abs=0.1)  # standard error 0.03


def test_isotropic_weights_are_a_temperature():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 12, 4, dtype=torch.float64, generator=generator)
    views = Views(x=x[0], augmented=x + 0.3 * torch.randn(x.shape, dtype=torch.float64, generator=generator))
    weight = 3.7
    a, b = (v / v.norm(dim=-1, keepdim=True) for v in (views.x, views.augmented[0]))

    def loss(logits):  # candidates x for each anchor x̃, the positive on the diagonal
        return -torch.log_softmax(logits, 0).diagonal().mean().item()

    as_printed = loss(-weight * torch.cdist(a, b) ** 2)
    cosines = a @ b.mT
    assert as_printed == pytest.approx(loss(2 * weight * cosines), abs=1e-12)  # τ = 1/(2λ)
    assert abs(as_printed - loss(weight * cosines)) > 0.05  # not 1/λ

    energy = Anisotropic(weight, normalise=True).bind(dim=4).double()  # with the half: τ = 1/λ
    halved = InfoNCE(energy)(nn.Identity(), views).total.item()
    assert halved == pytest.approx(InfoNCE(Cosine(1 / weight))(nn.Identity(), views).total.item(), abs=1e-5)
    assert halved == pytest.approx(loss(-0.5 * weight * torch.cdist(a, b) ** 2), abs=1e-5)


# --- the positive conditional -----------------------------------------------------------------------------------------


def test_exact_conditional_returns_its_own_concentrations():
    for truth in ((5.0, 25.0), (2.5, 12.5)):
        assert best_concentrations(*moments(*truth)) == pytest.approx(truth, abs=1e-4)


@pytest.mark.parametrize(
    ("truth", "plain", "shell", "accepted"),
    [((5.0, 25.0), (5.767, 26.187), (5.050, 25.179), 0.212), ((2.5, 12.5), (3.206, 14.871), (2.528, 12.662), 0.096)],
)
def test_projected_gaussian_is_another_conditional(truth, plain, shell, accepted):
    rng = np.random.default_rng(0)
    scale = 1 / np.sqrt(2 * np.repeat(truth, BLOCK))
    z = sphere(300_000, rng)
    moved = z + scale * rng.normal(size=z.shape)
    assert best_concentrations(*sampled_moments(z, unit(moved))) == pytest.approx(plain, rel=0.008)
    # Keep draws near the sphere only, and draw again for the anchors that failed, so that these stay uniform.
    near = np.abs(np.linalg.norm(moved, axis=1) - 1) < 0.1
    assert near.mean() == pytest.approx(accepted, abs=0.003)
    kept, waiting = np.full(60_000, np.nan)[:, None] * z[:60_000], np.arange(60_000)
    while len(waiting):
        draw = z[waiting] + scale * rng.normal(size=(len(waiting), 2 * BLOCK))
        near = np.abs(np.linalg.norm(draw, axis=1) - 1) < 0.1
        kept[waiting[near]] = draw[near]
        waiting = waiting[~near]
    assert best_concentrations(*sampled_moments(z[:60_000], unit(kept))) == pytest.approx(shell, rel=0.012)


@pytest.mark.parametrize(
    ("a", "b", "values", "spread"),
    [(5, 25, (-9.8478, -9.4919, -9.5363), 0.056), (2.5, 12.5, (-7.4257, -6.8327, -6.6387), 0.161)],
)
def test_normaliser_depends_on_the_anchor(a, b, values, spread):
    ends = log_c(a, b, np.array([1e-12, 0.5, 1 - 1e-12]))
    assert ends == pytest.approx(values, abs=1e-3)
    rng = np.random.default_rng(0)
    anchors = np.zeros((3, 2 * BLOCK))
    anchors[:, 0], anchors[:, BLOCK] = np.sqrt([0, 0.5, 1]), np.sqrt([1, 0.5, 0])
    points = sphere(300_000, rng)
    weights = np.repeat([a, b], BLOCK)
    sampled = [np.log(np.mean(np.exp(-np.sum(weights * (points - z) ** 2, axis=1)))) for z in anchors]
    if a < 5:  # 5/25 is too concentrated for plain Monte Carlo
        assert sampled == pytest.approx(list(values), abs=0.1)
    mean = W @ log_c(a, b)
    assert np.sqrt(W @ (log_c(a, b) - mean) ** 2) == pytest.approx(spread, abs=2e-3)
    same = log_c(7, 7, np.array([1e-12, 0.3, 1 - 1e-12]))
    assert np.ptp(same) < 1e-9  # constant when isotropic


@pytest.mark.parametrize(
    ("truth", "low", "high", "all_positive", "half"),
    [((2.5, 12.5), 0.667, 1.079, (2.530, 12.503), (2.515, 12.501)), ((5.0, 25.0), 0.797, 1.022, None, None)],
)
def test_positives_are_not_uniform(truth, low, high, all_positive, half):
    def density(s):  # of z⁺, over uniform
        return W @ np.exp(log_kernel(*truth, T[:, None], np.asarray(s)) - log_c(*truth)[:, None])

    values = density(np.linspace(1e-9, 1 - 1e-9, 400))
    assert (values.min(), values.max()) == pytest.approx((low, high), abs=1e-3)
    at_nodes = density(T)
    assert W @ at_nodes == pytest.approx(1, abs=1e-12)
    if all_positive:  # negatives taken from the positive views of other pairs
        for share, expected in ((1.0, all_positive), (0.5, half)):
            mixed = share * at_nodes + 1 - share
            found = best_concentrations(*moments(*truth), lambda a, b, m=mixed: log_c(a, b, density=m))
            assert found == pytest.approx(expected, abs=2e-3)
            assert abs(found[0] - truth[0]) > 0.01


def test_functional_equation_needs_the_true_concentrations():
    rng = np.random.default_rng(0)
    z, other = sphere(2, rng)
    true, wrong = (2.5, 12.5), (9.0, 4.0)

    def residual(estimate, on_the_right):  # of Eq. 32 at h = id
        return np.repeat(np.subtract(estimate, on_the_right), BLOCK) @ (z - other) ** 2

    assert residual(wrong, wrong) == 0  # printed, with Λ̂ on both sides: any Λ̂ solves it
    assert abs(residual(wrong, true)) > 0.1  # right, with Λ: only the true one does
    assert residual(true, true) == 0
    first, second = moments(*true)
    losses = {c: c[0] * first + c[1] * second + W @ log_c(*c) for c in (true, wrong)}
    assert losses[wrong] > losses[true] + 1  # and a wrong Λ̂ is no minimiser


# --- hard negatives and ensembles -------------------------------------------------------------------------------------


def hard_loss(positive, hard, share):
    """log-normaliser of the critic when a share of negatives comes from the conditional with concentrations `hard`."""

    def log_normaliser(a, b):
        mined = log_c(hard[0] + a, hard[1] + b) - log_c(*hard)
        return mined if share == 1 else np.logaddexp(np.log(share) + mined, np.log1p(-share) + log_c(a, b))

    return best_concentrations(*moments(*positive), log_normaliser)


@pytest.mark.parametrize(
    ("share", "found"), [(1.0, (10.0, 28.0)), (0.5, (10.01, 28.03)), (0.1, (10.12, 28.28)), (0.01, (10.96, 30.27))]
)
def test_hard_negatives_subtract_only_when_they_are_alone(share, found):
    assert hard_loss((15.0, 40.0), (5.0, 12.0), share) == pytest.approx(found, abs=0.006)


def test_hard_negatives_need_a_positive_difference():
    positive, hard = (5.0, 25.0), (10.0, 5.0)  # the difference, diag(−5, 20), has full rank
    first, second = moments(*positive)

    def loss(a, b):
        return a * first + b * second + W @ (log_c(hard[0] + a, hard[1] + b) - log_c(*hard))

    assert hard_loss(positive, hard, 1.0) == pytest.approx((-5.0, 20.0), abs=1e-3)
    edge = optimize.minimize_scalar(lambda b: loss(0.0, b), bounds=(1, 60), method="bounded")
    assert edge.fun > loss(-5.0, 20.0) + 0.1  # no positive definite Λ̂ reaches the optimum


def test_signs_stay_free():
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 2.0, 5.0, 9.0])  # all distinct: "identified up to permutation"
    z, other = unit(rng.normal(size=(2, 6, 4)))
    order = np.array([2, 0, 3, 1])
    signs = np.array([1, -1, -1, 1])
    moved, moved_other = signs * z[:, order], signs * other[:, order]
    squares = np.sum(weights * (z - other) ** 2, axis=1)
    assert np.sum(weights[order] * (moved - moved_other) ** 2, axis=1) == pytest.approx(squares)

    first = np.array([400] * 3 + [15] * 9 + [250] * 8)  # appendix H.3, in twenty dimensions
    second = np.array([400] * 3 + [250] * 9 + [15] * 8)
    apart = (first[:, None] != first) | (second[:, None] != second)
    alone = first[:, None] != first
    assert (apart == alone).all()  # the second process separates no pair that the first does not
