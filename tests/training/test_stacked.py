"""Stacked training: every trial comes out as if trained alone, in any company, and others fall back in silence."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probssl import kernels
from probssl.encoders import MLP, Branches, Expansion, WithHead, encode, seeded
from probssl.energies import Cosine, Euclidean
from probssl.objectives import CRVAE, GEDI, SNL, VAE, ColumnsLikelihood, InfoNCE, Objective, SimVAE, SlicedFisher
from probssl.objectives.base import PairObjective
from probssl.objectives.fisher import Fisher
from probssl.pairings import GaussianNoise, LinearMixture, MaskAndNoise, Pairing, SampledPairing, Views
from probssl.parts.registry import KINDS
from probssl.parts.resolve import fixed_energy
from probssl.samplers import SGLD, Box, UniformStart
from probssl.training import Fitted, Reporter, TrainingPlan, Trial, fit, fit_many
from probssl.training.stacked import many as stacked
from probssl.training.stacked.stack import Stack, can_compile
from tests.encoders.test_expansion import LAYOUT, mixed_rows
from tests.variants import every_variant, use

from ..fitting import resolved
from ..parts.test_recipe import names
from .parts import Signaller, rows, without_time

FEATURES = 6
SOME_ENERGIES = ("euclidean", "cosine", "dot", "pnorm", "anisotropic")


STEPS = 15


TWO_ENCODERS = {"objective": "fisher", "energy": {"name": "asymmetric", "by": "encoder"}}
TEACHING = ("moco", "mocov2", "byol")
REMEMBERING = ("deepcluster", "instance", "ebclr")
CLUSTERING = ("swav", "protocpc", "gedi", "jem", *REMEMBERING)
Options = dict[str, Any]
"""What a trial is made of: names of parts and settings (see `fitting.recipe`)."""


def every_recipe() -> list[Options]:
    """Every objective but those that cluster or teach themselves, with every energy that it admits."""
    found: list[Options] = []
    for objective in [name for name in names if name not in {*CLUSTERING, *TEACHING}]:
        fixed = fixed_energy(objective) is not None
        for energy in [None] if fixed else SOME_ENERGIES:
            setting = {"cosine": {"temperature": 0.5}, "dot": {"temperature": 0.5}, "pnorm": {"p": 2.0}}.get(
                energy or "", {}
            )
            found.append(
                {"objective": objective, **({} if energy is None else {"energy": {"name": energy, **setting}})}
            )
        if not fixed and not KINDS["objective"][objective].load().compares_views and objective != "simclr":
            energies = [{"name": "asymmetric", "by": by} for by in ("predictor", "encoder")]
            found += [{"objective": objective, "energy": energy} for energy in energies]
    return found


def warm(options: Options, temperature: float) -> Options:
    """A temperature for an energy that has one."""
    return {"temperature": temperature} if options.get("energy") == "cosine" else {}


def told(options: Options) -> str:
    energy = options.get("energy", "own")
    return f"{options['objective']}-" + ("-".join(map(str, energy.values())) if isinstance(energy, dict) else energy)


def trial(options: Options, dtype: torch.dtype = torch.float64, data: Tensor | None = None, **plan: Any) -> Trial:
    made = resolved(**{"steps": STEPS, "batch_size": 20, "warmup": 5, **options})
    bound = made.bind()
    return Trial(
        bound.encoder.to(dtype),
        bound.objective.to(dtype),
        bound.pairing,
        (rows() if data is None else data).to(dtype),
        dataclasses.replace(made.plan, log_every=5, **plan),
        made.seed,
    )


def alone(one: Trial) -> Fitted:
    return fit(one.encoder, one.objective, one.pairing, one.data, one.plan, seed=one.seed)


def weights(one: Trial) -> Tensor:
    return torch.cat(
        [p.detach().double().flatten() for part in (one.encoder, one.objective) for p in part.parameters()]
    )


def distance(one: Trial, other: Trial) -> float:
    return (weights(one) - weights(other)).abs().max().item()


def assert_same_story(found: Fitted, expected: Fitted, tolerance: float) -> None:
    """Log, collapses and end are the same, numbers to a tolerance."""
    assert (found.steps, found.interrupted, found.failure) == (expected.steps, expected.interrupted, expected.failure)
    assert found.collapsed == expected.collapsed
    for row, other in zip(without_time(found.history), without_time(expected.history), strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            if isinstance(value, float):
                assert value == pytest.approx(other[name], rel=tolerance, abs=tolerance), name
            else:
                assert value == other[name]


def varied(recipes: Sequence[Options]) -> list[Options]:
    """Recipes with different augmentations, rates and seeds."""
    return [
        {
            **options,
            "seed": i % 5,
            "preservation": 0.4 + 0.1 * (i % 4),
            "noise": 0.2 + 0.1 * (i % 3),
            "lr": 0.004 + 0.003 * (i % 3),
        }
        for i, options in enumerate(recipes)
    ]


def test_every_objective_in_one_mixed_grid() -> None:
    """All objectives, energies and asymmetries at once, each with its own augmentation, rate and seed."""
    recipes = varied(every_recipe())
    together, apart = [trial(r) for r in recipes], [trial(r) for r in recipes]
    found = fit_many(together)
    for recipe, one, other, fitted in zip(recipes, together, apart, found, strict=True):
        expected = alone(other)
        assert distance(one, other) < 1e-5, recipe
        assert_same_story(fitted, expected, 1e-6)


@pytest.mark.parametrize("recipe", every_recipe(), ids=told)
def test_every_objective_really_is_stacked(recipe: Options) -> None:
    """All but Fisher losses with an asymmetric energy, whose gradient needs more than one pass."""
    trials = [trial({**recipe, "seed": seed}) for seed in (0, 1)]
    if recipe["objective"] == "fisher" and recipe["energy"]["name"] == "asymmetric":
        assert stacked._stacked(trials) is None
    else:
        assert isinstance(stacked._stacked(trials), Stack)


def clustering_trial(objective: str, seed: int) -> Trial:
    return trial({"objective": objective, "seed": seed})


@pytest.mark.parametrize("objective", CLUSTERING)
def test_clusterings_stack_unless_they_remember(objective: str) -> None:
    together, apart = ([clustering_trial(objective, seed) for seed in (0, 1, 2)] for _ in range(2))
    assert (stacked.stack_key(together[0])[0] is None) == (objective in REMEMBERING)
    for one, other, fitted in zip(together, apart, fit_many(together), strict=True):
        expected = alone(other)
        assert distance(one, other) < 1e-5
        assert_same_story(fitted, expected, 1e-6)
        for name, value in one.objective.named_buffers():
            torch.testing.assert_close(value, other.objective.get_buffer(name))


def test_gedis_of_other_weights_and_samplers_train_as_alone() -> None:
    """Weights differ within one computation; another sampler, or a term that is missing, makes another."""

    def trials() -> list[Trial]:
        def one(seed: int, sampler: SGLD, **weights: float) -> Trial:
            start = UniformStart.around(rows().double())
            chains = {"chains": 80, "reinitialise": 0.2, "start": start, "sampler": sampler}
            unbound = GEDI(2, base_scale=3.0, **chains, **weights)  # type: ignore[arg-type]
            objective = seeded(seed, lambda: unbound.bind(dim=3)).double()
            encoder = seeded(seed, lambda: MLP.of([FEATURES, 8, 3])).double()
            ramp = {"prior": 0.1} if seed == 1 else None
            plan = TrainingPlan(steps=12, batch_size=16, log_every=4, initial_weights=ramp)
            return Trial(encoder, objective, MaskAndNoise(0.8, 0.2), rows().double(), plan, seed)

        plain, bounded = SGLD(steps=3, step_size=0.01), SGLD(steps=2, noise=0.1, clip=0.5, box=Box(-2, 2))
        weights = [{"invariance": 5.0}, {"balance": 20.0}, {"magnitude": 0.1}, {"invariance": 0.0}]
        return [one(seed, s, **w) for s in (plain, bounded) for seed, w in enumerate(weights)]

    together, apart = trials(), trials()
    stack = stacked._stacked(together)
    assert stack is not None
    assert len(stack.losses) == 6
    for one, other, fitted in zip(together, apart, fit_many(together), strict=True):
        assert_same_story(fitted, alone(other), 1e-6)
        assert distance(one, other) < 1e-5
        for name, value in one.objective.named_buffers():
            torch.testing.assert_close(value, other.objective.get_buffer(name))


@pytest.mark.parametrize("kind", ["vae", "cr-vae", "simvae"])
def test_generative_models_draw_in_a_stack_what_they_draw_alone(kind: str) -> None:
    def one(seed: int) -> Trial:
        sizes = [3, 8, FEATURES]
        objective = {
            "vae": lambda: VAE(decoder=MLP.of(sizes), of="data").bind(dim=3),
            "cr-vae": lambda: CRVAE(decoder=MLP.of(sizes), pair="original").bind(dim=3),
            "simvae": lambda: SimVAE(decoder=MLP.of(sizes), related=3, mean_variance=1.0).bind(dim=3),
        }[kind]
        plan = TrainingPlan(steps=12, batch_size=16, log_every=4)
        encoder = seeded(seed, lambda: MLP.of([FEATURES, 8, 3])).double()
        return Trial(encoder, seeded(seed, objective).double(), MaskAndNoise(0.8, 0.2), rows().double(), plan, seed)

    together, apart = ([one(seed) for seed in (0, 0, 1)] for _ in range(2))
    assert stacked._stacked(together) is not None
    for one_, other, fitted in zip(together, apart, fit_many(together), strict=True):
        assert_same_story(fitted, alone(other), 1e-6)
        assert distance(one_, other) < 1e-5


class OtherRows(SampledPairing):
    """Half of the values from other rows."""

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        others = torch.randint(len(x), x.shape, generator=generator)
        return torch.where(torch.rand(x.shape, generator=generator) < 0.5, x, x.gather(0, others))


MIXED: dict[str, Callable[[], Objective]] = {
    "infonce": lambda: InfoNCE(Euclidean()),
    "vae": lambda: VAE(ColumnsLikelihood(), of="data"),
    "cr-vae": lambda: CRVAE(ColumnsLikelihood(), pair="original"),
    "simvae": lambda: SimVAE(ColumnsLikelihood(), related=2),
}


@pytest.mark.parametrize("kind", MIXED)
def test_mixed_rows_train_in_a_stack_as_alone(kind: str) -> None:
    x = mixed_rows(48)

    def one(seed: int) -> Trial:
        bound = {"shape": (len(LAYOUT.columns),), "layout": LAYOUT, "dim": 3}
        encoder = seeded(seed, lambda: MLP((8, 8), linear="pca").bind(sample=x.float(), **bound)).double()
        objective = seeded(seed, lambda: MIXED[kind]().bind(encoder=encoder, **bound)).double()
        plan = TrainingPlan(steps=12, batch_size=16, log_every=4)
        return Trial(encoder, objective, OtherRows(), x, plan, seed)

    together, apart = ([one(seed) for seed in (0, 0, 1)] for _ in range(2))
    assert stacked._stacked(together) is not None
    for one_, other, fitted in zip(together, apart, fit_many(together), strict=True):
        assert fitted.failure is None
        assert_same_story(fitted, alone(other), 1e-6)
        assert distance(one_, other) < 1e-5


COMPILED = [
    {"objective": objective, **({} if energy is None else {"energy": energy})}
    for objective in ("infonce", "nce", "snl", "simclr", "fisher", "spectral")
    for energy in ((None,) if objective == "spectral" else ("euclidean", "cosine"))
]
needs_kernels = pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")


def first_gradients(trials: list[Trial], index: Tensor, draws: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Losses, terms and gradients of a stack's first step, on given rows and random numbers."""
    stack = Stack(trials)
    stack.next_index = lambda: index  # type: ignore[method-assign]
    stack.draw = lambda: draws.to(stack.table.dtype)  # type: ignore[method-assign]
    total, (terms,), gradients = stack.gradients()
    return total, list(terms), gradients


