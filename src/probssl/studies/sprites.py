"""Disentangling rendered sprites by alignment and uniformity: the image experiments of CL-ICA (A.6, Tables 2 to 5).

Pairs of images differ in some of five factors. An encoder of ten codes is trained by L_AU(α, p) on pairs alone, and six
scores ask whether each factor has found a code of its own. The images are drawn by formula, not those of dSprites. The
last experiment is on masks of pedestrians in videos, for whoever has the published file.
"""

from __future__ import annotations

import dataclasses
import statistics
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from probssl.data.directory import data_directory, find
from probssl.errors import InputError
from probssl.studies import sprites_page, sprites_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study
from probssl.studies.comparison import references, verdict
from probssl.studies.page import Page
from probssl.studies.sprites_trials import BASELINES, COMPONENTS, SCORES, UNTRAINED


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


class PairsStudy(Study):
    """Shared by the studies of L_AU on pairs of images: every published setting and every baseline has its rows."""

    metrics: ClassVar[tuple[str, ...]]
    baselines: ClassVar[tuple[str, ...]]
    code = ("probssl.studies.sprites_trials",)

    @abstractmethod
    def cases(self) -> list[Config]:
        """What differs between the settings: the configurations of a seed, without what the budget decides."""

    def configs(self, budget: Budget) -> list[Config]:
        scale = SCALE[budget]
        return [{**case, "seed": seed, **scale.settings} for seed in range(scale.seeds) for case in self.cases()]

    def comparable(self, metric: str, budget: Budget) -> bool:
        """Whether a number of ours may be set beside a published one."""
        return True

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        known = references(self.name)
        rows = []
        for setting in (*dict.fromkeys(setting for setting, _ in known), *self.baselines):
            for metric in self.metrics:
                values = sprites_page.numbers(results, setting, metric)
                target = known.get((setting, metric))
                if not values and target is None:
                    continue
                mean = statistics.mean(values) if values else None
                spread = statistics.stdev(values) if len(values) > 1 else 0.0 if values else None
                judged = verdict(mean, spread, len(values), target if self.comparable(metric, budget) else None)
                rows.append(Row(setting, metric, mean, spread, None if target is None else target.value, judged))
        return rows


class Sprite(PairsStudy):
    """Shared by the studies on sprites: a subclass lists its losses and what it may be compared with."""

    losses: ClassVar[tuple[Loss, ...]]
    metrics = (*SCORES, "MCC", "linear R²")
    baselines = BASELINES

    def cases(self) -> list[Config]:
        trained = [{"setting": loss.setting, **dataclasses.asdict(loss)} for loss in self.losses]
        return [*trained, *({"setting": name, "transition": None} for name in BASELINES)]

    def trial(self, config: Config) -> Result:
        return sprites_trials.trial(config)

    def comparable(self, metric: str, budget: Budget) -> bool:
        return metric != "DCI" or SCALE[budget].dci == "boosting"  # importances of other models are other numbers

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        return sprites_page.page(self, results, rows, SCALE[budget].settings)


class Sprites(Sprite):
    """Table 2: Laplace and uniform transitions of the five factors of dSprites."""

    name = "identify/sprites"
    paper = "CL-ICA, A.6 and Table 2"
    claim = "scores rise with the weight of uniformity; with Laplace transitions the BetaVAE score reaches 100 %"
    laptop = "about 45 min"
    losses = (
        Loss("UNI", 0.9999, 1),
        Loss("UNI", 0.9, 1),
        Loss("LAP", 0.999, 1),
        Loss("LAP", 0.99, 1),
        Loss("LAP", 0.9, 1),
    )


class NaturalSprites(Sprite):
    """Tables 3 and 4, on transitions that are like natural ones and not measured from any video."""

    name = "identify/natural-sprites"
    paper = "CL-ICA, A.6, Tables 3 and 4"
    claim = "p = 1 disentangles better than p = 2, on and between the grids (natural-like transitions, not YouTube-VOS)"
    laptop = "about 45 min"
    losses = tuple(Loss(kind, 0.5, p) for kind in ("discrete", "continuous") for p in (1, 2))

    def comparable(self, metric: str, budget: Budget) -> bool:
        return False  # the published ones are of positions and sizes from videos


class Kitti(PairsStudy):
    """Table 5: masks of pedestrians in frames one and up to five apart; codes beside their place and area."""

    name = "identify/kitti"
    paper = "CL-ICA, A.6, Table 5"
    claim = "p = 1 finds position and size of pedestrians better than p = 2, and better from frames further apart"
    laptop = "needs kitti_peds_v2.pickle"
    metrics = ("MCC",)
    baselines = (UNTRAINED, COMPONENTS)
    file: ClassVar = "kitti/kitti_peds_v2.pickle"
    """Below the data directory; KITTI Masks as Klindt et al. 2021 publish them."""

    def cases(self) -> list[Config]:
        trained = [
            {"setting": Loss(f"Δt {apart}", 0.5, p).setting, "separation": apart, "alpha": 0.5, "p": p}
            for apart in (1, 5)
            for p in (1, 2)
        ]
        return [*trained, *({"setting": name, "separation": 1} for name in self.baselines)]

    def prepare(self, budget: Budget) -> None:
        self.path()

    def path(self) -> Path:
        """Where the masks are."""
        path = find(self.file)
        if path is None:
            raise InputError(
                f"{self.name} needs the published KITTI Masks, and there is no {data_directory() / self.file}"
            )
        return path

    def trial(self, config: Config) -> Result:
        return sprites_trials.trial_on_masks(config, self.path())
