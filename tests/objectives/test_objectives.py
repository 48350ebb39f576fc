"""Laws of every objective, the values their docstrings promise, and the identities that tie them together."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from probssl.encoders import MLP, Centring, seeded
from probssl.energies import Asymmetric, Cosine, Dot, Energy, Euclidean
from probssl.errors import InputError, NonFiniteLoss
from probssl.objectives import (
    NCE,
    SNL,
    VAE,
    WMSE,
    AlignUniform,
    BarlowTwins,
    BiasNetwork,
    ChiSquared,
    CorInfoMax,
    Ensemble,
    Fisher,
    InfoNCE,
    JensenShannon,
    Objective,
    RenyiInfoNCE,
    SimSiam,
    SlicedFisher,
    Spectral,
    Terms,
    Triplet,
    VICReg,
)
from probssl.objectives.base import Summed
from probssl.pairings import GaussianNoise, MaskAndNoise, Needs, Views
from tests.objectives.members import (
    ANCHORS,
    EMBEDDING,
    INPUT,
    NEGATIVES,
    OBJECTIVES,
    ROWS,
    SYMMETRIC,
    Member,
    ObjectiveMember,
    cast,
    constant_encoder,
    each,
    generator,
    normal,
    smooth_encoder,
)
from tests.objectives.references import cosine, log_sum_exp, loss, mean

every_objective = pytest.mark.parametrize("member", each(OBJECTIVES))


class Joint(nn.Module):
    """Encoder and objective as one module, so that the parameters of both are differentiated."""

    def __init__(self, encoder: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.encoder, self.objective = encoder, objective

    def forward(self, views: Views) -> Tensor:
        return self.objective(self.encoder, views).total


class Given(nn.Module):
    """A bias λ that is handed in, one number for every augmented row."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, embedding: Tensor) -> Tensor:
        return self.values.expand(len(embedding))


def batch(x: Tensor, x_aug: Tensor, score: Tensor | None = None) -> Views:
    return Views(x, x_aug.unsqueeze(0), score=None if score is None else score.unsqueeze(0))


# --- laws of every member ---------------------------------------------------------------------------------------------


@every_objective
def test_formula(member: ObjectiveMember) -> None:
    objective, encoder, views = member.built(), smooth_encoder(), member.views()
    expected = loss(objective, encoder, views)
    found = objective(encoder, views).numbers()
    total = sum(value * objective.weights.get(name, 1.0) for name, value in expected.items())
    assert found == pytest.approx({"loss": total, **expected}, rel=1e-8, abs=1e-9)


@every_objective
def test_terms_sum_to_the_total(member: ObjectiveMember) -> None:
    objective, encoder, views = member.built(), smooth_encoder(), member.views()
    terms = objective(encoder, views)
    assert all(value.shape == () for value in terms.values())
    weighted = sum(value.item() * objective.weights.get(name, 1.0) for name, value in terms.items())
    assert terms.total.item() == pytest.approx(weighted, rel=1e-12, abs=1e-12)
    objective.weights = {name: 2.0 + k for k, name in enumerate(terms)}
    weighted = sum(value.item() * objective.weights[name] for name, value in terms.items())
    assert objective(encoder, views).total.item() == pytest.approx(weighted, rel=1e-12, abs=1e-12)


@every_objective
def test_order_of_the_batch_does_not_matter(member: ObjectiveMember) -> None:
    objective, encoder, views = member.built(), smooth_encoder(), member.views()
    order = torch.randperm(ROWS, generator=generator(3))
    assert not torch.equal(order, torch.arange(ROWS))
    negatives = views.negatives
    if negatives is not None:
        negatives = negatives[order] if member.negatives == "own" else negatives.flip(0)
    shuffled = Views(
        views.x[order],
        views.augmented[:, order],
        score=None if views.score is None else views.score[:, order],
        index=None if views.index is None else views.index[order],
        latents=None if views.latents is None else views.latents[order],
        negatives=negatives,
        directions=None if views.directions is None else views.directions[:, order],
        noise=None if views.noise is None else views.noise[:, order],
    )
    before, after = objective(encoder, views).numbers(), objective(encoder, shuffled).numbers()
    assert after == pytest.approx(before, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("member", each(m for m in OBJECTIVES if not m.stops_gradients))
def test_gradient_matches_finite_differences(member: ObjectiveMember) -> None:
    joint, views = Joint(smooth_encoder(), member.built()), member.views()
    named = {name: value for name, value in joint.named_parameters() if value.requires_grad}

    def total(*values: Tensor) -> Tensor:
        return torch.func.functional_call(joint, dict(zip(named, values, strict=True)), (views,))

    assert gradcheck(total, tuple(named.values()), fast_mode=True, atol=1e-6, rtol=1e-5)


@every_objective
def test_there_is_no_hidden_state(member: ObjectiveMember) -> None:
    joint, views = Joint(smooth_encoder(), member.built()), member.views()
    kept, state, chance = copy.deepcopy(views), copy.deepcopy(joint.state_dict()), torch.get_rng_state()
    first = joint.objective(joint.encoder, views).numbers()
    joint(views).backward()
    assert joint.objective(joint.encoder, views).numbers() == first
    with torch.no_grad():
        again = joint.objective(joint.encoder, views)
    assert not again.total.requires_grad
    assert again.numbers() == pytest.approx(first, rel=1e-12, abs=1e-12)
    joint.eval()
    assert joint.objective(joint.encoder, views).numbers() == first
    assert member.samples or torch.equal(torch.get_rng_state(), chance)
    assert joint.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in joint.state_dict().items())
    for field in dataclasses.fields(Views):
        one, other = getattr(kept, field.name), getattr(views, field.name)
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


