"""What each budget of the studies on sprites spends, and the losses they compare."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from probssl.studies.base import Budget, Config


@dataclass(frozen=True)
class Scale:
    """What a budget spends: every field but `seeds` is part of each configuration."""

    seeds: int
    size: int  # pixels a side
    widths: list[int]  # channels of the convolutions
    hidden: int
    steps: int
    batch: int
    lr: float
    warmup: int
    anneal: str
    grid: list[int]  # values of each factor that are looked at
    rows: int  # of the scores that read codes and factors
    points: int  # of the scores that intervene
    dci: str  # what predicts the factors there

    @property
    def settings(self) -> Config:
        """The part that every configuration carries."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "seeds"}


SCALE: dict[Budget, Scale] = {
    "smoke": Scale(1, 16, [4, 8], 16, 12, 16, 1e-3, 0, "cosine", [3, 3, 6, 4, 4], 300, 60, "forest"),
    "laptop": Scale(
        2, 32, [16, 32, 32], 128, 10_000, 64, 3e-3, 100, "cosine", [3, 6, 40, 32, 32], 10_000, 10_000, "forest"
    ),
    "full": Scale(
        10, 64, [32, 32, 64, 64], 256, 300_000, 64, 1e-4, 0, "constant", [3, 6, 40, 32, 32], 10_000, 10_000, "boosting"
    ),
}
"""`full` is the paper's protocol as far as it and the released code state it."""


@dataclass(frozen=True)
class Loss:
    """L_AU(α, p) on one kind of pairs."""

    transition: str
    alpha: float
    p: float

    @property
    def setting(self) -> str:
        """Its name among the published numbers."""
        return f"{self.transition}, AlignUniform({self.alpha:g}, {self.p:g})"
