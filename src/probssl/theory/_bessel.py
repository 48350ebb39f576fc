"""The numbers under every formula of the sphere: log E e^{κt} and its derivative, for any dimension and any κ.

t = μᵀx is the cosine between a fixed direction μ and x uniform on S^{d−1}. With ν = d/2 − 1,

    g(κ) = log E e^{κt} = log Γ(ν+1) + ν log(2/κ) + log I_ν(κ) = log ₀F₁(; d/2; κ²/4)
    A(κ) = g'(κ) = I_{ν+1}(κ) / I_ν(κ)

Two regimes, both free of cancellation, overflow and underflow, so no Bessel function is called:
κ ≤ 40 √(d/2): the power series of ₀F₁, all of whose terms are positive;
beyond: Olver's uniform expansion of I_ν and I'_ν (NIST Handbook of Mathematical Functions, 10.41), written in
w = √(ν²+κ²): its k-th term is w^{-k} times a polynomial in (ν/w)², so it is as good for ν = 0 as for ν = 10⁵.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, sqrt

import numpy as np
from numpy.polynomial.polynomial import polyval

from probssl.theory._inputs import Array

_SWITCH = 40.0  # where the series hands over, in units of √(d/2)
_TERMS = 14
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)  # log Γ(ν+1) beyond Stirling's formula, in ν^{1−2k}
_LARGE_ORDER = 15.0  # from here on those five terms are exact to 2e-16


def log_moment(dim: int, kappa: Array) -> Array:
    """g(κ) = log E e^{κt}, [same shape]; dim 1 gives log cosh κ."""

    def beyond(k: Array, nu: float, w: Array) -> Array:
        return _log_moment(k, nu, w, k * (k / (w + nu)))

    return _by_regime(dim, kappa, lambda k: np.log1p(_series(dim / 2, k)), beyond)


def log_moment_scaled(dim: int, kappa: Array) -> Array:
    """g(κ) − κ = log E e^{−κ(1−t)}, exact also where g and κ nearly cancel."""

    def beyond(k: Array, nu: float, w: Array) -> Array:
        return _log_moment(k, nu, w, nu * (nu / (w + k)) - nu)

    return _by_regime(dim, kappa, lambda k: np.log1p(_series(dim / 2, k)) - k, beyond)


def resultant(dim: int, kappa: Array) -> Array:
    """A(κ) = I_{d/2}(κ) / I_{d/2−1}(κ), the mean cosine of von Mises–Fisher; dim 1 gives tanh κ."""

    def beyond(k: Array, nu: float, w: Array) -> Array:
        return k / (w + nu) - _correction(k, nu, w)

    return _by_regime(dim, kappa, lambda k: _series_resultant(dim, k), beyond)


def resultant_gap(dim: int, kappa: Array) -> Array:
    """1 − A(κ), exact also where A is close to one."""

    def beyond(k: Array, nu: float, w: Array) -> Array:
        return (nu * (nu / (w + k)) + nu) / (w + nu) + _correction(k, nu, w)

    return _by_regime(dim, kappa, lambda k: 1 - _series_resultant(dim, k), beyond)


def _by_regime(
    dim: int, kappa: Array, near: Callable[[Array], Array], beyond: Callable[[Array, float, Array], Array]
) -> Array:
    kappa = np.asarray(kappa, dtype=np.float64)
    nu = dim / 2 - 1
    small = kappa <= _SWITCH * sqrt(dim / 2)
    out = np.empty_like(kappa)
    if small.any():
        out[small] = near(kappa[small])
    if not small.all():
        k = kappa[~small]
        out[~small] = beyond(k, nu, np.hypot(nu, k))
    return out


def _series(a: float, kappa: Array) -> Array:
    """₀F₁(; a; κ²/4) − 1, summed term by term until nothing changes."""
    x = (kappa / 2) ** 2
    term = np.ones_like(x)
    total = np.zeros_like(x)
    k = 0
    while k == 0 or np.any(term > 1e-18 * total):
        k += 1
        term = term * (x / (k * (a + k - 1)))
        total += term
    return total


def _series_resultant(dim: int, kappa: Array) -> Array:
    return kappa / dim * (1 + _series(dim / 2 + 1, kappa)) / (1 + _series(dim / 2, kappa))


def _log_moment(k: Array, nu: float, w: Array, rise: Array) -> Array:
    """log Γ(ν+1) − ν log((ν+w)/2) − ½ log(2πw) + log U + ν + rise, with Stirling's formula inserted by hand.

    rise is w − ν for g, w − ν − κ for g − κ: the caller computes it without cancellation.
    """
    tail = np.log(_sum(_U, nu, w))
    if nu < _LARGE_ORDER:
        return lgamma(nu + 1) - nu * np.log((nu + w) / 2) - np.log(2 * np.pi * w) / 2 + tail + (rise + nu)
    stirling = sum(c * nu ** (-1 - 2 * i) for i, c in enumerate(_STIRLING))
    grown = k * (k / (w + nu)) / (2 * nu)  # (w − ν) / 2ν
    return rise - nu * np.log1p(grown) - np.log(w / nu) / 2 + stirling + tail


def _correction(k: Array, nu: float, w: Array) -> Array:
    return w / k * _sum(_GAP, nu, w) / _sum(_U, nu, w)


def _sum(polynomials: list[Array], nu: float, w: Array) -> Array:
    """Σ_k polynomial_k((ν/w)²) / w^k."""
    t, total = (nu / w) ** 2, np.zeros_like(w)
    for coefficients in reversed(polynomials):
        total = total / w + polyval(t, coefficients)
    return total


def _olver() -> tuple[list[Array], list[Array]]:
    """The polynomials of I_ν (u_k) and of I_ν minus those of I'_ν (u_k − v_k), each without its factor (ν/w)^k."""
    u, gap = [np.ones(1)], [np.zeros(1)]
    for k in range(_TERMS):
        n = k + 2.0 * np.arange(k + 1)
        u.append(np.append(u[k] * (n / 2 + 1 / (8 * (n + 1))), 0) - np.append(0, u[k] * (n / 2 + 5 / (8 * (n + 3)))))
        gap.append(np.append(u[k] * (n + 0.5), 0) - np.append(0, u[k] * (n + 0.5)))
    return u, gap


_U, _GAP = _olver()
