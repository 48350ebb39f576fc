"""Clustering by GEDI: what its terms reach at best, what a collapse costs, which failures each term leaves open.

One convention throughout: a loss to minimise, averaged over inputs,

    w_g · NLL + w_i · mean_i CE(p(y | x'_i), p(y | x_i)) + w_p · CE(prior, mean_i p(y | x_i)),

called the generative, the invariance and the prior term (GEDI Eq. 3-5). The paper sums over n and prints both signs;
its bound is then −n ln c where the average has the minimum ln c. x' is the augmentation of x.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from probssl.errors import InputError
from probssl.theory._inputs import Array, finite_array, not_negative, probabilities, whole

FAILURE_MODES: dict[str, str] = {
    "representation": "representation collapse: every input gets the same representation",
    "cluster": "cluster collapse: one cluster takes every input, or few of many do",
    "label": "label inconsistency: the cluster of an input says little about that of its augmentation",
}
"""The triad of GEDI Definitions 8-10, in plain words."""

ADMITS: dict[str, dict[str, str]] = {
    "generative": {
        "cluster": "the density sees the sum over clusters only, and one cluster can carry all of it",
        "label": "the density sees the sum over clusters only, and not which cluster an input belongs to",
    },
    "invariance": {
        "representation": "a constant and confident prediction agrees with itself, which is all it asks for",
        "cluster": "if one cluster takes every input, augmentations never change cluster",
    },
    "prior": {
        "representation": "a constant prediction equal to the prior has the right mean",
        "label": "it sees the mean prediction only, which does not change when inputs swap their labels",
    },
}
"""Which failure attains the minimum of which term, and why (GEDI Theorem 1, Table 1)."""

EXCLUDED_TOGETHER: dict[frozenset[str], dict[str, str]] = {
    frozenset({"invariance", "prior"}): {
        "representation": "a constant prediction cannot be confident and equal to the prior at once",
    },
}
"""Failures that each term of a set admits but not their sum: `collapsed_minimum` (GEDI §6.1(iii) says otherwise)."""

INVARIANCE_MINIMUM = 0.0
"""The least of the invariance term: confident predictions that augmentations do not change."""

CONSTANT_BELOW = 0.01
"""Predictions are constant if they lie, on average, within this total variation of their mean."""

CLUSTERS_BELOW = 0.5
"""Clusters have collapsed if the mean prediction has less than this share of the prior's entropy: 0.89 of the inputs in
one of two clusters of equal prior, three of ten clusters in use. A learnt prior asks for two clusters."""

AGREEMENT_BELOW = 1 / 3
"""Labels are inconsistent if those drawn for inputs and for augmentations agree less than a third of the way beyond
chance."""

_WEIGHTS = (1e-100, 1e100)  # the least and the most a term may weigh, so that nothing overflows


def open_failure_modes(terms: Iterable[str]) -> dict[str, str]:
    """The failures that a loss made of these terms, all with weights above zero, does not rule out, with the reasons.

    A failure stays open iff every term admits it (GEDI Theorem 1) and no two terms exclude it together. Nothing is left
    open by all three, nor, contrary to GEDI §6.1(iii), by invariance and prior alone.
    """
    names = list(dict.fromkeys([terms] if isinstance(terms, str) else terms))
    if not names:
        raise InputError(f"terms must name at least one of {', '.join(ADMITS)}")
    for name in names:
        if name not in ADMITS:
            raise InputError(f"terms must be among {', '.join(ADMITS)}, not {name!r}")
    excluded = {mode for together, modes in EXCLUDED_TOGETHER.items() if together <= set(names) for mode in modes}
    return {
        mode: "; ".join(f"{name}: {ADMITS[name][mode]}" for name in names)
        for mode in FAILURE_MODES
        if mode not in excluded and all(mode in ADMITS[name] for name in names)
    }


# --- Values -----------------------------------------------------------------------------------------------------------


def invariance_term(predictions: ArrayLike, augmented_predictions: ArrayLike) -> float:
    """mean_i CE(p(y | x'_i), p(y | x_i)) for two arrays of probabilities [n, c]: entropy plus KL, so at least 0.

    0 iff predictions are one-hot and unchanged by the augmentation; equal but unsure predictions are not enough. ∞ if
    an augmentation is given to a cluster that its source excludes.
    """
    p, q = _two(predictions, augmented_predictions)
    return _cross_entropy(q, p) / len(p)


def prior_term(predictions: ArrayLike, prior: ArrayLike | None = None) -> float:
    """CE(prior, mean_i p(y | x_i)), least and equal to `prior_minimum` iff the mean prediction is the prior.

    The prior is uniform unless given, [c]. ∞ if a cluster of positive prior is empty, as in cluster collapse.
    """
    p = probabilities(predictions, "predictions", 2)
    return _cross_entropy(_prior(prior, p.shape[1]), p.mean(axis=0))


def prior_minimum(prior: ArrayLike | int) -> float:
    """The entropy of the prior [c]; for a number c, of the uniform prior over c clusters: ln c."""
    if isinstance(prior, int | np.integer) and not isinstance(prior, bool):
        return math.log(whole(prior, "clusters", 2))
    weights = probabilities(prior, "prior", 1)
    return _cross_entropy(weights, weights)


def learnt_prior_term(predictions: ArrayLike, price: float) -> float:
    """min over priors π of CE(π, p̄) − s H(π) = −s log Σ_y p̄_y^{1/s} for the mean prediction p̄, s = `price` > 1.

    Reached at π ∝ p̄^{1/s}: GEDI's prior term where the prior is learnt. 0 if one cluster takes every input.
    """
    mean = probabilities(predictions, "predictions", 2).mean(axis=0)
    return float(-_price(price) * math.log(float(np.sum(mean ** (1 / price)))))


def learnt_prior_minimum(clusters: int, price: float) -> float:
    """The least of `learnt_prior_term`, −(s − 1) ln c: reached where the mean prediction is uniform."""
    return -(_price(price) - 1) * math.log(whole(clusters, "clusters", 2))


def clustering_minimum(prior: ArrayLike | int, invariance_weight: float = 1.0, prior_weight: float = 1.0) -> float:
    """min of w_i·invariance + w_p·prior = w_p·H(prior): predictions one-hot, stable and split as the prior.

    GEDI Proposition 1, Eq. 4, averaged and as a minimum. Assumes a model rich enough, and for a uniform prior as many
    inputs in each cluster.
    """
    w_i, w_p = _weights(invariance_weight, prior_weight)
    return w_i * INVARIANCE_MINIMUM + w_p * prior_minimum(prior)


@dataclass(frozen=True, eq=False)
class CollapsedMinimum:
    """The least loss of a constant encoder, and the prediction [c] that attains it (largest entry first)."""

    value: float
    prediction: Array


def collapsed_minimum(clusters: int, invariance_weight: float = 1.0, prior_weight: float = 1.0) -> CollapsedMinimum:
    """min over constant predictions s of w_i·H(s) + w_p·CE(uniform, s), the best that representation collapse can do.

    Above `clustering_minimum` whenever both weights are positive, so the sum of the two terms does not admit the
    collapse. At a minimum at most one entry exceeds the others, which are equal: s ∝ (e^t, 1, …, 1) with t = 0
    (uniform) or the largest root of w_p (e^t + c − 2 − (c − 1)e^{−t}) = c w_i t. The minimiser is not uniform if
    w_i > w_p, nor if w_i = w_p and c ≥ 3, so a constant encoder need not predict uniformly; GEDI appendix K assumes
    that it does.
    """
    c = whole(clusters, "clusters", 2)
    w_i, w_p = _weights(invariance_weight, prior_weight)
    if w_p == 0:
        return CollapsedMinimum(0.0, np.eye(c)[0])

    def loss(t: float) -> float:
        rest = (c - 1) * math.exp(-t)  # all other entries, where the largest is 1
        log_sum = math.log1p(rest)
        return w_i * (log_sum + t * rest / (1 + rest)) + w_p * (log_sum + t * (1 - 1 / c))

    def slope(t: float) -> float:  # of the loss, over a positive factor
        return w_p * (math.expm1(t) - (c - 1) * math.expm1(-t)) - c * w_i * t

    best = 0.0
    half, root = c * w_i / w_p / 2, math.sqrt(c - 1)
    if half > root:  # the slope has a least value, at this t
        least = math.log(half + math.sqrt(half - root) * math.sqrt(half + root))
        if least > 0 and slope(least) < 0:
            upper = least + 1
            while slope(upper) < 0:
                upper += 1
            uneven = float(optimize.brentq(slope, least, upper, xtol=1e-14))
            best = uneven if loss(uneven) < loss(0.0) else 0.0
    return CollapsedMinimum(loss(best), special.softmax(np.array([best] + [0.0] * (c - 1))))


def proto_cpc(teacher: ArrayLike, student_logits: ArrayLike) -> float:
    """mean_i [Σ_y p_iy z_iy − log Σ_y p̄_y e^{z_iy}] ≤ InfoNCE with the critic f(x_k, x_i) = Σ_y p_ky z_iy ≤ ln n.

    `teacher` p and `student_logits` z, divided by their temperature, are [n, c] (GEDI appendix H, by Jensen).
    """
    p = probabilities(teacher, "the teacher's predictions", 2)
    z = finite_array(student_logits, "the student's logits", 2)
    if z.shape != p.shape:
        raise InputError(f"the student's logits must have the shape {p.shape} of the teacher's, not {z.shape}")
    return float(np.mean(np.sum(p * z, axis=1) - special.logsumexp(z, b=p.mean(axis=0), axis=1)))


# --- Diagnosis --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusteringDiagnosis:
    """What two arrays of predictions say of the triad; `failures` maps those that occurred to a sentence."""

    invariance: float  # its minimum is 0
    prior: float
    prior_minimum: float
    spread: float  # mean total variation between a prediction and the mean prediction
    largest_share: float  # mean probability of the largest cluster
    used: float  # e to the entropy of the mean prediction: how many clusters of one size would have it
    wanted: float  # the same of the prior; 2 where it is learnt
    agreement: float  # 1: an augmentation has the label of its input, 0: any label
    certainty: float  # the same of two labels drawn for one input: low if predictions are undecided

    @property
    def prior_gap(self) -> float:
        """How far the prior term is above its minimum, in nats."""
        return self.prior - self.prior_minimum

    @property
    def few_clusters(self) -> bool:
        """Whether one cluster takes every input, or few of many do, which the prior does not ask for."""
        return math.log(self.used) < CLUSTERS_BELOW * math.log(self.wanted)

    @property
    def constant(self) -> bool:
        """Whether every input has the same prediction."""
        return self.spread <= CONSTANT_BELOW

    @property
    def inconsistent(self) -> bool:
        """Whether labels say little about those of augmentations, though clusters have not collapsed."""
        return self.agreement < AGREEMENT_BELOW and not self.few_clusters

    @property
    def failures(self) -> dict[str, str]:
        """Those of the triad that occurred, each with a sentence."""
        if self.few_clusters:
            shown = f"the largest has {self.largest_share:.1%}, {self.used:.2g} are in use"
            return {"cluster": f"{FAILURE_MODES['cluster']} ({shown})"}
        if self.constant:
            shown = f"predictions differ by {self.spread:.1%} from their mean"
            return {"representation": f"{FAILURE_MODES['representation']} ({shown})"}
        if self.inconsistent:
            return {"label": f"{FAILURE_MODES['label']} (they agree {self.agreement:.0%} of the way beyond chance)"}
        return {}

    @property
    def healthy(self) -> bool:
        """Whether none of the triad occurred."""
        return not self.failures


def diagnose_clustering(
    predictions: ArrayLike,
    augmented_predictions: ArrayLike,
    prior: ArrayLike | None = None,
    *,
    price: float | None = None,
) -> ClusteringDiagnosis:
    """Which of the failure modes occurred, from p(y | x_i) and p(y | x'_i), arrays of probabilities [n, c], n ≥ 2.

    - cluster: the entropy of the mean prediction is less than `CLUSTERS_BELOW` of the prior's.
    - representation: predictions are constant, `spread` ≤ `CONSTANT_BELOW`. One cluster that takes every input makes
      them constant too, whatever the representation, and is then the only failure named.
    - label: `agreement` < `AGREEMENT_BELOW`. Draw a label from p(y | x_i) and one from p(y | x'_i): they are the same
      with probability a = mean_i Σ_y p_iy p'_iy, and those of two inputs i ≠ j with a₀. The agreement is
      (a − a₀) / (1 − a₀), Cohen's κ of drawn labels: 1 iff predictions are sure and unchanged by augmentations, which
      is also where the invariance term is 0; and 0 if augmentations decide the label, or if nothing does.

    A `price` above 1 stands for a prior that is learnt at this price a nat (`learnt_prior_term`). The terms tell the
    same story (GEDI Figure 4): both at their minima means that nothing failed.
    """
    p, q = _two(predictions, augmented_predictions)
    n, c = p.shape
    if n < 2:
        raise InputError(f"predictions must have at least 2 rows for a diagnosis, not {n}")
    if prior is not None and price is not None:
        raise InputError("a prior is given or learnt at a price, not both")
    mean = p.mean(axis=0)
    if price is None:
        term, minimum = _cross_entropy(_prior(prior, c), mean), prior_minimum(c if prior is None else prior)
        wanted = math.exp(minimum)
    else:
        term, minimum, wanted = learnt_prior_term(p, price), learnt_prior_minimum(c, price), 2.0
    return ClusteringDiagnosis(
        invariance=_cross_entropy(q, p) / n,
        prior=term,
        prior_minimum=minimum,
        spread=float(np.abs(p - mean).sum(axis=1).mean() / 2),
        largest_share=float(mean.max()),
        used=math.exp(_cross_entropy(mean, mean)),
        wanted=wanted,
        agreement=_agreement(p, q),
        certainty=_agreement(p, p),
    )


# --- Small steps ------------------------------------------------------------------------------------------------------


def _cross_entropy(p: Array, q: Array) -> float:
    """−Σ p log q over all entries, with 0 log 0 = 0."""
    with np.errstate(divide="ignore"):
        return float(-special.xlogy(p, q).sum()) + 0.0  # + 0.0 turns −0 into 0


def _agreement(p: Array, q: Array) -> float:
    """Cohen's κ of labels drawn from p_i and q_i, chance being those of p_i and q_j, j ≠ i; 1 where all are one."""
    n = len(p)
    together = float((p * q).sum())
    by_chance = (float(p.sum(axis=0) @ q.sum(axis=0)) - together) / (n * (n - 1))
    return (together / n - by_chance) / (1 - by_chance) if 1 - by_chance > 1e-6 else 1.0


def _two(predictions: ArrayLike, augmented_predictions: ArrayLike) -> tuple[Array, Array]:
    p = probabilities(predictions, "predictions", 2)
    q = probabilities(augmented_predictions, "augmented predictions", 2)
    if p.shape != q.shape:
        raise InputError(f"augmented predictions must have the shape {p.shape} of the predictions, not {q.shape}")
    return p, q


def _prior(prior: ArrayLike | None, clusters: int) -> Array:
    weights = np.full(clusters, 1 / clusters) if prior is None else probabilities(prior, "prior", 1)
    if len(weights) != clusters:
        raise InputError(f"prior must have the {clusters} clusters of the predictions, not {len(weights)}")
    return weights


def _price(price: float) -> float:
    if not 1 < price < math.inf:
        raise InputError(f"the price of a learnt prior must be above 1 and finite, not {price!r}")
    return price


def _weights(invariance: float, prior: float) -> tuple[float, float]:
    low, high = _WEIGHTS
    for name, value in (("invariance weight", invariance), ("prior weight", prior)):
        if not_negative(value, name) != 0 and not low <= value <= high:
            raise InputError(f"{name} must be 0 or lie between {low:g} and {high:g}, not {value!r}")
    if invariance == 0 and prior == 0:
        raise InputError("invariance weight or prior weight must be above zero, and both are 0")
    return float(invariance), float(prior)
