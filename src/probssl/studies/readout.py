"""What InfoNCE and AnInfoNCE know of the classes of images, and of the augmentations   (AnInfoNCE, Table 1 and G)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probssl.data.images import find_images
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, readout_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, largest, row_of
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
from probssl.training.files import write_text

EVERYONE = (*METHODS, UNTRAINED)
COLOURS = dict(zip(EVERYONE, (*figures.PALETTE[:4], figures.MUTED), strict=True))
TITLES = {FREE: "AnInfoNCE, no sphere", TUNED: "InfoNCE, τ learnt", UNTRAINED: "untrained"}
"""Names in figures of methods that are not written as they are called."""

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        "network": "convolutions",
        "width": 2,
        "features": 8,
        "dim": 6,
        "rows": 200,
        "steps": 4,
        "batch": 16,
        "rate": 1e-3,
        "concentration_rate": 1e-2,
        "temperature": 0.5,
        "crop_scale": 0.2,
    },
    "laptop": {
        "network": "convolutions",
        "width": 16,
        "features": 128,
        "dim": {"mnist": 10, "else": 64},
        "rows": 50_000,
        "steps": 600,
        "batch": 256,
        "rate": 1e-3,
        "concentration_rate": 0.1,
        "temperature": 0.5,
        "crop_scale": 0.2,
    },
    "full": {
        "network": {"mnist": "perceptron", "else": "resnet18"},
        "width": {"mnist": 256, "else": 64},
        "features": 512,
        "dim": {"mnist": 10, "else": 128},
        "rows": {"imagenet": 1_281_167, "else": 60_000},
        "steps": 97_600,
        "batch": 512,
        "rate": 1e-3,
        "concentration_rate": 1e-2,
        "temperature": 0.5,
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
    code = ("probssl.studies.fitting", "probssl.studies.mnist_decoder", "probssl.studies.readout_trials")

    def configs(self, budget: Budget) -> list[Config]:
        found = []
        for seed in range(SEEDS[budget]):
            for data in trained_on(budget):
                own = {n: v.get(data, v["else"]) if isinstance(v, dict) else v for n, v in SCALES[budget].items()}
                digits = data == "mnist"
                shared = {"data": data, "seed": seed, **own, **MEASURING[budget], "head": not digits}
                shared["vae"] = DECODERS[budget] if digits else None
                found += [{**shared, "method": method, "augmentations": SIMCLR} for method in EVERYONE]
                if digits:
                    found.append({**shared, "method": "InfoNCE", "augmentations": PLAIN})
        return found

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            readout_trials.images_of(name)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return [[config] for config in sorted(configs, key=lambda config: config["data"] == "mnist")]

    def trial(self, config: Config) -> Result:
        return readout_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for features in features_of(data):
                for method in EVERYONE:
                    found = [result["read"][features] for result in of_method(results, data, method)]
                    setting = setting_of(data, method, features)
                    rows += [row_of(self.name, setting, m, [r[m] for r in found], budget) for m in metrics_of(data)]
            for method in METHODS[1:]:
                learnt = [result["concentrations"] for result in of_method(results, data, method)]
                for title, place in (("smallest Λ̂", 0), ("largest Λ̂", -1)):
                    values = [found[place] for found in learnt]
                    rows.append(row_of(self.name, f"{SETS[data]}, {method}", title, values, budget))
        plain = [result["read"]["embedding"][NEIGHBOURS] for result in of_method(results, "mnist", "InfoNCE", PLAIN)]
        rows.append(row_of(self.name, f"{SETS['mnist']}, {PLAIN}", NEIGHBOURS, plain, budget))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sets = trained_on(budget)
        drawn = {"trade-off": figure_trade_off(results, rows, sets)}
        drawn |= {f"augmentations-{data}": figure_augmentations(results, rows, data) for data in sets}
        shown = pictures.save(out, drawn)
        told = {of: trade_off(rows, data, features) for data in sets for features, of in places(data).items()}
        good = all(told.values())
        where = "there" if good else "not everywhere" if any(told.values()) else "nowhere"
        badge = html.badge(f"the trade-off is {where}", good)
        lead = (
            f"{badge} &nbsp;It is if AnInfoNCE has a higher mean readout of augmentations than InfoNCE and a lower "
            "accuracy on classes, in the mean over seeds. "
            + html.escape("; ".join(f"{title}: {'yes' if yes else 'no'}" for title, yes in told.items()))
        )
        scale, measuring = SCALES[budget], MEASURING[budget]
        notes = (
            f"At most {largest(scale['rows']):,} training images, {scale['steps']:,} steps of {scale['batch']} pairs, "
            f"{SEEDS[budget]} seeds; ± is the standard deviation over them. Probes are logistic regressions fitted on "
            f"{measuring['fitted']:,} training images and judged on {measuring['test']:,} test images; half of them "
            "are augmented where augmentations are looked for, and 50 % is chance. Linear R²: latents of a VAE from "
            "codes of the digits it draws."
        )
        sections = [
            html.section(
                "Classes against augmentations",
                shown["trade-off"],
                "Dots: seeds. Hollow: published.",
            )
        ]
        for data in sets:
            body = shown[f"augmentations-{data}"] + table(rows, data)
            sections.append(html.section(SETS[data], body, notes))
        sections.append(html.section("Other numbers", others(rows)))
        page = out / "index.html"
        write_text(page, html.page("AnInfoNCE: classes and augmentations", lead, sections))
        return page


def features_of(data: str) -> tuple[str, ...]:
    """What is probed on a set: digits are encoded without a head."""
    return ("embedding",) if data == "mnist" else ("backbone", "projection")


def places(data: str) -> dict[str, str]:
    """Features -> where they are, in words."""
    return {of: SETS[data] if of == "embedding" else f"{SETS[data]}, {of}" for of in features_of(data)}


def setting_of(data: str, method: str, features: str) -> str:
    """The name of a row."""
    return f"{SETS[data]}, {method}" + ("" if features == "embedding" else f", {features}")


def metrics_of(data: str) -> list[str]:
    """What is measured of everything trained on a set."""
    read = [CLASSES, *(f"readout {name}" for name in READ[data].values()), AVERAGE]
    return [*read, LINEAR, NEIGHBOURS] if data == "mnist" else read


def of_method(results: Results, data: str, method: str, augmentations: str = SIMCLR) -> list[Result]:
    """What was found of a method on a set, seed by seed."""
    wanted = data, method, augmentations
    return [r for config, r in results if (config["data"], config["method"], config["augmentations"]) == wanted]


def trade_off(rows: list[Row], data: str, features: str) -> bool:
    """Whether AnInfoNCE reads augmentations better than InfoNCE, and classes worse, in the mean over seeds."""
    found = {(row.setting, row.metric): row.value for row in rows}
    gains = []
    for metric in (AVERAGE, CLASSES):
        plain, learnt = (found.get((setting_of(data, method, features), metric)) for method in METHODS[:2])
        if plain is None or learnt is None:
            return False
        gains.append(learnt - plain)
    return gains[0] > 0 > gains[1]


def cell(row: Row) -> str:
    """A share in per cent, another number as it is; ± over seeds, published in brackets."""
    if row.value is None:
        return "–"
    shown = _number if row.metric == LINEAR or "Λ̂" in row.metric else _percent
    ours = shown(row.value) + ("" if row.spread is None else f" ± {shown(row.spread)}")
    return ours if row.published is None else f"{ours} ({shown(row.published)})"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def table(rows: list[Row], data: str) -> str:
    """Methods below each other, what is read side by side."""
    found = {(row.setting, row.metric): row for row in rows}
    metrics = metrics_of(data)
    body = [
        [setting.split(", ", 1)[1], *(cell(found[setting, metric]) for metric in metrics)]
        for features in features_of(data)
        for setting in (setting_of(data, method, features) for method in EVERYONE)
    ]
    return html.table(["in %, published in brackets", *(m.removeprefix("readout ") for m in metrics)], body)


def others(rows: list[Row]) -> str:
    """Concentrations that were learnt, and neighbours of digits augmented by crops and flips alone."""
    kept = [row for row in rows if "Λ̂" in row.metric or row.setting.endswith(PLAIN)]
    return html.table(["setting", "metric", "value"], [[row.setting, row.metric, cell(row)] for row in kept])


def figure_trade_off(results: Results, rows: list[Row], sets: tuple[str, ...]) -> Any:
    """Mean readout of augmentations over the accuracy on classes, a panel each kind of features."""
    panels = [(data, features) for data in sets for features in features_of(data)]
    published = {(row.setting, row.metric): row.published for row in rows}
    drawn, axes = figures.new_figure(3.4 * len(panels) + 0.4, 3.2, len(panels))
    for axis, (data, features) in zip(axes, panels, strict=True):
        for method in EVERYONE:
            colour, setting = COLOURS[method], setting_of(data, method, features)
            found = [result["read"][features] for result in of_method(results, data, method)]
            points = [(100 * read[CLASSES], 100 * read[AVERAGE]) for read in found]
            label = TITLES.get(method, method)
            if points:
                axis.plot(*zip(*points, strict=True), "o", color=colour, markersize=5, label=label)
            printed = [published.get((setting, metric)) for metric in (CLASSES, AVERAGE)]
            known = [value for value in printed if value is not None]
            if len(known) == 2:
                axis.plot([100 * known[0]], [100 * known[1]], "o", markerfacecolor="none", markeredgecolor=colour)
        axis.set_xlabel("classes, %")
        axis.set_ylabel("augmentations, %")
        axis.set_title(places(data)[features], fontsize=9, color=figures.INK, loc="left")
    legend(drawn, axes)
    return drawn


def figure_augmentations(results: Results, rows: list[Row], data: str) -> Any:
    """How well each augmentation is noticed, method beside method; chance is dashed."""
    published = {(row.setting, row.metric): row.published for row in rows}
    names, kinds = list(READ[data].values()), features_of(data)
    drawn, axes = figures.new_figure(max(4.0, 1.1 * len(names) + 0.6) * len(kinds), 3.0, len(kinds), sharey=True)
    for axis, features in zip(axes, kinds, strict=True):
        axis.axhline(50, color=figures.MUTED, linewidth=0.8, linestyle="--")
        for number, method in enumerate(EVERYONE):
            colour = COLOURS[method]
            found = [result["read"][features] for result in of_method(results, data, method)]
            shift = 0.16 * (number - (len(EVERYONE) - 1) / 2)
            for place, name in enumerate(names):
                values = [100 * read[f"readout {name}"] for read in found]
                label = TITLES.get(method, method) if place == 0 else None
                axis.plot([place + shift] * len(values), values, "o", color=colour, markersize=4.5, label=label)
                printed = published.get((setting_of(data, method, features), f"readout {name}"))
                if printed is not None:
                    axis.plot([place + shift], [100 * printed], "o", markerfacecolor="none", markeredgecolor=colour)
        axis.set_xticks(range(len(names)), names)
        axis.set_title(f"readout, {places(data)[features]}", fontsize=9, color=figures.INK, loc="left")
    axes[0].set_ylabel("noticed, %")
    legend(drawn, axes)
    return drawn


def legend(drawn: Any, axes: np.ndarray) -> None:
    """One for all panels, below them."""
    handles, labels = axes[0].get_legend_handles_labels()
    across = len(labels) if len(axes) > 1 else 2
    drawn.legend(handles, labels, loc="outside lower center", ncols=across, fontsize=7.5, frameon=False)
