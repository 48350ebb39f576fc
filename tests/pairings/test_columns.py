"""The pairing of mixed rows: its law spelled out with loops, its sums and integrals, its posterior, its stacks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import probssl
from probssl.encoders import MLP, Expansion, seeded
from probssl.errors import InputError
from probssl.layout import Column, Layout
from probssl.metrics.deaugment import deaugmentation
from probssl.model import Model
from probssl.objectives import Fisher, InfoNCE
from probssl.objectives.reference import FlatEnergy, PosteriorEnergy, reference_losses
from probssl.pairings import Needs, ResampledColumns
from probssl.pairings.columns import ATOMS
from probssl.parts.recipe import Recipe
from probssl.training.loop import fit
from probssl.training.plan import TrainingPlan
from probssl.training.stacked import Trial, fit_many
from probssl.training.stacked.many import stack_key
from probssl.training.stacked.stack import stacked_pairing
from tests.objectives.members import generator
from tests.objectives.references import mean

GAP = math.nan
LEVELS = ("red", "green", "blue", "never")
LAYOUT = Layout(
    "table",
    (6,),
    (
        Column("size", gaps=True),
        Column("colour", "category", LEVELS, gaps=True),
        Column("day", part_of="date", gaps=True),
        Column("month", "category", ("May", "June"), part_of="date", gaps=True),
        Column("weight"),
        Column("sold", "category", ("no", "yes")),
    ),
)
ROWS = torch.tensor(
    [
        [0.3, 0, -1.0, 0, 0.2, 1],
        [GAP, 1, 0.4, 1, -0.7, 0],
        [-1.2, 1, GAP, GAP, 0.9, 1],
        [0.8, GAP, 1.3, 0, -0.1, 1],
        [GAP, 2, 0.5, 1, 0.2, 0],
        [0.3, 1, GAP, 1, 1.6, 1],
        [1.1, 0, -0.2, GAP, -1.3, 1],
    ],
    dtype=torch.float64,
)
SETTINGS: dict[str, dict[str, Any]] = {
    "marginals": {},
    "masks": {"masked": 0.3},
    "masks alone": {"masked": 1.0, "noise": 0.4},
    "everything replaced": {"preservation": 0.0, "masked": 0.1},
    "everything kept": {"preservation": 1.0},
    "per column": {
        "preservation": [0.9, 0.3, 0.5, 0.5, 0.0, 1.0],
        "noise": [0.1, 9.0, 0.5, 9.0, 0.3, 0.0],
        "masked": [0.0, 0.2, 0.4, 0.4, 1.0, 0.0],
    },
    "without noise": {"noise": 0.0, "masked": 0.2},
    "noise in some": {"noise": [0.2, 0.0, 0.0, 0.0, 0.3, 0.0]},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))


def made(**settings: Any) -> ResampledColumns:
    return ResampledColumns(**{"noise": 0.25, **settings}).bind(sample=ROWS, layout=LAYOUT)


def slow_factor(settings: dict[str, Any], places: tuple[int, ...], x_aug: Tensor, x: Tensor) -> float:
    """The factor of p(x̃ | x) of columns that go together: as few rows as there are here are all of them atoms."""

    def of(name: str, usual: float, place: int) -> float:
        value = settings.get(name, usual)
        return value[place] if isinstance(value, list) else value

    def kernel(to: Tensor, near: Tensor) -> float:
        product = 1.0
        for place in places:
            a, b, noise = to[place].item(), near[place].item(), of("noise", 0.25, place)
            if math.isnan(a) or math.isnan(b) or place in LAYOUT.coded or not noise:
                product *= a == b or (math.isnan(a) and math.isnan(b))
            else:
                product *= math.exp(-((a - b) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
        return product

    keep, masked = of("preservation", 0.5, places[0]), of("masked", 0.0, places[0])
    marginal = mean([kernel(x_aug, row) for row in replacements(places)])
    gap = all(math.isnan(x_aug[place].item()) for place in places)
    return keep * kernel(x_aug, x) + (1 - keep) * ((1 - masked) * marginal + masked * gap)


def slow_log_prob(settings: dict[str, Any], x_aug: Tensor, x: Tensor) -> float:
    factors = [slow_factor(settings, places, x_aug, x) for places in LAYOUT.groups]
    return sum(math.log(factor) if factor else -math.inf for factor in factors)


def replacements(places: tuple[int, ...]) -> Iterator[Tensor]:
    """Rows at equal weights; of a number alone, quantiles of what is observed in place of it."""
    if len(places) > 1 or places[0] in LAYOUT.coded:
        yield from ROWS
        return
    column = ROWS[:, places[0]]
    values, gaps = column[~column.isnan()].sort().values, int(column.isnan().sum())
    count = len(ROWS)
    atoms = [values[math.floor((number + 0.5) / count * len(values))] for number in range(count)]
    for value in [*atoms * len(values), *[torch.tensor(GAP)] * (gaps * count)]:
        row = ROWS[0].clone()
        row[places[0]] = value
        yield row


# --- the law ----------------------------------------------------------------------------------------------------------


@every_setting
def test_the_law_is_the_one_spelled_out(settings: dict[str, Any]) -> None:
    pairing = made(**settings)
    x_aug = pairing.sample(ROWS.repeat(2, 1), generator(2))
    slow = torch.tensor([[slow_log_prob(settings, a, b) for b in ROWS] for a in x_aug], dtype=torch.float64)
    torch.testing.assert_close(pairing.pairwise_log_prob(x_aug, ROWS), slow, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(pairing.pairwise_log_prob(x_aug, ROWS, block=1), slow, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(pairing.log_prob(x_aug.unsqueeze(1), ROWS), slow, rtol=1e-11, atol=1e-11)
    single = pairing.pairwise_log_prob(x_aug.float(), ROWS.float())
    torch.testing.assert_close(single.double(), slow, rtol=1e-4, atol=1e-4)
    assert slow.diagonal().isfinite().all(), "what is drawn of a row can come of it"


@pytest.mark.parametrize("settings", [{}, {"masked": 0.3}, {"preservation": 0.1}], ids=["usual", "masks", "replaced"])
@pytest.mark.parametrize("row", range(3))
def test_probability_sums_to_one(settings: dict[str, Any], row: int) -> None:
    """Numbers are integrated over, levels and gaps are counted; the columns of a date are taken together."""
    pairing, x = made(**settings), ROWS[row]
    grid, gap = torch.linspace(-6, 6, 1201, dtype=torch.float64), torch.tensor([GAP], dtype=torch.float64)
    for places in LAYOUT.groups:
        others = math.prod(slow_factor(settings, other, x, x) for other in LAYOUT.groups if other != places)
        numbers = [place for place in places if place not in LAYOUT.coded]
        coded = [place for place in places if place in LAYOUT.coded]
        total = 0.0
        for codes in itertools.product(*([GAP, *range(len(LAYOUT.columns[place].levels))] for place in coded)):
            for values in (grid, gap) if numbers else (gap,):
                x_aug = x.repeat(len(values), 1)
                x_aug[:, coded] = torch.tensor(codes, dtype=torch.float64)
                x_aug[:, numbers] = values[:, None]
                density = pairing.log_prob(x_aug, x).exp().numpy() / others
                total += integrate.simpson(density, x=grid.numpy()) if len(values) > 1 else density[0]
        assert total == pytest.approx(1, abs=1e-9), places


@pytest.mark.parametrize(
    "settings", [{}, {"masked": 0.3}, SETTINGS["per column"]], ids=["usual", "masks", "per column"]
)
def test_the_score_is_the_slope_in_numbers(settings: dict[str, Any]) -> None:
    pairing = made(**settings)
    x, x_aug = ROWS.repeat(8, 1), pairing.sample(ROWS.repeat(8, 1), generator(3))
    moved = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(pairing.log_prob(x_aug, moved).sum(), moved)
    score = pairing.score(x_aug, x)
    assert score.isfinite().all()
    assert score[:, LAYOUT.numbers].abs().max() > 1
    assert (score[:, LAYOUT.coded] == 0).all()
    assert (score[x.isnan() | x_aug.isnan()] == 0).all()
    torch.testing.assert_close(score[:, LAYOUT.numbers], slope[:, LAYOUT.numbers], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(pairing.score(x_aug.float(), x.float()).double(), score, rtol=1e-3, atol=1e-4)


def test_several_views_have_the_scores_of_each() -> None:
    pairing = made()
    views = pairing(ROWS, Needs(augmented=2, score=True), generator(1))
    assert views.score is not None
    for view, score in zip(views.augmented, views.score, strict=True):
        torch.testing.assert_close(score, pairing.score(view, ROWS))


# --- draws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize(
    "settings", [{}, {"masked": 0.3}, SETTINGS["per column"]], ids=["usual", "masks", "per column"]
)
def test_draws_are_those_of_the_law(settings: dict[str, Any], row: int) -> None:
    """Levels and gaps at their frequencies, the columns of a date together; numbers by their distribution function."""
    count, pairing = 20_000, made(**settings)
    x = ROWS[row].expand(count, 6)
    drawn = pairing.sample(x, generator(5))
    for places in LAYOUT.groups:
        coded = [place for place in places if place in LAYOUT.coded]
        numbers = [place for place in places if place not in LAYOUT.coded]
        for codes in itertools.product(*([-1, *range(len(LAYOUT.columns[place].levels))] for place in coded)):
            there = (drawn[:, coded].nan_to_num(-1) == torch.tensor(codes)).all(1)
            cases = (there & drawn[:, numbers].isnan().all(1), there & ~drawn[:, numbers].isnan().any(1))
            for gap, case in zip((True, False), cases, strict=True):
                if not numbers and not gap:
                    continue
                chance = _chance(settings, ROWS[row], places, codes, gap)
                share = case.double().mean().item()
                assert abs(share - chance) <= 4.5 * math.sqrt(chance * abs(1 - chance) / count) + 1e-9, (
                    places,
                    codes,
                    gap,
                )
    seen, place = drawn[~drawn[:, 4].isnan(), 4].numpy(), (4,)
    if len(seen):
        at, grid, densities = ROWS[row].clone(), np.linspace(-6, 6, 601), []
        for value in grid:
            at[4] = value
            densities.append(slow_factor(settings, place, at, ROWS[row]))
        below = integrate.cumulative_trapezoid(densities, grid, initial=0)
        assert stats.kstest(seen, lambda values: np.interp(values, grid, below / below[-1])).pvalue > 1e-3


def _chance(settings: dict[str, Any], x: Tensor, places: tuple[int, ...], codes: tuple[int, ...], gap: bool) -> float:
    """The probability of levels (−1 for a gap) and of a gap or any value in the numbers of a group."""
    values = dict(zip((place for place in places if place in LAYOUT.coded), codes, strict=True))
    x_aug = x.clone()
    for place, code in values.items():
        x_aug[place] = GAP if code < 0 else code
    numbers = [place for place in places if place not in LAYOUT.coded]
    x_aug[numbers] = GAP
    if gap:
        return slow_factor(settings, places, x_aug, x)
    grid, densities = np.linspace(-6, 6, 241), []
    for value in grid:
        x_aug[numbers] = value
        densities.append(slow_factor(settings, places, x_aug, x))
    return float(integrate.simpson(densities, x=grid))


def test_a_level_that_never_occurs_is_never_drawn() -> None:
    pairing = ResampledColumns(0.0).bind(sample=ROWS, layout=LAYOUT)
    drawn = pairing.combine(ROWS[:1], [torch.zeros(1, 6), torch.full((1, 6), 1 - 2**-24)])
    assert drawn[0, 1] == 2, "the last level that occurs, whatever rounding does"
    assert pairing.float().combine(ROWS[:1].float(), [torch.zeros(1, 6), torch.full((1, 6), 1 - 2**-24)])[0, 1] == 2


def test_plain_numbers_need_no_layout() -> None:
    x = torch.randn(400, 3, generator=generator(), dtype=torch.float64)
    named = Layout("table", (3,), tuple(Column(name) for name in "abc"))
    one, other = (ResampledColumns().bind(sample=x, layout=layout) for layout in (None, named))
    found = one.sample(x, generator(1))
    assert torch.equal(found, other.sample(x, generator(1)))
    assert len(one.atoms) == ATOMS
    quantiles = x.sort(0).values[[math.floor((number + 0.5) / ATOMS * 400) for number in range(ATOMS)]]
    assert torch.equal(one.atoms, quantiles)
    assert found.isfinite().all()


def test_gaps_are_made_where_there_were_none() -> None:
    x = torch.randn(2000, 2, generator=generator())
    for masked in (0.0, 0.4, [0.0, 0.4]):
        pairing = ResampledColumns(0.3, masked=masked).bind(sample=x)
        gaps = pairing.sample(x, generator(1)).isnan().double().mean(0)
        expected = 0.7 * torch.tensor(masked).expand(2)
        torch.testing.assert_close(gaps, expected.double(), atol=0.05, rtol=0)
        assert pairing.masks == bool(expected.any())


def test_without_noise_values_are_those_of_rows() -> None:
    x = torch.randn(60, 3, generator=generator())
    pairing = ResampledColumns(0.4, 0.0).bind(sample=x)
    found = pairing.sample(x, generator(1))
    assert all(set(found[:, k].tolist()) <= set(x[:, k].tolist()) for k in range(3))
    assert (found == x).double().mean() == pytest.approx(0.4 + 0.6 / 60, abs=0.08)
    assert torch.equal(ResampledColumns(1.0, 0.0).bind(sample=x).sample(x, generator(1)), x)


# --- the posterior, the least possible loss, and what a mass function cannot give -------------------------------------


def categories() -> tuple[Layout, Tensor]:
    """A table of three categories, all of whose x̃ can be counted."""
    columns = (Column("a", "category", ("x", "y", "z"), gaps=True), *(Column(n, "category", ("p", "q")) for n in "bc"))
    rows = torch.tensor([[0, 0, 1], [1, 0, 0], [GAP, 1, 1], [2, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=torch.float64)
    return Layout("table", (3,), columns), rows


def test_posterior_and_least_loss_are_those_of_counting() -> None:
    """E[−log p(source | x̃)] over all x̃ that there are, beside the metric's estimate and the least InfoNCE loss."""
    layout, rows = categories()
    pairing = ResampledColumns(0.6, masked=0.2).bind(sample=rows, layout=layout)
    everything = torch.tensor(list(itertools.product([GAP, 0, 1, 2], [GAP, 0, 1], [GAP, 0, 1])), dtype=torch.float64)
    likelihood = pairing.pairwise_log_prob(everything, rows).exp()  # [x̃, x]
    torch.testing.assert_close(likelihood.sum(0), torch.ones(6, dtype=torch.float64))
    exact = -(likelihood * (likelihood / likelihood.sum(1, keepdim=True)).log()).nansum().item() / 6

    source = torch.arange(6).repeat(500)
    x_aug = pairing.sample(rows[source], generator(1))
    logits = pairing.pairwise_log_prob(x_aug, rows).numpy()
    found = deaugmentation(np.zeros_like(logits), logits, source.numpy())
    assert abs(found.exact_nll - exact) < 4.5 * found.exact_nll_se

    encoder = seeded(0, lambda: nn.Sequential(Blind(), nn.Linear(3, 2))).double()
    losses = reference_losses(encoder, InfoNCE(), pairing, rows, batch_size=6, batches=300)
    assert losses.optimum is not None
    assert losses.constant is not None
    assert abs(losses.optimum.mean - exact) < 4.5 * losses.optimum.error
    assert losses.constant.mean == pytest.approx(math.log(6))


