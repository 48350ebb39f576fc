"""What eight methods with one encoder know of the classes of images   (SimVAE §7, Tables 1, 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from probssl.data.images import find_images
from probssl.report import figures
from probssl.studies import simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Found, Result, Results, Row, Study, largest, rows_of, where
from probssl.studies.page import Page, Picture, Section, numbers, pivot
from probssl.studies.simvae_models import DISCRIMINATIVE, GENERATIVE, METHODS, SETS, TITLES, UNTRAINED, model_config
from probssl.studies.simvae_trials import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERYWHERE = {"clip": None, "related": 10, "likelihood_variance": 0.02, "latent_variance": 0.15}
EVERYWHERE |= {"queue": 4096, "head": 128}
"""Settings of the paper (A.7.4) that every larger budget has."""

SMALL = {**EVERYWHERE, "batch": 12, "rate": 1e-3, "momentum": 0.9, "queue": 64, "head": 8}
BATCH = {"SimVAE": 12, "CRVAE": 64, "else": 128}

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {**SMALL, "network": "perceptron", "hidden": [16], "dim": 3, "rows": 300, "steps": 5, "related": 3},
    "laptop": {
        **EVERYWHERE,
        "network": "perceptron",
        "dim": 10,
        "rows": 50_000,
        "steps": 1_500,
        "batch": BATCH,
        "rate": {"MoCo": 1e-3, "MoCoV2": 1e-3, "VICReg": 3e-4, "else": 3e-3},
        "momentum": 0.99,
    },
    "full": {
        **EVERYWHERE,
        "network": {"cifar10": "convolutions", "celeba": "convolutions", "else": "perceptron"},
        "width": 32,
        "dim": {"cifar10": 64, "celeba": 64, "else": 10},
        "rows": {"celeba": 162_770, "else": 60_000},
        "steps": 187_600,
        "batch": 128,
        "rate": {"SimCLR": 1e-3, "VICReg": 1e-4, "else": 8e-5},
        "momentum": 0.999,
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

COLOURS = {TITLES.get(method, method): figures.PALETTE[2] for method in GENERATIVE}
COLOURS |= {TITLES.get(method, method): figures.PALETTE[1] for method in DISCRIMINATIVE}
COLOURS[TITLES[UNTRAINED]] = figures.MUTED
"""Title of a method -> its colour, by kind."""


def title(method: str) -> str:
    """The name of a method in tables."""
    return TITLES.get(method, method)


class OnImages(Study):
    """Methods on sets of images over seeds, a model each trial: what the four experiments share."""

    code = ("probssl.studies.simvae_trials",)
    methods: ClassVar[tuple[str, ...]] = (*METHODS, UNTRAINED)
    scales: ClassVar[Mapping[Budget, dict[str, Any]]] = SCALES
    measuring: ClassVar[Mapping[Budget, dict[str, int]]] = MEASURING

    def sets(self, budget: Budget) -> tuple[str, ...]:
        """The sets that a budget trains on: CelebA at the paper's scale, where it is here."""
        if budget == "full":
            return ("mnist", "fashion-mnist", "cifar10", *(["celeba"] if find_images("celeba") else []))
        return ("mnist",) if budget == "smoke" else ("mnist", "fashion-mnist")

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {"model": model_config(data, method, seed, self.scales[budget]), **self.measuring[budget]}
            for seed in range(SEEDS[budget])
            for data in self.sets(budget)
            for method in self.methods
        ]

    def prepare(self, budget: Budget) -> None:
        for name in self.sets(budget):
            simvae_models.images_of(name)

    def settings(self, data: str) -> dict[str, str]:
        """Setting of each method on a set -> its title."""
        return {f"{SETS[data]}, {method}": title(method) for method in self.methods}

    def found(self, results: Results, data: str, metric: str) -> dict[str, list[float]]:
        """Title of each method -> what it has of a metric on a set, seed by seed."""
        return {
            title(method): [
                self.numbers_of(result, data)[metric] for result in where(results, data=data, method=method)
            ]
            for method in self.methods
        }

    def metrics(self, data: str) -> Sequence[str]:
        """What is measured of every method on a set."""
        return METRICS

    def numbers_of(self, result: Result, data: str) -> dict[str, Any]:
        """Metric -> what a trial measured."""
        return result

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in self.sets(budget):
            for method in self.methods:
                found = [self.numbers_of(result, data) for result in where(results, data=data, method=method)]
                rows += rows_of(self.name, f"{SETS[data]}, {method}", found, self.metrics(data), budget)
        return rows


