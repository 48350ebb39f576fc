"""Two circles, four losses: the proof of concept of Siamese-EBM (§3, appendix D).

200 points on two circles (factor 0.1, noise 0.05). An augmentation rotates by −90°, 0° or 90° and adds noise 0.1,
so the radius is all that it keeps. The encoder is an MLP 2-20-2 with the Euclidean energy; every loss starts from the
same weights, takes the whole data set as its batch, and trains by Adam at 0.01. The bias networks of SNL and NCE have
20 hidden units and learn at 0.1; Fisher gets the exact score of the mixture.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probssl.data import load_table
from probssl.report import figures
from probssl.report import page as html
from probssl.studies import circles_trials, pictures
from probssl.studies.base import Budget, Config, Result, Results, Row, Study, even_parts
from probssl.studies.circles_trials import BASELINES, LOSSES, METRICS, augmentation, inputs
from probssl.studies.comparison import published, verdict
from probssl.training.files import write_text

SCALE = {"smoke": (1, 200), "laptop": (5, 2000), "full": (5, 10_000)}  # seeds, steps


@dataclass(frozen=True)
class Trial:
    """One code of one data set: its representation, its numbers, and the loss curve where it was trained."""

    setting: str
    seed: int
    z: np.ndarray
    numbers: dict[str, float]
    curve: list[tuple[int, float]]
    collapsed: dict[str, int]

    @classmethod
    def of(cls, config: Config, result: Result) -> Trial:
        """From what the store holds."""
        found = {**result, "z": np.array(result["z"], dtype=np.float32)}
        return cls(config["setting"], config["seed"], **found)


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

    def batches(self, configs: list[Config], jobs: int) -> list[list[Config]]:
        return even_parts(configs, 2 * jobs)

    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        return summarise([Trial.of(*entry) for entry in results])

    def draw(self, results: Results, rows: list[Row], budget: Budget, out: Path) -> Path:
        trials = [Trial.of(*entry) for entry in results]
        seeds, steps = SCALE[budget]
        write_text(out / "trials.csv", _csv(trials))
        losses = figure_losses(trials)
        shown = pictures.save(
            out,
            {
                "figure1": figure_data(),
                "figure2": figure_representations(trials, (0,)),
                "figure3": losses,
                "all-seeds": figure_representations(trials, range(seeds)),
            },
        )
        page = out / "index.html"
        write_text(page, _page(rows, {**shown, "figure3": figures.svg(losses)}, seeds, steps))
        return page


def summarise(trials: list[Trial]) -> list[Row]:
    """Mean and standard deviation over seeds, beside what the paper shows."""
    known = published(Circles.name)
    rows = []
    for setting in (*LOSSES, *BASELINES):
        for metric in METRICS:
            values = np.array([t.numbers[metric] for t in trials if t.setting == setting])
            target = known.get((setting, metric))
            if len(values):
                mean, spread = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
                rows.append(Row(setting, metric, mean, spread, target, verdict(mean, spread, len(values), target)))
            else:
                rows.append(Row(setting, metric, None, None, target, "not comparable"))
    return rows


# Figures

CIRCLES = ("#6b3fa0", "#e8b21e")  # outer, inner


def _point_colours(labels: np.ndarray, classes: tuple[str, ...]) -> list[str]:
    return [CIRCLES[1] if classes[code] == "inner" else CIRCLES[0] for code in labels]


def figure_data() -> Any:
    """Figure 1: the circles, one augmentation of each point, and a line between the two."""
    table = load_table("toy:circles", seed=0)
    assert table.labels is not None
    x = inputs(table)
    x_aug = augmentation().sample(x, torch.Generator().manual_seed(0))
    colour = _point_colours(table.labels, table.classes)
    figure, (axis,) = figures.new_figure(4.6, 4.4)
    for a, b in zip(x.numpy(), x_aug.numpy(), strict=True):
        axis.plot(*zip(a, b, strict=True), color="#222222", linewidth=0.35, alpha=0.45, zorder=1)
    axis.scatter(*x.numpy().T, c=colour, s=16, zorder=3, linewidths=0)
    axis.scatter(*x_aug.numpy().T, c=colour, s=18, marker="x", linewidths=0.8, zorder=2)
    axis.set_aspect("equal")
    return figure


def figure_representations(trials: list[Trial], seeds: Any) -> Any:
    """Figure 2: the learnt two-dimensional representation, one panel a loss and one row a seed."""
    seeds = list(seeds)
    figure, axes = figures.new_figure(2.5 * len(LOSSES), 2.4 * len(seeds) + 0.2, len(LOSSES), len(seeds))
    for axis, (seed, setting) in zip(axes, ((s, name) for s in seeds for name in LOSSES), strict=True):
        found = next((t for t in trials if t.setting == setting and t.seed == seed), None)
        if found is None:  # it failed
            axis.set_title(setting, fontsize=9, color=figures.INK, loc="left")
            continue
        table = load_table("toy:circles", seed=seed)
        assert table.labels is not None
        axis.scatter(*found.z.T, c=_point_colours(table.labels, table.classes), s=10, linewidths=0, alpha=0.85)
        probe = found.numbers["linear probe"]
        axis.set_title(f"{setting}   probe {probe:.2f}", fontsize=9, color=figures.INK, loc="left")
        if setting == next(iter(LOSSES)) and len(seeds) > 1:
            axis.set_ylabel(f"seed {seed}", fontsize=8)
    return figure


def figure_losses(trials: list[Trial]) -> Any:
    """Figure 3: the loss curve of each loss, one line a seed."""
    figure, axes = figures.new_figure(2.5 * len(LOSSES), 2.2, len(LOSSES))
    for axis, setting in zip(axes, LOSSES, strict=True):
        for found in (t for t in trials if t.setting == setting):
            main = found.seed == 0
            axis.plot(
                *zip(*found.curve, strict=True),
                color=figures.PALETTE[0] if main else figures.MUTED,
                linewidth=1.4 if main else 0.7,
                alpha=1 if main else 0.5,
                zorder=2 if main else 1,
            )
        axis.set_title(setting, fontsize=9, color=figures.INK, loc="left")
        axis.set_xlabel("step", fontsize=8)
    return figure


def _csv(trials: list[Trial]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["setting", "seed", *METRICS, "collapsed"])
    for found in trials:
        writer.writerow([found.setting, found.seed, *[found.numbers[m] for m in METRICS], " ".join(found.collapsed)])
    return buffer.getvalue()


def _page(rows: list[Row], shown: dict[str, str], seeds: int, steps: int) -> str:
    cells = {
        (row.setting, row.metric): "–" if row.value is None else f"{row.value:.3f} ± {row.spread:.3f}" for row in rows
    }
    verdicts = {row.setting: row.verdict for row in rows if row.published is not None}
    body = [
        [setting, *[cells[setting, metric] for metric in METRICS], verdicts.get(setting, "–")]
        for setting in (*LOSSES, *BASELINES)
    ]
    held = all(
        row.value is not None and row.value >= 0.99
        for row in rows
        if row.setting in LOSSES and row.metric == METRICS[0]
    )
    lead = (
        f"{html.badge('claim holds' if held else 'claim does not hold', held)} &nbsp;Four ways to fit one "
        "model, q(x | x̃) ∝ p(x) exp(−½‖ψ(x) − ψ(x̃)‖²), each learning without labels that only the radius "
        "survives a rotation."
    )
    sections = [
        html.pair(
            html.section(
                "Figure 1: data and augmentation",
                shown["figure1"],
                "Dots are observations, crosses one augmentation of each: a rotation by −90°, 0° or 90° and noise.",
            ),
            html.section(
                "Separation of the circles",
                html.table(["code", *METRICS, "paper"], body),
                f"Mean and standard deviation over {seeds} seed{'s' if seeds > 1 else ''}, {steps:,} steps "
                "each. The paper shows a picture: complete separation by all four, a probe of 1.000.",
            ),
        ),
        html.section(
            "Figure 2: learnt representations",
            shown["figure2"],
            "Seed 0; inner circle yellow, outer circle purple.",
        ),
        html.section(
            "Figure 3: losses",
            shown["figure3"],
            "The curves say little about success, as the paper notes: the four losses are not on one scale.",
        ),
    ]
    if seeds > 1:
        sections.append(html.section("Every seed", shown["all-seeds"], "None was picked."))
    return html.page("Two circles, four losses", lead, sections)
