"""`pair_sums` of pair_sums.c for tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from probssl.kernels.build import library

KINDS = (
    "log-sum-exp",
    "log-sum-exp-others",
    "exponential",
    "softplus",
    "square",
    "hinge",
    "cross-entropy",
)  # as in pair_sums.c
MOST_FACTORS, MOST_COLUMNS = 64, 2048
"""Beyond these, blocked matrix products are as fast."""


def suits(left: Tensor, right: Tensor) -> bool:
    """Whether the kernel is there and made for these factors [K, n, p] and [K, m, p]."""
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == "cpu"
        and left.shape[-1] <= MOST_FACTORS
        and right.shape[-2] <= MOST_COLUMNS
        and library() is not None
    )


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
