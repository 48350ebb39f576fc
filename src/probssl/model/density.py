"""A trained model as a density: how likely rows are, how well that tells what it has not seen, and new rows of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from probssl.encoders import as_floats
from probssl.errors import InputError
from probssl.metrics.outliers import Detection, detection
from probssl.model.model import Model
from probssl.objectives import GEDI, ClusteringObjective

SCORES = {
    "log density": "log p(x) up to a constant",
    "score norm": "−‖∇ₓ log p(x)‖, of the model's inputs",
    "largest probability": "max over clusters of p(y | x)",
}
"""What rows are told apart by, each higher for what the model knows   (GEDI appendix N; Grathwohl et al., 2020)."""

AT_ONCE, IMAGES_AT_ONCE = 4096, 512

Of = Callable[[Tensor], Tensor]
"""What a model says of inputs, a row each."""


def scores(model: Model, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Every score of `SCORES`: [n] each.

    Rows are [n, features] in the columns of the training data, or images [n, channels, height, width].
    """
    objective, encoder = _clustering(model), model.encoder.eval()
    return scores_of(
        lambda x: objective.log_density(encoder, x),
        lambda x: objective.log_probabilities(encoder, x),
        model.inputs(rows),
        at_once=AT_ONCE if rows.ndim == 2 else IMAGES_AT_ONCE,
    )


def scores_of(
    log_density: Of, log_probabilities: Of, inputs: Tensor, *, at_once: int = AT_ONCE
) -> dict[str, np.ndarray]:
    """Every score of `SCORES` from log p(x) up to a constant [n] and log p(y | x) [n, c], for inputs [n, ...].

    Inputs are numbers, or bytes of images, which count as shares of 255.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in SCORES}
    for part in inputs.split(at_once):
        x = as_floats(part).detach().requires_grad_()
        value = log_density(x)
        (slope,) = torch.autograd.grad(value.sum(), x)
        found["log density"].append(value.detach())
        found["score norm"].append(-slope.flatten(1).norm(dim=1))
        with torch.no_grad():
            found["largest probability"].append(log_probabilities(x).exp().amax(-1))
    return {name: torch.cat(parts).double().numpy() for name, parts in found.items()}


@torch.no_grad()
def probabilities(model: Model, features: np.ndarray) -> np.ndarray:
    """p(y | x) of rows [n, features] in the columns of the training data: [n, clusters]."""
    objective = _clustering(model)
    model.encoder.eval()
    parts = model.inputs(features).split(AT_ONCE)
    return torch.cat([objective.log_probabilities(model.encoder, x).double().softmax(-1) for x in parts]).numpy()


def tell_apart(model: Model, inside: np.ndarray, outside: np.ndarray, *, seed: int = 0) -> dict[str, Detection]:
    """How well each score tells rows inside from rows outside."""
    of_inside, of_outside = scores(model, inside), scores(model, outside)
    return {name: detection(of_inside[name], of_outside[name], seed=seed) for name in SCORES}


def sample(model: Model, count: int, *, steps: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """New rows [count, features] in the units of the data, or images [count, …] from 0 to 1, and clusters [count].

    Chains of the training, drawn with replacement, are moved on by `steps` steps of its own dynamics.
    """
    objective = _clustering(model)
    if not isinstance(objective, GEDI):
        raise InputError(
            f"a model trained with {model.resolved.called('objective')} has no chains to sample from: train "
            "with gedi or jem"
        )
    model.encoder.eval()
    x = objective.generate(model.encoder, count, steps, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        clusters = objective.logits(model.encoder, x).argmax(-1)
    return model.in_units(x), clusters.numpy()


def _clustering(model: Model) -> ClusteringObjective:
    if not isinstance(model.objective, ClusteringObjective):
        raise InputError(
            f"a model trained with {model.resolved.called('objective')} has no density: train with gedi, "
            "or with jem for the density alone"
        )
    return model.objective
