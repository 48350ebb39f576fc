"""What eight methods keep of a style that is known exactly   (SimVAE §7, "Style retrieval", Figures 3 to 5).

The paper reads style off faces whose attributes people labelled. Here it was put into the images, so that all of it is
known: digits turned, coloured and moved, and sprites.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probssl.report import figures, tiles
from probssl.report import page as html
from probssl.studies import pictures, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, row_of
from probssl.studies.simvae_content import CODE, of_model, title
from probssl.studies.simvae_models import DISCRIMINATIVE, GENERATIVE, METHODS, SETS, UNTRAINED, model_config
from probssl.studies.styles import CONTENT, styled
from probssl.training.files import write_text

EVERYONE = (*METHODS, UNTRAINED)
READINGS = ("linear", "mlp")

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {
        "network": "convolutions",
        "width": 2,
        "dim": 4,
        "rows": 200,
        "steps": 4,
        "batch": 12,
        "rate": 1e-3,
        "clip": None,
        "related": 2,
        "likelihood_variance": 0.02,
        "latent_variance": 0.15,
        "momentum": 0.9,
        "queue": 64,
        "head": 8,
    },
    "laptop": {
        "network": "convolutions",
        "width": 16,
        "dim": 32,
        "rows": 20_000,
        "steps": 1_000,
        "batch": {"SimVAE": 12, "CRVAE": 64, "else": 128},
        "rate": 1e-3,
        "clip": None,
        "related": 10,
        "likelihood_variance": 0.02,
        "latent_variance": 0.15,
        "momentum": 0.99,
        "queue": 4096,
        "head": 128,
    },
    "full": {
        "network": "convolutions",
        "width": 32,
        "dim": 64,
        "rows": 20_000,
        "steps": 60_000,
        "batch": {"SimVAE": 12, "CRVAE": 64, "else": 128},
        "rate": 3e-4,
        "clip": None,
        "related": 10,
        "likelihood_variance": 0.02,
        "latent_variance": 0.15,
        "momentum": 0.999,
        "queue": 4096,
        "head": 128,
    },
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

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return [[config] for config in configs]

    def trial(self, config: Config) -> Result:
        return simvae_trials.style(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        rows = []
        for data in trained_on(budget):
            for method in EVERYONE:
                found = of_model(results, data, method)
                setting = f"{SETS[data]}, {method}"
                rows.append(row_of(self.name, setting, f"{CONTENT[data]}, k-NN", [r["content"] for r in found], budget))
                for name in styled(data).train:
                    for reading in READINGS:
                        values = [result["style"][name][reading] for result in found]
                        rows.append(row_of(self.name, setting, f"{name}, {TITLES[reading]}", values, budget))
                kept = [result["kept of the image"] for result in found]
                rows.append(row_of(self.name, setting, "kept of the image", kept, budget))
        return rows

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        sets = trained_on(budget)
        drawn = {f"style-{data}": figure(results, data) for data in sets}
        drawn |= {f"kept-{data}": sheet for data in sets if (sheet := reconstructions(results, data)) is not None}
        shown = pictures.save(out, drawn)
        told = {SETS[data]: behind(results, data) for data in sets}
        good = not any(told.values())
        failed = "; ".join(f"{name}: not on {', '.join(factors)}" for name, factors in told.items() if factors)
        lead = (
            f"{html.badge('SimVAE keeps more than SimCLR' if good else 'not on every factor', good)} &nbsp;On a factor "
            "it does if a network reads it better from SimVAE's representations in the mean over seeds, by more than "
            f"the standard error of the difference. {html.escape(failed)}"
        )
        measuring = MEASURING[budget]
        notes = (
            f"R² of factors (of an angle, of its cosine and sine) on {measuring['test']:,} test images, by a linear "
            f"map and by a network fitted on {measuring['fitted']:,} training images. Content: k-NN accuracy, k chosen "
            "on training images. Kept of the image: 1 − error of a decoder trained on the frozen encoder over that of "
            "the mean image."
        )
        sections = []
        for data in sets:
            sections.append(html.section(SETS[data], shown[f"style-{data}"] + table(rows, data), notes))
            if f"kept-{data}" in shown:
                sections.append(
                    html.section(
                        f"What is kept, {SETS[data]}",
                        shown[f"kept-{data}"],
                        "Test images, and below them what decoders make of the representations of each method. Seed 0.",
                    )
                )
        page = out / "index.html"
        write_text(page, html.page("SimVAE: style that is kept", lead, sections))
        return page


TITLES = {"linear": "linear R²", "mlp": "network R²"}


def behind(results: Results, data: str) -> list[str]:
    """Factors that a network does not read better from SimVAE than from SimCLR, by more than the standard error."""
    sides = [of_model(results, data, method) for method in ("SimVAE", "SimCLR")]
    if not all(sides):
        return list(styled(data).train)
    found = []
    for name in styled(data).train:
        ours, theirs = (np.array([result["style"][name]["mlp"] for result in side]) for side in sides)
        error = np.sqrt(sum(side.var(ddof=1) / len(side) if len(side) > 1 else 0.0 for side in (ours, theirs)))
        if not ours.mean() - theirs.mean() > error:
            found.append(name)
    return found


def table(rows: list[Row], data: str) -> str:
    """Methods below each other, factors side by side."""
    here = [row for row in rows if row.setting.startswith(f"{SETS[data]}, ")]
    metrics = list(dict.fromkeys(row.metric for row in here))
    found = {(row.setting.split(", ", 1)[1], row.metric): row for row in here}

    def cell(row: Row) -> str:
        if row.value is None:
            return "–"
        return f"{row.value:.2f}" + ("" if row.spread is None else f" ± {row.spread:.2f}")

    body = [[title(method), *(cell(found[method, metric]) for metric in metrics)] for method in EVERYONE]
    return html.table(["", *metrics], body)


def figure(results: Results, data: str) -> Any:
    """What a network reads of every factor, method beside method."""
    names = list(styled(data).train)
    drawn, axes = figures.new_figure(2.5 * len(names), 2.8, len(names))
    for axis, name in zip(np.atleast_1d(axes), names, strict=True):
        for place, method in enumerate(EVERYONE):
            colour = "#0f766e" if method in GENERATIVE else "#b45309" if method in DISCRIMINATIVE else figures.MUTED
            values = [result["style"][name]["mlp"] for result in of_model(results, data, method)]
            axis.plot([place] * len(values), values, "o", color=colour, markersize=4.5)
        axis.set_xticks(range(len(EVERYONE)), [title(method) for method in EVERYONE], rotation=60, ha="right")
        axis.tick_params(axis="x", labelsize=7)
        axis.set_ylim(-0.1, 1.02)
        axis.set_title(name, fontsize=9, color=figures.INK, loc="left")
    return drawn


def reconstructions(results: Results, data: str) -> Any:
    """Test images and what is left of them, a row each method; None where a method is missing."""
    images = styled(data).images
    found = [of_model(results, data, method) for method in EVERYONE]
    if not all(found):
        return None
    again = [pictures.of_text(side[0]["again"], images.shape) for side in found]
    rows = {"images": images.test_images[: len(again[0])], **dict(zip(map(title, EVERYONE), again, strict=True))}
    drawn, (axis,) = figures.new_figure(6.4, 0.56 * len(rows))
    sheet = tiles.sheet(np.stack(list(rows.values())))
    axis.imshow(sheet)
    height = len(sheet) / len(rows)
    axis.set_yticks([(number + 0.5) * height for number in range(len(rows))], list(rows))
    axis.tick_params(length=0, labelsize=8)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    return drawn