def test_the_posterior_of_mixed_rows_by_integration() -> None:
    """E[−log p(source | x̃)] of a number with gaps beside a category, its integral by Simpson's rule."""
    layout = Layout("table", (2,), LAYOUT.columns[:2])
    rows = ROWS[:, :2]
    pairing = ResampledColumns(0.6, 0.3, 0.1).bind(sample=rows, layout=layout)
    grid, exact = torch.linspace(-5, 5, 1001, dtype=torch.float64), 0.0
    for code in (GAP, 0, 1, 2, 3):
        for values in (grid, torch.tensor([GAP], dtype=torch.float64)):
            x_aug = torch.stack([values, torch.full_like(values, code)], 1)
            likelihood = pairing.pairwise_log_prob(x_aug, rows).exp()
            each = -torch.special.xlogy(likelihood, likelihood / likelihood.sum(1, keepdim=True)).nansum(1).numpy() / 7
            exact += integrate.simpson(each, x=grid.numpy()) if len(values) > 1 else each[0]
    source = torch.arange(7).repeat(600)
    logits = pairing.pairwise_log_prob(pairing.sample(rows[source], generator(1)), rows).numpy()
    found = deaugmentation(logits, logits, source.numpy())
    assert abs(found.exact_nll - exact) < 4.5 * found.exact_nll_se
    assert found.nll == found.exact_nll


