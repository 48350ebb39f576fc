"""Figures of a study: each drawn once, for a file and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from probssl.report import figures
from probssl.training.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(out: Path, drawn: Mapping[str, Figure]) -> dict[str, str]:
    """Write every figure to OUT/NAME.png; returns name -> an <img> element that holds the same picture."""
    shown = {}
    for name, figure in drawn.items():
        picture = figures.png_bytes(figure)
        with atomic_path(out / f"{name}.png") as temporary:
            temporary.write_bytes(picture)
        shown[name] = figures.embedded(picture)
    return shown
