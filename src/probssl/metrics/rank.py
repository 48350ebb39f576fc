"""How many dimensions a representation uses: RankMe, and the spectrum of the covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from probssl.metrics._inputs import Array, centred, positive, representations


@dataclass(frozen=True, eq=False)
class Spectra:
    """First and second moments of a representation, and how many directions its variance fills.

    `effective_rank` and `numerical_rank` are defined at `spectra`.
    """

    mean: Array  # [m]
    variance: Array  # [m]
    eigenvalues: Array  # [m], of the covariance, descending
    effective_rank: float
    numerical_rank: int


def rankme(z: ArrayLike, *, centre: bool = False) -> float:
    """RankMe: exp(-sum_k p_k log p_k) with p_k = s_k / sum_j s_j and s the singular values of z [n, m].

    Garrido et al. 2023, Eq. 1-2: the exponential of the entropy, not the entropy itself. Range [1, min(n,
    m)]: min(n, m) for orthogonal columns of equal length, 1 for rank one. A code of zeros has no singular
    values to normalise and is given 1.0, the value of any other constant code. Higher means more dimensions
    are used, which is not always better. Unchanged by rotation, by scale, and by duplicated rows or
    columns; `centre=True` also removes the mean, whose singular value otherwise counts as one more
    direction.

    The paper adds 1e-7 to every p_k against log 0; here 0 log 0 = 0, which keeps the range exact and differs
    by a relative 2e-6 for each empty dimension.
    """
    z = representations(z)
    return _exp_entropy(_singular_values(centred(z) if centre else z))


def spectra(z: ArrayLike, *, threshold: float = 1e-5) -> Spectra:
    """Mean and variance of each dimension, eigenvalues of the covariance, and two ranks read off them.

    The covariance is (1/n) sum_i (z_i - mean)(z_i - mean)^T. effective_rank = exp(entropy of its normalised
    eigenvalues) (Roy and Vetterli 2007), range [1, min(n - 1, m)]; numerical_rank = how many eigenvalues
    exceed `threshold` times the largest, range [0, min(n - 1, m)]. A constant code has no variance:
    effective_rank 1.0 by the convention of `rankme`, numerical_rank 0. Neither has a better direction; few
    means dimensional collapse.

    Eigenvalues are squared singular values of the centred code, exact to rounding even where they are tiny.
    """
    positive(threshold, "threshold")
    z = representations(z)
    moved = centred(z)
    values = np.zeros(z.shape[1])
    singular = _singular_values(moved)
    values[: len(singular)] = singular**2 / len(z)
    return Spectra(
        mean=z.mean(axis=0),
        variance=np.mean(moved**2, axis=0),
        eigenvalues=values,
        effective_rank=_exp_entropy(values),
        numerical_rank=int(np.sum(values > threshold * values[0])),
    )


def _singular_values(z: Array) -> Array:
    """Singular values, descending, with those at rounding level set to zero.

    A tall matrix goes through its triangular factor. The Gram matrix would be twice as fast but squares the
    condition number: singular values below 1e-8 of the largest would be noise.
    """
    n, m = z.shape
    if n > 2 * m:
        z = np.asarray(np.linalg.qr(z, mode="r"), dtype=np.float64)
    values = np.asarray(np.linalg.svd(z, compute_uv=False), dtype=np.float64)
    values[values <= values[0] * max(n, m) * np.finfo(float).eps] = 0.0
    return values


def _exp_entropy(weights: Array) -> float:
    """exp of the entropy of weights normalised to one; 1.0 when they are all zero."""
    if weights.max() <= 0:
        return 1.0
    weights = weights / weights.max()
    share = weights[weights > 0] / weights.sum()
    return float(np.exp(-np.sum(share * np.log(share))))
