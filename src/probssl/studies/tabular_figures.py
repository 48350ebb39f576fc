"""Figures 4 to 13 of Siamese-EBM, drawn to be laid beside the paper's, and one of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.studies.tabular_grid import ENERGIES, LEARNING_RATES, LOSSES, MODELS, Setup
from probssl.studies.tabular_scores import METRICS, Array, Scores, mean, standard_error

COLOUR = dict(zip(LOSSES, figures.PALETTE, strict=False))
MARKER = dict(zip(LOSSES, "osD^vP", strict=True))
ENERGY = {"euclidean": "Euclidean energy", "cosine": "cosine energy"}

FIGURES = {
    "dimension": {"linear_probe": "4", "rankme": "5", "alignment": "8", "uniformity": "10", "change": "12"},
    "preservation": {"linear_probe": "6", "rankme": "7", "alignment": "9", "uniformity": "11", "change": "13"},
}
"""Sweep -> metric -> number of the figure in the paper."""

KL = "kl_exact_model"


def every_figure(scores: Scores) -> Iterator[tuple[str, str, Any]]:
    """Name, title and figure of all that is drawn of a sweep."""
    for metric, number in FIGURES[scores.setup.name].items():
        if metric == "change":
            yield f"figure{number}", f"Figure {number}: learning rate 1 minus 0.01", change_figure(scores)
        else:
            title = METRICS[metric].title
            yield f"figure{number}", f"Figure {number}: {title}", sweep_figure(scores, metric)
    yield "deaugmenting", "Undoing augmentations (not in the paper)", sweep_figure(scores, KL, scales=("log", "symlog"))


def sweep_figure(scores: Scores, metric: str, scales: tuple[str, str] = ("linear", "linear")) -> Any:
    """Relative score above, regret below; Euclidean energy left, cosine right; one line a loss; learning rate 0.01."""
    about, usual = METRICS[metric], LEARNING_RATES.index(0.01)
    unit = f", {about.unit}" if about.unit else ""
    relative, regret = scores.relative(metric)[:, :, usual], scores.regret(metric)[:, :, usual]
    rows = [(f"relative {about.title}, %", relative, 100.0), (f"regret{unit}", regret, 0.0)]
    return _panels(scores, rows, scales)


def change_figure(scores: Scores) -> Any:
    """What learning rate 1 adds: accuracy above, RankMe below."""
    rows = [(f"change of {METRICS[m].title}, {METRICS[m].unit}", m) for m in ("linear_probe", "rankme")]
    return _panels(scores, [(title, scores.change(metric), 0.0) for title, metric in rows])


def _panels(
    scores: Scores, rows: list[tuple[str, Array, float]], scales: tuple[str, str] = ("linear", "linear")
) -> Any:
    """Rows of (title, lines [table, model, position], level without effect): means over tables, standard errors."""
    from matplotlib.lines import Line2D

    figure, axes = figures.new_figure(9.6, 6.2, 2, 2, sharex=True, sharey="row")
    for axis, (energy, (title, values, level)) in zip(
        axes, ((energy, row) for row in rows for energy in ENERGIES), strict=True
    ):
        shown = [(number, m) for number, m in enumerate(MODELS) if m.energy == energy]
        for place, (number, m) in enumerate(shown):
            axis.errorbar(
                _horizontal(scores, place - (len(shown) - 1) / 2),
                mean(values[:, number], 0),
                yerr=np.nan_to_num(standard_error(values[:, number])),
                color=COLOUR[m.loss],
                marker=MARKER[m.loss],
                markersize=4.5,
                linewidth=1.4,
                elinewidth=0.9,
                capsize=2,
            )
        axis.axhline(level, color=figures.MUTED, linewidth=0.8, linestyle="--", zorder=0)
        axis.grid(axis="y", color=figures.MUTED, alpha=0.15, linewidth=0.6)
        if title == rows[0][0]:
            axis.set_title(ENERGY[energy], fontsize=10, color=figures.INK, loc="left")
        else:
            axis.set_xlabel(scores.setup.axis, fontsize=9)
        if energy == ENERGIES[0]:
            axis.set_ylabel(title, fontsize=9)
            axis.set_yscale(scales[[row[0] for row in rows].index(title)])
        _ticks(axis, scores)
    keys = [
        Line2D([], [], color=COLOUR[loss], marker=MARKER[loss], markersize=5, label=title)
        for loss, title in LOSSES.items()
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=9, frameon=False)
    return figure


def _horizontal(scores: Scores, offset: float) -> Array:
    """Where a line's points stand: a little beside each other, so that error bars do not hide each other."""
    values = np.array([float(position) for position in scores.positions])
    return values * 1.012**offset if _is_ratio(scores.setup) else values + 0.006 * offset


def _ticks(axis: Any, scores: Scores) -> None:
    """A tick at every position, written as the text does; ratios on a log scale."""
    from matplotlib.ticker import NullLocator

    if _is_ratio(scores.setup):
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(
        [float(position) for position in scores.positions],
        [scores.setup.label(position) for position in scores.positions],
    )


def _is_ratio(setup: Setup) -> bool:
    return setup.name == "dimension"
