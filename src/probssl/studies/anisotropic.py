"""AnInfoNCE §4.1, Figure 2: positives that keep some latents better than others, and what two losses make of them.

Ten latents uniform on the sphere; a positive follows exp(−½ (z̃ − z)ᵀ Λ (z̃ − z)) with Λ = 5 for five of them (style)
and Λ₂ for the others (content), sampled exactly. InfoNCE with its temperature of 1 and with one chosen for the
world, against AnInfoNCE, which learns a concentration for every dimension. Beyond the figure: what the samplers that
stand in for the exact one, and candidates that do not follow the marginal, do to the learnt concentrations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from probssl.report import figures
from probssl.studies import anisotropic_trials
from probssl.studies.base import Budget, Claim, Config, Result, Results, Row, where
from probssl.studies.page import Page, Picture, Section, claim
from probssl.studies.recovery import RecoveryStudy
from probssl.studies.recovery_page import concentrations, learning, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE, DIM = 5.0, 10
PAPERS = (5.0, 10.0, 25.0, 50.0, 100.0, 200.0)
CONTENT = {"smoke": (25.0,), "laptop": PAPERS, "full": PAPERS}
SHOWN = 25.0
"""The Λ₂ of panels B to D."""

LOSSES = ("AnInfoNCE", "InfoNCE, τ = 1", "InfoNCE, τ = 1/√(Λ₁Λ₂)")
COLOURS = dict(zip(LOSSES, (figures.PALETTE[0], figures.PALETTE[3], figures.PALETTE[5]), strict=True))
VARIANTS = {
    "shell sampler": {"sampler": "shell"},
    "projected sampler": {"sampler": "projected"},
    "augmented negatives": {"candidates": "batch"},
}
"""AnInfoNCE at Λ₂ = 25 with something other than the theory asks for."""


class AnisotropicStudy(RecoveryStudy):
    """Trains on an anisotropic world."""

    code = ("probssl.studies.anisotropic_trials", "probssl.studies.fitting", "probssl.studies.recovery")

    def trial(self, config: Config) -> Result:
        return anisotropic_trials.trial(config)


class AnisotropicLambda(AnisotropicStudy):
    """Two losses over Λ₂, learning curves, loss against its optimum, learnt concentrations; and shortcuts."""

    name = "anisotropic/lambda"
    paper = "AnInfoNCE, §4.1, Figure 2"
    claim = "AnInfoNCE recovers style and content and their concentrations; InfoNCE at its own temperature loses style"
    laptop = "10 to 15 min"
    measures: ClassVar = {
        "r2": "linear R²",
        "content": "content R²",
        "style": "style R²",
        "error": "largest error of Λ̂",
        "gap": "loss above its optimum",
    }

    steps: ClassVar = {"smoke": 20, "laptop": 8_000, "full": 30_000}
    seeds: ClassVar = {"smoke": 1, "laptop": 1, "full": 3}

    def settings(self, budget: Budget) -> dict[str, Config]:
        found = {named(loss, content): training(loss, content) for content in CONTENT[budget] for loss in LOSSES}
        shown = found[named("AnInfoNCE", SHOWN)]
        return {**found, **{name: {**shown, **change} for name, change in VARIANTS.items()}}

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        ours, plain = ((named(loss, SHOWN), "style R²") for loss in LOSSES[:2])
        held = Claim(ours, 0.95).holds(rows) and Claim(0.5, plain).holds(rows)
        lead = (
            "Five latents that positives change much (style, Λ₁ = 5) and five that they change less (content, Λ₂), "
            "behind a nonlinear mixing."
        )
        seeds = self.seeds[budget]
        sections = [
            Section(
                "Figure 2",
                Picture("figure2", figure(results, rows)),
                note="A: held-out R² over Λ₂; B: while training; C: the loss, and the least possible one (dashed: true "
                "latents and concentrations on the same batches); D: learnt concentrations, the true ones dashed.",
            ),
            Section(
                "What shortcuts do to the learnt concentrations",
                Picture("shortcuts", figure_shortcuts(results)),
                note="The exact sampler with negatives from the marginal; the shell and the projected Gaussian sampler "
                "in place of it; and negatives that are augmentations, which are not uniform.",
            ),
            Section(
                "Numbers",
                table(rows, self.measures.values()),
                note=f"{self.steps[budget]:,} steps of 1,024, {seeds} mixing{'s' if seeds > 1 else ''}. Λ̂'s error is "
                "the largest of |Λ̂/Λ − 1| over dimensions.",
            ),
        ]
        return Page("Anisotropic positives", lead, sections, claim(held))


def named(loss: str, content: float) -> str:
    """The setting of a loss at a Λ₂."""
    return f"Λ₂ = {content:g}, {loss}"


def training(loss: str, content: float) -> Config:
    """All that decides the trials of a loss at a Λ₂, but for steps and seed."""
    found: Config = {
        "loss": loss.partition(",")[0],
        "dim": DIM,
        "concentrations": [STYLE] * 5 + [content] * 5,
        "hidden": [64, 64, 64],
        "batch": 1024,
        "rate": 0.015,
        "concentration rate": 0.3,
        "start": 10.0,
    }
    if found["loss"] == "InfoNCE":
        found["temperature"] = 1.0 if loss.endswith("1") else 1 / math.sqrt(STYLE * content)
    return found


def figure(results: Results, rows: list[Row]) -> Figure:
    """Figure 2: A, R² over Λ₂; B, learning curves; C, the loss above its optimum; D, learnt concentrations."""
    titles = ("A  content (–) and style (- -)", f"B  Λ₂ = {SHOWN:g}", "C  AnInfoNCE's loss", "D  learnt concentrations")
    drawn, axes = figures.panels(titles, 4.7, 2.9, 2)
    first = {loss: where(results, setting=named(loss, SHOWN))[:1] for loss in LOSSES}
    for part, style in (("content", "-"), ("style", "--")):
        over = {loss: [over_content(rows, loss, part)] for loss in LOSSES}
        figures.lines(axes[0], over, COLOURS, part == "content", linestyle=style, marker="o", markersize=4)
        figures.lines(axes[1], learning(first, part), COLOURS, legend=False, linestyle=style)
    figures.log_ticks(axes[0], "x", PAPERS)
    truth = {"color": figures.INK, "linewidth": 0.9, "linestyle": "--"}
    for result in first["AnInfoNCE"]:
        figures.lines(axes[2], {"AnInfoNCE": [figures.logged(result["curve"], "loss")]}, COLOURS, legend=False)
        axes[2].axhline(result["least loss"], **truth)
        learnt = {"AnInfoNCE": concentrations(result, range(DIM))}
        figures.lines(axes[3], learnt, COLOURS, legend=False, linewidth=0.9)
    for concentration in (STYLE, SHOWN):
        axes[3].axhline(concentration, **truth)
    for axis, x, y in zip(axes, ("Λ₂", "step", "step", "step"), ("R²", "R²", "loss", "Λ̂"), strict=True):
        figures.name_axes(axis, x, y)
    for axis in axes[:2]:
        axis.set_ylim(-0.05, 1.03)
    return drawn


def over_content(rows: list[Row], loss: str, part: str) -> figures.Line:
    """R² of content or style, by Λ₂; of all latents where the two are alike."""
    known = {(row.setting, row.metric): row.value for row in rows}
    points = [(content, named(loss, content)) for content in PAPERS]
    found = [(x, known.get((name, f"{part} R²"), known.get((name, "linear R²")))) for x, name in points]
    return [(x, value) for x, value in found if value is not None]


def figure_shortcuts(results: Results) -> Figure:
    """Learnt over true concentrations at Λ₂ = 25, for the exact sampler and for each shortcut."""
    settings = {"exact": named("AnInfoNCE", SHOWN), **{name: name for name in VARIANTS}}
    truth = np.sort([STYLE] * 5 + [SHOWN] * 5)
    drawn, (axis,) = figures.new_figure(6.4, 2.4)
    for part, colour in ((slice(5), figures.PALETTE[3]), (slice(5, None), figures.PALETTE[0])):
        ratios = {
            name: [x for r in where(results, setting=s) for x in (np.sort(r["concentrations"]) / truth)[part]]
            for name, s in settings.items()
        }
        figures.strips(axis, ratios, colour=dict.fromkeys(settings, colour))
    axis.axvline(1, color=figures.INK, linewidth=0.9, linestyle="--")
    figures.name_axes(axis, "learnt over true concentration: style (Λ = 5) red, content (Λ = 25) blue", "")
    return drawn
