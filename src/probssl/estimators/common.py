"""What the estimators share: seeds, precision, how training ends, and a score in nats."""

from __future__ import annotations

import copy
import math
import numbers
import warnings
from typing import TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from probssl.energies import Energy
from probssl.errors import CollapseWarning, NonFiniteLoss
from probssl.objectives import InfoNCE
from probssl.pairings import Views
from probssl.training.loop import Fitted
from probssl.training.watch import MEANING

SCORE_ROWS = 1024
"""Most pairs that a score contrasts with one another."""

SCORE_SEED = 0
"""Decides the blocks and the augmentations of every score, so that scores of different estimators compare."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """A whole number as it is; else one drawn from the generator, or from NumPy's own."""
    generator = check_random_state(random_state)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(generator.randint(2**31 - 1))


def in_precision(module: ModuleT, dtype: torch.dtype) -> ModuleT:
    """A copy of a module in another precision."""
    return copy.deepcopy(module).to(dtype)


def information(encoder: nn.Module, energy: Energy, x: Tensor, augmented: Tensor, generator: torch.Generator) -> float:
    """log n − InfoNCE of pairs (x, x̃) [n, ...]: the nats that x̃ tells about x, at most log n.

    Pairs are contrasted within random blocks of near equal size, at most `SCORE_ROWS`, and n is the size of the block,
    so that memory does not grow with n².
    """
    encoder, energy = in_precision(encoder, x.dtype).eval(), in_precision(energy, x.dtype)
    infonce = InfoNCE(energy).eval()
    order = torch.randperm(len(x), generator=generator)
    total = 0.0
    with torch.no_grad():
        for block in order.tensor_split(math.ceil(len(x) / SCORE_ROWS)):
            loss = infonce(encoder, Views(x[block], augmented[block].unsqueeze(0))).total
            total += len(block) * (math.log(len(block)) - loss.item())
    return total / len(x)


def conclude(fitted: Fitted, before: int, advice: str, stacklevel: int) -> None:
    """Raise what ended a training early; warn, with what to try, of a collapse that stands at its end.

    `before` is the number of steps of earlier trainings.
    """
    if fitted.interrupted:
        raise KeyboardInterrupt
    if fitted.failure is not None:
        raise NonFiniteLoss(
            f"training stopped at step {before + fitted.steps} because {fitted.failure}: lower lr, or look "
            "for extreme values"
        )
    for kind, step in fitted.collapsed.items():
        warnings.warn(
            f"training ended in {MEANING[kind]} (since step {before + step}): try {advice}",
            CollapseWarning,
            stacklevel=stacklevel + 1,
        )
