"""AnInfoNCE H.3 and H.4 in twenty dimensions: hard negatives, an ensemble of losses, and TriCL beside AnInfoNCE."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from probssl.report import figures
from probssl.studies import anisotropic_trials
from probssl.studies.anisotropic import AnisotropicStudy
from probssl.studies.base import Budget, Claim, Config, Result, Results, Row, where
from probssl.studies.page import Page, Picture, Section, claim
from probssl.studies.recovery_page import learning, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIM = 20
TRAINING = {"dim": DIM, "hidden": [96, 96, 96], "batch": 512, "rate": 0.015, "concentration rate": 0.1, "start": 20.0}
"""What all trainings share."""

MEASURES = {"r2": "linear R²", "content": "content R²", "style": "style R²"}
SEEDS: dict[Budget, int] = {"smoke": 1, "laptop": 1, "full": 3}


class HardNegatives(AnisotropicStudy):
    """Where the loss is least with hard negatives, and what three of them a sample add to a trained encoder."""

    name = "anisotropic/hard-negatives"
    paper = "AnInfoNCE, B.2, H.3, Figure 10"
    claim = "with hard negatives the loss is least at Λ⁺ − Λ⁻, and training on with them identifies more"
    laptop = "8 to 12 min"
    measures: ClassVar = {
        "least": "Λ of least loss",
        "before": "linear R² before",
        "usual": "linear R², trained on as before",
        "hard": "linear R², trained on with hard negatives",
    }
    POSITIVE, NEGATIVE = 150.0, 100.0
    OPTIMUM, TUNING = f"Λ⁺ {POSITIVE:g}, Λ⁻ {NEGATIVE:g}", "fine-tuning"
    steps: ClassVar = {"smoke": 20, "laptop": 4_000, "full": 50_000}
    seeds: ClassVar = {"smoke": 1, "laptop": 3, "full": 5}
    ANCHORS: ClassVar = {"smoke": 2_000, "laptop": 40_000, "full": 400_000}

    def configs(self, budget: Budget) -> list[Config]:
        steps = self.steps[budget]
        shared = {"dim": DIM, "positive": self.POSITIVE, "negative": self.NEGATIVE}
        optimum = {**shared, "setting": self.OPTIMUM, "negatives": 8, "anchors": self.ANCHORS[budget]}
        tuning = {**shared, **TRAINING, "setting": self.TUNING, "negatives": 3, "rate": 0.01}
        tuning |= {"steps": steps, "more steps": steps}
        return [{**kind, "seed": seed} for kind in (optimum, tuning) for seed in range(self.seeds[budget])]

    def trial(self, config: Config) -> Result:
        tuning = config["setting"] == self.TUNING
        return anisotropic_trials.fine_tuning(config) if tuning else anisotropic_trials.loss_curve(config)

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        theory = self.POSITIVE - self.NEGATIVE
        least = self.OPTIMUM, self.measures["least"]
        usual, hard = ((self.TUNING, self.measures[name]) for name in ("usual", "hard"))
        claims = Claim(least, 0.95 * theory), Claim(1.05 * theory, least), Claim(hard, usual)
        lead = f"Positives follow Λ⁺ = {self.POSITIVE:g}, hard negatives Λ⁻ = {self.NEGATIVE:g}, in {DIM} dimensions."
        sections = [
            Section(
                "Figure 10",
                Picture("figure10", self.figure(results, theory)),
                note="A: the loss at the true latents over the model's concentration, all negatives hard; theory says "
                f"that it is least at {theory:g} (dashed). B: training on with negatives of the batch alone, and with "
                "three hard ones a sample beside them, from the same weights.",
            ),
            Section("Numbers", table(rows, self.measures.values()), note="In brackets, the paper's."),
        ]
        return Page("Hard negatives", lead, sections, claim(all(one.holds(rows) for one in claims)))

    def figure(self, results: Results, theory: float) -> Figure:
        """Figure 10: the loss over the concentration, and the two ways of training on."""
        titles = ("A  hard negatives only", "B  trained on: as before (- -), with hard negatives (red)")
        drawn, axes = figures.panels(titles, 4.3, 3.2)
        optima, tunings = where(results, setting=self.OPTIMUM), where(results, setting=self.TUNING)
        curves = [list(zip(found["concentrations"], found["losses"], strict=True)) for found in optima]
        figures.lines(axes[0], {"loss": curves}, legend=False)
        axes[0].axvline(theory, color=figures.INK, linewidth=0.9, linestyle="--")
        figures.lines(axes[1], learning({"": tunings}), {"": figures.MUTED}, legend=False)
        for name, colour, style in (("usual", figures.MUTED, "--"), ("hard", figures.PALETTE[3], "-")):
            after = [
                [(found["curve"][-1]["step"] + x, r2) for x, r2 in figures.logged(found[f"{name} curve"], "r2")]
                for found in tunings
            ]
            figures.lines(axes[1], {name: after}, {name: colour}, legend=False, linestyle=style)
        figures.name_axes(axes[0], "concentration of the model", "loss")
        figures.name_axes(axes[1], "step", "R²")
        return drawn


class EnsembleStudy(AnisotropicStudy):
    """Two worlds that differ in which latents positives change, and one encoder for both."""

    name = "anisotropic/ensemble"
    paper = "AnInfoNCE, H.3, table and Figure 11"
    claim = "two kinds of positives identify more than one: InfoNCE < AnInfoNCE < ensemble AnInfoNCE"
    laptop = "6 to 10 min"
    measures = MEASURES
    seeds = SEEDS
    steps: ClassVar = {"smoke": 20, "laptop": 20_000, "full": 200_000}
    FIRST: ClassVar = [400.0] * 3 + [15.0] * 9 + [250.0] * 8
    SECOND: ClassVar = [400.0] * 3 + [250.0] * 9 + [15.0] * 8
    WORLDS: ClassVar[dict[str, list[Any]]] = {
        "InfoNCE": FIRST,
        "AnInfoNCE": FIRST,
        "ensemble AnInfoNCE": [FIRST, SECOND],
    }
    """Loss -> the concentrations of the positives that it sees."""

    def settings(self, budget: Budget) -> dict[str, Config]:
        shared = {**TRAINING, "temperature": 1.0}
        return {loss: {**shared, "loss": loss, "concentrations": seen} for loss, seen in self.WORLDS.items()}

    def cost(self, config: Config) -> float:
        return float(config["steps"] * (2 if config["loss"] == "ensemble AnInfoNCE" else 1))

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        claims = [Claim((more, "linear R²"), (less, "linear R²")) for less, more in pairwise(self.WORLDS)]
        lead = (
            "Twenty latents: three that no positive changes (Λ = 400), nine that one kind changes much and the other "
            "little (15 and 250), eight the other way round."
        )
        sections = [
            Section(
                "Linear identifiability",
                table(rows, MEASURES.values()),
                note="In brackets, the paper's. InfoNCE and AnInfoNCE see positives of the first kind, the ensemble "
                f"both, with concentrations of its own for each. {self.steps[budget]:,} steps of 512. Content and "
                "style are those of the first kind.",
            ),
            Section(
                "Figure 11",
                Picture("figure11", self.figure(results)),
                note="A: R² while training. B: the two sets of learnt concentrations, one point a dimension: what one "
                "kind of positives changes, the other keeps.",
            ),
        ]
        return Page("An ensemble of losses", lead, sections, claim(all(one.holds(rows) for one in claims)))

    def figure(self, results: Results) -> Figure:
        """Figure 11: R² while training, and the two sets of concentrations against each other."""
        drawn, axes = figures.panels("AB", 4.3, 3.2)
        found = {loss: where(results, setting=loss) for loss in self.WORLDS}
        figures.lines(axes[0], learning(found))
        figures.name_axes(axes[0], "step", "R²")
        for result in found["ensemble AnInfoNCE"]:
            axes[1].plot(*result["concentrations"], "o", color=figures.PALETTE[2], markersize=5, alpha=0.8)
        figures.name_axes(axes[1], "learnt Λ̂₁", "learnt Λ̂₂")
        return drawn


class TriCLStudy(AnisotropicStudy):
    """TriCL's two contrasts and AnInfoNCE, on isotropic and on anisotropic positives."""

    name = "anisotropic/tricl"
    paper = "AnInfoNCE, H.4, Figure 12"
    claim = "AnInfoNCE reaches higher linear identifiability than TriCL, most on anisotropic positives"
    laptop = "10 to 15 min"
    measures = MEASURES
    seeds = SEEDS
    steps: ClassVar = {"smoke": 20, "laptop": 12_000, "full": 200_000}
    LOSSES: ClassVar = ("AnInfoNCE", "TriCL", "TriCL InfoNCE")
    WORLDS: ClassVar[dict[str, list[float]]] = {"Λ = 100": [100.0] * DIM, "Λ = 15 and 250": [15.0] * 10 + [250.0] * 10}

    def settings(self, budget: Budget) -> dict[str, Config]:
        return {
            f"{world}, {loss}": {**TRAINING, "loss": loss, "concentrations": concentrations}
            for world, concentrations in self.WORLDS.items()
            for loss in self.LOSSES
        }

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        claims = [
            Claim((f"{world}, AnInfoNCE", "linear R²"), (f"{world}, {loss}", "linear R²"))
            for world in self.WORLDS
            for loss in self.LOSSES[1:]
        ]
        lead = (
            "TriCL weighs latents, AnInfoNCE differences of latents. Twenty latents, all with Λ = 100, or half with 15 "
            "and half with 250."
        )
        drawn, axes = figures.panels(list(self.WORLDS), 4.3, 3.2, x="step", y="R²", sharey=True)
        for axis, world in zip(axes, self.WORLDS, strict=True):
            found = {loss: where(results, setting=f"{world}, {loss}") for loss in self.LOSSES}
            figures.lines(axis, learning(found))
            axis.set_ylim(-0.05, 1.03)
        sections = [
            Section(
                "Figure 12",
                Picture("figure12", drawn),
                note="R² while training. TriCL in its spectral form, which has a theorem, and with InfoNCE in its "
                "place.",
            ),
            Section("Numbers", table(rows, MEASURES.values()), note=f"{self.steps[budget]:,} steps of 512."),
        ]
        return Page("TriCL and AnInfoNCE", lead, sections, claim(all(one.holds(rows) for one in claims)))
