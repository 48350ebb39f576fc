"""What InfoNCE must cost on the sphere: the value of the best critic, for finitely many negatives and in the limit.

Anchors z are uniform on S^{d−1}, positives z̃ | z are von Mises–Fisher (CL-ICA) or anisotropic (AnInfoNCE), and the M
negatives are independent. The loss keeps the positive in its denominator: L_M = E log(1 + Σ_j e^{s(z, z_j) − s(z, z̃)}).
The best critic s is log p₊(z̃ | z) / p₋(z̃ | z) up to any function of z, for every M, so the optimal concentrations are
the true ones. Its loss L*_M lies in [0, log(1 + M)] and L*_M − log M → −E KL(p₊ ‖ p₋).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log, pi, sqrt
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from probssl.errors import InputError
from probssl.theory._bessel import log_moment, log_moment_scaled, resultant_gap
from probssl.theory._inputs import Array, diagonal, inverse_temperature, not_negative, positive, whole
from probssl.theory.bounds import infonce_losses
from probssl.theory.sphere_samples import sample_anisotropic, sample_uniform

Number = TypeVar("Number", int, float)

_STEP = 3 / 16  # of the trapezoidal rule, whose error is e^{−π²/step}; a step without rounding error
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_FINEST = 1000.0  # how sharp a function of the angle may be: there the quadrature takes ten seconds
_SHARPEST = 1e4  # the same for the concentrations of two blocks
_BLOCK = 4_000_000  # numbers held at once


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean and its standard error."""

    mean: float
    standard_error: float


@dataclass(frozen=True)
class TwoBlockLimit:
    """InfoNCE − log M as M → ∞ for two blocks of latents, and how far positives move in each: E ‖z̃_b − z_b‖²."""

    loss: float
    displacement: tuple[float, float]


def bayes_infonce_vmf(dim: int, concentration: float, negatives: int) -> float:
    """L*_M = E log(1 + Σ_j e^{κ(t_j − t₊)}): the least InfoNCE for vMF(κ) positives and M uniform negatives.

    By quadrature, to 12 digits or better (`infonce_vmf` with τ = 1/κ). log(1 + M) at κ = 0.
    """
    kappa = not_negative(concentration, "concentration")
    return _infonce(whole(dim, "dim", 2), kappa, kappa, whole(negatives, "negatives", 1))


def infonce_vmf(dim: int, concentration: float, temperature: float, negatives: int) -> float:
    """E log(1 + Σ_j e^{(t_j − t₊)/τ}): InfoNCE of the critic zᵀz̃/τ for vMF(κ) positives and M uniform negatives.

    From log(1 + x) = ∫₀^∞ (1 − e^{−sx}) e^{−s}/s ds, with y = s e^{−t₊/τ},

        L_M = ∫ (1 − φ(e^v)^M) ψ(e^v) dv,  φ(y) = E_uniform exp(−y e^{t/τ}),  ψ(y) = E_vMF exp(−y e^{t/τ}).

    The integrand is analytic in a strip, so the trapezoidal rule in v is exact to rounding; φ and ψ are integrals over
    the angle. Its least value over τ is at τ = 1/κ for every M. The work grows like 1/τ²; τ ≥ 0.001.
    """
    kappa, critic = not_negative(concentration, "concentration"), inverse_temperature(temperature)
    return _infonce(whole(dim, "dim", 2), kappa, critic, whole(negatives, "negatives", 1))


def bayes_infonce_monte_carlo(positives: ArrayLike, negatives: ArrayLike) -> Estimate:
    """Mean of log(1 + Σ_j r_j/r₊) and its standard error, for any distributions that can be sampled.

    `positives` [n]: log r = log p₊(z̃ | z)/p₋(z̃ | z) at the positive of each anchor; `negatives` [n, M]: the same at its
    negatives. What depends on the anchor alone cancels and may be left out. With the values of any other critic it
    estimates that critic's InfoNCE.
    """
    return _estimate(infonce_losses(positives, negatives))