def test_least_losses_of_mixed_rows() -> None:
    pairing = made(masked=0.1)
    encoder = seeded(0, lambda: nn.Sequential(Blind(), nn.Linear(6, 2))).double()
    rows = ROWS.repeat(3, 1)
    found = reference_losses(encoder, InfoNCE(), pairing, rows, batch_size=16, batches=4)
    assert found.optimum is not None
    assert found.optimum.mean < found.model.mean
    fisher = reference_losses(encoder, Fisher(), pairing, rows, batch_size=16, batches=4)
    assert fisher.optimum is not None
    assert fisher.constant is not None
    assert fisher.optimum.mean == pytest.approx(0, abs=1e-18)
    assert fisher.constant.mean > 1
    views = pairing(rows, InfoNCE().needs, generator(1))
    at_truth = InfoNCE(PosteriorEnergy(pairing))(encoder, views).total
    slow = [[slow_log_prob({"masked": 0.1}, a, b) for b in rows] for a in views.augmented[0]]
    expected = -torch.tensor(slow, dtype=torch.float64).log_softmax(1).diagonal().mean()
    torch.testing.assert_close(at_truth, expected)
    assert InfoNCE(FlatEnergy())(encoder, views).total.item() == pytest.approx(math.log(len(rows)))


class _Shifted(PosteriorEnergy):
    """−log p(x̃ | x) plus something of a column of x and of x̃."""

    def __init__(self, pairing: ResampledColumns, place: int) -> None:
        super().__init__(pairing)
        self.place = place

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        value = a[:, self.place].nan_to_num(-2)
        value = value.round() if self.place in LAYOUT.coded else value  # indicators of levels have no slope
        return super().paired(a, b) + 3 * value**2 + b.nan_to_num().sum(1)


