"""What InfoNCE and AnInfoNCE know of the classes of images, and of the augmentations   (AnInfoNCE, Table 1 and G)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from probssl.data.images import find_images
from probssl.report import figures
from probssl.studies import readout_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, chosen, largest, rows_of, where
from probssl.studies.image_sets import images_of
from probssl.studies.page import Page, Picture, Section, Table, numbers, pivot
from probssl.studies.readout_trials import (
    AVERAGE,
    CLASSES,
    FREE,
    LINEAR,
    METHODS,
    NEIGHBOURS,
    PLAIN,
    READ,
    SETS,
    SIMCLR,
    TUNED,
    UNTRAINED,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERYONE = (*METHODS, UNTRAINED)
COLOURS = dict(zip(EVERYONE, (*figures.PALETTE[:4], figures.MUTED), strict=True))
TITLES = {FREE: "AnInfoNCE, no sphere", TUNED: "InfoNCE, τ learnt", UNTRAINED: "untrained"}
"""Names in figures of methods that are not written as they are called."""

EVERYWHERE = {"rate": 1e-3, "concentration_rate": 1e-2, "temperature": 0.5}
SMALL = {**EVERYWHERE, "network": "convolutions", "crop_scale": 0.2}
SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {**SMALL, "width": 2, "features": 8, "dim": 6, "rows": 200, "steps": 4, "batch": 16},
    "laptop": {
        **SMALL,
        "width": 16,
        "features": 128,
        "dim": {"mnist": 10, "else": 64},
        "rows": 50_000,
        "steps": 600,
        "batch": 256,
        "concentration_rate": 0.1,
    },
    "full": {
        **EVERYWHERE,
        "network": {"mnist": "perceptron", "else": "resnet18"},
        "width": {"mnist": 256, "else": 64},
        "features": 512,
        "dim": {"mnist": 10, "else": 128},
        "rows": {"imagenet": 1_281_167, "else": 60_000},
        "steps": 97_600,
        "batch": 512,
        "crop_scale": 0.08,
    },
}
"""How encoders are trained; of what is a dict, a set has its own."""

SEEDS = {"smoke": 1, "laptop": 3, "full": 3}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 160, "test": 80},
    "laptop": {"fitted": 10_000, "test": 5_000},
    "full": {"fitted": 50_000, "test": 10_000},
}
"""Training images that probes are fitted on, and test images that they are judged on."""

DECODERS: dict[Budget, dict[str, int]] = {
    "smoke": {"epochs": 1, "hidden": 16, "rows": 200, "seed": 0},
    "laptop": {"epochs": 10, "hidden": 256, "rows": 60_000, "seed": 0},
    "full": {"epochs": 50, "hidden": 256, "rows": 60_000, "seed": 0},
}
"""The VAE whose latents are looked for in codes of digits: that of `anisotropic/mnist-vae`."""


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on: ImageNet, at 64 × 64 pixels, at the paper's scale and where it is here."""
    if budget == "full" and find_images("imagenet"):
        return ("mnist", "cifar10", "imagenet")
    return ("mnist",) if budget == "smoke" else ("mnist", "cifar10")


class Readout(Study):
    """Three losses on every set: what linear probes read of the class, and of each augmentation."""

    name = "anisotropic/readout"
    paper = "AnInfoNCE, Table 1 and appendices G, H.1"
    claim = "AnInfoNCE keeps more of the augmentations than InfoNCE, more yet off the sphere, and less of the classes"
    laptop = "about 25 min"
    code = (
        "probssl.studies.fitting",
        "probssl.studies.image_sets",
        "probssl.studies.mnist_decoder",
        "probssl.studies.readout_trials",
    )

    def configs(self, budget: Budget) -> list[Config]:
        found = []
        for seed in range(SEEDS[budget]):
            for data in trained_on(budget):
                digits = data == "mnist"
                shared = {"data": data, "seed": seed, **chosen(SCALES[budget], data), **MEASURING[budget]}
                shared |= {"head": not digits, "vae": DECODERS[budget] if digits else None}
                found += [{**shared, "method": method, "augmentations": SIMCLR} for method in EVERYONE]
                if digits:
                    found.append({**shared, "method": "InfoNCE", "augmentations": PLAIN})
        return found

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            images_of(name)

    def cost(self, config: Config) -> float:
        return float(config["data"] != "mnist")

    def trial(self, config: Config) -> Result:
        return readout_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for features in features_of(data):
                for method in EVERYONE:
                    setting, found = name_of(data, method, features), read_from(results, data, method, features)
                    rows += rows_of(self.name, setting, found, metrics_of(data), budget)
            for method in METHODS[1:]:
                learnt = [r["concentrations"] for r in where(results, data=data, method=method, augmentations=SIMCLR)]
                ends = [{"smallest Λ̂": values[0], "largest Λ̂": values[-1]} for values in learnt]
                rows += rows_of(self.name, f"{SETS[data]}, {method}", ends, ("smallest Λ̂", "largest Λ̂"), budget)
        plain = [result["read"]["embedding"] for result in where(results, augmentations=PLAIN)]
        return [*rows, *rows_of(self.name, f"{SETS['mnist']}, {PLAIN}", plain, [NEIGHBOURS], budget)]

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        places = {name_of(data, of): (data, of) for data in trained_on(budget) for of in features_of(data)}
        held = {place: trade_off(rows, *which) for place, which in places.items()}
        good = all(held.values())
        lead = (
            "It is if AnInfoNCE has a higher mean readout of augmentations than InfoNCE and a lower "
            "accuracy on classes, in the mean over seeds. "
            + "; ".join(f"{place}: {'yes' if yes else 'no'}" for place, yes in held.items())
        )
        scale, measuring = SCALES[budget], MEASURING[budget]
        note = (
            f"At most {largest(scale['rows']):,} training images, {scale['steps']:,} steps of {scale['batch']} pairs, "
            f"{SEEDS[budget]} seeds; ± is the standard deviation over them. Probes are logistic regressions fitted on "
            f"{measuring['fitted']:,} training images and judged on {measuring['test']:,} test images; half of them "
            "are augmented where augmentations are looked for, and 50 % is chance. Linear R²: latents of a VAE from "
            "codes of the digits it draws."
        )
        others = [row for row in rows if "Λ̂" in row.metric or row.setting.endswith(PLAIN)]
        sections = [
            Section(
                "Classes against augmentations",
                Picture("trade-off", figure_trade_off(results, rows, places)),
                note="Dots: seeds. Hollow: published.",
            ),
            *(Section(SETS[data], table(rows, data), note=note) for data in trained_on(budget)),
            Section(
                "Other numbers",
                Table(["setting", "metric", "value"], [[row.setting, row.metric, cell(row)] for row in others]),
            ),
        ]
        where_it_is = "there" if good else "not everywhere" if any(held.values()) else "nowhere"
        verdict = (f"the trade-off is {where_it_is}", good)
        return Page("AnInfoNCE: classes and augmentations", lead, sections, verdict)


