"""What SimVAE's settings do: related samples, likelihood variance, strength of the crop   (SimVAE A.8, Figures 7–9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, simvae_content, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of
from probssl.studies.simvae_content import CODE, title
from probssl.studies.simvae_models import SETS, model_config
from probssl.studies.simvae_trials import METRICS
from probssl.training.files import write_text

IMAGES = 120
"""Images a step, whatever the number of related ones: 60 pairs, or 12 sets of ten."""

GRID: dict[Budget, dict[str, list[float]]] = {
    "smoke": {"related": [2, 3], "likelihood_variance": [0.02], "crop_scale": [0.4]},
    "laptop": {
        "related": [2, 4, 6, 8, 10],
        "likelihood_variance": [0.005, 0.02, 0.1, 0.5],
        "crop_scale": [0.2, 0.4, 0.6, 0.8],
    },
    "full": {
        "related": [2, 4, 6, 8, 10],
        "likelihood_variance": [0.005, 0.01, 0.02, 0.05, 0.1, 0.5],
        "crop_scale": [0.1, 0.2, 0.4, 0.6, 0.8, 1.0],
        "colour": [0.0, 0.2, 0.4, 0.8, 1.0],
    },
}
"""Values of each setting, the others staying as they are; that of colours on sets that have them."""

METHODS: dict[str, tuple[str, ...]] = {
    "related": ("SimVAE",),
    "likelihood_variance": ("SimVAE",),
    "crop_scale": ("SimVAE", "VAE", "SimCLR", "VICReg"),
    "colour": ("SimVAE", "VAE", "SimCLR", "VICReg"),
}
"""Who is tried with each: the paper's Figure 7 has more than one, the others are of SimVAE alone."""

NAMES = {
    "related": "related samples J",
    "likelihood_variance": "variance of the likelihood",
    "crop_scale": "least share of the image in a crop",
    "colour": "strength of the jitter of colours",
}

STEPS = {"smoke": 4, "laptop": 750, "full": 187_600}
SEEDS = {"smoke": 1, "laptop": 2, "full": 3}
SHOWN = ("k-NN", "MLP probe", "linear probe", "GMM accuracy")


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on."""
    return ("mnist", "cifar10") if budget == "full" else ("mnist",)


def grid(budget: Budget, data: str) -> dict[str, list[float]]:
    """The settings that are moved on a set, and their values."""
    return {name: values for name, values in GRID[budget].items() if name != "colour" or data == "cifar10"}


class Ablations(Study):
    """One setting after another moved, on MNIST, and what probes then read."""

    name = "simvae/ablations"
    paper = "SimVAE, Figures 7 to 9"
    claim = "More related samples and a smaller variance help; SimVAE minds the strength of the crop less than others"
    laptop = "about 25 min"
    code = CODE

    def configs(self, budget: Budget) -> list[Config]:
        scale: dict[str, Any] = simvae_content.SCALES[budget] | {"steps": STEPS[budget]}
        measuring = simvae_content.MEASURING[budget]
        found: list[Config] = []
        for seed in range(SEEDS[budget]):
            for data in trained_on(budget):
                for setting, values in grid(budget, data).items():
                    for method in METHODS[setting]:
                        for value in values:
                            changes: dict[str, Any] = {setting: value}
                            if setting == "related":
                                changes["batch"] = max(2, IMAGES // int(value)) if budget != "smoke" else 4
                            model = model_config(data, method, seed, scale, **changes)
                            found.append({"setting": setting, "at": value, "model": model, **measuring})
        return found

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            simvae_models.images_of(name)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return [[config] for config in configs]

    def trial(self, config: Config) -> Result:
        return simvae_trials.content(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for setting, values in grid(budget, data).items():
                for method in METHODS[setting]:
                    for value in values:
                        found = at(results, data, method, setting, value)
                        named = f"{SETS[data]}, {method}, {NAMES[setting]} {value:g}"
                        for metric in METRICS:
                            rows.append(row_of(self.name, named, metric, [r[metric] for r in found], budget))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sets = trained_on(budget)
        drawn = {
            f"{setting.replace('_', '-')}-{data}": figure(results, data, setting, values)
            for data in sets
            for setting, values in grid(budget, data).items()
        }
        shown = pictures.save(out, drawn)
        notes = (
            f"{STEPS[budget]:,} steps of about {IMAGES} images, {SEEDS[budget]} seeds; the other settings are those of "
            "simvae/content. Dots: seeds; lines: their means."
        )
        sections = [
            html.section(f"{NAMES[setting]}, {SETS[data]}", shown[f"{setting.replace('_', '-')}-{data}"], notes)
            for data in sets
            for setting in grid(budget, data)
        ]
        lead = " ".join(
            told(results, data, setting, values) for data in sets for setting, values in grid(budget, data).items()
        )
        page = out / "index.html"
        write_text(page, html.page("SimVAE: what its settings do", html.escape(lead), sections))
        return page


def at(results: Results, data: str, method: str, setting: str, value: float) -> list[Result]:
    """What was found with a setting at a value, seed by seed."""
    wanted = (data, method, setting, value)
    return [
        result
        for config, result in results
        if (config["model"]["data"], config["model"]["method"], config["setting"], config["at"]) == wanted
    ]


def told(results: Results, data: str, setting: str, values: list[float]) -> str:
    """One sentence: what k-NN has at every value, or how far it moves where there are several methods."""
    found = {
        method: [
            100 * float(np.mean([r["k-NN"] for r in at(results, data, method, setting, value)])) for value in values
        ]
        for method in METHODS[setting]
        if all(at(results, data, method, setting, value) for value in values)
    }
    if len(METHODS[setting]) == 1:
        each = [
            f"{value:g}: {share:.1f}" for shares in found.values() for value, share in zip(values, shares, strict=True)
        ]
        return f"k-NN on {SETS[data]} by {NAMES[setting]}: {', '.join(each) or 'not found'} %."
    moved = [f"{title(method)} by {max(shares) - min(shares):.1f}" for method, shares in found.items()]
    return f"By {NAMES[setting]} it moves {', '.join(moved)} points."


def figure(results: Results, data: str, setting: str, values: list[float]) -> Any:
    """Scores over the values of a setting, a line each method."""
    drawn, axes = figures.new_figure(2.5 * len(SHOWN), 2.4, len(SHOWN))
    for axis, metric in zip(np.atleast_1d(axes), SHOWN, strict=True):
        for number, method in enumerate(METHODS[setting]):
            colour = figures.PALETTE[number]
            found = [[result[metric] for result in at(results, data, method, setting, value)] for value in values]
            means = [np.mean(scores) if scores else np.nan for scores in found]
            axis.plot(values, means, "-", color=colour, linewidth=1.4, label=title(method))
            for value, scores in zip(values, found, strict=True):
                axis.plot([value] * len(scores), scores, "o", color=colour, markersize=3.5)
        if setting == "likelihood_variance":
            axis.set_xscale("log")
        axis.set_title(metric, fontsize=9, color=figures.INK, loc="left")
        axis.set_xlabel(NAMES[setting], fontsize=8)
    if len(METHODS[setting]) > 1:
        np.atleast_1d(axes)[0].legend(fontsize=7, frameon=False)
    return drawn
