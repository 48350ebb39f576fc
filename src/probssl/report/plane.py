"""Pictures of a model of two features: which cluster takes which part of the plane, where it is dense, its samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probssl.errors import InputError
from probssl.model import Model, density
from probssl.objectives import GEDI, ClusteringObjective
from probssl.report import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Extent = tuple[float, float, float, float]  # left, right, bottom and top

POINTS = 200
"""Points of the grid along each axis."""

MARGIN = 0.15
"""How far the picture goes beyond the rows, in shares of their width."""

DEPTH = 8.0
"""Nats below the densest point at which the picture of a density ends."""

SAMPLES = 500
ROWS = 2000
"""How many are drawn of each."""


@dataclass(frozen=True)
class Plane:
    """What a model makes of two features: rows [n, 2] → p(y | x) [n, c], and log p(x) [n] where it has a density."""

    probabilities: Callable[[np.ndarray], np.ndarray]
    log_density: Callable[[np.ndarray], np.ndarray] | None = None
    samples: np.ndarray | None = None  # [n, 2], drawn from that density
    names: tuple[str, str] = ("x0", "x1")

    @classmethod
    def of_clusterer(cls, clusterer: Any, samples: int = SAMPLES) -> Plane:
        """That of a fitted `GEDIClusterer`; its samples are those of its `random_state`."""
        if clusterer.n_features_in_ != 2:
            raise InputError(f"a plane has two features, and the clusterer was fitted on {clusterer.n_features_in_}")
        names = tuple(getattr(clusterer, "feature_names_in_", ("x0", "x1")))
        if clusterer.objective_.buffer is None:
            return cls(clusterer.predict_proba, names=names)
        return cls(clusterer.predict_proba, clusterer.score_samples, clusterer.sample(samples)[0], names)

    @classmethod
    def of_model(cls, model: Model, samples: int = SAMPLES) -> Plane | None:
        """That of a model that clusters rows of two features; None for any other."""
        if len(model.feature_names) != 2 or not isinstance(model.objective, ClusteringObjective):
            return None
        names = model.feature_names[0], model.feature_names[1]

        def probabilities(rows: np.ndarray) -> np.ndarray:
            return density.probabilities(model, rows)

        if not isinstance(model.objective, GEDI) or model.objective.buffer is None:
            return cls(probabilities, names=names)
        drawn = density.sample(model, samples, seed=model.recipe.seed)[0]
        return cls(probabilities, lambda rows: density.scores(model, rows)["log density"], drawn, names)

    def figure(self, rows: np.ndarray) -> Figure:
        """Clusters of the plane and of rows [n, 2]; beside it, where there is one, log p(x) with samples over it."""
        panels = 1 if self.log_density is None else 2
        figure, axes = figures.new_figure(4.2 * panels, 4.0, panels)
        low, high = rows.min(0), rows.max(0)
        margin = MARGIN * np.maximum(high - low, 1e-12)
        across, up = (np.linspace(a, b, POINTS) for a, b in zip(low - margin, high + margin, strict=True))
        grid = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
        extent = (across[0], across[-1], up[0], up[-1])
        self._clusters(axes[0], grid, extent, rows[:ROWS])
        if self.log_density is not None:
            self._density(axes[1], grid, extent)
        for axis in axes:
            axis.set_xlabel(self.names[0].replace("$", r"\$"), fontsize=8)
            axis.set_ylabel(self.names[1].replace("$", r"\$"), fontsize=8)
            axis.set_xlim(extent[:2])
            axis.set_ylim(extent[2:])
        return figure

    def _clusters(self, axis: Axes, grid: np.ndarray, extent: Extent, rows: np.ndarray) -> None:
        """Regions in the colours of their clusters, the paler the less sure, and rows in the colours of theirs."""
        from matplotlib.colors import to_rgba_array

        p = self.probabilities(grid)
        image = to_rgba_array(figures.colours(p.argmax(1)))
        least = 1 / p.shape[1]
        image[:, 3] = 0.45 * (p.max(1) - least) / (1 - least) if p.shape[1] > 1 else 0.45
        axis.imshow(image.reshape(POINTS, POINTS, 4), extent=extent, origin="lower", aspect="auto")
        axis.scatter(rows[:, 0], rows[:, 1], c=figures.colours(self.probabilities(rows).argmax(1)), s=7, linewidths=0)
        axis.set_title("clusters: paler where less sure", fontsize=9, color=figures.INK, loc="left")

    def _density(self, axis: Axes, grid: np.ndarray, extent: Extent) -> None:
        """log p(x) less its largest value, and samples of p(x)."""
        assert self.log_density is not None
        values = self.log_density(grid)
        values = (values - values.max()).reshape(POINTS, POINTS)
        shown = axis.imshow(values, extent=extent, origin="lower", aspect="auto", cmap="Blues", vmin=-DEPTH, vmax=0.0)
        bar = axis.figure.colorbar(shown, ax=axis, shrink=0.8, extend="min")
        bar.ax.tick_params(labelsize=7, colors=figures.MUTED)
        bar.outline.set_visible(False)
        if self.samples is not None:
            axis.scatter(self.samples[:, 0], self.samples[:, 1], color=figures.PALETTE[1], s=5, linewidths=0, alpha=0.8)
        axis.set_title("log p(x) below its maximum, in nats; samples", fontsize=9, color=figures.INK, loc="left")
