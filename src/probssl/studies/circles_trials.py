"""The trainings of `siamese/circles`: the settings of the paper's appendix D, and what is measured of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from probssl.data import Table, load_table
from probssl.encoders import MLP, encode, seeded
from probssl.energies import Euclidean
from probssl.metrics import linear_probe
from probssl.objectives import NCE, SNL, BiasNetwork, Fisher, InfoNCE, Objective
from probssl.pairings import Rotations
from probssl.studies.base import Config, Result
from probssl.training import TrainingPlan, fit_many
from probssl.training import Trial as Training

SIZES = (2, 20, 2)

LOSSES: dict[str, Callable[[], Objective]] = {
    "KL": lambda: InfoNCE(Euclidean()),
    "SNL": lambda: SNL(Euclidean(), bias=BiasNetwork(20, batch_norm=False)).bind(dim=2),
    "NCE": lambda: NCE(Euclidean(), bias=BiasNetwork(20, batch_norm=False)).bind(dim=2),
    "Fisher": lambda: Fisher(Euclidean()),
}
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
            x = inputs(load_table("toy:circles", seed=config["seed"]))
            raw = config["setting"] == "raw features"
            yield config, {**measure(x if raw else encode(_encoder(config), x), config), "curve": [], "collapsed": {}}
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


def _encoder(config: Config) -> MLP:
    """The encoder from which every loss of one seed starts."""
    return seeded(config["seed"], lambda: MLP.of(SIZES))


def training(config: Config) -> Training:
    """One loss from one seed, all rows a step."""
    seed, steps = config["seed"], config["steps"]
    x = inputs(load_table("toy:circles", seed=seed))
    plan = TrainingPlan(
        steps=steps,
        batch_size=len(x),
        lr=0.01,
        objective_lr=0.1,
        warmup=0,
        anneal="constant",
        log_every=max(1, steps // 100),
    )
    return Training(_encoder(config), seeded(seed + 1, LOSSES[config["setting"]]), augmentation(), x, plan, seed)


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
