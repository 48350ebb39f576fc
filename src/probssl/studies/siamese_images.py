"""What the losses of Siamese-EBM learn of images, beside those they are compared with   (§4.3, Tables 2 and 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probssl.data.images import find_images
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, siamese_images_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of
from probssl.studies.siamese_images_trials import (
    COMPARED,
    LIKELIHOODS,
    METHODS,
    METRICS,
    PROBE,
    RANK,
    SETS,
    UNTRAINED,
)
from probssl.training.files import write_text

EVERYONE = (UNTRAINED, *METHODS)

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        "network": "convolutions",
        "width": 2,
        "features": 8,
        "dim": 6,
        "hidden": 16,
        "rows": 200,
        "steps": 3,
        "batch": 16,
        "optimiser": "adam",
        "rate": 1e-3,
        "weight_decay": 0.0,
        "temperature": 0.1,
    },
    "laptop": {
        "network": "convolutions",
        "width": 16,
        "features": 128,
        "dim": 64,
        "hidden": 400,
        "rows": 20_000,
        "steps": 800,
        "batch": 128,
        "optimiser": "adam",
        "rate": 1e-3,
        "weight_decay": 0.0,
        "temperature": 0.1,
    },
    "full": {
        "network": "resnet18",
        "width": 64,
        "features": 512,
        "dim": 128,
        "hidden": 1_200,
        "rows": 50_000,
        "steps": 97_000,
        "batch": 512,
        "optimiser": "sgd",
        "rate": 0.2,
        "weight_decay": 5e-4,
        "temperature": 0.1,
    },
}
"""How encoders are trained: `full` as in §4.3, for 1,000 epochs."""

SEEDS = {"smoke": 1, "laptop": 2, "full": 1}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 160, "test": 80},
    "laptop": {"fitted": 10_000, "test": 10_000},
    "full": {"fitted": 50_000, "test": 10_000},
}
"""Training images that probes are fitted on, and test images that everything is measured on."""


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on: CIFAR-100 at the paper's scale, where it is here."""
    return ("cifar10", "cifar100") if budget == "full" and find_images("cifar100") else ("cifar10",)


class SiameseImages(Study):
    """Every loss with one network: what a linear probe and neighbours read, and how many dimensions are in use."""

    name = "siamese/images"
    paper = "Siamese-EBM, Tables 2 and 3"
    claim = "On images KL, NCE and SNL learn, behind losses made for that; Fisher falls behind no training at all"
    laptop = "about 30 min"
    code = ("probssl.studies.fitting", "probssl.studies.siamese_images_trials")

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {"data": data, "method": method, "seed": seed, **SCALES[budget], **MEASURING[budget]}
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in EVERYONE
        ]

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            siamese_images_trials.images_of(name)

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return [[config] for config in sorted(configs, key=lambda config: "Fisher" not in config["method"])]

    def trial(self, config: Config) -> Result:
        return siamese_images_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for method in EVERYONE:
                found, setting = of_method(results, data, method), f"{SETS[data]}, {method}"
                rows += [row_of(self.name, setting, metric, [r[metric] for r in found], budget) for metric in METRICS]
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sets = trained_on(budget)
        shown = pictures.save(out, {f"scores-{data}": figure(results, rows, data) for data in sets})
        told = {SETS[data]: order(rows, data) for data in sets}
        good = all(not faults for faults in told.values())
        badge = html.badge("the order is the paper's" if good else "the order is not the paper's everywhere", good)
        faults = "; ".join(f"{title}: {', '.join(found)}" for title, found in told.items() if found)
        lead = (
            f"{badge} &nbsp;It is if the linear probe of KL, NCE and SNL is above that of the untrained encoder, the "
            "best of SimCLR, SimSiam and Spectral above all three, and Fisher below the untrained encoder. "
            + html.escape(faults)
        )
        scale, measuring = SCALES[budget], MEASURING[budget]
        notes = (
            f"{scale['rows']:,} training images, {scale['steps']:,} steps of {scale['batch']}, "
            f"{SEEDS[budget]} seed{'s' if SEEDS[budget] > 1 else ''}; ± is the standard deviation over them. The "
            f"energy is the cosine one at τ = {scale['temperature']:g} unless a name says Euclidean. Probes are fitted "
            f"on {measuring['fitted']:,} training images and judged on {measuring['test']:,} test images; RankMe is "
            f"that of the test images, of at most {scale['features']} ({scale['dim']} on an MLP). Hollow: published."
        )
        sections = [html.section(SETS[data], shown[f"scores-{data}"] + table(rows, data), notes) for data in sets]
        page = out / "index.html"
        write_text(page, html.page("Siamese-EBM on images", lead, sections))
        return page