@needs_kernels
@pytest.mark.parametrize(("hidden", "dim", "keep"), [((12,), 5, 0.7), ((), 2, 1.0), ((9, 17), 37, 0.1)], ids=str)
@pytest.mark.parametrize("recipe", COMPILED, ids=told)
def test_compiled_steps_are_those_of_torch(recipe: Options, hidden: tuple[int, ...], dim: int, keep: float) -> None:
    """Losses, terms and every gradient of the first step, against double precision."""
    sized = {**recipe, "hidden": hidden, "dim": dim, "preservation": keep, "noise": 0.4}
    recipes = [{**sized, **warm(recipe, 0.3), "seed": seed} for seed in range(3)]
    single, double = ([trial(r, dtype) for r in recipes] for dtype in (torch.float32, torch.float64))
    assert all(can_compile(t) for t in single)
    assert not any(can_compile(t) for t in double)
    index = torch.stack([torch.randperm(64, generator=torch.Generator().manual_seed(k))[:20] for k in range(3)])
    draws = Stack(single).draw()
    found, expected = (first_gradients(trials, index, draws) for trials in (single, double))
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    for part, wanted in zip([*found[1], *found[2]], [*expected[1], *expected[2]], strict=True):
        torch.testing.assert_close(
            part.double(), wanted.double(), rtol=1e-4, atol=3e-5 * wanted.abs().max().item() + 1e-6
        )


