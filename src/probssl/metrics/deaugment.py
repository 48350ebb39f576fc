"""How well does a model undo an augmentation? Its posterior over a data set, beside the exact one.

A self-supervised model is a posterior q(x | x̃) ∝ p(x) exp(−δ(x, x̃)) (Siamese-EBM Eq. 4 and 6): given the
augmentation x̃, which data point x did it come from? Siamese-EBM (appendix A.3) knows of no metric for how well
a model answers. Over the n candidates of a data set, each equally likely a priori, there is one: the model says
q_j ∝ exp(−δ(x_j, x̃)), and where log p(x̃ | x) is known so is the truth, p_j ∝ p(x̃ | x_j).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, whole

_CELLS = 65_536  # rows are worked through this many entries at a time: the working arrays stay in the cache
_LEAST, _NOTHING = -700.0, 1e-304  # e^−700 < 1e-304: so far below the most probable candidate there is no mass
_MEANS = (
    "nll",
    "exact_nll",
    "excess_nll",
    "kl_exact_model",
    "kl_model_exact",
    "top1",
    "exact_top1",
    "top5",
    "exact_top5",
    "entropy",
    "exact_entropy",
)


@dataclass(frozen=True)
class DeaugmentationResult:
    """Means over the queries x̃ with source s, in nats where they are information; `exact_` is the posterior p.

    `_se` is the standard error of the mean over independent queries, infinite for a single query and for a mean
    that is infinite. Lower is better but for `top1` and `top5`; `effective_candidates` is best at the exact value.
    """

    queries: int
    candidates: int  # n
    nll: float  # −log q_s; a constant model has log n
    nll_se: float
    exact_nll: float  # −log p_s: the least that a model can reach in expectation over sources and augmentations
    exact_nll_se: float
    excess_nll: float  # −log q_s + log p_s, query by query; its expectation is that of kl_exact_model
    excess_nll_se: float
    kl_exact_model: float  # KL(p‖q) = Σ_j p_j log(p_j / q_j)
    kl_exact_model_se: float
    kl_model_exact: float  # KL(q‖p) = Σ_j q_j log(q_j / p_j)
    kl_model_exact_se: float
    top1: float  # share of queries whose source is the most probable candidate
    exact_top1: float
    top5: float  # share of queries whose source is among the five most probable candidates
    exact_top5: float
    ece: float  # expected calibration error of the confidence max_j q_j
    exact_ece: float  # what a calibrated posterior has on as many queries
    effective_candidates: float  # exp(mean entropy of q): 1 if certain, n if constant
    exact_effective_candidates: float


class Deaugmentation:
    """Accumulates, block by block, how well a model finds the source of an augmentation among n candidates.

    Draw sources s uniformly from the candidates and queries x̃ ~ p(· | x_s), held out from training. For each query
    the model is q = softmax_j(−δ(x_j, x̃)) and the exact posterior is p = softmax_j(log p(x̃ | x_j)): Siamese-EBM
    Eq. 6, with p_data uniform over the candidates, where its optimum δ = −log p(x̃ | x) + c(x̃) makes q = p. Adding a
    constant to a row changes nothing. Any number of queries fits in memory: a block of 64 queries over 60,000
    candidates is 31 MB a matrix in float64, and `update` works through it row by row without a copy of it.

    - Likelihood and divergences: see `DeaugmentationResult`. E[−log q_s] = E[H(p)] + E[KL(p‖q)], so that `excess_nll`
      and `kl_exact_model` estimate one number; they differ by more than their errors only if the queries
      were not drawn in this way (or the sources not uniformly). Both divergences take 0 log 0 = 0 and are
      infinite where one distribution has mass and the other a logit of −∞. Mass is what exceeds 1e-304 of the
      largest probability; logarithms are kept below that, so that both are finite whenever the logits are.
    - top-k is the expected credit under random tie-breaking: with g candidates above the source and t level with it,
      itself included, clip((k − g) / t, 0, 1). A constant model gets k/n and m copies of a point share. Level
      means equal logits, to the last bit.
    - Calibration (Guo et al. 2017, Eq. 3): queries are binned by confidence c = max_j q_j into `bins` intervals
      (b/B, (b + 1)/B], and ECE = Σ_bins (size / queries) |mean top-1 credit − mean c|, in [0, 1]. It is biased upwards,
      by up to 0.4 √(bins / queries): judge it beside `exact_ece`, and beside `nll`, for a constant model is
      calibrated and has an ECE of 0. An edge belongs to the bin below to within 1e-9, or rounding would
      decide where a confidence of exactly 1/3 goes.
    - effective candidates are exp(mean entropy), the geometric mean of the perplexities exp(H), not their arithmetic
      mean: a few undecided queries over 60,000 candidates would drown all decided ones, and only in this form
      log(exact_effective_candidates) has the expectation of `exact_nll` and a constant model has
      kl_exact_model = log n − log(exact_effective_candidates).
    """

    def __init__(self, *, bins: int = 15) -> None:
        self._bins = whole(bins, "bins", 1)
        self._candidates: int | None = None
        self._count = 0
        self._mean = np.zeros(len(_MEANS))
        self._squares = np.zeros(len(_MEANS))  # Σ (value − mean)² over the queries so far
        self._infinite = np.zeros(len(_MEANS), dtype=bool)
        self._gap = np.zeros((2, self._bins))  # Σ (credit − confidence) in each bin, of the model and of the truth

    def update(self, model_logits: ArrayLike, true_logits: ArrayLike, source: ArrayLike) -> None:
        """Add a block of q queries; a block that is refused leaves everything as it was.

        model_logits [q, n] is −δ(x_j, x̃_i) and true_logits [q, n] is log p(x̃_i | x_j), each up to a constant in
        every row; source [q] is the index of the candidate that query i was made from. −∞ stands for a
        candidate that is ruled out (an augmentation of bounded support), but never in all of a row, and never
        for the true logit of the source. Any real type is read as it is and computed with in float64; float32
        resolves only 0.06 nats near −1e6, so make true logits in float64 where there are many features.
        """
        model, truth = _logits(model_logits, "model_logits"), _logits(true_logits, "true_logits")
        if model.shape != truth.shape:
            raise InputError(f"model_logits has shape {model.shape} but true_logits has shape {truth.shape}")
        queries, n = model.shape
        if self._candidates not in (None, n):
            raise InputError(f"this block has {n} candidates but the blocks before had {self._candidates}")
        index = _sources(source, queries, n)
        values = np.empty((len(_MEANS), queries))
        confidence = np.empty((2, queries))
        step = max(1, _CELLS // n)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for start in range(0, queries, step):
                rows = slice(start, start + step)
                q = _Posterior(model[rows], index[rows], "model_logits", start)
                p = _Posterior(truth[rows], index[rows], "true_logits", start)
                if np.isinf(p.nll).any():
                    query = start + int(np.argmax(np.isinf(p.nll)))
                    raise InputError(f"query {query} cannot come from its source {index[query]}: its log p is −inf")
                values[:, rows] = (
                    *(q.nll, p.nll, q.nll - p.nll, p.divergence(q), q.divergence(p)),
                    *(q.credit(1), p.credit(1), q.credit(5), p.credit(5), q.entropy, p.entropy),
                )
                confidence[:, rows] = q.confidence, p.confidence
        self._candidates = n
        self._add(values)
        for gap, sure, hit in zip(self._gap, confidence, (values[5], values[6]), strict=True):
            cell = np.clip(np.ceil(sure * self._bins - 1e-9).astype(np.intp) - 1, 0, self._bins - 1)
            gap += np.bincount(cell, weights=hit - sure, minlength=self._bins)

    def _add(self, values: Array) -> None:
        """Merge means and sums of squares with those of a block (Chan, Golub and LeVeque 1983); ∞ is only noted."""
        infinite = values > 1e100  # squares of larger numbers would overflow
        self._infinite |= infinite.any(axis=1)
        values[infinite] = 0.0
        size, mean = values.shape[1], values.mean(axis=1)
        total = self._count + size
        apart = mean - self._mean
        self._squares += np.square(values - mean[:, None]).sum(axis=1) + apart**2 * (self._count * size / total)
        self._mean += apart * (size / total)
        self._count = total

    def result(self) -> DeaugmentationResult:
        """The scores of all queries so far; more blocks may follow."""
        if self._candidates is None:
            raise InputError("there is no result before the first update: no query has been seen")
        means = np.where(self._infinite, np.inf, self._mean)
        error = np.full(len(_MEANS), np.inf)
        if self._count > 1:
            error[~self._infinite] = np.sqrt(self._squares / (self._count * (self._count - 1)))[~self._infinite]
        mean = {name: float(value) for name, value in zip(_MEANS, means, strict=True)}
        effective, exact_effective = (float(np.exp(mean.pop(name))) for name in ("entropy", "exact_entropy"))
        ece, exact_ece = (float(np.abs(gap).sum() / self._count) for gap in self._gap)
        return DeaugmentationResult(
            queries=self._count,
            candidates=self._candidates,
            **mean,
            **{f"{name}_se": float(value) for name, value in zip(_MEANS[:5], error, strict=False)},
            ece=ece,
            exact_ece=exact_ece,
            effective_candidates=effective,
            exact_effective_candidates=exact_effective,
        )


def deaugmentation(
    model_logits: ArrayLike, true_logits: ArrayLike, source: ArrayLike, *, bins: int = 15
) -> DeaugmentationResult:
    """How well the model finds the source of each query, from all queries at once; see `Deaugmentation`.

    model_logits [q, n] is −δ(x_j, x̃_i), true_logits [q, n] is log p(x̃_i | x_j), source [q] the index of the
    candidate that query i was made from.
    """
    score = Deaugmentation(bins=bins)
    score.update(model_logits, true_logits, source)
    return score.result()


class _Posterior:
    """softmax of each row of logits [r, n], and what is read off it: one number a row, [r]."""

    def __init__(self, logits: NDArray[Any], source: NDArray[np.intp], name: str, first: int) -> None:
        top = logits.max(axis=1, keepdims=True)  # not a number, if one is in the row
        if not np.isfinite(top).all():
            raise _unusable(logits, name, first)
        at = np.arange(len(logits)), source
        own = logits[at][:, None]
        self.above = _count(logits > own)
        self.level = _count(logits >= own) - self.above
        self.shifted: Array = np.subtract(logits, top, dtype=np.float64)  # at most 0
        self.weight: Array = np.maximum(self.shifted, _LEAST)  # np.exp is thirty times slower where it underflows
        np.exp(self.weight, out=self.weight)  # at most 1
        self.total = self.weight.sum(axis=1)
        self.log_total = np.log(self.total)
        self.nll = self.log_total - self.shifted[at]
        self.entropy = self.log_total - _weighted(self.weight, self.shifted) / self.total
        self.confidence = 1.0 / self.total

    def divergence(self, other: _Posterior) -> Array:
        """KL(self‖other), without the rounding that would make it negative."""
        cross = other.log_total - _weighted(self.weight, other.shifted) / self.total
        return np.maximum(cross - self.entropy, 0.0)

    def credit(self, k: int) -> Array:
        """The chance that the source is among the k most probable, when ties are broken at random."""
        return np.clip((k - self.above) / self.level, 0.0, 1.0)


def _weighted(weight: Array, value: Array) -> Array:
    """Σ_j weight_j value_j in each row, for values of at most 0; a weight of _NOTHING times −∞ is 0."""
    total: Array = np.einsum("ij,ij->i", weight, value)
    if np.isneginf(total).any():
        product = weight * (weight > _NOTHING)
        product *= value
        total = np.fmin(product, 0.0, out=product).sum(axis=1)  # no product is above 0, and 0 · (−∞) = nan becomes 0
    return total


def _count(true: NDArray[np.bool_]) -> NDArray[Any]:
    """How many are true in each row; long rows come one at a time, which can be counted five times as fast."""
    return np.array([np.count_nonzero(true)]) if len(true) == 1 else true.sum(axis=1)


def _array(given: ArrayLike, name: str) -> NDArray[Any]:
    """What was given as an array, not copied where it is one."""
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:  # RuntimeError: a tensor that carries a gradient
        raise InputError(f"{name} must be an array of numbers: {error}") from None


def _logits(given: ArrayLike, name: str) -> NDArray[Any]:
    """The matrix [q, n] in the type it came in; its values are checked where they are first read."""
    array = _array(given, name)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must be real numbers, not {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{name} must have the shape (queries, candidates), at least one of each, not {array.shape}")
    return array


def _sources(given: ArrayLike, queries: int, candidates: int) -> NDArray[np.intp]:
    """The indices [q] of the sources, each a whole number from 0 to candidates − 1."""
    array = _array(given, "source")
    if array.dtype.kind not in "iu":
        raise InputError(f"source must be whole numbers, not {array.dtype}")
    if array.shape != (queries,):
        raise InputError(f"source must have one index for each of the {queries} queries, not shape {array.shape}")
    outside = (array < 0) | (array >= candidates)
    if outside.any():
        query = int(np.argmax(outside))
        raise InputError(f"the source of query {query} is {array[query]}, but there are {candidates} candidates")
    return array.astype(np.intp)


def _unusable(logits: NDArray[Any], name: str, first: int) -> InputError:
    """What is wrong with rows whose largest entry is not finite."""
    bad = np.isnan(logits) | np.isposinf(logits)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        return InputError(f"{name} is {logits[row, column]} at query {first + row}, candidate {column}")
    row = int(np.argmax(np.isneginf(logits).all(axis=1)))
    return InputError(f"{name} is −inf for every candidate of query {first + row}")
