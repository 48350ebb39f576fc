"""Laws of every pairing: its score is the slope of its density, its density is one, its sampler draws from it."""

from __future__ import annotations

import copy
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor

from probssl.errors import InputError
from probssl.pairings import (
    GaussianNoise,
    HardNegatives,
    InTurn,
    LinearMixture,
    MaskAndNoise,
    Needs,
    Pairing,
    ResampledColumns,
    Rotations,
)
from tests.objectives.members import COVARIANCE, MAPS, PAIRINGS, WEIGHTS, PairingMember, each, generator, normal
from tests.objectives.references import mixture_log_prob, mixture_moments

every_pairing = pytest.mark.parametrize("member", each(PAIRINGS))


def slope_by_autograd(pairing: Pairing, x_aug: Tensor, x: Tensor) -> Tensor:
    """∇ₓ log p(x̃ | x) row by row of the broadcast pair."""
    shape = torch.broadcast_shapes(x_aug.shape, x.shape)
    x = x.expand(shape).clone().requires_grad_()
    (slope,) = torch.autograd.grad(pairing.log_prob(x_aug.expand(shape), x).sum(), x)
    return slope


# --- densities and scores ---------------------------------------------------------------------------------------------


@every_pairing
def test_density_is_the_mixture_it_should_be(member: PairingMember) -> None:
    pairing = member.built()
    x, x_aug = normal(6, 2), normal(6, 2, seed=1)
    slow = [mixture_log_prob(member.components(a), b) for a, b in zip(x.numpy(), x_aug.numpy(), strict=True)]
    torch.testing.assert_close(
        pairing.log_prob(x_aug, x), torch.tensor(slow, dtype=torch.float64), rtol=1e-11, atol=1e-11
    )


@every_pairing
@pytest.mark.parametrize(
    ("of_aug", "of_x"),
    [((7, 2), (7, 2)), ((3, 7, 2), (7, 2)), ((5, 1, 2), (1, 4, 2)), ((2, 3, 7, 2), (7, 2))],
    ids=["rows", "several views", "all pairs", "more leading"],
)
def test_score_is_the_slope_of_the_density(member: PairingMember, of_aug: tuple, of_x: tuple) -> None:
    pairing = member.built()
    x_aug, x = 1.5 * normal(*of_aug, seed=1), 1.5 * normal(*of_x)
    score = pairing.score(x_aug, x)
    assert score.shape == torch.broadcast_shapes(of_aug, of_x)
    assert pairing.log_prob(x_aug, x).shape == score.shape[:-1]
    torch.testing.assert_close(score, slope_by_autograd(pairing, x_aug, x), rtol=1e-10, atol=1e-10)


@every_pairing
def test_broadcasting_is_repetition(member: PairingMember) -> None:
    pairing = member.built()
    x_aug, x = normal(5, 1, 2, seed=1), normal(1, 4, 2)
    for question in (pairing.log_prob, pairing.score):
        together = question(x_aug, x)
        for i in range(5):
            for j in range(4):
                torch.testing.assert_close(together[i, j], question(x_aug[i], x[:, j])[0], rtol=1e-12, atol=1e-12)


@every_pairing
def test_density_integrates_to_one_in_the_plane(member: PairingMember) -> None:
    pairing = member.built()
    x = np.array([0.9, -1.3])
    components = member.components(x)
    reach = 9 * max(math.sqrt(c.diagonal().max()) for _, _, c in components)
    low = np.min([m for _, m, _ in components], axis=0) - reach
    high = np.max([m for _, m, _ in components], axis=0) + reach
    first, second = (np.linspace(low[k], high[k], 401) for k in range(2))
    grid = torch.tensor(np.stack(np.meshgrid(first, second, indexing="ij"), -1))
    density = pairing.log_prob(grid, torch.tensor(x)).exp().numpy()
    total = integrate.simpson(integrate.simpson(density, x=second), x=first)
    assert total == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize(
    "pairing",
    [
        GaussianNoise(0.3, mean=0.2),
        MaskAndNoise(0.8, 0.25),
        MaskAndNoise(0.0, 0.25),
        MaskAndNoise(1.0, 0.25),
        LinearMixture(torch.tensor([[[1.0]], [[-0.5]]]), 0.2, weights=[0.7, 0.3]),
    ],
    ids=["noise", "mask", "mask-everything", "mask-nothing", "mixture"],
)
@pytest.mark.parametrize("x", [-1.7, 0.0, 0.4])
def test_density_integrates_to_one_on_the_line(pairing: Pairing, x: float) -> None:
    def density(x_aug: float) -> float:
        return math.exp(
            pairing.log_prob(
                torch.tensor([[x_aug]], dtype=torch.float64), torch.tensor([[x]], dtype=torch.float64)
            ).item()
        )

    total, error = integrate.quad(density, -6, 6, points=[0.0, x, -0.5 * x], limit=200)
    assert error < 1e-6
    assert total == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("noise", ["scalar", "diagonal", "full"])
