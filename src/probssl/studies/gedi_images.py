"""GEDI on images: clusters, representation and samples of five methods with one network   (GEDI §6.3, Tables 4 and 10).

A model is trained once and kept: `gedi/ood` asks the same ones how well they tell other images.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probssl.studies import gedi_images_page, gedi_images_trials, gedi_models
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of
from probssl.studies.gedi_images_page import of_model, references_of
from probssl.studies.gedi_models import METHODS, SETS, UNTRAINED, model_config
from probssl.grids.versions import code_version

CODE = ("probssl.studies.gedi_models", "probssl.studies.gedi_images_trials", "probssl.studies.gedi_ood_trials")
"""Of both studies, so that they know models by one name."""

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        "network": gedi_models.CONVOLUTIONS,
        "width": 4,
        "rows": 200,
        "steps": 4,
        "batch": 16,
        "rate": 1e-3,
        "warmup": 0,
        "anneal": "cosine",
        "langevin": 1,
        "step_size": 1.0,
        "noise": 0.01,
        "clip": None,
        "chains": 32,
        "reinitialise": 0.05,
        "magnitude": 0.1,
        "crop": 0.7,
        "pair": "augmented",
        "invariance": 5.0,
        "balance": 10.0,
    },
    "laptop": {
        "network": gedi_models.CONVOLUTIONS,
        "width": 32,
        "rows": 10_000,
        "steps": 600,
        "batch": 64,
        "rate": 5e-4,
        "warmup": 50,
        "anneal": "cosine",
        "langevin": 5,
        "step_size": 1.0,
        "noise": 0.01,
        "clip": 0.03,
        "chains": 256,
        "reinitialise": 0.05,
        "magnitude": 0.1,
        "crop": 0.7,
        "pair": "augmented",
        "invariance": 5.0,
        "balance": 10.0,
    },
    "full": {
        "network": gedi_models.RESIDUAL,
        "width": {"else": 128, "cifar100": 256},
        "rows": 73_257,
        "epochs": {"else": 200, "svhn": 20},
        "batch": 64,
        "rate": 1e-4,
        "warmup": 0,
        "anneal": "constant",
        "langevin": 20,
        "step_size": 1.0,
        "noise": 0.01,
        "clip": None,
        "chains": 10_000,
        "reinitialise": 0.05,
        "magnitude": 0.0,
        "crop": None,
        "pair": "original",
        "invariance": 50.0,
        "balance": {"else": 25.0, "cifar100": 50.0},
    },
}
"""How the models of a budget are trained. `full` is GEDI's Table 9; where sets differ, an entry is a dict."""

SEEDS = {"smoke": 1, "laptop": 3, "full": 5}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"test": 100, "samples": 16, "walk": 3, "classifier": 10},
    "laptop": {"test": 2_000, "samples": 100, "walk": 500, "classifier": 1_500},
    "full": {"test": 26_032, "samples": 10_000, "walk": 500, "classifier": 10_000},
}
"""Test images; samples and the steps from noise to them; steps of the classifier whose features they are seen by."""


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on."""
    return ("mnist",) if budget == "smoke" else gedi_models.sets()


class OnImages(Study):
    """What both studies share: one model a unit of work, seed by seed, those that sample first: they take longest."""

    code = CODE

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            gedi_models.images_of(name)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        def turn(config: Config) -> tuple[int, bool]:
            model = config.get("model") or config["untrained"]
            return model["seed"], model["method"] not in ("JEM", "GEDI")

        return [[config] for config in sorted(configs, key=turn)]


class GediImages(OnImages):
    """Five methods on every set: how they cluster, what a linear map reads from them, and what they generate."""

    name = "gedi/images"
    paper = "GEDI, Tables 4 and 10, Figure 6"
    claim = "GEDI clusters images as well as without its generative term, and is the one clusterer that generates some"
    laptop = "25 to 30 min"

    def configs(self, budget: Budget) -> list[Config]:
        measuring = MEASURING[budget]
        found: list[Config] = [
            {"model": model_config(data, method, seed, SCALES[budget]), **measuring}
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in METHODS
        ]
        for data in trained_on(budget):
            found.append({"untrained": model_config(data, UNTRAINED, 0, SCALES[budget]), **measuring})
        return found

    def trial(self, config: Config) -> Result:
        if "untrained" in config:
            return gedi_images_trials.reference_trial(config)
        return gedi_images_trials.trial(config, code_version(self))

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for method in METHODS:
                found = of_model(results, data, method)
                setting = f"{SETS[data]}, {method}"
                for metric in ("NMI", "linear probe"):
                    rows.append(self.row(setting, metric, [result[metric] for result in found], budget))
                for title in found[0]["distances"] if found else ():
                    rows.append(self.row(setting, title, [result["distances"][title] for result in found], budget))
            for result in references_of(results, data):
                for name, values in (("data against data", result["floor"]), ("uniform noise", result["ceiling"])):
                    rows += [self.row(f"{SETS[data]}, {name}", title, [v], budget) for title, v in values.items()]
                for name in ("untrained", "pixels"):
                    rows.append(self.row(f"{SETS[data]}, {name}", "linear probe", [result[name]], budget))
                rows.append(self.row(f"{SETS[data]}, classifier", "accuracy", [result["accuracy"]], budget))
        return rows

    def row(self, setting: str, metric: str, values: Sequence[float], budget: Budget) -> Row:
        """A row; published numbers are judged against those of the paper's own scale alone."""
        return row_of(self.name, setting, metric, values, budget)

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shapes = {data: gedi_models.images_of(data).shape for data in trained_on(budget)}
        notes = gedi_images_page.scale_notes(SCALES[budget], MEASURING[budget], SEEDS[budget])
        return gedi_images_page.draw(results, rows, shapes, notes, out)
