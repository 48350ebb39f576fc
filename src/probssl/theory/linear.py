"""Linear encoders with the energy δ = ½‖Wx − Wx̃‖²: optimal Gram matrices G = WᵀW and losses in closed form.

Siamese-EBM §2.3 and appendix B, corrected: the printed optimum of the Fisher loss (Eq. 31) need not be symmetric, and
its condition for collapse (Theorem 2.3) is neither necessary nor sufficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.theory._gram import descend, keep_best_common_directions, minimise_on_cone, rank_of
from probssl.theory._inputs import (
    Array,
    finite_array,
    not_negative,
    positive,
    positive_definite,
    positive_semidefinite,
    square,
    symmetric,
    vector,
    whole,
)
from probssl.theory.gaussian import gaussian_mutual_information


@dataclass(frozen=True, eq=False)
class Moments:
    """All that the Fisher loss of a linear encoder needs to know of an augmentation.

    For a symmetric G it is E‖s + G(x − x̃)‖² = `score_power` + Tr(GMG) − 2 Tr(GB), where s = ∇ₓ log p(x̃ | x) and

    - `second` M = E[(x̃ − x)(x̃ − x)ᵀ], positive definite;
    - `slope` B = E[s (x̃ − x)ᵀ], the mean Jacobian E[∇f] of the mean f(x) = E[x̃ | x] for smooth, fast-decaying data;
    - `score_power` E‖s‖², the loss of a constant encoder.
    """

    second: Array
    slope: Array
    score_power: float

    def __post_init__(self) -> None:
        second = positive_definite(self.second, "the second moment of x̃ − x")
        object.__setattr__(self, "second", second)
        object.__setattr__(self, "slope", square(self.slope, "the slope", len(second)))
        object.__setattr__(self, "score_power", not_negative(self.score_power, "E‖score‖²"))

    @classmethod
    def of_linear_map(
        cls, linear_map: ArrayLike, data_second_moment: ArrayLike, noise: ArrayLike, shift: ArrayLike | None = None
    ) -> Moments:
        """x̃ = Fx + ε with ε ~ N(μ, Σ) and E[x] = 0: B = Fᵀ, M = Σ + (F − I)E[xxᵀ](F − I)ᵀ + μμᵀ, E‖s‖² = Tr(FᵀΣ⁻¹F)."""
        sigma, mu = _noise(noise, shift)
        f = square(linear_map, "the linear map", len(sigma))
        moved = f - np.eye(len(f))
        data = positive_semidefinite(data_second_moment, "the second moment of the data", len(sigma))
        second = sigma + moved @ data @ moved.T
        return cls(second + np.outer(mu, mu), f.T, float(np.trace(f.T @ np.linalg.solve(sigma, f))))

    @classmethod
    def of_gaussian_noise(cls, noise: ArrayLike, shift: ArrayLike | None = None) -> Moments:
        """x̃ = x + ε with ε ~ N(μ, Σ), whatever the data: B = I, M = Σ + μμᵀ, E‖s‖² = Tr Σ⁻¹."""
        sigma, mu = _noise(noise, shift)
        return cls(sigma + np.outer(mu, mu), np.eye(len(sigma)), float(np.trace(np.linalg.inv(sigma))))

    @classmethod
    def of_mask_and_noise(
        cls, preservation: float, noise: float, data_second_moment: ArrayLike, score_power: float = 0.0
    ) -> Moments:
        """Features kept with probability ρ, then noise σ (Siamese-EBM Eq. 37): B = ρI.

        M = σ²I + ρ(1 − ρ) diag(E[x²]) + (1 − ρ)² E[xxᵀ]. E‖s‖² has no closed form: without it, losses are given up to
        that constant.
        """
        keep, sigma = not_negative(preservation, "preservation"), positive(noise, "noise")
        if keep > 1:
            raise InputError(f"preservation must be a number of at most one, not {preservation!r}")
        xx = positive_semidefinite(data_second_moment, "the second moment of the data")
        masked = keep * (1 - keep) * np.diag(np.diag(xx)) + (1 - keep) ** 2 * xx
        return cls(sigma**2 * np.eye(len(xx)) + masked, keep * np.eye(len(xx)), score_power)

    @classmethod
    def of_samples(cls, x: ArrayLike, x_aug: ArrayLike, score: ArrayLike) -> Moments:
        """The moments of a sample of pairs and their scores, each [n, d].

        A minimum over few pairs is too low, as that of any fit to its own data: draw several augmentations of each x.
        """
        x, x_aug, score = finite_array(x, "x", 2), finite_array(x_aug, "x̃", 2), finite_array(score, "the score", 2)
        if not x.shape == x_aug.shape == score.shape:
            shapes = f"{x.shape}, {x_aug.shape} and {score.shape}"
            raise InputError(f"x, x̃ and the score must have one shape [n, d], not {shapes}")
        step = x_aug - x
        return cls(step.T @ step / len(x), score.T @ step / len(x), float(np.sum(score**2) / len(x)))


# --- Fisher loss ------------------------------------------------------------------------------------------------------


def fisher_loss(gram: ArrayLike, moments: Moments) -> float:
    """E‖s + ∇ₓδ‖² = E‖s‖² + Tr(GMG) − 2 Tr(GB) for any symmetric G (Siamese-EBM Eq. 50; Gaussian noise: Eq. 74)."""
    g = symmetric(gram, "the Gram matrix", len(moments.second))
    return float(moments.score_power + np.trace(g @ moments.second @ g) - 2 * np.trace(g @ moments.slope))


def fisher_gram(moments: Moments, rank: int | None = None) -> Array:
    """The Gram matrix G = WᵀW that minimises the Fisher loss (Siamese-EBM Lemma 2.1, corrected).

    Eq. 31 prints G = B M⁻¹, which in general is not symmetric and so no WᵀW. The minimiser over symmetric G solves the
    Lyapunov equation GM + MG = B + Bᵀ; where its solution has negative eigenvalues, the minimiser over WᵀW is that of
    the convex problem on the cone G ⪰ 0, with KKT conditions Λ = GM + MG − B − Bᵀ ⪰ 0 and GΛ = 0. Clipping eigenvalues
    of the Lyapunov solution is right only when it commutes with M.

    `rank` m < d restricts W to m rows. When M and B + Bᵀ commute (Gaussian noise: B = I) the optimum keeps the m common
    eigenvectors v of largest (vᵀBv)²/(vᵀMv); otherwise the problem is not convex and is solved by descent from many
    starts.
    """
    second, pull = moments.second, moments.slope + moments.slope.T
    outputs = _outputs(rank, len(second))
    if must_collapse(moments):
        return np.zeros_like(second)
    optimum = minimise_on_cone(second, pull)
    if rank_of(optimum) <= outputs:
        return optimum
    if np.linalg.norm(second @ pull - pull @ second) <= 1e-10 * np.linalg.norm(second) * np.linalg.norm(pull):
        return keep_best_common_directions(second, pull, outputs)

    def loss_and_slope(g: Array) -> tuple[float, Array]:
        return float(np.trace(g @ second @ g) - np.trace(g @ pull)), g @ second + second @ g - pull

    return descend(loss_and_slope, optimum, outputs)


def fisher_minimum(moments: Moments, rank: int | None = None) -> float:
    """The Fisher loss of the best linear encoder with `rank` outputs.

    For Gaussian noise with m ≥ d: Tr(Σ⁻¹ − (Σ + μμᵀ)⁻¹) = μᵀΣ⁻²μ / (1 + μᵀΣ⁻¹μ) (Eq. 76), which is 0 only without
    shift; with m < d: Tr Σ⁻¹ minus the m largest eigenvalues of (Σ + μμᵀ)⁻¹.
    """
    return fisher_loss(fisher_gram(moments, rank), moments)


def must_collapse(moments: Moments) -> bool:
    """Whether the best linear encoder is constant: G = 0, if and only if B + Bᵀ ⪯ 0.

    Siamese-EBM Theorem 2.3 prints det E[∇f] ≤ 0 instead. That is not sufficient (f = diag(1, −1)x keeps one direction,
    and some maps of negative determinant keep both) and not necessary (f = −x in the plane has determinant 1).
    """
    pull = moments.slope + moments.slope.T
    return bool(np.linalg.eigvalsh(pull)[-1] <= 1e-12 * max(float(np.linalg.norm(pull)), np.finfo(float).tiny))


def dropped_directions(moments: Moments) -> int:
    """How many of the d directions the best linear encoder drops: the dimensional collapse that is optimal."""
    return len(moments.second) - rank_of(fisher_gram(moments))


@dataclass(frozen=True, eq=False)
class AffinePair:
    """x ↦ `original` x and x̃ ↦ `augmented` x̃ + `offset`."""

    original: Array
    augmented: Array
    offset: Array


def asymmetric_fisher_encoders(linear_map: ArrayLike, noise: ArrayLike, shift: ArrayLike | None = None) -> AffinePair:
    """Two linear encoders with Fisher (and KL) loss 0 for x̃ = Fx + ε, ε ~ N(μ, Σ), for every F, shift and data.

    δ = ½‖Σ^{−½}(Fx + μ − x̃)‖² = −log p(x̃ | x) + const, so W = Σ^{−½}F for x and V = Σ^{−½}, b = −Σ^{−½}μ for x̃. What
    a symmetric energy cannot do — undo a shift, a reflection, a shear — an asymmetric one can.
    """
    sigma, mu = _noise(noise, shift)
    f = square(linear_map, "the linear map", len(sigma))
    root = np.linalg.inv(np.linalg.cholesky(sigma))
    return AffinePair(root @ f, root, -root @ mu)


# --- KL loss, Gaussian data -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GaussianPair:
    """x ~ N(·, Σₓ) and x̃ = x + ε with ε ~ N(μ, Σ): where the KL loss of a linear encoder has a closed form."""

    data: Array  # Σₓ [d, d]
    noise: Array  # Σ [d, d]
    shift: Array  # μ [d]

    def __init__(self, data: ArrayLike, noise: ArrayLike, shift: ArrayLike | None = None) -> None:
        sigma, mu = _noise(noise, shift)
        object.__setattr__(self, "data", positive_definite(data, "the covariance of the data", len(sigma)))
        object.__setattr__(self, "noise", sigma)
        object.__setattr__(self, "shift", mu)

    @cached_property
    def second(self) -> Array:
        """S = Σ + μμᵀ."""
        return self.noise + np.outer(self.shift, self.shift)

    @cached_property
    def information(self) -> float:
        """I(x; x̃) = ½ log det(I + Σ⁻¹Σₓ): the KL loss of a constant encoder."""
        return gaussian_mutual_information(self.data, self.noise)


def kl_loss(gram: ArrayLike, pair: GaussianPair) -> float:
    """E KL(p(x | x̃) ‖ q(x | x̃)) of q ∝ p(x) e^{−½(x−x̃)ᵀG(x−x̃)} for Gaussian data (Siamese-EBM Eq. 104).

    With P = Σₓ⁻¹ and S = Σ + μμᵀ: I(x; x̃) + ½ Tr(GS) − ½ log det(P + G) − ½ log det Σₓ
    + ½ Tr([P(G + P)⁻¹P − P][Σₓ + S]). Holds for every G with G + P positive definite.
    """
    g = symmetric(gram, "the Gram matrix", len(pair.data))
    precision, second = np.linalg.inv(pair.data), pair.second
    tilted = positive_definite(g + precision, "G plus the precision of the data")
    spread = pair.data + second
    return float(
        pair.information
        + 0.5 * np.trace(g @ second)
        - 0.5 * (_log_det(tilted) + _log_det(pair.data))
        + 0.5 * np.trace((precision @ np.linalg.solve(tilted, precision) - precision) @ spread)
    )


def kl_gram(pair: GaussianPair, rank: int | None = None) -> Array:
    """The Gram matrix that minimises the KL loss of Gaussian data: (Σ + μμᵀ)⁻¹ (Siamese-EBM Theorem 2.5).

    A global minimum: the loss is strictly convex in G. Without shift it holds for every data distribution (Theorem
    2.4), because q is then the exact posterior; with shift and data that are not Gaussian it fails. With `rank` m < d
    the optimum has no closed form unless Σₓ and S commute; it is found by descent.
    """
    optimum, outputs = shifted_noise_gram(pair.noise, pair.shift), _outputs(rank, len(pair.data))
    if outputs >= len(optimum):
        return optimum
    precision, second = np.linalg.inv(pair.data), pair.second
    spread = precision @ (pair.data + second) @ precision

    def loss_and_slope(g: Array) -> tuple[float, Array]:
        inverse = np.linalg.inv(g + precision)
        return kl_loss(g, pair), 0.5 * (second - inverse - inverse @ spread @ inverse)  # Eq. 106

    return descend(loss_and_slope, optimum, outputs)


def kl_minimum(pair: GaussianPair, rank: int | None = None) -> float:
    """The KL loss at `kl_gram`. With m ≥ d it is ½ log[(1 + μᵀΣ⁻¹μ) / (1 + μᵀ(Σ + Σₓ)⁻¹μ)]: 0 only without shift."""
    if _outputs(rank, len(pair.data)) < len(pair.data):
        return kl_loss(kl_gram(pair, rank), pair)
    mu = pair.shift
    alone, with_data = (mu @ np.linalg.solve(c, mu) for c in (pair.noise, pair.noise + pair.data))
    return float(0.5 * (np.log1p(alone) - np.log1p(with_data)))


def shifted_noise_gram(noise: ArrayLike, shift: ArrayLike | None = None) -> Array:
    """(Σ + μμᵀ)⁻¹: the optimum of the Fisher loss for x̃ = x + ε, ε ~ N(μ, Σ), and any data (Siamese-EBM Corollary 2.2).

    The corollary asks for the squared distance; its proof, and this function, use half of it.
    """
    sigma, mu = _noise(noise, shift)
    inverse = np.linalg.inv(sigma + np.outer(mu, mu))
    return np.asarray(inverse + inverse.T) / 2


# --- Small steps ------------------------------------------------------------------------------------------------------


def _noise(covariance: ArrayLike, shift: ArrayLike | None) -> tuple[Array, Array]:
    """Σ [d, d] and μ [d] of the noise, μ = 0 if not given."""
    sigma = positive_definite(covariance, "the covariance of the noise")
    return sigma, np.zeros(len(sigma)) if shift is None else vector(shift, "the shift", len(sigma))


def _outputs(rank: int | None, size: int) -> int:
    """How many outputs of an encoder of d inputs count: all d if `rank` is not given."""
    return size if rank is None else min(whole(rank, "rank", 1), size)


def _log_det(matrix: Array) -> float:
    return float(np.linalg.slogdet(matrix)[1])
