"""Sheets of images as one picture."""

from __future__ import annotations

import io

import numpy as np

from probssl.report.figures import embedded

LEAST_SIDE = 56
"""Pixels that an image is shown at least as large as, enlarged by whole numbers."""


def sheet(images: np.ndarray) -> np.ndarray:
    """Bytes [rows, columns, channels, height, width] side by side with white between them: [pixels, pixels, 3]."""
    rows, columns, channels, height, width = images.shape
    factor = max(1, round(LEAST_SIDE / max(height, width)))
    images = images.repeat(factor, axis=3).repeat(factor, axis=4)
    gap = max(2, factor)
    images = np.pad(images, [(0, 0), (0, 0), (0, 0), (0, gap), (0, gap)], constant_values=255)
    tiles = images.transpose(0, 3, 1, 4, 2).reshape(rows * images.shape[3], columns * images.shape[4], channels)
    return np.broadcast_to(tiles[:-gap, :-gap], (*tiles[:-gap, :-gap].shape[:2], 3))


def grid(images: np.ndarray) -> np.ndarray:
    """A sheet of images [n, channels, height, width], about as wide as it is high; what is left over stays white."""
    columns = int(np.ceil(np.sqrt(len(images))))
    rows = -(-len(images) // columns)
    filled = np.full((rows * columns, *images.shape[1:]), 255, np.uint8)
    filled[: len(images)] = images
    return sheet(filled.reshape(rows, columns, *images.shape[1:]))


def png_bytes(picture: np.ndarray) -> bytes:
    """Bytes [height, width, 3] as the contents of a PNG file."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, np.ascontiguousarray(picture), format="png")
    return buffer.getvalue()


def shown(images: np.ndarray) -> str:
    """A sheet as an <img> element that holds it."""
    return embedded(png_bytes(sheet(images)))
