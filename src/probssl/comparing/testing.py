"""The number that is reported: a probe on rows that no encoder trained on and no choice was made by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from probssl.comparing.measuring import ITERATIONS
from probssl.encoders import encode
from probssl.metrics._logistic import fit_whitened


@dataclass(frozen=True, eq=False)
class Answers:
    """Accuracy on the held-out rows, and which of them were right: [n]."""

    correct: np.ndarray

    @property
    def accuracy(self) -> float:
        """Share of rows that were right."""
        return float(self.correct.mean())

    def ahead_of(self, other: Answers) -> Difference:
        """By how much it is better than another on the same rows."""
        apart = self.correct.astype(float) - other.correct.astype(float)
        error = float(apart.std(ddof=1) / math.sqrt(len(apart))) if len(apart) > 1 else math.inf
        return Difference(float(apart.mean()), error)


@dataclass(frozen=True)
class Difference:
    """A difference of accuracies on the same rows, with the standard error of its mean over rows."""

    mean: float
    error: float

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors, and so unlikely to be chance."""
        return abs(self.mean) > 2 * self.error

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"mean": self.mean, "error": self.error}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows and labels that a probe is fitted on, and those that it is tested on."""

    x: Tensor
    labels: np.ndarray
    test_x: Tensor
    test_labels: np.ndarray

    def test(self, encoder: nn.Module) -> Answers:
        """Fit the probe of the comparison on the development rows and predict the test rows.

        Logistic regression (L2 penalty, C = 1) on representations standardised by the rows it is fitted on.
        """
        z, test_z = (encode(encoder, rows).numpy().astype(np.float64) for rows in (self.x, self.test_x))
        mean, spread = z.mean(0), z.std(0)
        spread[z.max(0) == z.min(0)] = 1.0
        probe = fit_whitened((z - mean) / spread, self.labels, ITERATIONS)
        return Answers(probe.predict(np.nan_to_num((test_z - mean) / spread)) == self.test_labels)

    def largest_class(self) -> Answers:
        """Always the class that is most frequent in the development rows: what a constant code reaches."""
        most = np.bincount(self.labels).argmax()
        return Answers(self.test_labels == most)
