"""AnInfoNCE H.3 and H.4 in twenty dimensions: an ensemble of losses, and TriCL beside AnInfoNCE."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import anisotropic_trials, pictures
from probssl.studies.base import Budget, Config, Result, Results, Row
from probssl.studies.recovery import RecoveryStudy
from probssl.studies.recovery_page import curves, dress, grouped, numbers, palette, summary
from probssl.training.files import write_text

DIM = 20
FIRST = [400.0] * 3 + [15.0] * 9 + [250.0] * 8
SECOND = [400.0] * 3 + [250.0] * 9 + [15.0] * 8
MEASURES = {"r2": "linear R²", "content": "content R²", "style": "style R²"}
SEEDS = {"smoke": 1, "laptop": 1, "full": 3}


def configuration(setting: str, loss: str, concentrations: list[Any], steps: int, seed: int, **more: Any) -> Config:
    """A trial in twenty dimensions; all that decides it."""
    return {
        "setting": setting,
        "loss": loss,
        "dim": DIM,
        "concentrations": concentrations,
        "hidden": [96, 96, 96],
        "batch": 512,
        "rate": 0.015,
        "concentration rate": 0.1,
        "start": 20.0,
        "steps": steps,
        "seed": seed,
        **more,
    }


class EnsembleStudy(RecoveryStudy):
    """Two worlds that differ in which latents positives change, and one encoder for both."""

    name = "anisotropic/ensemble"
    paper = "AnInfoNCE, H.3, table and Figure 11"
    claim = "two kinds of positives identify more than one: InfoNCE < AnInfoNCE < ensemble AnInfoNCE"
    laptop = "6 to 10 min"
    code = ("probssl.studies.anisotropic_trials", "probssl.studies.recovery")
    STEPS: ClassVar = {"smoke": 20, "laptop": 20_000, "full": 200_000}
    LOSSES: ClassVar = ("InfoNCE", "AnInfoNCE", "ensemble AnInfoNCE")

    def configs(self, budget: Budget) -> list[Config]:
        steps = self.STEPS[budget]
        return [
            configuration(loss, loss, self._concentrations(loss), steps, seed, temperature=1.0)
            for seed in range(SEEDS[budget])
            for loss in self.LOSSES
        ]

    @staticmethod
    def _concentrations(loss: str) -> list[Any]:
        return [FIRST, SECOND] if loss == "ensemble AnInfoNCE" else FIRST

    def cost(self, config: Config) -> float:
        return float(config["steps"] * (2 if config["loss"] == "ensemble AnInfoNCE" else 1))

    def trial(self, config: Config) -> Result:
        return anisotropic_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return summary(self.name, results, MEASURES)

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shown = pictures.save(out, {"figure11": self.figure(results)})
        value = {row.setting: row.value or 0.0 for row in rows if row.metric == "linear R²"}
        scores = [value.get(loss, 0.0) for loss in self.LOSSES]
        held = scores == sorted(scores)
        lead = (
            f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;Twenty latents: three that no "
            "positive changes (Λ = 400), nine that one kind changes much and the other little (15 and 250), eight the "
            "other way round."
        )
        sections = [
            html.section(
                "Linear identifiability",
                numbers(rows, list(MEASURES.values())),
                "In brackets, the paper's. InfoNCE and AnInfoNCE see positives of the first kind, the ensemble both, "
                "with "
                f"concentrations of its own for each. {self.STEPS[budget]:,} steps of 512. Content and style are "
                "those of "
                "the first kind.",
            ),
            html.section(
                "Figure 11",
                shown["figure11"],
                "A: R² while training. B: the two sets of learnt concentrations, one point a dimension: what one "
                "kind of "
                "positives changes, the other keeps.",
            ),
        ]
        page = out / "index.html"
        write_text(page, html.page("An ensemble of losses", lead, sections))
        return page

    def figure(self, results: Results) -> Any:
        """Figure 11: R² while training, and the two sets of concentrations against each other."""
        drawn, axes = figures.new_figure(8.6, 3.2, 2)
        curves(axes[0], results, palette(self.LOSSES))
        dress(axes[0], "A", "step", "R²")
        axes[0].legend(fontsize=7.5, frameon=False)
        for _, result in grouped(results).get("ensemble AnInfoNCE", []):
            first, second = np.array(result["concentrations"])
            axes[1].plot(first, second, "o", color=figures.PALETTE[2], markersize=5, alpha=0.8)
        dress(axes[1], "B", "learnt Λ̂₁", "learnt Λ̂₂")
        return drawn


class TriCLStudy(RecoveryStudy):
    """TriCL's two contrasts and AnInfoNCE, on isotropic and on anisotropic positives."""

    name = "anisotropic/tricl"
    paper = "AnInfoNCE, H.4, Figure 12"
    claim = "AnInfoNCE reaches higher linear identifiability than TriCL, most on anisotropic positives"
    laptop = "10 to 15 min"
    code = ("probssl.studies.anisotropic_trials", "probssl.studies.recovery")
    STEPS: ClassVar = {"smoke": 20, "laptop": 12_000, "full": 200_000}
    LOSSES: ClassVar = ("AnInfoNCE", "TriCL", "TriCL InfoNCE")
    WORLDS: ClassVar[dict[str, list[float]]] = {"Λ = 100": [100.0] * DIM, "Λ = 15 and 250": [15.0] * 10 + [250.0] * 10}

    def configs(self, budget: Budget) -> list[Config]:
        return [
            configuration(f"{world}, {loss}", loss, concentrations, self.STEPS[budget], seed)
            for seed in range(SEEDS[budget])
            for world, concentrations in self.WORLDS.items()
            for loss in self.LOSSES
        ]

    def trial(self, config: Config) -> Result:
        return anisotropic_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return summary(self.name, results, MEASURES)

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shown = pictures.save(out, {"figure12": self.figure(results)})
        value = {row.setting: row.value or 0.0 for row in rows if row.metric == "linear R²"}
        held = all(
            value.get(f"{world}, AnInfoNCE", 0.0) >= value.get(f"{world}, {loss}", 0.0)
            for world in self.WORLDS
            for loss in self.LOSSES
        )
        lead = (
            f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;TriCL weighs latents, "
            "AnInfoNCE "
            "differences of latents. Twenty latents, all with Λ = 100, or half with 15 and half with 250."
        )
        sections = [
            html.section(
                "Figure 12",
                shown["figure12"],
                "R² while training. TriCL in its spectral form, which has a theorem, and with InfoNCE in its place.",
            ),
            html.section("Numbers", numbers(rows, list(MEASURES.values())), f"{self.STEPS[budget]:,} steps of 512."),
        ]
        page = out / "index.html"
        write_text(page, html.page("TriCL and AnInfoNCE", lead, sections))
        return page

    def figure(self, results: Results) -> Any:
        """Figure 12: one panel a world."""
        drawn, axes = figures.new_figure(8.6, 3.2, 2, sharey=True)
        for axis, world in zip(axes, self.WORLDS, strict=True):
            curves(axis, results, palette([f"{world}, {loss}" for loss in self.LOSSES]))
            dress(axis, world, "step", "R²")
            axis.legend(list(self.LOSSES), fontsize=7.5, frameon=False)
            axis.set_ylim(-0.05, 1.03)
        return drawn
