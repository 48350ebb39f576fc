"""Samplers against their densities: quadrature, Kolmogorov–Smirnov and Stein's identity, over every member."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import gennorm, kstest

from probssl.errors import InputError
from probssl.theory.sphere import mean_resultant_length
from probssl.worlds import (
    Around,
    Box,
    Conditional,
    FisherBingham,
    ProjectedGaussian,
    RealSpace,
    ShellGaussian,
    Sphere,
    Uniform,
    VonMisesFisher,
    World,
    generalised_normal,
    normal,
    opposite,
)

from .members import marginals, on_box, on_reals, on_sphere, spread

HAS_NO_DENSITY = "known density at shape 2 only"


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def anchors(conditional: Conditional, count: int, seed: int = 1) -> torch.Tensor:
    """Points of its space, in double precision."""
    if isinstance(conditional.space, RealSpace):
        return torch.randn(count, conditional.space.dim, generator=seeded(seed), dtype=torch.double)
    return conditional.space.uniform(count, seeded(seed), torch.double)


def cdf(points: np.ndarray, density: np.ndarray):
    """A distribution function from a density on a fine grid."""
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(points))])
    assert mass[-1] == pytest.approx(1, abs=2e-5)  # a density: it integrates to one
    return lambda x: np.interp(x, points, mass / mass[-1])


# --- in one dimension, where the density can be integrated ------------------------------------------------------------


@pytest.mark.parametrize("name", on_sphere(2))
def test_on_the_circle_samples_follow_their_density(name):
    conditional = on_sphere(2)[name]
    radius = conditional.space.radius
    for number, anchor in enumerate((0.0, 0.8, 2.5)):
        z = radius * torch.tensor([[math.cos(anchor), math.sin(anchor)]], dtype=torch.double)
        turn = torch.linspace(-math.pi, math.pi, 4001, dtype=torch.double)
        points = radius * torch.stack([(turn + anchor).cos(), (turn + anchor).sin()], 1)
        constant = conditional.log_prob(z, z) - conditional.log_kernel(z, z)  # of this anchor, whatever z̃ is
        density = (conditional.log_kernel(points, z.expand_as(points)) + constant).exp() * radius
        x = conditional.sample(z.expand(4000, -1), seeded(number))
        turned = torch.atan2(x[:, 1], x[:, 0]) - anchor
        turned = (turned + math.pi) % (2 * math.pi) - math.pi
        assert kstest(turned.numpy(), cdf(turn.numpy(), density.numpy())).pvalue > 1e-4


@pytest.mark.parametrize("name", on_box(1))
def test_in_an_interval_samples_follow_their_density(name):
    conditional = on_box(1)[name]
    for number, anchor in enumerate((-1.0, 0.3, 1.9)):
        z = torch.tensor([[anchor]], dtype=torch.double)
        near = anchor + np.concatenate([-np.logspace(-6, 0.6, 8000)[::-1], [0], np.logspace(-6, 0.6, 8000)])
        grid = np.unique(np.clip(near, -1, 2))
        points = torch.from_numpy(grid).unsqueeze(1)
        density = conditional.log_prob(points, z.expand_as(points)).exp()
        x = conditional.sample(z.expand(4000, -1), seeded(number))
        assert kstest(x[:, 0].numpy(), cdf(grid, density.numpy())).pvalue > 1e-4
    assert conditional.log_prob(torch.tensor([[2.5]]), torch.tensor([[0.0]])) == -math.inf


@pytest.mark.parametrize("name", on_reals(1))
def test_on_the_line_samples_and_densities_are_scipys(name):
    conditional = on_reals(1)[name]
    law = gennorm(conditional.shape, loc=0.4, scale=float(conditional.scale))
    z = torch.full((4000, 1), 0.4, dtype=torch.double)
    x = conditional.sample(z, seeded())
    assert kstest(x[:, 0].numpy(), law.cdf).pvalue > 1e-4
    np.testing.assert_allclose(conditional.log_prob(x, z).numpy(), law.logpdf(x[:, 0].numpy()), rtol=1e-9)


# --- on the sphere in any dimension -----------------------------------------------------------------------------------


def stein(conditional: Conditional, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Δf + ⟨∇ log p, ∇f⟩ on the sphere for the d functions f = z̃_k and the d functions f = z̃_k², each of mean zero."""
    x = x.detach().requires_grad_(True)
    slope = torch.autograd.grad(conditional.log_kernel(x, z).sum(), x)[0]
    x = x.detach()
    d = x.shape[1]
    tangential = slope - (slope * x).sum(1, keepdim=True) * x
    linear = -(d - 1) * x + tangential
    square = 2 - 2 * d * x.square() + 2 * x * tangential
    return torch.cat([linear, square], 1)


