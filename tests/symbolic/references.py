"""What a constraint computes, by loops over all assignments in Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from probssl.symbolic import Constraint


def slow(constraint: Constraint, logits: Sequence[Tensor]) -> tuple[float, list[np.ndarray], tuple[int, ...]]:
    """Probability, marginals given the constraint, and most probable assignment, of one tuple of predictions [c_k]."""
    p = [torch.softmax(part.detach().double(), -1).numpy() for part in logits]
    total, best = 0.0, (-1.0, ())
    marginals = [np.zeros(len(part)) for part in p]
    for row in itertools.product(*(range(len(part)) for part in p)):
        if bool(constraint.satisfied(torch.tensor(row))):
            chance = math.prod(part[value] for part, value in zip(p, row, strict=True))
            total += chance
            best = max(best, (chance, row), key=lambda found: found[0])
            for marginal, value in zip(marginals, row, strict=True):
                marginal[value] += chance
    return total, [marginal / total for marginal in marginals], best[1]


def random_logits(sizes: Sequence[int], *, rows: int = 3, seed: int = 0, spread: float = 2.0) -> list[Tensor]:
    """Logits [rows, c_k] of each prediction, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return [spread * torch.randn(rows, size, dtype=torch.float64, generator=generator) for size in sizes]
