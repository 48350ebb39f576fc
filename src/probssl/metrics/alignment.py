"""Alignment and uniformity on the unit sphere (Wang and Isola 2020)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import positive, representations, subsample, unit_rows

_BLOCK = 1024


def alignment(a: ArrayLike, b: ArrayLike, *, power: float = 2.0, normalise: bool = True) -> float:
    """Mean over rows of ||a_i - b_i||^power, where b_i represents an observation related to that of a_i.

    Wang and Isola 2020, Section 4.1. Lower is better: 0 when related observations coincide, which a
    constant code also reaches, so read it beside `uniformity`. On the unit sphere the range is [0,
    2^power], [0, 4] at power 2 (not [0, 1] as sometimes printed), and unrelated points spread evenly give
    2. Unchanged by rotation. `normalise` puts rows on the unit sphere first; a row of zeros stays at the
    origin.
    """
    positive(power, "power")
    a, b = representations(a), representations(b, "the related representations")
    if a.shape != b.shape:
        raise InputError(f"alignment compares rows one to one, but the shapes are {a.shape} and {b.shape}")
    if normalise:
        a, b = unit_rows(a), unit_rows(b)
    return float(np.mean(np.linalg.norm(a - b, axis=1) ** power))


def uniformity(
    z: ArrayLike, *, t: float = 2.0, normalise: bool = True, max_rows: int | None = 10_000, seed: int = 0
) -> float:
    """log of the mean of exp(-t ||z_i - z_j||^2) over distinct pairs of rows i < j.

    Wang and Isola 2020, Section 4.1. Lower is better (more evenly spread). On the unit sphere the range is
    [-2 t n / (n - 1), 0]: 0 for a constant code, the lower end for a regular simplex; points drawn
    uniformly give -1.575 on the circle, -3.247 in 10 dimensions and tend to -2t = -4 as dimensions grow (t
    = 2). Unchanged by rotation. A row of zeros stays at the origin.

    Above `max_rows` rows a sample of that size, drawn by the seed, stands for all (10,000 rows are 50 million
    pairs: an error of a few 1e-3); None uses every pair. Blocks of 1024 rows keep the memory small.
    """
    positive(t, "t")
    z = subsample(representations(z, rows=2), max_rows, seed)
    z = unit_rows(z) if normalise else z - z.mean(axis=0)
    square = np.einsum("ij,ij->i", z, z)
    shift, total = -np.inf, 0.0  # the sum is total * exp(shift): small terms do not underflow
    for start in range(0, len(z), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for other in range(start, len(z), _BLOCK):
            columns = slice(other, other + _BLOCK)
            block = z[rows] @ z[columns].T
            block *= 2.0
            block -= square[rows, None]
            block -= square[None, columns]
            np.minimum(block, 0.0, out=block)  # minus the squared distances
            block *= t
            if start == other:
                block[np.tril_indices(len(block))] = -np.inf
            top = float(block.max())
            if top == -np.inf:
                continue
            if top > shift:
                total, shift = total * float(np.exp(shift - top)), top
            block -= shift
            total += float(np.exp(block, out=block).sum())
    pairs = len(z) * (len(z) - 1) / 2
    return float(np.log(total) + shift - np.log(pairs))
