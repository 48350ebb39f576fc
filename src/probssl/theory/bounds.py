"""Bounds on mutual information and other divergences between a joint p(x, x̃) and its product p(x)p(x̃), in nats.

`*_bound` functions take a critic's values: `positives` [n], one pair of the joint for each anchor, and `negatives`
[n, m], where row i holds the scores of anchor i with m draws of the product. `positives_and_negatives` makes both from
a score matrix. "Lower bound" means in expectation over pairs unless said otherwise. `gaussian_*` functions are the
expectations themselves for x ~ N(0, Σx), x̃ = x + ε, ε ~ N(0, Σε), with the critic s·log w + c, where
w = p(x, x̃)/(p(x)p(x̃)). `nce_*` and `snl_*` say how the losses that learn the normaliser relate to it.

Sources: Barber & Agakov 2003; Poole et al. 2019 (UBA, TUBA, NWJ, InfoNCE); Nguyen et al. 2010 (NWJ); Donsker & Varadhan
1975; Song & Ermon 2020; McAllester & Stratos 2020; HaoChen et al. 2021 (spectral); Birrell et al. 2021 (Rényi).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, special

from probssl.errors import InputError

Array = NDArray[np.float64]

# --- Bounds from a critic's values ------------------------------------------------------------------------------------


def positives_and_negatives(scores: ArrayLike) -> tuple[Array, Array]:
    """A matrix scores[i, j] = f(x_i, x̃_j) of n matching pairs as positives [n] and negatives [n, n − 1].

    The diagonal are the positives; the anchor of column j is x̃_j, its negatives the other x_i. Transpose the matrix
    for anchors x.
    """
    matrix = _values(scores, "scores", 2)
    n = len(matrix)
    if matrix.shape != (n, n) or n < 2:
        raise InputError(f"scores must be a square matrix of at least 2 pairs, not of shape {matrix.shape}.")
    return np.diag(matrix).copy(), matrix.T[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def uba_bound(positives: ArrayLike, log_partitions: ArrayLike) -> float:
    """E_joint[f] − E_x̃[log Z(x̃)] ≤ I, with Z(x̃) = E_p(x)[e^f(x, x̃)]: the unnormalised Barber–Agakov bound.

    `log_partitions` [n] is log Z of each positive's anchor. Gap: E_x̃ KL(p(x | x̃) ‖ q(x | x̃)) for the model
    q ∝ p(x) e^f, so that the KL loss with δ = −f is I − UBA (Siamese-EBM Eq. 11). Tight iff f = log p(x̃ | x) + c(x̃),
    any c. A log Z estimated from samples is too low on average, and the bound then too high.
    """
    positives, log_partitions = _values(positives, "positives", 1), _values(log_partitions, "log partitions", 1)
    if len(positives) != len(log_partitions):
        raise InputError(f"there are {len(log_partitions)} log partitions for {len(positives)} positives.")
    return float(positives.mean() - log_partitions.mean())


def tuba_bound(positives: ArrayLike, negatives: ArrayLike, log_baseline: ArrayLike = 0.0) -> float:
    """E_joint[f − log a] − E_product[e^f / a] + 1 ≤ UBA ≤ I, with a baseline a(x̃) > 0: tractable UBA.

    `log_baseline` is log a, one number or one for each anchor [n]. Its distance to UBA is `tuba_gap`; tight iff
    a = Z and f = log p(x̃ | x) + c(x̃). Unbiased. With f = −δ and log a = λ it is minus the SNL loss.
    """
    positives, negatives = _pairs(positives, negatives)
    log_a = _finite(log_baseline, "log baseline")
    if log_a.shape not in ((), positives.shape):
        raise InputError(f"log baseline must be one number or one per anchor, not of shape {log_a.shape}.")
    weight = _exp(_log_mean_exp(negatives - log_a.reshape(-1, 1)))
    return float(np.mean(positives - log_a)) - weight + 1.0


def tuba_gap(log_partitions: ArrayLike, log_baseline: ArrayLike) -> float:
    """UBA − TUBA = E_x̃[e^t − t − 1] with t = log Z(x̃) − log a(x̃): how much a wrong baseline costs; never negative."""
    t = _finite(log_partitions, "log partitions") - _finite(log_baseline, "log baseline")
    with np.errstate(over="ignore"):
        return float(np.mean(np.expm1(t) - t))


def nwj_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """E_joint[f] − e⁻¹ E_product[e^f] ≤ I: the bound of Nguyen, Wainwright and Jordan, TUBA with a = e.

    Tight iff f = 1 + log w, exactly: it has no free constant. Unbiased, but its variance there is at least
    `nwj_variance_floor`, exponential in I. Never above Donsker–Varadhan for the same critic.
    """
    return tuba_bound(positives, negatives, 1.0)


def donsker_varadhan_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """E_joint[f] − log E_product[e^f] ≤ I; tight iff f = log w + constant.

    The best TUBA over constant baselines: NWJ ≤ DV ≤ UBA ≤ I for the same critic and exact expectations. From samples
    it is no bound: the log of a mean is too low on average, so the value is too high.
    """
    positives, negatives = _pairs(positives, negatives)
    return float(positives.mean()) - _log_mean_exp(negatives)


def infonce_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """log M + E log(e^f⁺ / (e^f⁺ + Σ_negatives e^f)) ≤ min(I, log M), M = m + 1 candidates with the positive.

    The ceiling log M holds for every sample, I in expectation. The best critic is f = log w + c(anchor) for every M,
    yet the bound is tight only as M → ∞. Without the positive in the denominator it bounds nothing (Siamese-EBM Eq. 15
    leaves it out; Eq. 160 keeps it).
    """
    positives, negatives = _pairs(positives, negatives)
    candidates = np.concatenate([positives[:, None], negatives], axis=1)
    log_softmax = positives - special.logsumexp(candidates, axis=1)
    return infonce_ceiling(candidates.shape[1]) + float(log_softmax.mean())


def infonce_ceiling(candidates: int) -> float:
    """log M: the most that InfoNCE with M candidates, the positive among them, can say of any I."""
    return math.log(_count(candidates, "candidates", 1))


def log_softmax_bound(mutual_information: float, negatives: int) -> float:
    """min(I − log(k + 1), 0) ≥ E log softmax of the positive among k negatives, for every critic.

    SimVAE A.3, corrected: the prior of a candidate is 1/(k + 1), so the constant is log(k + 1), not log(k − 1).
    """
    information = _number(mutual_information, "mutual information", least=0.0)
    return min(information - infonce_ceiling(_count(negatives, "negatives", 1) + 1), 0.0)


def nwj_variance_floor(mutual_information: float, negatives: int) -> float:
    """(e^I − 1)/m ≤ the variance of the mean of w over m independent negatives, NWJ's second term at its optimum.

    Song & Ermon 2020: Var_product[w] = χ² ≥ e^I − 1. For Gaussian pairs it is e^{2I} − 1 exactly. Nor can
    another estimator do it: no distribution-free lower bound that holds with confidence from N pairs exceeds O(log N)
    (McAllester & Stratos 2020).
    """
    information = _number(mutual_information, "mutual information", least=0.0)
    return (_exp(information) - 1) / _count(negatives, "negatives", 1)


# --- Other divergences ------------------------------------------------------------------------------------------------


def jensen_shannon_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """log 2 + ½ E_joint log σ(f) + ½ E_product log σ(−f) ≤ JS(joint ‖ product) ≤ log 2.

    That is, min_f −E_joint log σ(f) − E_product log σ(−f) = 2 log 2 − 2 JS, reached at f = log w. Low variance, but JS
    is no mutual information: it saturates at log 2.
    """
    positives, negatives = _pairs(positives, negatives)
    loss = np.logaddexp(0.0, -positives).mean() + np.logaddexp(0.0, negatives).mean()
    return math.log(2.0) - float(loss) / 2


def chi_squared_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """2 E_joint[g] − E_product[g²] − 1 ≤ χ²(joint ‖ product) = E_product[w²] − 1; the values are g, not its log.

    Tight iff g = w. The spectral loss E_product[g²] − 2 E_joint[g] (HaoChen et al. 2021; Siamese-EBM Eq. 42) is
    minus this minus 1, so its minimum over all critics is −(1 + χ²).
    """
    positives, negatives = _pairs(positives, negatives)
    return float(2 * positives.mean() - np.square(negatives).mean() - 1)


def renyi_bound(positives: ArrayLike, negatives: ArrayLike, order: float) -> float:
    """log E_joint[e^{(α−1)f}] / (α − 1) − log E_product[e^{αf}] / α ≤ R_α(joint ‖ product), any α but 0 and 1.

    Birrell et al. 2021, in their scaling R_α(p ‖ q) = log ∫ p^α q^{1−α} / (α(α − 1)); the usual Rényi
    divergence is α R_α. Tight iff f = log w + constant. α → 1 is Donsker–Varadhan. From samples it is no bound.
    """
    alpha = _number(order, "order")
    if alpha in (0.0, 1.0):
        raise InputError(f"the order of a Rényi bound cannot be {alpha:g}: orders 0 and 1 are limits.")
    positives, negatives = _pairs(positives, negatives)
    return _log_mean_exp((alpha - 1) * positives) / (alpha - 1) - _log_mean_exp(alpha * negatives) / alpha


# --- Gaussian pairs: the expectations in closed form ------------------------------------------------------------------


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
    s = _number(scale, "scale")
    tilt = s * _signal_to_noise(data_covariance, noise_covariance)
    if (tilt <= -1).any():
        return -math.inf
    return float(np.sum(np.log1p(tilt) - tilt * (s - 1) / (1 + tilt)) / 2)


def gaussian_donsker_varadhan(data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0) -> float:
    """Donsker–Varadhan of s·log w: sI − log E_product[w^s], with the moment of `gaussian_renyi`; −∞ if it diverges."""
    s = _number(scale, "scale")
    snr = _signal_to_noise(data_covariance, noise_covariance)
    return float(s * np.log1p(snr).sum() / 2) - _log_moment(snr, s)


def gaussian_tuba(
    data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0, offset: float = 0.0
) -> float:
    """TUBA of s·log w + c under a constant baseline a: sI + b + 1 − e^b E_product[w^s], with `offset` b = c − log a.

    I at scale 1, offset 0. The best offset −log E_product[w^s] gives `gaussian_donsker_varadhan`; an offset wrong by t
    costs e^t − t − 1.
    """
    value = _number(offset, "offset")
    snr = _signal_to_noise(data_covariance, noise_covariance)
    s = _number(scale, "scale")
    return float(s * np.log1p(snr).sum() / 2) + value + 1 - _exp(value + _log_moment(snr, s))


def gaussian_nwj(
    data_covariance: ArrayLike, noise_covariance: ArrayLike, scale: float = 1.0, offset: float = 1.0
) -> float:
    """NWJ of s·log w + c, `offset` = c: I at scale 1, offset 1; I − e⁻¹ if the offset is forgotten."""
    return gaussian_tuba(data_covariance, noise_covariance, scale, _number(offset, "offset") - 1)


def gaussian_chi_squared(data_covariance: ArrayLike, noise_covariance: ArrayLike) -> float:
    """χ²(joint ‖ product) = Π_i 1/(1 − r_i²) − 1 = e^{2I} − 1, finite for every positive definite noise.

    In general χ² ≥ e^I − 1, and it may be infinite where I is not.
    """
    return math.expm1(2 * gaussian_mutual_information(data_covariance, noise_covariance))


def gaussian_renyi(data_covariance: ArrayLike, noise_covariance: ArrayLike, order: float) -> float:
    """R_α(joint ‖ product) = log M(α) / (α(α − 1)),   log M(α) = ½ Σ_i [α log(1 + ρ_i) − log(1 + α(2 − α)ρ_i)].

    M(α) = ∫ p^α q^{1−α} = E_product[w^α] = Π_i (1 − r_i²)^{(1−α)/2} (1 − (1 − α)² r_i²)^{−1/2}, finite iff
    |1 − α| r_i < 1 for all i (always for 0 ≤ α ≤ 2), else the result is ∞. The scaling is that of `renyi_bound`:
    R_1 = I, R_0 = KL(product ‖ joint) = Σ_i [ρ_i − ½ log(1 + ρ_i)], R_2 = ½ log(1 + χ²), which here is I again.
    """
    alpha = _number(order, "order")
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
    a, b = _matrix(covariance, "the covariance"), _matrix(other_covariance, "the other covariance")
    m = np.atleast_1d(_finite(mean, "the mean")) - np.atleast_1d(_finite(other_mean, "the other mean"))
    if a.shape != b.shape or m.shape != (len(a),):
        raise InputError(f"means {m.shape} and covariances {a.shape}, {b.shape} must agree in size.")
    root_a, root_b = _cholesky(a, "the covariance"), _cholesky(b, "the other covariance")
    whitened = linalg.solve_triangular(root_b, np.column_stack([root_a, m]), lower=True)
    log_det = 2 * float(np.log(np.diag(root_b) / np.diag(root_a)).sum())
    return (float(np.square(whitened).sum()) - len(a) + log_det) / 2


# --- Learning the normaliser: NCE and SNL -----------------------------------------------------------------------------


def nce_loss(positives: ArrayLike, negatives: ArrayLike, ratio: float) -> float:
    """−π E_joint log σ(f − log k) − (1 − π) E_product log σ(log k − f), f = −δ − λ, k negatives to a positive.

    π = 1/(1 + k) (Siamese-EBM Eq. 142; Eq. 27 has a sign wrong). Minimal at f = log w for every k, so λ = log Z
    whenever the energy is well specified; for a wrong energy only as k → ∞.
    """
    k = _number(ratio, "ratio", above=0.0)
    positives, negatives = _pairs(positives, negatives)
    return _nce(positives, negatives, k)


def nce_offset(prior: float) -> float:
    """log(π/(1 − π)), the offset of NCE's logits: −log(n − 1) for π = 1/n, a batch of n that are negatives in turn."""
    share = _number(prior, "prior", above=0.0)
    if share >= 1:
        raise InputError(f"the share of positives must lie strictly between 0 and 1, not {share:g}.")
    return math.log(share) - math.log1p(-share)


