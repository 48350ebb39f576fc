"""Minimising over Gram matrices G = WᵀW: on the cone G ⪰ 0, and with W of few rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg, optimize

from probssl.theory._inputs import Array


def nearest_gram(matrix: Array) -> Array:
    """The nearest positive semi-definite matrix in Frobenius norm: negative eigenvalues become zero."""
    values, basis = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((basis * np.maximum(values, 0)) @ basis.T)


def rank_of(gram: Array) -> int:
    """How many eigenvalues are above 1e-8 of the largest."""
    values = np.linalg.eigvalsh(gram)
    return int(np.sum(values > 1e-8 * values[-1])) if values[-1] > 0 else 0


def minimise_on_cone(second: Array, pull: Array) -> Array:
    """argmin over G ⪰ 0 of Tr(GMG) − Tr(G·pull), M = second.

    Without the constraint it solves the Lyapunov equation GM + MG = pull. Where that solution has negative eigenvalues:
    accelerated projected gradients in the eigenbasis of M, begun at the nearest Gram matrix.
    """
    free = linalg.solve_continuous_lyapunov(second, pull)
    least, most = np.linalg.eigvalsh((free + free.T) / 2)[[0, -1]]
    start = nearest_gram(free)
    if least >= -1e-12 * abs(most):
        return start
    values, basis = np.linalg.eigh(second)
    pull, g = basis.T @ pull @ basis, basis.T @ start @ basis
    sums = values[:, None] + values[None, :]  # GM + MG is elementwise in this basis
    step, scale = 1 / (2 * values[-1]), np.linalg.norm(pull)
    ahead, momentum = g, 1.0
    for _ in range(200_000):
        new = nearest_gram(ahead - step * (sums * ahead - pull))
        if np.sum((ahead - new) * (new - g)) > 0:  # going uphill: restart the momentum
            ahead, momentum = g, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead, momentum = new + (momentum - 1) / following * (new - g), following
        moved, g = np.linalg.norm(new - g), new
        if moved <= 4 * len(g) * np.finfo(float).eps * max(np.linalg.norm(g), step * scale):  # only rounding moves it
            break
    return nearest_gram(basis @ g @ basis.T)


def keep_best_common_directions(second: Array, pull: Array, rank: int) -> Array:
    """argmin over G ⪰ 0 of that rank of Tr(GMG) − Tr(G·pull) when M = second and pull = 2B share eigenvectors v.

    With b = vᵀBv and m = vᵀMv, it keeps those of largest gain b²/m, each with the eigenvalue b/m.
    """
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, 2)  # a random combination has the common eigenvectors, even where one of them repeats
    basis = np.linalg.eigh(a * second / np.linalg.norm(second) + b * pull / np.linalg.norm(pull))[1]
    spread = np.einsum("ki,kl,li->i", basis, second, basis)
    gain = np.maximum(np.einsum("ki,kl,li->i", basis, pull, basis) / 2, 0)
    best = np.argsort(-(gain**2) / spread)[:rank]
    return np.asarray((basis[:, best] * (gain[best] / spread[best])) @ basis[:, best].T)


def descend(loss_and_slope: Callable[[Array], tuple[float, Array]], full_optimum: Array, rank: int) -> Array:
    """Minimise a smooth function of G = WᵀW over W [rank, d]: L-BFGS from the best directions and from random ones."""
    size = len(full_optimum)

    def objective(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(rank, size)
        value, slope = loss_and_slope(w.T @ w)
        return value, (2 * w @ slope).ravel()

    values, basis = np.linalg.eigh(full_optimum)
    scale = np.sqrt(max(values[-1], np.finfo(float).tiny))
    rng = np.random.default_rng(0)
    top = (basis[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0))).T
    starts = [top + 1e-3 * scale * rng.standard_normal((rank, size))]
    starts += [scale * rng.standard_normal((rank, size)) / np.sqrt(size) for _ in range(12)]
    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-12}
    found = [optimize.minimize(objective, w.ravel(), jac=True, method="L-BFGS-B", options=options) for w in starts]
    best = min(found, key=lambda result: float(result.fun))
    w = best.x.reshape(rank, size)
    return np.asarray(w.T @ w)
