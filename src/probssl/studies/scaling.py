"""AnInfoNCE H.1 and H.2: batch size, dimension, concentration (Figures 4, 8, 9); a marginal that moves (Figure 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from probssl.report import figures
from probssl.studies import scaling_trials
from probssl.studies.base import Budget, Config, Result, Results, Row, where
from probssl.studies.page import Page, Picture, Section, claim
from probssl.studies.recovery import RecoveryStudy
from probssl.studies.recovery_page import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CODE = ("probssl.studies.scaling_trials", "probssl.studies.fitting", "probssl.studies.recovery")
DIMENSIONS = (5, 10, 20, 40)
CONCENTRATIONS = (10.0, 25.0, 75.0, 150.0)
BATCHES = (32, 128, 512, 2048)
TARGETS = (0.7, 0.8, 0.9)


class Scaling(RecoveryStudy):
    """Linear identifiability after a fixed number of steps, over batch size, dimension and concentration."""

    name = "anisotropic/scaling"
    paper = "AnInfoNCE, H.1, Figures 4, 8 and 9"
    claim = "higher dimensions and concentrations identify less in given steps, and larger batches make up for it"
    laptop = "10 to 15 min"
    code = CODE
    measures: ClassVar = {"r2": "linear R²"}

    steps: ClassVar = {"smoke": 20, "laptop": 2_000, "full": 100_000}
    seeds: ClassVar = {"smoke": 1, "laptop": 1, "full": 3}

    def settings(self, budget: Budget) -> dict[str, Config]:
        cases = dict.fromkeys(
            [(dim, 25.0) for dim in DIMENSIONS]
            + [(20, concentration) for concentration in CONCENTRATIONS]
            + [(10, 75.0)]
        )
        shared = {"hidden": [96, 96, 96], "rate": 0.01}
        return {
            f"d = {dim}, Λ = {value:g}, batch {batch}": {**shared, "dim": dim, "concentration": value, "batch": batch}
            for dim, value in cases
            for batch in (BATCHES[:1] if budget == "smoke" else BATCHES)
        }

    def cost(self, config: Config) -> float:
        return float(config["steps"] * config["batch"])

    def trial(self, config: Config) -> Result:
        return scaling_trials.scaling(config)

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        lead = (
            "Isotropic positives, vMF(Λ) around their anchors, InfoNCE at the world's own concentration with negatives "
            f"from the marginal, and the same {self.steps[budget]:,} steps for all."
        )
        overlap = (
            "Left: R² while training, ten dimensions. Right: cosine of an anchor with its positive (filled) and with "
            "others. Where the two do not overlap, positives are told apart without knowing the latents."
        )
        steps = "Steps to an R², at Λ = 25 and the largest batch; a target that was not reached is left out."
        batches = "Held-out R² over batch size, by dimension and concentration."
        sections = [
            Section("Figure 4", Picture("figure4", figure_grid(results)), note=batches),
            Section("Figure 8", Picture("figure8", figure_dynamics(results)), note=overlap),
            Section("Figure 9B", Picture("figure9", figure_steps(results)), note=steps),
            Section("Numbers", table(rows, self.measures.values())),
        ]
        return Page("What identification costs", lead, sections)


def figure_grid(results: Results) -> Figure:
    """Figure 4: R² over batch size, by dimension (A) and by concentration (B)."""
    drawn, axes = figures.panels(["A  Λ = 25", "B  d = 20"], 4.3, 3.2, x="batch size", y="R²", sharey=True)
    cases = [
        {f"d = {dim}": {"dim": dim, "concentration": 25.0} for dim in DIMENSIONS},
        {f"Λ = {value:g}": {"dim": 20, "concentration": value} for value in CONCENTRATIONS},
    ]
    for axis, named in zip(axes, cases, strict=True):
        lines = {label: [means_by_batch(results, case)] for label, case in named.items()}
        figures.lines(axis, lines, marker="o", markersize=4)
        axis.set_xscale("log", base=2)
        axis.set_ylim(0, 1.03)
    return drawn


def means_by_batch(results: Results, case: Config) -> figures.Line:
    """Mean R² over seeds at every batch size that was tried."""
    found = {batch: [result["r2"] for result in where(results, **case, batch=batch)] for batch in BATCHES}
    return [(batch, float(np.mean(scores))) for batch, scores in found.items() if scores]


def figure_dynamics(results: Results) -> Figure:
    """Figure 8: curves by batch size and overlap of positives and negatives, for Λ = 25 and 75 in ten dimensions."""
    concentrations = (25.0, 75.0)
    titles = [f"Λ = {concentration:g}" for concentration in concentrations for _ in range(2)]
    drawn, axes = figures.panels(titles, 4.3, 2.7, 2)
    edges = np.linspace(-1, 1, scaling_trials.BINS + 1)
    for concentration, curve_axis, overlap_axis in zip(concentrations, axes[::2], axes[1::2], strict=True):
        curves = {
            f"batch {batch}": [
                figures.logged(result["curve"], "r2")
                for result in where(results, dim=10, concentration=concentration, batch=batch)
            ]
            for batch in BATCHES
        }
        figures.lines(curve_axis, curves, linewidth=1.2)
        for result in where(results, dim=10, concentration=concentration, batch=BATCHES[0], seed=0):
            overlap_axis.stairs(result["positives"], edges, fill=True, color=figures.PALETTE[0], alpha=0.5)
            overlap_axis.stairs(result["negatives"], edges, color=figures.INK)
        curve_axis.set_ylim(0, 1.03)
        figures.name_axes(curve_axis, "step", "R²")
        figures.name_axes(overlap_axis, "cosine similarity", "density")
    return drawn


def figure_steps(results: Results) -> Figure:
    """Figure 9B: steps to an R² over the dimension."""
    drawn, (axis,) = figures.panels([""], 4.6, 3.0, x="dimension", y="steps")
    usual = {"concentration": 25.0, "batch": BATCHES[-1], "seed": 0}
    curves = {dim: result["curve"] for dim in DIMENSIONS for result in where(results, dim=dim, **usual)}

    def reached(target: float) -> figures.Line:
        steps = {dim: [point["step"] for point in curve if point["r2"] >= target] for dim, curve in curves.items()}
        return [(dim, found[0]) for dim, found in steps.items() if found]

    lines = {f"R² {target:g}": [reached(target)] for target in TARGETS}
    figures.lines(axis, lines, marker="o", markersize=4)
    return drawn


MARGINALS = {
    "smoke": (0.0, 5.0),
    "laptop": (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    "full": (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
}
MISMATCH_MEASURES = {
    "accuracy": "domain accuracy",
    "at home": "R² where trained",
    "away": "R² where tested",
    "carried away": "R² where tested, map from where trained",
}


class Mismatch(RecoveryStudy):
    """A marginal concentrated at one pole in training and at the other in testing."""

    name = "anisotropic/mismatch"
    paper = "AnInfoNCE, H.1, Figure 6 C and D"
    claim = "the better a classifier tells training from testing data, the less is identified"
    laptop = "5 to 8 min"
    code = CODE
    measures = MISMATCH_MEASURES

    steps: ClassVar = {"smoke": 20, "laptop": 4_000, "full": 50_000}
    seeds: ClassVar = {"smoke": 1, "laptop": 2, "full": 3}

    def settings(self, budget: Budget) -> dict[str, Config]:
        shared = {"dim": 10, "concentration": 25.0, "batch": 512, "hidden": [64, 64, 64], "rate": 0.01}
        return {f"marginal vMF({marginal:g})": {**shared, "marginal": marginal} for marginal in MARGINALS[budget]}

    def trial(self, config: Config) -> Result:
        return scaling_trials.mismatch(config)

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        away = [row.value or 0.0 for row in rows if row.metric == MISMATCH_MEASURES["away"]]
        note = (
            "R² where tested, over the accuracy of a classifier that tells training from testing observations; numbers "
            "are the concentration of the marginal."
        )
        maps = (
            "R² where tested: the affine map from codes to latents is fitted to test data. The last column takes the "
            "map fitted to training data instead. For augmented against plain images the paper's classifiers reach "
            "98.7 to 99.2 %."
        )
        sections = [
            Section("Figure 6D", Picture("figure6", figure_mismatch(results, budget)), note=note),
            Section("Numbers", table(rows, self.measures.values()), note=maps),
        ]
        lead = "Trained on latents von Mises–Fisher about the north pole, tested on the same about the south pole."
        held = len(away) > 1 and away[-1] < away[0] - 0.05
        return Page("A marginal that moves", lead, sections, claim(held))


def figure_mismatch(results: Results, budget: Budget) -> Figure:
    """Figure 6D: what is identified over how well the two domains are told apart."""
    drawn, (axis,) = figures.panels([""], 5.2, 3.2, x="domain accuracy", y="R²")
    found = {marginal: where(results, marginal=marginal) for marginal in MARGINALS[budget]}
    means = {
        marginal: {key: float(np.mean([result[key] for result in group])) for key in MISMATCH_MEASURES}
        for marginal, group in found.items()
        if group
    }
    lines = {
        label: [[(mean["accuracy"], mean[key]) for mean in means.values()]]
        for key, label in MISMATCH_MEASURES.items()
        if key != "accuracy"
    }
    figures.lines(axis, lines, marker="o", markersize=4)
    for marginal, mean in means.items():
        at = (mean["accuracy"], mean["away"])
        axis.annotate(f"{marginal:g}", at, xytext=(3, 4), textcoords="offset points", fontsize=7)
    axis.set_ylim(max(-1, min(-0.05, axis.get_ylim()[0])), 1.05)
    return drawn
