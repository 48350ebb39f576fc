"""Linear encoders with the energy δ = ½‖Wx − Wx̃‖²: optimal Gram matrices G = WᵀW and losses in closed form.

Siamese-EBM §2.3 and appendix B, corrected: the printed optimum of the Fisher loss (Eq. 31) need not be symmetric, and
its condition for collapse (Theorem 2.3) is neither necessary nor sufficient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, optimize

from probssl.errors import InputError

Array = NDArray[np.float64]


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
        object.__setattr__(self, "second", positive_definite(self.second, "the second moment of x̃ − x"))
        object.__setattr__(self, "slope", _square(self.slope, "the slope"))
        if self.slope.shape != self.second.shape:
            raise InputError(f"slope {self.slope.shape} and second moment {self.second.shape} must agree in size.")
        if not (np.isfinite(self.score_power) and self.score_power >= 0):
            raise InputError(f"E‖score‖² must be finite and not negative, not {self.score_power:g}.")

    @classmethod
    def of_linear_map(
        cls, linear_map: ArrayLike, data_second_moment: ArrayLike, noise: ArrayLike, shift: ArrayLike | None = None
    ) -> Moments:
        """x̃ = Fx + ε with ε ~ N(μ, Σ) and E[x] = 0: B = Fᵀ, M = Σ + (F − I)E[xxᵀ](F − I)ᵀ + μμᵀ, E‖s‖² = Tr(FᵀΣ⁻¹F)."""
        f = _square(linear_map, "the linear map")
        sigma = positive_definite(noise, "the covariance of the noise")
        mu = _vector(shift, len(sigma))
        moved = f - np.eye(len(f))
        second = sigma + moved @ _symmetric(data_second_moment, "the second moment of the data") @ moved.T
        return cls(second + np.outer(mu, mu), f.T, float(np.trace(f.T @ np.linalg.solve(sigma, f))))

    @classmethod
    def of_gaussian_noise(cls, noise: ArrayLike, shift: ArrayLike | None = None) -> Moments:
        """x̃ = x + ε with ε ~ N(μ, Σ), whatever the data: B = I, M = Σ + μμᵀ, E‖s‖² = Tr Σ⁻¹."""
        size = len(_square(noise, "the covariance of the noise"))
        return cls.of_linear_map(np.eye(size), np.zeros((size, size)), noise, shift)

    @classmethod
    def of_mask_and_noise(
        cls, preservation: float, noise: float, data_second_moment: ArrayLike, score_power: float = 0.0
    ) -> Moments:
        """Features kept with probability ρ, then noise σ (Siamese-EBM Eq. 37): B = ρI.

        M = σ²I + ρ(1 − ρ) diag(E[x²]) + (1 − ρ)² E[xxᵀ]. E‖s‖² has no closed form: without it, losses are given up to
        that constant.
        """
        if not 0 <= preservation <= 1 or not noise > 0:
            raise InputError(f"masking needs a rate in [0, 1] and noise above 0, not {preservation:g} and {noise:g}.")
        xx = _symmetric(data_second_moment, "the second moment of the data")
        masked = preservation * (1 - preservation) * np.diag(np.diag(xx)) + (1 - preservation) ** 2 * xx
        return cls(noise**2 * np.eye(len(xx)) + masked, preservation * np.eye(len(xx)), score_power)

    @classmethod
    def of_samples(cls, x: ArrayLike, x_aug: ArrayLike, score: ArrayLike) -> Moments:
        """The moments of a sample of pairs and their scores, each [n, d]."""
        x, x_aug, score = (np.asarray(a, dtype=np.float64) for a in (x, x_aug, score))
        if x.ndim != 2 or not x.shape == x_aug.shape == score.shape:
            raise InputError(f"pairs and scores are arrays [n, d] alike, not {x.shape}, {x_aug.shape}, {score.shape}.")
        step = x_aug - x
        return cls(step.T @ step / len(x), score.T @ step / len(x), float(np.sum(score**2) / len(x)))


# --- Fisher loss ------------------------------------------------------------------------------------------------------


def fisher_loss(gram: ArrayLike, moments: Moments) -> float:
    """E‖s + ∇ₓδ‖² = E‖s‖² + Tr(GMG) − 2 Tr(GB) for any symmetric G (Siamese-EBM Eq. 50; Gaussian noise: Eq. 74)."""
    g = _symmetric(gram, "the Gram matrix")
    return float(moments.score_power + np.trace(g @ moments.second @ g) - 2 * np.trace(g @ moments.slope))


def fisher_gram(moments: Moments, rank: int | None = None) -> Array:
    """The Gram matrix G = WᵀW that minimises the Fisher loss (Siamese-EBM Lemma 2.1, corrected).

    Eq. 31 prints G = B M⁻¹, which in general is not symmetric and so no WᵀW. The minimiser over symmetric G solves the
    Lyapunov equation GM + MG = B + Bᵀ; where its solution has negative eigenvalues, the minimiser over WᵀW is that of
    the convex problem on the cone G ⪰ 0, with KKT conditions Λ = GM + MG − B − Bᵀ ⪰ 0 and GΛ = 0. Clipping eigenvalues
    of the Lyapunov solution is right only when it commutes with M.

    `rank` m < d restricts W to m rows. When M and B + Bᵀ commute (Gaussian noise: B = I) the optimum keeps the m common
    eigenvectors of largest b²/m; otherwise the problem is not convex and is solved by descent from many starts.
    """
    second, pull = moments.second, moments.slope + moments.slope.T
    size = len(second)
    _check_rank(rank)
    if np.linalg.eigvalsh(pull)[-1] <= 1e-12 * np.linalg.norm(pull):
        return np.zeros_like(second)
    free = linalg.solve_continuous_lyapunov(second, pull)
    free = (free + free.T) / 2
    values = np.linalg.eigvalsh(free)
    if values[0] >= -1e-12 * abs(values[-1]):
        optimum = _clip(free)
    else:
        optimum = _minimise_on_cone(second, pull, _clip(free))
    if rank is None or rank >= size or np.linalg.matrix_rank(optimum, tol=1e-9 * np.linalg.norm(optimum)) <= rank:
        return optimum
    if np.linalg.norm(second @ pull - pull @ second) <= 1e-10 * np.linalg.norm(second) * np.linalg.norm(pull):
        return _keep_best_common_directions(second, pull, rank)

    def loss_and_slope(g: Array) -> tuple[float, Array]:
        return float(np.trace(g @ second @ g) - np.trace(g @ pull)), g @ second + second @ g - pull

    return _descend(loss_and_slope, optimum, rank)


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
    return len(moments.second) - _rank(fisher_gram(moments))


def asymmetric_fisher_encoders(linear_map: ArrayLike, noise: ArrayLike, shift: ArrayLike | None = None) -> AffinePair:
    """Two linear encoders with Fisher (and KL) loss 0 for x̃ = Fx + ε, ε ~ N(μ, Σ), for every F, shift and data.

    δ = ½‖Σ^{−½}(Fx + μ − x̃)‖² = −log p(x̃ | x) + const, so W = Σ^{−½}F for x and V = Σ^{−½}, b = −Σ^{−½}μ for x̃. What
    a symmetric energy cannot do — undo a shift, a reflection, a shear — an asymmetric one can.
    """
    f = _square(linear_map, "the linear map")
    sigma = positive_definite(noise, "the covariance of the noise")
    root = np.linalg.inv(np.linalg.cholesky(sigma))
    return AffinePair(root @ f, root, -root @ _vector(shift, len(sigma)))


@dataclass(frozen=True, eq=False)
class AffinePair:
    """x ↦ `original` x and x̃ ↦ `augmented` x̃ + `offset`."""

    original: Array
    augmented: Array
    offset: Array


# --- KL loss, Gaussian data -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GaussianPair:
    """x ~ N(·, Σₓ) and x̃ = x + ε with ε ~ N(μ, Σ): where the KL loss of a linear encoder has a closed form."""

    data: Array  # Σₓ [d, d]
    noise: Array  # Σ [d, d]
    shift: Array  # μ [d]

    def __init__(self, data: ArrayLike, noise: ArrayLike, shift: ArrayLike | None = None) -> None:
        object.__setattr__(self, "data", positive_definite(data, "the covariance of the data"))
        object.__setattr__(self, "noise", positive_definite(noise, "the covariance of the noise"))
        object.__setattr__(self, "shift", _vector(shift, len(self.noise)))
        if self.data.shape != self.noise.shape:
            raise InputError(f"covariances of data {self.data.shape} and noise {self.noise.shape} must agree in size.")

    @property
    def second(self) -> Array:
        """S = Σ + μμᵀ."""
        return self.noise + np.outer(self.shift, self.shift)

    @property
    def information(self) -> float:
        """I(x; x̃) = ½ log det(I + Σ⁻¹Σₓ): the KL loss of a constant encoder."""
        return 0.5 * _log_det(np.eye(len(self.data)) + np.linalg.solve(self.noise, self.data))


def kl_loss(gram: ArrayLike, pair: GaussianPair) -> float:
    """E KL(p(x | x̃) ‖ q(x | x̃)) of q ∝ p(x) e^{−½(x−x̃)ᵀG(x−x̃)} for Gaussian data (Siamese-EBM Eq. 104).

    With P = Σₓ⁻¹ and S = Σ + μμᵀ: I(x; x̃) + ½ Tr(GS) − ½ log det(P + G) − ½ log det Σₓ
    + ½ Tr([P(G + P)⁻¹P − P][Σₓ + S]). Holds for every G with G + P positive definite.
    """
    g = _symmetric(gram, "the Gram matrix")
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
    optimum = np.linalg.inv(pair.second)
    optimum = (optimum + optimum.T) / 2
    _check_rank(rank)
    if rank is None or rank >= len(optimum):
        return optimum
    precision, second = np.linalg.inv(pair.data), pair.second
    spread = precision @ (pair.data + second) @ precision

    def loss_and_slope(g: Array) -> tuple[float, Array]:
        inverse = np.linalg.inv(g + precision)
        return kl_loss(g, pair), 0.5 * (second - inverse - inverse @ spread @ inverse)  # Eq. 106

    return _descend(loss_and_slope, optimum, rank)


def kl_minimum(pair: GaussianPair, rank: int | None = None) -> float:
    """The KL loss at `kl_gram`. With m ≥ d it is ½ log[(1 + μᵀΣ⁻¹μ) / (1 + μᵀ(Σ + Σₓ)⁻¹μ)]: 0 only without shift."""
    if rank is not None and rank < len(pair.data):
        return kl_loss(kl_gram(pair, rank), pair)
    mu = pair.shift
    alone, with_data = (mu @ np.linalg.solve(c, mu) for c in (pair.noise, pair.noise + pair.data))
    return float(0.5 * (np.log1p(alone) - np.log1p(with_data)))


def shifted_noise_gram(noise: ArrayLike, shift: ArrayLike | None = None) -> Array:
    """(Σ + μμᵀ)⁻¹: the optimum of the Fisher loss for x̃ = x + ε, ε ~ N(μ, Σ), and any data (Siamese-EBM Corollary 2.2).

    The corollary asks for the squared distance; its proof, and this function, use half of it.
    """
    sigma = positive_definite(noise, "the covariance of the noise")
    mu = _vector(shift, len(sigma))
    return np.asarray(np.linalg.inv(sigma + np.outer(mu, mu)))


# --- solvers ----------------------------------------------------------------------------------------------------------


def _minimise_on_cone(second: Array, pull: Array, start: Array) -> Array:
    """argmin over G ⪰ 0 of Tr(GMG) − Tr(G·pull): accelerated projected gradients in the eigenbasis of M."""
    values, basis = np.linalg.eigh(second)
    pull, g = basis.T @ pull @ basis, basis.T @ start @ basis
    sums = values[:, None] + values[None, :]  # GM + MG is elementwise in this basis
    step, scale = 1 / (2 * values[-1]), np.linalg.norm(pull)
    ahead, momentum = g, 1.0
    for _ in range(200_000):
        new = _clip(ahead - step * (sums * ahead - pull))
        if np.sum((ahead - new) * (new - g)) > 0:  # going uphill: begin the momentum anew
            ahead, momentum = g, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead, momentum = new + (momentum - 1) / following * (new - g), following
        moved, g = np.linalg.norm(new - g), new
        if moved <= 1e-15 * max(np.linalg.norm(g), step * scale):
            break
    return _clip(basis @ g @ basis.T)


def _keep_best_common_directions(second: Array, pull: Array, rank: int) -> Array:
    """The rank-m optimum when M and B + Bᵀ share eigenvectors: those of largest gain b²/m, each with g = b/m."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(1, 2, 2)  # a random combination has the common eigenvectors, even where one of them repeats
    basis = np.linalg.eigh(a * second / np.linalg.norm(second) + b * pull / np.linalg.norm(pull))[1]
    spread = np.einsum("ki,kl,li->i", basis, second, basis)
    gain = np.maximum(np.einsum("ki,kl,li->i", basis, pull, basis) / 2, 0)
    best = np.argsort(-(gain**2) / spread)[:rank]
    return np.asarray((basis[:, best] * (gain[best] / spread[best])) @ basis[:, best].T)


