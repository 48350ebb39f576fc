"""Disentangling rendered sprites by alignment and uniformity: the image experiments of CL-ICA (A.6, Tables 2 to 4).

Pairs of images differ in some of five factors. An encoder of ten codes is trained by L_AU(α, p) on pairs alone, and six
scores ask whether each factor has found a code of its own. The images are drawn by formula, not those of dSprites.
"""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import ClassVar

from probssl.studies import sprites_page, sprites_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study
from probssl.studies.comparison import references, verdict
from probssl.studies.sprites_page import numbers
from probssl.studies.sprites_scale import SCALE, Loss
from probssl.studies.sprites_trials import BASELINES, SCORES


class Sprite(Study):
    """Shared by the studies on sprites: a subclass lists its losses, metrics and what it may be compared with."""

    losses: ClassVar[tuple[Loss, ...]]
    metrics: ClassVar[tuple[str, ...]]
    code = ("probssl.studies.sprites_trials",)

    def configs(self, budget: Budget) -> list[Config]:
        scale = SCALE[budget]
        trained = [{"setting": loss.setting, **dataclasses.asdict(loss)} for loss in self.losses]
        every = [*trained, *({"setting": name, "transition": None} for name in BASELINES)]
        return [{**one, "seed": seed, **scale.settings} for seed in range(scale.seeds) for one in every]

    def trial(self, config: Config) -> Result:
        return sprites_trials.trial(config)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return [[config] for config in configs]

    def comparable(self, metric: str, budget: Budget) -> bool:
        """Whether a number of ours may be set beside a published one."""
        return metric != "DCI" or SCALE[budget].dci == "boosting"  # importances of other models are other numbers

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        known = references(self.name)
        settings = [*dict.fromkeys(setting for setting, _ in known), *BASELINES]
        rows = []
        for setting in settings:
            for metric in self.metrics:
                values = numbers(results, setting, metric)
                target = known.get((setting, metric))
                published = None if target is None else target.value
                if not values:
                    if target is not None:
                        rows.append(Row(setting, metric, None, None, published, "not comparable"))
                    continue
                mean = statistics.mean(values)
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                judged = target if self.comparable(metric, budget) else None
                rows.append(Row(setting, metric, mean, spread, published, verdict(mean, spread, len(values), judged)))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        return sprites_page.draw(self, results, rows, SCALE[budget].settings, budget, out)


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
    metrics = (*SCORES, "MCC", "linear R²")


class NaturalSprites(Sprite):
    """Tables 3 and 4, on transitions that are like natural ones and not measured from any video."""

    name = "identify/natural-sprites"
    paper = "CL-ICA, A.6, Tables 3 and 4"
    claim = "p = 1 disentangles better than p = 2, on and between the grids (natural-like transitions, not YouTube-VOS)"
    laptop = "about 45 min"
    losses = tuple(Loss(kind, 0.5, p) for kind in ("discrete", "continuous") for p in (1, 2))
    metrics = (*SCORES, "MCC", "linear R²")

    def comparable(self, metric: str, budget: Budget) -> bool:
        return False  # the published ones are of positions and sizes from videos
