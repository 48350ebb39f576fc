"""What eight methods with one encoder know of the classes of images   (SimVAE §7, Tables 1, 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probssl.data.images import find_images
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, largest, row_of
from probssl.studies.simvae_models import DISCRIMINATIVE, GENERATIVE, METHODS, SETS, TITLES, UNTRAINED, model_config
from probssl.studies.simvae_trials import METRICS
from probssl.training.files import write_text

CODE = (
    "probssl.studies.fitting",
    "probssl.studies.styles",
    "probssl.studies.simvae_models",
    "probssl.studies.simvae_trials",
)
"""Of all four experiments, so that they know models by one name."""

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        "network": "perceptron",
        "hidden": [16],
        "dim": 3,
        "rows": 300,
        "steps": 5,
        "batch": 12,
        "rate": 1e-3,
        "clip": None,
        "related": 3,
        "likelihood_variance": 0.02,
        "latent_variance": 0.15,
        "momentum": 0.9,
        "queue": 64,
        "head": 8,
    },
    "laptop": {
        "network": "perceptron",
        "dim": 10,
        "rows": 50_000,
        "steps": 1_500,
        "batch": {"SimVAE": 12, "CRVAE": 64, "else": 128},
        "rate": {"MoCo": 1e-3, "MoCoV2": 1e-3, "VICReg": 3e-4, "else": 3e-3},
        "clip": None,
        "related": 10,
        "likelihood_variance": 0.02,
        "latent_variance": 0.15,
        "momentum": 0.99,
        "queue": 4096,
        "head": 128,
    },
    "full": {
        "network": {"cifar10": "convolutions", "celeba": "convolutions", "else": "perceptron"},
        "width": 32,
        "dim": {"cifar10": 64, "celeba": 64, "else": 10},
        "rows": {"celeba": 162_770, "else": 60_000},
        "steps": 187_600,
        "batch": 128,
        "rate": {"SimCLR": 1e-3, "VICReg": 1e-4, "else": 8e-5},
        "clip": None,
        "related": 10,
        "likelihood_variance": 0.02,
        "latent_variance": 0.15,
        "momentum": 0.999,
        "queue": 4096,
        "head": 128,
    },
}
"""How the models of a budget are trained: `full` as in A.7.4, for 400 epochs."""

SEEDS = {"smoke": 1, "laptop": 3, "full": 3}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 200, "test": 100, "epochs": 5},
    "laptop": {"fitted": 20_000, "test": 10_000, "epochs": 30},
    "full": {"fitted": 60_000, "test": 10_000, "epochs": 200},
}
"""Training images that probes are fitted on, test images that they are judged on, epochs of a probe that is trained."""


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on: CelebA at the paper's scale, where it is here."""
    if budget == "full":
        return ("mnist", "fashion-mnist", "cifar10", *(["celeba"] if find_images("celeba") else []))
    return ("mnist",) if budget == "smoke" else ("mnist", "fashion-mnist")


class Content(Study):
    """Eight methods on every set: what k neighbours, a network, a linear map and a mixture read from them."""

    name = "simvae/content"
    paper = "SimVAE, Tables 1, 5 and 6"
    claim = "On simple images generative methods know the classes better than discriminative ones, SimVAE the best"
    laptop = "about 40 min"
    code = CODE

    def configs(self, budget: Budget) -> list[Config]:
        measuring = MEASURING[budget]
        return [
            {"model": model_config(data, method, seed, SCALES[budget]), **measuring}
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in (*METHODS, UNTRAINED)
        ]

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
            for method in (*METHODS, UNTRAINED):
                found = of_model(results, data, method)
                setting = f"{SETS[data]}, {method}"
                rows += [row_of(self.name, setting, metric, [r[metric] for r in found], budget) for metric in METRICS]
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sets = trained_on(budget)
        shown = pictures.save(out, {"content": figure(results, rows, sets)})
        told = {SETS[data]: order(rows, data) for data in sets}
        good = all(part.startswith("yes") for part in told.values())
        lead = (
            f"{html.badge('order kept' if good else 'order not kept on every set', good)} &nbsp;The order is kept on a "
            "set if every generative method has a higher k-NN accuracy than every discriminative one. "
            + html.escape("; ".join(f"{title}: {part}" for title, part in told.items()))
        )
        scale = SCALES[budget]
        notes = (
            f"At most {largest(scale['rows']):,} training images, {scale['steps']:,} steps, {SEEDS[budget]} seeds; "
            f"± is the standard deviation over them. Probes are fitted on {MEASURING[budget]['fitted']:,} training "
            f"images and judged on {MEASURING[budget]['test']:,} test images. k-NN is the best k from 1 to 15 on the "
            "test images, as published; an honest k is chosen on training images. GMM accuracy matches clusters to "
            "classes on the test images."
        )
        sections = [html.section("k-NN and MLP probe", shown["content"], "Dots: seeds. Hollow: published.")]
        sections += [html.section(SETS[data], table(rows, data), notes) for data in sets]
        page = out / "index.html"
        write_text(page, html.page("SimVAE: what representations know of classes", lead, sections))
        return page


