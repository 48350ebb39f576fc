"""Six losses on eighteen tables: the tabular study of Siamese-EBM (§4.2, appendix F).

Two sweeps, each a study: over the output dimension (`siamese/tabular-dimension`: m from 2d to d/5, preservation 0.8,
noise 0.1) and over the strength of augmentations (`siamese/tabular-preservation`: preservation 0.1 to 1, noise 0.25,
m = d/2), each at learning rates 0.01 and 1. The paper shows figures and says what it sees in them; here the figures are
drawn anew, and each such sentence is checked by a rule (`tabular_claims`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from probssl.data import load_table
from probssl.studies import tabular_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study
from probssl.studies.comparison import Verdict
from probssl.studies.page import Page
from probssl.studies.tabular_claims import claims
from probssl.studies.tabular_grid import DIMENSION, PRESERVATION, SCALE, SHAPES, Setup, configs, positions
from probssl.studies.tabular_page import page
from probssl.studies.tabular_scores import Scores

ROW_VERDICT: dict[str, Verdict] = {
    "reproduced": "matched",
    "partly": "missed",
    "not reproduced": "missed",
    "not tested": "not comparable",
}
"""Verdict on a claim -> verdict of its row, which holds the share of its parts that hold beside the claimed 1."""


class Tabular(Study):
    """What both sweeps share."""

    paper = "Siamese-EBM, §4.2 and F"
    laptop = "45 to 60 min"
    reference = "claimed"
    code = ("probssl.studies.tabular_trials",)
    setup: ClassVar[Setup]

    def configs(self, budget: Budget) -> list[Config]:
        return configs(self.setup, SCALE[budget])

    def prepare(self, budget: Budget) -> None:
        for table in SCALE[budget].tables:
            load_table(table)  # here, or it does not run at all

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result]]:
        return tabular_trials.run_batch(configs)

    def cohort(self, config: Config) -> Any:
        """Models of one table and output dimension, which stack."""
        return config["table"], config["dim"]

    def cost(self, config: Config) -> float:
        """Products of a batch with the layers, products of pairs, and a constant, for every step."""
        rows, features = SHAPES[config["table"]]
        step = 2 * features * (features + config["dim"]) + min(rows, 256) * config["dim"] + 10_000
        return float(step * config.get("steps", 0))

    def cohorts(self, configs: list[Config]) -> list[list[Config]]:
        """Neighbours of a cohort share augmentation and seed."""
        return super().cohorts(sorted(configs, key=lambda config: (config["preservation"], config["seed"])))

    def scores(self, results: Results, budget: Budget) -> Scores:
        """The numbers of the finished trials as arrays."""
        return Scores(results, self.setup, positions(self.setup, SCALE[budget]))

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        """A row a claim: where it stands, and the share of its parts that hold."""
        found = claims(self.scores(results, budget))
        return [
            Row(c.name, c.place, c.share, None, None if c.share is None else 1.0, ROW_VERDICT[c.verdict]) for c in found
        ]

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        return page(self.name, self.scores(results, budget), SCALE[budget])


class TabularDimension(Tabular):
    """Setup one: narrower and narrower outputs."""

    name = "siamese/tabular-dimension"
    claim = "six losses on 18 tables as the output narrows: accuracy, RankMe, alignment, uniformity"
    setup = DIMENSION


class TabularPreservation(Tabular):
    """Setup two: stronger and weaker augmentations."""

    name = "siamese/tabular-preservation"
    claim = "six losses on 18 tables as augmentations weaken: accuracy, RankMe, alignment, uniformity"
    setup = PRESERVATION
