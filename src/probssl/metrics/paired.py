"""How much better one representation is than another, by the same rows and draws, with a standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from probssl.metrics._inputs import Array

CLEAR = 2.0
"""Standard errors beyond which a difference is unlikely to be chance."""


@dataclass(frozen=True)
class Difference:
    """A difference of scores on the same rows, with the standard error of its mean."""

    mean: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors, and so unlikely to be chance."""
        return abs(self.mean) > CLEAR * self.error

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"mean": self.mean, "error": self.error}

    def __str__(self) -> str:
        digits = 3 if self.error < 0.01 else 2
        return f"{abs(self.mean):.{digits}f} ± {self.error:.{digits}f}"


def difference(one: Array, other: Array) -> Difference:
    """The mean of d = one − other, [draws, rows], NaN where a draw did not judge a row.

    Rows and draws are both chance. With e = d − mean d over the N that are known,
    SE² = (Σ_row (Σ_draw e)² + Σ_draw (Σ_row e)²) / N², each outer sum over k rows or draws times k / (k − 1). With one
    draw it is the paired standard error over rows.
    """
    apart = one - other
    known = np.isfinite(apart)
    count = int(known.sum())
    if not count:
        return Difference(math.nan, math.nan)
    mean = float(apart[known].mean())
    errors = np.where(known, apart - mean, 0.0)
    variance, groups = 0.0, 0
    for axis in (0, 1):
        sums = errors.sum(axis=axis)[known.any(axis=axis)]
        if len(sums) > 1:
            variance += float(np.square(sums).sum()) * len(sums) / (len(sums) - 1)
            groups += 1
    return Difference(mean, math.sqrt(variance) / count if groups else math.inf)
