"""A training inside a trial, which ends the trial where it fails."""

from __future__ import annotations

from torch import Tensor, nn

from probssl.errors import NonFiniteLoss
from probssl.objectives import Objective
from probssl.pairings import Pairing
from probssl.pairings.views import Source
from probssl.training import Fitted, Reporter, TrainingPlan, fit


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