@every_variant
def test_every_variant_steps_as_torch(compiler: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, compiler, variant)
    for recipe in COMPILED:
        test_compiled_steps_are_those_of_torch(recipe, (9, 17), 37, 0.1)


@needs_kernels
def test_compiled_trainings_are_those_of_torch() -> None:
    """Whole trainings in single precision, with temperatures, rates and augmentations of their own.

    Directions that a loss does not depend on (a shift of all embeddings, their scale on the sphere) drift with
    rounding under Adam, so the losses are compared, not the weights.
    """
    recipes = varied([{**r, **warm(r, 0.2 + 0.1 * k)} for r in COMPILED for k in range(3)])
    together, apart = ([trial(r, torch.float32) for r in recipes] for _ in range(2))
    assert all(can_compile(t) for t in together)
    for fitted, one in zip(fit_many(together), apart, strict=True):
        expected = alone(one)
        losses, wanted = ([row["loss"] for row in run.history if "loss" in row] for run in (fitted, expected))
        assert losses == pytest.approx(wanted, rel=1e-4, abs=1e-4)
        assert fitted.history[-1]["effective_rank"] == pytest.approx(expected.history[-1]["effective_rank"], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "torch"])
def test_company_does_not_matter(dtype: torch.dtype) -> None:
    """The same bits in a stack of two, of five, and among other losses."""
    recipes = varied(COMPILED * 2)
    chosen = {**recipes[0], "seed": 7}
    ends = []
    for company in (recipes[:1], recipes[:4], recipes):
        trials = [trial(r, dtype) for r in company]
        own = trial(chosen, dtype)
        fit_many([*trials[: len(trials) // 2], own, *trials[len(trials) // 2 :]])
        ends.append(weights(own))
    for end in ends[1:]:
        if dtype == torch.float32 and kernels.library() is not None:
            assert torch.equal(end, ends[0])
        else:
            torch.testing.assert_close(end, ends[0], rtol=1e-9, atol=1e-9)


def test_equal_seeds_share_their_random_streams() -> None:
    """Losses that are compared from one seed see the same batches and augmentations, which are drawn once."""
    recipes = [{**r, "preservation": 0.3 + 0.05 * k} for k, r in enumerate(COMPILED)]
    for dtype in (torch.float32, torch.float64):
        stack = Stack([trial(r, dtype) for r in recipes])
        assert len(stack.chance) == len(stack.batches) == 1
        assert stack.next_index().shape == (len(recipes), 20)
    apart = Stack([trial({**recipes[0], "seed": seed, "objective": "sliced-fisher"}) for seed in (0, 0, 1)])
    assert len(apart.chance) == 3


PLANS: dict[str, dict[str, Any]] = {
    "clipped": {"clip_norm": 0.05},
    "adamw": {"optimiser": "adamw", "weight_decay": 0.1},
    "adam with decay": {"weight_decay": 0.1},
    "sgd": {"optimiser": "sgd", "momentum": 0.8, "lr": 0.05},
    "own rate": {"objective_lr": 0.05},
    "constant": {"anneal": "constant", "warmup": 0},
}


@pytest.mark.parametrize("change", PLANS.values(), ids=list(PLANS))
def test_every_plan(change: dict[str, Any]) -> None:
    recipes = varied([{"objective": "snl"}, {"objective": "nce", "energy": "cosine"}, {}, {}])
    together, apart = ([trial(r, **change) for r in recipes] for _ in range(2))
    fit_many(together)
    for one, other in zip(together, apart, strict=True):
        alone(other)
        assert distance(one, other) < 1e-6


def test_data_pairings_and_heads_of_their_own() -> None:
    """Two tables in one stack, pairings of other kinds, features with rates of their own, and projection heads."""
    plan = TrainingPlan(steps=20, batch_size=16, warmup=3, log_every=10)
    shear = torch.eye(FEATURES, dtype=torch.float64).repeat(2, 1, 1)
    shear[1, 0, 1] = 0.5
    pairings: list[Pairing] = [
        MaskAndNoise(0.8, 0.2),
        MaskAndNoise(torch.linspace(0.2, 0.9, FEATURES), torch.linspace(0.1, 0.4, FEATURES)),
        MaskAndNoise(1.0, 0.3),
        GaussianNoise(0.3),
        GaussianNoise(0.1),
        LinearMixture(shear, 0.2),
        LinearMixture(shear, 0.4),
    ]

    def trials() -> list[Trial]:
        made = []
        for number, pairing in enumerate(pairings):
            for objective in (InfoNCE(Euclidean()), Fisher(), InfoNCE(Cosine(0.5), pair="augmented")):
                plain = seeded(number, lambda: MLP.of([FEATURES, 10, 3])).double()
                headed = seeded(number, lambda: WithHead(MLP.of([FEATURES, 8, 5]), MLP.of([5, 3]))).double()
                for encoder in (plain, headed):
                    data = rows(40 + 8 * (number % 2), seed=number % 2).double()
                    made.append(Trial(encoder, objective.double(), pairing, data, plan, number))
        return made

    together, apart = trials(), trials()
    found = fit_many(together)
    for one, other, fitted in zip(together, apart, found, strict=True):
        assert_same_story(fitted, alone(other), 1e-6)
        assert distance(one, other) < 1e-6


class Indicators(Expansion):
    """Of the first number the signs of its distances to some knots and hinges, the rest as it is."""

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(knots, dtype=torch.float64))

    def stack_key(self) -> Hashable:
        return Indicators, tuple(self.knots.tolist())

    def forward(self, x: Tensor) -> Tensor:
        apart = x[..., :1] - self.knots
        return torch.cat([apart.sign(), apart.relu(), x[..., 1:] ** 2, x[..., 1:]], -1)


def expanded(knots: Sequence[float]) -> list[nn.Module]:
    """Networks behind an expansion: plain, beside a linear path, with a head, and with an expansion in one branch."""
    wide = 2 * (FEATURES - 1) + 2 * len(knots)
    return [
        nn.Sequential(Indicators(knots), MLP.of([wide, 8, 3])),
        nn.Sequential(Indicators(knots), MLP.of([wide, 8, 3], linear=True)),
        WithHead(nn.Sequential(Indicators(knots), MLP.of([wide, 8, 5], linear=True)), MLP.of([5, 4, 3], linear=True)),
        Branches([nn.Linear(FEATURES, 3), nn.Sequential(Indicators(knots), MLP.of([wide, 8, 3]))]),
    ]


@pytest.mark.parametrize("layout", range(4), ids=["expanded", "linear path", "with a head", "expanded in a branch"])
def test_expansions_and_linear_paths_stack(layout: int) -> None:
    """Every way in which a stack goes through an encoder: batched, by vmap, and in closed form for Fisher and GEDI."""

    def one(seed: int, objective: Objective, knots: Sequence[float] = (-0.5, 0.3)) -> Trial:
        encoder = seeded(seed, lambda: expanded(knots)[layout]).double()
        bound = seeded(seed, lambda: objective.bind(dim=3)).double()
        plan = TrainingPlan(steps=12, batch_size=16, log_every=4)
        return Trial(encoder, bound, MaskAndNoise(0.8, 0.2), rows().double(), plan, seed)

    def trials() -> list[Trial]:
        start = UniformStart.around(rows().double())
        chains = {"chains": 80, "start": start, "sampler": SGLD(steps=2, step_size=0.01)}
        objectives = [
            InfoNCE(Euclidean()),
            SNL(Cosine(0.5)),
            Fisher(),
            SlicedFisher(),
            GEDI(2, base_scale=3.0, **chains),
        ]
        return [one(seed, objective) for objective in objectives for seed in (0, 1)]

    together, apart = trials(), trials()
    assert len({stacked.stack_key(trial)[0] for trial in together}) == 1
    stack = stacked._stacked(together)
    assert stack is not None
    assert len(stack.losses) == 5
    for trial, other, fitted in zip(together, apart, fit_many(together), strict=True):
        assert_same_story(fitted, alone(other), 1e-6)
        assert distance(trial, other) < 1e-6
    elsewhere = one(0, InfoNCE(Euclidean()), (-0.5, 0.4))
    assert stacked.stack_key(elsewhere)[0] not in {None, stacked.stack_key(together[0])[0]}


def test_an_expansion_comes_first_and_has_no_parameters() -> None:
    inside = nn.Sequential(nn.Linear(FEATURES, FEATURES), Indicators([0.0]), nn.Linear(12, 3))
    training = nn.Sequential(Indicators([0.0]), nn.Linear(12, 3))
    training[0].scale = nn.Parameter(torch.ones(1))
    for encoder in (inside, training):
        one = Trial(encoder, InfoNCE(Euclidean()), MaskAndNoise(), rows(), TrainingPlan(steps=2, batch_size=8))
        assert stacked.stack_key(one)[0] is None


class Reading(PairObjective):
    """A loss that looks at its numbers, which no batched computation can."""

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        energy = self.energy.paired(first, second).mean()
        return {"energy": energy if energy.item() > 0.5 else energy.square()}


class Remembering(PairObjective):
    """A loss with memory of its own."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__(Euclidean())
        self.register_buffer("steps", torch.zeros(()))

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        self.steps += 1
        first, second = self.embed_pair(encoder, views)
        return {"energy": self.energy.paired(first, second).mean() / self.steps}


class Weighted(PairObjective):
    """A loss with a tensor that is no parameter."""

    def __init__(self, weight: float) -> None:
        super().__init__(Euclidean())
        self.weight = torch.tensor(weight)

    def terms(self, encoder: nn.Module, views: Views) -> dict[str, Tensor]:
        first, second = self.embed_pair(encoder, views)
        return {"energy": self.weight * self.energy.paired(first, second).mean()}


def test_what_cannot_be_stacked_is_trained_alone() -> None:
    plan = TrainingPlan(steps=8, batch_size=16, log_every=4)

    def trials() -> list[Trial]:
        encoders = [
            lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 3)),
            lambda: MLP.of([FEATURES, 8, 3], batch_norm=True),
            lambda: nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, 3)),
        ]
        made = [(seeded(1, build).double(), InfoNCE(Euclidean())) for build in encoders for _ in range(2)]
        objectives: list[Objective] = [Reading(Euclidean()), Reading(Euclidean()), Remembering(), Remembering()]
        objectives += [Weighted(1.0), Weighted(5.0)]
        made += [(seeded(2, lambda: MLP.of([FEATURES, 8, 3])).double(), objective) for objective in objectives]
        return [Trial(e, o.double(), MaskAndNoise(0.8, 0.2), rows().double(), plan, 3) for e, o in made]

    together, apart = trials(), trials()
    found = fit_many(together)
    for one, other, fitted in zip(together, apart, found, strict=True):
        assert_same_story(fitted, alone(other), 1e-12)
        assert distance(one, other) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "torch"])
def test_one_trial_that_fails_takes_none_along(dtype: torch.dtype) -> None:
    recipes = [{"seed": 0}, {"seed": 1}, {"objective": "snl", "seed": 2}]
    doomed = trial({**recipes[0], "lr": 1e38 if dtype == torch.float32 else 1e300}, dtype)
    together, apart = ([trial(r, dtype) for r in recipes] for _ in range(2))
    results = fit_many([together[0], doomed, *together[1:]])
    assert results[1].failure is not None
    assert "finite" in results[1].failure
    assert results[1].steps < 25
    assert results[1].history[-1]["event"] == "failure"
    assert not results[1].interrupted
    for fitted, one, other in zip([results[0], *results[2:]], together, apart, strict=True):
        assert fitted.healthy or fitted.failure is None
        expected = alone(other)
        assert fitted.history[-1]["loss"] == pytest.approx(expected.history[-1]["loss"], rel=1e-4)
        assert torch.isfinite(weights(one)).all()


class Counting(Reporter):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.total, self.steps = 0, [0]

    def start(self, total: int, done: int) -> None:
        self.total = total

    def advance(self, step: int) -> None:
        self.steps.append(step)


def test_one_bar_and_every_end_once() -> None:
    trials = [trial(r) for r in varied([{}, {"objective": "snl"}, TWO_ENCODERS])]
    reporter, ended = Counting(), []
    results = fit_many(trials, reporter=reporter, done=lambda number, fitted: ended.append((number, fitted)))
    assert reporter.total == reporter.steps[-1] == 3 * STEPS
    assert reporter.steps == sorted(reporter.steps)
    assert sorted(number for number, _ in ended) == [0, 1, 2]
    assert all(results[number] is fitted for number, fitted in ended)
    assert fit_many([]) == []


def test_stopping_between_two_steps() -> None:
    """By an event and by Ctrl-C: trials that did not come to their end say so, and keep what they have learnt."""
    stop = threading.Event()
    stop.set()
    untouched = [trial(r) for r in varied([{}, {}, TWO_ENCODERS])]
    before = [weights(t) for t in untouched]
    assert all(fitted.interrupted and fitted.steps == 0 for fitted in fit_many(untouched, stop=stop))
    assert all(torch.equal(weights(t), old) for t, old in zip(untouched, before, strict=True))
    trials = [trial(r) for r in varied([{}, {}, {"hidden": (5,)}])]
    results = fit_many(trials, reporter=Signaller(20))  # after ten steps of two trials
    assert [fitted.interrupted for fitted in results] == [True] * 3
    assert [fitted.steps for fitted in results] == [10, 10, 0]
    assert distance(trials[0], trial(varied([{}])[0])) > 1e-4


def test_stacks_fit_the_cache() -> None:
    small, large = trial({}), trial({"hidden": (2000,)})
    assert (
        stacked.MINIMUM_STACK
        <= stacked.models_together(large)
        <= stacked.models_together(small)
        <= stacked.MAXIMUM_STACK
    )
    assert 2**18 <= stacked.cache_share() <= 2**30
    sizes = [len(group) for group in stacked._groups([small] * 200)]
    assert sum(sizes) == 200
    assert max(sizes) - min(sizes) <= 1


def test_representations_are_as_good() -> None:
    """What matters in the end: after 200 steps in single precision, stacked and alone tell the same story."""
    recipe = resolved(1, steps=200, batch_size=32)
    made = []
    for _ in range(3):
        bound = recipe.bind()
        made.append(Trial(bound.encoder, bound.objective, bound.pairing, rows(), recipe.plan, recipe.seed))
    fit_many(made[:2])
    alone(made[2])
    one, other = (encode(t.encoder, rows()) for t in (made[0], made[2]))
    apart = torch.cdist(one, one) - torch.cdist(other, other)
    assert apart.abs().max() / torch.cdist(one, one).max() < 0.02
    assert math.isfinite(one.sum().item())


def test_why_a_trial_trains_alone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="probssl.training.stacked.many")
    x, plan = torch.randn(32, 4), TrainingPlan(steps=2, batch_size=8)
    networks = (nn.Sequential(nn.Linear(4, 3), nn.Tanh()), nn.Linear(4, 3))
    fit_many([Trial(network, InfoNCE(Euclidean()), MaskAndNoise(), x, plan) for network in networks])
    assert "trial 0 (InfoNCE) trains alone: its encoder is more than linear layers and ReLU" in caplog.text
    assert "trial 1" not in caplog.text
