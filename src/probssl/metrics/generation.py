"""How alike two sets of observations are as sets: the Fréchet distance of their features.

The Fréchet Inception Distance (FID; Heusel et al., 2017) is this distance for the features of one network, trained on
ImageNet. Other features give other numbers, so that a distance is always named after them: `FD(pixels)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import Array
from probssl.metrics._inputs import representations as checked


def frechet_distance(first: ArrayLike, second: ArrayLike) -> float:
    """‖μ₁ − μ₂‖² + Tr(Σ₁ + Σ₂ − 2 (Σ₁Σ₂)^{1/2}) for features [n, d] and [m, d]   (Dowson & Landau, 1982).

    The squared 2-Wasserstein distance of the normal laws with the sets' means and covariances (1/(n − 1)). Lower is
    better; range [0, ∞), 0 iff both moments agree. Unchanged by a rotation or translation of all features; it grows
    with the square of their scale. With R₁ and R₂ the triangular factors of the centred sets, Σ = RᵀR, the trace of
    the root is the sum of singular values of R₁R₂ᵀ: no root of a product is taken, so nothing is lost where covariances
    are singular, and nothing is complex.

    It is biased upwards by sampling, by about Tr Σ (1/n + 1/m) from the means and more from the covariances: set only
    sets of equal sizes beside each other, with two sets of data among them.
    """
    sides = [checked(side, f"the {name} set", rows=2) for name, side in (("first", first), ("second", second))]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise InputError(f"the sets have features of {sides[0].shape[1]} and {sides[1].shape[1]} dimensions.")
    means = [side.mean(axis=0) for side in sides]
    factors = [np.linalg.qr((side - mean) / np.sqrt(len(side) - 1))[1] for side, mean in zip(sides, means, strict=True)]
    shift = means[0] - means[1]
    spread = sum(float(np.square(factor).sum()) for factor in factors)
    overlap = float(np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False).sum())
    return max(0.0, float(shift @ shift) + spread - 2 * overlap)


@dataclass(frozen=True)
class Extractor:
    """Features to compare sets by: observations [n, ...] → [n, d], and the name that its distances carry."""

    name: str
    features: Callable[[np.ndarray], ArrayLike]

    @property
    def title(self) -> str:
        """`FD(name)`."""
        return f"FD({self.name})"

    def distance(self, first: np.ndarray, second: np.ndarray) -> float:
        """`frechet_distance` of the features of two sets."""
        return frechet_distance(self.features(first), self.features(second))


def pixel_components(observations: ArrayLike, count: int = 32) -> Extractor:
    """The leading principal components of observations [n, ...], as they are: they see brightness, place and contrast.

    The distance is then that of the observations themselves but for the directions left out, in their units.
    """
    rows = np.asarray(observations, dtype=np.float64)
    rows = checked(rows.reshape(len(rows), -1))
    if not 1 <= count <= min(rows.shape):
        raise InputError(f"components number from 1 to {min(rows.shape)} here, not {count}.")
    mean = rows.mean(axis=0)
    directions: Array = np.linalg.svd(rows - mean, full_matrices=False)[2][:count]

    def features(given: np.ndarray) -> Array:
        flat: Array = np.asarray(given, dtype=np.float64).reshape(len(given), -1)
        return (flat - mean) @ directions.T

    return Extractor(f"pixel PCA {count}", features)
