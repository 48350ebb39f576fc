"""The representation as a picture to zoom, whose points tell their rows: SVG and a small script."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probssl.report.figures import PALETTE
from probssl.report.page import escape

WIDTH, HEIGHT = 900, 520
MARGIN = 0.04
"""How far the picture goes beyond the points, in shares of their spread."""

NAMED = 40
"""Most classes that the legend lists."""

STYLE = """<style>
.plot { position: relative; } .plot .tools { position: absolute; right: 8px; top: 8px; }
.plot button { font: 14px sans-serif; min-width: 30px; height: 28px; border: 1px solid var(--line); border-radius: 6px;
  background: var(--paper); color: var(--muted); cursor: pointer; }
.plot svg { width: 100%; border: 1px solid var(--line); border-radius: 6px; touch-action: pan-y; cursor: grab; }
.plot circle { r: calc(3px * var(--size, 1)); opacity: 0.75; } .plot .off { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13px; margin-top: 8px; }
.legend label { white-space: nowrap; cursor: pointer; } .axis { color: var(--muted); font-size: 13px; margin: 4px 0 0; }
</style>"""

SCRIPT = """<script>(() => {
  const plot = document.currentScript.closest('.plot'), svg = plot.querySelector('svg'), box = svg.viewBox.baseVal;
  const whole = [box.x, box.y, box.width, box.height];
  const show = (x, y, width, height) => {
    [box.x, box.y, box.width, box.height] = [x, y, width, height];
    svg.style.setProperty('--size', width / whole[2]);
  };
  const zoom = (factor, x = box.x + box.width / 2, y = box.y + box.height / 2) =>
    show(x - (x - box.x) * factor, y - (y - box.y) * factor, box.width * factor, box.height * factor);
  const place = event => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  plot.querySelectorAll('button').forEach(button => button.addEventListener('click', () =>
    button.dataset.zoom ? zoom(+button.dataset.zoom) : show(...whole)));
  svg.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const at = place(event);
    zoom(Math.exp(event.deltaY / 300), at.x, at.y);
  }, { passive: false });
  svg.addEventListener('dblclick', event => { const at = place(event); zoom(0.5, at.x, at.y); });
  let from = null;
  svg.addEventListener('pointerdown', event => { from = place(event); });
  addEventListener('pointermove', event => {
    if (!from) return;
    const at = place(event);
    show(box.x + from.x - at.x, box.y + from.y - at.y, box.width, box.height);
  });
  addEventListener('pointerup', () => { from = null; });
  plot.querySelectorAll('input').forEach(input => input.addEventListener('change', () =>
    svg.querySelectorAll('g')[input.dataset.group].classList.toggle('off', !input.checked)));
})();</script>"""


def scatter(
    points: np.ndarray, labels: np.ndarray, classes: Sequence[str], rows: np.ndarray, axis_names: tuple[str, str]
) -> str:
    """Points [n, 2] in the colours of their classes, -1 being none, with their rows on hover and a legend to click.

    `rows` are numbers of rows, or what the rows are called.
    """
    low, spread = points.min(0), np.maximum(np.ptp(points, axis=0), 1e-12)
    shares = (points - low) / spread * (1 - 2 * MARGIN) + MARGIN
    places = np.column_stack([shares[:, 0] * WIDTH, (1 - shares[:, 1]) * HEIGHT])
    names = [escape(name) for name in classes] or ["all"]
    codes = np.where(labels < 0, 0, labels) if len(classes) else np.zeros(len(points), int)
    called, groups, legend = "row " if rows.dtype.kind in "iu" else "", [], []
    for code, name in enumerate(names):
        mine = np.flatnonzero(codes == code)
        colour = PALETTE[code % len(PALETTE)]
        of_class = f" · {name}" if len(classes) else ""
        circles = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}"><title>{called}{row}{of_class}</title></circle>'
            for (x, y), row in zip(places[mine], map(escape, rows[mine]), strict=True)
        )
        groups.append(f'<g fill="{colour}">{circles}</g>')
        legend.append(
            f'<label style="color: {colour}"><input type="checkbox" checked data-group="{code}" '
            f'style="accent-color: {colour}"> {name}</label>'
        )
    tools = (
        '<div class="tools"><button data-zoom="0.67" title="nearer">+</button> '
        '<button data-zoom="1.5" title="farther">−</button> <button title="all of it">reset</button></div>'
    )
    key = f'<div class="legend">{"".join(legend)}</div>' if 0 < len(classes) <= NAMED else ""
    return (
        f'{STYLE}<div class="plot">{tools}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="scatter">'
        f'{"".join(groups)}</svg><p class="axis">→ {escape(axis_names[0])} &nbsp; ↑ {escape(axis_names[1])}</p>'
        f"{key}{SCRIPT}</div>"
    )
