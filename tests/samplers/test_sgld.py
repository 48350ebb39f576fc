"""Langevin dynamics: its samples have the density it walks on, at the temperature it says, within its walls."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from probssl.errors import InputError
from probssl.samplers import SGLD, Box, UniformStart

CHAINS = 4_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def start(low: float, high: float, count: int = CHAINS) -> Tensor:
    ends = torch.full((2,), low, dtype=torch.float64), torch.full((2,), high, dtype=torch.float64)
    return UniformStart(*ends).draw(count, generator(1))


MEANS, SHARES, SPREAD = torch.tensor([[-1.0, 0.0], [1.0, 0.5]], dtype=torch.float64), (0.3, 0.7), 0.5


def mixture(x: Tensor) -> Tensor:
    parts = [
        math.log(share) - (x - mean).square().sum(-1) / (2 * SPREAD**2)
        for share, mean in zip(SHARES, MEANS, strict=True)
    ]
    return torch.logsumexp(torch.stack(parts), 0)


def ring(x: Tensor) -> Tensor:
    """Radius 1, width 0.15."""
    return -(x.norm(dim=-1) - 1).square() / (2 * 0.15**2)


def test_samples_of_a_mixture() -> None:
    found = SGLD(steps=600, step_size=0.01).walk(mixture, start(-2, 2), generator()).numpy()

    def cumulative(values: np.ndarray) -> np.ndarray:
        return sum(s * stats.norm.cdf(values, m, SPREAD) for s, m in zip(SHARES, MEANS[:, 0].tolist(), strict=True))

    assert stats.kstest(found[:, 0], cumulative).statistic < 0.03  # chance alone: 0.03 once in a thousand
    expected = np.average(MEANS.numpy(), axis=0, weights=SHARES)
    np.testing.assert_allclose(found.mean(0), expected, atol=0.06)


def test_samples_of_a_ring() -> None:
    found = SGLD(steps=800, step_size=0.002).walk(ring, start(-1.5, 1.5), generator()).norm(dim=1).numpy()

    def weight(radius: float) -> float:
        return radius * math.exp(-((radius - 1) ** 2) / (2 * 0.15**2))

    total = integrate.quad(weight, 0, 3)[0]
    grid = np.linspace(0, 2.5, 400)
    table = np.array([integrate.quad(weight, 0, radius)[0] for radius in grid]) / total
    assert stats.kstest(found, lambda r: np.interp(r, grid, table)).statistic < 0.035


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_the_temperature_is_that_of_the_samples(temperature: float) -> None:
    sampler = SGLD(steps=300, step_size=0.02, temperature=temperature)
    found = sampler.walk(lambda x: -x.square().sum(-1) / 2, start(-1, 1), generator())
    # the exact variance of the discrete chain: noise² / (1 − (1 − η)²)
    assert sampler.noise == pytest.approx(math.sqrt(2 * 0.02 * temperature))
    assert found.var().item() == pytest.approx(sampler.noise**2 / (1 - 0.98**2), rel=0.06)
    assert found.var().item() == pytest.approx(temperature, rel=0.08)


def test_noise_and_temperature_say_the_same() -> None:
    toy, images = SGLD(step_size=0.01**2 / 2, noise=0.01), SGLD(step_size=1.0, noise=0.01)
    assert toy.temperature == pytest.approx(1)
    assert images.temperature == pytest.approx(5e-5)
    assert SGLD(step_size=1.0, temperature=5e-5).noise == pytest.approx(0.01)
    assert SGLD(noise=0.0).temperature == 0


def test_without_noise_it_climbs() -> None:
    found = SGLD(steps=200, step_size=0.1, noise=0.0).walk(lambda x: -(x - 3).square().sum(-1), start(-1, 1, 5))
    torch.testing.assert_close(found, torch.full_like(found, 3))


def test_walls_reflect() -> None:
    box = Box(-1.0, 2.0)
    given = torch.tensor([-1.5, -1.0, 0.3, 2.0, 2.5, 5.5, -7.5])
    torch.testing.assert_close(box.reflect(given), torch.tensor([-0.5, -1.0, 0.3, 2.0, 1.5, -0.5, -1.5 + 1.0]))
    found = SGLD(steps=200, step_size=0.05, box=box).walk(lambda x: 0 * x.sum(-1), start(-1, 2), generator())
    assert stats.kstest(found.flatten().numpy(), stats.uniform(-1, 3).cdf).statistic < 0.025  # no heap at the walls


def test_clipping_bounds_every_entry() -> None:
    sampler = SGLD(steps=1, step_size=0.5, noise=0.0, clip=2.0)
    begun = torch.tensor([[100.0, 0.1]])
    torch.testing.assert_close(
        sampler.walk(lambda x: -x.square().sum(-1), begun), begun - 0.5 * torch.tensor([[2.0, 0.2]])
    )


def test_what_chains_did() -> None:
    found, trace = SGLD(steps=50, step_size=0.01).traced(mixture, start(4, 5), generator())
    assert trace.energy.shape == (51,)
    assert trace.gradient_norm.shape == (50,)
    assert trace.energy[0] > trace.energy[-1] + 10
    assert trace.energy[-1].item() == pytest.approx(-mixture(found).mean().item())
    begun = start(4, 5)
    norm = torch.func.vmap(torch.func.grad(mixture))(begun).norm(dim=1).mean().item()
    assert trace.gradient_norm[0].item() == pytest.approx(norm)


def test_a_generator_decides_all_and_parameters_get_no_gradient() -> None:
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    walk = lambda seed: SGLD(steps=3).walk(lambda x: -(weight * x).square().sum(-1), start(-1, 1, 6), generator(seed))  # noqa: E731
    torch.testing.assert_close(walk(0), walk(0), rtol=0, atol=0)
    assert not torch.equal(walk(0), walk(1))
    assert weight.grad is None
    assert not walk(0).requires_grad


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: SGLD(steps=0), "at least one step, not 0"),
        (lambda: SGLD(step_size=0), "step size must be positive"),
        (lambda: SGLD(noise=0.1, temperature=1.0), "give one of them"),
        (lambda: SGLD(temperature=-1.0), "temperature must be finite and ≥ 0"),
        (lambda: SGLD(clip=0.0), "largest entry of a gradient"),
        (lambda: Box(1.0, 1.0), "a low wall below a high one"),
    ],
)
def test_refusals(make: Callable[[], object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        make()
