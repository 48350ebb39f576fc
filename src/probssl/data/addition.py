"""Sums of handwritten digits: examples of three images of which the third shows the sum of the other two."""

from __future__ import annotations

import torch
from torch import Tensor

from probssl.errors import InputError

SUMS = tuple((a, b, a + b) for a in range(10) for b in range(10 - a))
"""The 55 sums of two digits that are a digit."""


def addition_triples(labels: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Indices [count, 3] of images whose digits (a, b, a + b) are uniform over `SUMS`; no image is used twice.

    `labels` [n] are the digits of the images. The digits of the examples are not uniform: P(digit k) = (21 − k)/165,
    from 0.127 for 0 to 0.073 for 9 (GEDI appendix O). 10,000 examples take half of MNIST's images for training.
    """
    labels = torch.as_tensor(labels)
    if labels.dim() != 1 or count < 1:
        raise InputError(f"additions need labels [n] and a count of at least 1, not {list(labels.shape)} and {count}")
    digits = torch.tensor(SUMS)[torch.randint(len(SUMS), (count,), generator=generator)]  # [count, 3]
    chosen = torch.empty_like(digits)
    for digit in range(10):
        places = digits == digit
        there = (labels == digit).nonzero().flatten()
        needed = int(places.sum())
        if needed > len(there):
            raise InputError(
                f"{count:,} additions use {needed:,} images of the digit {digit}, each once, and there are "
                f"{len(there):,}: ask for fewer additions or give more images"
            )
        chosen[places] = there[torch.randperm(len(there), generator=generator)[:needed]]
    return chosen
