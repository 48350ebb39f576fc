"""What no training gives, as encoders, so that they are measured exactly as the trained ones are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from probssl.parts.recipe import Recipe

RAW = "raw features"
NO_VARIANCE = 1e-9
"""Share of the largest variance below which a direction counts as empty."""


def pca_name(dim: int) -> str:
    """What PCA to a dimension is called."""
    return f"PCA to {dim}"


def untrained_name(dim: int) -> str:
    """What the encoder before its first step is called."""
    return f"untrained encoder to {dim}"


def baselines(x: Tensor, dims: Sequence[int], seed: int) -> dict[str, nn.Module]:
    """Raw features, and for each dimension PCA of the rows x and the untrained encoder."""
    features = x.shape[1]
    found: dict[str, nn.Module] = {RAW: nn.Identity()}
    mean, axes = principal_axes(x)
    for dim in dims:
        found[pca_name(dim)] = _projection(mean, axes[:, :dim])
        found[untrained_name(dim)] = Recipe(dim=dim, seed=seed).build_encoder(features)
    return found


def principal_axes(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean [d] and eigenvectors of the covariance [d, r] of rows x, by falling variance.

    Directions without variance, as there are with fewer rows than features, are left out: scaled by their rounding they
    would drown the others on other rows.
    """
    array = x.numpy().astype(np.float64)
    mean = array.mean(0)
    centred = array - mean
    values, vectors = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(-values)
    return mean, vectors[:, order[values[order] > NO_VARIANCE * values.max()]]


def _projection(mean: np.ndarray, axes: np.ndarray) -> nn.Module:
    """(x − mean) · axes as an encoder; axes [d, m]."""
    encoder = nn.Linear(*axes.shape)
    with torch.no_grad():
        encoder.weight.copy_(torch.from_numpy(np.ascontiguousarray(axes.T)))
        encoder.bias.copy_(torch.from_numpy(-mean @ axes))
    return encoder
