"""AnInfoNCE H.1 and H.2: batch size, dimension and concentration (Figures 4, 8, 9); a marginal that moves (Figure "
"6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import pictures, scaling_trials
from probssl.studies.base import Budget, Config, Result, Results, Row
from probssl.studies.recovery import RecoveryStudy
from probssl.studies.recovery_page import dress, grouped, numbers, summary
from probssl.training.files import write_text

DIMENSIONS = (5, 10, 20, 40)
CONCENTRATIONS = (10.0, 25.0, 75.0, 150.0)
BATCHES = (32, 128, 512, 2048)
STEPS = {"smoke": 20, "laptop": 2_000, "full": 100_000}
SEEDS = {"smoke": 1, "laptop": 1, "full": 3}
TARGETS = (0.7, 0.8, 0.9)


class Scaling(RecoveryStudy):
    """Linear identifiability after a fixed number of steps, over batch size, dimension and concentration."""

    name = "anisotropic/scaling"
    paper = "AnInfoNCE, H.1, Figures 4, 8 and 9"
    claim = "higher dimensions and concentrations identify less in given steps, and larger batches make up for it"
    laptop = "10 to 15 min"
    code = ("probssl.studies.scaling_trials", "probssl.studies.recovery")

    def configs(self, budget: Budget) -> list[Config]:
        cases = dict.fromkeys(
            [(dim, 25.0) for dim in DIMENSIONS]
            + [(20, concentration) for concentration in CONCENTRATIONS]
            + [(10, 75.0)]
        )
        batches, steps = (BATCHES[:1] if budget == "smoke" else BATCHES), STEPS[budget]
        return [
            {
                "setting": f"d = {dim}, Λ = {concentration:g}, batch {batch}",
                "dim": dim,
                "concentration": concentration,
                "batch": batch,
                "hidden": [96, 96, 96],
                "rate": 0.01,
                "steps": steps,
                "seed": seed,
            }
            for seed in range(SEEDS[budget])
            for dim, concentration in cases
            for batch in batches
        ]

    def cost(self, config: Config) -> float:
        return float(config["steps"] * config["batch"])

    def trial(self, config: Config) -> Result:
        return scaling_trials.scaling(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return summary(self.name, results, {"r2": "linear R²"})

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        drawn = {"figure4": figure_grid(results), "figure8": figure_dynamics(results), "figure9": figure_steps(results)}
        shown = pictures.save(out, drawn)
        lead = (
            "Isotropic positives, vMF(Λ) around their anchors, InfoNCE at the world's own concentration with negatives "
            f"from the marginal, and the same {STEPS[budget]:,} steps for all."
        )
        sections = [
            html.section("Figure 4", shown["figure4"], "Held-out R² over batch size, by dimension and concentration."),
            html.section(
                "Figure 8",
                shown["figure8"],
                "Left: R² while training, ten dimensions. Right: cosine of an anchor with its positive (filled) and "
                "with "
                "others. Where the two do not overlap, positives are told apart without knowing the latents.",
            ),
            html.section(
                "Figure 9B",
                shown["figure9"],
                "Steps to an R², at Λ = 25 and the largest batch; a target that was not reached is left out.",
            ),
            html.section("Numbers", numbers(rows, ["linear R²"])),
        ]
        page = out / "index.html"
        write_text(page, html.page("What identification costs", lead, sections))
        return page


def _score(results: Results, dim: int, concentration: float, batch: int) -> float | None:
    found = [
        result["r2"]
        for config, result in results
        if (config["dim"], config["concentration"], config["batch"]) == (dim, concentration, batch)
    ]
    return float(np.mean(found)) if found else None


def figure_grid(results: Results) -> Any:
    """Figure 4: R² over batch size, by dimension (A) and by concentration (B)."""
    drawn, axes = figures.new_figure(8.6, 3.2, 2, sharey=True)
    cases = [
        ("A  Λ = 25", [(f"d = {dim}", dim, 25.0) for dim in DIMENSIONS]),
        ("B  d = 20", [(f"Λ = {value:g}", 20, value) for value in CONCENTRATIONS]),
    ]
    for axis, (title, lines) in zip(axes, cases, strict=True):
        for number, (label, dim, concentration) in enumerate(lines):
            points = [(batch, _score(results, dim, concentration, batch)) for batch in BATCHES]
            known = [(batch, value) for batch, value in points if value is not None]
            if known:
                axis.plot(*zip(*known, strict=True), "o-", color=figures.PALETTE[number], markersize=4, label=label)
        axis.set_xscale("log", base=2)
        axis.set_ylim(0, 1.03)
        dress(axis, title, "batch size", "R²")
        axis.legend(fontsize=7.5, frameon=False)
    return drawn


def figure_dynamics(results: Results) -> Any:
    """Figure 8: curves by batch size and overlap of positives and negatives, for Λ = 25 and 75 in ten dimensions."""
    drawn, axes = figures.new_figure(8.6, 5.4, 2, 2)
    edges = np.linspace(-1, 1, scaling_trials.BINS + 1)
    for row, concentration in enumerate((25.0, 75.0)):
        curve_axis, overlap_axis = axes[2 * row], axes[2 * row + 1]
        for config, result in results:
            if (config["dim"], config["concentration"]) != (10, concentration):
                continue
            colour = figures.PALETTE[BATCHES.index(config["batch"])]
            points = [(point["step"], point["r2"]) for point in result["curve"]]
            label = f"batch {config['batch']}" if config["seed"] == 0 else None
            curve_axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.2, label=label)
            if config["batch"] == BATCHES[0] and config["seed"] == 0:
                overlap_axis.stairs(result["positives"], edges, fill=True, color=figures.PALETTE[0], alpha=0.5)
                overlap_axis.stairs(result["negatives"], edges, color=figures.INK)
        curve_axis.set_ylim(0, 1.03)
        curve_axis.legend(fontsize=7.5, frameon=False)
        dress(curve_axis, f"Λ = {concentration:g}", "step", "R²")
        dress(overlap_axis, f"Λ = {concentration:g}", "cosine similarity", "density")
    return drawn


def figure_steps(results: Results) -> Any:
    """Figure 9B: steps to an R² over the dimension."""
    drawn, (axis,) = figures.new_figure(4.6, 3.0)
    for number, target in enumerate(TARGETS):
        points = []
        for config, result in results:
            if config["concentration"] == 25.0 and config["batch"] == BATCHES[-1] and config["seed"] == 0:
                reached = [point["step"] for point in result["curve"] if point["r2"] >= target]
                if reached:
                    points.append((config["dim"], reached[0]))
        if points:
            x, y = zip(*sorted(points), strict=True)
            axis.plot(x, y, "o-", color=figures.PALETTE[number], markersize=4, label=f"R² {target:g}")
            axis.legend(fontsize=7.5, frameon=False)
    dress(axis, "", "dimension", "steps")
    return drawn


MARGINALS = {
    "smoke": (0.0, 5.0),
    "laptop": (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    "full": (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
}
MISMATCH_STEPS = {"smoke": 20, "laptop": 4_000, "full": 50_000}
MISMATCH_SEEDS = {"smoke": 1, "laptop": 2, "full": 3}
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
    code = ("probssl.studies.scaling_trials", "probssl.studies.recovery")

    def configs(self, budget: Budget) -> list[Config]:
        return [
            {
                "setting": f"marginal vMF({marginal:g})",
                "marginal": marginal,
                "dim": 10,
                "concentration": 25.0,
                "batch": 512,
                "hidden": [64, 64, 64],
                "rate": 0.01,
                "steps": MISMATCH_STEPS[budget],
                "seed": seed,
            }
            for seed in range(MISMATCH_SEEDS[budget])
            for marginal in MARGINALS[budget]
        ]

    def trial(self, config: Config) -> Result:
        return scaling_trials.mismatch(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return summary(self.name, results, MISMATCH_MEASURES)

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shown = pictures.save(out, {"figure6": figure_mismatch(results)})
        away = [row.value or 0.0 for row in rows if row.metric == MISMATCH_MEASURES["away"]]
        held = len(away) > 1 and away[-1] < away[0] - 0.05
        lead = (
            f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;Trained on latents "
            "von Mises–Fisher about the north pole, tested on the same about the south pole."
        )
        sections = [
            html.section(
                "Figure 6D",
                shown["figure6"],
                "R² where tested, over the accuracy of a classifier that tells training from testing observations; "
                "numbers are the concentration of the marginal.",
            ),
            html.section(
                "Numbers",
                numbers(rows, list(MISMATCH_MEASURES.values())),
                "R² where tested: the affine map from codes to latents is fitted to test data. The last column takes "
                "the "
                "map fitted to training data instead. For augmented against plain images the paper's classifiers reach "
                "98.7 to 99.2 %.",
            ),
        ]
        page = out / "index.html"
        write_text(page, html.page("A marginal that moves", lead, sections))
        return page


def figure_mismatch(results: Results) -> Any:
    """Figure 6D: what is identified over how well the two domains are told apart."""
    drawn, (axis,) = figures.new_figure(5.2, 3.2)
    for number, (key, label) in enumerate(list(MISMATCH_MEASURES.items())[1:]):
        points = []
        for group in grouped(results).values():
            accuracy = float(np.mean([result["accuracy"] for _, result in group]))
            points.append((accuracy, float(np.mean([result[key] for _, result in group])), group[0][0]["marginal"]))
        axis.plot(
            [p[0] for p in points], [p[1] for p in points], "o-", color=figures.PALETTE[number], ms=4, label=label
        )
        if key == "away":
            for x, y, marginal in points:
                axis.annotate(f"{marginal:g}", (x, y), xytext=(3, 4), textcoords="offset points", fontsize=7)
    axis.set_ylim(min(-0.05, axis.get_ylim()[0]) if axis.get_ylim()[0] > -1 else -1, 1.05)
    axis.legend(fontsize=7.5, frameon=False)
    dress(axis, "", "domain accuracy", "R²")
    return drawn