def nce_limit(mean_energy: float, mean_log_normaliser: float) -> float:
    """lim_{k→∞} (k + 1) L_NCE − log k = 1 + E[δ + log Z]: maximum likelihood.

    Siamese-EBM Eq. 148, corrected: the printed limit lacks the 1, and E[δ + log Z] is −E log(q/p_data), not −E log q.
    The error is (E_joint[v] − ½ E_product[v²])/k to first order, v = e^{−δ}/Z: (1 + χ²)/(2k) where v = w. It is O(1/k)
    if these moments are finite; what remains falls as 1/k² only if third moments are finite too.
    """
    return 1 + _number(mean_energy, "mean energy") + _number(mean_log_normaliser, "mean log normaliser")


def nce_loss_1d(ratio: float, *, data_variance: float, noise_variance: float, precision: float) -> float:
    """NCE's expectation for x ~ N(0, data), x̃ = x + N(0, noise), δ = ½ g (x − x̃)², λ = log Z_x̃; g is `precision`.

    By Gauss–Hermite quadrature, to about 1e-10 for signals not much stronger than the noise. Well specified iff
    g = 1/noise.
    """
    spread = math.sqrt(_variance(data_variance, "data") + _variance(noise_variance, "noise"))
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
    data, noise = _variance(data_variance, "data"), _variance(noise_variance, "noise")
    k, g = _number(ratio, "ratio", above=0.0), _number(precision, "precision", least=0.0)
    x_aug, shift = _number(anchor, "anchor"), _number(bias, "bias")
    nodes, weights = _normal_rule()
    shrink = data / (data + noise)
    posterior = shrink * x_aug + math.sqrt(shrink * noise) * nodes
    of_joint = -0.5 * g * np.square(posterior - x_aug) - shift
    of_product = -0.5 * g * np.square(math.sqrt(data) * nodes - x_aug) - shift
    return _nce(of_joint, of_product, k, weights)


