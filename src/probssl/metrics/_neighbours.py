"""Nearest neighbours and their vote, shared by the probes and CLID."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from probssl.metrics._inputs import Array

_TREE_FEATURES = 15  # beyond about this many features a tree visits most points, and matrix products win


def nearest(reference: Array, query: Array, count: int) -> NDArray[np.intp]:
    """Indices of the `count` nearest rows of `reference` for each row of `query`, nearest first: [q, count]."""
    if reference.shape[1] <= _TREE_FEATURES:
        from scipy.spatial import cKDTree

        return cKDTree(reference).query(query, np.arange(1, count + 1))[1]
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(reference)
    return search.kneighbors(query, return_distance=False)


def vote(reference: Array, codes: NDArray[np.intp], query: Array, count: int) -> NDArray[np.intp]:
    """The most frequent code among the nearest rows, the smaller code on a tie: [q]."""
    return votes(reference, codes, query, [count])[0]


def votes(reference: Array, codes: NDArray[np.intp], query: Array, counts: Sequence[int]) -> NDArray[np.intp]:
    """`vote` for each of several counts, from one search: [counts, q]."""
    chosen = codes[nearest(reference, query, max(counts))]  # [q, largest count]
    width = int(codes.max()) + 1
    cells = chosen + width * np.arange(len(query))[:, None]
    tally = np.zeros(width * len(query), dtype=np.intp)
    found, done = {}, 0
    for count in sorted(set(counts)):
        tally += np.bincount(cells[:, done:count].reshape(-1), minlength=len(tally))
        found[count], done = tally.reshape(len(query), width).argmax(axis=1), count
    return np.stack([found[count] for count in counts])
