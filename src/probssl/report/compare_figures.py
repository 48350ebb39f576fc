"""Figures of a comparison: which loss with which energy, at which dimension, and what predicts it."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from probssl.parts.registry import KINDS
from probssl.report.figures import INK, MUTED, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from probssl.comparing import CompareResult


def overview(result: CompareResult) -> Figure:
    """Left: the best of every loss with every energy. Right: every configuration by its dimension, beside baselines."""
    figure, (left, right) = new_figure(9.8, 5.0, 2, width_ratios=(1.0, 1.1))
    _grid(left, result)
    _by_dimension(right, result)
    return figure


def _screened(result: CompareResult) -> list[tuple[str, str, int, float]]:
    """Objective, energy, dimension and criterion of every configuration in the round that all of them trained in."""
    first = min(outcome.job.round for outcome in result.outcomes)
    values: dict[tuple[str, str, int, str], list[float]] = {}
    for outcome in result.outcomes:
        value = outcome.value(result.criterion.name)
        if outcome.job.round == first and math.isfinite(value):
            c = outcome.job.candidate
            values.setdefault((c.objective, c.energy, c.dim, c.pairing), []).append(value)
    return [(objective, energy, dim, float(np.mean(v))) for (objective, energy, dim, _), v in values.items()]


def _grid(axis: Axes, result: CompareResult) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    screened = _screened(result)
    best: dict[tuple[str, str], float] = {}
    for objective, energy, _, reached in screened:
        best[objective, energy] = max(reached, best.get((objective, energy), -math.inf))
    order = list(KINDS["energy"])  # those that have no name come last
    energies = sorted({energy for _, energy in best}, key=lambda e: order.index(e) if e in order else len(order))
    objectives = sorted({o for o, _ in best}, key=lambda o: -max(v for (name, _), v in best.items() if name == o))
    cells = np.array([[best.get((o, e), math.nan) for e in energies] for o in objectives])
    high, usual = float(np.nanmax(cells)), float(np.nanmedian(cells))
    low = max(float(np.nanmin(cells)), high - 3 * (high - usual) - 1e-3)  # one failure must not use up the shades
    shades = LinearSegmentedColormap.from_list("house", ["#f6f7fb", "#9db9ec", PALETTE[0], "#1d3f8a"])
    axis.imshow(np.ma.masked_invalid(cells), cmap=shades, vmin=low, vmax=high, aspect="auto")
    middle = (low + high) / 2
    for row, column in np.ndindex(cells.shape):
        value = float(cells[row, column])
        text = "–" if math.isnan(value) else f"{value:.3f}"
        colour = MUTED if math.isnan(value) else "white" if value > middle else INK
        axis.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    c = result.winner.candidate
    if c.objective in objectives and c.energy in energies:
        corner = energies.index(c.energy) - 0.5, objectives.index(c.objective) - 0.5
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=PALETTE[1], linewidth=2.2))
    axis.set_xticks(range(len(energies)), energies, fontsize=8, color=INK)
    axis.set_yticks(range(len(objectives)), objectives, fontsize=8, color=INK)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.xaxis.tick_top()
    axis.set_title(f"best {result.criterion.title} of each loss and energy", fontsize=9, color=INK, pad=10)


def _by_dimension(axis: Axes, result: CompareResult) -> None:
    screened = _screened(result)
    dims = sorted({dim for _, _, dim, _ in screened})
    place = {dim: number for number, dim in enumerate(dims)}
    chance = np.random.default_rng(0)
    families = dict.fromkeys(result.families.values())
    for family, colour in zip(families, itertools.cycle(PALETTE)):
        chosen = [(dim, value) for objective, _, dim, value in screened if result.families[objective] == family]
        if chosen:
            across = [place[dim] + 0.62 * (chance.random() - 0.5) for dim, _ in chosen]
            values = [value for _, value in chosen]
            axis.scatter(across, values, s=13, alpha=0.75, linewidths=0, color=colour, label=family or "others")
    baselines = (("PCA to", INK, "-", "PCA"), ("untrained encoder to", MUTED, "--", "untrained encoder"))
    for prefix, colour, style, title in baselines:
        for dim in dims:
            value = result.baselines.get(f"{prefix} {dim}", {}).get(result.criterion.name, math.nan)
            label = title if dim == dims[0] else None
            axis.plot(
                [place[dim] - 0.42, place[dim] + 0.42], [value] * 2, color=colour, linestyle=style, lw=1.6, label=label
            )
    title = next(name for name in result.baselines if name.startswith("raw"))
    raw = result.baselines[title].get(result.criterion.name, math.nan)
    axis.axhline(raw, color=INK, linewidth=0.9, linestyle=":", label=title)
    best = result.winner
    if best.candidate.dim in place:
        axis.scatter(
            [place[best.candidate.dim]],
            [best.means[result.criterion.name]],
            marker="*",
            s=190,
            color=PALETTE[1],
            edgecolors="white",
            linewidths=0.8,
            zorder=5,
            label=f"winner, after {best.steps:,} steps",
        )
    values = [value for *_, value in screened]
    low = float(np.quantile(values, 0.02))
    high = max([*values, best.means[result.criterion.name], raw if math.isfinite(raw) else -math.inf])
    axis.set_ylim(low - 0.06 * (high - low) - 1e-3, high + 0.06 * (high - low) + 1e-3)
    axis.set_xticks(range(len(dims)), [str(dim) for dim in dims])
    axis.set_xlabel("dimensions", fontsize=8)
    axis.set_title(f"{result.criterion.title} of every configuration", fontsize=9, color=INK, pad=10)
    axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)


def predictors(result: CompareResult) -> Figure:
    """How well each label-free score predicts the order by the probe, with its interval."""
    shown = result.predictors
    figure, (axis,) = new_figure(4.6, 0.6 + 0.36 * len(shown))
    for row, predictor in enumerate(reversed(shown)):
        axis.plot([predictor.low, predictor.high], [row, row], color=PALETTE[0], linewidth=2.2, solid_capstyle="round")
        axis.scatter([predictor.correlation], [row], color=PALETTE[0], s=42, zorder=3)
        axis.scatter([predictor.within_dimension], [row], facecolors="white", edgecolors=PALETTE[1], s=36, zorder=4)
    axis.axvline(0, color=MUTED, linewidth=0.8)
    axis.set_yticks(range(len(shown)), [p.score.title for p in reversed(shown)], fontsize=8, color=INK)
    axis.set_xlim(-1, 1)
    axis.set_ylim(-0.6, len(shown) - 0.4)
    axis.set_xlabel("rank correlation; hollow: at equal dimension", fontsize=8)
    return figure
