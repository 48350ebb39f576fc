"""Exact samples on the unit sphere: uniform, von Mises–Fisher, and the anisotropic conditional of AnInfoNCE."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from probssl.errors import InputError
from probssl.theory._inputs import Array, diagonal, not_negative, random_generator, unit_length, whole

_PATIENCE = 10_000  # rounds of proposals; at 1 % acceptance a row fails all of them once in 10⁴³


def sample_uniform(count: int, dim: int, generator: np.random.Generator) -> Array:
    """Uniform points on S^{d−1}, [count, dim]."""
    x = random_generator(generator).standard_normal((whole(count, "count", 1), whole(dim, "dim", 2)))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def sample_vmf(anchors: ArrayLike, concentration: float, generator: np.random.Generator) -> Array:
    """One point z̃ ~ C_d(κ) e^{κ zᵀz̃} for each anchor z (a row of unit length): [n, d] → [n, d].

    The cosine by Wood's rejection (1994; it keeps 65 % of the proposals or more), the direction
    around the anchor uniformly. 1 − t is what is drawn, so that κ = 10⁶ and beyond lose no digits.
    """
    z = unit_length(anchors, "anchors", 2)
    kappa = not_negative(concentration, "concentration")
    random_generator(generator)
    n, d = z.shape
    b = (d - 1) / (2 * kappa + np.hypot(2 * kappa, d - 1))
    below = 2 * b / (1 + b)  # one minus the cosine at which the envelope touches
    gap = np.empty(n)  # one minus the cosine
    waiting = np.arange(n)
    while len(waiting):
        beta = generator.beta((d - 1) / 2, (d - 1) / 2, len(waiting))
        proposed = 2 * b * beta / (1 - (1 - b) * beta)
        ratio = (below + (1 - below) * proposed) / (below * (2 - below))
        log_keep = kappa * (below - proposed) + (d - 1) * np.log(ratio)
        keep = np.log1p(-generator.random(len(waiting))) <= log_keep
        gap[waiting[keep]] = proposed[keep]
        waiting = waiting[~keep]
    side = generator.standard_normal((n, d))
    for _ in range(2):  # twice, because once leaves a rounding error along the anchor
        side -= np.einsum("ij,ij->i", side, z)[:, None] * z
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    return (1 - gap)[:, None] * z + np.sqrt(gap * (2 - gap))[:, None] * side


def sample_anisotropic(anchors: ArrayLike, concentrations: ArrayLike, generator: np.random.Generator) -> Array:
    """One point z̃ ~ exp(−½ (z̃ − z)ᵀ Λ (z̃ − z)) / C(z) on the sphere for each anchor z: [n, d] → [n, d].

    The conditional of AnInfoNCE (Eq. 2) with Λ = diag(concentrations) > 0 and the ½ of its released code: Λ here is
    twice the Λ of Eq. 2. It is a Fisher–Bingham distribution, not a projected Gaussian: projecting N(z, Λ⁻¹) onto the
    sphere gives optimal concentrations 5 to 28 % too large. Λ = κI is von Mises–Fisher.

    Exact, by rejection. With v = Λz and c = zᵀΛz, the axis ±z̃ has density e^{−½ z̃ᵀΛz̃} cosh(vᵀz̃), and
    1. log cosh is concave in its square: log cosh(y) ≤ log cosh(c) + (tanh(c)/2c)(y² − c²), tight at z̃ = ±z;
    2. that leaves a Bingham density e^{−u}, u = ½ z̃ᵀ(Λ − (tanh(c)/c) vvᵀ)z̃ ≥ 0, with its mode at z;
    3. e^{−u} ≤ const (1 + 2u/b)^{−d/2}, an angular central Gaussian (Kent, Ganeiber and Mardia 2018), which is drawn
       without any decomposition because its covariance is a diagonal plus one outer product.
    An accepted axis takes its sign from the two densities. No other bound enters, and any b gives the same result.
    """
    z = unit_length(anchors, "anchors", 2)
    scales = diagonal(concentrations, "concentrations", z.shape[1])
    random_generator(generator)
    out = np.empty_like(z)
    waiting = np.arange(len(z))
    for _ in range(_PATIENCE):
        x, keep = _propose(z[waiting], scales, generator)
        out[waiting[keep]] = x[keep]
        waiting = waiting[~keep]
        if not len(waiting):
            return out
    raise InputError(f"the concentrations {scales} are too far apart for rejection sampling")


def _propose(z: Array, scales: Array, generator: np.random.Generator) -> tuple[Array, np.ndarray]:
    """Proposals [n, d], and which of them are accepted [n]."""
    n, d = z.shape
    v = z * scales
    c = np.einsum("ij,ij->i", z, v)
    slope = np.tanh(c) / c
    b = _tail(scales)
    inverse = 1 / (1 + scales / b)  # of the diagonal part of Ω = I + (Λ − slope vvᵀ)/b
    shrunk = v * inverse
    outer = slope / b / (1 - slope / b * np.einsum("ij,ij->i", v, shrunk))  # Sherman and Morrison
    x = generator.standard_normal((n, d)) * np.sqrt(inverse)
    x += (np.sqrt(outer) * generator.standard_normal(n))[:, None] * shrunk
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.einsum("ij,ij->i", x, v)
    u = np.maximum((np.einsum("ij,j,ij->i", x, scales, x) - slope * y**2) / 2, 0.0)
    log_keep = _log_cosh(y) - _log_cosh(c) - slope / 2 * (y**2 - c**2)
    log_keep += -u + d / 2 * np.log1p(2 * u / b) + (d - b) / 2 - d / 2 * np.log(d / b)
    keep = np.log1p(-generator.random(n)) <= log_keep
    with np.errstate(over="ignore"):
        sign = np.where(generator.random(n) * (1 + np.exp(-2 * y)) < 1, 1.0, -1.0)
    return x * sign[:, None], keep


def _tail(scales: Array) -> float:
    """b in (0, d]: the best for eigenvalues 0 and Λ, nearly the best for those of every anchor."""
    share = (len(scales) - 1) / len(scales)
    return float(brentq(lambda b: 1 / b + share * np.sum(1 / (b + scales)) - 1, 1e-3, len(scales) + 1e-9))


def _log_cosh(y: Array) -> Array:
    size = np.abs(y)
    return size + np.log1p(np.exp(-2 * size)) - np.log(2)
