"""An interactive scatter of the representation, when the `report` extra is installed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from probssl.report.figures import PALETTE

STAND_IN = "\uf8f1"
"""Takes the place of < in names until they are in the page, where a name could otherwise end the script."""


def scatter(
    points: np.ndarray, labels: np.ndarray, classes: Sequence[str], rows: np.ndarray, axis_names: tuple[str, str]
) -> str | None:
    """A zoomable chart with row numbers on hover and a clickable legend, as HTML; None without the extra."""
    try:
        import altair
        import vl_convert  # noqa: F401 - holds the scripts that make the page work without a network
    except ImportError:
        return None
    classes = [name.replace("<", STAND_IN) for name in classes]
    names = [classes[code] if code >= 0 and len(classes) else "all" for code in labels]
    data = altair.Data(
        values=[
            {"x": round(float(x), 5), "y": round(float(y), 5), "row": int(row), "label": name}
            for (x, y), row, name in zip(points, rows, names, strict=True)
        ]
    )
    domain = classes or ["all"]
    colour = altair.Scale(domain=domain, range=[PALETTE[i % len(PALETTE)] for i in range(len(domain))])
    chosen = altair.selection_point(fields=["label"], bind="legend")
    chart = (
        altair.Chart(data, width=640, height=440)
        .mark_circle(size=22)
        .encode(
            x=altair.X("x:Q", title=axis_names[0]),
            y=altair.Y("y:Q", title=axis_names[1]),
            color=altair.Color("label:N", scale=colour, legend=altair.Legend(title=None) if len(classes) else None),
            opacity=altair.condition(chosen, altair.value(0.75), altair.value(0.06)),
            tooltip=["row:Q", "label:N"],
        )
        .add_params(chosen)
        .interactive()
        .configure_view(stroke=None)
        .configure_axis(grid=False)
    )
    document: str = chart.to_html(inline=True, fullhtml=False, embed_options={"actions": False})
    return document.replace(json.dumps(STAND_IN)[1:-1], "\\u003c")
