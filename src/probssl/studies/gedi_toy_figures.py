"""Figures of `gedi/toy` and `gedi/sensitivity`; nothing here decides a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from probssl.report import figures
from probssl.studies.base import Result, Results
from probssl.studies.gedi_toy_trials import DATA, EXTENT, GRID, fresh_points
from probssl.theory.clustering import FAILURE_MODES

MODES = tuple(FAILURE_MODES)
CLUSTERS = ("#3b6fd4", "#e0813a")


def _drawn(results: Results) -> dict[tuple[str, str], Result]:
    """Trials with a picture, by data set and method."""
    return {(c["data"], c["method"]): r for c, r in results if c["picture"] and "picture" in r}


def _panels(columns: int) -> tuple[Any, np.ndarray]:
    figure, axes = figures.new_figure(1.75 * columns, 3.9, columns, len(DATA))
    return figure, axes.reshape(len(DATA), columns)


def _frame(axis: Any, data: str, title: str) -> None:
    left, right, bottom, top = EXTENT[data]
    axis.set_xlim(left, right)
    axis.set_ylim(bottom, top)
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.set_title(title, fontsize=8, color=figures.INK)


def figure_clusters(results: Results, methods: Sequence[str]) -> Any:
    """Figures 3 and 5: test points by the cluster they are given, over p(y | x), one column a method."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("clusters", ["#b9cdf3", "#ffffff", "#f6d3b8"])
    found = _drawn(results)
    figure, axes = _panels(len(methods))
    for row, data in zip(axes, DATA, strict=True):
        for axis, method in zip(row, methods, strict=True):
            result = found.get((data, method))
            _frame(axis, data, method if result is None else f"{method}  {result['NMI']:.2f}")
            if result is None:
                continue
            picture = result["picture"]
            if len(picture["prediction"]):
                shown = np.array(picture["prediction"]).reshape(GRID, GRID)
                axis.imshow(shown, extent=EXTENT[data], origin="lower", cmap=shades, vmin=0, vmax=1, aspect="auto")
                axis.set_aspect("equal")
            x, _ = fresh_points(data, 0)
            axis.scatter(*x.numpy().T, c=[CLUSTERS[code] for code in picture["clusters"]], s=1.5, linewidths=0)
    return figure


def figure_densities(results: Results, methods: Sequence[str]) -> Any:
    """Figure 5: log p(x) up to a constant, ten nats deep, and samples where there are chains."""
    found = _drawn(results)
    figure, axes = _panels(len(methods))
    for row, data in zip(axes, DATA, strict=True):
        for axis, method in zip(row, methods, strict=True):
            _frame(axis, data, method)
            result = found.get((data, method))
            if result is None:
                continue
            picture = result["picture"]
            shown = np.array(picture["density"]).reshape(GRID, GRID)
            axis.imshow(shown, extent=EXTENT[data], origin="lower", cmap="Blues", vmin=-10, vmax=0, aspect="auto")
            axis.set_aspect("equal")
            if len(picture["samples"]):
                axis.scatter(*np.array(picture["samples"]).T, c="#c44e6c", s=1.5, linewidths=0)
    return figure


def figure_terms(results: Results, settings: Sequence[str]) -> Any:
    """Figure 4: invariance above 0 and prior above ln 2 while training, one line a seed, a column a setting."""
    rows = [(data, term) for data in DATA for term in ("invariance", "prior")]
    figure, axes = figures.new_figure(2.4 * len(settings), 6.4, len(settings), len(rows), sharey="row")
    axes = axes.reshape(len(rows), len(settings))
    least = {"invariance": 0.0, "prior": math.log(2)}
    for number, (data, term) in enumerate(rows):
        for axis, setting in zip(axes[number], settings, strict=True):
            for config, result in results:
                if config["setting"] == f"{data}, {setting}":
                    points = [(point["step"], point[term]) for point in result["curve"] if term in point]
                    if points:
                        axis.plot(*zip(*points, strict=True), color=figures.PALETTE[0], linewidth=0.8, alpha=0.7)
            axis.axhline(least[term], color=figures.PALETTE[3], linewidth=1, linestyle=":")
            axis.set_ylim(*((-0.02, 0.4) if term == "invariance" else (0.6, 2.2)))
            if not number:
                axis.set_title(setting, fontsize=9, color=figures.INK, loc="left")
        axes[number, 0].set_ylabel(f"{data}: {term}", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("step", fontsize=8)
    return figure


def figure_sensitivity(results: Results) -> Any:
    """Figure 8: the mean NMI for every pair of weights, one panel a data set."""
    figure, axes = figures.new_figure(8.4, 3.6, len(DATA))
    for axis, data in zip(axes, DATA, strict=True):
        cells: dict[tuple[float, float], list[float]] = {}
        for config, result in results:
            if config["data"] == data:
                own = config["settings"]
                cells.setdefault((own["invariance"], own["prior"]), []).append(result["NMI"])
        weights = sorted({weight for pair in cells for weight in pair})
        shown = np.array([[np.mean(cells.get((i, p), [np.nan])) for i in weights] for p in weights])
        axis.imshow(shown, origin="lower", vmin=0, vmax=1, cmap="viridis")
        for up, line in enumerate(shown):
            for across, value in enumerate(line):
                colour = "#ffffff" if value < 0.6 else figures.INK
                axis.text(across, up, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        ticks = [f"{weight:g}" for weight in weights]
        axis.set_xticks(range(len(weights)), ticks)
        axis.set_yticks(range(len(weights)), ticks)
        axis.set_title(data, fontsize=9, color=figures.INK, loc="left")
        axis.set_xlabel("weight of the invariance term", fontsize=8)
        axis.set_ylabel("weight of the prior term", fontsize=8)
    return figure
