"""Figures of a study: each drawn once, for a file and for the page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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


def as_text(images: np.ndarray) -> str:
    """Images as bytes, in base64, so that a result holds pictures; `of_text` reads them."""
    return base64.b64encode(np.ascontiguousarray(images, dtype=np.uint8).tobytes()).decode()


def of_text(text: str, shape: Sequence[int]) -> np.ndarray:
    """Images [n, channels, height, width] from the text in a result."""
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, *shape)
