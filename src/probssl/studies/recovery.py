"""Training on a world while watching its latents come back: what the studies of identifiability share."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from probssl.encoders import LatentEncoder, encode, seeded
from probssl.energies import Anisotropic
from probssl.metrics import LinearR2, linear_r2
from probssl.objectives import Ensemble, Objective
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of, where
from probssl.studies.fitting import finished
from probssl.training import Reporter, TrainingPlan
from probssl.worlds import InvertibleMLP, World

FIT_ROWS, TEST_ROWS = 5_000, 5_000
"""Rows that the affine map from codes to latents is fitted on, and fresh ones that it is judged by."""

POINTS = 24
"""How often a training is looked at."""


class RecoveryStudy(Study):
    """A study whose trials each train for a while on a world: one trial a unit of work, the longest first."""

    steps: ClassVar[Mapping[Budget, int]]
    seeds: ClassVar[Mapping[Budget, int]]
    measures: ClassVar[Mapping[str, str]] = {}
    """Name in a result -> metric; a row has every measure that the trials of its setting have."""

    def settings(self, budget: Budget) -> Mapping[str, Config]:
        """Name of a setting -> all that decides its trials, but for steps and seed."""
        raise NotImplementedError(f"{type(self).__name__} writes neither settings nor configs")

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {"setting": name, **setting, "steps": self.steps[budget], "seed": seed}
            for seed in range(self.seeds[budget])
            for name, setting in self.settings(budget).items()
        ]

    def cost(self, config: Config) -> float:
        """About how long a trial takes, in any unit."""
        return float(config.get("steps", 1))

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for setting in dict.fromkeys(config["setting"] for config, _ in results):
            for name, metric in self.measures.items():
                values = [found[name] for found in where(results, setting=setting) if found.get(name) is not None]
                if values:
                    rows.append(row_of(self.name, setting, metric, values, of_one=0.0))
        return rows


class Watch(Reporter):
    """Measures at every row of the log how much of the latents an affine map finds in the codes."""

    def __init__(
        self,
        world: World,
        encoder: nn.Module,
        objective: Objective,
        groups: Mapping[str, Sequence[int]] | None,
        seed: int,
    ) -> None:
        self.encoder, self.objective, self.groups = encoder, objective, groups
        self.rows = observed(world, seed)
        self.curve: list[dict[str, Any]] = []
        self.measuring = 0.0
        self.started = time.process_time()

    def seconds(self) -> float:
        """Processor time since the beginning, but for the measurements."""
        return time.process_time() - self.started - self.measuring

    def row(self, numbers: dict[str, float]) -> None:
        seconds, started = self.seconds(), time.process_time()
        point = {"step": numbers["step"], "seconds": round(seconds, 3), "loss": numbers.get("loss"), **self.scores()}
        self.curve.append(point)
        self.measuring += time.process_time() - started

    def scores(self) -> dict[str, Any]:
        """R², of all latents and of each group, and the concentrations where they are learnt."""
        found = recovered(self.encoder, self.rows, self.groups)
        return {"r2": found.mean, **found.groups, **learnt(self.objective)}


def observed(world: World, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Observations and latents that an affine map is fitted on, and others that it is judged by."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    return [world.observe(rows, generator) for rows in (FIT_ROWS, TEST_ROWS)]


def recovered(
    encoder: nn.Module, rows: Sequence[tuple[Tensor, Tensor]], groups: Mapping[str, Sequence[int]] | None = None
) -> LinearR2:
    """R² of the latents by an affine map of the codes."""
    (codes, z), (test_codes, test_z) = ((encode(encoder, x).numpy(), latents.numpy()) for x, latents in rows)
    return linear_r2(codes, z, groups=groups, test=(test_codes, test_z))


def learnt(objective: Objective) -> dict[str, Any]:
    """The concentrations that an objective has learnt, one list for AnInfoNCE and several for an ensemble of it."""
    if isinstance(objective, Ensemble):
        parts = [learnt(part) for part in objective.objectives if isinstance(part, Objective)]
        return {"concentrations": [part["concentrations"] for part in parts]}
    if isinstance(objective.energy, Anisotropic):
        return {"concentrations": objective.energy.concentration.tolist()}
    return {}


def recover(
    world: World,
    encoder: nn.Module,
    objective: Objective,
    plan: TrainingPlan,
    *,
    seed: int,
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Result:
    """Train, and say how much of the latents came back: the last scores, the whole curve, and the processor time."""
    watch = Watch(world, encoder, objective, groups, seed)
    finished(encoder, objective, world, None, plan, seed=seed, reporter=watch)
    return {**watch.scores(), "loss": watch.curve[-1]["loss"], "seconds": watch.seconds(), "curve": watch.curve}


def plan(steps: int, batch_size: int, rate: float, **more: Any) -> TrainingPlan:
    """Adam with a warm-up and a half cosine, looked at `POINTS` times."""
    chosen: dict[str, Any] = {"warmup": min(300, steps // 10), "log_every": max(10, steps // POINTS), **more}
    return TrainingPlan(steps=steps, batch_size=batch_size, lr=rate, **chosen)


def encoder_for(world: World, hidden: Sequence[int], *, sphere: bool, seed: int) -> nn.Module:
    """An encoder of a world's observations into as many numbers as it has latents, from the seed."""
    sample, _ = world.observe(20_000, torch.Generator().manual_seed(20_000 + seed))
    encoder = LatentEncoder(hidden, world.dim, sphere=sphere)
    return seeded(seed, lambda: encoder.bind(shape=tuple(sample.shape[1:]), sample=sample))


@functools.cache
def mixing(dim: int, seed: int) -> InvertibleMLP:
    """The papers' mixing of a seed: three layers, leaky ReLU 0.2, each the best conditioned of 25,000."""
    return InvertibleMLP(dim, seed=seed)


def raw_score(world: World, seed: int) -> float:
    """R² of the observations themselves: how nonlinear the mixing is."""
    return recovered(nn.Flatten(), observed(world, seed)).mean


def first_seconds(curve: Sequence[Mapping[str, Any]], target: float) -> float | None:
    """Processor time at which the curve first stands at a target R² or above, interpolated between looks."""
    if curve[0]["r2"] >= target:
        return float(curve[0]["seconds"])
    for before, after in pairwise(curve):
        if after["r2"] >= target:
            scores, seconds = ([point[name] for point in (before, after)] for name in ("r2", "seconds"))
            return float(np.interp(target, scores, seconds))
    return None