def bayes_infonce_anisotropic(
    concentrations: ArrayLike,
    negatives: int,
    samples: int,
    generator: np.random.Generator,
    *,
    hard: ArrayLike | None = None,
) -> Estimate:
    """L*_M for positives ∝ exp(−½ (z̃ − z)ᵀ Λ (z̃ − z)), Λ = diag(concentrations), by exact samples of it.

    AnInfoNCE, Eq. 2 and 3, in the ½ convention of `sample_anisotropic`. Negatives are uniform or, with `hard` = Λ⁻, of
    the same form (Corollary B.1); the best critic is −½ ‖z̃ − z‖² in the metric of `optimal_concentrations`, because the
    normalisers C(z), although not constant, cancel.
    """
    metric = optimal_concentrations(concentrations, hard)
    truth, m = diagonal(concentrations, "concentrations"), whole(negatives, "negatives", 1)
    count, dim = whole(samples, "samples", 2), len(metric)
    losses = []
    rows = max(1, _BLOCK // (m * dim))
    for start in range(0, count, rows):
        z = sample_uniform(min(rows, count - start), dim, generator)
        right = _closeness(sample_anisotropic(z, truth, generator), z, metric)
        each = np.repeat(z, m, axis=0)
        if hard is None:
            other = sample_uniform(len(each), dim, generator)
        else:
            other = sample_anisotropic(each, diagonal(hard, "hard"), generator)
        losses.append(infonce_losses(right, _closeness(other, each, metric).reshape(-1, m)))
    return _estimate(np.concatenate(losses))


def optimal_concentrations(concentrations: ArrayLike, hard: ArrayLike | None = None) -> Array:
    """The Λ̂ that minimises AnInfoNCE: the true Λ with uniform negatives, Λ⁺ − Λ⁻ with hard ones of concentrations Λ⁻.

    AnInfoNCE, Theorem 3.1 and Corollary B.1. The corollary asks for Λ⁺ − Λ⁻ of full rank; a metric needs it positive
    definite. All negatives must be hard: a mixture with uniform ones has another optimum.
    """
    truth = diagonal(concentrations, "concentrations")
    if hard is None:
        return truth
    difference = truth - diagonal(hard, "hard", len(truth))
    if np.any(difference <= 0):
        at = int(np.argmin(difference))
        raise InputError(
            f"positives minus hard negatives is not positive definite: {difference[at]:.6g} at dimension {at}; "
            "hard negatives must spread more than positives in every dimension"
        )
    return difference


def two_block_limit(
    sizes: tuple[int, int],
    concentrations: tuple[float, float],
    critic: tuple[float, float] | None = None,
    *,
    hard: tuple[float, float] = (0.0, 0.0),
) -> TwoBlockLimit:
    """lim_{M→∞} AnInfoNCE − log M when Λ has two blocks: `sizes` dimensions each, of one concentration each.

    loss = ½ E ‖z̃ − z‖²_Λ̂ + E log C(z; Λ̂ + Λ⁻) − E log C(z; Λ⁻),  C(z; Λ) = E_uniform exp(−½ ‖x − z‖²_Λ),

    for critic Λ̂ (the optimum Λ − Λ⁻ if not given) and negatives Λ⁻ = `hard` (zero: uniform), all in the ½ convention
    (AnInfoNCE, Theorem 3.1 and Corollary B.1 at the true encoder). At the optimum with uniform negatives it is
    −E KL(p₊ ‖ uniform). Equal blocks give minus `vmf_kl_from_uniform`.

    With z = (cos a ω₁, sin a ω₂), the directions ω integrate to Bessel functions, which leaves a quadrature over the
    angle of z, and one over that of z̃. A block may have a single dimension.
    """
    n = _pair(sizes, "sizes", lambda value, name: whole(value, name, 1))
    truth = _pair(concentrations, "concentrations", positive)
    minus = _pair(hard, "hard", not_negative)
    if critic is None:
        optimum = optimal_concentrations(truth, None if minus == (0.0, 0.0) else minus)
        metric = (float(optimum[0]), float(optimum[1]))
    else:
        metric = _pair(critic, "critic", not_negative)
    both = (metric[0] + minus[0], metric[1] + minus[1])
    sharpest = max(*truth, *both, *n)
    if sharpest > _SHARPEST:
        raise InputError(f"the quadrature takes concentrations and sizes up to {_SHARPEST:g}, not {sharpest:g}")
    panels = 2 + ceil(sqrt(sharpest) * pi / 4)  # two standard deviations each
    angle, weight = _panels(pi / 2, panels)
    cos, sin = np.cos(angle), np.sin(angle)
    log_density = np.log(weight) + (n[0] - 1) * np.log(cos) + (n[1] - 1) * np.log(sin)
    log_density -= logsumexp(log_density)
    share = np.exp(log_density)

    def joint(scale: tuple[float, float]) -> Array:
        """log of ∫ exp(−½ ‖x − z‖²) over the directions of x, by angle of z and x, with the density of the latter."""
        steps = scale[0] / 2 * (cos[:, None] - cos) ** 2 + scale[1] / 2 * (sin[:, None] - sin) ** 2
        turns = log_moment_scaled(n[0], scale[0] * np.outer(cos, cos))
        turns += log_moment_scaled(n[1], scale[1] * np.outer(sin, sin))
        return log_density + turns - steps

    log_joint = joint(truth)
    pairs = share[:, None] * np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    moved = []
    for block, part in enumerate((cos, sin)):
        product = np.outer(part, part)
        square = (part[:, None] - part) ** 2 + 2 * product * resultant_gap(n[block], truth[block] * product)
        moved.append(float(np.sum(pairs * square)))
    spread = share @ (logsumexp(joint(both), axis=1) - logsumexp(joint(minus), axis=1))
    loss = (metric[0] * moved[0] + metric[1] * moved[1]) / 2 + float(spread)
    return TwoBlockLimit(loss, (moved[0], moved[1]))


def _infonce(dim: int, kappa: float, critic: float, negatives: int) -> float:
    finest = max(critic, 2 * sqrt(kappa), sqrt(dim))
    if finest > _FINEST:
        raise InputError(
            f"the quadrature takes critics (1/temperature) up to 1000, concentrations up to 250000 and dimensions up "
            f"to a million, not {critic:g}, {kappa:g} and {dim}: use bayes_infonce_monte_carlo or infonce_limit"
        )
    angle, weight = _panels(pi, 2 + ceil(finest * pi / 2))
    t = np.cos(angle)
    log_uniform = np.log(weight) + (dim - 2) * np.log(np.sin(angle))
    log_vmf = log_uniform + kappa * t
    uniform, vmf = np.exp(log_uniform - logsumexp(log_uniform)), np.exp(log_vmf - logsumexp(log_vmf))
    top = float(log_moment(dim, np.array(critic)))
    low, high = min(-log(negatives) - top, -critic) - 40, critic + 4  # beyond, e^{−40} is left
    v = low + _STEP * np.arange(ceil((high - low) / _STEP))
    total = 0.0
    for part in np.array_split(v, 1 + len(v) * len(t) // _BLOCK):
        power = -np.exp(np.minimum(part[:, None] + critic * t, 50.0))
        missing = np.minimum(-np.expm1(power) @ uniform, 1.0)  # 1 − φ
        with np.errstate(divide="ignore"):
            total += float(np.sum(-np.expm1(negatives * np.log1p(-missing)) * (np.exp(power) @ vmf)))
    return total * _STEP


def _panels(length: float, count: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss–Legendre on `count` equal parts of [0, length]."""
    half = length / count / 2
    centres = half * (2 * np.arange(count) + 1)
    return (centres[:, None] + half * _NODES).ravel(), np.tile(half * _WEIGHTS, count)


def _estimate(losses: Array) -> Estimate:
    if len(losses) < 2:
        raise InputError(f"a standard error needs at least 2 anchors, not {len(losses)}")
    return Estimate(float(losses.mean()), float(losses.std(ddof=1)) / sqrt(len(losses)))


def _closeness(x: Array, z: Array, metric: Array) -> Array:
    return -np.einsum("ij,j->i", (x - z) ** 2, metric) / 2


def _pair(values: tuple[Number, Number], name: str, check: Callable[[Any, str], Number]) -> tuple[Number, Number]:
    if not isinstance(values, tuple | list | np.ndarray) or len(values) != 2:
        raise InputError(f"{name} must be two numbers, one for each block, not {values!r}")
    return check(values[0], name), check(values[1], name)
