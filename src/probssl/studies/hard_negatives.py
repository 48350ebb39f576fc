"""AnInfoNCE H.3, Figure 10: negatives that are close to their anchors move the optimum, and teach more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probssl.report import figures
from probssl.report import page as html
from probssl.studies import hard_negatives_trials, pictures
from probssl.studies.base import Budget, Config, Result, Results, Row
from probssl.studies.recovery import RecoveryStudy
from probssl.studies.recovery_page import dress, numbers, summary
from probssl.training.files import write_text

POSITIVE, NEGATIVE, DIM = 150.0, 100.0, 20
OPTIMUM = f"Λ⁺ {POSITIVE:g}, Λ⁻ {NEGATIVE:g}"
STEPS = {"smoke": (20, 20), "laptop": (4_000, 4_000), "full": (50_000, 50_000)}
SEEDS = {"smoke": 1, "laptop": 3, "full": 5}
ANCHORS = {"smoke": 2_000, "laptop": 40_000, "full": 400_000}
MEASURES = {
    "least": "Λ of least loss",
    "before": "linear R² before",
    "usual": "linear R², trained on as before",
    "hard": "linear R², trained on with hard negatives",
}


class HardNegatives(RecoveryStudy):
    """Where the loss is least with hard negatives, and what three of them a sample add to a trained encoder."""

    name = "anisotropic/hard-negatives"
    paper = "AnInfoNCE, B.2, H.3, Figure 10"
    claim = "with hard negatives the loss is least at Λ⁺ − Λ⁻, and training on with them identifies more"
    laptop = "8 to 12 min"
    code = ("probssl.studies.hard_negatives_trials", "probssl.studies.recovery")

    def configs(self, budget: Budget) -> list[Config]:
        steps, more = STEPS[budget]
        shared = {"dim": DIM, "positive": POSITIVE, "negative": NEGATIVE}
        found: list[Config] = [
            {"setting": OPTIMUM, **shared, "negatives": 8, "anchors": ANCHORS[budget], "seed": seed}
            for seed in range(SEEDS[budget])
        ]
        training = {
            "negatives": 3,
            "hidden": [96, 96, 96],
            "batch": 512,
            "rate": 0.01,
            "concentration rate": 0.1,
            "start": 20.0,
            "steps": steps,
            "more steps": more,
        }
        found += [{"setting": "fine-tuning", **shared, **training, "seed": seed} for seed in range(SEEDS[budget])]
        return found

    def trial(self, config: Config) -> Result:
        return hard_negatives_trials.trial(config)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return summary(self.name, results, MEASURES)

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        shown = pictures.save(out, {"figure10": figure(results)})
        value = {row.metric: row.value or 0.0 for row in rows}
        least, usual, hard = (value.get(MEASURES[key], 0.0) for key in ("least", "usual", "hard"))
        held = abs(least - (POSITIVE - NEGATIVE)) < 0.05 * (POSITIVE - NEGATIVE) and hard > usual
        lead = (
            f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;Positives follow Λ⁺ = "
            f"{POSITIVE:g},"
            f" hard negatives Λ⁻ = {NEGATIVE:g}, in {DIM} dimensions."
        )
        sections = [
            html.section(
                "Figure 10",
                shown["figure10"],
                "A: the loss at the true latents over the model's concentration, all negatives hard; theory says "
                "that it "
                f"is least at {POSITIVE - NEGATIVE:g} (dashed). B: training on with negatives of the batch alone, "
                "and with "
                "three hard ones a sample beside them, from the same weights.",
            ),
            html.section("Numbers", numbers(rows, list(MEASURES.values())), "In brackets, the paper's."),
        ]
        page = out / "index.html"
        write_text(page, html.page("Hard negatives", lead, sections))
        return page


def figure(results: Results) -> Any:
    """Figure 10: the loss over the concentration, and the two ways of training on."""
    drawn, axes = figures.new_figure(8.6, 3.2, 2)
    for config, result in results:
        if config["setting"] == OPTIMUM:
            axes[0].plot(result["concentrations"], result["losses"], color=figures.PALETTE[0], linewidth=1.2)
            continue
        first = result["curve"]
        axes[1].plot([p["step"] for p in first], [p["r2"] for p in first], color=figures.MUTED, linewidth=1.2)
        for name, colour in (("usual", figures.MUTED), ("hard", figures.PALETTE[3])):
            points = [(config["steps"] + p["step"], p["r2"]) for p in result[f"{name} curve"]]
            style = "--" if name == "usual" else "-"
            axes[1].plot(*zip(*points, strict=True), style, color=colour, linewidth=1.2)
    axes[0].axvline(POSITIVE - NEGATIVE, color=figures.INK, linewidth=0.9, linestyle="--")
    dress(axes[0], "A  hard negatives only", "concentration of the model", "loss")
    dress(axes[1], "B  trained on: as before (- -), with hard negatives (red)", "step", "R²")
    return drawn
