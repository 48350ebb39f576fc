"""Latents of related observations: SimVAE's prior with their mean ψ integrated out, and what it asks of a posterior.

J related observations have latents z_j ~ N(ψ, σ²I) around a mean ψ of their own (SimVAE §5, A.4). Arrays are
[..., J, L]: J related latents of L dimensions, any number of sets; results are [...]. σ² is `variance`, γ² is
`prior_variance`, a = σ²/γ². Integrating ψ out leaves a prior that pinches related latents together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.theory._inputs import Array, finite_array, not_negative, positive, unit_length, whole


def pinch(z: ArrayLike) -> Array:
    """Σ_j ‖z_j − z̄‖², the spread of related latents around their mean (SimVAE Eq. 6). 0 for J = 1."""
    z = _latents(z)
    return np.square(z - z.mean(axis=-2, keepdims=True)).sum(axis=(-2, -1))


def log_prior_uniform(z: ArrayLike, variance: float) -> Array:
    """log ∫ Π_j N(z_j; ψ, σ²I) dψ = −pinch/(2σ²) − (L/2)[(J − 1) log(2πσ²) + log J].

    The prior of SimVAE Eq. 6 with its constants, which the paper drops: a density per unit volume of the flat prior on
    ψ. The exponent of 2πσ² is J − 1, not J.
    """
    z, sigma = _latents(z), positive(variance, "variance")
    related, size = z.shape[-2:]
    return -pinch(z) / (2 * sigma) - size / 2 * ((related - 1) * math.log(2 * math.pi * sigma) + math.log(related))


def log_prior_gaussian(z: ArrayLike, variance: float, prior_variance: float) -> Array:
    """log ∫ N(ψ; 0, γ²I) Π_j N(z_j; ψ, σ²I) dψ: in each dimension the density N(0, σ²I + γ²11ᵀ) of z_1 … z_J.

    = −pinch/(2σ²) − J‖z̄‖²/(2(σ² + Jγ²)) − (L/2)[J log 2π + (J − 1) log σ² + log(σ² + Jγ²)]. SimVAE A.4 with the two
    exponentials of its line (*) multiplied, not added. As γ → 0 independent N(0, σ²); as γ → ∞, adding
    `flat_prior_log_volume` gives `log_prior_uniform`, with an error of order a/J + ‖z̄‖²/γ².
    """
    z, sigma, gamma = _latents(z), positive(variance, "variance"), positive(prior_variance, "prior variance")
    related, size = z.shape[-2:]
    of_mean = sigma + related * gamma
    log_det = related * math.log(2 * math.pi) + (related - 1) * math.log(sigma) + math.log(of_mean)
    mean = np.square(z.mean(axis=-2)).sum(axis=-1)
    return -pinch(z) / (2 * sigma) - related * mean / (2 * of_mean) - size / 2 * log_det


def flat_prior_log_volume(dimensions: int, prior_variance: float) -> float:
    """(L/2) log(2πγ²): −log of the peak of N(0, γ²I), which turns a density under it into one per unit of volume."""
    return whole(dimensions, "dimensions", 1) / 2 * math.log(2 * math.pi * positive(prior_variance, "prior variance"))


def log_prior_unit_norm(z: ArrayLike, variance: float, prior_variance: float = math.inf) -> Array:
    """+Σ_{j≠k} z_j·z_k / (2σ²(a + J)): `log_prior_gaussian` up to a constant when every z_j has length 1.

    SimVAE A.4's last line, corrected: it prints a minus, which would reward opposite vectors. The default is the flat
    prior, a = 0. Refuses latents that are not of unit length.
    """
    z, sigma = unit_length(_latents(z), "latents"), positive(variance, "variance")
    related = z.shape[-2]
    cosines = np.square(z.sum(axis=-2)).sum(axis=-1) - related
    return cosines / (2 * sigma * (_ratio(sigma, prior_variance) + related))


def expected_pinch(means: ArrayLike, variances: ArrayLike) -> Array:
    """E Σ_j ‖z_j − z̄‖² = Σ_j ‖μ_j − μ̄‖² + (1 − 1/J) Σ_j Tr Σ_j for independent posteriors with these moments.

    `means` and `variances` (the diagonals of Σ_j) are [..., J, L]; Gaussian or not, only the moments matter.
    """
    mu, v = _latents(means, "means"), _latents(variances, "variances")
    if mu.shape != v.shape:
        raise InputError(f"variances must have the shape {mu.shape} of the means, not {v.shape}")
    if (v < 0).any():
        raise InputError(f"variances must not be negative: {v.min():g}")
    return pinch(mu) + (1 - 1 / mu.shape[-2]) * v.sum(axis=(-2, -1))


def optimal_posterior_variance(
    variance: float, related: int, *, decoder_precision: float = 0.0, prior_variance: float = math.inf
) -> float:
    """1/v* = (1 − 1/(a + J))/σ² + ‖w‖²/σ_x²: v* minimises SimVAE's negative ELBO over a latent's posterior variance.

    `decoder_precision` is ‖w‖²/σ_x² for a linear decoder whose column for this latent is w and whose observation noise
    has variance σ_x²; without reconstruction it is 0 and, under the flat prior (the default, a = 0), v* = σ²J/(J − 1).
    """
    sigma, count = positive(variance, "variance"), whole(related, "related", 1)
    decoder = not_negative(decoder_precision, "decoder precision")
    precision = (1 - 1 / (_ratio(sigma, prior_variance) + count)) / sigma + decoder
    if precision == 0:
        raise InputError("related must be at least 2 without decoder and prior, or no finite variance is optimal")
    return float(1 / precision)


# --- Small steps ------------------------------------------------------------------------------------------------------


def _ratio(variance: float, prior_variance: float) -> float:
    """a = σ²/γ², 0 for a flat prior."""
    return 0.0 if prior_variance == math.inf else variance / positive(prior_variance, "prior variance")


def _latents(z: ArrayLike, name: str = "latents") -> Array:
    array = finite_array(z, name)
    if array.ndim < 2:
        raise InputError(f"{name} must have the shape [..., related, dimensions], not {array.shape}")
    return array