# Some batches of the spectral loss are below its optimum, which bounds the mean over batches: see below.
@pytest.mark.parametrize("member", each(m for m in OBJECTIVES if not m.bound_in_expectation))
def test_no_encoder_goes_below_the_optimum(member: ObjectiveMember) -> None:
    objective = member.built()
    bound = objective.optimum(ROWS, EMBEDDING)
    if bound is None:
        return  # documented as unbounded, or bounded by the data only
    for seed in range(3):
        views = member.views(seed=10 * seed)
        for scale in (0.0, 0.1, 1.0, 10.0, 100.0):
            with torch.no_grad():
                value = objective(smooth_encoder(seed, scale), views).total.item()
            assert value >= bound - 1e-9


PLACES = ("large", "equal inputs", "equal large inputs", "zero embeddings", "constant")


@every_objective
def test_finite_for_finite_input(member: ObjectiveMember) -> None:
    given = member.views()
    for place in PLACES:
        encoder, views = smooth_encoder(), given
        if place == "constant":
            encoder = constant_encoder()
        elif place == "zero embeddings":
            encoder = smooth_encoder(scale=0.0)
        elif "large" in place:
            encoder = smooth_encoder(scale=1e3)
        if place.startswith("equal"):
            negatives = None if views.negatives is None else torch.ones_like(views.negatives)
            score = None if views.score is None else torch.zeros_like(views.score)
            views = dataclasses.replace(
                views,
                x=torch.ones_like(views.x),
                augmented=torch.ones_like(views.augmented),
                score=score,
                negatives=negatives,
            )
        joint = Joint(encoder, member.built())
        for dtype in (torch.float64, torch.float32):
            joint.to(dtype).zero_grad()
            terms = joint.objective(joint.encoder, cast(views, dtype))
            assert all(math.isfinite(value) for value in terms.numbers().values()), (place, dtype)
            terms.total.backward()
            for name, value in joint.named_parameters():
                assert value.grad is None or value.grad.isfinite().all(), (place, dtype, name)


# --- the values of a constant encoder ---------------------------------------------------------------------------------


def constant_value(objective: Objective, views: Views) -> float | None:
    """What the docstring says of a constant encoder."""
    n = len(views.x)
    if isinstance(objective, InfoNCE):
        return {
            "batch": math.log(n),
            "batch-negatives": 0.0,
            "originals": math.log(n),
            "batch-and-given": math.log(n + NEGATIVES),
            "two-view": math.log(2 * n - 1),
            "given": math.log(1 + NEGATIVES),
        }[objective.candidates]
    if isinstance(objective, AlignUniform):
        return 0.0
    if isinstance(objective, Ensemble):
        return len(objective.objectives) * math.log(n)
    if isinstance(objective, Triplet):
        return objective.margin
    if isinstance(objective, Spectral):
        return objective.squared_radius**2 - 2 * objective.squared_radius
    if isinstance(objective, Fisher):
        assert views.score is not None
        return views.score[0].square().sum(1).mean().item()
    if isinstance(objective, SNL) and not isinstance(objective.energy, Dot | Asymmetric):
        objective.bias = Given(torch.zeros(n, dtype=torch.float64))
        return 0.0
    if isinstance(objective, SlicedFisher):
        assert views.score is not None
        assert views.directions is not None
        if objective.expanded:
            return views.score[0].square().sum(1).mean().item()
        return (views.directions * views.score[0]).sum(2).square().mean().item()
    if isinstance(objective, RenyiInfoNCE):
        return 0.0
    if isinstance(objective, ChiSquared):
        return -1.0
    if isinstance(objective, JensenShannon) and not isinstance(objective.energy, Dot | Asymmetric):
        with torch.no_grad():
            objective.bias.zero_()
        return 2 * math.log(2)
    if isinstance(objective, SimSiam):
        objective.predictor = nn.Identity()
        return -1.0
    if isinstance(objective, BarlowTwins):
        return float(EMBEDDING)
    if isinstance(objective, VICReg):
        return 2 * objective.variance * (1 - math.sqrt(objective.epsilon))
    if isinstance(objective, WMSE):
        return 2.0
    if isinstance(objective, CorInfoMax):
        return -2 * EMBEDDING * math.log(objective.epsilon)
    return None


@every_objective
def test_constant_encoder(member: ObjectiveMember) -> None:
    objective, views, encoder = member.built(), member.views(), constant_encoder()
    if isinstance(objective.energy, Asymmetric) and objective.energy.by == "encoder":
        objective.energy.network = constant_encoder()
    expected = constant_value(objective, views)
    if expected is not None:
        assert objective(encoder, views).total.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("value", [-2.0, -0.1, 0.3, 5.0])
def test_snl_of_a_constant_encoder_is_least_without_bias(value: float) -> None:
    objective = SNL(bias=Given(torch.full((1,), value, dtype=torch.float64)))
    found = objective(constant_encoder(), SOME_VIEWS).total.item()
    assert found == pytest.approx(value + math.exp(-value) - 1, rel=1e-10)
    assert found > 0


SOME_VIEWS = GaussianNoise(0.5)(normal(ROWS, INPUT), Needs(augmented=2, score=True), generator(1))


# --- identities of the contrastive family -----------------------------------------------------------------------------


@pytest.mark.parametrize("candidates", ["batch", "batch-negatives", "given"])
@pytest.mark.parametrize(
    "energy", [Cosine(0.5), Asymmetric(Euclidean(), network=seeded(0, lambda: nn.Linear(2, 2)).double()).bind()]
)
def test_the_symmetric_anchor_is_the_mean_of_both(candidates: str, energy: Energy) -> None:
    views = dataclasses.replace(SOME_VIEWS, negatives=normal(ROWS, NEGATIVES, INPUT, seed=5))
    values = {
        anchor: InfoNCE(energy, candidates=candidates, anchor=anchor)(smooth_encoder(), views).total.item()
        for anchor in ANCHORS
    }
    assert values["symmetric"] == pytest.approx(0.5 * (values["augmented"] + values["original"]), rel=1e-12)
    assert abs(values["augmented"] - values["original"]) > 1e-6


