"""Rows that hold several observations each, and an augmentation of every one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from probssl.errors import InputError
from probssl.pairings.views import SampledPairing


class Each(SampledPairing):
    """x̃ = (x̃₁, …, x̃_K) with x̃ₖ ~ p(· | xₖ) of a given pairing, independently, for rows x [n, K, ...] of K observations.

    So images that belong together, such as two digits and their sum, are augmented one by one:
    `Each(ImageAugmentation("gedi-mnist"))` takes [n, K, channels, height, width].

    Settings:
        pairing: how each observation is augmented.
    """

    def __init__(self, pairing: SampledPairing) -> None:
        super().__init__()
        self.pairing = pairing

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if x.ndim < 2:
            raise InputError(f"rows of several observations are [n, K, ...], not {list(x.shape)}")
        return self.pairing.sample(x.flatten(0, 1), generator).unflatten(0, x.shape[:2])
