"""Objectives on worlds where theory says what they must be: Bayes losses, optimal concentrations, hard negatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from probssl.energies import Anisotropic, Cosine, Dot, PNorm
from probssl.errors import InputError
from probssl.objectives import AlignUniform, Ensemble, Fisher, InfoNCE, LatentRegression, TriCL
from probssl.pairings.views import Views
from probssl.theory.sphere_bayes import bayes_infonce_anisotropic, bayes_infonce_vmf
from probssl.worlds import FisherBingham, ProjectedGaussian, RealSpace, Sphere, Uniform, VonMisesFisher, World

LATENTS = nn.Identity()  # the encoder that has found them


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mean_loss(objective, world: World, rows: int, rounds: int) -> tuple[float, float]:
    """The loss at the true latents over several batches, and its standard error."""
    chance = generator(7)
    losses = [
        float(objective(LATENTS, world.draw(rows, objective.needs, chance)).total.detach()) for _ in range(rounds)
    ]
    return float(np.mean(losses)), float(np.std(losses, ddof=1) / math.sqrt(rounds))


@pytest.mark.parametrize("candidates", ["batch", "originals", "given"])
def test_infonce_at_the_latents_is_the_bayes_loss(candidates):
    space = Sphere(10)
    world = World(Uniform(space), VonMisesFisher(space, 10.0), negatives=255)
    found, error = mean_loss(InfoNCE(Cosine(0.1), candidates=candidates), world, 256, 40)
    assert found == pytest.approx(bayes_infonce_vmf(10, 10, 255), abs=4 * error)


def aninfonce(concentration, candidates="originals") -> InfoNCE:
    return InfoNCE(Anisotropic(concentration, normalise=True), candidates=candidates, anchor="original")


@pytest.mark.parametrize("candidates", ["originals", "given"])
def test_aninfonce_at_the_latents_is_the_bayes_loss(candidates):
    truth = torch.tensor([5.0] * 5 + [25.0] * 5)
    space = Sphere(10)
    world = World(Uniform(space), FisherBingham(space, truth), negatives=255)
    objective = aninfonce(truth, candidates).bind(dim=10)
    found, error = mean_loss(objective, world, 256, 40)
    expected = bayes_infonce_anisotropic(truth.numpy(), 255, 3000, np.random.default_rng(0))
    assert found == pytest.approx(expected.mean, abs=4 * math.hypot(error, expected.standard_error))


def slope_at(world: World, concentrations: torch.Tensor, **options) -> torch.Tensor:
    """∂L/∂Λ̂ over its standard error at given concentrations, with the latents as the code: [dim]."""
    objective = aninfonce(concentrations, **options).bind(dim=len(concentrations))
    slopes, chance = [], generator(3)
    for _ in range(60):
        objective.zero_grad()
        objective(LATENTS, world.draw(512, objective.needs, chance)).total.backward()
        slopes.append(objective.energy.raw_concentration.grad.clone())
    slopes = torch.stack(slopes)
    return slopes.mean(0) / (slopes.std(0) / math.sqrt(len(slopes)))


def test_the_true_concentrations_are_stationary_with_exact_samples_only():
    space, truth = Sphere(6), torch.tensor([4.0] * 3 + [20.0] * 3)
    exact = World(Uniform(space), FisherBingham(space, truth))
    assert slope_at(exact, truth).abs().max() < 4
    shortcut = World(Uniform(space), ProjectedGaussian(space, truth))
    assert slope_at(shortcut, truth).max() < -5.5  # it asks for larger ones


def test_with_hard_negatives_the_optimum_is_the_difference():
    space = Sphere(6)
    positive, hard = torch.tensor([15.0] * 3 + [40.0] * 3), torch.tensor([5.0] * 3 + [12.0] * 3)
    world = World(Uniform(space), FisherBingham(space, positive), hard=FisherBingham(space, hard), negatives=8)
    assert slope_at(world, positive - hard, candidates="given").abs().max() < 4
    assert slope_at(world, positive, candidates="given").min() > 8  # too concentrated


def test_an_ensemble_is_the_sum_of_its_parts():
    space = Sphere(4)
    world = World(Uniform(space), [FisherBingham(space, 5.0), FisherBingham(space, 50.0)])
    unbound = [aninfonce(c) for c in (5.0, 50.0)]
    both, parts = Ensemble(unbound).bind(dim=4), [part.bind(dim=4) for part in unbound]
    views = world.draw(64, both.needs, generator())
    values = both(LATENTS, views).numbers()
    alone = []
    for number, part in enumerate(parts):
        own = type(views)(views.x, views.augmented[number : number + 1])
        alone.append(part(LATENTS, own).total.item())
    assert values["loss"] == pytest.approx(sum(alone), rel=1e-6)
    assert set(values) == {"loss", "alignment_1", "log_normaliser_1", "alignment_2", "log_normaliser_2"}
    assert both.optimum(64, 4) == 0
    assert both.energy is both.objectives[0].energy


def test_align_uniform_is_unchanged_by_what_it_cannot_see():
    space = Sphere(5)
    views = World(Uniform(space), VonMisesFisher(space, 5.0)).draw(200, AlignUniform().needs, generator())
    turn = nn.utils.parametrizations.orthogonal(nn.Linear(5, 5, bias=False))
    flip = nn.Linear(5, 5, bias=False)
    with torch.no_grad():
        flip.weight.copy_(torch.eye(5)[[2, 0, 4, 1, 3]] * torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0]))
    for p in (1.0, 2.0, 3.0):
        values = [AlignUniform(0.5, p)(encoder, views).total.item() for encoder in (LATENTS, turn, flip)]
        assert values[2] == pytest.approx(values[0], rel=1e-5)
        assert (values[1] == pytest.approx(values[0], rel=1e-5)) == (p == 2)


def test_align_uniform_is_bounded_with_itself_and_not_without():
    """Codes pushed apart without end: −α log n is the least, and without the observation itself there is none."""
    x = torch.randn(12, 3, generator=generator(), dtype=torch.float64)
    still = Views(x=x * 1e6, augmented=x.unsqueeze(0) * 1e6)
    bounded, unbounded = AlignUniform(0.9), AlignUniform(0.9, itself=False)
    assert bounded(LATENTS, still).total.item() == pytest.approx(bounded.optimum(12, 3))
    assert unbounded(LATENTS, still).total.item() < -1e4
    assert unbounded.optimum(12, 3) is None


def test_regression_on_latents_is_zero_at_the_inverse():
    world = World(Uniform(Sphere(3)), VonMisesFisher(Sphere(3), 1.0))
    views = world.draw(20, LatentRegression().needs, generator())
    assert LatentRegression()(LATENTS, views).total.item() == 0
    assert LatentRegression()(nn.Linear(3, 3), views).total.item() > 0


def test_spectral_tricl_is_least_at_the_leading_functions():
    # On the sphere with vMF positives zᵀz̃ spans the leading eigenfunctions of the density ratio; S is their eigenvalue.
    dim, kappa = 4, 2.0
    world = World(Uniform(Sphere(dim)), VonMisesFisher(Sphere(dim), kappa))
    objective = TriCL().bind(dim=dim)
    views = world.draw(20_000, objective.needs, generator())

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * math.sqrt(dim)  # E[zzᵀ] = I

    from probssl.theory.sphere import mean_resultant_length

    def value(importance: float) -> float:
        with torch.no_grad():
            objective.raw_importance.fill_(math.log(math.expm1(importance)))
            return objective(Scaled(), views).total.item()

    eigenvalue = mean_resultant_length(dim, kappa)  # E[z̃ | z] = A(κ) z
    assert value(eigenvalue) == pytest.approx(-dim * eigenvalue**2, rel=0.05)
    assert value(eigenvalue) < min(value(0.7 * eigenvalue), value(1.4 * eigenvalue))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: InfoNCE(candidates="some"), "candidates are batch, batch-negatives, originals"),
        (lambda: InfoNCE(candidates="originals", anchor="augmented"), "the anchor is original"),
        (lambda: InfoNCE(candidates="two-view", group_size=4), "only for the candidates"),
        (lambda: InfoNCE(group_size=1), "at least 2"),
        (lambda: Ensemble([]), "at least one objective"),
        (lambda: Ensemble([InfoNCE(pair="augmented")]), "one augmented view each"),
        (lambda: Ensemble([Fisher()]), "neither scores"),
        (lambda: AlignUniform(1.0), "between 0 and 1"),
        (lambda: TriCL(contrast="simclr"), "'spectral' or 'infonce'"),
        (lambda: aninfonce(-1.0), "positive and finite"),
    ],
)
def test_refusals(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_p_norms_of_two_have_factors_and_others_do_not():
    a, b = torch.randn(5, 3, generator=generator()), torch.randn(4, 3, generator=generator(1))
    left, right, offset = PNorm(2).factors(a, b)
    torch.testing.assert_close(-(left @ right.T) - offset, PNorm(2).pairwise(a, b))
    assert PNorm(1).factors(a, b) is None
    assert Dot().factors(a, b) is not None
    assert RealSpace(3).contains(a).all()
