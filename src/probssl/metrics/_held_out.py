"""Rows to fit on and rows to judge by, and the affine fit that the metrics of identifiability share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import Array, centred, representations, whole

Pair = tuple[ArrayLike, ArrayLike]


class Split(NamedTuple):
    """Codes [n, k] and targets [n, d] of the training rows, and of the test rows."""

    codes: Array
    targets: Array
    test_codes: Array
    test_targets: Array


def paired(codes: ArrayLike, targets: ArrayLike, name: str, rows: int = 2) -> tuple[Array, Array]:
    """Both arrays checked, with as many rows as each other."""
    a, b = representations(codes, "codes", rows), representations(targets, name, rows)
    if len(a) != len(b):
        raise InputError(f"there are {len(a)} rows of codes and {len(b)} rows of {name}")
    return a, b


def held_out(codes: ArrayLike, targets: ArrayLike, test: Pair | None, test_size: float, seed: int, name: str) -> Split:
    """The rows given and those of `test`; without `test`, a share `test_size` of the rows, drawn by the seed."""
    a, b = paired(codes, targets, name)
    if test is not None:
        if not isinstance(test, tuple | list) or len(test) != 2:
            raise InputError(f"test must be a pair of arrays, codes and {name}")
        c, d = paired(test[0], test[1], name)
        if c.shape[1] != a.shape[1] or d.shape[1] != b.shape[1]:
            raise InputError(
                f"the test rows have {c.shape[1]} codes and {d.shape[1]} {name}, "
                f"the training rows {a.shape[1]} and {b.shape[1]}"
            )
        return Split(a, b, c, d)
    if not isinstance(test_size, int | float) or not 0 < test_size < 1:
        raise InputError(f"test_size must lie between 0 and 1, not {test_size!r}")
    count = max(round(test_size * len(a)), 2)
    if len(a) - count < 2:
        raise InputError(f"{len(a)} rows are too few to hold out {count}: both parts need at least 2")
    order = np.random.default_rng(whole(seed, "seed", 0)).permutation(len(a))
    inside, outside = order[count:], order[:count]
    return Split(a[inside], b[inside], a[outside], b[outside])


def affine_fit(inputs: Array, outputs: Array) -> tuple[Array, Array]:
    """Weights [k, d] and offset [d] of the least-squares fit outputs ≈ inputs @ weights + offset.

    Of all best fits the one with the smallest weights (of columns scaled to a largest entry of one), so that
    constant, duplicated and dependent columns do no harm; a constant column has weight zero.
    """
    x, y = centred(inputs), centred(outputs)
    largest = np.abs(x).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    weights = np.linalg.lstsq(x / scale, y, rcond=None)[0] / scale[:, None]
    weights[largest == 0] = 0.0
    return weights, outputs.mean(axis=0) - inputs.mean(axis=0) @ weights


def held_out_r2(truth: Array, predicted: Array) -> Array:
    """1 − Σ(y − ŷ)² / Σ(y − mean y)² of each column, [d]; 0 where y is constant, since there is nothing to explain."""
    moved = centred(truth)
    largest = np.abs(moved).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)  # squares neither over- nor underflow
    total = np.sum((moved / scale) ** 2, axis=0)
    missed = np.sum(((truth - predicted) / scale) ** 2, axis=0)
    return np.where(largest > 0, 1.0 - missed / np.where(largest > 0, total, 1.0), 0.0)