@pytest.mark.parametrize("candidates", ["batch", "batch-negatives", "originals"])
@pytest.mark.parametrize("energy", each(SYMMETRIC))
def test_groups_are_batches_of_their_own(candidates: str, energy: Member[Energy]) -> None:
    x = normal(12, INPUT)
    views = GaussianNoise(0.5)(x, Needs(), generator(1))
    grouped = InfoNCE(energy.built(), candidates=candidates, group_size=4)
    alone = InfoNCE(energy.built(), candidates=candidates)
    parts = [
        alone(smooth_encoder(), Views(views.x[at : at + 4], views.augmented[:, at : at + 4])).total.item()
        for at in (0, 4, 8)
    ]
    assert grouped(smooth_encoder(), views).total.item() == pytest.approx(sum(parts) / 3, rel=1e-12)
    with pytest.raises(InputError, match="12 cannot be divided into groups of 5"):
        InfoNCE(energy.built(), candidates=candidates, group_size=5)(smooth_encoder(), views)


def test_two_view_infonce_is_nt_xent() -> None:
    """ℓ(i, j) = −log[exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ)], averaged over the 2n anchors (Chen et al., 2020, Eq. 1)."""
    temperature, encoder = 0.3, smooth_encoder()
    with torch.no_grad():
        z = torch.cat([encoder(view) for view in SOME_VIEWS.augmented]).tolist()
    count = len(z)
    losses = []
    for i in range(count):
        j = (i + count // 2) % count
        total = log_sum_exp([cosine(z[i], z[k]) / temperature for k in range(count) if k != i])
        losses.append(total - cosine(z[i], z[j]) / temperature)
    objective = InfoNCE(Cosine(temperature), candidates="two-view", pair="augmented")
    found = objective(encoder, SOME_VIEWS).total.item()
    assert found == pytest.approx(mean(losses), rel=1e-10)


def test_given_negatives_may_be_the_rest_of_the_batch() -> None:
    """With the other rows as each anchor's own negatives, the candidates are those of the batch."""
    others = torch.tensor([[j for j in range(ROWS) if j != i] for i in range(ROWS)])
    originals = dataclasses.replace(SOME_VIEWS, negatives=SOME_VIEWS.x[others])
    augmented = dataclasses.replace(SOME_VIEWS, negatives=SOME_VIEWS.augmented[0][others])
    for anchor, views in (("augmented", originals), ("original", augmented)):
        given, whole = (
            InfoNCE(candidates=candidates, anchor=anchor)(smooth_encoder(), views).numbers()
            for candidates in ("given", "batch")
        )
        assert given == pytest.approx(whole, rel=1e-12)


def test_leaving_the_positive_out_has_no_lower_bound() -> None:
    """Perfect separation: 0 with the positive among the candidates, minus the gap without it."""
    x = torch.eye(8, dtype=torch.float64) * math.sqrt(100)  # every other row is 100 away
    values = {
        candidates: InfoNCE(Euclidean(), candidates=candidates)(nn.Identity(), batch(x, x))
        for candidates in ("batch", "batch-negatives")
    }
    assert values["batch"].total.item() == pytest.approx(0, abs=1e-12)
    assert values["batch-negatives"].total.item() == pytest.approx(-100, abs=1e-9)
    assert InfoNCE(candidates="batch").optimum(8, 8) == 0
    assert InfoNCE(candidates="batch-negatives").optimum(8, 8) is None


@pytest.mark.parametrize(("rows", "published"), [(2, 0.243), (8, 0.464), (64, 0.534)])
def test_infonce_bounds_the_mutual_information(rows: int, published: float) -> None:
    """log n − L ≤ min(log n, I), here with the true critic of x ~ N(0, 1), x̃ = x + N(0, ½): I = ½ log 3."""
    variance, batches = 0.5, 8_000 // rows
    information = 0.5 * math.log(1 + 1 / variance)
    encoder = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(encoder.weight, 1 / math.sqrt(variance))
    pairing, source, bounds = GaussianNoise(math.sqrt(variance)), generator(4), []
    objective = InfoNCE(Euclidean())
    with torch.no_grad():
        for _ in range(batches):
            x = torch.randn(rows, 1, generator=source, dtype=torch.float64)
            bounds.append(math.log(rows) - objective(encoder, pairing(x, objective.needs, source)).total)
    values = torch.stack(bounds)
    assert (values <= math.log(rows) + 1e-12).all()
    error = values.std() / math.sqrt(batches)
    assert values.mean() - 4 * error < min(math.log(rows), information)
    assert values.mean().item() == pytest.approx(published, abs=4 * error.item() + 0.02)


# --- learnt normalisers -----------------------------------------------------------------------------------------------


def log_normalisers(energy: Energy, encoder: nn.Module, views: Views) -> Tensor:
    """log mean_{j≠i} e^{−δ(x_j, x̃_i)} for every augmented row."""
    with torch.no_grad():
        energies = energy.pairwise(encoder(views.x), encoder(views.augmented[0]))
    n = len(energies)
    return torch.stack(
        [torch.stack([-energies[j, i] for j in range(n) if j != i]).logsumexp(0) for i in range(n)]
    ) - math.log(n - 1)


@pytest.mark.parametrize("normaliser", [0.3, 1.0, 2.7])
def test_the_variational_form_of_the_normaliser_is_a_minimum(normaliser: float) -> None:
    """log Z = min_λ (Z e^{−λ} + λ − 1), at λ = log Z; SNL on two points with δ = −log Z off the diagonal is that."""
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    crossed = torch.tensor([[0.0, math.log(normaliser)], [math.log(normaliser), 0.0]], dtype=torch.float64)
    value = torch.tensor([0.2], dtype=torch.float64, requires_grad=True)
    objective = SNL(Dot(), bias=Given(value))
    optimiser = torch.optim.LBFGS([value], line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=0)

    def closure() -> Tensor:
        optimiser.zero_grad()
        total = objective(nn.Identity(), batch(rows, crossed)).total
        total.backward()
        return total

    for _ in range(5):
        optimiser.step(closure)
    assert value.item() == pytest.approx(math.log(normaliser), abs=1e-6)
    assert closure().item() == pytest.approx(math.log(normaliser), abs=1e-12)
    for far in (50.0, -50.0):
        with torch.no_grad():
            value.fill_(far)
        assert closure().item() > 48


@pytest.mark.parametrize("energy", [Euclidean(), Cosine(0.5), Dot()], ids=["euclidean", "cosine", "dot"])
def test_snl_with_the_true_normaliser_is_infonce_without_the_positive(energy: Energy) -> None:
    encoder = smooth_encoder()
    best = log_normalisers(energy, encoder, SOME_VIEWS)
    contrastive = InfoNCE(energy, candidates="batch-negatives")(encoder, SOME_VIEWS)
    terms = SNL(energy, bias=Given(best))(encoder, SOME_VIEWS)
    assert terms.total.item() == pytest.approx(contrastive.total.item(), rel=1e-12)
    assert terms["normaliser"].item() == pytest.approx(0, abs=1e-12)
    assert terms["bias"].item() == pytest.approx(contrastive["log_normaliser"].item(), rel=1e-12)
    for seed in range(5):
        other = best + 0.3 * normal(ROWS, seed=seed)
        assert SNL(energy, bias=Given(other))(encoder, SOME_VIEWS).total > terms.total


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("level", [-1000.0, -31.0, -29.0, 1000.0])
def test_snl_continues_as_a_tangent(level: float, dtype: torch.dtype) -> None:
    bias = torch.tensor([level], dtype=dtype, requires_grad=True)
    encoder = constant_encoder().to(dtype)
    terms = SNL(bias=Given(bias))(encoder, cast(SOME_VIEWS, dtype))
    expected = math.exp(-level) if level >= -30 else math.exp(30) * (1 - level - 30)
    precision = 1e-12 if dtype == torch.float64 else 1e-5
    assert terms["normaliser"].item() == pytest.approx(expected - 1, rel=precision)
    terms.total.backward()
    assert bias.grad is not None
    assert bias.grad.item() == pytest.approx(1 - math.exp(min(-level, 30)), rel=precision)


def separated(dtype: torch.dtype, rows: int = 64) -> Views:
    """Every positive pair coincides and every negative is far away: what a trained encoder sees."""
    x = 100 * torch.eye(rows, dtype=dtype)
    return batch(x, x.clone())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("level", [-10.0, -20.0, -28.0])
def test_the_positives_leave_no_trace_in_the_mean_over_negatives(level: float, dtype: torch.dtype) -> None:
    """Off the diagonal e^{−δ−λ} is 0 here, however large it is on the diagonal."""
    bias = Given(torch.tensor([level], dtype=dtype))
    views = separated(dtype)
    terms = SNL(bias=bias)(nn.Identity(), views)
    assert terms["normaliser"].item() == pytest.approx(-1, abs=1e-6)
    negative = NCE(bias=bias, prior=0.5)(nn.Identity(), views)["negative"].item()
    assert negative == pytest.approx(0, abs=1e-12)
    assert negative >= 0


@pytest.mark.parametrize("margin", [0.1, 0.7, 3.3])
def test_a_satisfied_triplet_loss_is_zero(margin: float) -> None:
    for rows in (7, 50, 301):
        value = Triplet(margin=margin)(nn.Identity(), separated(torch.float32, rows)).total.item()
        assert value == pytest.approx(0, abs=1e-12)
        assert value >= 0


def test_nce_takes_the_share_of_positives_from_the_batch() -> None:
    rows = 256
    views = batch(normal(rows, INPUT), normal(rows, INPUT, seed=1))
    bias = seeded(0, lambda: BiasNetwork().bind(dim=EMBEDDING)).double()
    encoder = smooth_encoder()
    implicit, explicit = (NCE(bias=bias, prior=prior)(encoder, views) for prior in (None, 1 / rows))
    assert implicit.numbers() == pytest.approx(explicit.numbers(), rel=1e-12)
    with torch.no_grad():
        first, second = encoder(views.x), encoder(views.augmented[0])
        logits = -math.log(rows - 1) - Euclidean().pairwise(first, second) - bias(second)
        assert -math.log(rows - 1) == pytest.approx(-5.541263545, abs=1e-9)
        positive = -torch.sigmoid(logits.diagonal()).log().mean() / rows
        away = -torch.sigmoid(-logits).log()
        negative = (1 - 1 / rows) * (away.sum() - away.diagonal().sum()) / (rows * (rows - 1))
    assert implicit["positive"].item() == pytest.approx(positive.item(), rel=1e-10)
    assert implicit["negative"].item() == pytest.approx(negative.item(), rel=1e-10)


def test_nce_is_bounded_below_in_the_bias() -> None:
    """The published sign of the second term sends the loss to minus infinity as λ → −∞."""
    for level in (-500.0, 500.0):
        bias = Given(torch.tensor([level], dtype=torch.float64))
        total = NCE(bias=bias, prior=0.5)(constant_encoder(), SOME_VIEWS).total.item()
        assert total == pytest.approx(250, rel=1e-6)


@pytest.mark.parametrize("energy", [Euclidean(), Cosine(0.5)], ids=["euclidean", "cosine"])
def test_nce_with_many_negatives_is_self_normalised_likelihood(energy: Energy) -> None:
    """(k + 1) L_NCE − log k → L_SNL + 1 as k = (1 − π)/π → ∞, on every batch and with an error of order 1/k."""
    encoder, bias = smooth_encoder(), Given(normal(ROWS, seed=5))
    target = SNL(energy, bias=bias)(encoder, SOME_VIEWS).total.item() + 1
    errors = []
    for k in (1e2, 1e4, 1e6):
        value = NCE(energy, bias=bias, prior=1 / (k + 1))(encoder, SOME_VIEWS).total.item()
        errors.append(abs((k + 1) * value - math.log(k) - target) * k)
    assert max(errors) < 20
    assert errors[2] == pytest.approx(errors[1], rel=0.05)


class LineWorld:
    """x ~ N(0, 1), x̃ = x + N(0, s²), δ = ½ g (x − x̃)², for which log Z(x̃) is known; well specified at g = 1/s²."""

    variance = 0.5

    def __init__(self, precision: float, shift: Tensor | float = 0.0) -> None:
        self.precision, self.shift = precision, shift
        self.encoder = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(self.encoder.weight, math.sqrt(precision))

    def bias(self, embedding: Tensor) -> Tensor:
        x_aug = embedding.squeeze(-1) / math.sqrt(self.precision)
        g = self.precision
        return -0.5 * math.log(1 + g) - 0.5 * x_aug.square() * g / (1 + g) + self.shift

    def views(self, rows: int, seed: int) -> Views:
        return GaussianNoise(math.sqrt(self.variance))(normal(rows, 1, seed=seed), Needs(), generator(1000 + seed))


class _Called(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, embedding: Tensor) -> Tensor:
        return self.function(embedding)


def bias_slopes(precision: float, k: float) -> Tensor:
    """d L_NCE / d c at λ = log Z + c, c = 0, one number a batch."""
    slopes = []
    for seed in range(24):
        shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
        world = LineWorld(precision, shift)
        objective = NCE(bias=_Called(world.bias), prior=1 / (k + 1))
        (slope,) = torch.autograd.grad(objective(world.encoder, world.views(500, seed)).total, shift)
        slopes.append(slope * (k + 1))
    return torch.stack(slopes)


@pytest.mark.parametrize("k", [1, 10, 255])
def test_a_well_specified_nce_learns_the_log_normaliser(k: int) -> None:
    slopes = bias_slopes(1 / LineWorld.variance, k)
    assert abs(slopes.mean()) < 4 * slopes.std() / math.sqrt(len(slopes))


def test_a_misspecified_nce_learns_another_constant() -> None:
    slopes = bias_slopes(8.0, 1)
    assert abs(slopes.mean()) > 8 * slopes.std() / math.sqrt(len(slopes))


def test_the_limit_of_nce_in_the_line_world() -> None:
    """(k + 1) L − log k → 1 + E[δ + log Z], 0.484632 at g = 1.3; the constant 1 is missing in print."""
    world, k = LineWorld(1.3), 1e6
    objective = NCE(bias=_Called(world.bias), prior=1 / (k + 1))
    with torch.no_grad():
        values = torch.stack([objective(world.encoder, world.views(500, seed)).total for seed in range(40)])
    values = (k + 1) * values - math.log(k)
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - 0.484634) < 4 * error
    assert error < 0.02


