"""Nearest neighbours and their vote, shared by the probes and CLID."""

from __future__ import annotations

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
    chosen = codes[nearest(reference, query, count)]  # [q, count]
    width = int(codes.max()) + 1
    cells = chosen + width * np.arange(len(query))[:, None]
    votes = np.bincount(cells.reshape(-1), minlength=width * len(query))
    return votes.reshape(len(query), width).argmax(axis=1)
