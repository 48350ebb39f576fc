"""Standard scaling: every feature to mean 0 and variance 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from probssl.data.wording import plural
from probssl.errors import InputError


@dataclass(frozen=True, eq=False)
class Standardiser:
    """z = (x − mean) / scale, column by column; `scale` is the standard deviation (ddof 0).

    A constant column has its value as mean and scale 1, so that it becomes exactly 0.
    """

    mean: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        for name in ("mean", "scale"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        if self.mean.ndim != 1 or self.mean.shape != self.scale.shape:
            raise InputError(
                f"a standardiser needs as many means as scales, not shapes {self.mean.shape} and {self.scale.shape}"
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.scale).all() and (self.scale > 0).all()):
            raise InputError("a standardiser needs finite means and finite, positive scales")

    @classmethod
    def fit(cls, array: ArrayLike) -> Standardiser:
        """Mean and standard deviation of every column of an array [n, d] with n ≥ 1, gaps (NaN) left out."""
        x = np.asarray(array, dtype=np.float64)
        if x.ndim != 2 or len(x) == 0:
            raise InputError(f"standardising needs rows and columns, not an array of shape {x.shape}")
        gaps = np.isnan(x)
        if gaps.any():
            there = (of[~missing] for of, missing in zip(x.T, gaps.T, strict=True))
            each = [cls.fit(values[:, None] if len(values) else np.zeros((1, 1))) for values in there]
            return cls(*(np.concatenate([getattr(one, name) for one in each]) for name in ("mean", "scale")))
        if not np.isfinite(x).all():
            column = int(np.flatnonzero(~np.isfinite(x).all(axis=0))[0]) + 1
            raise InputError(f"column {column} has values that are not finite: standardising needs finite ones")
        constant = x.min(axis=0) == x.max(axis=0)
        # divided by the largest magnitude first, so that squares neither overflow nor vanish
        peak = np.abs(x).max(axis=0)
        peak[peak == 0] = 1.0
        mean = np.where(constant, x[0], peak * (x / peak).mean(axis=0))
        with np.errstate(over="ignore"):
            centred = x - mean
        spread = np.abs(centred).max(axis=0)
        spread[constant] = 1.0
        if not np.isfinite(spread).all():
            column = int(np.flatnonzero(~np.isfinite(spread))[0]) + 1
            raise InputError(f"the values of column {column} lie too far apart to standardise: rescale them")
        deviation = spread * np.sqrt(np.square(centred / spread).mean(axis=0))
        scale = np.where(constant, 1.0, np.maximum(deviation, np.finfo(np.float64).tiny))
        return cls(mean, scale)

    def transform(self, array: ArrayLike) -> np.ndarray:
        """Standardised copy of an array [n, d]."""
        return (self._checked(array) - self.mean) / self.scale

    def inverse(self, array: ArrayLike) -> np.ndarray:
        """What `transform` was given, from what it returned."""
        return self._checked(array) * self.scale + self.mean

    def as_dict(self) -> dict[str, np.ndarray]:
        """The two arrays by name; `Standardiser(**arrays)` is the way back."""
        return {"mean": self.mean.copy(), "scale": self.scale.copy()}

    def _checked(self, array: ArrayLike) -> np.ndarray:
        x = np.asarray(array, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            found = plural(x.shape[1], "column") if x.ndim == 2 else f"shape {x.shape}"
            raise InputError(f"the array has {found} where the standardiser expects {plural(len(self.mean), 'column')}")
        return x
