"""A training inside a trial: the last loss, or the error that ends the trial."""

from __future__ import annotations

from torch import Tensor, nn

from probssl.errors import NonFiniteLoss
from probssl.objectives import Objective
from probssl.pairings import Pairing
from probssl.training import TrainingPlan, fit


def last_loss(
    encoder: nn.Module, objective: Objective, pairing: Pairing, x: Tensor, plan: TrainingPlan, *, seed: int
) -> float:
    """Train in place on x and return the last loss that was logged; a loss that is not finite is a `NonFiniteLoss`."""
    fitted = fit(encoder, objective, pairing, x, plan, seed=seed)
    if fitted.interrupted:
        raise KeyboardInterrupt
    if fitted.failure is not None:
        raise NonFiniteLoss(fitted.failure)
    return float(next(row["loss"] for row in reversed(fitted.history) if "loss" in row))