@pytest.mark.parametrize("event_dims", [1, 2, 3])
def test_observations_of_several_dimensions_add_up(noise: str, event_dims: int) -> None:
    arguments = {"scalar": {"std": 0.5}, "diagonal": {"std": torch.tensor([0.5, 2.0])}}
    arguments["full"] = {"covariance": COVARIANCE}
    pairing = GaussianNoise(**arguments[noise], event_dims=event_dims)
    rows = GaussianNoise(**arguments[noise])
    shape = (6, 4, 3, 2)[4 - event_dims - 1 :]
    x, x_aug = normal(*shape), normal(*shape, seed=1)
    by_rows = rows.log_prob(x_aug.reshape(-1, 2), x.reshape(-1, 2)).reshape(shape[0], -1).sum(1)
    torch.testing.assert_close(pairing.log_prob(x_aug, x), by_rows)
    torch.testing.assert_close(
        pairing.score(x_aug, x).reshape(-1, 2), rows.score(x_aug.reshape(-1, 2), x.reshape(-1, 2))
    )


# --- samplers ---------------------------------------------------------------------------------------------------------


@every_pairing
def test_samples_have_the_exact_moments(member: PairingMember) -> None:
    pairing = member.built()
    x, draws = np.array([0.9, -1.3]), 40_000
    mean, covariance = mixture_moments(member.components(x))
    samples = pairing.sample(torch.tensor(x).expand(draws, 2), generator(3)).numpy()
    assert samples.shape == (draws, 2)
    deviation = samples - mean
    assert (np.abs(deviation.mean(0)) < 4.5 * np.sqrt(covariance.diagonal() / draws)).all()
    products = np.einsum("ni,nj->nij", deviation, deviation)
    assert (np.abs(products.mean(0) - covariance) < 4.5 * products.std(0) / math.sqrt(draws)).all()


@every_pairing
def test_the_mean_score_of_samples_is_zero(member: PairingMember) -> None:
    """E[∇ₓ log p(x̃ | x)] = 0 when x̃ ~ p(· | x): sampler and score belong to one density."""
    pairing = member.built()
    x, draws = torch.tensor([[0.9, -1.3]], dtype=torch.float64).expand(40_000, 2), 40_000
    score = pairing.score(pairing.sample(x, generator(4)), x)
    assert (score.mean(0).abs() <= 4.5 * score.std(0) / math.sqrt(draws)).all()


@every_pairing
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_randomness_comes_from_the_generator_alone(member: PairingMember, dtype: torch.dtype) -> None:
    pairing, x = member.built(), normal(9, 2, dtype=dtype)
    before, state = torch.get_rng_state(), copy.deepcopy(pairing.state_dict())
    kept = x.clone()
    source = generator(7)
    first, later = pairing.sample(x, source), pairing.sample(x, source)
    assert torch.equal(first, pairing.sample(x, generator(7)))
    assert not torch.equal(first, later)
    assert first.dtype == dtype
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, state[name]) for name, value in pairing.state_dict().items())