def of_method(results: Results, data: str, method: str) -> list[Result]:
    """What was found of a method on a set, seed by seed."""
    return [result for config, result in results if (config["data"], config["method"]) == (data, method)]


def order(rows: list[Row], data: str) -> list[str]:
    """Where the linear probes are not in the order of Table 2, in words; nothing where they are."""
    found = {row.setting.split(", ", 1)[1]: row.value for row in rows if row.metric == PROBE and _is_of(row, data)}
    known = {method: value for method, value in found.items() if value is not None}
    missing = [method for method in (UNTRAINED, *COMPARED, *LIKELIHOODS, "Fisher") if method not in known]
    if missing:
        return [f"no {method}" for method in missing]
    floor, best = known[UNTRAINED], max(known[method] for method in COMPARED)
    told = [f"{method} is not above the untrained encoder" for method in LIKELIHOODS if not known[method] > floor]
    told += [f"{method} is not below {', '.join(COMPARED)}" for method in LIKELIHOODS if not known[method] < best]
    return told + ([] if known["Fisher"] < floor else ["Fisher is not below the untrained encoder"])


def _is_of(row: Row, data: str) -> bool:
    return row.setting.startswith(f"{SETS[data]}, ")


def cell(row: Row) -> str:
    """RankMe as it is, the rest in per cent; ± over seeds, published in brackets."""
    if row.value is None:
        return "–"
    scale = 1 if row.metric == RANK else 100
    ours = f"{scale * row.value:.1f}" + ("" if row.spread is None else f" ± {scale * row.spread:.1f}")
    return ours if row.published is None else f"{ours} ({scale * row.published:.4g})"


def table(rows: list[Row], data: str) -> str:
    """Methods below each other, measures side by side."""
    found = {(row.setting.split(", ", 1)[1], row.metric): row for row in rows if _is_of(row, data)}
    body = [[method, *(cell(found[method, metric]) for metric in METRICS)] for method in EVERYONE]
    return html.table(["published in brackets", f"{PROBE}, %", RANK, "k-NN, %"], body)


def colour_of(method: str) -> str:
    """By kind: not trained, compared with, likelihoods, Fisher."""
    if method == UNTRAINED:
        return figures.MUTED
    kinds = (COMPARED, LIKELIHOODS)
    place = next((number for number, kind in enumerate(kinds) if METHODS[method].loss in kind), len(kinds))
    return figures.PALETTE[place]


def figure(results: Results, rows: list[Row], data: str) -> Any:
    """Linear probe and RankMe of every method, ours and published."""
    published = {(row.setting, row.metric): row.published for row in rows}
    drawn, axes = figures.new_figure(10.5, 3.6, 2)
    for axis, metric in zip(axes, (PROBE, RANK), strict=True):
        scale = 1 if metric == RANK else 100
        for place, method in enumerate(EVERYONE):
            colour = colour_of(method)
            values = [scale * result[metric] for result in of_method(results, data, method)]
            axis.plot([place] * len(values), values, "o", color=colour, markersize=4.5)
            printed = published.get((f"{SETS[data]}, {method}", metric))
            if printed is not None:
                axis.plot([place], [scale * printed], "o", markerfacecolor="none", markeredgecolor=colour)
        if metric == RANK:
            axis.set_yscale("log")
        axis.set_xticks(range(len(EVERYONE)), EVERYONE, rotation=45, ha="right")
        axis.tick_params(axis="x", labelsize=7.5)
        title = f"{metric}, {SETS[data]}" + ("" if metric == RANK else ", %")
        axis.set_title(title, fontsize=9, color=figures.INK, loc="left")
    return drawn