def of_model(results: Results, data: str, method: str) -> list[Result]:
    """What was found of a method on a set, seed by seed."""
    return [
        result for config, result in results if (config["model"]["data"], config["model"]["method"]) == (data, method)
    ]


def values_of(rows: list[Row], data: str, metric: str) -> dict[str, float]:
    """Method -> its mean, of those that were trained."""
    found = {row.setting: row.value for row in rows if row.metric == metric}
    named = {method: found.get(f"{SETS[data]}, {method}") for method in METHODS}
    return {method: value for method, value in named.items() if value is not None}


def order(rows: list[Row], data: str) -> str:
    """Whether every generative method is ahead of every discriminative one, and who is not."""
    found = values_of(rows, data, "k-NN")
    sides = [{m: found[m] for m in side if m in found} for side in (GENERATIVE, DISCRIMINATIVE)]
    if not all(sides):
        return "not all methods were trained"
    worst, best = min(sides[0], key=sides[0].__getitem__), max(sides[1], key=sides[1].__getitem__)
    gap = sides[0][worst] - sides[1][best]
    yes = "yes" if gap > 0 else "no"
    return f"{yes}, {title(worst)} {sides[0][worst]:.3f} and {title(best)} {sides[1][best]:.3f}"


COLOURS = {TITLES.get(method, method): figures.PALETTE[2] for method in GENERATIVE}
COLOURS |= {TITLES.get(method, method): figures.PALETTE[1] for method in DISCRIMINATIVE}
COLOURS[TITLES[UNTRAINED]] = figures.MUTED
"""Title of a method -> its colour, by kind."""


def title(method: str) -> str:
    """The name of a method in tables."""
    return TITLES.get(method, method)


def table(rows: list[Row], data: str) -> str:
    """Methods below each other, metrics side by side, ours over published."""
    found: Mapping[tuple[str, str], Row] = {(row.setting, row.metric): row for row in rows}

    def cell(method: str, metric: str) -> str:
        row = found[f"{SETS[data]}, {method}", metric]
        if row.value is None:
            return "–"
        ours = f"{100 * row.value:.1f}" + ("" if row.spread is None else f" ± {100 * row.spread:.1f}")
        return ours if row.published is None else f"{ours} ({100 * row.published:.1f})"

    body = [[title(method), *(cell(method, metric) for metric in METRICS)] for method in (*METHODS, UNTRAINED)]
    return html.table(["in %, published in brackets", *METRICS], body)


def figure(results: Results, rows: list[Row], sets: tuple[str, ...]) -> Any:
    """k-NN and MLP probe of every method, ours and published."""
    published = {(row.setting, row.metric): row.published for row in rows}
    drawn, axes = figures.new_figure(4.4 * len(sets), 5.2, len(sets), 2)
    grid = np.asarray(axes).reshape(2, len(sets))
    everyone = (*METHODS, UNTRAINED)
    for line, metric in zip(grid, ("k-NN", "MLP probe"), strict=True):
        for axis, data in zip(line, sets, strict=True):
            for place, method in enumerate(everyone):
                colour = "#0f766e" if method in GENERATIVE else "#b45309" if method in DISCRIMINATIVE else figures.MUTED
                values = [result[metric] for result in of_model(results, data, method)]
                axis.plot([place] * len(values), values, "o", color=colour, markersize=4.5)
                printed = published.get((f"{SETS[data]}, {method}", metric))
                if printed is not None:
                    axis.plot([place + 0.25], [printed], "o", markerfacecolor="none", markeredgecolor=colour)
            axis.set_xticks(range(len(everyone)), [title(method) for method in everyone], rotation=40, ha="right")
            axis.tick_params(axis="x", labelsize=7.5)
            axis.set_title(f"{metric}, {SETS[data]}", fontsize=9, color=figures.INK, loc="left")
    return drawn
