"""What eight methods keep of a style that is known exactly   (SimVAE §7, "Style retrieval", Figures 3 to 5).

The paper reads style off faces whose attributes people labelled. Here it was put into the images, so that all of it is
known: digits turned, coloured and moved, and sprites.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probssl.report import figures
from probssl.studies import pictures, simvae_models, simvae_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, where
from probssl.studies.page import Page, Picture, Section, numbers, pivot
from probssl.studies.simvae_content import BATCH, COLOURS, EVERYWHERE, SMALL, OnImages, title
from probssl.studies.simvae_models import SETS
from probssl.studies.styles import CONTENT, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"linear": "linear R²", "mlp": "network R²"}
"""Of the probes that factors are read by."""

LARGE = {**EVERYWHERE, "network": "convolutions", "rows": 20_000, "batch": BATCH}

SCALES: dict[Budget, dict[str, Any]] = {
    "smoke": {**SMALL, "network": "convolutions", "width": 2, "dim": 4, "rows": 200, "steps": 4, "related": 2},
    "laptop": {**LARGE, "width": 16, "dim": 32, "steps": 1_000, "rate": 1e-3, "momentum": 0.99},
    "full": {**LARGE, "width": 32, "dim": 64, "steps": 60_000, "rate": 3e-4, "momentum": 0.999},
}
MEASURING: dict[Budget, dict[str, int]] = {
    "smoke": {"fitted": 150, "test": 60, "epochs": 2, "decoder": 1},
    "laptop": {"fitted": 8_000, "test": 2_000, "epochs": 60, "decoder": 10},
    "full": {"fitted": 20_000, "test": 4_000, "epochs": 200, "decoder": 80},
}
"""Images that probes are fitted on and judged on; epochs of a probe, and of a decoder trained on a frozen encoder."""


class Style(OnImages):
    """Eight methods on images whose style is known: what a linear map and a network read of every factor."""

    name = "simvae/style"
    paper = "SimVAE, §7 and Figures 3 to 5"
    claim = "Discriminative methods lose the style that augmentations change; SimVAE keeps it"
    laptop = "about an hour"
    scales = SCALES
    measuring = MEASURING

    def sets(self, budget: Budget) -> tuple[str, ...]:
        return ("sprites",) if budget == "smoke" else tuple(CONTENT)

    def trial(self, config: Config) -> Result:
        return simvae_trials.style(config, simvae_models.trained(config["model"]))

    def metrics(self, data: str) -> list[str]:
        factors = [f"{name}, {title}" for name in styled(data).train for title in TITLES.values()]
        return [f"{CONTENT[data]}, k-NN", *factors, "kept of the image"]

    def numbers_of(self, result: Result, data: str) -> dict[str, Any]:
        factors = [result["style"][name][reading] for name in styled(data).train for reading in TITLES]
        return dict(zip(self.metrics(data), [result["content"], *factors, result["kept of the image"]], strict=True))

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        measuring = MEASURING[budget]
        note = (
            f"R² of factors (of an angle, of its cosine and sine) on {measuring['test']:,} test images, by a linear "
            f"map and by a network fitted on {measuring['fitted']:,} training images. Content: k-NN accuracy, k chosen "
            "on training images. Kept of the image: 1 − error of a decoder trained on the frozen encoder over that of "
            "the mean image."
        )
        sections, failures = [], {}
        for data in self.sets(budget):
            scores = Picture(f"style-{data}", self.figure(results, data))
            table = pivot(rows, self.settings(data), self.metrics(data), "", lambda row: numbers(row, form=".2f"))
            sections.append(Section(SETS[data], scores, table, note=note))
            if all(where(results, data=data, method=method) for method in self.methods):
                kept = Picture(f"kept-{data}", self.reconstructions(results, data))
                below = "Test images, and below them what decoders make of the representations of each method. Seed 0."
                sections.append(Section(f"What is kept, {SETS[data]}", kept, note=below))
            failures[SETS[data]] = [factor for factor in styled(data).train if not self.better(results, data, factor)]
        good = not any(failures.values())
        lead = (
            "On a factor it does if a network reads it better from SimVAE's representations in the mean over seeds, by "
            "more than the standard error of the difference. "
            + "; ".join(f"{name}: not on {', '.join(factors)}" for name, factors in failures.items() if factors)
        )
        verdict = ("SimVAE keeps more than SimCLR" if good else "not on every factor", good)
        return Page("SimVAE: style that is kept", lead, sections, verdict)

    def better(self, results: Results, data: str, factor: str) -> bool:
        """Whether a network reads a factor better from SimVAE than from SimCLR, by more than the standard error."""
        found = self.found(results, data, f"{factor}, {TITLES['mlp']}")
        ours, theirs = (np.array(found[method]) for method in ("SimVAE", "SimCLR"))
        if not (len(ours) and len(theirs)):
            return False
        error = np.sqrt(sum(side.var(ddof=1) / len(side) if len(side) > 1 else 0.0 for side in (ours, theirs)))
        return bool(ours.mean() - theirs.mean() > error)

    def figure(self, results: Results, data: str) -> Figure:
        """What a network reads of every factor, method below method."""
        factors = list(styled(data).train)
        drawn, axes = figures.panels(factors, 2.5, 2.8, sharey=True)
        for axis, factor in zip(axes, factors, strict=True):
            figures.strips(axis, self.found(results, data, f"{factor}, {TITLES['mlp']}"), colour=COLOURS)
            axis.set_xlim(-0.1, 1.02)
        return drawn

    def reconstructions(self, results: Results, data: str) -> Figure:
        """Test images and what is left of them, a row each method; of the first seed."""
        images = styled(data).images
        again = {
            title(method): pictures.of_text(where(results, data=data, method=method)[0]["again"], images.shape)
            for method in self.methods
        }
        return figures.image_rows({"images": images.test_images[: len(next(iter(again.values())))], **again})