def test_fisher_of_mixed_rows_is_blind_to_categories() -> None:
    pairing = made()
    views = pairing(ROWS, Fisher().needs, generator(1))
    losses = [Fisher(_Shifted(pairing, place))(nn.Identity(), views).total.item() for place in (0, 1, 3, 5)]
    assert losses[0] > 1, "a number"
    assert losses[1:] == pytest.approx([0, 0, 0], abs=1e-18)


def test_differences_of_levels_are_ratios_of_factors() -> None:
    """What takes the place of a slope: log (ρ [x̃ = l] + R) − log (ρ [x̃ = x] + R), whatever the other columns are."""
    layout, rows = categories()
    pairing = ResampledColumns(0.6, masked=0.2).bind(sample=rows, layout=layout)
    x_aug = torch.tensor(list(itertools.product([GAP, 0, 1, 2], [GAP, 0, 1], [GAP, 0, 1])), dtype=torch.float64)
    codes, drawn = rows.nan_to_num(-1), x_aug.nan_to_num(-1)
    for place, x in itertools.product(range(3), range(len(rows))):
        share = (drawn[:, place, None] == codes[:, place]).double().mean(1)
        replaced = 0.4 * (0.8 * share + 0.2 * x_aug[:, place].isnan())
        for level in range(len(layout.columns[place].levels)):
            changed = rows[x].clone()
            changed[place] = level
            found = pairing.log_prob(x_aug, changed) - pairing.log_prob(x_aug, rows[x])
            after, before = (0.6 * (drawn[:, place] == code) + replaced for code in (level, codes[x, place]))
            possible = before > 0  # no row has a gap in the others
            torch.testing.assert_close(found[possible], (after.log() - before.log())[possible])


