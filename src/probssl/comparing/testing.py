"""The number that is reported: a score on rows that no encoder trained on and no choice was made by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from probssl.comparing.exam import Exam
from probssl.comparing.measuring import ITERATIONS
from probssl.encoders import encode
from probssl.energies import Energy
from probssl.metrics._held_out import affine_fit
from probssl.metrics._logistic import fit_whitened
from probssl.metrics._splits import standardised
from probssl.metrics.paired import Difference, difference
from probssl.model.observations import Observations


@dataclass(frozen=True, eq=False)
class Marks:
    """A score as the mean of what every row adds to it: [n]."""

    each: np.ndarray

    @property
    def mean(self) -> float:
        """The score."""
        return float(self.each.mean())

    def ahead_of(self, other: Marks) -> Difference:
        """By how much it is better than another on the same rows."""
        return difference(self.each[None].astype(float), other.each[None].astype(float))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that a reader of the representation is fitted on, and those that it is tested on."""

    fitting: Observations
    judged: Observations
    exam: Exam
    """Of rows that are judged by."""

    def test(self, encoder: nn.Module, energy: Energy) -> Marks:
        """The score by which configurations were chosen, on the other rows.

        The probe is logistic regression (L2 penalty, C = 1) on representations standardised by the rows it is fitted
        on, right or wrong in each row. Of latents z, R² is the mean over rows of 1 − mean_j (z_j − ẑ_j)² / Var z_j.
        Without either, what each question of the exam adds.
        """
        labels, latents = self.fitting.labels, self.fitting.latents
        if latents is None and labels is None:
            return Marks(np.concatenate([found.numpy() for found in self.exam.shares(encoder, energy).values()]))
        fitting, judged = (encode(encoder, rows.x).numpy().astype(float) for rows in (self.fitting, self.judged))
        if latents is not None:
            assert self.judged.latents is not None
            weights, offset = affine_fit(fitting, latents)
            wrong = (self.judged.latents - judged @ weights - offset) ** 2 / self.judged.latents.var(0)
            return Marks(1 - wrong.mean(1))
        assert labels is not None
        fitting, judged = standardised(fitting, judged)
        probe = fit_whitened(fitting, labels, ITERATIONS)
        return Marks(probe.predict(np.nan_to_num(judged)) == self.judged.labels)

    def largest_class(self) -> Marks:
        """Always the class that is most frequent in the development rows: what a constant code reaches."""
        assert self.fitting.labels is not None
        assert self.judged.labels is not None
        return Marks(self.judged.labels == np.bincount(self.fitting.labels).argmax())
