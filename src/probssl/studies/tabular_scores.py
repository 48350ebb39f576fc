"""From trials to the paper's two aggregates (Siamese-EBM §4.2, "Aggregating results"): relative score and regret.

Of each table and seed: the relative score is the trained model's over that of its own initial weights, in per cent; the
regret is the gap to the best of all models trained with the same learning rate in the same setting. Both are averaged
over seeds, table by table; means and standard errors are over tables, so that a seed more makes a table's number
sharper and not the tables more. Trainings that failed have no score and are left out of the means; they are counted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probssl.studies.base import Results
from probssl.studies.tabular_grid import ENERGIES, LEARNING_RATES, MODELS, SHAPES, Model, Setup
from probssl.studies.tabular_trials import UNTRAINED

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A measured number: which way is better (1 higher, −1 lower), and the unit it is shown in."""

    name: str
    title: str
    sign: int
    scale: float = 1.0
    unit: str = ""


METRICS = {
    metric.name: metric
    for metric in (
        Metric("linear_probe", "accuracy", 1, 100.0, "points"),
        Metric("rankme", "RankMe", 1, unit="dimensions"),
        Metric("rankme_centred", "RankMe, centred", 1, unit="dimensions"),
        Metric("intrinsic_dimension", "intrinsic dimension", 1, unit="dimensions"),
        Metric("cluster_learnability", "cluster learnability", 1, 100.0, "points"),
        Metric("alignment", "alignment", -1),
        Metric("uniformity", "uniformity", -1),
        Metric("kl_exact_model", "KL(exact ‖ model)", -1, unit="nats"),
        Metric("nll", "de-augmenting NLL", -1, unit="nats"),
        Metric("top1", "source found", 1, 100.0, "points"),
    )
}


class Scores:
    """The numbers of a sweep as arrays [table, seed, model, learning rate, position], not a number where none is."""

    def __init__(self, results: Results, setup: Setup, positions: Sequence[Fraction]) -> None:
        self.setup, self.positions = setup, tuple(positions)
        self.tables = tuple(dict.fromkeys(config["table"] for config, _ in results))
        self.seeds = tuple(sorted({config["seed"] for config, _ in results}))
        shape = (len(self.tables), len(self.seeds), len(MODELS), len(LEARNING_RATES), len(self.positions))
        self.score = {name: np.full(shape, math.nan) for name in METRICS}
        self.initial = {name: np.full((*shape[:2], len(ENERGIES), shape[-1]), math.nan) for name in METRICS}
        self.states: dict[tuple[Model, float], list[str]] = {(m, rate): [] for m in MODELS for rate in LEARNING_RATES}
        where: dict[tuple[Any, ...], list[int]] = {}
        for table in self.tables:
            for number, position in enumerate(self.positions):
                where.setdefault((table, *setup.place(position, SHAPES[table][1])), []).append(number)
        for config, result in results:
            row = self.tables.index(config["table"]), self.seeds.index(config["seed"])
            at = where[config["table"], config["dim"], config["preservation"]]
            if config["objective"] == UNTRAINED:
                for name, initial in self.initial.items():
                    initial[(*row, ENERGIES.index(config["energy"]), at)] = result[name]
            else:
                model, rate = Model(config["objective"], config["energy"]), config["lr"]
                self.states[model, rate].append(result["state"])
                cell = (*row, MODELS.index(model), LEARNING_RATES.index(rate), at)
                for name, array in self.score.items():
                    array[cell] = result.get(name, math.nan)

    # Each [table, model, learning rate, position]

    def relative(self, metric: str) -> Array:
        """Trained over untrained, in per cent, mean over seeds. Above 100 is better where higher is, and conversely;
        for uniformity, a negative number of which lower is better, above 100 is better too."""
        energy = [ENERGIES.index(model.energy) for model in MODELS]
        initial = self.initial[metric][:, :, energy, None]
        return 100 * mean(self.score[metric] / np.where(initial == 0, math.nan, initial), 1)

    def regret(self, metric: str) -> Array:
        """Gap to the best model of the same table, seed, learning rate and position, mean over seeds; at least 0."""
        better = METRICS[metric].sign * METRICS[metric].scale * self.score[metric]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # nothing but failures in a cell: no best, no regret
            best = np.nanmax(better, axis=2, keepdims=True)
        return mean(best - better, 1)

    def raw(self, metric: str) -> Array:
        """The score itself in its unit, mean over seeds."""
        return mean(METRICS[metric].scale * self.score[metric], 1)

    def change(self, metric: str) -> Array:
        """[table, model, position]: the score at learning rate 1 minus that at 0.01, in the metric's unit."""
        change = METRICS[metric].scale * (self.score[metric][:, :, :, 1] - self.score[metric][:, :, :, 0])
        return mean(change, 1)

    def share(self, beginning: str, models: Sequence[Model], rate: float) -> float:
        """Which share of these models' trainings has a state that begins so (`failed`, `collapsed`)."""
        states = [state for model in models for state in self.states[model, rate]]
        return sum(state.startswith(beginning) for state in states) / len(states) if states else math.nan


def mean(values: Array, axis: int) -> Array:
    """The mean of what is a number, and not a number where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def standard_error(values: Array, axis: int = 0) -> Array:
    """Standard deviation over the square root of the count, of what is a number; not a number for fewer than two."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        deviation = np.nanstd(values, axis=axis, ddof=1)
    return np.asarray(deviation / np.sqrt(np.maximum(np.isfinite(values).sum(axis=axis), 1)))
