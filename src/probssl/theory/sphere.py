"""The sphere: von Mises–Fisher constants, the KL of the cosine energy, alignment and uniformity, optimal encoders.

The setting of Siamese-EBM (Theorem 2.6) and CL-ICA (Theorem 1, Propositions 1-3): z is uniform on the unit sphere
S^{d−1} and its partner z̃ | z is von Mises–Fisher with density C_d(κ) e^{κ zᵀz̃}. All values are in nats. Everything
stands on g(κ) = log E e^{κt} and A_d(κ) = g'(κ), with t the cosine of two independent uniform points, which are exact
to a few rounding errors for d from 2 to 10⁵ and beyond, and κ from 0 to 10⁶ and beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.theory import _bessel
from probssl.theory._inputs import Array, finite_array, inverse_temperature, not_negative, positive, whole


@dataclass(frozen=True)
class InfoNCELimit:
    """What InfoNCE − log M tends to as negatives M → ∞, and its two parts: total = alignment + uniformity."""

    alignment: float
    uniformity: float

    @property
    def total(self) -> float:
        return self.alignment + self.uniformity


@dataclass(frozen=True, eq=False)
class EncoderMap:
    """The affine map h ≈ matrix z + offset that fits an encoder best, beside the one an optimum must be."""

    matrix: Array  # [m, d]
    offset: Array  # [m]
    r2: float  # leave-one-out; at most 1, and 1 at an optimum
    departure: float  # from an orthogonal map times a scale; 0 at an optimum
    scale: float  # root mean squared singular value of the matrix
    scale_ratio: float  # scale / √(τκ); 1 at an optimum


def log_sphere_area(dim: int) -> float:
    """log |S^{d−1}| = log(2 π^{d/2} / Γ(d/2)), the area of the unit sphere in d dimensions; −log C_d(0)."""
    _dimension(dim)
    return log(2) + dim / 2 * log(pi) - lgamma(dim / 2)


def log_vmf_normaliser(dim: int, concentration: float) -> float:
    """log C_d(κ) of the von Mises–Fisher density C_d(κ) e^{κ μᵀx} on S^{d−1}.

    C_d(κ) = κ^{d/2−1} / ((2π)^{d/2} I_{d/2−1}(κ)), and C_d(0) = Γ(d/2) / (2π^{d/2}). Siamese-EBM Eq. 122, whose C_d(0)
    is printed with (2π)^{d/2}, too small by a factor 2^{d/2−1}.
    """
    return -log_sphere_area(dim) - _log_moment(dim, not_negative(concentration, "concentration"))


def mean_resultant_length(dim: int, concentration: float) -> float:
    """A_d(κ) = I_{d/2}(κ) / I_{d/2−1}(κ): the mean of μᵀx under von Mises–Fisher, from 0 (κ = 0) to 1 (κ → ∞)."""
    return float(_bessel.resultant(_dimension(dim), np.array(not_negative(concentration, "concentration"))))


def vmf_kl_from_uniform(dim: int, concentration: float) -> float:
    """KL(vMF(κ) ‖ uniform) = log C_d(κ) − log C_d(0) + κ A_d(κ) = κ A_d(κ) − g(κ).

    With z uniform it is also the mutual information I(z; z̃), the most that contrastive learning can find. 0 at κ = 0,
    κ²/2d for small κ, and it grows like ((d−1)/2) log κ.
    """
    _dimension(dim)
    kappa = not_negative(concentration, "concentration")
    if kappa < dim:
        return kappa * mean_resultant_length(dim, kappa) - _log_moment(dim, kappa)
    return -kappa * _gap(dim, kappa) - _log_moment_scaled(dim, kappa)  # the same, without κ − κ


def vmf_entropy(dim: int, concentration: float) -> float:
    """Differential entropy of von Mises–Fisher, −log C_d(κ) − κ A_d(κ) = log |S^{d−1}| − KL(vMF(κ) ‖ uniform)."""
    return log_sphere_area(dim) - vmf_kl_from_uniform(dim, concentration)


def cosine_log_normaliser(dim: int, temperature: float) -> float:
    """log Z = log E_x e^{−δ(x, x̃)} of the energy δ = (1 − xᵀx̃)/τ for x uniform on the sphere; the same for every x̃.

    log Z = −1/τ + log C_d(0) − log C_d(1/τ) (Siamese-EBM, Eq. 125, Theorem 2.6). Eq. 126 and 127 as printed lack
    (d/2 − 1) log 2. Lies in [−2/τ, 0].
    """
    return _log_moment_scaled(_dimension(dim), inverse_temperature(temperature))


def cosine_kl(dim: int, temperature: float, concentration: float) -> float:
    """The KL loss of Theorem 2.6 of Siamese-EBM: x uniform, x̃ | x ~ vMF(x, β), energy (1 − xᵀx̃)/τ.

    KL(β) = (1 − A_d(β))/τ + log Z + KL(vMF(β) ‖ uniform) = KL(vMF(β) ‖ vMF(1/τ)).

    Zero at β = 1/τ, positive elsewhere, and infinite as β → ∞. The theorem says that the loss falls for ever in β: it
    leaves out the last term, the mutual information of x and x̃, which depends on β (`cosine_kl_without_information`).
    It assumes a mean direction of x itself (no shift of the augmentation).
    """
    _dimension(dim)
    kappa, beta = inverse_temperature(temperature), not_negative(concentration, "concentration")
    if max(kappa, beta) < dim:
        drop = _log_moment(dim, kappa) - _log_moment(dim, beta)
        value = drop + (beta - kappa) * mean_resultant_length(dim, beta)
    else:
        drop = _log_moment_scaled(dim, kappa) - _log_moment_scaled(dim, beta)
        value = drop + (kappa - beta) * _gap(dim, beta)
    return max(value, 0.0)  # a divergence: below zero only by rounding


def cosine_kl_without_information(dim: int, temperature: float, concentration: float) -> float:
    """E[δ] + log Z = (1 − A_d(β))/τ + log Z: `cosine_kl` minus the mutual information KL(vMF(β) ‖ uniform).

    The part that Eq. 127 of Siamese-EBM keeps (with the right constant). It decreases in β, to log Z as β → ∞, and is
    the limit of InfoNCE − log M (`infonce_limit`).
    """
    return infonce_limit(dim, concentration, temperature).total


def infonce_limit(dim: int, concentration: float, temperature: float) -> InfoNCELimit:
    """lim_{M→∞} InfoNCE − log M for z uniform, z̃ | z ~ vMF(z, κ), uniform negatives and the critic zᵀz̃/τ.

    alignment = E (1 − zᵀz̃)/τ = (1 − A_d(κ))/τ, uniformity = E log E e^{−(1 − zᵀz⁻)/τ} = log Z. Wang and Isola 2020,
    Theorem 1, who leave the constant 1/τ out of both, with no change to the total. total + log |S^{d−1}| is the
    cross-entropy of vMF(κ) and vMF(1/τ) (CL-ICA, Theorem 1); its minimum over τ, −KL(vMF(κ) ‖ uniform), is at τ = 1/κ.
    An encoder of radius r, h(z) = r O z with O orthogonal, has temperature τ/r².
    """
    _dimension(dim)
    kappa, inverse = not_negative(concentration, "concentration"), inverse_temperature(temperature)
    return InfoNCELimit(alignment=inverse * _gap(dim, kappa), uniformity=_log_moment_scaled(dim, inverse))


def expected_alignment(dim: int, concentration: float) -> float:
    """E ‖z − z̃‖² = 2 (1 − A_d(κ)) of von Mises–Fisher pairs: what `probssl.metrics.alignment` tends to. In (0, 2]."""
    return 2 * _gap(_dimension(dim), not_negative(concentration, "concentration"))


def expected_uniformity(dim: int, t: float = 2.0) -> float:
    """log E e^{−t ‖z − z⁻‖²} = log(e^{−2t} Γ(d/2) t^{1−d/2} I_{d/2−1}(2t)) for independent uniform points.

    What `probssl.metrics.uniformity` tends to for a uniform code (Wang and Isola 2020, Section 4.1); −2t as d → ∞.
    """
    return _log_moment_scaled(_dimension(dim), 2 * positive(t, "t"))


def optimal_radius(temperature: float, concentration: float) -> float:
    """√(τκ): the radius of the sphere onto which an optimal encoder maps (CL-ICA, Proposition 1).

    h(z)ᵀh(z̃)/τ must equal κ zᵀz̃. The proposition prints √(τ/κ), and its conclusion without the 1/τ. On the unit
    sphere the optimum needs τ = 1/κ.
    """
    return sqrt(positive(temperature, "temperature") * positive(concentration, "concentration"))


def optimal_scale(rate: float, power: float) -> float:
    """λ^{1/p}: the scale s of the encoder h(z) = s z (up to signed permutation) that is optimal for positives
    p(z̃ | z) ∝ e^{−λ ‖z̃ − z‖_p^p} and the critic −‖h(z̃) − h(z)‖_p^p, which has no temperature.

    CL-ICA, Proposition 3, which speaks of an isometry: true for λ = 1 only.
    """
    return positive(rate, "rate") ** (1 / positive(power, "power"))


def optimal_encoder_map(
    latents: ArrayLike, representations: ArrayLike, temperature: float, concentration: float
) -> EncoderMap:
    """How far an encoder is from optimal: the least-squares fit of h [n, m] by an affine map of the latents z [n, d].

    An encoder that minimises InfoNCE is h(z) = √(τκ) O z with O orthogonal, or of orthonormal columns where m > d
    (CL-ICA, Theorem 2 and Proposition 1 with its radius corrected). departure = ‖WᵀW/s² − I‖_F / √d with W the fitted
    matrix and s² = Tr(WᵀW)/d; it is at least √(d/m − 1) where m < d. r2 leaves each row out of the fit that predicts
    it, so that it does not flatter few rows. For a critic that normalises h, as cosine does, compare with τ = 1/κ.
    """
    z, h = finite_array(latents, "latents", 2), finite_array(representations, "representations", 2)
    radius = optimal_radius(temperature, concentration)
    if len(z) != len(h):
        raise InputError(f"latents have {len(z)} rows and representations {len(h)}: they must be the same points")
    if len(z) < z.shape[1] + 2:
        raise InputError(f"{len(z)} rows are too few to fit {z.shape[1]} latents: give at least {z.shape[1] + 2}")
    if np.all(h == h[0]):
        raise InputError("the representations are constant, so there is no map to fit")
    design = np.column_stack([np.ones(len(z)), z])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise InputError(f"the latents do not span their {z.shape[1]} dimensions, so the map is not determined")
    orthonormal, triangle = np.linalg.qr(design)
    solution = np.linalg.solve(triangle, orthonormal.T @ h)  # [1 + d, m]
    left_out = 1 - np.sum(orthonormal**2, axis=1, keepdims=True)  # the residual of a row that the fit has not seen ...
    unseen = (h - design @ solution) / np.maximum(left_out, np.finfo(float).eps)  # ... is its residual divided by this
    from_mean = (h - h.mean(axis=0)) * (len(h) / (len(h) - 1))
    gram = solution[1:] @ solution[1:].T  # WᵀW, [d, d]
    square = np.trace(gram) / len(gram)
    return EncoderMap(
        matrix=solution[1:].T,
        offset=solution[0],
        r2=float(1 - np.sum(unseen**2) / np.sum(from_mean**2)),
        departure=float(np.linalg.norm(gram / square - np.eye(len(gram))) / sqrt(len(gram))),
        scale=sqrt(square),
        scale_ratio=sqrt(square) / radius,
    )


def _dimension(dim: int) -> int:
    return whole(dim, "dim", 2)


def _log_moment(dim: int, kappa: float) -> float:
    return float(_bessel.log_moment(dim, np.array(kappa)))


def _log_moment_scaled(dim: int, kappa: float) -> float:
    return float(_bessel.log_moment_scaled(dim, np.array(kappa)))


def _gap(dim: int, kappa: float) -> float:
    return float(_bessel.resultant_gap(dim, np.array(kappa)))
