"""The likelihood of mixed rows: against scipy, sums over all rows, and exact marginals of a small discrete model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, logsumexp
from torch import Tensor, nn

from probssl.encoders import MLP, seeded
from probssl.errors import InputError
from probssl.layout import Column, Layout
from probssl.objectives import CRVAE, VAE, ColumnsLikelihood, GaussianLikelihood, GenerativeObjective, SimVAE
from probssl.pairings import Views
from tests.encoders.test_expansion import LAYOUT, NAN, mixed_rows
from tests.objectives.members import generator, normal

DISCRETE = Layout(
    "table",
    (3,),
    (
        Column("colour", "category", ("red", "green", "blue"), gaps=True),
        Column("kept", "yes/no", ("no", "yes")),
        Column("town", "category", tuple("ab"), gaps=True),
    ),
)


def bound(layout: Layout = LAYOUT, **settings: float) -> ColumnsLikelihood:
    made = ColumnsLikelihood(**settings).bind(shape=layout.shape, layout=layout).double()
    with torch.no_grad():
        made.log_variance.copy_(0.3 * normal(len(layout.numbers), 1, seed=3)[:, 0] - 1)
    return made


def slow(x: np.ndarray, parameters: np.ndarray, layout: Layout, log_variance: np.ndarray) -> tuple[float, float]:
    """log p of the values of one row, and of which of them are missing, column by column."""
    values, gaps, at = 0.0, 0.0, len(layout.numbers)
    for number, place in enumerate(layout.numbers):
        if not math.isnan(x[place]):
            values += stats.norm(parameters[number], math.exp(0.5 * log_variance[number])).logpdf(x[place])
    for place in layout.coded:
        size = len(layout.columns[place].levels)
        if not math.isnan(x[place]):
            values += log_softmax(parameters[at : at + size])[int(x[place])]
        at += size
    for place, column in enumerate(layout.columns):
        if column.gaps:
            chance = 1 / (1 + math.exp(-parameters[at]))
            gaps += math.log(chance if math.isnan(x[place]) else 1 - chance)
            at += 1
    assert at == len(parameters) == layout.width
    return values, gaps


def test_it_is_the_product_over_columns() -> None:
    x, parameters, likelihood = mixed_rows(30, gaps=0.4), normal(30, LAYOUT.width).double(), bound()
    variances = likelihood.log_variance.detach().numpy()
    wanted = np.array([slow(*row, LAYOUT, variances) for row in zip(x.numpy(), parameters.numpy(), strict=True)])
    values = likelihood.log_prob_of_values(x, parameters).detach().numpy()
    np.testing.assert_allclose(values, wanted[:, 0], rtol=1e-10)
    found = likelihood.log_prob(x, parameters).detach().numpy()
    np.testing.assert_allclose(found, wanted.sum(1), rtol=1e-10)


def test_what_is_missing_or_unknown_is_left_out_exactly() -> None:
    likelihood, parameters = bound(), normal(1, LAYOUT.width).double()
    row = torch.tensor([[1.0, 0.3, 1.0, -0.2, 4.0]], dtype=torch.float64)
    for place, strange in ((1, NAN), (2, NAN), (4, 9.0), (4, -1.0)):
        with_gap = row.clone()
        with_gap[0, place] = strange
        alone = Layout("table", (1,), (LAYOUT.columns[place],))
        own = {1: slice(0, 1), 2: slice(5, 7), 4: slice(7, 12)}[place]
        of_column = bound(alone)
        with torch.no_grad():
            of_column.log_variance.copy_(likelihood.log_variance[: len(alone.numbers)])
        part = of_column.log_prob_of_values(row[:, [place]], parameters[:, own])
        torch.testing.assert_close(
            likelihood.log_prob(with_gap, parameters), likelihood.log_prob(row, parameters) - part
        )


def test_gaps_have_no_slope() -> None:
    likelihood, parameters = bound(), normal(20, LAYOUT.width).double().requires_grad_()
    likelihood.log_prob_of_values(torch.full((20, 5), NAN).double(), parameters).sum().backward()
    assert parameters.grad is not None
    assert not parameters.grad.any()
    assert likelihood.log_variance.grad is not None
    assert not likelihood.log_variance.grad.any()


def test_chances_of_all_rows_sum_to_one() -> None:
    likelihood, parameters = bound(DISCRETE), normal(1, DISCRETE.width, seed=5).double()
    rows = every_row()
    chances = likelihood.log_prob(rows, parameters.expand(len(rows), -1)).exp()
    assert chances.sum().item() == pytest.approx(1, abs=1e-12)


def every_row() -> Tensor:
    outcomes = [[*range(len(column.levels)), *([NAN] if column.gaps else [])] for column in DISCRETE.columns]
    return torch.tensor(list(itertools.product(*outcomes)), dtype=torch.float64)


def test_samples_have_the_chances_of_the_law() -> None:
    likelihood, parameters = bound(DISCRETE), normal(1, DISCRETE.width, seed=5).double()
    rows, draws = every_row(), 40_000
    drawn = likelihood.sample(parameters.expand(draws, -1), generator()).nan_to_num(-1)
    shares = [(drawn == row.nan_to_num(-1)).all(1).double().mean().item() for row in rows]
    wanted = likelihood.log_prob(rows, parameters.expand(len(rows), -1)).exp().detach()
    np.testing.assert_allclose(shares, wanted.numpy(), atol=4 * 0.5 / draws**0.5)


def test_samples_of_numbers_have_their_moments_and_the_mean_has_no_gaps() -> None:
    likelihood, parameters = bound(), normal(1, LAYOUT.width, seed=6).double()
    drawn = likelihood.sample(parameters.expand(20_000, -1), generator())
    for number, place in enumerate(LAYOUT.numbers):
        seen = drawn[:, place][~drawn[:, place].isnan()]
        assert seen.mean().item() == pytest.approx(parameters[0, number].item(), abs=0.03)
        assert seen.var().item() == pytest.approx(likelihood.log_variance[number].exp().item(), rel=0.05)
    assert drawn[:, [1, 2, 4]].isfinite().all()
    mean = likelihood.mean(parameters)
    assert mean.isfinite().all()
    assert mean[0, LAYOUT.numbers].tolist() == parameters[0, :2].tolist()
    assert mean[0, 0] == parameters[0, 2:5].argmax()
    assert likelihood.sample_values(parameters.expand(200, -1), generator()).isfinite().all()


def test_columns_of_one_date_are_missing_together() -> None:
    date = [Column(name, part_of="day", gaps=True) for name in ("trend", "sine", "cosine")]
    layout = Layout("table", (4,), (Column("n"), *date))
    drawn = bound(layout).sample(torch.zeros(100, layout.width).double(), generator()).isnan()
    assert (drawn[:, 1:] == drawn[:, 1:2]).all()
    assert 20 < drawn[:, 1].sum() < 80
    assert not drawn[:, 0].any()


def test_numbers_alone_are_normal_with_a_variance_a_column() -> None:
    likelihood = ColumnsLikelihood(0.2).bind(shape=(4,)).double()
    x, parameters = normal(6, 4).double(), normal(6, 4, seed=1).double()
    torch.testing.assert_close(likelihood.log_prob(x, parameters), GaussianLikelihood(0.2).log_prob(x, parameters))
    with pytest.raises(InputError, match="for tables"):
        ColumnsLikelihood().bind(shape=(1, 4, 4))


def test_no_variance_vanishes() -> None:
    likelihood = ColumnsLikelihood(1e-9).bind(shape=(1,)).double()
    exact = likelihood.log_prob(torch.zeros(1, 1).double(), torch.zeros(1, 1).double()).item()
    assert exact == pytest.approx(stats.norm(0, 1e-3**0.5).logpdf(0))


# --- bounds -----------------------------------------------------------------------------------------------------------


def model(kind: str) -> tuple[GenerativeObjective, nn.Module]:
    """With one latent, so that an integral over it is exact."""
    made = {
        "vae": lambda: VAE(ColumnsLikelihood(), of="data"),
        "cr-vae": lambda: CRVAE(ColumnsLikelihood()),
        "simvae": lambda: SimVAE(ColumnsLikelihood(), related=1, variance=0.4, mean_variance=0.6),
    }[kind]()
    encoder = seeded(0, lambda: MLP((6,)).bind(shape=(3,), layout=DISCRETE, dim=1))
    objective = seeded(1, lambda: made.bind(shape=(3,), layout=DISCRETE, dim=1, encoder=encoder)).double()
    with torch.no_grad():
        for number, weight in enumerate(objective.parameters()):
            weight.add_(0.5 * normal(weight.numel(), 1, seed=10 + number).view(weight.shape))
        objective.log_variance[-1].bias.fill_(0.5)  # wider than any exact posterior: importance weights are bounded
        objective.log_variance[-1].weight.mul_(0.1)
        encoder[-1].weight.mul_(0.3)
    return objective, encoder.double()


def marginals(objective: GenerativeObjective, x: Tensor, values_alone: bool = False) -> np.ndarray:
    """log ∫ p(x | z) N(z; 0, 1) dz by quadrature."""
    z, weights = np.polynomial.hermite_e.hermegauss(200)
    parameters = objective.decoder(torch.from_numpy(z)[:, None])
    law = objective.likelihood.log_prob_of_values if values_alone else objective.likelihood.log_prob
    each = [law(row.expand(len(z), -1), parameters).detach().numpy() for row in x]
    return logsumexp(np.array(each), axis=1, b=weights / weights.sum())


@pytest.mark.parametrize("kind", ["vae", "cr-vae", "simvae"])
def test_bounds_meet_the_marginals_of_a_discrete_model(kind: str) -> None:
    objective, encoder = model(kind)
    x = every_row()
    exact = marginals(objective, x)
    assert np.exp(exact).sum() == pytest.approx(1, abs=1e-9)
    few, many = (objective.log_likelihood(encoder, x[None], samples, generator()).numpy() for samples in (1, 4_000))
    np.testing.assert_allclose(many, exact, atol=0.05)
    assert few.mean() < exact.mean()


def test_the_loss_is_no_less_than_the_exact_cost() -> None:
    objective, encoder = model("vae")
    x = every_row()
    repeated = x.repeat(2_000, 1)
    noise = normal(1, len(repeated), 1, seed=4).double()
    loss = objective(encoder, Views(repeated, [], noise=noise)).total.item()
    mean, log_variance = (part.detach() for part in objective.posterior(encoder, x))
    z, weights = np.polynomial.hermite_e.hermegauss(100)
    elbo = []
    for row, mu, log_v in zip(x, mean, log_variance, strict=True):
        at = mu + (0.5 * log_v).exp() * torch.from_numpy(z)[:, None]
        fit = objective.likelihood.log_prob(row.expand(len(z), -1), objective.decoder(at)).detach().numpy()
        kl = 0.5 * (mu.square() + log_v.exp() - 1 - log_v).item()
        elbo.append((fit * weights).sum() / weights.sum() - kl)
    assert loss == pytest.approx(-np.mean(elbo), abs=0.02)
    assert loss > -marginals(objective, x).mean()
