"""`pair_sums` of pair_sums.c for tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from probssl.kernels.build import library, variant

KINDS = (
    "log-sum-exp",
    "log-sum-exp-others",
    "exponential",
    "softplus",
    "square",
    "hinge",
    "cross-entropy",
)  # as in pair_sums.c
MOST_COLUMNS = 2048
MOST_FACTORS = {"AVX-512": 24, "AVX2": 16, "AVX": 16, "SSE": 12, "NEON": 12}
SMALL = {"AVX-512": 8704, "AVX2": 8704, "AVX": 6144, "SSE": 6144, "NEON": 6144}
"""Up to so many factors p, or numbers m · p, the kernel takes half the time of plain torch or less; beyond them matrix
products, at which torch is better, are most of the work."""


def suits(left: Tensor, right: Tensor) -> bool:
    """Whether the kernel is there and made for these factors [K, n, p] and [K, m, p]."""
    m, p = right.shape[-2:]
    found = variant() if left.dtype == right.dtype == torch.float32 and left.device.type == "cpu" else None
    return found is not None and m <= MOST_COLUMNS and (p <= MOST_FACTORS[found] or m * p <= SMALL[found])


def pair_sums(left: Tensor, right: Tensor, extra: Tensor | None, kind: str, train: bool) -> tuple[Tensor, ...]:
    """The sum over all pairs of each of K models, [K], and where `train` its gradients in left, right and extra.

    left [K, n, p], right [K, m, p], extra [K, n]; the gradients have their shapes.
    """
    left, right = left.contiguous(), right.contiguous()
    extra = None if extra is None else extra.contiguous()
    (models, n, p), m = left.shape, right.shape[1]
    sums = torch.empty(models, dtype=torch.float64)
    of_left = torch.empty_like(left) if train else left.new_empty(models, 0)
    of_right = torch.empty_like(right) if train else left.new_empty(models, 0)
    of_extra = torch.empty_like(extra) if train and extra is not None else left.new_empty(models, 0)
    loaded = library()
    assert loaded is not None
    pointers = (left, right, extra, sums, of_left, of_right, of_extra)
    addresses = (None if tensor is None else tensor.data_ptr() for tensor in pointers)
    if loaded.pair_sums(KINDS.index(kind), train, models, n, m, p, *addresses) != 0:
        raise MemoryError("there is too little memory for the pairs of a batch")
    return sums.float(), of_left, of_right, of_extra
