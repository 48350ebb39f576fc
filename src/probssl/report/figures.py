"""Figures by matplotlib, as PNG or SVG text that a page can hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1f2430"
MUTED = "#7a8194"
PALETTE = (
    "#3b6fd4",
    "#e0813a",
    "#2f9e7a",
    "#c44e6c",
    "#8a63c9",
    "#b8952b",
    "#4aa3b8",
    "#7d8a3a",
    "#a86a4f",
    "#5b6780",
)


def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with a flat array of axes in the house style, made without pyplot and so without global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, **options)).ravel()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(MUTED)
        axis.tick_params(colors=MUTED, labelsize=8)
        axis.xaxis.label.set_color(INK)
        axis.yaxis.label.set_color(INK)
    return figure, axes


def svg(figure: Figure) -> str:
    """The figure as an SVG element, with text kept as text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "probssl", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def png(figure: Figure) -> str:
    """The figure as an <img> element with the picture inside it; for many points, where SVG would be heavy."""
    return embedded(png_bytes(figure))


def png_bytes(figure: Figure) -> bytes:
    """The figure as the contents of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()


def embedded(picture: bytes) -> str:
    """A PNG picture as an <img> element that holds it."""
    return f'<img alt="figure" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


def colours(labels: np.ndarray) -> list[str]:
    """A colour for every label code; unlabelled points are all alike."""
    return [PALETTE[int(code) % len(PALETTE)] if code >= 0 else PALETTE[0] for code in labels]


def loss_curves(
    history: Sequence[dict[str, Any]], terms: Sequence[str], minima: Mapping[str, float] | None = None
) -> Figure:
    """One small panel for the loss and one for each term, with a dotted line at the least it can be, where given."""
    names = ["loss", *[term for term in terms if len(terms) > 1]]
    columns = min(len(names), 4)
    figure, axes = new_figure(2.6 * columns, 2.0 * -(-len(names) // columns), columns, -(-len(names) // columns))
    for axis, name in zip(axes, names, strict=False):
        points = [(row["step"], row[name]) for row in history if row.get(name) is not None]
        steps, values = zip(*points, strict=True) if points else ((), ())
        axis.plot(steps, values, color=PALETTE[0], linewidth=1.4)
        if minima and name in minima:
            axis.axhline(minima[name], color=MUTED, linewidth=0.8, linestyle=":")
        axis.set_title(name.replace("_", " "), fontsize=9, color=INK, loc="left")
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    return figure


def rank_curve(history: Sequence[dict[str, Any]], dim: int) -> Figure:
    """RankMe and effective rank while training, below the dimension they could reach."""
    figure, (axis,) = new_figure(5.2, 2.3)
    for name, title, colour in (("rankme", "RankMe", PALETTE[0]), ("effective_rank", "effective rank", PALETTE[1])):
        points = [(row["step"], row[name]) for row in history if row.get(name) is not None]
        if points:
            steps, values = zip(*points, strict=True)
            axis.plot(steps, values, color=colour, linewidth=1.4, label=title)
    axis.axhline(dim, color=MUTED, linewidth=0.8, linestyle=":")
    axis.set_ylim(0, dim * 1.08)
    axis.set_xlabel("step", fontsize=8)
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def spectrum(eigenvalues: np.ndarray) -> Figure:
    """Eigenvalues of the covariance, largest first, on a log scale, as shares of the total variance."""
    figure, (axis,) = new_figure(5.2, 2.3)
    total = eigenvalues.sum()
    shares = np.maximum(eigenvalues / total, 1e-9) if total > 0 else np.full(len(eigenvalues), 1e-9)
    axis.bar(np.arange(1, len(shares) + 1), shares, color=PALETTE[0], width=0.75, bottom=1e-9)
    axis.set_yscale("log")
    axis.set_ylim(max(1e-7, shares.min() / 3), 1.3)
    axis.set_xlabel("direction", fontsize=8)
    axis.set_ylabel("share of variance", fontsize=8)
    return figure
