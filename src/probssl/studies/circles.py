"""Two circles, four losses: the proof of concept of Siamese-EBM (§3, appendix D).

200 points on two circles (factor 0.1, noise 0.05). An augmentation rotates by −90°, 0° or 90° and adds noise 0.1,
so the radius is all that it keeps. The encoder is an MLP 2-20-2 with the Euclidean energy; every loss starts from the
same weights, takes the whole data set as its batch, and trains by Adam at 0.01. The bias networks of SNL and NCE have
20 hidden units and learn at 0.1; Fisher gets the exact score of the mixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from probssl.data import Table, load_table
from probssl.report import figures
from probssl.studies import circles_trials
from probssl.studies.base import Budget, Claim, Config, Result, Results, Row, Study, where
from probssl.studies.circles_trials import BASELINES, LOSSES, METRICS, augmentation, inputs
from probssl.studies.comparison import published, verdict
from probssl.studies.page import Page, Picture, Section, claim, pivot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE = {"smoke": (1, 200), "laptop": (5, 2000), "full": (5, 10_000)}  # seeds, steps
CLAIMS = [Claim((loss, METRICS[0]), 0.99) for loss in LOSSES]


class Circles(Study):
    """All losses and baselines over the seeds of the budget; figures 1 to 3 of the paper."""

    name = "siamese/circles"
    paper = "Siamese-EBM, §3 and D"
    claim = "KL, SNL, NCE and Fisher all separate two circles"
    laptop = "1 to 2 min"
    code = ("probssl.studies.circles_trials",)

    def configs(self, budget: Budget) -> list[Config]:
        seeds, steps = SCALE[budget]
        settings = (*BASELINES, *LOSSES)
        return [{"setting": s, "seed": seed, "steps": steps} for seed in range(seeds) for s in settings]

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result]]:
        return circles_trials.run_batch(configs)

    def cohort(self, config: Config) -> Any:
        return config["seed"] // 4

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        """Mean and standard deviation over seeds, beside what the paper shows."""
        known = published(self.name)
        rows = []
        for setting in (*LOSSES, *BASELINES):
            for metric in METRICS:
                values = np.array([result["numbers"][metric] for result in where(results, setting=setting)])
                target = known.get((setting, metric))
                mean = float(values.mean()) if len(values) else None
                spread = float(values.std(ddof=1)) if len(values) > 1 else None if mean is None else 0.0
                rows.append(Row(setting, metric, mean, spread, target, verdict(mean, spread, len(values), target)))
        return rows

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        seeds, steps = SCALE[budget]
        data = (
            "Dots are observations, crosses one augmentation of each: a rotation by −90°, 0° or 90° and noise. "
            "Inner circle yellow, outer circle purple."
        )
        separation = (
            f"Mean and standard deviation over {seeds} seed{'s' if seeds > 1 else ''}, {steps:,} steps each. The "
            "paper shows a picture: complete separation by all four, a probe of 1.000."
        )
        scores = pivot(rows, {setting: setting for setting in (*LOSSES, *BASELINES)}, METRICS, "code", cell)
        curves = "The curves say little about success, as the paper notes: the four losses are not on one scale."
        sections = [
            Section("Figure 1: data and augmentation", Picture("figure1", figure_data()), note=data),
            Section("Separation of the circles", scores, note=separation, beside=True),
            Section("Figure 2: learnt representations", representations("figure2", results, [0])),
            Section("Figure 3: losses", Picture("figure3", figure_losses(results)), note=curves),
        ]
        if seeds > 1:
            every = representations("all-seeds", results, range(seeds))
            sections.append(Section("Every seed", every, note="None was picked."))
        lead = (
            "Four ways to fit one model, q(x | x̃) ∝ p(x) exp(−½‖ψ(x) − ψ(x̃)‖²), each learning without labels that only "
            "the radius survives a rotation."
        )
        return Page("Two circles, four losses", lead, sections, claim(all(c.holds(rows) for c in CLAIMS)))


def cell(row: Row | None) -> str:
    """Ours with the spread, and the verdict where the paper shows the same."""
    if row is None or row.value is None:
        return "–"
    ours = f"{row.value:.3f} ± {row.spread:.3f}"
    return ours if row.published is None else f"{ours} {row.verdict}"


def point_colours(table: Table) -> list[str]:
    """Yellow inside, purple outside."""
    assert table.labels is not None
    return ["#e8b21e" if table.classes[code] == "inner" else "#6b3fa0" for code in table.labels]


def figure_data() -> Figure:
    """Figure 1: the circles, one augmentation of each point, and a line between the two."""
    table = load_table("toy:circles", seed=0)
    x = inputs(table)
    x_aug = augmentation().sample(x, torch.Generator().manual_seed(0))
    figure, (axis,) = figures.new_figure(4.6, 4.4)
    pairs = {"pairs": list(zip(x.tolist(), x_aug.tolist(), strict=True))}
    figures.lines(axis, pairs, legend=False, color="#222222", linewidth=0.35, alpha=0.45, zorder=1)
    axis.scatter(*x.numpy().T, c=point_colours(table), s=16, zorder=3, linewidths=0)
    axis.scatter(*x_aug.numpy().T, c=point_colours(table), s=18, marker="x", linewidths=0.8, zorder=2)
    axis.set_aspect("equal")
    return figure


def representations(name: str, results: Results, seeds: Sequence[int]) -> Picture:
    """Figure 2: the learnt two-dimensional representation, one panel a loss and one row a seed."""
    known = {(config["seed"], config["setting"]): result for config, result in results}
    places = [(seed, setting) for seed in seeds for setting in LOSSES]
    probes = [f"   probe {known[place]['numbers'][METRICS[0]]:.2f}" if place in known else "" for place in places]
    titles = [setting + probe for (_, setting), probe in zip(places, probes, strict=True)]
    figure, axes = figures.panels(titles, 2.5, 2.4, len(LOSSES))
    for axis, (seed, setting) in zip(axes, places, strict=True):
        if (seed, setting) in known:  # it may have failed
            colours = point_colours(load_table("toy:circles", seed=seed))
            axis.scatter(*np.array(known[seed, setting]["z"]).T, c=colours, s=10, linewidths=0, alpha=0.85)
    for axis, seed in zip(axes[:: len(LOSSES)], seeds, strict=True):
        axis.set_ylabel(f"seed {seed}", fontsize=8)
    return Picture(name, figure)


def figure_losses(results: Results) -> Figure:
    """Figure 3: the loss curve of each loss, one line a seed; that of seed 0 stands out."""
    figure, axes = figures.panels(list(LOSSES), 2.5, 2.2, x="step")
    for axis, setting in zip(axes, LOSSES, strict=True):
        curves = [(config["seed"], result["curve"]) for config, result in results if config["setting"] == setting]
        others = {"others": [curve for seed, curve in curves if seed]}
        figures.lines(axis, others, legend=False, color=figures.MUTED, linewidth=0.7, alpha=0.5)
        figures.lines(axis, {"seed 0": [curve for seed, curve in curves if not seed]}, legend=False, linewidth=1.4)
    return figure
