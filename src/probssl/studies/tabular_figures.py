"""Figures 4 to 13 of Siamese-EBM, drawn to be laid beside the paper's, and one of ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probssl.report import figures
from probssl.studies.tabular_grid import ENERGIES, LEARNING_RATES, LOSSES, MODELS
from probssl.studies.tabular_scores import METRICS, Array, Scores, mean, standard_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = {
    loss: {"color": colour, "marker": marker, "markersize": 4.5}
    for loss, colour, marker in zip(LOSSES, figures.PALETTE, "osD^vP", strict=False)
}
ENERGY = {"euclidean": "Euclidean energy", "cosine": "cosine energy"}

OURS = "deaugmenting"
"""The figure that is not in the paper; each sweep has one of this name."""

KL = "kl_exact_model"


def every_figure(scores: Scores) -> Iterator[tuple[str, str, Figure]]:
    """Name, title and figure of all that is drawn of a sweep."""
    for metric, number in scores.setup.figures.items():
        if metric == "change":
            yield f"figure{number}", f"Figure {number}: learning rate 1 minus 0.01", change_figure(scores)
        else:
            yield f"figure{number}", f"Figure {number}: {METRICS[metric].title}", sweep_figure(scores, metric)
    yield OURS, "Undoing augmentations (not in the paper)", sweep_figure(scores, KL, scales=("log", "symlog"))


def sweep_figure(scores: Scores, metric: str, scales: tuple[str, str] = ("linear", "linear")) -> Figure:
    """Relative score above, regret below; Euclidean energy left, cosine right; one line a loss; learning rate 0.01."""
    about, usual = METRICS[metric], LEARNING_RATES.index(0.01)
    unit = f", {about.unit}" if about.unit else ""
    relative, regret = scores.relative(metric)[:, :, usual], scores.regret(metric)[:, :, usual]
    return _panels(scores, [(f"relative {about.title}, %", relative, 100.0), (f"regret{unit}", regret, 0.0)], scales)


def change_figure(scores: Scores) -> Figure:
    """What learning rate 1 adds: accuracy above, RankMe below."""
    metrics = [METRICS[name] for name in ("linear_probe", "rankme")]
    return _panels(scores, [(f"change of {m.title}, {m.unit}", scores.change(m.name), 0.0) for m in metrics])


def _panels(
    scores: Scores, rows: list[tuple[str, Array, float]], scales: tuple[str, str] = ("linear", "linear")
) -> Figure:
    """Rows of (title, lines [table, model, position], level without effect): means over tables, standard errors."""
    titles = [ENERGY[energy] for energy in ENERGIES] + [""] * (len(rows) * len(ENERGIES) - len(ENERGIES))
    figure, axes = figures.panels(titles, 4.8, 3.1, 2, x=scores.setup.axis, sharex=True, sharey="row")
    panels = itertools.product(zip(rows, scales, strict=True), ENERGIES)
    for axis, (((title, values, level), scale), energy) in zip(axes, panels, strict=True):
        models = [(number, m) for number, m in enumerate(MODELS) if m.energy == energy]
        for place, (number, m) in enumerate(models):
            axis.errorbar(
                _horizontal(scores, place - (len(models) - 1) / 2),
                mean(values[:, number], 0),
                yerr=np.nan_to_num(standard_error(values[:, number])),
                linewidth=1.4,
                elinewidth=0.9,
                capsize=2,
                **STYLE[m.loss],
            )
        axis.axhline(level, color=figures.MUTED, linewidth=0.8, linestyle="--", zorder=0)
        axis.grid(axis="y", color=figures.MUTED, alpha=0.15, linewidth=0.6)
        if energy == ENERGIES[0]:
            axis.set_ylabel(title, fontsize=8)
            axis.set_yscale(scale)
        _ticks(axis, scores)
    figures.legend(figure, {title: STYLE[loss] for loss, title in LOSSES.items()})
    return figure


def _horizontal(scores: Scores, offset: float) -> Array:
    """Where a line's points stand: a little beside each other, so that error bars do not hide each other."""
    values = np.array([float(position) for position in scores.positions])
    return values * 1.012**offset if scores.setup.is_ratio else values + 0.006 * offset


def _ticks(axis: Any, scores: Scores) -> None:
    """A tick at every position, written as the text does; ratios on a log scale."""
    if scores.setup.is_ratio:
        axis.set_xscale("log")
        axis.minorticks_off()
    axis.set_xticks(
        [float(position) for position in scores.positions],
        [scores.setup.label(position) for position in scores.positions],
    )
