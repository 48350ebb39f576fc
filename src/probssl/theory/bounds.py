"""Bounds on mutual information and other divergences between a joint p(x, x̃) and its product p(x)p(x̃), in nats.

They take a critic's values f: `positives` [n], one pair of the joint for each anchor, and `negatives` [n, m], where row
i holds the values of anchor i with m draws of the product. `positives_and_negatives` makes both from a score matrix.
"Lower bound" means in expectation over pairs unless said otherwise; w = p(x, x̃)/(p(x)p(x̃)). `gaussian` has the same
bounds in closed form for Gaussian pairs, `normaliser` the losses that learn a normaliser.

Sources: Barber & Agakov 2003; Poole et al. 2019 (UBA, TUBA, NWJ, InfoNCE); Nguyen et al. 2010 (NWJ); Donsker & Varadhan
1975; Song & Ermon 2020; McAllester & Stratos 2020; HaoChen et al. 2021 (spectral); Birrell et al. 2021 (Rényi).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from probssl.errors import InputError
from probssl.theory._inputs import Array, critic_values, finite_array, not_negative, number, vector, whole

# --- Bounds from a critic's values ------------------------------------------------------------------------------------


def positives_and_negatives(scores: ArrayLike) -> tuple[Array, Array]:
    """A matrix scores[i, j] = f(x_i, x̃_j) of n matching pairs as positives [n] and negatives [n, n − 1].

    The diagonal are the positives; the anchor of column j is x̃_j, its negatives the other x_i. Transpose the matrix
    for anchors x.
    """
    matrix = finite_array(scores, "scores", 2)
    n = len(matrix)
    if matrix.shape != (n, n) or n < 2:
        raise InputError(f"scores must be a square matrix of at least 2 pairs, not of shape {matrix.shape}")
    return np.diag(matrix).copy(), matrix.T[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def uba_bound(positives: ArrayLike, log_partitions: ArrayLike) -> float:
    """E_joint[f] − E_x̃[log Z(x̃)] ≤ I, with Z(x̃) = E_p(x)[e^f(x, x̃)]: the unnormalised Barber–Agakov bound.

    `log_partitions` [n] is log Z of each positive's anchor. Gap: E_x̃ KL(p(x | x̃) ‖ q(x | x̃)) for the model
    q ∝ p(x) e^f, so that the KL loss with δ = −f is I − UBA (Siamese-EBM Eq. 11). Tight iff f = log p(x̃ | x) + c(x̃),
    any c. A log Z estimated from samples is too low on average, and the bound then too high.
    """
    positives = finite_array(positives, "positives", 1)
    return float(positives.mean() - vector(log_partitions, "log partitions", len(positives)).mean())


def tuba_bound(positives: ArrayLike, negatives: ArrayLike, log_baseline: ArrayLike = 0.0) -> float:
    """E_joint[f − log a] − E_product[e^f / a] + 1 ≤ UBA ≤ I, with a baseline a(x̃) > 0: tractable UBA.

    `log_baseline` is log a, one number or one for each anchor [n]. Its distance to UBA is `tuba_gap`; tight iff
    a = Z and f = log p(x̃ | x) + c(x̃). Unbiased. With f = −δ and log a = λ it is minus the SNL loss.
    """
    positives, negatives = critic_values(positives, negatives)
    log_a = _baseline(log_baseline, positives)
    log_weight = _log_mean_exp(negatives - log_a.reshape(-1, 1))
    with np.errstate(over="ignore"):
        return float(np.mean(positives - log_a) - np.expm1(log_weight))


def tuba_gap(log_partitions: ArrayLike, log_baseline: ArrayLike) -> float:
    """UBA − TUBA = E_x̃[e^t − t − 1] with t = log Z(x̃) − log a(x̃): how much a wrong baseline costs; never negative."""
    log_z = np.atleast_1d(finite_array(log_partitions, "log partitions"))
    t = log_z - _baseline(log_baseline, log_z)
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
    it is not a bound: the log of a mean is too low on average, so the value is too high.
    """
    positives, negatives = critic_values(positives, negatives)
    return float(positives.mean()) - _log_mean_exp(negatives)


def infonce_losses(positives: ArrayLike, negatives: ArrayLike) -> Array:
    """log(1 + Σ_negatives e^{f − f⁺}) of each anchor, [n]: InfoNCE, never negative, before its mean over anchors.

    The positive stays in the denominator, which is where the 1 comes from. Without it the loss is not bounded below and
    bounds nothing (Siamese-EBM Eq. 15 leaves it out; Eq. 160 keeps it).
    """
    right, wrong = critic_values(positives, negatives)
    return np.logaddexp(0.0, special.logsumexp(wrong, axis=1) - right)


