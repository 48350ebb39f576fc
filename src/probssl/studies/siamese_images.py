"""What the losses of Siamese-EBM learn of images, beside those they are compared with   (§4.3, Tables 2 and 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probssl.data.images import find_images
from probssl.report import figures
from probssl.studies import siamese_images_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, rows_of, where
from probssl.studies.image_sets import images_of
from probssl.studies.page import Page, Picture, Section, numbers, pivot
from probssl.studies.siamese_images_trials import (
    COMPARED,
    LIKELIHOODS,
    METHODS,
    METRICS,
    NEIGHBOURS,
    PROBE,
    RANK,
    SETS,
    UNTRAINED,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERYONE = (UNTRAINED, *METHODS)
TITLES = {PROBE: f"{PROBE}, %", RANK: RANK, NEIGHBOURS: f"{NEIGHBOURS}, %"}

SMALL = {"network": "convolutions", "optimiser": "adam", "rate": 1e-3, "weight_decay": 0.0, "temperature": 0.1}
SMOKE = {**SMALL, "width": 2, "features": 8, "dim": 6, "hidden": 16, "rows": 200, "steps": 3, "batch": 16}
SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": SMOKE,
    "laptop": {
        **SMALL,
        "width": 16,
        "features": 128,
        "dim": 64,
        "hidden": 400,
        "rows": 20_000,
        "steps": 800,
        "batch": 128,
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
    code = ("probssl.studies.fitting", "probssl.studies.image_sets", "probssl.studies.siamese_images_trials")

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {"data": data, "method": method, "seed": seed, **SCALES[budget], **MEASURING[budget]}
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in EVERYONE
        ]

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            images_of(name)

    def cost(self, config: Config) -> float:
        return float("Fisher" in config["method"])

    def trial(self, config: Config) -> Result:
        return siamese_images_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return [
            row
            for data in trained_on(budget)
            for method in EVERYONE
            for found in [where(results, data=data, method=method)]
            for row in rows_of(self.name, f"{SETS[data]}, {method}", found, METRICS, budget)
        ]

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        scale, measuring = SCALES[budget], MEASURING[budget]
        note = (
            f"{scale['rows']:,} training images, {scale['steps']:,} steps of {scale['batch']}, "
            f"{SEEDS[budget]} seed{'s' if SEEDS[budget] > 1 else ''}; ± is the standard deviation over them. The "
            f"energy is the cosine one at τ = {scale['temperature']:g} unless a name says Euclidean. Probes are fitted "
            f"on {measuring['fitted']:,} training images and judged on {measuring['test']:,} test images; RankMe is "
            f"that of the test images, of at most {scale['features']} ({scale['dim']} on an MLP). Diamonds: published."
        )
        sections, faults = [], []
        for data in trained_on(budget):
            scores = Picture(f"scores-{data}", figure(results, rows, data))
            settings = {f"{SETS[data]}, {method}": method for method in EVERYONE}
            sections.append(Section(SETS[data], scores, pivot(rows, settings, TITLES, cell=cell), note=note))
            if wrong := order(rows, data):
                faults.append(f"{SETS[data]}: {', '.join(wrong)}")
        lead = (
            "It is if the linear probe of KL, NCE and SNL is above that of the untrained encoder, the best of SimCLR, "
            f"SimSiam and Spectral above all three, and Fisher below the untrained encoder. {'; '.join(faults)}"
        )
        verdict = "the order is not the paper's everywhere" if faults else "the order is the paper's"
        return Page("Siamese-EBM on images", lead, sections, (verdict, not faults))


def order(rows: list[Row], data: str) -> list[str]:
    """Where the linear probes are not in the order of Table 2, in words; nothing where they are."""
    probes = {row.setting: row.value for row in rows if row.metric == PROBE and row.value is not None}
    known = {method: probes[f"{SETS[data]}, {method}"] for method in EVERYONE if f"{SETS[data]}, {method}" in probes}
    missing = [method for method in (UNTRAINED, *COMPARED, *LIKELIHOODS, "Fisher") if method not in known]
    if missing:
        return [f"no {method}" for method in missing]
    floor, best = known[UNTRAINED], max(known[method] for method in COMPARED)
    wrong = [f"{method} is not above the untrained encoder" for method in LIKELIHOODS if not known[method] > floor]
    wrong += [f"{method} is not below {', '.join(COMPARED)}" for method in LIKELIHOODS if not known[method] < best]
    return wrong + ([] if known["Fisher"] < floor else ["Fisher is not below the untrained encoder"])


def scale_of(metric: str) -> float:
    """RankMe as it is, the rest in per cent."""
    return 1 if metric == RANK else 100


def cell(row: Row | None) -> str:
    """± over seeds, published in brackets."""
    return "–" if row is None else numbers(row, scale_of(row.metric), ".1f")


def colour_of(method: str) -> str:
    """By kind: not trained, compared with, likelihoods, Fisher."""
    if method == UNTRAINED:
        return figures.MUTED
    kinds = (COMPARED, LIKELIHOODS)
    place = next((number for number, kind in enumerate(kinds) if METHODS[method].loss in kind), len(kinds))
    return figures.PALETTE[place]


def figure(results: Results, rows: list[Row], data: str) -> Figure:
    """Linear probe and RankMe of every method, ours and published."""
    known = {(row.setting, row.metric): row.published for row in rows}
    drawn, axes = figures.panels([TITLES[PROBE], TITLES[RANK]], 5.2, 3.6, sharey=True)
    for axis, metric in zip(axes, (PROBE, RANK), strict=True):
        scale = scale_of(metric)
        ours = {
            method: [scale * result[metric] for result in where(results, data=data, method=method)]
            for method in EVERYONE
        }
        printed = {method: known.get((f"{SETS[data]}, {method}", metric)) for method in EVERYONE}
        published = {method: (scale * value, None) for method, value in printed.items() if value is not None}
        figures.strips(axis, ours, published, {method: colour_of(method) for method in EVERYONE})
    axes[1].set_xscale("log")
    return drawn