# --- Fisher -----------------------------------------------------------------------------------------------------------

NOISE = torch.tensor([[0.5, 0.1, 0.0], [0.1, 0.8, -0.2], [0.0, -0.2, 0.6]], dtype=torch.float64)


def linear(weight: Tensor) -> nn.Module:
    encoder = nn.Linear(weight.shape[1], weight.shape[0], bias=False).double()
    with torch.no_grad():
        encoder.weight.copy_(weight)
    return encoder


def test_fisher_vanishes_when_the_energy_is_the_log_density() -> None:
    objective = Fisher()
    weight = torch.linalg.cholesky(NOISE.inverse()).mT  # WᵀW = Σ⁻¹
    views = GaussianNoise(covariance=NOISE)(normal(50, 3), objective.needs, generator(1))
    assert objective(linear(weight), views).total.item() == pytest.approx(0, abs=1e-20)
    assert objective(linear(1.1 * weight), views).total.item() > 1e-2


@pytest.mark.parametrize("shift", [[0.0, 0.0, 0.0], [0.5, -0.2, 0.3]])
@pytest.mark.parametrize("width", [1, 3])
def test_fisher_of_a_linear_encoder(shift: list[float], width: int) -> None:
    """L(G) = Tr(Σ⁻¹ − 2G + G²(Σ + μμᵀ)) with G = WᵀW."""
    objective, draws = Fisher(), 40_000
    mu = torch.tensor(shift, dtype=torch.float64)
    weight = normal(width, 3, seed=2)
    gram = weight.mT @ weight
    expected = torch.trace(NOISE.inverse() - 2 * gram + gram @ gram @ (NOISE + torch.outer(mu, mu))).item()
    pairing, values = GaussianNoise(covariance=NOISE, mean=mu), []
    for seed in range(20):
        views = pairing(normal(draws // 20, 3, seed=seed), objective.needs, generator(100 + seed))
        with torch.no_grad():
            values.append(objective(linear(weight), views).total)
    found = torch.stack(values)
    assert abs(found.mean().item() - expected) < 4 * found.std().item() / math.sqrt(20)
    assert found.std() < 0.2 * expected


def test_fisher_of_the_mask_is_least_where_theory_says() -> None:
    """Uncorrelated data of unit variance: G = ρ/(σ² + 1 − ρ) I, which is 3.809524 at (0.8, 0.1)."""
    objective = Fisher()
    views = MaskAndNoise(0.8, 0.1)(normal(100_000, 2), objective.needs, generator(1))
    gain = torch.tensor(3.809524, dtype=torch.float64)
    values = []
    for factor in (0.9, 1.0, 1.1):
        with torch.no_grad():
            values.append(objective(linear((factor * gain).sqrt() * torch.eye(2)), views).total.item())
    least = 0.1 * (values[0] - values[2]) / (2 * (values[0] - 2 * values[1] + values[2]))  # of the parabola
    assert abs(least) < 0.02


def test_fisher_trains_through_the_slope_of_the_energy() -> None:
    objective, encoder = Fisher(), linear(0.3 * torch.eye(3).double())
    pairing = GaussianNoise(covariance=NOISE)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.05)
    for step in range(300):
        optimiser.zero_grad()
        objective(encoder, pairing(normal(64, 3, seed=step), objective.needs, generator(step + 1))).total.backward()
        optimiser.step()
    gram = (encoder.weight.mT @ encoder.weight).detach()
    torch.testing.assert_close(gram, NOISE.inverse(), rtol=1e-3, atol=1e-3)


def slopes_row_by_row(energy: Energy, encoder: nn.Module, views: Views) -> Tensor:
    """Of each row's energy in that row alone, all others left out of the batch."""
    found = []
    for row, other in zip(views.x, views.augmented[0], strict=True):
        x = row.unsqueeze(0).requires_grad_()
        value = energy.paired(energy.embed(encoder, x), energy.embed_augmented(encoder, other.unsqueeze(0)))
        found.append(torch.autograd.grad(value.sum(), x, create_graph=True)[0])
    return torch.cat(found)


@pytest.mark.parametrize("energy", [Euclidean(), Cosine(0.2)], ids=lambda energy: type(energy).__name__)
@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.LayerNorm(6), lambda: nn.GroupNorm(2, 6)])
def test_fisher_and_its_gradient_are_those_of_each_row_alone(norm, energy: Energy) -> None:
    encoder = seeded(0, lambda: nn.Sequential(nn.Linear(INPUT, 6), norm(), nn.Tanh(), nn.Linear(6, 3))).double()
    objective, weights = Fisher(energy), list(encoder.parameters())[:-1]  # distances hardly depend on the last bias
    views = MaskAndNoise(0.7, 0.5)(normal(7, INPUT), objective.needs, generator(1))
    assert views.score is not None
    residual = views.score[0] + slopes_row_by_row(energy, encoder, views)
    wanted, found = residual.square().sum(1).mean(), objective(encoder, views).total
    torch.testing.assert_close(found, wanted)
    for one, other in zip(torch.autograd.grad(found, weights), torch.autograd.grad(wanted, weights), strict=True):
        torch.testing.assert_close(one, other)


