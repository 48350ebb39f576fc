"""Objectives on moments of the batch: their likelihood bounds, what they do not see, and where they are least."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from probssl.objectives import WMSE, BarlowTwins, CorInfoMax, Objective, VICReg
from probssl.objectives.redundancy import _centred, _whitened
from probssl.pairings import Views
from tests.objectives.members import normal

EVERY = (BarlowTwins, VICReg, WMSE, CorInfoMax)
every = pytest.mark.parametrize("kind", EVERY)


def value(objective: Objective, first: Tensor, second: Tensor) -> float:
    """The loss of given embeddings."""
    return objective(nn.Identity(), Views(first, torch.stack([first, second]))).total.item()


def gaussian(covariance: Tensor, centre: Tensor | None = None) -> MultivariateNormal:
    return MultivariateNormal(covariance.new_zeros(len(covariance)) if centre is None else centre, covariance)


def standard_kl(covariance: Tensor) -> Tensor:
    """KL(N(0, Σ) ‖ N(0, I)), by torch."""
    return kl_divergence(gaussian(covariance), gaussian(torch.eye(len(covariance), dtype=covariance.dtype)))


def moments(z: Tensor, correction: int) -> Tensor:
    return torch.cov(z.mT, correction=correction)


def decorrelated(rows: int, dim: int, seed: int = 0) -> Tensor:
    """Centred codes with the identity as their covariance, with 1/(n − 1)."""
    return torch.linalg.qr(_centred(normal(rows, dim, seed=seed))).Q * math.sqrt(rows - 1)


# --- likelihood bounds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(("gamma", "epsilon"), [(250.0, 1e-8), (3.0, 0.1)])
def test_corinfomax_is_the_likelihood_bound(normalise: bool, gamma: float, epsilon: float) -> None:
    """Both KLs of GEDI's Lemma 2, for both views, with precision γ/n of what an augmentation changes."""
    n, m = 12, 3
    objective = CorInfoMax(invariance=gamma, epsilon=epsilon, normalise=normalise)
    first, second = normal(n, m), normal(n, m, seed=1)
    found = value(objective, first, second)
    if normalise:
        first, second = (side / side.norm(dim=1, keepdim=True) for side in (first, second))
    eye = torch.eye(m, dtype=torch.float64)
    codes = [moments(side, 0) + epsilon * eye for side in (first, second)]
    prior = gaussian(n / gamma * eye)
    moved = sum(kl_divergence(gaussian(eye, a - b), prior) for a, b in zip(first, second, strict=True))
    unmoved = n * kl_divergence(gaussian(eye), prior)
    bound = -sum(standard_kl(code) for code in codes) - (moved - unmoved)
    traces = sum(torch.trace(code) for code in codes)
    assert found == pytest.approx((-2 * bound - traces + 2 * m).item(), rel=1e-10)
    gap = gamma * (first - second).square().sum(1).mean().item()
    printed = found - 2 * gap  # with +γ in what is maximised, as Eq. 15 prints
    assert abs(printed - (-2 * bound - traces + 2 * m).item()) > 1


def test_the_kl_of_a_code_and_of_what_an_augmentation_changes() -> None:
    """½(Tr Σ − m − log det Σ), and (γ/2)‖Δ‖² above its least."""
    root, gap, gamma = normal(4, 4), normal(4, seed=1), 0.7
    covariance, eye = root @ root.mT, torch.eye(4, dtype=torch.float64)
    expected = 0.5 * (torch.trace(covariance) - 4 - torch.logdet(covariance))
    torch.testing.assert_close(standard_kl(covariance), expected, rtol=1e-10, atol=1e-12)
    above = kl_divergence(gaussian(eye, gap), gaussian(eye / gamma)) - kl_divergence(
        gaussian(eye), gaussian(eye / gamma)
    )
    torch.testing.assert_close(above, gamma / 2 * gap.square().sum(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1e-2, 1e-3])
def test_penalties_on_covariances_are_that_kl_to_second_order(size: float) -> None:
    """For unit variances and views that agree: m c/4 of VICReg, and the second term of Barlow Twins over 4λ."""
    n, m = 60, 4
    noise = normal(m, m, seed=1)
    target = torch.eye(m, dtype=torch.float64) + size * (noise + noise.mT).tril(-1)
    target = target.tril(-1) + target.tril(-1).mT + torch.eye(m, dtype=torch.float64)
    z = decorrelated(n, m) @ torch.linalg.cholesky(target).mT
    torch.testing.assert_close(moments(z, 1), target)
    exact = standard_kl(target).item()
    views = Views(z, torch.stack([z, z]))
    of_vicreg = VICReg(covariance=1.0)(nn.Identity(), views)["covariance"].item() / 2  # one of two alike
    of_barlow = BarlowTwins(redundancy=0.3)(nn.Identity(), views)["redundancy"].item()
    assert m / 4 * of_vicreg == pytest.approx(exact, rel=10 * size)
    assert of_barlow / (4 * 0.3) == pytest.approx(exact, rel=10 * size)
    assert exact > 0


