"""What no training gives, as encoders, so that they are measured exactly as the trained ones are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from probssl.recipe import Recipe

RAW = "raw features"


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
    for dim in dims:
        found[pca_name(dim)] = _pca(x, dim)
        found[untrained_name(dim)] = Recipe(dim=dim, seed=seed).build_encoder(features)
    return found


def _pca(x: Tensor, dim: int) -> nn.Module:
    """Principal components as a linear encoder; more dimensions than there are components stay empty."""
    array = x.numpy().astype(np.float64)
    mean = array.mean(0)
    values, vectors = np.linalg.eigh(np.cov(array - mean, rowvar=False).reshape(x.shape[1], -1))
    kept = vectors[:, np.argsort(-values)[:dim]]  # [d, at most dim]
    encoder = nn.Linear(x.shape[1], kept.shape[1])
    with torch.no_grad():
        encoder.weight.copy_(torch.from_numpy(np.ascontiguousarray(kept.T)))
        encoder.bias.copy_(torch.from_numpy(-mean @ kept))
    return encoder
