"""Laws of every energy: what paired and pairwise mean, their formulas, their first and second derivatives."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from probssl.encoders import seeded
from probssl.energies import Anisotropic, Asymmetric, Cosine, Dot, Energy, Euclidean, PNorm, unit
from probssl.errors import InputError
from tests.objectives.members import EMBEDDING, ENERGIES, INPUT, Member, each, normal
from tests.objectives.references import delta

every_energy = pytest.mark.parametrize("member", each(ENERGIES))
every_question = pytest.mark.parametrize("question", ["paired", "pairwise"])


def ask(energy: Energy, question: str, a: Tensor, b: Tensor) -> Tensor:
    return getattr(energy, question)(a, b)


@every_energy
def test_paired_is_the_diagonal_of_pairwise(member: Member[Energy]) -> None:
    energy = member.built()
    a, b = normal(6, EMBEDDING), normal(6, EMBEDDING, seed=1)
    assert energy.paired(a, b).shape == (6,)
    torch.testing.assert_close(energy.paired(a, b), energy.pairwise(a, b).diagonal(), rtol=1e-10, atol=1e-12)


@every_energy
def test_formula(member: Member[Energy]) -> None:
    energy = member.built()
    a, b = normal(4, EMBEDDING), normal(5, EMBEDDING, seed=1)
    slow = torch.tensor([[delta(energy, p, q) for q in b.tolist()] for p in a.tolist()], dtype=torch.float64)
    torch.testing.assert_close(energy.pairwise(a, b), slow, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(energy.paired(a, b[:4]), slow.diagonal(), rtol=1e-10, atol=1e-12)


@every_energy
def test_symmetric_energies_are_symmetric(member: Member[Energy]) -> None:
    energy = member.built()
    x, b = normal(4, INPUT), normal(5, EMBEDDING, seed=1)
    encoder = seeded(0, lambda: nn.Linear(INPUT, EMBEDDING)).double()
    same_side = torch.equal(energy.embed(encoder, x), energy.embed_augmented(encoder, x))
    assert same_side == energy.symmetric
    a = energy.embed(encoder, x)
    if energy.symmetric:
        torch.testing.assert_close(energy.pairwise(a, b), energy.pairwise(b, a).mT, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(energy.paired(a, b[:4]), energy.paired(b[:4], a), rtol=1e-10, atol=1e-12)


# An inner product is not a distance: a longer vector is "more alike" than the vector itself.
@pytest.mark.parametrize("member", each(m for m in ENERGIES if not isinstance(m.built(), Dot)))
def test_lower_is_more_alike(member: Member[Energy]) -> None:
    energy = member.built()
    a, b = normal(6, EMBEDDING), normal(6, EMBEDDING, seed=1)
    torch.testing.assert_close(energy.paired(a, a), torch.zeros(6).double(), rtol=0, atol=1e-12)
    assert (energy.paired(a, b) > 1e-6).all()
    between = [energy.paired(a, a + share * (b - a)) for share in (0.0, 0.25, 0.5, 1.0)]
    assert all((near < far).all() for near, far in itertools.pairwise(between))
    assert (energy.pairwise(a, a).argmin(1) == torch.arange(6)).all()
    assert (energy.pairwise(a, a) >= -1e-12).all()


@every_energy
@every_question
def test_derivatives_match_finite_differences(member: Member[Energy], question: str) -> None:
    energy = member.built()
    names = [name for name, value in energy.named_parameters() if value.requires_grad and "concentration" in name]

    asking = _Asking(energy, question)

    def ask_with(a: Tensor, b: Tensor, *values: Tensor) -> Tensor:
        replaced = {f"energy.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(asking, replaced, (a, b))

    parameters = [dict(energy.named_parameters())[name].detach().clone().requires_grad_() for name in names]
    a, b = normal(3, EMBEDDING).requires_grad_(), normal(3, EMBEDDING, seed=1).requires_grad_()
    assert gradcheck(ask_with, (a, b, *parameters))
    assert gradgradcheck(ask_with, (a, b, *parameters))


class _Asking(nn.Module):
    def __init__(self, energy: Energy, question: str) -> None:
        super().__init__()
        self.energy, self.question = energy, question

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return ask(self.energy, self.question, a, b)


@every_energy
@every_question
def test_slope_at_coincident_points_matches_finite_differences(member: Member[Energy], question: str) -> None:
    energy = member.built()
    a = normal(3, EMBEDDING).requires_grad_()
    b = a.detach().clone().requires_grad_()
    assert gradcheck(lambda p, q: ask(energy, question, p, q), (a, b))


@every_energy
@every_question
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("where", ["coincident", "both zero", "one zero", "tiny"])
def test_derivatives_are_finite_in_special_places(
    member: Member[Energy], question: str, where: str, dtype: torch.dtype
) -> None:
    energy = member.built().to(dtype)
    a = normal(3, EMBEDDING, dtype=dtype)
    b = {
        "coincident": a,
        "both zero": torch.zeros_like(a),
        "one zero": torch.zeros_like(a),
        "tiny": a * torch.finfo(dtype).eps,
    }[where].clone()
    if where == "both zero":
        a = torch.zeros_like(a)
    a.requires_grad_()
    b.requires_grad_()
    value = ask(energy, question, a, b)
    slopes = torch.autograd.grad(value.sum(), (a, b), create_graph=True)
    assert value.isfinite().all()
    assert all(slope.isfinite().all() for slope in slopes)
    squared = torch.stack([(slope * slope.detach().sign() + slope).sum() for slope in slopes]).sum()
    if squared.requires_grad:  # the slope of |a − b| is constant
        curvature = torch.autograd.grad(squared, (a, b), allow_unused=True)
        assert all(part is None or part.isfinite().all() for part in curvature)


@every_energy
def test_leading_dimensions(member: Member[Energy]) -> None:
    energy = member.built()
    a, b = normal(2, 3, 4, EMBEDDING), normal(2, 3, 5, EMBEDDING, seed=1)
    together = energy.pairwise(a, b)
    assert together.shape == (2, 3, 4, 5)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(together[i, j], energy.pairwise(a[i, j], b[i, j]), rtol=1e-9, atol=1e-11)
    paired = energy.paired(a, b[:, :, :4])
    assert paired.shape == (2, 3, 4)
    torch.testing.assert_close(paired, together.diagonal(dim1=-2, dim2=-1), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "member", each(m for m in ENERGIES if m.name in ("euclidean", "p-norm-2", "anisotropic", "asymmetric-predictor"))
)
@every_question
def test_single_precision_far_from_the_origin(member: Member[Energy], question: str) -> None:
    energy = member.built()
    a = normal(20, EMBEDDING, dtype=torch.float32) + 1e3
    b = normal(20, EMBEDDING, seed=1, dtype=torch.float32) + 1e3
    exact = ask(energy, question, a.double(), b.double())
    rough = ask(energy.float(), question, a, b)
    torch.testing.assert_close(rough.double(), exact, rtol=1e-3, atol=1e-3)


def test_unit_has_length_one_and_is_smooth_at_zero() -> None:
    z = normal(5, 7)
    torch.testing.assert_close(unit(z).norm(dim=-1), torch.ones(5).double())
    torch.testing.assert_close(unit(1e3 * z), unit(z))
    assert torch.equal(unit(torch.zeros(2, 3)), torch.zeros(2, 3))


# --- concentrations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1e-4, 0.3, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("trainable", [True, False])
def test_concentrations_start_where_they_are_told(start: float, trainable: bool) -> None:
    energy = Anisotropic(start, trainable=trainable).bind(dim=3)
    torch.testing.assert_close(energy.concentration.detach(), torch.full((3,), start), rtol=1e-5, atol=0)
    assert [value.requires_grad for value in energy.parameters()] == [trainable]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e4, 1e4), min_size=EMBEDDING, max_size=EMBEDDING), st.booleans(), st.booleans())
def test_concentrations_stay_positive_however_they_are_trained(raw: list[float], normalise: bool, double: bool) -> None:
    energy = Anisotropic(normalise=normalise).bind(dim=EMBEDDING)
    dtype = torch.float64 if double else torch.float32
    energy = energy.to(dtype)
    with torch.no_grad():
        energy.raw_concentration.copy_(torch.tensor(raw, dtype=dtype))
    assert (energy.concentration > 0).all()
    a, b = normal(3, EMBEDDING, dtype=dtype), normal(3, EMBEDDING, seed=1, dtype=dtype)
    for value in (energy.paired(a, b), energy.pairwise(a, b)):
        (slope,) = torch.autograd.grad(value.sum(), energy.raw_concentration)
        assert value.isfinite().all()
        assert slope.isfinite().all()


def test_concentrations_stay_positive_through_large_steps() -> None:
    energy = Anisotropic().bind(dim=EMBEDDING)
    optimiser = torch.optim.SGD(energy.parameters(), lr=300.0)
    a, b = normal(8, EMBEDDING, dtype=torch.float32), normal(8, EMBEDDING, seed=1, dtype=torch.float32)
    for _ in range(20):
        optimiser.zero_grad()
        energy.paired(a, b).mean().backward()
        optimiser.step()
        assert (energy.concentration > 0).all()


@pytest.mark.parametrize("concentration", [0.2, 1.0, 10.0])
def test_isotropic_concentration_on_the_sphere_is_the_cosine_energy(concentration: float) -> None:
    one = Anisotropic(concentration, normalise=True).bind(dim=4).double()
    other = Cosine(temperature=1 / concentration)
    a, b = 3 * normal(5, 4), normal(6, 4, seed=1)
    torch.testing.assert_close(one.pairwise(a, b), other.pairwise(a, b), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(one.paired(a, b[:5]), other.paired(a, b[:5]), rtol=1e-6, atol=1e-7)


def test_a_learnt_temperature_is_one_number() -> None:
    """∂δ/∂λ summed over pairs is that of the cosine energy δ = λ (1 − cos), and Λ stays λI."""
    energy = Anisotropic(2.0, normalise=True, isotropic=True).bind(dim=4).double()
    a, b = normal(5, 4), normal(5, 4, seed=1)
    energy.paired(a, b).sum().backward()
    (raw,) = energy.parameters()
    assert raw.grad is not None
    slope = torch.sigmoid(raw)  # ∂ softplus
    torch.testing.assert_close(raw.grad, (1 - (unit(a) * unit(b)).sum(-1)).sum() * slope.detach(), rtol=1e-9, atol=0)
    with torch.no_grad():
        raw.fill_(3.0)
    assert energy.concentration.shape == (4,)
    assert energy.concentration.unique().numel() == 1
    with pytest.raises(InputError, match="one concentration"):
        Anisotropic(torch.ones(4), isotropic=True)


def test_families_meet() -> None:
    a, b = normal(5, EMBEDDING), normal(6, EMBEDDING, seed=1)
    torch.testing.assert_close(PNorm(2).pairwise(a, b), 2 * Euclidean().pairwise(a, b))
    torch.testing.assert_close(Anisotropic(1.0).bind(dim=EMBEDDING).double().pairwise(a, b), Euclidean().pairwise(a, b))
    torch.testing.assert_close(Dot(0.5).pairwise(unit(a), unit(b)) + 2, Cosine(0.5).pairwise(a, b))


# --- two sides --------------------------------------------------------------------------------------------------------


def test_asymmetric_energies_embed_the_augmented_side_their_own_way() -> None:
    encoder, other, predictor = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(2, 2)
    x = normal(4, 3, dtype=torch.float32)
    by_predictor = Asymmetric(Euclidean(), network=predictor)
    by_encoder = Asymmetric(Euclidean(), by="encoder", network=other)
    for energy in (by_predictor, by_encoder):
        assert torch.equal(energy.embed(encoder, x), encoder(x))
    assert torch.equal(by_predictor.embed_augmented(encoder, x), predictor(encoder(x)))
    assert torch.equal(by_encoder.embed_augmented(encoder, x), other(x))
    assert {id(value) for value in by_encoder.parameters()} == {id(value) for value in other.parameters()}


def test_asymmetric_energies_start_with_two_sides_alike() -> None:
    encoder, x = seeded(0, lambda: nn.Linear(INPUT, EMBEDDING)), normal(4, INPUT, dtype=torch.float32)
    by_predictor = Asymmetric().bind(dim=EMBEDDING)
    by_encoder = Asymmetric(by="encoder").bind(encoder=encoder)
    for energy in (by_predictor, by_encoder):
        torch.testing.assert_close(energy.embed_augmented(encoder, x), energy.embed(encoder, x))
        assert all(value.requires_grad for value in energy.parameters())
    assert by_encoder.network is not encoder
    assert by_encoder.encoders() == [by_encoder.network]
    assert by_predictor.encoders() == []


# --- bad arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: Cosine(0), id="cosine temperature zero"),
        pytest.param(lambda: Cosine(-1), id="cosine temperature negative"),
        pytest.param(lambda: Cosine(math.inf), id="cosine temperature infinite"),
        pytest.param(lambda: Cosine(math.nan), id="cosine temperature nan"),
        pytest.param(lambda: Dot(0), id="dot temperature zero"),
        pytest.param(lambda: PNorm(0.5), id="p below one"),
        pytest.param(lambda: PNorm(math.nan), id="p nan"),
        pytest.param(lambda: PNorm(math.inf), id="p infinite"),
        pytest.param(lambda: Anisotropic(0.0), id="concentration zero"),
        pytest.param(lambda: Anisotropic(-1.0), id="concentration negative"),
        pytest.param(lambda: Anisotropic(torch.tensor([1.0, -1.0])), id="one concentration negative"),
        pytest.param(lambda: Anisotropic(math.inf), id="concentration infinite"),
        pytest.param(lambda: Anisotropic(torch.ones(3)).bind(dim=2), id="too many concentrations"),
        pytest.param(lambda: Anisotropic(torch.ones(2, 2)), id="a matrix of concentrations"),
        pytest.param(lambda: Anisotropic().bind(), id="concentrations of how many dimensions"),
        pytest.param(lambda: Asymmetric(by="both"), id="neither predictor nor encoder"),
        pytest.param(lambda: Asymmetric().bind(), id="a predictor of how many dimensions"),
        pytest.param(lambda: Asymmetric(by="encoder").bind(dim=2), id="no encoder to copy"),
    ],
)
def test_bad_arguments(build) -> None:
    with pytest.raises(InputError) as error:
        build()
    assert "\n" not in str(error.value)
