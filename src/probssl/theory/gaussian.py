"""Gaussian pairs in closed form: x ~ N(0, Σx) and x̃ = x + ε with ε ~ N(0, Σε), all in nats.

The mutual information, and the expectations themselves of the bounds in `bounds`, for the critic s·log w + c, where
w = p(x, x̃)/(p(x)p(x̃)). Everything depends on the eigenvalues ρ of Σε⁻¹Σx alone. A covariance of size 1 may be given
as a number; that of the data may be singular, that of the noise not.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from probssl.theory._inputs import Array, number, positive_definite, positive_semidefinite, vector


def canonical_correlations(data_covariance: ArrayLike, noise_covariance: ArrayLike) -> Array:
    """r_1 ≥ … ≥ r_d of x ~ N(0, Σx) and x̃ = x + ε: r² = ρ/(1 + ρ), where ρ are the eigenvalues of Σε⁻¹Σx, [d]."""
    snr = _signal_to_noise(data_covariance, noise_covariance)
    return np.sqrt(snr / (1 + snr))


def gaussian_mutual_information(data_covariance: ArrayLike, noise_covariance: ArrayLike) -> float:
    """I(x; x̃) = ½ log det(I + Σε⁻¹Σx), also the KL loss of a constant encoder (Siamese-EBM Eq. 10 at δ = 0)."""
    return float(np.log1p(_signal_to_noise(data_covariance, noise_covariance)).sum() / 2)


def gaussian_uba(data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0) -> float:
    """UBA of s·log w: ½ Σ_i [log(1 + sρ_i) − sρ_i(s − 1)/(1 + sρ_i)], ρ the eigenvalues of Σε⁻¹Σx.

    The same for the energy δ = ½(x − x̃)ᵀ sΣε⁻¹ (x − x̃), which differs from −s·log w by a function of x̃ only. I at
    s = 1, 0 at s = 0; −∞ where the partition function diverges (1 + sρ ≤ 0).
    """
    s = number(scale, "scale")
    tilt = s * _signal_to_noise(data_covariance, noise_covariance)
    if (tilt <= -1).any():
        return -math.inf
    return float(np.sum(np.log1p(tilt) - tilt * (s - 1) / (1 + tilt)) / 2)


def gaussian_donsker_varadhan(data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0) -> float:
    """Donsker–Varadhan of s·log w: sI − log E_product[w^s], with the moment of `gaussian_renyi`; −∞ if it diverges."""
    s = number(scale, "scale")
    snr = _signal_to_noise(data_covariance, noise_covariance)
    return float(s * np.log1p(snr).sum() / 2) - _log_moment(snr, s)


def gaussian_tuba(
    data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0, offset: float = 0.0
) -> float:
    """TUBA of s·log w + c under a constant baseline a: sI + b + 1 − e^b E_product[w^s], with `offset` b = c − log a.

    I at scale 1, offset 0. The best offset −log E_product[w^s] gives `gaussian_donsker_varadhan`; an offset wrong by t
    costs e^t − t − 1.
    """
    s, b = number(scale, "scale"), number(offset, "offset")
    snr = _signal_to_noise(data_covariance, noise_covariance)
    with np.errstate(over="ignore"):
        return float(s * np.log1p(snr).sum() / 2 + b - np.expm1(b + _log_moment(snr, s)))


def gaussian_nwj(
    data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0, offset: float = 1.0
) -> float:
    """NWJ of s·log w + c, `offset` = c: I at scale 1, offset 1; I − e⁻¹ if the offset is forgotten."""
    return gaussian_tuba(data_covariance, noise_covariance, scale, number(offset, "offset") - 1)


def gaussian_chi_squared(data_covariance: ArrayLike, noise_covariance: ArrayLike) -> float:
    """χ²(joint ‖ product) = Π_i 1/(1 − r_i²) − 1 = e^{2I} − 1; ∞ only where that overflows.

    In general χ² ≥ e^I − 1, and it may be infinite where I is not.
    """
    with np.errstate(over="ignore"):
        return float(np.expm1(2 * gaussian_mutual_information(data_covariance, noise_covariance)))


def gaussian_renyi(data_covariance: ArrayLike, noise_covariance: ArrayLike, order: float) -> float:
    """R_α(joint ‖ product) = log M(α) / (α(α − 1)),   log M(α) = ½ Σ_i [α log(1 + ρ_i) − log(1 + α(2 − α)ρ_i)].

    M(α) = ∫ p^α q^{1−α} = E_product[w^α] = Π_i (1 − r_i²)^{(1−α)/2} (1 − (1 − α)² r_i²)^{−1/2}, finite iff
    |1 − α| r_i < 1 for all i (always for 0 ≤ α ≤ 2), else the result is ∞. The scaling is that of `renyi_bound`:
    R_1 = I, R_0 = KL(product ‖ joint) = Σ_i [ρ_i − ½ log(1 + ρ_i)], R_2 = ½ log(1 + χ²), which here is I again.
    """
    alpha = number(order, "order")
    snr = _signal_to_noise(data_covariance, noise_covariance)
    if alpha == 0:
        return float(np.sum(snr - np.log1p(snr) / 2))
    if alpha == 1:
        return float(np.log1p(snr).sum() / 2)
    return _log_moment(snr, alpha) / (alpha * (alpha - 1))


def gaussian_kl(mean: ArrayLike, covariance: ArrayLike, other_mean: ArrayLike, other_covariance: ArrayLike) -> float:
    """KL(N(m, A) ‖ N(n, B)) = ½ [Tr(B⁻¹A) + (m − n)ᵀB⁻¹(m − n) − d + log det B − log det A].

    GEDI appendix C: against N(0, I) the log det A enters with a minus (a plus is printed), and
    KL(N(Δ, I) ‖ N(0, γ⁻¹I)) is γ/2 ‖Δ‖² above its value at Δ = 0.
    """
    a = positive_definite(covariance, "the covariance")
    b = positive_definite(other_covariance, "the other covariance", len(a))
    m = vector(mean, "the mean", len(a)) - vector(other_mean, "the other mean", len(a))
    root_a, root_b = np.linalg.cholesky(a), np.linalg.cholesky(b)
    whitened = linalg.solve_triangular(root_b, np.column_stack([root_a, m]), lower=True)
    log_det = 2 * float(np.log(np.diag(root_b) / np.diag(root_a)).sum())
    return (float(np.square(whitened).sum()) - len(a) + log_det) / 2


# --- Small steps ------------------------------------------------------------------------------------------------------


def _signal_to_noise(data_covariance: ArrayLike, noise_covariance: ArrayLike) -> Array:
    """ρ, the eigenvalues of Σε⁻¹Σx, largest first: [d]."""
    noise = positive_definite(noise_covariance, "the noise covariance")
    data = positive_semidefinite(data_covariance, "the data covariance", len(noise))
    root = np.linalg.cholesky(noise)
    white = linalg.solve_triangular(root, linalg.solve_triangular(root, data, lower=True).T, lower=True)
    return np.maximum(np.linalg.eigvalsh((white + white.T) / 2)[::-1], 0.0)


def _log_moment(snr: Array, order: float) -> float:
    """log E_product[w^order], in the form that does not cancel near order 0 or near order 1."""
    if order < 0.5:
        power, tilt = order, order * (2 - order) * snr
    else:
        power, tilt = order - 1, -((1 - order) ** 2) * snr / (1 + snr)
    if (tilt <= -1).any():
        return math.inf
    return float(np.sum(power * np.log1p(snr) - np.log1p(tilt)) / 2)