class Content(OnImages):
    """Eight methods on every set: what k neighbours, a network, a linear map and a mixture read from them."""

    name = "simvae/content"
    paper = "SimVAE, Tables 1, 5 and 6"
    claim = "On simple images generative methods know the classes better than discriminative ones, SimVAE the best"
    laptop = "about 40 min"

    def run_batch(self, configs: list[Config]) -> Iterator[Found]:
        for config in configs:
            model = simvae_models.trained(config["model"])
            yield config, simvae_trials.content(config, model), model.pack()

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        sets, measuring, scale = self.sets(budget), self.measuring[budget], SCALES[budget]
        orders = {SETS[data]: order(rows, data) for data in sets}
        good = all(part.startswith("yes") for part in orders.values())
        lead = (
            "The order is kept on a set if every generative method has a higher k-NN accuracy than every "
            f"discriminative one. {'; '.join(f'{name}: {part}' for name, part in orders.items())}"
        )
        note = (
            f"At most {largest(scale['rows']):,} training images, {scale['steps']:,} steps, {SEEDS[budget]} seeds; "
            f"± is the standard deviation over them. Probes are fitted on {measuring['fitted']:,} training images and "
            f"judged on {measuring['test']:,} test images. k-NN is the best k from 1 to 15 on the test images, as "
            "published; an honest k is chosen on training images. GMM accuracy matches clusters to classes on the test "
            "images."
        )
        scores = Picture("content", self.figure(results, rows, sets))
        sections = [Section("k-NN and MLP probe", scores, note="Dots: seeds. Diamonds: published.")]
        for data in sets:
            corner = "in %, published in brackets"
            table = pivot(rows, self.settings(data), METRICS, corner, lambda row: numbers(row, 100, ".1f"))
            sections.append(Section(SETS[data], table, note=note))
        verdict = "order kept" if good else "order not kept on every set"
        return Page("SimVAE: what representations know of classes", lead, sections, (verdict, good))

    def figure(self, results: Results, rows: list[Row], sets: Sequence[str]) -> Figure:
        """k-NN and MLP probe of every method, ours and published."""
        shown = [(metric, data) for metric in ("k-NN", "MLP probe") for data in sets]
        drawn, axes = figures.panels(
            [f"{metric}, {SETS[data]}" for metric, data in shown], 4.4, 2.4, len(sets), sharey=True
        )
        for axis, (metric, data) in zip(axes, shown, strict=True):
            settings = self.settings(data)
            published = {
                settings[row.setting]: (row.published, None)
                for row in rows
                if row.setting in settings and row.metric == metric and row.published is not None
            }
            figures.strips(axis, self.found(results, data, metric), published, COLOURS)
        return drawn


def order(rows: list[Row], data: str) -> str:
    """Whether every generative method is ahead of every discriminative one in k-NN accuracy, and who is not."""
    found = {row.setting: row.value for row in rows if row.metric == "k-NN" and row.value is not None}
    sides = [
        {method: found[setting] for method in side if (setting := f"{SETS[data]}, {method}") in found}
        for side in (GENERATIVE, DISCRIMINATIVE)
    ]
    if not all(sides):
        return "not all methods were trained"
    generative, discriminative = sides
    worst, best = min(generative, key=generative.__getitem__), max(discriminative, key=discriminative.__getitem__)
    yes = "yes" if generative[worst] > discriminative[best] else "no"
    return f"{yes}, {title(worst)} {generative[worst]:.3f} and {title(best)} {discriminative[best]:.3f}"
