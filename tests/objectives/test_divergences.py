"""Identities of the divergences beyond KL, and of the references that every loss is measured against."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

from probssl.encoders import MLP, seeded
from probssl.energies import Asymmetric, Cosine, Energy, Euclidean
from probssl.objectives import (
    NCE,
    SNL,
    ChiSquared,
    Fisher,
    InfoNCE,
    JensenShannon,
    Objective,
    RenyiInfoNCE,
    SimSiam,
    SlicedFisher,
    Spectral,
    Triplet,
)
from probssl.objectives.reference import FlatEnergy, PosteriorEnergy, RatioEnergy, ReferenceLosses, reference_losses
from probssl.pairings import GaussianNoise, LinearMixture, MaskAndNoise, Needs, Pairing, Rotations, Views
from probssl.pairings.views import random_signs
from tests.objectives.members import INPUT, cast, generator, normal, smooth_encoder

JOINT = torch.tensor(
    [[0.16, 0.02, 0.02], [0.03, 0.20, 0.07], [0.01, 0.05, 0.24], [0.06, 0.10, 0.04]], dtype=torch.float64
)
"""p(x, x̃) on a finite world of four observations and three augmentations."""
P_X, P_AUG = JOINT.sum(1), JOINT.sum(0)
RATIO = JOINT / (P_X.unsqueeze(1) * P_AUG)
PRODUCT = P_X.unsqueeze(1) * P_AUG


class Table(Energy):
    """δ(x, x̃) looked up in a table: observations are numbers of rows and columns."""

    symmetric = False

    def __init__(self, energies: Tensor) -> None:
        super().__init__()
        self.energies = nn.Parameter(energies.clone())

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return self.energies[a[..., 0].long(), b[..., 0].long()]

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return self.energies[a[:, 0].long()][:, b[:, 0].long()]


def population_value(objective: Objective) -> Tensor:
    """The expectation of a two-sample loss over two independent pairs of the finite world, by enumeration."""
    total = torch.zeros((), dtype=torch.float64)
    pairs = [(x, a) for x in range(4) for a in range(3)]
    for x, a in pairs:
        for y, b in pairs:
            views = Views(
                torch.tensor([[float(x)], [float(y)]], dtype=torch.float64),
                torch.tensor([[[float(a)], [float(b)]]], dtype=torch.float64),
            )
            total = total + JOINT[x, a] * JOINT[y, b] * objective(nn.Identity(), views).total
    return total


def least(objective: Objective) -> float:
    """Minimise the population value over everything that can be trained."""
    parameters = [p for p in objective.parameters() if p.requires_grad]
    sizes = [p.numel() for p in parameters]

    def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.no_grad():
            for parameter, values in zip(parameters, torch.from_numpy(flat).split(sizes), strict=True):
                parameter.copy_(values.reshape(parameter.shape))
        value = population_value(objective)
        gradients = torch.autograd.grad(value, parameters)
        return value.item(), torch.cat([g.flatten() for g in gradients]).numpy()

    start = np.concatenate([p.detach().double().flatten().numpy() for p in parameters])
    found = optimize.minimize(at, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    at(found.x)
    return float(found.fun)


# --- minima on a finite world, where everything can be enumerated -----------------------------------------------------


def test_jensen_shannon_attains_its_divergence_at_the_density_ratio() -> None:
    middle = (JOINT + PRODUCT) / 2
    js = 0.5 * (JOINT * (JOINT / middle).log()).sum() + 0.5 * (PRODUCT * (PRODUCT / middle).log()).sum()
    objective = JensenShannon(Table(-RATIO.log())).bind().double()
    expected = 2 * math.log(2) - 2 * js.item()
    assert population_value(objective).item() == pytest.approx(expected, rel=1e-12)
    trained = JensenShannon(Table(torch.zeros(4, 3, dtype=torch.float64))).bind().double()
    assert least(trained) == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(-trained.energy.energies - trained.bias, RATIO.log(), atol=1e-3, rtol=0)


def test_chi_squared_attains_its_divergence_at_the_posterior() -> None:
    """On an enumerated batch: −(1 + χ²) at the true posterior over the candidates, and more at any other."""
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet(np.ones(4), size=6)  # [anchors, candidates]: p(j | x̃)
    chi_squared = np.mean(np.sum((posterior - 0.25) ** 2 / 0.25, 1))

    def value(model: np.ndarray) -> float:
        ratio = 4 * model
        return float(np.mean(np.mean(ratio**2, 1)) - 2 * np.mean(np.sum(posterior * ratio, 1)))

    assert value(posterior) == pytest.approx(-(1 + chi_squared), rel=1e-12)
    for _ in range(100):
        other = posterior * np.exp(0.3 * rng.standard_normal(posterior.shape))
        assert value(other / other.sum(1, keepdims=True)) > -(1 + chi_squared)


def test_chi_squared_is_the_brier_score() -> None:
    encoder, views = smooth_encoder(), GaussianNoise(0.5)(normal(6, INPUT), Needs(), generator(1))
    posterior = torch.softmax(Euclidean().logits(encoder(views.x), encoder(views.augmented[0])), 0).mT
    brier = (posterior - torch.eye(6)).square().sum(1).mean().item()
    found = ChiSquared(Euclidean())(encoder, views).total.item()
    assert found == pytest.approx(6 * (brier - 1), rel=1e-12)


def test_chi_squared_of_many_candidates_is_that_of_the_population() -> None:
    """With the true energy of Gaussian pairs, L → −(1 + χ²) = −Π 1/(1 − r_k²) over the canonical correlations r_k."""
    noise = 2.0
    x = normal(20_000, 1)
    views = GaussianNoise(noise)(x, Needs(), generator(1))
    values = []
    for rows in torch.arange(20_000).split(1000):
        part = Views(x[rows], views.augmented[:, rows])
        values.append(ChiSquared(PosteriorEnergy(GaussianNoise(noise)))(nn.Identity(), part).total.item())
    squared_correlation = 1 / (1 + noise**2)
    assert np.mean(values) == pytest.approx(-1 / (1 - squared_correlation), rel=0.02)


def test_the_spectral_loss_is_chi_squared_with_a_ratio_of_low_rank() -> None:
    """−2 E_joint[w] + E_product[w²] over w of rank m is at least −Σ_{k≤m} σ_k²: −(1 + χ²) at full rank."""
    scaled = RATIO * PRODUCT.sqrt()  # singular values of the ratio in L²(p(x)) × L²(p(x̃)); the largest is 1
    singular = torch.linalg.svdvals(scaled)
    assert singular[0].item() == pytest.approx(1, abs=1e-12)
    chi_squared = (PRODUCT * (RATIO - 1).square()).sum().item()
    assert singular.square().sum().item() == pytest.approx(1 + chi_squared, rel=1e-12)
    for rank in (1, 2, 3):

        def loss(flat: np.ndarray, rank: int = rank) -> float:
            w = flat[: 4 * rank].reshape(4, rank) @ flat[4 * rank :].reshape(rank, 3)
            return float(-2 * (JOINT.numpy() * w).sum() + (PRODUCT.numpy() * w**2).sum())

        start = np.random.default_rng(0).standard_normal(7 * rank)
        found = optimize.minimize(loss, start, method="BFGS").fun
        assert found == pytest.approx(-singular[:rank].square().sum().item(), abs=1e-6)


def test_jensen_shannon_is_twice_balanced_nce_with_one_bias() -> None:
    class One(nn.Module):
        def forward(self, embedding: Tensor) -> Tensor:
            return embedding.new_full((len(embedding),), 0.75)

    encoder, views = smooth_encoder(), GaussianNoise(0.5)(normal(6, INPUT), Needs(), generator(1))
    one = JensenShannon(Euclidean(), initial_bias=0.75).bind().double()(encoder, views).total.item()
    two = NCE(Euclidean(), bias=One(), prior=0.5)(encoder, views).total.item()
    assert one == pytest.approx(2 * two, rel=1e-12)


@pytest.mark.parametrize("energy", [Euclidean(), Cosine(0.3)], ids=["euclidean", "cosine"])
def test_renyi_tends_to_infonce(energy: Energy) -> None:
    encoder, views = smooth_encoder(), GaussianNoise(0.5)(normal(7, INPUT), Needs(), generator(1))
    infonce = InfoNCE(energy)(encoder, views).total.item() - math.log(7)
    assert RenyiInfoNCE(energy, order=1.0)(encoder, views).total.item() == pytest.approx(infonce, rel=1e-12)
    for order in (1 - 1e-5, 1 + 1e-5):
        assert RenyiInfoNCE(energy, order=order)(encoder, views).total.item() == pytest.approx(infonce, abs=1e-4)
    for order in (0.99, 0.9901, 1.0099, 1.01):  # where the two ways to compute it meet
        expected = infonce + (order - 1) * 50
        assert abs(RenyiInfoNCE(energy, order=order)(encoder, views).total.item() - infonce) < abs(expected - infonce)
    encoder, views = encoder.float(), cast(views, torch.float32)
    for order in (1 - 1e-7, 1 + 1e-6, 1 + 1e-4):
        assert RenyiInfoNCE(energy, order=order)(encoder, views).total.item() == pytest.approx(infonce, abs=1e-3)


def test_renyi_with_perfect_separation_reaches_its_bound() -> None:
    encoder = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        encoder.weight.copy_(100 * torch.eye(2))
    x = normal(5, 2)
    views = Views(x, x.unsqueeze(0))
    for order in (0.5, 2.0, 4.0):
        objective = RenyiInfoNCE(Euclidean(), order=order)
        assert objective(encoder, views).total.item() == pytest.approx(-math.log(5) / order, abs=1e-9)
        assert objective.optimum(5, 2) == pytest.approx(-math.log(5) / order)


@pytest.mark.parametrize("order", [0.3, 0.5, 2.0, 3.0])
def test_renyi_is_a_lower_bound_attained_by_the_posterior(order: float) -> None:
    """On an enumerated batch: no critic gives more than R_α, and the true posterior over the candidates gives it."""
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet(np.ones(4), size=6)  # [anchors, candidates]: p(j | x̃)
    uniform = np.full_like(posterior, 0.25)
    exact = np.log(np.mean(np.sum(posterior**order * uniform ** (1 - order), 1))) / (order * (order - 1))

    def value(critic: np.ndarray) -> float:
        related = np.log(np.mean(np.sum(posterior * np.exp((order - 1) * critic), 1))) / (order - 1)
        return float(related - np.log(np.mean(np.mean(np.exp(order * critic), 1))) / order)

    assert value(np.log(4 * posterior)) == pytest.approx(exact, rel=1e-12)
    for _ in range(100):
        assert value(np.log(4 * posterior) + 0.3 * rng.standard_normal(posterior.shape)) < exact


# --- sliced Fisher ----------------------------------------------------------------------------------------------------


def fisher_views(rows: int, directions: int, seed: int = 0) -> Views:
    x = normal(rows, INPUT, seed=seed)
    return MaskAndNoise(0.7, 0.4)(x, Needs(score=True, directions=directions), generator(seed + 1))


@pytest.mark.parametrize(
    "energy", [Euclidean(), Cosine(0.5), Asymmetric(Euclidean(), network=nn.Linear(2, 2).double()).bind()]
)
@pytest.mark.parametrize("expanded", [False, True])
def test_slices_average_to_the_exact_loss_and_gradient(energy: Energy, expanded: bool) -> None:
    """Over all 2^d sign vectors the mean of the slices is the Fisher loss, up to the O(h²) of the differences."""
    encoder, views = smooth_encoder(), fisher_views(6, 0)
    signs = torch.tensor(np.array(np.meshgrid(*[[-1.0, 1.0]] * INPUT)).reshape(INPUT, -1).T)  # [2^d, d]
    views.directions = signs.unsqueeze(1).expand(-1, 6, -1)
    exact = Fisher(energy)(encoder, views).total
    wanted = torch.autograd.grad(exact, list(encoder.parameters())[:-1])
    errors = []
    for step in (0.04, 0.02, 0.01):
        sliced = SlicedFisher(energy, slices=len(signs), step=step, expanded=expanded)(encoder, views).total
        found = torch.autograd.grad(sliced, list(encoder.parameters())[:-1])
        errors.append(
            max((a - b).abs().max().item() / b.abs().max().item() for a, b in zip(found, wanted, strict=True))
        )
        assert sliced.item() == pytest.approx(exact.item(), rel=1e-2 * (step / 0.04) ** 2)
    assert errors[2] < 2e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1), "the error is of second order in the step"


@pytest.mark.parametrize("expanded", [False, True])
def test_the_variance_of_a_slice_is_the_stated_one(expanded: bool) -> None:
    """(2/K)(‖w‖⁴ − Σ wᵢ⁴) over directions, with w = u, or w = ∇δ where the square is expanded: an isometry of few."""
    features, dim = 40, 3
    rows = torch.linalg.qr(normal(features, dim)).Q.T / 0.5  # JᵀJ = P / σ²
    encoder = nn.Linear(features, dim, bias=False).double()
    encoder.weight.data = rows
    x = normal(1, features).expand(20_000, -1)
    views = GaussianNoise(0.5)(x[:1], Needs(score=True), generator(1))
    views.x, views.augmented, views.score = x, *(side.expand(-1, len(x), -1) for side in (views.augmented, views.score))
    views.directions = random_signs(x, 2, generator(2))
    slope = (x[:1] - views.augmented[0, :1]) @ rows.T @ rows
    residual = slope if expanded else slope + views.score[0, :1]
    wanted = residual.square().sum() ** 2 - residual.pow(4).sum()
    objective = SlicedFisher(slices=2, expanded=expanded)
    each = [
        objective(
            encoder, Views(x[i:j], views.augmented[:, i:j], views.score[:, i:j], directions=views.directions[:, i:j])
        )
        for i, j in itertools.pairwise(range(0, len(x) + 1, 10))
    ]
    found = torch.stack([terms.total for terms in each]).var() * 10
    assert found.item() == pytest.approx(wanted.item(), rel=0.1)


@pytest.mark.parametrize(
    "energy", [Euclidean(), Cosine(0.5), Asymmetric(Euclidean(), network=nn.Linear(2, 2).double()).bind()]
)
def test_differences_along_the_residual_give_the_gradient_of_the_exact_loss(energy: Energy) -> None:
    """Value to the last bit; gradient to second order in the step, in all parameters, those of the energy too."""
    encoder, views = smooth_encoder(), fisher_views(6, 0)
    parameters = [*encoder.parameters(), *energy.parameters()]
    exact = Fisher(energy)(encoder, views).total
    wanted = torch.autograd.grad(exact, parameters, allow_unused=True)
    errors = []
    for step in (0.04, 0.02, 0.01):
        found = Fisher(energy, step=step)(encoder, views).total
        assert found.item() == pytest.approx(exact.item(), rel=1e-14)
        gradients = torch.autograd.grad(found, parameters, allow_unused=True)
        pairs = [(a, b) for a, b in zip(gradients, wanted, strict=True) if b is not None and b.abs().max() > 1e-9]
        assert all(a is not None for a, _ in pairs)
        errors.append(max((a - b).abs().max().item() / b.abs().max().item() for a, b in pairs))
    assert errors[2] < 2e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1), "the error is of second order in the step"


def test_an_encoder_without_a_second_derivative_trains() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * (1 - x.tanh() ** 2)

    class Layer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Once.apply(x)

    smooth = smooth_encoder()
    once = nn.Sequential(smooth[0], Layer(), smooth[2])
    views = fisher_views(6, 1)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        Fisher()(once, views).total.backward()
    once.zero_grad()
    Fisher(step=1e-3)(once, views).total.backward()
    found = once[0].weight.grad
    assert found is not None
    found = found.clone()
    once.zero_grad()
    Fisher()(smooth, views).total.backward()
    torch.testing.assert_close(found, smooth[0].weight.grad, rtol=1e-4, atol=1e-6)
    SlicedFisher()(once, views).total.backward()


def test_the_variance_of_a_slice_is_as_documented() -> None:
    encoder, views = smooth_encoder(), fisher_views(1, 0)
    x = views.x.clone().requires_grad_()
    energies = Euclidean().paired(encoder(x), encoder(views.augmented[0]))
    (slope,) = torch.autograd.grad(energies.sum(), x)
    assert views.score is not None
    u = (views.score[0] + slope)[0]
    signs = torch.tensor(np.array(np.meshgrid(*[[-1.0, 1.0]] * INPUT)).reshape(INPUT, -1).T)
    variance = (signs @ u).square().var(correction=0).item()
    assert variance == pytest.approx(2 * (u.square().sum() ** 2 - u.pow(4).sum()).item(), rel=1e-12)


def test_random_signs() -> None:
    views = GaussianNoise(0.5)(torch.zeros(4000, 3), Needs(directions=2), generator(0))
    assert views.directions is not None
    assert views.directions.shape == (2, 4000, 3)
    assert set(views.directions.unique().tolist()) == {-1.0, 1.0}
    flat = views.directions.flatten(0, 1)
    torch.testing.assert_close(flat.mT @ flat / len(flat), torch.eye(3), atol=0.05, rtol=0)
    assert GaussianNoise(0.5)(torch.zeros(4, 3), Needs(), generator(0)).directions is None


# --- references -------------------------------------------------------------------------------------------------------

PLANE: list[Pairing] = [
    GaussianNoise(0.5),
    GaussianNoise(covariance=torch.tensor([[0.3, 0.1], [0.1, 0.2]]), mean=torch.tensor([0.4, -0.2])),
    MaskAndNoise(0.7, 0.4),
    MaskAndNoise(torch.tensor([0.3, 1.0], dtype=torch.float64), 0.4),
    Rotations((-90, 0, 90), 0.3),
    LinearMixture(torch.eye(2).unsqueeze(0) * -1.0, 0.5),
]
NAMES = ["noise", "shifted", "mask", "half a mask", "rotations", "reflection"]
KNOWS_ITS_OPTIMUM: list[Objective] = [
    InfoNCE(Euclidean()),
    NCE().bind(dim=2),
    NCE(prior=0.5).bind(dim=2),
    SNL().bind(dim=2),
    Fisher(),
    JensenShannon().bind(),
    ChiSquared(Euclidean()),
    RenyiInfoNCE(Euclidean(), order=2.0),
    RenyiInfoNCE(Euclidean(), order=0.5),
]


@pytest.mark.parametrize("pairing", PLANE, ids=NAMES)
def test_log_probabilities_of_all_pairs(pairing: Pairing) -> None:
    x, x_aug = normal(7, 2), normal(5, 2, seed=1)
    expected = torch.stack([pairing.log_prob(row.expand_as(x), x) for row in x_aug])
    for block in (1, 40, 2**22):
        torch.testing.assert_close(pairing.pairwise_log_prob(x_aug, x, block=block), expected, rtol=1e-10, atol=1e-10)


def test_log_probabilities_of_all_pairs_do_not_cancel_where_noise_is_small() -> None:
    for noise in (1e-4, 1e-6):
        pairing, x = MaskAndNoise(0.5, noise), normal(20, 3)
        x_aug = pairing.sample(x, generator(1))
        found = pairing.pairwise_log_prob(x_aug, x).diagonal()
        torch.testing.assert_close(found, pairing.log_prob(x_aug, x), rtol=1e-9, atol=1e-6)


def test_weighted_terms_have_no_reference() -> None:
    objective = InfoNCE(Euclidean())
    objective.weights = {"alignment": 2.0}
    x, encoder = normal(20, 3).float(), seeded(0, lambda: MLP.of([3, 2]))
    found = reference_losses(encoder, objective, GaussianNoise(0.5), x, batch_size=8, batches=2)
    assert found.optimum is None
    assert found.constant is None


def test_log_probabilities_of_all_pairs_of_images() -> None:
    pairing, x, x_aug = GaussianNoise(0.5, event_dims=3), normal(4, 2, 3, 3), normal(3, 2, 3, 3, seed=1)
    expected = torch.stack([pairing.log_prob(row.expand_as(x), x) for row in x_aug])
    torch.testing.assert_close(pairing.pairwise_log_prob(x_aug, x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pairing", PLANE, ids=NAMES)
def test_the_ratio_leaves_the_observation_itself_out(pairing: Pairing) -> None:
    x = normal(30, 2)
    x_aug = pairing.sample(x, generator(1))
    energy = RatioEnergy(pairing, x)
    density = pairing.pairwise_log_prob(x_aug, x).exp().mT  # [x, x̃]
    others = (density.sum(0, keepdim=True) - density) / 29
    torch.testing.assert_close(energy.pairwise(x, x_aug), (others / density).log(), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(energy.paired(x, x_aug), energy.pairwise(x, x_aug).diagonal())


def test_the_ratio_is_exact_where_the_source_is_certain() -> None:
    """Points so far apart that all other probabilities vanish beside that of the source."""
    x = torch.arange(5, dtype=torch.float64).unsqueeze(1) * 100
    pairing = GaussianNoise(1.0)
    found = RatioEnergy(pairing, x).paired(x[2:3], x[2:3]).item()
    assert found == pytest.approx(-0.5 * 100**2 + math.log(2) - math.log(4), rel=1e-12)


@pytest.mark.parametrize("pairing", PLANE, ids=NAMES)
def test_fisher_and_its_slices_vanish_at_the_true_energy(pairing: Pairing) -> None:
    x = normal(30, 2)
    views = pairing(x, Needs(score=True, directions=1), generator(1))
    assert Fisher(PosteriorEnergy(pairing))(nn.Identity(), views).total.item() == pytest.approx(0, abs=1e-18)
    sliced = SlicedFisher(PosteriorEnergy(pairing), step=1e-4)(nn.Identity(), views).total.item()
    assert sliced == pytest.approx(0, abs=1e-8)


class Perturbed(Energy):
    """Another energy with a random wave of the pair added."""

    def __init__(self, base: Energy, scale: float, seed: int) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.frequencies = 2 * normal(2, 2, seed=seed)

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        return self.base.paired(a, b) + self.scale * torch.sin((a @ self.frequencies + b).sum(-1))

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        phase = (a @ self.frequencies).sum(-1).unsqueeze(1) + b.sum(-1)
        return self.base.pairwise(a, b) + self.scale * torch.sin(phase)


BATCHES = 50


@pytest.mark.parametrize("objective", KNOWS_ITS_OPTIMUM, ids=lambda o: type(o).__name__)
def test_nothing_beats_the_true_energy(objective: Objective) -> None:
    """On a population of 60 points every energy in a cloud around the truth has a higher mean loss, by 2 errors."""
    x, pairing = normal(60, 2), MaskAndNoise(0.7, 2.0)
    truth = RatioEnergy(pairing, x) if objective.learns == "ratio" else PosteriorEnergy(pairing)
    losses = [objective.with_energy(truth)]
    losses += [objective.with_energy(Perturbed(truth, scale, seed)) for seed in range(4) for scale in (0.5, 1.5)]
    chance, values = generator(5), []
    for _ in range(BATCHES):
        views = pairing(x, objective.needs, chance)
        with torch.no_grad():
            values.append([loss(nn.Identity(), views).total.item() for loss in losses if loss is not None])
    assert len(values[0]) == 9
    excess = np.array(values)[:, 1:] - np.array(values)[:, :1]
    assert (excess.mean(0) > 2 * excess.std(0) / len(excess) ** 0.5).all()


def test_references_of_a_model() -> None:
    x, pairing = normal(300, 4).float(), MaskAndNoise(0.7, 0.4)
    encoder, objective = seeded(0, lambda: MLP.of([4, 8, 2])), InfoNCE(Euclidean())
    found = reference_losses(encoder, objective, pairing, x, batch_size=64, batches=4)
    assert found.optimum is not None
    assert found.constant is not None
    assert found.gap is not None
    assert found.constant.mean == pytest.approx(math.log(64), rel=1e-6)
    assert found.constant.error == pytest.approx(0, abs=1e-6)
    assert 0 < found.optimum.mean < found.model.mean
    assert found.gap.mean == pytest.approx(found.model.mean - found.optimum.mean)
    assert found.share_learnt is not None
    assert found.share_learnt < 1
    assert reference_losses(encoder, objective, pairing, x, batch_size=64, batches=4) == found
    assert encoder.training
    truth = reference_losses(encoder, InfoNCE(PosteriorEnergy(pairing)), pairing, x, batch_size=64, batches=4)
    assert truth.share_learnt == pytest.approx(1, abs=1e-9)
    nothing = reference_losses(encoder, InfoNCE(FlatEnergy()), pairing, x, batch_size=64, batches=4)
    assert nothing.share_learnt == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("objective", "constant"),
    [
        (InfoNCE(candidates="two-view", pair="augmented"), math.log(15)),
        (Spectral(), 80.0),
        (Triplet(), 1.0),
        (InfoNCE(pair="augmented"), math.log(8)),
        (InfoNCE(anchor="original"), math.log(8)),
        (SimSiam().bind(dim=2), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_losses_of_other_things_than_the_pair_have_no_optimum(objective: Objective, constant: float | None) -> None:
    assert objective.with_energy(FlatEnergy()) is None
    x, encoder = normal(20, 3).float(), seeded(0, lambda: MLP.of([3, 2]))
    found = reference_losses(encoder, objective, GaussianNoise(0.5), x, batch_size=8, batches=2)
    assert found.optimum is None
    assert found.gap is None
    assert found.share_learnt is None
    if constant is None:
        assert found.constant is None
    else:
        assert found.constant is not None
        assert found.constant.mean == pytest.approx(constant, rel=1e-6)
    assert ReferenceLosses.from_dict(json.loads(json.dumps(found.as_dict()))) == found