@every_pairing
def test_a_batch_holds_what_was_asked_for(member: PairingMember) -> None:
    pairing, x = member.built(), normal(9, 2)
    plain = pairing(x, Needs(augmented=3), generator(1))
    assert plain.augmented.shape == (3, 9, 2)
    assert plain.score is None
    assert torch.equal(plain.x, x)
    assert not torch.equal(plain.augmented[0], plain.augmented[1])
    scored = pairing(x, Needs(augmented=2, score=True), generator(1))
    assert torch.equal(scored.augmented, plain.augmented[:2])
    assert scored.score is not None
    torch.testing.assert_close(scored.score, torch.stack([pairing.score(view, x) for view in scored.augmented]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: GaussianNoise(0.5), lambda: GaussianNoise(2.0, mean=1.0)),
        (lambda: MaskAndNoise(0.9, 0.1), lambda: MaskAndNoise(0.2, 3.0)),
        (
            lambda: LinearMixture(MAPS, 0.1),
            lambda: LinearMixture(MAPS.flip(0), 2.0, weights=WEIGHTS),
        ),
    ],
    ids=["noise", "mask", "mixture"],
)
def test_a_loaded_pairing_is_the_one_that_was_saved(one, other) -> None:
    loaded, saved = one(), other()
    loaded.load_state_dict(saved.state_dict())
    x = normal(9, 2)
    x_aug = saved.sample(x, generator(1))
    assert torch.equal(loaded.sample(x, generator(1)), x_aug)
    assert torch.equal(loaded.log_prob(x_aug, x), saved.log_prob(x_aug, x))
    assert torch.equal(loaded.score(x_aug, x), saved.score(x_aug, x))


# --- little noise: where the naive formula overflows ------------------------------------------------------------------


def exact_mask_score(x: float, x_aug: float, keep: float, noise: float) -> float:
    """The derivative of the log-density with sixty digits and exponents of any size."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        a, b, rho, variance = Decimal(x), Decimal(x_aug), Decimal(keep), Decimal(noise) ** 2
        masked = (1 - rho) * (-(b**2) / (2 * variance)).exp()
        kept = rho * (-((b - a) ** 2) / (2 * variance)).exp()
        return float(kept * (b - a) / variance / (masked + kept))


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("x", [-10.0, -0.3, 0.0, 0.05, 10.0])
def test_mask_score_is_exact_with_little_noise(x: float, keep: float) -> None:
    pairing = MaskAndNoise(keep, 0.01)
    places = [-10.0, -0.02, 0.0, 0.013, 0.5 * x, 0.5 * x + 1e-5, x - 0.015, x, x + 0.02, 11.0]
    exact = [exact_mask_score(x, place, keep, 0.01) for place in places]
    x_aug = torch.tensor(places, dtype=torch.float64).unsqueeze(1)
    score = pairing.score(x_aug, torch.full_like(x_aug, x)).squeeze(1)
    assert score.isfinite().all()
    torch.testing.assert_close(score, torch.tensor(exact, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    assert pairing.log_prob(x_aug, torch.full_like(x_aug, x)).isfinite().all()
    assert slope_by_autograd(pairing, x_aug, torch.full_like(x_aug, x)).isfinite().all()


def exact_rotation_score(x: np.ndarray, x_aug: np.ndarray, degrees: list[float], noise: float) -> list[float]:
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        variance, weights, pulls = Decimal(noise) ** 2, [], []
        for degree in degrees:
            cos, sin = (Decimal(f(math.radians(degree))) for f in (math.cos, math.sin))
            a, b = (Decimal(float(value)) for value in x)
            r = [Decimal(float(x_aug[0])) - (cos * a - sin * b), Decimal(float(x_aug[1])) - (sin * a + cos * b)]
            weights.append((-(r[0] ** 2 + r[1] ** 2) / (2 * variance)).exp())
            pulls.append([(cos * r[0] + sin * r[1]) / variance, (-sin * r[0] + cos * r[1]) / variance])
        total = sum(weights)
        return [float(sum(w * pull[k] for w, pull in zip(weights, pulls, strict=True)) / total) for k in range(2)]


def test_mixture_score_is_exact_with_little_noise() -> None:
    degrees = [-30.0, 0.0, 45.0]
    pairing = Rotations(degrees, 0.01)
    x = np.array([8.0, -6.0])
    near = pairing.sample(torch.tensor(x).expand(10, 2), generator(2)).numpy()
    between = [[math.cos(t) * 8 + math.sin(t) * 6, math.sin(t) * 8 - math.cos(t) * 6] for t in np.radians([-15, 22.4])]
    places = np.concatenate([near, between, [[0.0, 0.0], [10.0, 10.0], [-8.0, 6.0]]])
    exact = [exact_rotation_score(x, place, degrees, 0.01) for place in places]
    score = pairing.score(torch.tensor(places), torch.tensor(x))
    # Between two maps the posterior hangs on the difference of numbers near 10⁵, so some digits go.
    torch.testing.assert_close(score, torch.tensor(exact, dtype=torch.float64), rtol=1e-7, atol=1e-6)


@every_pairing
def test_single_precision_agrees_with_double(member: PairingMember) -> None:
    pairing = member.built()
    x = normal(200, 2, dtype=torch.float32)
    x_aug = pairing.sample(x, generator(5))
    single, double = pairing.score(x_aug, x), pairing.score(x_aug.double(), x.double())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(
        pairing.log_prob(x_aug, x).double(), pairing.log_prob(x_aug.double(), x.double()), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_single_precision_with_little_noise(size: float) -> None:
    x = size * normal(300, 2, seed=6, dtype=torch.float32)
    for pairing in (MaskAndNoise(0.8, 0.01), Rotations([-30.0, 0.0, 45.0], 0.01), GaussianNoise(0.01)):
        x_aug = pairing.sample(x, generator(6))
        single, double = pairing.score(x_aug, x), pairing.score(x_aug.double(), x.double())
        assert single.isfinite().all()
        # Rounding x to single precision alone moves x / σ² by this much.
        rounding = 20 * torch.finfo(torch.float32).eps * max(size, 1.0) / 0.01**2
        close = (single - double).abs() <= rounding + 1e-2 * double.abs()
        assert close.double().mean() > 0.99  # a hair's breadth between two maps may fall on either side


# --- the published mask score, corrected ------------------------------------------------------------------------------


def printed_mask_score(x: Tensor, x_aug: Tensor, keep: float, noise: float) -> Tensor:
    """Siamese-EBM Eq. 172 as printed: a spurious factor ρ and half the exponent's cross term."""
    odds = (1 - keep) / keep * torch.exp(x * (x - x_aug) / (2 * noise**2))
    return keep / noise**2 * (x_aug - x) / (1 + odds)


