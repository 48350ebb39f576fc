"""Claims of the paper about the tabular study as checks on our numbers: the machinery.

A claim is cut into parts, each a comparison of numbers, such as "at m/d = 1/5 the RankMe of SNL is the least". A part
that says one thing exceeds another holds when the mean difference over tables, taken table by table, exceeds one
standard error of it. A claim is `reproduced` when all its parts hold, `partly` when at least half of them do, otherwise
`not reproduced`; `not tested` when there are no numbers for any part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from probssl.studies.tabular_grid import ENERGIES, LEARNING_RATES, LOSSES, MODELS, Model
from probssl.studies.tabular_scores import Array, Scores, mean, standard_error

Verdict = Literal["reproduced", "partly", "not reproduced", "not tested"]

EUCLIDEAN, COSINE = (tuple(m for m in MODELS if m.energy == energy) for energy in ENERGIES)
LIKELIHOOD = tuple(m for m in MODELS if m.loss != "fisher")
FISHER_EUCLIDEAN, FISHER_COSINE = (Model("fisher", energy) for energy in ENERGIES)
COSINE_LIKELIHOOD, EUCLIDEAN_LIKELIHOOD = (tuple(m for m in some if m in LIKELIHOOD) for some in (COSINE, EUCLIDEAN))
BOTH_ENERGIES = tuple(loss for loss in LOSSES if Model(loss, "euclidean") in MODELS)

ACCURACY, RANKME = "linear_probe", "rankme"
TITLES = {ACCURACY: "accuracy", RANKME: "RankMe"}


@dataclass(frozen=True)
class Part:
    """One comparison: what was compared, the number it turned on, and whether it came out as the paper says."""

    name: str
    number: float
    holds: bool


Check = Callable[["Lines"], Iterator[Part]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, where it stands, and the rule by which it is checked."""

    name: str
    """A few words for a narrow column."""
    place: str
    text: str
    rule: str
    check: Check


@dataclass(frozen=True)
class Finding:
    """What came of a claim."""

    claim: Claim
    parts: tuple[Part, ...]

    @property
    def share(self) -> float | None:
        """Which share of the parts holds; None where there are none."""
        return sum(part.holds for part in self.parts) / len(self.parts) if self.parts else None

    @property
    def verdict(self) -> Verdict:
        """By the rule at the top of this module."""
        if self.share is None:
            return "not tested"
        return "reproduced" if self.share == 1 else "partly" if self.share >= 0.5 else "not reproduced"

    def evidence(self, most: int = 6) -> str:
        """The numbers behind the verdict; of many parts those that do not hold come first."""
        shown = sorted(self.parts, key=lambda part: part.holds)[:most] if len(self.parts) > most else self.parts
        words = [f"{p.name}: {p.number:.3g}" + ("" if p.holds else " ✗") for p in shown]
        held = f"{sum(p.holds for p in self.parts)} of {len(self.parts)} hold; " if len(self.parts) > 1 else ""
        return held + "; ".join(words) + ("; …" if len(self.parts) > most else "")


class Lines:
    """The lines of the figures by model: arrays [table, position]."""

    def __init__(self, scores: Scores) -> None:
        self.scores, self.positions = scores, scores.positions

    def relative(self, metric: str, model: Model, rate: float = 0.01) -> Array:
        """Relative score in per cent."""
        return self.scores.relative(metric)[:, MODELS.index(model), LEARNING_RATES.index(rate)]

    def regret(self, metric: str, model: Model, rate: float = 0.01) -> Array:
        """Gap to the best model."""
        return self.scores.regret(metric)[:, MODELS.index(model), LEARNING_RATES.index(rate)]

    def raw(self, metric: str, model: Model, rate: float = 0.01) -> Array:
        """The score itself."""
        return self.scores.raw(metric)[:, MODELS.index(model), LEARNING_RATES.index(rate)]

    def change(self, metric: str, model: Model) -> Array:
        """Learning rate 1 minus 0.01."""
        return self.scores.change(metric)[:, MODELS.index(model)]

    def at(self, line: Array) -> Iterator[tuple[str, Array]]:
        """The positions one by one: how the axis shows each, and the values there, [table]."""
        for number, position in enumerate(self.positions):
            yield self.scores.setup.label(position), line[:, number]

    @property
    def third(self) -> int:
        """How many positions are a third of the axis."""
        return max(1, len(self.positions) // 3)

    def first(self, line: Array) -> Array:
        """Mean over the first third of the axis, [table]: the widest outputs, or the strongest augmentations."""
        return mean(line[:, : self.third], 1)

    def last(self, line: Array) -> Array:
        """Mean over the last third of the axis, [table]: the narrowest outputs, or the weakest augmentations."""
        return mean(line[:, -self.third :], 1)

    def everywhere(self, line: Array) -> Array:
        """Mean over the axis, [table]."""
        return mean(line, 1)


def findings(claims: Sequence[Claim], scores: Scores) -> list[Finding]:
    """Every claim checked; parts for which there is no number do not count."""
    lines = Lines(scores)
    return [Finding(c, tuple(part for part in c.check(lines) if np.isfinite(part.number))) for c in claims]


# What parts are made of. Values are [table].


def middle(values: Array) -> float:
    """Mean over tables."""
    return float(mean(values, 0))


def exceeds(name: str, more: Array, less: Array | float) -> Part:
    """Whether one is larger, by more than a standard error of the difference over tables."""
    difference = np.asarray(more - less, dtype=np.float64)
    error = float(standard_error(difference))
    size = middle(difference)
    return Part(name, size, size > (error if np.isfinite(error) else 0.0))


def within(name: str, values: Array, centre: float, distance: float) -> Part:
    """Whether the mean over tables lies no further than `distance` from `centre`."""
    number = middle(values)
    return Part(name, number, abs(number - centre) <= distance)


def at_most(name: str, values: Array, limit: float) -> Part:
    """Whether the mean over tables is no larger than a limit."""
    return Part(name, middle(values), middle(values) <= limit)


def ranked(name: str, model: Model, values: dict[Model, Array], places: int, *, lowest: bool) -> Part:
    """Whether a model is among the first few by its mean over tables; the number is its place, from 1."""
    means = {other: middle(array) for other, array in values.items()}
    order = sorted((m for m in means if np.isfinite(means[m])), key=lambda m: means[m] if lowest else -means[m])
    place = order.index(model) + 1 if model in order else float("nan")
    return Part(name, place, place <= places)


def fluctuates_alike(lines: dict[Model, Array], least: float = 0.9) -> Iterator[Part]:
    """For each model, the correlation over positions of its mean line with the mean of the others' lines."""
    means = {model: mean(line, 0) for model, line in lines.items()}
    for model, own in means.items():
        others = mean(np.stack([line for other, line in means.items() if other != model]), 0)
        varies = own.std() > 0 and others.std() > 0 and len(own) > 2
        number = float(np.corrcoef(own, others)[0, 1]) if varies else float("nan")
        yield Part(model.title, number, number >= least)