@pytest.mark.parametrize(
    ("settings", "layout"),
    [({"noise": 0.0}, LAYOUT), (SETTINGS["noise in some"], LAYOUT), ({}, categories()[0])],
    ids=["no noise", "noise in some", "no numbers"],
)
def test_a_mass_function_has_no_score(settings: dict[str, Any], layout: Layout) -> None:
    rows = ROWS if layout is LAYOUT else categories()[1]
    pairing = ResampledColumns(**settings).bind(sample=rows, layout=layout)
    assert pairing.knows_density
    assert not pairing.knows_score
    with pytest.raises(InputError, match="has a score only with noise in every number") as error:
        pairing(rows, Fisher().needs, generator())
    assert "\n" not in str(error.value)


def test_without_noise_a_number_gives_its_row_away() -> None:
    """Probabilities of what can be drawn add up to one, and the source of nearly every query is certain."""
    x = torch.randn(7, 1, generator=generator(), dtype=torch.float64)
    pairing = ResampledColumns(0.6, 0.0).bind(sample=x)
    other = torch.tensor([[0.123]], dtype=torch.float64)
    assert pairing.pairwise_log_prob(torch.cat([x, other]), other).exp().sum().item() == pytest.approx(1)
    rows = torch.randn(200, 5, generator=generator(1), dtype=torch.float64)
    pairing = ResampledColumns(0.6, 0.0).bind(sample=rows)
    drawn = pairing.sample(rows, generator(2))
    gives_away = (drawn == rows).any(1)
    assert (pairing.pairwise_log_prob(drawn, rows).softmax(1).diagonal()[gives_away] > 0.5).double().mean() > 0.95


