"""Images in the results of trials, as text."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np


def as_text(images: np.ndarray) -> str:
    """Images as bytes, in base64, so that a result holds pictures; `of_text` reads them."""
    return base64.b64encode(np.ascontiguousarray(images, dtype=np.uint8).tobytes()).decode()


def of_text(text: str, shape: Sequence[int]) -> np.ndarray:
    """Images [n, channels, height, width] from the text in a result."""
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, *shape)