def test_whitened_codes_have_no_kl_left() -> None:
    white = _whitened(normal(40, 5) @ normal(5, 5, seed=1) + 3)
    assert standard_kl(moments(white, 1)).item() == pytest.approx(0, abs=1e-6)  # but for the ridge


def test_few_whitened_rows_are_equally_far_apart() -> None:
    distances = torch.pdist(_whitened(normal(5, 6)))
    torch.testing.assert_close(distances, torch.full_like(distances, math.sqrt(2 * 4)), rtol=1e-5, atol=0)


def test_the_diagonal_of_barlow_twins_is_a_squared_distance() -> None:
    first, second = normal(9, 3), normal(9, 3, seed=1)
    terms = BarlowTwins()(nn.Identity(), Views(first, torch.stack([first, second])))
    scaled = [(side - side.mean(0)) / side.std(0, correction=0) for side in (first, second)]
    distances = 0.5 * (scaled[0] - scaled[1]).square().mean(0)
    assert terms["invariance"].item() == pytest.approx(distances.square().sum().item(), rel=1e-10)


# --- published forms --------------------------------------------------------------------------------------------------


def test_barlow_twins_weighs_by_lambda_and_not_its_square() -> None:
    first, second = normal(9, 3), normal(9, 3, seed=1)
    correlation = torch.corrcoef(torch.cat([first, second], 1).mT)[:3, 3:]
    eye = torch.eye(3, dtype=torch.float64)
    on, off = ((correlation - eye).square() * eye).sum(), (correlation.square() * (1 - eye)).sum()
    assert value(BarlowTwins(redundancy=0.3), first, second) == pytest.approx((on + 0.3 * off).item(), rel=1e-10)
    inside = (correlation * (0.3 + 0.7 * eye) - eye).square().sum()  # as GEDI writes it
    assert value(BarlowTwins(redundancy=0.3**2), first, second) == pytest.approx(inside.item(), rel=1e-10)


def test_vicreg_adds_the_variance_of_both_views() -> None:
    """The sum of the paper; half of it, as in the released code, is what half the weight gives."""
    first, second = 0.3 * normal(9, 3), 0.5 * normal(9, 3, seed=1)
    hinges = [(1 - (side.var(0) + 1e-4).sqrt()).clamp_min(0).mean() for side in (first, second)]
    views = Views(first, torch.stack([first, second]))
    assert VICReg()(nn.Identity(), views)["variance"].item() == pytest.approx(25 * sum(hinges).item(), rel=1e-10)
    released = 25 * (hinges[0] / 2 + hinges[1] / 2)
    assert VICReg(variance=12.5)(nn.Identity(), views)["variance"].item() == pytest.approx(released.item(), rel=1e-10)


def test_wmse_is_a_squared_distance_of_directions() -> None:
    first, second = normal(9, 3), normal(9, 3, seed=1)
    codes = [nn.functional.normalize(_whitened(side), dim=1) for side in (first, second)]
    distance = (codes[0] - codes[1]).square().sum(1).mean()
    assert value(WMSE(), first, second) == pytest.approx(distance.item(), rel=1e-10)


# --- what is not seen -------------------------------------------------------------------------------------------------


@every
def test_a_common_shift_and_order_of_dimensions(kind: type[Objective]) -> None:
    """Order matters to W-MSE alone, whose Cholesky factor takes dimensions in turn."""
    objective = CorInfoMax(normalise=False) if kind is CorInfoMax else kind()
    first, second = normal(20, 3), normal(20, 3, seed=1)
    expected = value(objective, first, second)
    assert value(objective, first + 5, second + 5) == pytest.approx(expected, rel=1e-9)
    turned = value(objective, first.flip(1), second.flip(1))
    assert (turned == pytest.approx(expected, rel=1e-9)) == (kind is not WMSE)


@pytest.mark.parametrize("kind", [BarlowTwins, WMSE])
def test_the_scale_of_a_dimension_is_not_seen(kind: type[Objective]) -> None:
    first, second = normal(20, 3), normal(20, 3, seed=1)
    scales = torch.tensor([0.01, 1.0, 30.0], dtype=torch.float64)
    expected = value(kind(), first, second)
    assert value(kind(), first * scales, second * scales + 1) == pytest.approx(expected, rel=1e-9)
    assert value(kind(), 1e-6 * first, 1e-6 * second) == pytest.approx(expected, rel=1e-9)