def log_normaliser_1d(anchor: float, *, data_variance: float, precision: float) -> float:
    """log Z_x̃ = log E_{N(0, data)}[e^{−½ g (x − x̃)²}] = −½ log(1 + g·data) − ½ g x̃²/(1 + g·data)."""
    g = _number(precision, "precision", least=0.0)
    widened = g * _variance(data_variance, "data")
    return -0.5 * (math.log1p(widened) + g * _number(anchor, "anchor") ** 2 / (1 + widened))


def snl_normaliser(log_normaliser: ArrayLike, bias: ArrayLike) -> Array:
    """Z e^{−λ} + λ − 1 ≥ log Z, with equality iff λ = log Z: what SNL puts in place of log Z, and minimises over λ.

    Siamese-EBM Eq. 18-22, corrected: a minimum over λ, not a maximum, which would be infinite. Its excess over log Z is
    `tuba_gap`.
    """
    log_z, shift = _finite(log_normaliser, "log normaliser"), _finite(bias, "bias")
    with np.errstate(over="ignore"):
        return np.expm1(log_z - shift) + shift


# --- Checks and small steps -------------------------------------------------------------------------------------------


def _nce(of_joint: Array, of_product: Array, ratio: float, weights: Array | None = None) -> float:
    joint = np.average(np.logaddexp(0.0, math.log(ratio) - of_joint), weights=weights)
    product = np.average(np.logaddexp(0.0, of_product - math.log(ratio)), weights=weights)
    return float(joint + ratio * product) / (1 + ratio)