def test_with_batch_normalisation_summed_energies_have_other_slopes() -> None:
    """Why such encoders are refused: the slope of a sum is that of each row's energy only where rows do not meet."""
    encoder = seeded(0, lambda: MLP.of([8, 16, 16, 4], batch_norm=True)).double()
    weights, x = list(encoder.parameters())[:-1], normal(256, 8, seed=1).requires_grad_()
    views = MaskAndNoise(0.5, 0.25)(x.detach(), Fisher().needs, generator(2))
    assert views.score is not None
    energies = Euclidean().paired(encoder(x), encoder(views.augmented[0]))
    (summed,) = torch.autograd.grad(energies.sum(), x, create_graph=True)
    alone = torch.stack([torch.autograd.grad(e, x, create_graph=True)[0][row] for row, e in enumerate(energies)])
    wrong, right = (
        torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, retain_graph=True)])
        for loss in ((views.score[0] + slope).square().sum(1).mean() for slope in (summed, alone))
    )
    assert ((wrong - right).norm() / right.norm()).item() == pytest.approx(0.24, abs=0.01)


def normalised_encoder(**options: bool) -> nn.Sequential:
    return seeded(0, lambda: MLP.of([INPUT, 6, 3], batch_norm=True, **options)).double()


@pytest.mark.parametrize("objective", [Fisher(), Fisher(step=0.1), SlicedFisher()], ids=["exact", "step", "sliced"])
@pytest.mark.parametrize(
    ("encoder", "named"),
    [
        (normalised_encoder, "batch normalisation (layer '1') mixes the rows"),
        (
            lambda: normalised_encoder(track_running_stats=False).eval(),
            "batch normalisation (layer '1') mixes the rows",
        ),
        (lambda: nn.Sequential(nn.Linear(INPUT, 3), Centring(3)).double(), "Centring (layer '1') mixes the rows"),
        (lambda: nn.BatchNorm1d(INPUT).double(), "batch normalisation mixes the rows"),
    ],
    ids=["batch normalisation", "without running averages", "centring", "nothing else"],
)
def test_fisher_refuses_encoders_in_which_rows_meet(objective: Objective, encoder, named: str) -> None:
    views = MaskAndNoise(0.7, 0.5)(normal(7, INPUT), SlicedFisher().needs, generator(1))
    with pytest.raises(InputError, match="slope of each row's energy") as error:
        objective(encoder(), views)
    assert named in str(error.value)
    assert "normalisation='group'" in str(error.value)


