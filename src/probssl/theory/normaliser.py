"""Learning the normaliser: how NCE and SNL, which learn log Z as a bias λ, relate to maximum likelihood.

The model is q(x | x̃) = p(x) e^{−δ(x, x̃)} / Z(x̃), and f = −δ − λ. `positives` [n] and `negatives` [n, m] are values of f
as in `bounds`. `*_1d` are expectations for a pair of Gaussian numbers, where Z is known.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from probssl.errors import InputError
from probssl.theory._inputs import Array, critic_values, finite_array, not_negative, number, positive


def nce_loss(positives: ArrayLike, negatives: ArrayLike, ratio: float) -> float:
    """−π E_joint log σ(f − log k) − (1 − π) E_product log σ(log k − f), f = −δ − λ, k negatives to a positive.

    π = 1/(1 + k) (Siamese-EBM Eq. 142; Eq. 27 has a sign wrong). Minimal at f = log w for every k, so λ = log Z
    whenever the energy is well specified; for a wrong energy only as k → ∞.
    """
    k = positive(ratio, "ratio")
    positives, negatives = critic_values(positives, negatives)
    return _nce(positives, negatives, k)


def nce_limit(mean_energy: float, mean_log_normaliser: float) -> float:
    """lim_{k→∞} (k + 1) L_NCE − log k = 1 + E[δ + log Z]: maximum likelihood.

    Siamese-EBM Eq. 148, corrected: the printed limit lacks the 1, and E[δ + log Z] is −E log(q/p_data), not −E log q.
    The error is (E_joint[v] − ½ E_product[v²])/k to first order, v = e^{−δ}/Z: (1 + χ²)/(2k) where v = w. It is O(1/k)
    if these moments are finite; what remains falls as 1/k² only if third moments are finite too.
    """
    return 1 + number(mean_energy, "mean energy") + number(mean_log_normaliser, "mean log normaliser")


def nce_loss_1d(ratio: float, *, data_variance: float, noise_variance: float, precision: float) -> float:
    """NCE's expectation for x ~ N(0, data), x̃ = x + N(0, noise), δ = ½ g (x − x̃)², λ = log Z_x̃; g is `precision`.

    By Gauss–Hermite quadrature, to about 1e-10 for signals not much stronger than the noise. Well specified iff
    g = 1/noise.
    """
    spread = math.sqrt(positive(data_variance, "data variance") + positive(noise_variance, "noise variance"))
    nodes, weights = _normal_rule()
    values = [
        nce_loss_at(
            anchor,
            log_normaliser_1d(anchor, data_variance=data_variance, precision=precision),
            ratio,
            data_variance=data_variance,
            noise_variance=noise_variance,
            precision=precision,
        )
        for anchor in (spread * nodes).tolist()
    ]
    return float(weights @ np.array(values))


def nce_loss_at(
    anchor: float, bias: float, ratio: float, *, data_variance: float, noise_variance: float, precision: float
) -> float:
    """The part of `nce_loss_1d` that belongs to one anchor x̃, at any bias λ; NCE learns its minimiser over λ."""
    data, noise = positive(data_variance, "data variance"), positive(noise_variance, "noise variance")
    k, g = positive(ratio, "ratio"), not_negative(precision, "precision")
    x_aug, shift = number(anchor, "anchor"), number(bias, "bias")
    nodes, weights = _normal_rule()
    shrink = data / (data + noise)
    posterior = shrink * x_aug + math.sqrt(shrink * noise) * nodes
    of_joint = -0.5 * g * np.square(posterior - x_aug) - shift
    of_product = -0.5 * g * np.square(math.sqrt(data) * nodes - x_aug) - shift
    return _nce(of_joint, of_product, k, weights)


def log_normaliser_1d(anchor: float, *, data_variance: float, precision: float) -> float:
    """log Z_x̃ = log E_{N(0, data)}[e^{−½ g (x − x̃)²}] = −½ log(1 + g·data) − ½ g x̃²/(1 + g·data)."""
    g = not_negative(precision, "precision")
    widened = g * positive(data_variance, "data variance")
    return -0.5 * (math.log1p(widened) + g * number(anchor, "anchor") ** 2 / (1 + widened))


def snl_normaliser(log_normaliser: ArrayLike, bias: ArrayLike) -> Array:
    """Z e^{−λ} + λ − 1 ≥ log Z, with equality iff λ = log Z: what SNL puts in place of log Z, and minimises over λ.

    Siamese-EBM Eq. 18-22, corrected: a minimum over λ, not a maximum, which would be infinite. Its excess over log Z is
    `tuba_gap`.
    """
    log_z, shift = finite_array(log_normaliser, "log normaliser"), finite_array(bias, "bias")
    if log_z.ndim and shift.ndim and log_z.shape != shift.shape:
        raise InputError(f"log normaliser {log_z.shape} and bias {shift.shape} must be alike, or one of them a number")
    with np.errstate(over="ignore"):
        return np.expm1(log_z - shift) + shift


# --- Small steps ------------------------------------------------------------------------------------------------------


def _nce(of_joint: Array, of_product: Array, ratio: float, weights: Array | None = None) -> float:
    joint = np.average(np.logaddexp(0.0, math.log(ratio) - of_joint), weights=weights)
    product = np.average(np.logaddexp(0.0, of_product - math.log(ratio)), weights=weights)
    return float(joint + ratio * product) / (1 + ratio)


@cache
def _normal_rule() -> tuple[Array, Array]:
    """Nodes and weights so that Σ w f(x) = E f(x) for x ~ N(0, 1)."""
    x, w = special.roots_hermitenorm(120)
    return x, w / w.sum()