def infonce_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """log(m + 1) − mean of `infonce_losses` ≤ min(I, log(m + 1)), with m negatives to a positive.

    The ceiling holds for every sample, I in expectation. The best critic is f = log w + c(anchor) for every m, yet the
    bound is tight only as m → ∞.
    """
    losses = infonce_losses(positives, negatives)
    return infonce_ceiling(np.shape(negatives)[1] + 1) - float(losses.mean())


def infonce_ceiling(candidates: int) -> float:
    """log(m + 1): the most that InfoNCE with m negatives, which are m + 1 `candidates`, can say of any I."""
    return math.log(whole(candidates, "candidates", 1))


def log_softmax_bound(mutual_information: float, negatives: int) -> float:
    """min(I − log(m + 1), 0) ≥ E log softmax of the positive among m negatives, for every critic.

    SimVAE A.3, corrected: the prior of a candidate is 1/(m + 1), so the constant is log(m + 1), not log(m − 1).
    """
    information = not_negative(mutual_information, "mutual information")
    return min(information - infonce_ceiling(whole(negatives, "negatives", 1) + 1), 0.0)


def nwj_variance_floor(mutual_information: float, negatives: int) -> float:
    """(e^I − 1)/m ≤ the variance of the mean of w over m independent negatives, NWJ's second term at its optimum.

    Song & Ermon 2020: Var_product[w] = χ² ≥ e^I − 1. For Gaussian pairs it is e^{2I} − 1 exactly. Nor can
    another estimator do it: no distribution-free lower bound that holds with confidence from N pairs exceeds O(log N)
    (McAllester & Stratos 2020).
    """
    information, m = not_negative(mutual_information, "mutual information"), whole(negatives, "negatives", 1)
    with np.errstate(over="ignore"):
        return float(np.expm1(information)) / m


# --- Other divergences ------------------------------------------------------------------------------------------------


def jensen_shannon_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """log 2 + ½ E_joint log σ(f) + ½ E_product log σ(−f) ≤ JS(joint ‖ product) ≤ log 2.

    That is, min_f −E_joint log σ(f) − E_product log σ(−f) = 2 log 2 − 2 JS, reached at f = log w. Low variance, but JS
    is not mutual information: it saturates at log 2.
    """
    positives, negatives = critic_values(positives, negatives)
    loss = np.logaddexp(0.0, -positives).mean() + np.logaddexp(0.0, negatives).mean()
    return math.log(2.0) - float(loss) / 2


def chi_squared_bound(positives: ArrayLike, negatives: ArrayLike) -> float:
    """2 E_joint[g] − E_product[g²] − 1 ≤ χ²(joint ‖ product) = E_product[w²] − 1; the values are g, not its log.

    Tight iff g = w. The spectral loss E_product[g²] − 2 E_joint[g] (HaoChen et al. 2021; Siamese-EBM Eq. 42) is
    minus this minus 1, so its minimum over all critics is −(1 + χ²).
    """
    positives, negatives = critic_values(positives, negatives)
    return float(2 * positives.mean() - np.square(negatives).mean() - 1)


def renyi_bound(positives: ArrayLike, negatives: ArrayLike, order: float) -> float:
    """log E_joint[e^{(α−1)f}] / (α − 1) − log E_product[e^{αf}] / α ≤ R_α(joint ‖ product), any α but 0 and 1.

    Birrell et al. 2021, in their scaling R_α(p ‖ q) = log ∫ p^α q^{1−α} / (α(α − 1)); the usual Rényi
    divergence is α R_α. Tight iff f = log w + constant. α → 1 is Donsker–Varadhan. From samples it is not a bound.
    """
    alpha = number(order, "order")
    if alpha in (0.0, 1.0):
        raise InputError(f"order must be neither 0 nor 1, which are limits, not {order!r}")
    positives, negatives = critic_values(positives, negatives)
    return _log_mean_exp((alpha - 1) * positives) / (alpha - 1) - _log_mean_exp(alpha * negatives) / alpha


# --- Small steps ------------------------------------------------------------------------------------------------------


def _baseline(log_baseline: ArrayLike, anchors: Array) -> Array:
    log_a = finite_array(log_baseline, "log baseline")
    if log_a.shape not in ((), anchors.shape):
        raise InputError(f"log baseline must be one number or one for each anchor, not of shape {log_a.shape}")
    return log_a


def _log_mean_exp(values: Array) -> float:
    return float(special.logsumexp(values)) - math.log(values.size)
