"""What SimVAE's settings do: related samples, likelihood variance, strength of the crop   (SimVAE A.8, Figures 7–9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from probssl.report import figures
from probssl.studies import simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, rows_of, where
from probssl.studies.page import Page, Picture, Section, Table, numbers
from probssl.studies.simvae_content import MEASURING, SCALES, OnImages, title
from probssl.studies.simvae_models import SETS, model_config
from probssl.studies.simvae_trials import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


class Ablations(OnImages):
    """One setting after another moved, on MNIST, and what probes then read."""

    name = "simvae/ablations"
    paper = "SimVAE, Figures 7 to 9"
    claim = "More related samples and a smaller variance help; SimVAE minds the strength of the crop less than others"
    laptop = "about 25 min"

    def sets(self, budget: Budget) -> tuple[str, ...]:
        return ("mnist", "cifar10") if budget == "full" else ("mnist",)

    def configs(self, budget: Budget) -> list[Config]:
        scale = SCALES[budget] | {"steps": STEPS[budget]}
        found: list[Config] = []
        for seed in range(SEEDS[budget]):
            for data, setting, method, value in self.cells(budget):
                changes: dict[str, Any] = {setting: value}
                if setting == "related":
                    changes["batch"] = max(2, IMAGES // int(value)) if budget != "smoke" else 4
                model = model_config(data, method, seed, scale, **changes)
                found.append({"setting": setting, "at": value, "model": model, **MEASURING[budget]})
        return found

    def moved(self, budget: Budget) -> list[tuple[str, str]]:
        """Sets, and the settings that are moved on each."""
        every = [(data, setting) for data in self.sets(budget) for setting in GRID[budget]]
        return [(data, setting) for data, setting in every if setting != "colour" or data == "cifar10"]

    def cells(self, budget: Budget) -> Iterator[tuple[str, str, str, float]]:
        """Set, setting, method and value of everything that is tried."""
        for data, setting in self.moved(budget):
            for method in METHODS[setting]:
                for value in GRID[budget][setting]:
                    yield data, setting, method, value

    def trial(self, config: Config) -> Result:
        return simvae_trials.content(config, simvae_models.trained(config["model"]))

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data, setting, method, value in self.cells(budget):
            found = where(results, data=data, method=method, setting=setting, at=value)
            rows += rows_of(self.name, named(data, method, setting, value), found, METRICS, budget)
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        note = (
            f"{STEPS[budget]:,} steps of about {IMAGES} images, {SEEDS[budget]} seeds; the other settings are those of "
            "simvae/content. Means over seeds; bars: their standard deviation."
        )
        sections = []
        for data, setting in self.moved(budget):
            values = GRID[budget][setting]
            picture = Picture(f"{setting.replace('_', '-')}-{data}", figure(rows, data, setting, values))
            table = shares(rows_along(rows, data, setting, values, "k-NN"), values)
            sections.append(Section(f"{NAMES[setting]}, {SETS[data]}", picture, table, note=note))
        return Page("SimVAE: what its settings do", f"The claim of the paper: {self.claim}.", sections)


def named(data: str, method: str, setting: str, value: float) -> str:
    """A row's name."""
    return f"{SETS[data]}, {method}, {NAMES[setting]} {value:g}"


def rows_along(rows: list[Row], data: str, setting: str, values: list[float], metric: str) -> dict[str, list[Row]]:
    """Title of each method that is tried -> its rows of a metric, value by value."""
    known = {row.setting: row for row in rows if row.metric == metric}
    return {
        title(method): [known[named(data, method, setting, value)] for value in values] for method in METHODS[setting]
    }


def shares(along: dict[str, list[Row]], values: list[float]) -> Table:
    """k-NN in per cent at every value, and how far it moves."""
    lines = []
    for method, several in along.items():
        known = [100 * row.value for row in several if row.value is not None]
        moved = f"{max(known) - min(known):.1f}" if known else "–"
        lines.append([method, *(numbers(row, 100, ".1f") for row in several), moved])
    return Table(["k-NN, %", *(f"{value:g}" for value in values), "largest − least"], lines)


def figure(rows: list[Row], data: str, setting: str, values: list[float]) -> Figure:
    """Scores over the values of a setting, a line each method."""
    drawn, axes = figures.panels(SHOWN, 2.5, 2.4, x=NAMES[setting])
    colours = {title(method): shade for method, shade in zip(METHODS[setting], figures.PALETTE, strict=False)}
    for axis, metric in zip(axes, SHOWN, strict=True):
        figures.measured(axis, values, rows_along(rows, data, setting, values, metric), colours)
        if setting == "likelihood_variance":
            figures.log_ticks(axis, "x", values)
    if len(colours) > 1:
        figures.legend(drawn, colours)
    return drawn