@pytest.mark.parametrize("objective", [Fisher, SlicedFisher])
def test_fisher_refuses_second_encoders_in_which_rows_meet_and_takes_frozen_statistics(objective) -> None:
    views = MaskAndNoise(0.7, 0.5)(normal(7, INPUT), SlicedFisher().needs, generator(1))
    with pytest.raises(InputError, match=r"batch normalisation \(layer 'network.1'\)"):
        objective(Asymmetric(by="encoder", network=normalised_encoder()))(smooth_encoder(), views)
    assert objective()(normalised_encoder().eval(), views).total.isfinite()


# --- Spectral ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", ["original", "augmented"])
def test_the_spectral_optimum_is_reached(pair: str) -> None:
    """Embeddings spread evenly over the circle, and every pair alike: the mean over i≠j misses only the diagonal."""
    rows, objective = 2000, Spectral(squared_radius=10.0, pair=pair)
    angles = torch.arange(rows, dtype=torch.float64) * (2 * math.pi / rows)
    x = torch.stack([angles.cos(), angles.sin()], -1)
    value = objective(nn.Identity(), Views(x, torch.stack([x, x]))).total.item()
    assert value == pytest.approx(10**2 / 2 - 20, abs=100 / rows)


@pytest.mark.parametrize("radius", [1.5, 10.0])
def test_the_spectral_optimum_bounds_random_encoders(radius: float) -> None:
    """One batch may fall below it by chance, a large batch does not."""
    objective = Spectral(squared_radius=radius)
    bound = objective.optimum(400, EMBEDDING)
    assert bound == pytest.approx(radius**2 / EMBEDDING - 2 * radius)
    for seed in range(5):
        views = GaussianNoise(0.1)(normal(400, INPUT, seed=seed), objective.needs, generator(seed))
        with torch.no_grad():
            assert objective(smooth_encoder(seed, 3.0), views).total.item() >= bound - radius**2 / 400


