"""Figures by matplotlib, as PNG or SVG text that a page can hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

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


class Measured(Protocol):
    """A number with its spread over repetitions, and what is published: a row of a study."""

    @property
    def value(self) -> float | None: ...

    @property
    def spread(self) -> float | None: ...

    @property
    def published(self) -> float | None: ...


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


def panels(
    titles: Sequence[str],
    width: float,
    height: float,
    columns: int | None = None,
    x: str = "",
    y: str = "",
    **options: Any,
) -> tuple[Figure, list[Any]]:
    """A figure of panels of that size, `columns` side by side (all unless given), each under its title.

    `x` names the horizontal axes of the lowest panels, `y` the vertical ones of those at the left.
    """
    columns = min(len(titles), columns or len(titles))
    rows = -(-len(titles) // columns)
    figure, axes = new_figure(width * columns, height * rows, columns, rows, **options)
    for number, (axis, title) in enumerate(zip(axes, titles, strict=False)):
        axis.set_title(title, fontsize=9, color=INK, loc="left")
        name_axes(axis, x if number + columns >= len(titles) else "", y if number % columns == 0 else "")
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    return figure, list(axes[: len(titles)])


def name_axes(axis: Any, x: str, y: str) -> None:
    """What is shown along an axis and up."""
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)


def log_ticks(axis: Any, along: Literal["x", "y"], ticks: Sequence[float], labels: Sequence[str] | None = None) -> None:
    """A logarithmic axis with these ticks alone, by their numbers unless labels are given."""
    axis.set(**{f"{along}scale": "log"})
    getattr(axis, f"{along}axis").set_ticks(ticks, labels or [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


Line = Sequence[tuple[float, float]]
"""Points (x, y) in their order."""


def lines(
    axis: Any,
    named: Mapping[str, Sequence[Line]],
    colours: Mapping[str, str] | None = None,
    legend: bool = True,
    **style: Any,
) -> None:
    """Lines by name, such as one a seed: those of a name in one colour, with one entry in the legend.

    Colours are those given, or the palette's in order. `style` is what matplotlib's `plot` takes, as `marker="o"`.
    """
    known = colours or {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(named)}
    for name, several in named.items():
        for number, line in enumerate(several):
            label = name if legend and number == 0 else None
            axis.plot(
                *np.array(line, dtype=float).T, **{"color": known[name], "linewidth": 1.3, "label": label, **style}
            )
    if legend and axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7.5, frameon=False)


def bare(axis: Any) -> None:
    """Neither ticks nor frame, as around an image."""
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)


def heatmap(
    axis: Any,
    values: np.ndarray,
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    low: float = 0.0,
    high: float = 1.0,
    shown: str = "{:.2f}",
) -> None:
    """Values [rows, columns] as shades with their numbers on them, the first row at the bottom."""
    axis.imshow(values, origin="lower", vmin=low, vmax=high, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "#ffffff" if value < low + 0.6 * (high - low) else INK
        axis.text(column, row, shown.format(value), ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)


def strips(
    axis: Any,
    values: Mapping[str, Sequence[float]],
    published: Mapping[str, tuple[float, float | None]] | None = None,
    colour: Mapping[str, str] | None = None,
) -> None:
    """One row a name, from the top: its values as dots, what is published as a diamond with its spread."""
    for height, (name, found) in enumerate(values.items()):
        shade = (colour or {}).get(name, PALETTE[0])
        axis.scatter(found, [height - 0.12] * len(found), s=16, color=shade, linewidths=0, alpha=0.8)
        if name in (published or {}):
            value, spread = (published or {})[name]
            axis.errorbar(value, height + 0.18, xerr=spread, marker="D", markersize=4, color=PALETTE[1], elinewidth=1)
    axis.set_yticks(range(len(values)), list(values), fontsize=7)
    axis.set_ylim(len(values) - 0.5, -0.5)


def measured(
    axis: Any,
    across: Sequence[float],
    named: Mapping[str, Sequence[Measured]],
    colours: Mapping[str, str],
    **style: Any,
) -> None:
    """By name, numbers over where they were measured, with spreads as bars; dashed and hollow what is published."""
    for name, several in named.items():
        points = list(zip(across, several, strict=True))
        found = [(x, one.value, one.spread or 0.0) for x, one in points if one.value is not None]
        printed = [(x, one.published) for x, one in points if one.published is not None]
        if found:
            bars = {"marker": "o", "markersize": 4, "linewidth": 1.4, "capsize": 2, "color": colours[name]}
            axis.errorbar(*zip(*found, strict=True), **{**bars, **style})
        lines(axis, {name: [printed]}, colours, legend=False, marker="o", markerfacecolor="none", linestyle="--")


def marks(
    axis: Any,
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    colours: Mapping[str, str],
    published: Mapping[tuple[str, str], float | None] | None = None,
) -> None:
    """Groups side by side, in each a mark a value for every name in its colour; hollow what is published of the two."""
    for place, (group, values) in enumerate(groups.items()):
        for number, (name, shade) in enumerate(colours.items()):
            x = place + 0.75 / len(colours) * (number - (len(colours) - 1) / 2)
            found, printed = values.get(name, ()), (published or {}).get((group, name))
            axis.plot([x] * len(found), found, "o", color=shade, markersize=4.5)
            if printed is not None:
                axis.plot([x], [printed], "o", markerfacecolor="none", markeredgecolor=shade, markersize=6)
    axis.set_xticks(range(len(groups)), list(groups))
    axis.set_xlim(-0.6, len(groups) - 0.4)


def logged(history: Sequence[Mapping[str, Any]], name: str) -> Line:
    """What one training logged by that name, over its steps: those rows of its log that have it."""
    return [(row["step"], row[name]) for row in history if row.get(name) is not None]


def legend(
    figure: Figure, names: Mapping[str, str | Mapping[str, Any]], marker: str = "o", columns: int | None = None
) -> None:
    """Names below all panels, each with a mark in its colour or with a line of its own style; in one row by default."""
    from matplotlib.lines import Line2D

    plain = {"linestyle": "", "marker": marker, "markersize": 4.5}
    handles = [
        Line2D([], [], label=name, **({**plain, "color": style} if isinstance(style, str) else style))
        for name, style in names.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns or len(handles), fontsize=8, frameon=False)


HOLLOW = {"linestyle": "", "marker": "o", "markersize": 6, "color": MUTED, "markerfacecolor": "none"}
"""The style of what is published, for `legend`."""


def image_rows(rows: Mapping[str, np.ndarray], width: float = 6.4) -> Figure:
    """Images below each other, one row a name: bytes [n, channels, height, width]."""
    from probssl.report import tiles

    figure, (axis,) = new_figure(width, 0.56 * len(rows))
    sheet = tiles.sheet(np.stack(list(rows.values())))
    axis.imshow(sheet)
    height = len(sheet) / len(rows)
    bare(axis)
    axis.set_yticks([(number + 0.5) * height for number in range(len(rows))], list(rows))
    axis.tick_params(length=0, labelsize=8)
    return figure


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


def embedded(picture: bytes, alt: str = "figure") -> str:
    """A PNG picture as an <img> element that holds it."""
    return f'<img alt="{alt}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


def colours(labels: np.ndarray) -> list[str]:
    """A colour for every label code; unlabelled points are all alike."""
    return [PALETTE[int(code) % len(PALETTE)] if code >= 0 else PALETTE[0] for code in labels]


def loss_curves(
    history: Sequence[dict[str, Any]], terms: Sequence[str], minima: Mapping[str, float] | None = None
) -> Figure:
    """One small panel for the loss and one for each term, with a dotted line at the least it can be, where given."""
    names = ["loss", *[term for term in terms if len(terms) > 1]]
    figure, axes = panels([name.replace("_", " ") for name in names], 2.6, 2.0, 4)
    for axis, name in zip(axes, names, strict=True):
        lines(axis, {name: [logged(history, name)]}, legend=False, linewidth=1.4)
        if minima and name in minima:
            axis.axhline(minima[name], color=MUTED, linewidth=0.8, linestyle=":")
    return figure


def rank_curve(history: Sequence[dict[str, Any]], dim: int) -> Figure:
    """RankMe and effective rank while training, below the dimension they could reach."""
    figure, (axis,) = new_figure(5.2, 2.3)
    for name, title, colour in (("rankme", "RankMe", PALETTE[0]), ("effective_rank", "effective rank", PALETTE[1])):
        points = logged(history, name)
        if points:
            axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, label=title)
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
