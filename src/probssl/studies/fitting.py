"""A training inside a trial, which ends the trial where it fails, and weights that several studies share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from probssl.data.directory import cache_directory
from probssl.errors import CheckpointError, NonFiniteLoss
from probssl.grids import keys
from probssl.objectives import Objective
from probssl.pairings import Pairing
from probssl.pairings.views import Source
from probssl.studies.base import Config
from probssl.training import Fitted, Reporter, TrainingPlan, fit
from probssl.training.checkpoints import gather, restore
from probssl.training.files import load_tensors, save_tensors


def finished(
    encoder: nn.Module,
    objective: Objective,
    pairing: Pairing | Source,
    x: Tensor | None,
    plan: TrainingPlan,
    *,
    seed: int,
    reporter: Reporter | None = None,
) -> Fitted:
    """Train in place to the end, on x or by a source; a loss that is not finite is a `NonFiniteLoss`."""
    fitted = fit(encoder, objective, pairing, x, plan, seed=seed, reporter=reporter)
    if fitted.interrupted:
        raise KeyboardInterrupt
    if fitted.failure is not None:
        raise NonFiniteLoss(fitted.failure)
    return fitted


def last_loss(
    encoder: nn.Module, objective: Objective, pairing: Pairing, x: Tensor, plan: TrainingPlan, *, seed: int
) -> float:
    """The same; returns the last loss that was logged."""
    history = finished(encoder, objective, pairing, x, plan, seed=seed).history
    return float(next(row["loss"] for row in reversed(history) if "loss" in row))


def trained_once(
    kind: str, config: Config, code: str, modules: Mapping[str, nn.Module], train: Callable[[], float]
) -> float:
    """The last loss of `train`, which trains the modules in place; weights of the cache take its place where they are.

    They lie in `models/` of the user's cache directory, under a name that the kind of model, its configuration and the
    version of the code decide, so that several experiments ask for the same ones.
    """
    path = cache_directory() / "models" / f"{keys.key_of(kind, config, code)}.safetensors"
    with contextlib.suppress(CheckpointError):
        tensors, told = load_tensors(path)
        for name, module in modules.items():
            restore(module, name, tensors)
        return float(told["loss"])
    loss = train()
    weights: dict[str, Any] = {}
    for name, module in modules.items():
        weights |= gather(name, module.state_dict())
    with contextlib.suppress(OSError):
        save_tensors(path, weights, {"loss": loss, "config": config})
    return loss