def _log_mean_exp(values: Array) -> float:
    return float(special.logsumexp(values)) - math.log(values.size)


def _log_moment(snr: Array, order: float) -> float:
    """log E_product[w^order], in the form that does not cancel near order 0 or near order 1."""
    if order < 0.5:
        power, tilt = order, order * (2 - order) * snr
    else:
        power, tilt = order - 1, -((1 - order) ** 2) * snr / (1 + snr)
    if (tilt <= -1).any():
        return math.inf
    return float(np.sum(power * np.log1p(snr) - np.log1p(tilt)) / 2)


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else math.inf


def _normal_rule(nodes: int = 120) -> tuple[Array, Array]:
    """Nodes and weights so that Σ w f(x) = E f(x) for x ~ N(0, 1)."""
    x, w = special.roots_hermitenorm(nodes)
    return x, w / w.sum()


def _signal_to_noise(data_covariance: ArrayLike, noise_covariance: ArrayLike) -> Array:
    """Eigenvalues of Σε⁻¹Σx, largest first: [d]."""
    data, noise = _matrix(data_covariance, "the data covariance"), _matrix(noise_covariance, "the noise covariance")
    if data.shape != noise.shape:
        raise InputError(f"the covariances must be alike in size, not {data.shape} and {noise.shape}.")
    root = _cholesky(noise, "the noise covariance")
    white = linalg.solve_triangular(root, linalg.solve_triangular(root, data, lower=True).T, lower=True)
    values = np.linalg.eigvalsh((white + white.T) / 2)[::-1]
    if values[-1] < -1e-9 * max(values[0], 1e-300):
        raise InputError("the data covariance must not have negative eigenvalues.")
    return np.maximum(values, 0.0)