# --- minima and collapse ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BarlowTwins, VICReg, WMSE])
def test_views_that_agree_in_uncorrelated_dimensions_have_the_least_loss(kind: type[Objective]) -> None:
    z = 1.1 * decorrelated(20, 3)
    assert value(kind(), z, z) == pytest.approx(0, abs=1e-12)
    assert kind().optimum(20, 3) == 0


@pytest.mark.parametrize(("rows", "dim"), [(8, 4), (4, 4), (3, 5)])
def test_the_least_corinfomax_is_reached(rows: int, dim: int) -> None:
    """By a regular simplex where there are few rows, else by plus and minus the axes."""
    if rows > dim:
        z = torch.cat([torch.eye(dim), -torch.eye(dim)]).double()
    else:
        simplex = torch.eye(rows, dtype=torch.float64) - 1 / rows
        basis = torch.linalg.eigh(simplex).eigenvectors[:, 1:]  # of the plane that it lies in
        z = nn.functional.pad(simplex @ basis, (0, dim - rows + 1))
    objective = CorInfoMax()
    least = objective.optimum(rows, dim)
    assert least is not None
    assert value(objective, z, z) == pytest.approx(least, rel=1e-9)
    for seed in range(5):
        assert value(objective, *normal(2, rows, dim, seed=seed)) > least
    assert CorInfoMax(normalise=False).optimum(rows, dim) is None


def test_nothing_bounds_corinfomax_off_the_sphere() -> None:
    z = normal(20, 3)
    values = [value(CorInfoMax(normalise=False), scale * z, scale * z) for scale in (1, 10, 100)]
    assert values[0] - values[1] == pytest.approx(values[1] - values[2], rel=1e-4)
    assert values[2] < values[0] - 20


@pytest.mark.parametrize("kind", [VICReg, CorInfoMax])
def test_a_constant_is_left_by_views_that_have_nothing_in_common(kind: type[Objective]) -> None:
    """Any variance is better than none, even if all of it is noise."""
    first, second = normal(200, 3), normal(200, 3, seed=1)
    centre = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    objective = kind()
    constant = value(objective, centre.expand(200, 3), centre.expand(200, 3))
    small = [value(objective, centre + scale * first, centre + scale * second) for scale in (1e-5, 1e-3)]
    assert constant > small[0] > small[1]


def test_repeating_a_dimension_is_cheaper_than_to_lack_it() -> None:
    """For Barlow Twins and VICReg, by the amounts that `admits` tells; CorInfoMax pays for both alike."""
    one = decorrelated(20, 1)
    repeated, missing = torch.cat([one, one], 1), torch.cat([one, torch.zeros_like(one)], 1)
    costs = {kind: [value(kind(), z, z) for z in (repeated, missing)] for kind in (BarlowTwins, VICReg)}
    assert costs[BarlowTwins] == pytest.approx([2 * 5e-3, 1.0], rel=1e-6)
    assert costs[VICReg] == pytest.approx([2 * 1.0, 25 * (1 - 0.01)], rel=1e-6)
    plane = CorInfoMax(normalise=False)
    assert min(value(plane, z, z) for z in (repeated, missing)) > value(plane, *[decorrelated(20, 2)] * 2) + 30


# --- numbers ----------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "dim"), [(2, 1), (2, 6), (4, 6), (40, 6)])
def test_singular_covariances(kind: type[Objective], dtype: torch.dtype, rows: int, dim: int) -> None:
    """Fewer rows than dimensions, directions without variance, and embeddings far from 0."""
    z = normal(2, rows, dim)
    flat = z.clone()
    flat[..., -1] = flat[..., 0]
    for embedding in (z, flat, 1e-12 * z, 1e4 * z, z + 1e4, torch.ones_like(z)):
        pair = embedding.to(dtype).requires_grad_()
        total = kind()(nn.Identity(), Views(pair[0], pair)).total
        (slope,) = torch.autograd.grad(total, pair)
        assert total.isfinite()
        assert slope.isfinite().all()


@every
def test_a_stack_of_batches_is_computed_as_each_alone(kind: type[Objective]) -> None:
    objective, pairs = kind(), normal(3, 2, 10, 4)
    stacked = torch.vmap(lambda pair: objective(nn.Identity(), Views(pair[0], pair)).total)(pairs)
    assert stacked.tolist() == pytest.approx([value(objective, *pair) for pair in pairs], rel=1e-10)


@every
def test_two_augmentations_as_published(kind: type[Objective]) -> None:
    assert kind().needs.augmented == 2
    assert kind(pair="original").needs.augmented == 1