# --- stacks -----------------------------------------------------------------------------------------------------------


class Blind(Expansion):
    """Gaps as zeros."""

    def stack_key(self) -> Hashable:
        return Blind

    def forward(self, x: Tensor) -> Tensor:
        return x.nan_to_num()


@pytest.mark.parametrize("layout", [LAYOUT, None], ids=["mixed", "plain"])
def test_stacked_is_alone(layout: Layout | None) -> None:
    """Pairings of a stack draw and score as each does by itself, to the last bit; so trainings come out alike."""
    rows = ROWS.nan_to_num() if layout is None else ROWS
    strengths = [{}, {"preservation": 0.2, "noise": 0.5}, {"masked": 0.4}, SETTINGS["per column"]]
    strengths = [{**own, "noise": 0.3} for own in strengths]
    pairings = [ResampledColumns(**own).bind(sample=rows + 0.1 * k, layout=layout) for k, own in enumerate(strengths)]
    stacked = stacked_pairing(pairings)
    assert stacked is not None
    x = rows.repeat(4, 1, 1).float()
    draws = [torch.empty_like(x) for _ in range(2)]
    stacked.fill(draws, generator(3))
    found = stacked.combine(x, draws)
    for number, pairing in enumerate(pairings):
        own = pairing.combine(x[number], [draw[number] for draw in draws])
        assert torch.equal(own.nan_to_num(9), found[number].nan_to_num(9))
    score = stacked.score(found, x)
    for number, pairing in enumerate(pairings):
        torch.testing.assert_close(score[number], pairing.score(found[number], x[number]))