def _matrix(value: ArrayLike, name: str) -> Array:
    """A symmetric matrix; a number is a matrix of size 1."""
    array = _finite(value, name)
    array = array.reshape(1, 1) if array.ndim == 0 else array
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise InputError(f"{name} must be a square matrix or one number, not of shape {array.shape}.")
    if not np.allclose(array, array.T, rtol=1e-8, atol=1e-12 * np.abs(array).max()):
        raise InputError(f"{name} must be symmetric.")
    return array


def _cholesky(matrix: Array, name: str) -> Array:
    try:
        return np.linalg.cholesky(matrix).astype(np.float64)
    except np.linalg.LinAlgError:
        raise InputError(f"{name} must be positive definite.") from None


def _finite(values: ArrayLike, name: str) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}.") from None
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, and is not at index {np.argwhere(~np.isfinite(array))[0].tolist()}.")
    return array


def _values(values: ArrayLike, name: str, dimensions: int) -> Array:
    array = _finite(values, name)
    if array.ndim != dimensions or array.size == 0:
        raise InputError(f"{name} must have {dimensions} dimension(s) and not be empty, not shape {array.shape}.")
    return array


def _pairs(positives: ArrayLike, negatives: ArrayLike) -> tuple[Array, Array]:
    first, second = _values(positives, "positives", 1), _values(negatives, "negatives", 2)
    if len(first) != len(second):
        raise InputError(f"{len(first)} positives need negatives [{len(first)}, m], not of shape {second.shape}.")
    return first, second


def _count(value: Any, name: str, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise InputError(f"{name} must be a whole number of at least {at_least}, not {value!r}.")
    return int(value)


def _variance(value: Any, name: str) -> float:
    return _number(value, f"the {name} variance", above=0.0)


def _number(value: Any, name: str, *, least: float = -math.inf, above: float = -math.inf) -> float:
    if not isinstance(value, int | float | np.number) or not math.isfinite(value) or value < least or value <= above:
        limit = f" above {above:g}" if above > -math.inf else f" of at least {least:g}" if least > -math.inf else ""
        raise InputError(f"{name} must be a finite number{limit}, not {value!r}.")
    return float(value)
