"""Codes that several tests share."""

from __future__ import annotations

import numpy as np


def gaussian(n: int = 300, m: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, m))


def rotation(m: int, seed: int = 1) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(m, m)))[0]


def blobs(n: int = 300, m: int = 4, classes: int = 3, gap: float = 12.0, seed: int = 0):
    """Well separated groups: rows, labels. Groups sit on the axes, so that they differ in direction too."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return gap * np.eye(classes, m)[labels] + rng.normal(size=(n, m)), labels


def on_sphere(n: int, d: int, seed: int = 0) -> np.ndarray:
    z = gaussian(n, d, seed)
    return z / np.linalg.norm(z, axis=1, keepdims=True)