def test_trainings_stack() -> None:
    data = ROWS.repeat(6, 1)
    plan = TrainingPlan(steps=12, batch_size=16, log_every=4)

    def trials() -> list[Trial]:
        strengths = [{}, {"preservation": 0.2, "noise": 0.5}, {"masked": 0.4}]
        objectives = (InfoNCE("euclidean"), Fisher(), InfoNCE("cosine", pair="augmented"))
        return [
            Trial(
                seeded(number, lambda: nn.Sequential(Blind(), MLP.of([6, 8, 3]))).double(),
                objective.bind(dim=3),
                made(**own),
                data,
                plan,
                number,
            )
            for number, (own, objective) in enumerate(itertools.product(strengths, objectives))
        ]

    together, apart = trials(), trials()
    assert len({stack_key(trial)[0] for trial in together}) == 2, "but for those with two relatives"
    found = fit_many(together)
    for one, other, fitted in zip(together, apart, found, strict=True):
        expected = fit(other.encoder, other.objective, other.pairing, other.data, other.plan, seed=other.seed)
        assert fitted.steps == expected.steps == 12
        for ours, theirs in zip(one.encoder.parameters(), other.encoder.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_pairings_of_other_columns_do_not_stack() -> None:
    kinds = dataclasses.replace(LAYOUT, columns=(*LAYOUT.columns[:4], Column("weight"), Column("sold")))
    others = [
        ResampledColumns().bind(sample=ROWS, layout=kinds),
        ResampledColumns().bind(sample=ROWS[:5], layout=LAYOUT),
        ResampledColumns(),
    ]
    assert len({pairing.stack_key() for pairing in [made(), made(preservation=0.1), *others]}) == 4
    assert stacked_pairing([made(), others[0]]) is None


# --- what is kept, and refusals ---------------------------------------------------------------------------------------


def test_a_pairing_without_rows_takes_those_of_a_file() -> None:
    saved = ResampledColumns(noise=0.25, masked=0.3).bind(sample=ROWS.float(), layout=LAYOUT)
    loaded = ResampledColumns(noise=0.25, masked=0.3).bind(shape=(6,), rows=len(ROWS), layout=LAYOUT)
    loaded.load_state_dict(saved.state_dict())
    x_aug = saved.sample(ROWS, generator(1))
    assert torch.equal(loaded.sample(ROWS, generator(1)).nan_to_num(9), x_aug.nan_to_num(9))
    assert torch.equal(loaded.log_prob(x_aug, ROWS), saved.log_prob(x_aug, ROWS))
    assert torch.equal(loaded.score(x_aug, ROWS), saved.score(x_aug, ROWS))


def test_a_model_file_holds_what_columns_are_drawn_from(tmp_path: Path) -> None:
    data = probssl.load(torch.randn(300, 4, generator=generator()).numpy())
    model = Model.untrained(Recipe(pairing="columns").with_settings({"pairing.masked": 0.1}), data)
    model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert model.pairing is not None
    assert loaded.pairing is not None
    x = torch.randn(50, 4, generator=generator(1))
    x_aug = model.pairing.sample(x, generator(2))
    assert torch.equal(loaded.pairing.sample(x, generator(2)).nan_to_num(9), x_aug.nan_to_num(9))
    assert torch.equal(loaded.pairing.pairwise_log_prob(x_aug, x), model.pairing.pairwise_log_prob(x_aug, x))


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (lambda: ResampledColumns().sample(ROWS), "bind(sample=…)"),
        (lambda: ResampledColumns().log_prob(ROWS, ROWS), "bind(sample=…)"),
        (lambda: made(preservation=[0.5, 0.5]), "for 2 features"),
        (lambda: made(preservation=[0.5, 0.5, 0.1, 0.2, 0.5, 0.5]), "day and month are kept or replaced together"),
        (lambda: made(masked=[0.5, 0.5, 0.1, 0.2, 0.5, 0.5]), "give them one masked"),
    ],
    ids=["unbound", "unbound law", "too few", "parts apart", "parts masked apart"],
)
def test_refusals(wrong: Callable[[], Any], part: str) -> None:
    with pytest.raises(InputError) as error:
        wrong()
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_without_any_value() -> None:
    rows = ROWS.clone()
    rows[:, :4] = GAP
    pairing = ResampledColumns(0.3, 0.2).bind(sample=rows, layout=LAYOUT)
    drawn = pairing.sample(rows, generator(1))
    assert drawn[:, :4].isnan().all()
    assert pairing.pairwise_log_prob(drawn, rows).isfinite().all()
    assert pairing.score(drawn, rows).isfinite().all()


def test_many_columns_and_many_rows() -> None:
    x = torch.randn(600, 3000, generator=generator())
    pairing = ResampledColumns(0.5, 0.3).bind(sample=x)
    assert pairing.atoms.shape == (ATOMS, 3000)
    drawn = pairing.sample(x[:8], generator(1))
    found = pairing.pairwise_log_prob(drawn, x)
    assert found.shape == (8, 600)
    assert (found.argmax(1) == torch.arange(8)).all()
