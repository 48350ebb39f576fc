"""Ridge regression whose penalty is chosen by leaving out one row at a time, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probssl.metrics._inputs import Array

PENALTIES = 10.0 ** np.arange(-4, 4.5, 0.5)
"""Penalties that are tried, in units of the mean squared singular value of the centred features, zeros aside."""

_EMPTY = 1e-12  # directions with less than this share of the largest squared singular value are left out


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted affine map: x @ weights [m, k] + offset [k]."""

    weights: Array
    offset: Array
    penalty: float

    def predict(self, x: Array) -> Array:
        """The outputs of each row, [n, k]."""
        return x @ self.weights + self.offset


def fit_ridge(x: Array, y: Array) -> Ridge:
    """Minimise Σ ‖y_i − Wᵀx_i − b‖² + λ ‖W‖² over W and b, for the λ with the least error on rows left out.

    With singular vectors U and values s of the centred x, the fit of all rows is ŷ = ȳ + U diag(s²/(s² + λ)) Uᵀy, and
    a row that is left out is missed by (y_i − ŷ_i) / (1 − h_i), h_i = 1/n + Σ_j U_ij² s_j²/(s_j² + λ). Outputs share
    λ. A common scale of the features changes nothing.
    """
    mean, centre = x.mean(axis=0), y.mean(axis=0)
    moved, goals = x - mean, y - centre
    if x.shape[1] <= len(x):
        squares, right = np.linalg.eigh(moved.T @ moved)
        kept = squares > _EMPTY * squares[-1]
        squares, right = squares[kept], right[:, kept]
        left = moved @ right / np.sqrt(squares)
    else:
        squares, left = np.linalg.eigh(moved @ moved.T)
        kept = squares > _EMPTY * squares[-1]
        squares, left = squares[kept], left[:, kept]
        right = moved.T @ left / np.sqrt(squares)
    if not squares.size:  # features that do not vary say nothing
        return Ridge(np.zeros((x.shape[1], y.shape[1])), centre, 0.0)
    along = left.T @ goals

    def missed(penalty: float) -> float:
        share = squares / (squares + penalty)
        leverage = 1 / len(x) + np.square(left) @ share
        errors = (goals - left @ (share[:, None] * along)) / np.maximum(1 - leverage, _EMPTY)[:, None]
        return float(np.mean(np.square(errors)))

    penalty = min((PENALTIES * squares.mean()).tolist(), key=missed)
    weights = right @ ((np.sqrt(squares) / (squares + penalty))[:, None] * along)
    return Ridge(weights, centre - mean @ weights, penalty)
