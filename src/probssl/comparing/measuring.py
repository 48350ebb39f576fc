"""What is measured of every trained encoder: label-free scores, and a probe where there is a label.

All models of a comparison are measured on the same rows, the same augmentations and the same splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from probssl.comparing.exam import Exam
from probssl.comparing.grid import STRENGTHS
from probssl.encoders import encode
from probssl.energies import Energy
from probssl.errors import InputError
from probssl.metrics import alignment, linear_probe, rankme, uniformity
from probssl.metrics.clid import cluster_learnability, intrinsic_dimension
from probssl.pairings import MaskAndNoise, Pairing

ROWS = {"screening": 1500, "final": 6000}
"""Most rows that a model is probed on, in the early rounds and in the last one."""

LABEL_FREE_ROWS = 1000
"""Most of these rows that the label-free scores are computed on."""

SPLITS = (3, 10)
"""Splits of the probe: more of them where rows are few, and each split says less."""

ITERATIONS = 200


@dataclass(frozen=True)
class Score:
    """A number of a model: +1 where higher is better, −1 where lower is, and what it cannot tell."""

    name: str
    title: str
    sign: int
    about: str


PROBE = Score("probe", "linear probe", 1, "accuracy of a linear classifier on validation rows")
RECOVERED = Score(
    "recovered",
    "augmentations undone",
    1,
    "share of what an augmentation tells about its source that the model reads off, at the best temperature of its "
    "energy: 0 for a constant code, 1 for the exact posterior; more dimensions keep more, useful or not",
)
LABEL_FREE = (
    RECOVERED,
    Score(
        "rankme", "RankMe", 1, "how many dimensions are used; noise has full rank, and more dimensions have more of it"
    ),
    Score("clid", "CLID", 1, "intrinsic dimension and learnability of clusters, relative to the models of the round"),
    Score("alignment", "alignment", -1, "how near augmentations stay on the sphere; perfect for a constant code"),
    Score("uniformity", "uniformity", -1, "how evenly codes spread over the sphere; perfect for noise"),
)
"""Scores that need no label. CLID is relative: it is computed over the models of a round, from its two parts."""

CLID_PARTS = ("intrinsic_dimension", "cluster_learnability")


@dataclass(frozen=True, eq=False)
class Measurer:
    """Rows to measure on [n, d], augmentations of the first of them, their labels if there are any, and the exam."""

    x: Tensor
    partner: Tensor
    labels: np.ndarray | None
    exam: Exam
    seed: int

    @classmethod
    def on(cls, x: Tensor, labels: np.ndarray | None, rows: int, seed: int) -> Measurer:
        """Draw at most `rows` rows, their augmentations and the exam."""
        chance = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(x), generator=chance)[:rows]
        pairings = strengths()
        return cls(
            x[chosen],
            pairings["medium"].sample(x[chosen[:LABEL_FREE_ROWS]], chance),
            None if labels is None else labels[chosen.numpy()],
            Exam.set(x, pairings, seed=seed + 1),
            seed % 2**32,
        )

    @torch.no_grad()
    def measure(self, encoder: nn.Module, energy: Energy | None = None) -> dict[str, float]:
        """The probe where there are labels, and every label-free score; not a number where one is undefined."""
        z = encode(encoder, self.x).numpy()
        if not np.isfinite(z).all():
            return {}
        scores = self.measure_code(z, encode(encoder, self.partner).numpy())
        if energy is not None:
            scores |= self.exam.marks(encoder, energy)
        return scores

    def measure_code(self, z: np.ndarray, partner: np.ndarray) -> dict[str, float]:
        """The scores of representations of the rows and of their augmentations, but for the exam."""
        some = z[: len(partner)]
        found = {
            "rankme": _defined(lambda: rankme(some)),
            "intrinsic_dimension": _defined(lambda: intrinsic_dimension(some, seed=self.seed)),
            "cluster_learnability": _defined(lambda: cluster_learnability(some, seed=self.seed)),
            "alignment": _defined(lambda: alignment(some, partner)),
            "uniformity": _defined(lambda: uniformity(some, seed=self.seed)),
        }
        if self.labels is not None:
            labels = self.labels
            probed = linear_probe(
                z,
                labels,
                splits=self.splits,
                standardise=True,
                solver="whitened",
                iterations=ITERATIONS,
                seed=self.seed,
            )
            return {"probe": probed.mean, **found}
        return found

    @property
    def splits(self) -> int:
        """Splits of the probe."""
        return int(np.clip(2000 // len(self.x), *SPLITS))

    @property
    def protocol(self) -> str:
        """How the scores are computed, in a sentence."""
        probe = f"; probe: logistic regression, {self.splits} stratified splits 80/20, standardised"
        rows = "" if self.labels is None else f"{len(self.x):,} rows{probe}; "
        return f"{rows}label-free scores: {len(self.partner):,} rows; {self.exam.protocol}"


def strengths() -> dict[str, Pairing]:
    """The augmentation of each strength."""
    return {name: MaskAndNoise(*values) for name, values in STRENGTHS.items()}


def _defined(score: Callable[[], float]) -> float:
    try:
        return float(score())
    except InputError:
        return math.nan