def test_mask_score_at_the_worked_point() -> None:
    x, x_aug = torch.tensor([[0.7]], dtype=torch.float64), torch.tensor([[0.4]], dtype=torch.float64)
    score = MaskAndNoise(0.8, 0.25).score(x_aug, x).item()
    assert score == pytest.approx(-4.200201682, abs=1e-9)
    assert printed_mask_score(x, x_aug, 0.8, 0.25).item() == pytest.approx(-1.640, abs=1e-3)


def test_mask_score_pulls_by_the_preservation_rate() -> None:
    """E[score (x − x̃)ᵀ] = −ρI; the printed formula gives about half of it."""
    keep, noise, draws = 0.8, 0.1, 200_000
    pairing = MaskAndNoise(keep, noise)
    x = normal(draws, 2, seed=8)
    x_aug = pairing.sample(x, generator(9))
    products = torch.einsum("ni,nj->nij", pairing.score(x_aug, x), x - x_aug)
    error = products.mean(0) + keep * torch.eye(2)
    assert (error.abs() < 4.5 * products.std(0) / math.sqrt(draws)).all()
    printed = (printed_mask_score(x, x_aug, keep, noise) * (x - x_aug)).mean()
    assert printed.item() == pytest.approx(-0.41, abs=0.02)


def test_noise_score_at_a_shift() -> None:
    x, x_aug = normal(4, 2), normal(4, 2, seed=1)
    shift = torch.tensor([0.5, -1.0], dtype=torch.float64)
    score = GaussianNoise(covariance=COVARIANCE, mean=shift).score(x_aug, x)
    torch.testing.assert_close(score, (x_aug - x - shift) @ COVARIANCE.inverse())


