"""Coding rates: how many nats a representation takes, whole and group by group (MCR2, Yu et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import Array, kmeans_codes, label_codes, positive, representations, unit_rows


@dataclass(frozen=True)
class MCR2:
    """The coding rate reduction and its two parts: reduction = whole - grouped."""

    reduction: float
    whole: float
    grouped: float


def coding_rate(z: ArrayLike, epsilon: float = 0.5**0.5, *, normalise: bool = True) -> float:
    """R(z) = 1/2 log det(I + m / (n epsilon^2) z^T z), in nats, for z [n, m] coded up to distortion epsilon.

    Yu et al. 2020, Eq. 7. With rows on the unit sphere (`normalise`, as in the paper) the range is [0, k/2
    log(1 + m / (k epsilon^2))] with k = min(n, m), the upper end for directions used equally; a code of
    zeros has rate 0. Higher means more volume. Unchanged by rotation and by duplicated rows. epsilon is the
    letter in the formula; the default is the authors' epsilon^2 = 0.5.
    """
    positive(epsilon, "epsilon")
    z = representations(z)
    return _rate(unit_rows(z) if normalise else z, epsilon)


def mcr2(
    z: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    clusters: int = 10,
    epsilon: float = 0.5**0.5,
    normalise: bool = True,
    seed: int = 0,
) -> MCR2:
    """Coding rate reduction: Delta R = R(z) - sum_j (n_j / n) R(z_j), in nats, over groups j.

    Yu et al. 2020, Eq. 8-11. Groups are the labels where given, otherwise `clusters` k-means clusters of the
    (normalised) rows. Higher is better: the whole spreads while each group stays in a small subspace. Range
    [0, R(z)], where 0 is a single group or groups alike in their second moments. Unchanged by rotation and
    by duplicated rows. epsilon is as in `coding_rate`.
    """
    positive(epsilon, "epsilon")
    z = representations(z)
    if normalise:
        z = unit_rows(z)
    codes = kmeans_codes(z, clusters, seed) if labels is None else label_codes(labels, len(z))[0]
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    total = _rate(z, epsilon)
    grouped = float(sum(len(group) / len(z) * _rate(z[group], epsilon) for group in groups))
    return MCR2(reduction=max(total - grouped, 0.0), whole=total, grouped=grouped)


def _rate(z: Array, epsilon: float) -> float:
    n, m = z.shape
    with np.errstate(over="ignore", invalid="ignore"):
        gram = z.T @ z if m <= n else z @ z.T  # both have the same determinant; take the smaller
        gram *= m / (n * epsilon**2)
    gram[np.diag_indices_from(gram)] += 1.0
    if not np.isfinite(gram).all():
        raise InputError("the coding rate overflows: normalise the representations or take a larger epsilon")
    return max(float(np.linalg.slogdet(gram)[1]) / 2, 0.0)