@pytest.mark.parametrize("dim", [2, 3, 10, 64])
@pytest.mark.parametrize(
    "name", [name for name in on_sphere(3) if name.startswith(("vMF", "aniso")) and "radius" not in name]
)
def test_exact_samplers_obey_steins_identity(name, dim):
    conditional = on_sphere(dim)[name]
    z = anchors(conditional, 6000)
    values = stein(conditional, conditional.sample(z, seeded()), z)
    scores = values.mean(0) / (values.std(0) / math.sqrt(len(z)))
    assert scores.abs().max() < 4.8  # of up to 128 standard normal numbers


@pytest.mark.parametrize(("dim", "bound"), [(3, 4.8), (10, 4.8)])
def test_steins_identity_tells_the_shortcuts_apart(dim, bound):
    concentrations = spread(dim, 5.0, 25.0)
    exact = FisherBingham(Sphere(dim), concentrations)
    z = anchors(exact, 20_000)
    for shortcut in (ProjectedGaussian(Sphere(dim), concentrations), ShellGaussian(Sphere(dim), concentrations, 0.5)):
        values = stein(exact, shortcut.sample(z, seeded()), z)
        assert (values.mean(0) / (values.std(0) / math.sqrt(len(z)))).abs().max() > 2 * bound


@pytest.mark.parametrize("kappa", [0.0, 0.01, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("dim", [2, 3, 10, 64])
def test_cosines_of_von_mises_fisher(dim, kappa):
    z = Sphere(dim).uniform(6000, seeded(3), torch.double)
    law = VonMisesFisher(Sphere(dim), kappa)
    cosine = (law.sample(z, seeded()) * z).sum(1)
    error = 4.5 * float(cosine.std()) / math.sqrt(len(z))
    assert float(cosine.mean()) == pytest.approx(mean_resultant_length(dim, kappa), abs=error)
    angle = np.linspace(0, math.pi, 20_001)
    density = np.exp(kappa * (np.cos(angle) - 1)) * np.sin(angle) ** (dim - 2)
    density /= ((density[1:] + density[:-1]) / 2 * np.diff(angle)).sum()
    assert kstest(np.arccos(np.clip(cosine.numpy(), -1, 1)), cdf(angle, density)).pvalue > 1e-4


@pytest.mark.parametrize("name", [name for name in on_sphere(3) if "1000" not in name])
def test_densities_weigh_uniform_points_to_one(name):
    conditional = on_sphere(3)[name]
    z = anchors(conditional, 1).expand(4000, -1)
    x = conditional.space.uniform(4000, seeded(), torch.double)
    x, start = x[1:], x[:1]
    # One exact normaliser is enough: what is left of a density depends on the anchor alone.
    constant = (conditional.log_prob(start, z[:1]) - conditional.log_kernel(start, z[:1])).item()
    weight = (conditional.log_kernel(x, z[1:]) + constant + conditional.space.log_volume).exp()
    error = float(weight.std()) / math.sqrt(len(x))
    assert float(weight.mean()) == pytest.approx(1, abs=5 * error + 1e-9)


def test_the_anisotropic_world_moves_as_far_as_quadrature_says():
    concentrations = torch.tensor([5.0] * 5 + [25.0] * 5)
    z = Sphere(10).uniform(60_000, seeded())
    square = (FisherBingham(Sphere(10), concentrations).sample(z, seeded(1)) - z).square()
    for block, expected in ((slice(0, 5), 0.5660147644), (slice(5, 10), 0.1740965191)):
        moved = square[:, block].sum(1)
        assert float(moved.mean()) == pytest.approx(expected, abs=4 * float(moved.std()) / math.sqrt(len(z)))


def test_equal_concentrations_are_von_mises_fisher():
    z = Sphere(7).uniform(200, seeded(), torch.double)
    x = Sphere(7).uniform(200, seeded(1), torch.double)
    one, other = FisherBingham(Sphere(7), 12.0), VonMisesFisher(Sphere(7), 12.0)
    torch.testing.assert_close(one.log_prob(x, z), other.log_prob(x, z), rtol=1e-11, atol=1e-11)


def test_the_normaliser_of_the_anisotropic_density_varies():
    # The values of log C(z)/|S⁹| at |z₁|² = 0, ½ and 1 in the published world.
    law = FisherBingham(Sphere(10), torch.tensor([5.0] * 5 + [25.0] * 5))
    z = torch.zeros(3, 10, dtype=torch.double)
    z[0, 9] = z[2, 0] = 1
    z[1, 0] = z[1, 9] = math.sqrt(0.5)
    found = law.log_normaliser(z) - Sphere(10).log_volume
    torch.testing.assert_close(found, torch.tensor([-7.4257, -6.8327, -6.6387]).double(), rtol=0, atol=1e-4)


# --- what all of them promise -----------------------------------------------------------------------------------------

EVERY = {
    f"{name} in {dim}": conditional
    for dim in (2, 10)
    for family in (on_sphere, on_box, on_reals)
    for name, conditional in family(dim).items()
}


@pytest.mark.parametrize("name", EVERY)
def test_samples_stay_in_the_space_and_follow_the_seed(name):
    conditional = EVERY[name]
    for dtype in (torch.float, torch.double):
        z = anchors(conditional, 300).to(dtype)
        x = conditional.sample(z, seeded())
        assert x.dtype == dtype
        assert x.shape == z.shape
        assert bool(conditional.space.contains(x).all())
        assert torch.equal(x, conditional.sample(z, seeded()))
        assert not torch.equal(x, conditional.sample(z, seeded(1)))


@pytest.mark.parametrize("name", EVERY)
def test_a_density_and_its_kernel_differ_by_what_depends_on_the_anchor_alone(name):
    conditional = EVERY[name]
    z = anchors(conditional, 2).repeat(5, 1)
    x = conditional.sample(z, seeded())
    constant = (conditional.log_prob(x, z) - conditional.log_kernel(x, z)).view(5, 2)
    torch.testing.assert_close(constant, constant[:1].expand(5, 2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", marginals(2))
def test_marginals_follow_their_density(name):
    marginal = marginals(2)[name]
    z = marginal.sample(3000, seeded(), torch.double)
    assert z.shape == (3000, 2)
    assert bool(marginal.space.contains(z).all())
    assert torch.equal(z, marginal.sample(3000, seeded(), torch.double))
    # E[1/p] over samples inside a region is its volume: here the half of a bounded space, or a square.
    weight = (-marginal.log_prob(z)).exp()
    if isinstance(marginal.space, RealSpace):
        inside, volume = (z.abs() < 0.5).all(1), 1.0
    else:
        inside = z[:, 0] > float(marginal.space.centre()[0] if isinstance(marginal.space, Box) else 0)
        volume = math.exp(marginal.space.log_volume) / 2
    weight = weight * inside
    error = 5 * float(weight.std()) / math.sqrt(len(z))
    assert float(weight.mean()) == pytest.approx(volume, abs=error)


def test_the_opposite_marginal_is_a_mirror():
    marginal = Around(VonMisesFisher(Sphere(4), 5.0))
    z = marginal.sample(50, seeded(), torch.double)
    torch.testing.assert_close(opposite(marginal).log_prob(-z), marginal.log_prob(z))
    with pytest.raises(InputError, match="antipodes"):
        opposite(Around(normal(Box(2), 0.3)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Sphere(1), "at least 2 dimensions"),
        (lambda: Sphere(3, -1.0), "radius must be positive"),
        (lambda: Box(2, 1.0, 1.0), "low < high"),
        (lambda: RealSpace(2).uniform(3), "no uniform distribution"),
        (lambda: Uniform(RealSpace(2)), "no uniform distribution"),
        (lambda: VonMisesFisher(Box(3), 1.0), "lives on a Sphere, not on a Box"),
        (lambda: VonMisesFisher(Sphere(3), -1.0), "at least 0, not -1"),
        (lambda: generalised_normal(Box(3), 0.0, 1.0), "shape must be positive"),
        (lambda: generalised_normal(Box(3), 2.0, torch.ones(2)), "one scale or 3"),
        (lambda: FisherBingham(Sphere(3), torch.tensor([1.0, 0.0, 2.0])), "every concentration must be positive"),
        (lambda: FisherBingham(Sphere(3, 2.0), 1.0), "unit sphere"),
        (lambda: ShellGaussian(Sphere(3), 1.0, 1.5), "between 0 and 1"),
        (lambda: generalised_normal(Sphere(3), 1.0, 1.0).log_prob(torch.ones(1, 3), torch.ones(1, 3)), HAS_NO_DENSITY),
        (lambda: Around(normal(Sphere(3), 1.0), torch.zeros(3)), "must be a point of"),
        (lambda: World(Uniform(Sphere(3)), VonMisesFisher(Sphere(4), 1.0)), "one space"),
        (lambda: World(Uniform(Sphere(3)), []), "at least one conditional"),
    ],
)
def test_refusals(make, says):
    with pytest.raises(InputError, match=says):
        make()
