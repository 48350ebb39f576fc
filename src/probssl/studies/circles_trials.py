"""The trainings of `siamese/circles`: the settings of the paper's appendix D, and what is measured of each."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from probssl.data import Table, load_table
from probssl.encoders import encode
from probssl.metrics import linear_probe
from probssl.model import facts_of
from probssl.objectives.normalised import Biased
from probssl.pairings import Rotations
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import Resolved, resolve
from probssl.studies.base import Config, Result
from probssl.training import TrainingPlan, fit_many
from probssl.training import Trial as Training

LOSSES = {"KL": "infonce", "SNL": "snl", "NCE": "nce", "Fisher": "fisher"}
"""Name in the paper -> objective."""

METRICS = ("linear probe", "two-means")
BASELINES = ("raw features", "untrained encoder")


def augmentation() -> Rotations:
    """Rotate by −90°, 0° or 90°, then add noise of standard deviation 0.1."""
    return Rotations((-90, 0, 90), 0.1)


def inputs(table: Table) -> torch.Tensor:
    """The circles as they are, without standardising."""
    return torch.from_numpy(table.features.astype(np.float32))


def run_batch(configs: list[Config]) -> Iterator[tuple[Config, Result]]:
    """Measure the baselines, train all losses as one, and see how well the circles come apart in each code."""
    for config in configs:
        if config["setting"] in BASELINES:
            start = training(config)
            z = start.data if config["setting"] == "raw features" else encode(start.encoder, start.data)
            yield config, {**measure(z, config), "curve": [], "collapsed": {}}
    trained = [config for config in configs if config["setting"] in LOSSES]
    trainings = [training(config) for config in trained]
    for config, one, fitted in zip(trained, trainings, fit_many(trainings), strict=True):
        if fitted.interrupted:
            raise KeyboardInterrupt
        found: Result = {
            "curve": [(row["step"], row["loss"]) for row in fitted.history if "loss" in row],
            "collapsed": fitted.collapsed,
        }
        if fitted.failure is None:
            found |= measure(encode(one.encoder, one.data), config)
        else:  # a loss that cannot be trained has separated nothing
            found |= {"numbers": dict.fromkeys(METRICS, math.nan), "z": one.data.numpy()}
        yield config, found


def training(config: Config) -> Training:
    """One loss from one seed (KL where nothing is trained), all rows a step."""
    seed, steps = config["seed"], config["steps"]
    table = load_table("toy:circles", seed=seed)
    recipe = Recipe(objective=LOSSES.get(config["setting"], LOSSES["KL"]), energy="euclidean", seed=seed)
    return prepared(recipe, table, plan(steps, len(table), max(1, steps // 100)))


def prepared(recipe: Recipe, table: Table, plan: TrainingPlan) -> Training:
    """A recipe with the encoder and the bias networks of the paper, for these circles."""
    made = on_circles(recipe, facts_of(table)).bind()
    return Training(made.encoder, made.objective, augmentation(), inputs(table), plan, recipe.seed)


def on_circles(recipe: Recipe, facts: Facts) -> Resolved:
    """MLP 2-20-2; where an objective has a bias network, 20 hidden units without batch normalisation."""
    chosen = recipe.with_settings({"encoder.hidden": (20,), "encoder.dim": 2})
    found = resolve(chosen, facts)
    if not isinstance(found.objective, Biased):
        return found
    bias = {"name": "network", "hidden": 20, "batch_norm": False}
    return resolve(chosen.with_settings({"objective.bias": bias}), facts)


def plan(steps: int, rows: int, log_every: int) -> TrainingPlan:
    """All rows a step, constant rates."""
    return TrainingPlan(steps, rows, lr=0.01, objective_lr=0.1, warmup=0, anneal="constant", log_every=log_every)


def measure(z: torch.Tensor, config: Config) -> Result:
    """The code and how well the circles come apart in it."""
    table = load_table("toy:circles", seed=config["seed"])
    assert table.labels is not None
    array = z.numpy()
    numbers = {
        "linear probe": linear_probe(array, table.labels, seed=config["seed"]).mean,
        "two-means": two_means_agreement(array, table.labels),
    }
    return {"numbers": numbers, "z": array}


def two_means_agreement(z: np.ndarray, labels: np.ndarray) -> float:
    """Share of points that k-means with two clusters puts with their circle, under the better naming of clusters.

    Range [0.5, 1].
    """
    from sklearn.cluster import KMeans

    clusters = KMeans(2, n_init=10, random_state=0).fit_predict(z)
    share = float((clusters == labels).mean())
    return max(share, 1 - share)
