"""GEDI: its terms against theory, the gradient of its likelihood, the learnt prior, and what ablations leave open."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

from probssl.encoders import MLP, seeded
from probssl.errors import InputError
from probssl.objectives import EBCLR, GEDI, gedi_weights
from probssl.objectives.gedi import ABLATIONS
from probssl.pairings import GaussianNoise, Needs, Views
from probssl.samplers import SGLD, ReplayBuffer, UniformStart
from probssl.theory import clustering as theory
from probssl.training import TrainingPlan, fit
from tests.objectives.members import CLUSTERS, EMBEDDING, INPUT, generator, normal, smooth_encoder

START = UniformStart(torch.full((INPUT,), -2.0), torch.full((INPUT,), 2.0))


def views_of(rows: int = 12, seed: int = 0) -> Views:
    return GaussianNoise(0.3)(normal(rows, INPUT, seed=seed), Needs(), generator(seed + 1))


def gedi(**options: object) -> GEDI:
    return seeded(3, lambda: made(**options)).double()


def made(**options: object) -> GEDI:
    unbound = GEDI(CLUSTERS, chains=64, reinitialise=0.2, start=START, sampler=SGLD(steps=2), **options)  # type: ignore[arg-type]
    return unbound.bind(dim=EMBEDDING)


def test_clustering_terms_are_those_of_theory() -> None:
    objective, encoder, views = gedi(prior=[0.5, 0.3, 0.2]), smooth_encoder(), views_of()
    terms = objective(encoder, views)
    p, q = (objective.log_probabilities(encoder, x).exp().detach().numpy() for x in (views.x, views.augmented[0]))
    assert terms["invariance"].item() == pytest.approx(theory.invariance_term(p, q))
    assert terms["prior"].item() == pytest.approx(theory.prior_term(p, [0.5, 0.3, 0.2]))
    weighted = terms["generative"] + 50 * terms["invariance"] + 10 * terms["prior"]
    assert terms.total.item() == pytest.approx(weighted.item())


def test_two_augmentations_make_a_pair() -> None:
    views = GaussianNoise(0.3)(normal(12, INPUT), Needs(augmented=2), generator(1))
    objective, encoder = gedi(generative=0, pair="augmented"), smooth_encoder()
    p, q = (objective.log_probabilities(encoder, x).exp().detach().numpy() for x in views.augmented)
    terms = objective(encoder, views)
    both = theory.invariance_term(p, q) + theory.invariance_term(q, p)
    assert terms["invariance"].item() == pytest.approx(both / 2)
    assert terms["prior"].item() == pytest.approx(theory.prior_term(np.concatenate([p, q])))


def test_the_density_is_of_the_data_where_clusters_are_of_augmentations() -> None:
    views = GaussianNoise(0.3)(normal(12, INPUT), Needs(augmented=2), generator(1))
    encoder = smooth_encoder()
    found = {}
    for of in ("pair", "data"):
        objective = gedi(pair="augmented", density_of=of).eval()
        torch.manual_seed(0)  # the chains'
        found[of] = objective(encoder, views)
    mean = {of: objective.log_density(encoder, x).mean() for of, x in (("pair", views.augmented[0]), ("data", views.x))}
    gap = found["data"]["generative"] - found["pair"]["generative"]
    assert gap.item() == pytest.approx((mean["pair"] - mean["data"]).item())
    assert found["data"]["invariance"].item() == found["pair"]["invariance"].item()
    assert found["data"]["prior"].item() == found["pair"]["prior"].item()
    with pytest.raises(InputError, match="'pair' or of 'data'"):
        gedi(density_of="both")


def test_the_generative_gradient_is_that_of_the_likelihood() -> None:
    """On a line of 200 points Γ is a sum: −∇ mean log p(x) against the term with every point as a weighted sample."""
    line = torch.linspace(-3, 3, 200, dtype=torch.float64).unsqueeze(1)
    encoder = seeded(0, lambda: MLP.of([1, 8, EMBEDDING])).double()
    objective = seeded(1, lambda: GEDI(CLUSTERS, chains=64).bind(dim=EMBEDDING, shape=(1,))).double()
    x = line[torch.randint(200, (30,), generator=generator())]
    parameters = [*encoder.parameters(), objective.head.weight]
    log_p = objective.log_density(encoder, line)
    exact = torch.autograd.grad(log_p.logsumexp(0) - objective.log_density(encoder, x).mean(), parameters)
    shares = log_p.detach().softmax(0)
    by_samples = -objective.log_density(encoder, x).mean() + (shares * objective.log_density(encoder, line)).sum()
    for one, other in zip(exact, torch.autograd.grad(by_samples, parameters), strict=True):
        torch.testing.assert_close(one, other)


def test_the_generative_term_compares_data_with_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, encoder, views = gedi(magnitude=0.1), smooth_encoder(), views_of()
    samples = normal(12, INPUT, seed=5)
    monkeypatch.setattr(objective, "draw", lambda *_: samples)
    terms = objective(encoder, views)
    energies = [-objective.log_density(encoder, x) for x in (views.x, samples)]
    assert terms["generative"].item() == pytest.approx((energies[0].mean() - energies[1].mean()).item())
    squares = energies[0].square().mean() + energies[1].square().mean()
    assert terms["magnitude"].item() == pytest.approx(squares.item())
    assert objective.weights["magnitude"] == 0.1


def test_a_base_density_falls_faster_than_the_network_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, encoder, views = (
        gedi(base_scale=2.0),
        seeded(0, lambda: MLP.of([INPUT, 8, EMBEDDING])).double(),
        views_of(),
    )
    plain = gedi().log_density(encoder, views.x)
    torch.testing.assert_close(objective.log_density(encoder, views.x), plain - views.x.square().sum(1) / 8)
    samples = normal(12, INPUT, seed=5)
    monkeypatch.setattr(objective, "draw", lambda *_: samples)
    densities = [objective.log_density(encoder, x).mean().item() for x in (views.x, samples)]
    assert objective(encoder, views)["generative"].item() == pytest.approx(densities[1] - densities[0])
    assert objective.log_density(encoder, 1e4 * views.x).max().item() < -1e5
    with pytest.raises(InputError, match="base density must be positive"):
        gedi(base_scale=0.0)


def test_chains_move_while_training_and_rest_in_evaluation() -> None:
    objective, encoder, views = gedi(), smooth_encoder(), views_of()
    assert objective.buffer is not None
    before = objective.buffer.chains.clone()
    objective.eval()(encoder, views)
    assert torch.equal(objective.buffer.chains, before)
    objective.train()(encoder, views)
    assert int((objective.buffer.chains != before).any(1).sum()) == 12
    assert objective.draw(encoder, 7, generator()).shape == (7, INPUT)


@pytest.mark.parametrize("build", [GEDI, EBCLR], ids=["gedi", "ebclr"])
def test_chains_begin_where_observations_may_lie_and_are_at_least_a_batch(build: type) -> None:
    """N(0, 1) as standardised rows are, or the unit box, as pixels are."""
    shape, known = (1, 5, 4), {"dim": EMBEDDING}
    normal_ = seeded(0, lambda: build(chains=3000).bind(shape=shape, **known)).buffer.chains
    assert normal_.shape == (3000, *shape)
    assert normal_.mean().item() == pytest.approx(0, abs=0.03)
    assert normal_.std().item() == pytest.approx(1, abs=0.03)
    uniform = seeded(0, lambda: build(chains=3000, start="uniform").bind(shape=shape, **known)).buffer.chains
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() <= 1
    given = build(chains=10, start=START).bind(batch_size=25, **known).buffer
    assert given.chains.shape == (25, INPUT)
    assert build(chains=40, start=START).bind(batch_size=25, **known).buffer.chains.shape == (40, INPUT)


@pytest.mark.parametrize("variant", ABLATIONS)
def test_ablations_have_their_terms_and_leave_open_what_theory_says(variant: str) -> None:
    objective = gedi(**gedi_weights(variant))
    terms = objective(smooth_encoder(), views_of())
    names = {"generative", "invariance", "prior"}
    assert set(terms) == {"prior" if name == "balance" else name for name in ABLATIONS[variant]} <= names
    expected = {
        "gedi": set(),
        "jem": {"cluster", "label"},
        "no prior": {"cluster"},
        "no inv": {"label"},
        "no gen": set(),
    }
    assert set(theory.open_failure_modes(terms)) == expected[variant]
    assert (objective.buffer is None) == (variant == "no gen")


def test_the_least_of_the_clustering_terms() -> None:
    objective = gedi(generative=0)
    assert objective.optimum(10, EMBEDDING) == pytest.approx(theory.clustering_minimum(CLUSTERS, 50, 10))
    assert gedi().optimum(10, EMBEDDING) is None
    uneven = gedi(generative=0, prior=[0.5, 0.25, 0.25])
    assert uneven.optimum(10, EMBEDDING) == pytest.approx(10 * theory.prior_minimum([0.5, 0.25, 0.25]))


# --- a prior that is learnt -------------------------------------------------------------------------------------------


def _log_rows(shares: list[float], seed: int = 0) -> Tensor:
    """Predictions whose mean is `shares`."""
    return torch.tensor([shares, shares], dtype=torch.float64).log()


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [1 / 3] * 3, [0.98, 0.01, 0.01]])
@pytest.mark.parametrize("price", [1.2, 2.0, 10.0])
def test_a_learnt_prior_minimises_cross_entropy_less_its_own_entropy(shares: list[float], price: float) -> None:
    objective = gedi(generative=0, prior="learnt", prior_price=price)

    def value(raw: np.ndarray) -> float:
        prior = np.exp(raw - raw.max()) / np.exp(raw - raw.max()).sum()
        entropy = -np.sum(prior * np.log(prior))
        return float(-np.sum(prior * np.log(shares)) - price * entropy)

    least = min(optimize.minimize(value, start, tol=1e-12).fun for start in (np.zeros(3), np.log(shares)))
    assert objective.prior_term(_log_rows(shares)).item() == pytest.approx(least, abs=1e-7)
    assert objective.prior_term(_log_rows(shares)).item() >= -(price - 1) * math.log(3) - 1e-12


def test_a_learnt_prior_prefers_balance_and_bounds_the_cost_of_empty_clusters() -> None:
    objective = gedi(generative=0, prior="learnt")
    even, odd, one = ([1 / 3] * 3, [0.6, 0.2, 0.2], [1 - 2e-12, 1e-12, 1e-12])
    values = [objective.prior_term(_log_rows(shares)).item() for shares in (even, odd, one)]
    assert values[0] < values[1] < values[2] <= 0
    fixed = gedi(generative=0)
    assert fixed.prior_term(_log_rows(one)).item() > 15


def test_the_learnt_prior_is_read_from_the_running_mean() -> None:
    objective, encoder = gedi(generative=0, prior="learnt"), smooth_encoder()
    objective.train()
    for _ in range(500):
        objective(encoder, views_of(200))
    shares = objective.log_probabilities(encoder, views_of(200).x).exp().mean(0)
    expected = shares.sqrt() / shares.sqrt().sum()
    torch.testing.assert_close(objective.cluster_prior, expected.detach(), rtol=0.02, atol=0)
    objective.eval()
    before = objective.mean_prediction.clone()
    objective(encoder, views_of())
    assert torch.equal(objective.mean_prediction, before)
    torch.testing.assert_close(gedi().cluster_prior, torch.full((3,), 1 / 3).double())


# --- training ---------------------------------------------------------------------------------------------------------


def _trained(folder: object, steps: int, resume: bool, whole: int = 12) -> tuple[nn.Module, GEDI]:
    import threading

    encoder = seeded(0, lambda: MLP.of([INPUT, 8, EMBEDDING]))
    objective = seeded(1, lambda: made(prior="learnt"))
    stop = threading.Event()
    data = normal(40, INPUT).float()

    class Ends(GaussianNoise):
        calls = 0

        def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
            Ends.calls += 1
            if Ends.calls == steps:
                stop.set()
            return super().sample(x, generator)

    plan = TrainingPlan(steps=whole, batch_size=10, lr=0.01, checkpoint_every=4)
    fit(encoder, objective, Ends(0.3), data, plan, seed=5, out=folder, resume=resume, stop=stop)  # type: ignore[arg-type]
    return encoder, objective


def test_an_interrupted_training_goes_on_with_the_very_same_chains(tmp_path: object) -> None:
    whole = _trained(None, 99, False)
    _trained(tmp_path, 6, False)
    resumed = _trained(tmp_path, 99, True)
    for of_whole, of_resumed in zip(whole, resumed, strict=True):
        states = of_whole.state_dict(), of_resumed.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert resumed[1].buffer is not None
    assert int(resumed[1].buffer.ages.max()) >= 4


# --- EBCLR ------------------------------------------------------------------------------------------------------------


def test_ebclr_is_infonce_with_a_density(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = EBCLR(chains=64, sampler=SGLD(steps=2), temperature=0.5).bind(shape=(INPUT,)).double()
    encoder, views = smooth_encoder(), views_of()
    samples = normal(12, INPUT, seed=5)
    monkeypatch.setattr(ReplayBuffer, "advance", lambda *_, **__: samples)
    terms = objective(encoder, views)
    z, other, drawn = (encoder(x) for x in (views.x, views.augmented[0], samples))
    logits = -(z.unsqueeze(1) - other).square().sum(-1) / 0.5
    infonce = nn.functional.cross_entropy(logits, torch.arange(12))
    assert (terms["alignment"] + terms["log_normaliser"]).item() == pytest.approx(infonce.item())
    densities = [objective.log_density(encoder, x, other).mean() for x in (views.x, samples)]
    assert terms["generative"].item() == pytest.approx((densities[1] - densities[0]).item())
    assert drawn.shape == z.shape


def test_ebclr_trains() -> None:
    encoder = seeded(0, lambda: MLP.of([INPUT, 8, EMBEDDING]))
    plan = TrainingPlan(steps=20, batch_size=10, lr=0.01)
    objective = EBCLR(chains=64, reinitialise=0.2, start=START, sampler=SGLD(steps=2)).bind()
    fitted = fit(encoder, objective, GaussianNoise(0.3), normal(40, INPUT).float(), plan)
    assert fitted.failure is None
    assert {"alignment", "log_normaliser", "generative"} <= fitted.history[-1].keys()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"prior": "flat"}, "'uniform', 'learnt' or a distribution, not 'flat'"),
        ({"prior_price": 1.0}, "above 1"),
        ({"generative": -1.0}, "weight of generative must be finite and ≥ 0"),
        ({"generative": 0, "invariance": 0, "balance": 0}, "a term with a weight above 0"),
        ({"generative": 0, "magnitude": 1.0}, "only bounds the generative term"),
    ],
)
def test_refusals(options: dict[str, object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        gedi(**options)
    with pytest.raises(InputError, match="cannot be bound without shape"):
        GEDI(2).bind(dim=2)
    with pytest.raises(InputError, match="no chains to sample"):
        gedi(generative=0).draw(smooth_encoder(), 3)
    with pytest.raises(InputError, match="variants of GEDI are"):
        gedi_weights("no fun")