def test_the_spectral_optimum_holds_when_the_two_sides_differ_in_distribution() -> None:
    """An encoder that tells x from x̃ makes both sides constant, at an angle: L = (μ cos θ − 1)² − 1 ≥ −1.

    With two augmentations of the same kind the two sides have one distribution and this cannot happen.
    """
    objective = Spectral(squared_radius=10.0, pair="original")
    theta = math.acos(1 / 10)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(ROWS, 2)
    x_aug = torch.tensor([[math.cos(theta), math.sin(theta)]], dtype=torch.float64).expand(ROWS, 2)
    value = objective(nn.Identity(), batch(x, x_aug)).total.item()
    assert value == pytest.approx(-1, abs=1e-9)
    bound = objective.optimum(ROWS, 2)
    assert bound is None or bound <= value + 1e-9


# --- SimSiam ----------------------------------------------------------------------------------------------------------


def slopes(objective: Objective) -> tuple[Tensor, Tensor]:
    """Gradients of the loss to the two sides, with the identity as encoder."""
    views = Views(torch.zeros(1), normal(2, ROWS, EMBEDDING).requires_grad_())
    (slope,) = torch.autograd.grad(objective(nn.Identity(), views).total, views.augmented)
    return slope[0], slope[1]


def simsiam(predictor: nn.Module, *, stop_gradient: bool = True) -> SimSiam:
    objective = SimSiam(stop_gradient=stop_gradient).bind(dim=EMBEDDING)
    objective.predictor = predictor
    return objective


def test_simsiam_sends_no_gradient_through_the_target() -> None:
    first, second = normal(2, ROWS, EMBEDDING)
    one = first.clone().requires_grad_()
    (expected,) = torch.autograd.grad(-0.5 * torch.cosine_similarity(one, second).mean(), one)
    stopped = slopes(simsiam(nn.Identity()))
    open_ = slopes(simsiam(nn.Identity(), stop_gradient=False))
    torch.testing.assert_close(stopped[0], expected)
    torch.testing.assert_close(open_[0], 2 * expected)  # with the identity as predictor both paths are alike
    torch.testing.assert_close(open_[1], 2 * stopped[1])


def test_simsiam_with_a_blind_predictor_moves_only_by_its_targets() -> None:
    class Blind(nn.Module):
        def forward(self, embedding: Tensor) -> Tensor:
            return torch.ones_like(embedding) + 0 * embedding

    assert all(torch.equal(slope, torch.zeros_like(slope)) for slope in slopes(simsiam(Blind())))
    assert all(slope.abs().max() > 1e-3 for slope in slopes(simsiam(Blind(), stop_gradient=False)))


@pytest.mark.parametrize("head", ["default", "smooth"])
def test_simsiam_gradient_is_that_of_frozen_targets(head: str) -> None:
    member = next(m for m in OBJECTIVES if m.name == f"simsiam-augmented-stopped-{head}")
    objective, encoder, views = member.built(), smooth_encoder(), member.views()
    with torch.no_grad():
        targets = [encoder(view) for view in views.augmented]
    predicted = [objective.predictor(encoder(view)) for view in views.augmented]
    by_hand = -0.5 * sum(torch.cosine_similarity(predicted[i], targets[1 - i]).mean() for i in range(2))
    values = [*encoder.parameters(), *objective.predictor.parameters()]
    expected = torch.autograd.grad(by_hand, values)
    found = torch.autograd.grad(objective(encoder, views).total, values)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_norm", [True, False])
def test_bias_network(batch_norm: bool) -> None:
    network = seeded(0, lambda: BiasNetwork(batch_norm=batch_norm).bind(dim=6)).double()
    embedding = normal(7, 6)
    assert network.inner.out_features == 3
    hidden = embedding @ network.inner.weight.mT + network.inner.bias
    if batch_norm:
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    expected = hidden.clamp_min(0) @ network.outer.weight[0] + network.outer.bias
    torch.testing.assert_close(network(embedding), expected)
    assert network.eval()(embedding).shape == (7,)
    torch.testing.assert_close(network(embedding), expected)
    assert not list(network.buffers())
    assert BiasNetwork().bind(dim=1).inner.out_features == 2
    assert BiasNetwork(5).bind(dim=1).inner.out_features == 5


