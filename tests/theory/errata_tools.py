"""Numerics that the errata tests share: quadrature on the sphere, on the line and over two blocks of a sphere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import optimize, special


def log_area(d: int) -> float:
    """log |S^{d−1}|, the area of the unit sphere in d dimensions."""
    return float(np.log(2) + d / 2 * np.log(np.pi) - special.gammaln(d / 2))


def cosine_rule(d: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t and weights w so that Σ w f(t) = E f(uᵀv), with u uniform on S^{d−1} and v fixed."""
    nodes, weights = special.roots_jacobi(n, (d - 3) / 2, (d - 3) / 2)
    return nodes, weights / weights.sum()


def normal_rule(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights so that Σ w f(x) = E f(x) for x ~ N(0, 1)."""
    nodes, weights = special.roots_hermitenorm(n)
    return nodes, weights / weights.sum()


def log_mean_exp(values: np.ndarray, weights: np.ndarray, axis: int | None = None) -> np.ndarray:
    """log Σ w e^v along an axis."""
    return special.logsumexp(values, b=weights, axis=axis)


def vmf_kl(concentration: float, critic: float, d: int) -> float:
    """KL(vMF(κ) ‖ vMF(critic)) with a common mean direction on S^{d−1}, by quadrature."""
    t, w = cosine_rule(d)
    log_p = concentration * t - log_mean_exp(concentration * t, w)
    log_q = critic * t - log_mean_exp(critic * t, w)
    return float(np.sum(w * np.exp(log_p) * (log_p - log_q)))


def best_psd(objective: Callable[[np.ndarray], float], d: int, starts: int = 12, seed: int = 0) -> tuple:
    """The least objective(G) over G = WᵀW with W square, by BFGS from several starts: (G, value)."""
    rng = np.random.default_rng(seed)

    def of_weights(flat: np.ndarray) -> float:
        weights = flat.reshape(d, d)
        return objective(weights.T @ weights)

    runs = [
        optimize.minimize(of_weights, rng.normal(size=d * d), method="BFGS", options={"gtol": 1e-9})
        for _ in range(starts)
    ]
    best = min(runs, key=lambda run: run.fun)
    weights = best.x.reshape(d, d)
    return weights.T @ weights, float(best.fun)


def mixture_density(x: np.ndarray) -> np.ndarray:
    """A skewed density on the line: 0.7 N(−0.5, 0.4²) + 0.3 N(1.5, 0.9²)."""

    def bell(mean: float, std: float) -> np.ndarray:
        return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))

    return 0.7 * bell(-0.5, 0.4) + 0.3 * bell(1.5, 0.9)
