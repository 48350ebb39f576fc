"""CLID: is a representation expressive (intrinsic dimension) and learnable (cluster learnability)?

Sources: Facco, d'Errico, Rodriguez and Laio 2017, "Estimating the intrinsic dimension of datasets by a
minimal neighborhood information" (TwoNN); Lu et al. 2023, "Using Representation Expressiveness and
Learnability to Evaluate Self-Supervised Learning Methods" (CLID).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._inputs import Array, centred, kmeans_codes, representations, subsample, whole
from probssl.metrics._neighbours import nearest, vote


@dataclass(frozen=True)
class CLID:
    """The two parts of CLID for one model; `combine_clid` puts several models on one scale.

    Its parts are `intrinsic_dimension` and `cluster_learnability`.
    """

    intrinsic_dimension: float
    cluster_learnability: float


def intrinsic_dimension(z: ArrayLike, *, discard: float = 0.1, max_rows: int | None = 60_000, seed: int = 0) -> float:
    """TwoNN estimate of the dimension of the manifold that the rows lie on.

    With mu_i = (distance to the second neighbour) / (distance to the first), locally uniform density gives
    P(mu <= x) = 1 - x^-d, so d is the slope of -log(1 - F(mu_i)) on log(mu_i), F(mu_(i)) = i/n, by least
    squares through the origin, leaving out the largest `discard` share of mu as in Facco et al. 2017.

    Range (0, inf), in practice up to about the number of features; biased low above ten dimensions or so.
    Higher means more expressive. Unchanged by rotation, translation and scale, and by duplicated rows: each
    distinct row counts once, since a distance of zero carries no information about dimension. Above
    `max_rows` distinct rows a sample of that size stands for all, drawn by the seed; None uses every row.
    Undefined (InputError) for fewer than five distinct rows and for lattices where the first two neighbours
    are all equally far.
    """
    if not isinstance(discard, int | float) or not 0 <= discard < 1:
        raise InputError(f"discard must be at least 0 and below 1, not {discard!r}")
    z = representations(z) + 0.0  # turns -0.0 into 0.0, which are one point
    first = np.unique(z, axis=0, return_index=True)[1]
    z = centred(subsample(z[np.sort(first)], max_rows, seed))
    if len(z) < 5:
        raise InputError(f"the intrinsic dimension needs at least 5 distinct rows and there are {len(z)}")
    near, far = _two_neighbours(z)
    keep = near > 0  # distinct rows can still be closer than float64 tells
    mu = np.sort(np.log(far[keep] / near[keep]))
    n = len(mu)
    used = min(max(int(n * (1 - discard)), 1), n - 1)  # the last point has F = 1, an infinite ordinate
    x = mu[: max(used, 0)]
    y = -np.log1p(-np.arange(1, len(x) + 1) / max(n, 1))
    if len(x) == 0 or x[-1] < 1e-9:
        raise InputError("the intrinsic dimension is undefined: the first two neighbours are equally far everywhere")
    return float(x @ y / (x @ x))


def cluster_learnability(
    z: ArrayLike,
    *,
    clusters: int | None = None,
    neighbours: int = 5,
    test_size: float = 0.2,
    max_rows: int | None = 20_000,
    seed: int = 0,
) -> float:
    """Held-out accuracy of a nearest-neighbour classifier that predicts k-means pseudo-labels.

    Lu et al. 2023, in the validation form: cluster the rows with k-means, hide a random 20%, predict their
    clusters by a vote of the nearest of the other rows. Range [0, 1]; higher means the clusters are simpler
    to learn. Unchanged by rotation, translation and scale up to the start of k-means. `clusters` is by
    default the square root of the number of rows, at most 100, a choice of ours: compare models at one
    setting and one data set. Above `max_rows` rows a sample of that size stands for all, drawn by the seed;
    None uses every row. Undefined (InputError) when fewer than two clusters come out, as for a constant
    code.
    """
    whole(neighbours, "neighbours", 1)
    if not isinstance(test_size, int | float) or not 0 < test_size < 1:
        raise InputError(f"test_size must lie between 0 and 1, not {test_size!r}")
    z = centred(subsample(representations(z, rows=2), max_rows, seed))
    codes = kmeans_codes(z, default_clusters(len(z)) if clusters is None else clusters, seed)
    if codes.max() < 1:
        raise InputError("cluster learnability is undefined: all rows fall into one cluster")
    order = np.random.default_rng(seed).permutation(len(z))
    held = max(1, round(test_size * len(z)))
    test, train = order[:held], order[held:]
    if len(train) < neighbours:
        raise InputError(f"{neighbours} neighbours are more than the {len(train)} training rows")
    return float(np.mean(vote(z[train], codes[train], z[test], neighbours) == codes[test]))


def default_clusters(rows: int) -> int:
    """How many clusters `cluster_learnability` asks for: sqrt(rows), between 2 and 100."""
    return int(min(100, max(2, round(rows**0.5))))


def clid(z: ArrayLike, *, clusters: int | None = None, neighbours: int = 5, seed: int = 0) -> CLID:
    """Both parts of CLID (Lu et al. 2023): intrinsic dimension and cluster learnability.

    Higher is better in each. They have different units, so one model alone has no single CLID; see
    `combine_clid`.
    """
    z = representations(z)
    return CLID(
        intrinsic_dimension(z, seed=seed),
        cluster_learnability(z, clusters=clusters, neighbours=neighbours, seed=seed),
    )


def combine_clid(models: Sequence[CLID]) -> tuple[float, ...]:
    """One CLID score for each model: both parts standardised over the models, then added. Higher is better.

    score_k = (ID_k - mean ID) / std ID + (CL_k - mean CL) / std CL; a part that is equal in all models adds
    zero. Scores have mean zero and only rank the models they were computed with (one data set, one
    setting).
    """
    if len(models) < 2:
        raise InputError(f"CLID compares models, so it needs at least two and got {len(models)}")
    parts = representations([[m.intrinsic_dimension, m.cluster_learnability] for m in models], "the parts of CLID")
    moved = centred(parts)
    deviation = np.sqrt(np.mean(moved**2, axis=0))
    scores = np.sum(moved / np.where(deviation > 0, deviation, 1.0), axis=1)
    return tuple(float(s) for s in scores)


def _two_neighbours(z: Array) -> tuple[Array, Array]:
    """Distances from each row to its first and second neighbour, recomputed from differences.

    The search may use ||a||^2 + ||b||^2 - 2ab, which loses small distances; only its indices are trusted.
    """
    index = nearest(z, z, 3)  # [n, 3], itself among them
    distance = np.empty(index.shape)
    for start in range(0, len(z), 4096):
        rows = slice(start, start + 4096)
        distance[rows] = np.linalg.norm(z[index[rows]] - z[rows, None], axis=2)
    distance[index == np.arange(len(z))[:, None]] = np.inf
    distance.sort(axis=1)
    return distance[:, 0], distance[:, 1]
