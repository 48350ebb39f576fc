"""The trainings of `siamese/linear-theory`: one linear encoder a case and seed, and how far it is from theory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from probssl.encoders import MLP, seeded
from probssl.energies import Asymmetric, Euclidean
from probssl.objectives import (
    NCE,
    SNL,
    BiasNetwork,
    ChiSquared,
    Fisher,
    InfoNCE,
    JensenShannon,
    Objective,
    RenyiInfoNCE,
    SlicedFisher,
)
from probssl.studies.base import Config, Result
from probssl.studies.linear_cases import Case, cases
from probssl.training import TrainingPlan, fit_many
from probssl.training import Trial as Training

LOSSES: dict[str, Callable[[int], Objective]] = {
    "Fisher": lambda m: Fisher(),
    "sliced Fisher": lambda m: SlicedFisher(),
    "KL": lambda m: InfoNCE(Euclidean()),
    "NCE": lambda m: NCE(bias=LogNormaliser(m)),
    "SNL": lambda m: SNL(bias=LogNormaliser(m)),
    "SNL, quadratic bias": lambda m: SNL(bias=LogNormaliser(m, network=False)),
    "Rényi 2": lambda m: RenyiInfoNCE(Euclidean(), order=2.0),
    "χ²": lambda m: ChiSquared(Euclidean()),
    "Jensen–Shannon": lambda m: JensenShannon(Euclidean()).bind(),
}


class LogNormaliser(nn.Module):
    """λ(z) = c + bᵀz + zᵀAz, which log Z is for Gaussian data, and a small network for what it is beyond that."""

    def __init__(self, dim: int, *, network: bool = True) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.zeros(()))
        self.linear = nn.Parameter(torch.zeros(dim))
        self.quadratic = nn.Parameter(torch.zeros(dim, dim))
        self.network = BiasNetwork(32, batch_norm=False).bind(dim=dim) if network else None
        if self.network is not None:
            nn.init.zeros_(self.network.outer.weight)

    def forward(self, embedding: Tensor) -> Tensor:
        value = self.constant + embedding @ self.linear + ((embedding @ self.quadratic) * embedding).sum(-1)
        return value if self.network is None else value + self.network(embedding)


Task = tuple[Case, int, int, int]
"""A case, a seed, steps, and the size of a batch."""


def run_batch(configs: list[Config]) -> Iterator[tuple[Config, Result]]:
    """Train what the configurations name."""
    tasks: list[Task] = []
    for c in configs:
        (case,) = (case for case in cases(c["batch_size"]) if case.name == c["case"])
        tasks.append((case, c["seed"], c["steps"], c["batch_size"]))
    yield from zip(configs, train_all(tasks), strict=True)


def train(case: Case, seed: int, steps: int, batch_size: int) -> Result:
    """Train one case from one seed and compare it with theory."""
    return next(train_all([(case, seed, steps, batch_size)]))


def train_all(tasks: list[Task]) -> Iterator[Result]:
    """WᵀW, its distance from theory, and the loss of several trainings together, each as if alone."""
    trainings = [_training(*task) for task in tasks]
    for (case, *_), training, fitted in zip(tasks, trainings, fit_many(trainings), strict=True):
        if fitted.interrupted:
            raise KeyboardInterrupt
        weight = training.encoder[0].weight.detach().double().numpy()  # type: ignore[index]
        gram = np.asarray(weight.T @ weight)
        error = float(np.linalg.norm(gram - case.gram) / (np.linalg.norm(case.gram) or 1.0))
        yield {"gram": gram, "error": error, "value": None if case.value is None else case.value(gram)}


def _training(case: Case, seed: int, steps: int, batch_size: int) -> Training:
    x = torch.from_numpy(case.data(seed)).float()
    encoder = seeded(seed, lambda: MLP.of([x.shape[1], case.outputs], bias=False))
    objective = seeded(seed + 1, lambda: LOSSES[case.loss](case.outputs))
    if case.asymmetric:
        other = seeded(seed + 2, lambda: MLP.of([x.shape[1], case.outputs]))
        objective = Fisher(Asymmetric(Euclidean(), by="encoder", network=other))
    rate = 0.05
    plan = TrainingPlan(steps=steps, batch_size=batch_size, lr=rate, objective_lr=rate, warmup=0, log_every=steps)
    return Training(encoder, objective, case.pairing(), x, plan, seed)
