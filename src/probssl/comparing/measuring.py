"""What is measured of every trained encoder: label-free scores, and how well labels or latents can be read off.

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
from probssl.encoders import encode
from probssl.energies import Energy
from probssl.errors import InputError
from probssl.metrics import alignment, linear_probe, linear_r2, mcc, rankme, uniformity
from probssl.metrics.clid import cluster_learnability, intrinsic_dimension
from probssl.model.observations import Observations
from probssl.runs.evaluation import Ground

ROWS = {"screening": 1500, "final": 6000}
"""Most rows that labels or latents are read off, in the early rounds and in the last one."""

LABEL_FREE_ROWS = 1000
"""Most of these rows that the label-free scores are computed on."""

SPLITS = (3, 10)
"""Splits of the probe: more of them where rows are few, and each split says less."""

ITERATIONS = 200


Augmented = Callable[[Observations], dict[str, Ground]]
"""From rows to how they are augmented, in every way that is compared."""


@dataclass(frozen=True)
class Score:
    """A number of a model: +1 where higher is better, −1 where lower is, and what it cannot tell."""

    name: str
    title: str
    sign: int
    about: str
    short: str = ""
    """The title in a narrow column."""


PROBE = Score("probe", "linear probe", 1, "accuracy of a linear classifier on validation rows", "probe")
R2 = Score("r2", "linear R²", 1, "share of the variance of the latents that is an affine function of the code", "R²")
MCC = Score("mcc", "MCC", 1, "correlation of every latent with one dimension of the code, on average")
RECOVERED = Score(
    "recovered",
    "augmentations undone",
    1,
    "share of what an augmentation tells about its source that the model reads off, at the best temperature of its "
    "energy: 0 for a constant code, 1 for the exact posterior; more dimensions keep more, useful or not",
    "undone",
)
LABEL_FREE = (
    RECOVERED,
    Score(
        "rankme", "RankMe", 1, "how many dimensions are used; noise has full rank, and more dimensions have more of it"
    ),
    Score("clid", "CLID", 1, "intrinsic dimension and learnability of clusters, relative to the models of the round"),
    Score(
        "alignment", "alignment", -1, "how near augmentations stay on the sphere; perfect for a constant code", "align"
    ),
    Score("uniformity", "uniformity", -1, "how evenly codes spread over the sphere; perfect for noise", "unif"),
)
"""Scores that need no label. CLID is relative: it is computed over the models of a round, from its two parts."""

CLID_PARTS = ("intrinsic_dimension", "cluster_learnability")


def scores_of(observed: Observations) -> tuple[Score, ...]:
    """The scores of models of such data; the first is what they are chosen by."""
    if observed.latents is not None:
        return (R2, MCC, *LABEL_FREE)
    return LABEL_FREE if observed.labels is None else (PROBE, *LABEL_FREE)


@dataclass(frozen=True, eq=False)
class Measurer:
    """Rows to measure on, augmentations of the first of them, and the exam."""

    rows: Observations
    partner: Tensor
    exam: Exam
    seed: int

    @classmethod
    def on(
        cls, observed: Observations, ground: Callable[[Observations], dict[str, Ground]], rows: int, seed: int
    ) -> Measurer:
        """Draw at most `rows` rows, their augmentations and the exam; `ground` says how rows are augmented."""
        some = observed.some(rows, seed)
        grounds = ground(some.take(np.arange(min(LABEL_FREE_ROWS, len(some)))))
        usual = grounds.get("medium", next(iter(grounds.values())))
        partner = usual.observe(usual.pairing.sample(usual.rows, torch.Generator().manual_seed(seed)))
        return cls(some, partner, Exam.set(grounds, seed=seed + 1), seed % 2**32)

    @torch.no_grad()
    def measure(self, encoder: nn.Module, energy: Energy) -> dict[str, float]:
        """Every score that applies, not a number where one is undefined; nothing if a representation is not finite."""
        z = encode(encoder, self.rows.x).numpy()
        if not np.isfinite(z).all():
            return {}
        partner, some = encode(encoder, self.partner).numpy(), z[: len(self.partner)]
        found = {
            "rankme": _defined(lambda: rankme(some)),
            "intrinsic_dimension": _defined(lambda: intrinsic_dimension(some, seed=self.seed)),
            "cluster_learnability": _defined(lambda: cluster_learnability(some, seed=self.seed)),
            "alignment": _defined(lambda: alignment(some, partner)),
            "uniformity": _defined(lambda: uniformity(some, seed=self.seed)),
            **self.exam.marks(encoder, energy),
        }
        latents, labels = self.rows.latents, self.rows.labels
        if latents is not None:
            return {
                "r2": _defined(lambda: linear_r2(z, latents, seed=self.seed).mean),
                "mcc": _defined(lambda: mcc(z, latents).value),
                **found,
            }
        return found if labels is None else {"probe": self._probed(z, labels), **found}

    def _probed(self, z: np.ndarray, labels: np.ndarray) -> float:
        return linear_probe(
            z,
            labels,
            splits=self.splits,
            standardise=True,
            solver="whitened",
            iterations=ITERATIONS,
            seed=self.seed,
        ).mean

    @property
    def splits(self) -> int:
        """Splits of the probe."""
        return int(np.clip(2000 // len(self.rows), *SPLITS))

    @property
    def protocol(self) -> str:
        """How the scores are computed, in a sentence."""
        truth = ""
        if self.rows.latents is not None:
            truth = f"{len(self.rows):,} rows; R²: an affine fit, a fifth of them held out; "
        elif self.rows.labels is not None:
            splits = f"{self.splits} stratified splits 80/20, standardised"
            truth = f"{len(self.rows):,} rows; probe: logistic regression, {splits}; "
        return f"{truth}label-free scores: {len(self.partner):,} rows; {self.exam.protocol}"


def _defined(score: Callable[[], float]) -> float:
    try:
        return float(score())
    except InputError:
        return math.nan