# --- bad arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: GaussianNoise(), id="no noise"),
        pytest.param(lambda: GaussianNoise(0.1, covariance=COVARIANCE), id="noise twice"),
        pytest.param(lambda: GaussianNoise(0.0), id="std zero"),
        pytest.param(lambda: GaussianNoise(-1.0), id="std negative"),
        pytest.param(lambda: GaussianNoise(math.inf), id="std infinite"),
        pytest.param(lambda: GaussianNoise(math.nan), id="std nan"),
        pytest.param(lambda: GaussianNoise(torch.ones(2, 2)), id="std matrix"),
        pytest.param(lambda: GaussianNoise(0.1, mean=math.nan), id="mean nan"),
        pytest.param(lambda: GaussianNoise(covariance=torch.ones(2)), id="covariance vector"),
        pytest.param(lambda: GaussianNoise(covariance=torch.ones(2, 3)), id="covariance oblong"),
        pytest.param(lambda: GaussianNoise(covariance=torch.ones(2, 2)), id="covariance singular"),
        pytest.param(lambda: GaussianNoise(covariance=torch.tensor([[1.0, 0.5], [0.0, 1.0]])), id="covariance skewed"),
        pytest.param(lambda: GaussianNoise(covariance=-torch.eye(2)), id="covariance negative"),
        pytest.param(lambda: GaussianNoise(covariance=torch.full((2, 2), math.nan)), id="covariance nan"),
        pytest.param(lambda: MaskAndNoise(-0.1), id="rate negative"),
        pytest.param(lambda: MaskAndNoise(1.1), id="rate above one"),
        pytest.param(lambda: MaskAndNoise(math.nan), id="rate nan"),
        pytest.param(lambda: MaskAndNoise(0.5, 0.0), id="mask noise zero"),
        pytest.param(lambda: MaskAndNoise(0.5, math.inf), id="mask noise infinite"),
        pytest.param(lambda: MaskAndNoise(torch.full((2, 2), 0.5)), id="rate matrix"),
        pytest.param(lambda: ResampledColumns(1.1), id="columns kept above one"),
        pytest.param(lambda: ResampledColumns(noise=-0.1), id="columns noise negative"),
        pytest.param(lambda: ResampledColumns(noise=math.inf), id="columns noise infinite"),
        pytest.param(lambda: ResampledColumns(masked=math.nan), id="columns masked nan"),
        pytest.param(lambda: ResampledColumns(torch.full((2, 2), 0.5)), id="columns rate matrix"),
        pytest.param(lambda: LinearMixture(torch.eye(2), 0.1), id="one map without a list"),
        pytest.param(lambda: LinearMixture(torch.ones(2, 2, 3), 0.1), id="maps oblong"),
        pytest.param(lambda: LinearMixture(MAPS, 0.1, weights=[1.0]), id="too few weights"),
        pytest.param(lambda: LinearMixture(MAPS, 0.1, weights=[1.0, -1.0, 1.0]), id="weight negative"),
        pytest.param(lambda: LinearMixture(MAPS, 0.1, weights=[1.0, math.inf, 1.0]), id="weight infinite"),
        pytest.param(lambda: LinearMixture(MAPS), id="mixture without noise"),
    ],
)
def test_bad_arguments(build) -> None:
    with pytest.raises(InputError) as error:
        build()
    assert "\n" not in str(error.value)


def test_every_anchor_gets_hard_negatives_of_its_own() -> None:
    x = 10 * torch.arange(5.0).unsqueeze(1).repeat(1, 2)
    pairing = HardNegatives(GaussianNoise(0.01), GaussianNoise(0.5), 400)
    views = pairing(x, Needs(negatives=True), generator(1))
    assert views.negatives is not None
    assert views.negatives.shape == (5, 400, 2)
    apart = views.negatives - x.unsqueeze(1)
    assert abs(apart.mean().item()) < 0.05
    assert abs(apart.std().item() - 0.5) < 0.02
    assert (views.augmented[0] - x).abs().max() < 0.1
    assert pairing(x, Needs(), generator(1)).negatives is None, "nothing is drawn that nobody asks for"


def test_pairings_in_turn_make_one_view_each() -> None:
    x = torch.zeros(400, 2)
    pairing = InTurn([GaussianNoise(0.01), GaussianNoise(1.0)])
    spreads = pairing(x, Needs(augmented=3), generator(1)).augmented.std((1, 2))
    assert spreads[0] < 0.02
    assert 0.9 < spreads[1] < 1.1
    assert spreads[2] < 0.02
    wide = pairing.sample(x, generator(2)).abs().amax(1) > 0.1
    assert 0.4 < wide.float().mean() < 0.6, "a single draw is of one of them at random"