def features_of(data: str) -> tuple[str, ...]:
    """What is probed on a set: digits are encoded without a head."""
    return ("embedding",) if data == "mnist" else ("backbone", "projection")


def name_of(data: str, *parts: str) -> str:
    """A set, a method and features as rows and panels name them; digits have but one kind of features."""
    return ", ".join([SETS[data], *(part for part in parts if part != "embedding")])


def metrics_of(data: str) -> list[str]:
    """What is measured of everything trained on a set."""
    read = [CLASSES, *(f"readout {name}" for name in READ[data].values()), AVERAGE]
    return [*read, LINEAR, NEIGHBOURS] if data == "mnist" else read


def read_from(results: Results, data: str, method: str, features: str) -> list[dict[str, float]]:
    """What was read from features of a method on a set, seed by seed."""
    return [result["read"][features] for result in where(results, data=data, method=method, augmentations=SIMCLR)]


def trade_off(rows: list[Row], data: str, features: str) -> bool:
    """Whether AnInfoNCE reads augmentations better than InfoNCE, and classes worse, in the mean over seeds."""
    known = {(row.setting, row.metric): row.value for row in rows if row.value is not None}
    plain, learnt = (name_of(data, method, features) for method in METHODS[:2])
    noticed, classes = (
        known.get((learnt, metric), math.nan) - known.get((plain, metric), math.nan) for metric in (AVERAGE, CLASSES)
    )
    return noticed > 0 > classes


def cell(row: Row | None) -> str:
    """A share in per cent, another number as it is; ± over seeds, published in brackets."""
    share = row is None or not (row.metric == LINEAR or "Λ̂" in row.metric)
    return numbers(row, 100, ".1f") if share else numbers(row, form=".3g")


def table(rows: list[Row], data: str) -> Table:
    """Methods below each other, what is read side by side."""
    settings = [name_of(data, method, features) for features in features_of(data) for method in EVERYONE]
    methods = {setting: setting.split(", ", 1)[1] for setting in settings}
    metrics = {metric: metric.removeprefix("readout ") for metric in metrics_of(data)}
    return pivot(rows, methods, metrics, "in %, published in brackets", cell)


def figure_trade_off(results: Results, rows: list[Row], places: dict[str, tuple[str, str]]) -> Figure:
    """Mean readout of augmentations over the accuracy on classes, a panel each kind of features."""
    known = {(row.setting, row.metric): row.published for row in rows}
    drawn, axes = figures.panels(list(places), 3.5, 3.4, x="classes, %", y="augmentations, %")
    for axis, (data, features) in zip(axes, places.values(), strict=True):
        found, printed = {}, {}
        for method in EVERYONE:
            read = read_from(results, data, method, features)
            found[method] = [[(100 * one[CLASSES], 100 * one[AVERAGE]) for one in read]]
            x, y = (known.get((name_of(data, method, features), metric)) for metric in (CLASSES, AVERAGE))
            printed[method] = [] if x is None or y is None else [[(100 * x, 100 * y)]]
        dots: dict[str, Any] = {"legend": False, "linestyle": "", "marker": "o"}
        figures.lines(axis, found, COLOURS, markersize=5, **dots)
        figures.lines(axis, printed, COLOURS, markerfacecolor="none", **dots)
    names = {TITLES.get(method, method): colour for method, colour in COLOURS.items()}
    figures.legend(drawn, names, columns=None if len(axes) > 1 else 2)
    return drawn