def test_terms_are_a_mapping_with_a_weighted_total() -> None:
    terms = Terms({"one": torch.tensor(2.0), "two": torch.tensor(3.0)}, {"two": 0.5})
    assert dict(terms) == {"one": torch.tensor(2.0), "two": torch.tensor(3.0)}
    assert list(terms) == ["one", "two"]
    assert len(terms) == 2
    assert terms.numbers() == {"loss": 3.5, "one": 2.0, "two": 3.0}
    assert terms.check_finite() == 3.5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_term_that_is_not_finite_is_named(value: float) -> None:
    terms = Terms({"sound": torch.tensor(2.0), "rotten": torch.tensor(value)}, {})
    with pytest.raises(NonFiniteLoss, match="rotten") as error:
        terms.check_finite()
    assert "sound" not in str(error.value)


def test_a_total_that_overflows_is_named() -> None:
    with pytest.raises(NonFiniteLoss, match="total"):
        Terms({"one": torch.tensor(3e38), "two": torch.tensor(3e38)}, {}).check_finite()


def test_needs() -> None:
    assert InfoNCE().needs == Needs(augmented=1)
    assert InfoNCE(pair="augmented").needs == Needs(augmented=2)
    assert InfoNCE(candidates="given").needs == Needs(augmented=1, negatives=True)
    assert InfoNCE(candidates="two-view", pair="augmented").needs == Needs(augmented=2)
    assert VAE().needs == Needs(augmented=1)
    assert VAE(decoder=nn.Identity()).bind(dim=3).needs == Needs(augmented=1, noise=3)
    assert Fisher().needs == Needs(augmented=1, score=True)
    assert SlicedFisher(slices=3).needs == Needs(augmented=1, score=True, directions=3)


# --- bad arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: InfoNCE(candidates="all"), id="candidates"),
        pytest.param(lambda: InfoNCE(anchor="both"), id="anchor"),
        pytest.param(lambda: InfoNCE(pair="both"), id="pair"),
        pytest.param(
            lambda: InfoNCE(Asymmetric(Euclidean(), network=nn.Identity()), candidates="two-view"), id="two sides"
        ),
        pytest.param(lambda: InfoNCE(Asymmetric(), candidates="originals"), id="two sides of originals"),
        pytest.param(lambda: InfoNCE(candidates="two-view", pair="both"), id="two views of a pair"),
        pytest.param(lambda: Triplet(margin=0.0), id="margin zero"),
        pytest.param(lambda: Triplet(margin=-1.0), id="margin negative"),
        pytest.param(lambda: Triplet(margin=math.nan), id="margin nan"),
        pytest.param(lambda: Triplet(margin=math.inf), id="margin infinite"),
        pytest.param(lambda: Spectral(squared_radius=0.0), id="radius zero"),
        pytest.param(lambda: Spectral(squared_radius=math.inf), id="radius infinite"),
        pytest.param(lambda: NCE(prior=0.0), id="prior zero"),
        pytest.param(lambda: NCE(prior=1.0), id="prior one"),
        pytest.param(lambda: NCE(prior=math.nan), id="prior nan"),
        pytest.param(lambda: SNL(pair="both"), id="snl pair"),
        pytest.param(lambda: SimSiam(pair="both"), id="simsiam pair"),
        pytest.param(lambda: SlicedFisher(slices=0), id="no slice"),
        pytest.param(lambda: SlicedFisher(step=0.0), id="no step"),
        pytest.param(lambda: Fisher(step=-1.0), id="negative step"),
        pytest.param(lambda: RenyiInfoNCE(order=0.0), id="order zero"),
        pytest.param(lambda: RenyiInfoNCE(order=math.inf), id="order infinite"),
        pytest.param(lambda: JensenShannon(pair="both"), id="jensen-shannon pair"),
        pytest.param(lambda: BarlowTwins(redundancy=0.0), id="no redundancy"),
        pytest.param(lambda: VICReg(invariance=-1.0), id="negative invariance"),
        pytest.param(lambda: VICReg(variance=math.inf), id="infinite variance"),
        pytest.param(lambda: VICReg(covariance=math.nan), id="covariance nan"),
        pytest.param(lambda: VICReg(epsilon=0.0), id="vicreg without epsilon"),
        pytest.param(lambda: WMSE(pair="both"), id="wmse pair"),
        pytest.param(lambda: CorInfoMax(invariance=0.0), id="corinfomax without invariance"),
        pytest.param(lambda: CorInfoMax(epsilon=0.0), id="corinfomax without epsilon"),
    ],
)
def test_bad_arguments(build) -> None:
    with pytest.raises(InputError) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("objective", "views"),
    [
        pytest.param(Fisher(), dataclasses.replace(SOME_VIEWS, score=None), id="no score"),
        pytest.param(SlicedFisher(), dataclasses.replace(SOME_VIEWS, score=None), id="no score for slices"),
        pytest.param(SlicedFisher(), SOME_VIEWS, id="no directions"),
        pytest.param(InfoNCE(candidates="given"), SOME_VIEWS, id="no negatives"),
        pytest.param(InfoNCE(), batch(normal(1, INPUT), normal(1, INPUT)), id="one row"),
        pytest.param(
            InfoNCE(pair="augmented"), batch(normal(4, INPUT), normal(4, INPUT)), id="one view where two are needed"
        ),
    ],
)
def test_batches_that_lack_something(objective: Objective, views: Views) -> None:
    with pytest.raises(InputError) as error:
        objective(smooth_encoder(), views)
    assert "\n" not in str(error.value)


def test_a_sum_at_hand_is_used_only_while_it_is_the_sum() -> None:
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    summed = Summed({"one": one, "two": two}, torch.tensor(3.5))  # 3.5 to tell it from the sum of the terms
    assert Terms(summed, {}).total == 3.5
    assert Terms(summed, {"two": 2.0}).total == 5.0
    assert Terms({**summed, "three": torch.tensor(3.0)}, {}).total == 6.0
    summed["two"] = torch.tensor(4.0)
    assert Terms(summed, {}).total == 5.0
