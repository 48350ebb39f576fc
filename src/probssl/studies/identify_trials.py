"""What a trial of CL-ICA's Table 1 is: its twelve worlds, how each is trained on, and what is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from probssl.energies import Cosine, Energy, PNorm
from probssl.objectives import InfoNCE, LatentRegression
from probssl.studies import recovery
from probssl.studies.base import Config, Result
from probssl.worlds import (
    Around,
    Box,
    Conditional,
    Marginal,
    RealSpace,
    Sphere,
    Uniform,
    VonMisesFisher,
    World,
    generalised_normal,
    normal,
)

DIM = 10
HIDDEN = (48, 48, 48)
SPHERE, BOX, REAL = Sphere(DIM), Box(DIM), RealSpace(DIM)

Score = Literal["linear", "supervised", "unsupervised"]
SCORES: tuple[Score, ...] = ("linear", "supervised", "unsupervised")


@dataclass(frozen=True)
class Recipe:
    """How a row is trained on without supervision."""

    steps: int
    batch_size: int
    group_size: int | None
    """Candidates of each anchor; all of the batch where None."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further settings of the training plan."""


ALMOST_UNIFORM = Recipe(16_000, 2048, 64)
"""Positives say little of their anchors, so that many pairs of few candidates beat few pairs of many."""

CONCENTRATED = Recipe(8_000, 1024, 128)
"""The model is wider than the world: mostly a matter of spreading the codes evenly."""


def near(weight: float) -> Recipe:
    """Positives so near that alignment hardly counts: it begins with a weight that makes it count.

    Noise of a fourth of the variance (β = 2 beside β = 1, of one scale) gets four times the weight.
    """
    return Recipe(8_000, 1024, 128, {"initial_weights": {"alignment": weight}})


NARROW = Recipe(10_000, 1024, None, {"initial_weights": {"alignment": 16.0}})
"""Positives are trivially told apart, and the loss would vanish before the codes are in place."""

NARROW_GROUPS = Recipe(8_000, 1024, 128, NARROW.more)
"""The same for an energy that is not an inner product, whose pairs are dear."""

WIDE = Recipe(8_000, 1024, 256)


@dataclass(frozen=True)
class Setting:
    """A row of the table: the world, the energy of the model and the recipe."""

    name: str
    matched: bool
    """Whether model and world fulfil the theorem's assumptions, by the paper's own mark."""
    marginal: Callable[[], Marginal]
    conditional: Callable[[], Conditional]
    energy: Callable[[], Energy]
    recipe: Recipe

    @property
    def sphere(self) -> bool:
        """Whether codes live on the sphere."""
        return isinstance(self.energy(), Cosine)


def _on_sphere(name: str, conditional: Callable[[], Conditional], recipe: Recipe, matched: bool = False) -> Setting:
    return Setting(f"sphere {name} | sphere vMF(1)", matched, lambda: Uniform(SPHERE), conditional, _cosine, recipe)


def _round_pole(name: str, shape: float, recipe: Recipe) -> Setting:
    """Here the 1 of the marginal is a standard deviation, unlike the scale that λ is elsewhere in the table.

    Such positives leave almost nothing but uniformity to the loss, and a code that is perfectly uniform is bent: with
    a standard deviation of 1/√2, which a scale of 1 means, R² is at most 0.983, with one of 1 at most 0.990. The
    paper's 0.989 can only be the latter.
    """
    marginal: Callable[[], Marginal] = lambda: Around(normal(SPHERE, 1.0))  # noqa: E731
    conditional: Callable[[], Conditional] = lambda: generalised_normal(SPHERE, shape, 0.05)  # noqa: E731
    return Setting(f"sphere {name} | sphere vMF(1)", False, marginal, conditional, _cosine, recipe)


def _in_box(shape: int, p: int) -> Setting:
    return Setting(
        f"box uniform GenNorm({shape}, 0.05) | R10 GenNorm({p})",
        shape == p,
        lambda: Uniform(BOX),
        lambda: generalised_normal(BOX, shape, 0.05),
        lambda: PNorm(p),
        NARROW if p == 2 else NARROW_GROUPS,
    )


def _in_space(shape: int) -> Setting:
    return Setting(
        f"R10 GenNorm({shape}, 1) GenNorm(2, 1) | R10 GenNorm(2)",
        False,
        lambda: Around(generalised_normal(REAL, shape, 1.0)),
        lambda: generalised_normal(REAL, 2, 1.0),
        lambda: PNorm(2),
        WIDE,
    )


def _cosine() -> Energy:
    return Cosine(1.0)


SETTINGS = (
    _on_sphere("uniform vMF(1)", lambda: VonMisesFisher(SPHERE, 1.0), ALMOST_UNIFORM, matched=True),
    _in_box(2, 2),
    _on_sphere("uniform vMF(10)", lambda: VonMisesFisher(SPHERE, 10.0), CONCENTRATED),
    _on_sphere("uniform GenNorm(1, 0.05)", lambda: generalised_normal(SPHERE, 1, 0.05), near(2.0)),
    _on_sphere("uniform GenNorm(2, 0.05)", lambda: generalised_normal(SPHERE, 2, 0.05), near(8.0)),
    _in_box(1, 2),
    _in_box(1, 3),
    _in_box(2, 3),
    _round_pole("GenNorm(2, 1) GenNorm(1, 0.05)", 1, near(2.0)),
    _round_pole("GenNorm(2, 1) GenNorm(2, 0.05)", 2, near(8.0)),
    _in_space(1),
    _in_space(2),
)
"""The rows of the table, in its order."""

SUPERVISED_STEPS, SUPERVISED_BATCH, RATE = 8_000, 512, 0.015


def world(setting: Setting, seed: int) -> World:
    """The world of a row, with the mixing of a seed."""
    return World(setting.marginal(), setting.conditional(), recovery.mixing(DIM, seed))


def trial(config: Config) -> Result:
    """One score of one row for one mixing."""
    setting, seed, steps = SETTINGS[config["row"] - 1], config["seed"], config["steps"]
    made = world(setting, seed)
    if config["score"] == "linear":
        return {"r2": recovery.raw_score(made, seed)}
    if config["score"] == "supervised":
        encoder = recovery.encoder_for(made, HIDDEN, sphere=False, seed=seed)
        plan = recovery.plan(steps, SUPERVISED_BATCH, 0.01)
        return recovery.recover(made, encoder, LatentRegression(), plan, seed=seed)
    recipe = setting.recipe
    encoder = recovery.encoder_for(made, HIDDEN, sphere=setting.sphere, seed=seed)
    objective = InfoNCE(setting.energy(), group_size=recipe.group_size, anchor="symmetric")
    plan = recovery.plan(steps, recipe.batch_size, RATE, **recipe.more)
    return recovery.recover(made, encoder, objective, plan, seed=seed)
