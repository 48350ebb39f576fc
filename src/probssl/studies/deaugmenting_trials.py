"""The trainings of `siamese/deaugmenting`: which settings on which data, and what is measured of each."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch

from probssl.data import load
from probssl.encoders import encode, seeded
from probssl.errors import InputError
from probssl.evaluation import undo_augmentations
from probssl.metrics import linear_probe, rankme
from probssl.metrics.deaugment import DeaugmentationResult
from probssl.model import Model
from probssl.objectives import NCE, SNL, BiasNetwork, Objective
from probssl.pairings import Pairing
from probssl.recipe import FIXED_ENERGY, OBJECTIVES, Recipe
from probssl.studies import circles
from probssl.training import TrainingPlan, fit

CIRCLES = "toy:circles"
TABLES = ("pmlb:vehicle", "pmlb:satimage", "pmlb:optdigits", "pmlb:letter", "pmlb:yeast")
"""Chosen for their sizes (846 to 20,000 rows, 8 to 64 features, 4 to 26 classes), before any result was seen."""

CANDIDATES = 4096
"""Most rows among which the source of an augmentation is looked for."""

UNTRAINED = "untrained"
FAMILIES = {
    "softmax over the batch": ("infonce", "renyi", "chi-squared", "simclr"),
    "learnt normaliser or bias": ("snl", "nce", "jensen-shannon"),
    "score matching": ("fisher", "sliced-fisher"),
    "no log-density": ("triplet", "spectral", "simsiam"),
    UNTRAINED: (UNTRAINED,),
}
WITHOUT_DENSITY = FAMILIES["no log-density"]
"""Their best energy is not −log p(x̃ | x) + c(x̃), so that only the order of candidates means anything: top-k."""


@dataclass(frozen=True)
class Setting:
    """What is trained, or the untrained encoder read through an energy."""

    objective: str
    energy: str
    asymmetry: str = "none"

    @property
    def name(self) -> str:
        """Objective and energy in words."""
        return f"{self.objective} {self.energy}" + ("" if self.asymmetry == "none" else f", own {self.asymmetry}")


def every_setting() -> tuple[Setting, ...]:
    """The untrained encoder, every objective with every energy it has a choice of, and Fisher with two encoders."""
    both = ("euclidean", "cosine")
    return (
        *(Setting(UNTRAINED, energy) for energy in both),
        *(Setting(o, energy) for o in OBJECTIVES for energy in ((FIXED_ENERGY[o],) if o in FIXED_ENERGY else both)),
        Setting("fisher", "euclidean", "encoder"),
    )


@dataclass(frozen=True)
class Scale:
    """How much a budget does."""

    seeds: int
    steps: int
    data: tuple[str, ...] = (CIRCLES, *TABLES)
    settings: tuple[Setting, ...] = every_setting()


FEW = tuple(
    Setting(*pair)
    for pair in (
        (UNTRAINED, "euclidean"),
        (UNTRAINED, "cosine"),
        ("infonce", "euclidean"),
        ("infonce", "cosine"),
        ("snl", "euclidean"),
        ("fisher", "euclidean"),
        ("simsiam", "cosine"),
    )
)
SCALE = {"smoke": Scale(1, 60, (CIRCLES, "pmlb:vehicle"), FEW), "laptop": Scale(3, 600), "full": Scale(5, 10_000)}


@dataclass(frozen=True)
class Score:
    """A number of a trained model and what a good value of it is: `sign` is −1 where lower is better."""

    name: str
    title: str
    sign: int
    needs_density: bool = True


PROBE = Score("linear_probe", "linear probe", 1, False)
RANKME = Score("rankme", "RankMe", 1, False)
SCORES = (
    Score("kl_exact_model", "KL(exact‖q)", -1),
    Score("kl_model_exact", "KL(q‖exact)", -1),
    Score("excess_nll", "excess NLL", -1),
    Score("top1", "top-1", 1, False),
    Score("top5", "top-5", 1, False),
    Score("ece", "calibration", -1),
    Score("width_error", "width error", -1),
    RANKME,
)
MAIN = ("kl_exact_model", "top1", "rankme")
MEASURES = (
    "linear_probe",
    "gain",
    "rankme",
    "width_error",
    *(f.name for f in dataclasses.fields(DeaugmentationResult)),
)


@dataclass(frozen=True)
class Trial:
    """One setting on one data set from one seed; `numbers` is empty where training failed."""

    data: str
    setting: Setting
    seed: int
    state: str  # trained, untrained, collapsed: kind, or failed: why
    numbers: dict[str, float]


def trial(data: str, setting: Setting, seed: int, steps: int) -> Trial:
    """Train one setting and measure its representation and its posterior."""
    torch.set_num_threads(1)
    table = load(data, seed=seed)
    if table.labels is None:
        raise InputError(f"{data} has no labels, and a probe needs them")
    trained = setting.objective != UNTRAINED
    recipe = Recipe(
        objective=setting.objective if trained else "infonce",
        energy=setting.energy,
        asymmetry=setting.asymmetry,
        steps=steps,
        seed=seed,
    )
    pairing: Pairing
    if data == CIRCLES:
        x, pairing = circles.inputs(table), circles.augmentation()
        recipe = recipe.with_options(hidden=circles.SIZES[1:-1], dim=circles.SIZES[-1])
        encoder, objective, plan = recipe.build_encoder(2), circles_objective(recipe), circles_plan(steps, len(x))
    else:
        model = Model.untrained(recipe, table)
        x, pairing, plan = model.inputs(table.features), recipe.build_pairing(), recipe.plan()
        encoder, objective = model.encoder, model.objective
    state = UNTRAINED
    if trained:
        fitted = fit(encoder, objective, pairing, x, plan, seed=seed)
        if fitted.interrupted:
            raise KeyboardInterrupt
        if fitted.failure is not None:
            return Trial(data, setting, seed, f"failed: {fitted.failure}", {})
        state = f"collapsed: {' '.join(fitted.collapsed)}" if fitted.collapsed else "trained"
    z = encode(encoder, x).numpy()
    undone = undo_augmentations({"model": (encoder, objective.energy)}, pairing, x, candidates=CANDIDATES, seed=seed)[
        "model"
    ]
    numbers = {
        "linear_probe": linear_probe(z, table.labels, seed=seed).mean,
        "rankme": rankme(z),
        "width_error": abs(math.log(undone.effective_candidates / undone.exact_effective_candidates)),
        **dataclasses.asdict(undone),
    }
    return Trial(data, setting, seed, state, numbers)


def circles_objective(recipe: Recipe) -> Objective:
    """The objective on two circles, where the bias networks are those of `siamese/circles`."""
    maker = {"snl": SNL, "nce": NCE}.get(recipe.objective)
    if maker is None:
        return recipe.build_objective(2)
    energy, dim = recipe.build_energy(2), circles.SIZES[-1]
    return seeded(recipe.seed + 1, lambda: maker(dim, energy, bias=BiasNetwork(dim, 20, batch_norm=False)))


def circles_plan(steps: int, rows: int) -> TrainingPlan:
    """The optimisation of `siamese/circles`: all rows a step, constant rates."""
    return TrainingPlan(
        steps, rows, learning_rate=0.01, objective_learning_rate=0.1, warmup=0, anneal="constant", log_every=20
    )
