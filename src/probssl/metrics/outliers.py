"""Telling what a model has seen from what it has not: the area under the ROC curve, with an interval."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError


@dataclass(frozen=True)
class Detection:
    """How well a score tells rows inside from rows outside, and between what it lies at the level asked for."""

    auroc: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Plain values for JSON."""
        return asdict(self)


def detection(
    inside: ArrayLike, outside: ArrayLike, *, level: float = 0.95, resamples: int = 500, seed: int = 0
) -> Detection:
    """P(s(inside) > s(outside)) + ½ P(s(inside) = s(outside)) for scores [n] and [m]: 1 is perfect, ½ is chance.

    Below ½ outside rows score higher: a real ordering, not to be flipped. The interval is the bootstrap's, by
    percentiles: rows of both sides resampled with replacement, `resamples` times.
    """
    sides = [np.asarray(side, dtype=np.float64).ravel() for side in (inside, outside)]
    for name, side in zip(("inside", "outside"), sides, strict=True):
        if side.size < 2:
            raise InputError(f"there must be at least two scores {name}, not {side.size}")
        if not np.isfinite(side).all():
            raise InputError(f"scores {name} must be finite")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, not {level:g}")
    values, places = np.unique(np.concatenate(sides), return_inverse=True)
    of_inside, of_outside = places[: sides[0].size], places[sides[0].size :]

    def area(weights: list[np.ndarray]) -> float:
        above, below = (
            np.bincount(where, weights=weight, minlength=len(values))
            for where, weight in zip((of_inside, of_outside), weights, strict=True)
        )
        wins = above * (np.cumsum(below) - below / 2)
        return float(wins.sum() / (above.sum() * below.sum()))

    rng = np.random.default_rng(seed)
    drawn = [
        area([rng.multinomial(side.size, np.full(side.size, 1 / side.size)).astype(float) for side in sides])
        for _ in range(resamples)
    ]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Detection(area([np.ones(side.size) for side in sides]), float(low), float(high))
