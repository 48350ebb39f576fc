"""Two small worlds of pairs: a discrete one, where sample means are exact, and a Gaussian one."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

# --- Discrete ---------------------------------------------------------------------------------------------------------

COUNTS = np.random.default_rng(3).integers(1, 9, size=(5, 4)) + 12 * np.eye(5, 4, dtype=int)
JOINT = COUNTS / COUNTS.sum()
PRODUCT = JOINT.sum(1, keepdims=True) * JOINT.sum(0, keepdims=True)
LOG_W = np.log(JOINT / PRODUCT)
INFORMATION = float(np.sum(JOINT * LOG_W))


def population(critic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair as often as it occurs, and for each anchor every x as often as it occurs: sample means are exact."""
    x, x_aug = (index.repeat(COUNTS.ravel()) for index in np.indices(COUNTS.shape).reshape(2, -1))
    others = np.arange(len(COUNTS)).repeat(COUNTS.sum(1))
    return critic[x, x_aug], critic[others[None, :], x_aug[:, None]]


def anchors(values: np.ndarray) -> np.ndarray:
    """One value for each x̃, as often as it occurs, in the order of `population`."""
    return values[np.indices(COUNTS.shape)[1].ravel().repeat(COUNTS.ravel())]


def partitions(critic: np.ndarray) -> np.ndarray:
    return special.logsumexp(critic, b=JOINT.sum(1, keepdims=True), axis=0)


def critics(count: int, size: float = 1.0, seed: int = 0) -> list[np.ndarray]:
    return list(size * np.random.default_rng(seed).standard_normal((count, *COUNTS.shape)))


# --- Gaussian ---------------------------------------------------------------------------------------------------------

DATA = np.array([[1.0, 0.3, -0.2], [0.3, 0.6, 0.1], [-0.2, 0.1, 1.5]])
NOISE = np.array([[0.30, 0.12, 0.0], [0.12, 0.20, 0.05], [0.0, 0.05, 0.40]])


def gaussian_scores(correlation: float, dims: int, anchors: int, negatives: int, seed: int = 0) -> tuple:
    """log w of correlated normal pairs, and of each anchor with independent draws."""
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((anchors, 1, dims))
    own = correlation * v + math.sqrt(1 - correlation**2) * rng.standard_normal((anchors, 1, dims))
    u = np.concatenate([own, rng.standard_normal((anchors, negatives, dims))], axis=1)
    r2 = correlation**2
    log_w = (correlation * u * v - r2 * (u**2 + v**2) / 2) / (1 - r2) - math.log(1 - r2) / 2
    scores = log_w.sum(-1)
    return scores[:, 0], scores[:, 1:]