def _descend(loss_and_slope: Callable[[Array], tuple[float, Array]], full_optimum: Array, rank: int) -> Array:
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


# --- inputs -----------------------------------------------------------------------------------------------------------


def positive_definite(matrix: ArrayLike, name: str) -> Array:
    """The matrix in double precision; refused unless symmetric and positive definite."""
    a = _symmetric(matrix, name)
    values = np.linalg.eigvalsh(a)
    if not values[0] > 1e-14 * abs(values[-1]):
        raise InputError(f"{name} must be positive definite; its smallest eigenvalue is {values[0]:.3g}.")
    return a


def _square(matrix: ArrayLike, name: str) -> Array:
    a = np.asarray(matrix, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or a.size == 0:
        raise InputError(f"{name} must be a square matrix, not of shape {a.shape}.")
    if not np.isfinite(a).all():
        raise InputError(f"{name} must be finite.")
    return a


def _symmetric(matrix: ArrayLike, name: str) -> Array:
    a = _square(matrix, name)
    if np.abs(a - a.T).max() > 1e-8 * max(np.abs(a).max(), np.finfo(float).tiny):
        raise InputError(f"{name} must be symmetric.")
    return (a + a.T) / 2


def _vector(value: ArrayLike | None, size: int) -> Array:
    v = np.zeros(size) if value is None else np.asarray(value, dtype=np.float64)
    if v.shape != (size,) or not np.isfinite(v).all():
        raise InputError(f"the shift must be {size} finite numbers, not of shape {v.shape}.")
    return v


def _check_rank(rank: int | None) -> None:
    if rank is not None and rank < 1:
        raise InputError(f"an encoder has at least one output, not {rank}.")


def _clip(matrix: Array) -> Array:
    """The nearest positive semi-definite matrix in Frobenius norm."""
    values, basis = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((basis * np.maximum(values, 0)) @ basis.T)


def _rank(gram: Array) -> int:
    values = np.linalg.eigvalsh(gram)
    return int(np.sum(values > 1e-8 * values[-1])) if values[-1] > 0 else 0


def _log_det(matrix: Array) -> float:
    return float(np.linalg.slogdet(matrix)[1])
