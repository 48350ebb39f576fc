"""What eight methods keep of a style that is known exactly   (SimVAE §7, "Style retrieval", Figures 3 to 5).

The paper reads style off faces whose attributes people labelled. Here it was put into the images, so that all of it is
known: digits turned, coloured and moved, and sprites.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probssl.report import figures
from probssl.studies import pictures, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, rows_of, where
from probssl.studies.page import Page, Picture, Section, numbers, pivot
from probssl.studies.simvae_content import CODE, COLOURS, title
from probssl.studies.simvae_models import METHODS, SETS, UNTRAINED, model_config
from probssl.studies.styles import CONTENT, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERYONE = (*METHODS, UNTRAINED)
TITLES = {"linear": "linear R²", "mlp": "network R²"}
"""Of the probes that factors are read by."""

EVERYWHERE = {"network": "convolutions", "clip": None, "likelihood_variance": 0.02, "latent_variance": 0.15}
LARGE = {**EVERYWHERE, "rows": 20_000, "batch": {"SimVAE": 12, "CRVAE": 64, "else": 128}, "related": 10}
LARGE |= {"queue": 4096, "head": 128}

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        **EVERYWHERE,
        "width": 2,
        "dim": 4,
        "rows": 200,
        "steps": 4,
        "batch": 12,
        "rate": 1e-3,
        "related": 2,
        "momentum": 0.9,
        "queue": 64,
        "head": 8,
    },
    "laptop": {**LARGE, "width": 16, "dim": 32, "steps": 1_000, "rate": 1e-3, "momentum": 0.99},
    "full": {**LARGE, "width": 32, "dim": 64, "steps": 60_000, "rate": 3e-4, "momentum": 0.999},
}

SEEDS = {"smoke": 1, "laptop": 3, "full": 3}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 150, "test": 60, "epochs": 2, "decoder": 1},
    "laptop": {"fitted": 8_000, "test": 2_000, "epochs": 60, "decoder": 10},
    "full": {"fitted": 20_000, "test": 4_000, "epochs": 200, "decoder": 80},
}
"""Images that probes are fitted on and judged on; epochs of a probe, and of a decoder trained on a frozen encoder."""


def trained_on(budget: Budget) -> tuple[str, ...]:
    """The sets that a budget trains on."""
    return ("sprites",) if budget == "smoke" else tuple(CONTENT)


class Style(Study):
    """Eight methods on images whose style is known: what a linear map and a network read of every factor."""

    name = "simvae/style"
    paper = "SimVAE, §7 and Figures 3 to 5"
    claim = "Discriminative methods lose the style that augmentations change; SimVAE keeps it"
    laptop = "about an hour"
    code = CODE
    one_by_one = True

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {"model": model_config(data, method, seed, SCALES[budget]), **MEASURING[budget]}
            for seed in range(SEEDS[budget])
            for data in trained_on(budget)
            for method in EVERYONE
        ]

    def prepare(self, budget: Budget) -> None:
        for name in trained_on(budget):
            simvae_models.images_of(name)

    def trial(self, config: Config) -> Result:
        return simvae_trials.style(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return [
            row
            for data in trained_on(budget)
            for method in EVERYONE
            for row in rows_of(
                self.name,
                f"{SETS[data]}, {method}",
                [numbers_of(result, data) for result in where(results, data=data, method=method)],
                metrics_of(data),
                budget,
            )
        ]

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        measuring = MEASURING[budget]
        note = (
            f"R² of factors (of an angle, of its cosine and sine) on {measuring['test']:,} test images, by a linear "
            f"map and by a network fitted on {measuring['fitted']:,} training images. Content: k-NN accuracy, k chosen "
            "on training images. Kept of the image: 1 − error of a decoder trained on the frozen encoder over that of "
            "the mean image."
        )
        sections = []
        for data in trained_on(budget):
            settings = {f"{SETS[data]}, {method}": title(method) for method in EVERYONE}
            table = pivot(rows, settings, metrics_of(data), "", lambda row: numbers(row, form=".2f"))
            sections.append(Section(SETS[data], Picture(f"style-{data}", figure(results, data)), table, note=note))
            if all(where(results, data=data, method=method) for method in EVERYONE):
                kept = Picture(f"kept-{data}", reconstructions(results, data))
                below = "Test images, and below them what decoders make of the representations of each method. Seed 0."
                sections.append(Section(f"What is kept, {SETS[data]}", kept, note=below))
        failures = {SETS[data]: behind(results, data) for data in trained_on(budget)}
        good = not any(failures.values())
        lead = (
            "On a factor it does if a network reads it better from SimVAE's representations in the mean over seeds, by "
            "more than the standard error of the difference. "
            + "; ".join(f"{name}: not on {', '.join(factors)}" for name, factors in failures.items() if factors)
        )
        verdict = ("SimVAE keeps more than SimCLR" if good else "not on every factor", good)
        return Page("SimVAE: style that is kept", lead, sections, verdict)


def metrics_of(data: str) -> list[str]:
    """What is measured of every method on a set."""
    factors = [f"{name}, {title}" for name in styled(data).train for title in TITLES.values()]
    return [f"{CONTENT[data]}, k-NN", *factors, "kept of the image"]


def numbers_of(result: Result, data: str) -> dict[str, float]:
    """Metric -> what a trial measured."""
    factors = [result["style"][name][reading] for name in styled(data).train for reading in TITLES]
    return dict(zip(metrics_of(data), [result["content"], *factors, result["kept of the image"]], strict=True))


def behind(results: Results, data: str) -> list[str]:
    """Factors that a network does not read better from SimVAE than from SimCLR, by more than the standard error."""
    sides = [where(results, data=data, method=method) for method in ("SimVAE", "SimCLR")]
    if not all(sides):
        return list(styled(data).train)
    factors = []
    for name in styled(data).train:
        ours, theirs = (np.array([result["style"][name]["mlp"] for result in side]) for side in sides)
        error = np.sqrt(sum(side.var(ddof=1) / len(side) if len(side) > 1 else 0.0 for side in (ours, theirs)))
        if not ours.mean() - theirs.mean() > error:
            factors.append(name)
    return factors


def figure(results: Results, data: str) -> Figure:
    """What a network reads of every factor, method below method."""
    names = list(styled(data).train)
    drawn, axes = figures.panels(names, 2.5, 2.8, sharey=True)
    for axis, name in zip(axes, names, strict=True):
        values = {
            title(method): [result["style"][name]["mlp"] for result in where(results, data=data, method=method)]
            for method in EVERYONE
        }
        figures.strips(axis, values, colour=COLOURS)
        axis.set_xlim(-0.1, 1.02)
    return drawn


def reconstructions(results: Results, data: str) -> Figure:
    """Test images and what is left of them, a row each method; of the first seed."""
    images = styled(data).images
    again = {
        title(method): pictures.of_text(where(results, data=data, method=method)[0]["again"], images.shape)
        for method in EVERYONE
    }
    return figures.image_rows({"images": images.test_images[: len(next(iter(again.values())))], **again})
