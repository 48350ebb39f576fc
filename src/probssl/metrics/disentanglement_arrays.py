"""Disentanglement read off codes and factors of the same rows: MIG, Modularity, SAP and DCI.

Sources: Chen et al. 2018 (MIG), Ridgeway and Mozer 2018 (Modularity), Kumar et al. 2018 (SAP), Eastwood and Williams
2018 (DCI); constants and conventions of Locatello et al. 2019, "Challenging Common Assumptions in the Unsupervised
Learning of Disentangled Representations", unless said otherwise. codes [n, k], factors [n, f]. A factor is discrete
if it has nothing but whole numbers, else continuous; `discrete` overrules that, column by column. A constant factor
is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from probssl.errors import InputError
from probssl.metrics._held_out import Pair, Split, held_out, held_out_r2, paired
from probssl.metrics._information import Flags, binned, factor_levels, must_vary, mutual_information, which_discrete
from probssl.metrics._inputs import Array, centred, whole

Model = Literal["forest", "boosting", "lasso"]

_PENALTY = 0.01  # of SAP's support vector machines (their C) and of the lasso
_LEAF = 0.01  # least share of rows in a leaf of the forest: smaller leaves fit noise, and count it as importance


@dataclass(frozen=True, eq=False)
class DCI:
    """Disentanglement, completeness and informativeness, and what they were read off."""

    disentanglement: float  # does each code serve one factor?
    completeness: float  # does one code serve each factor?
    informativeness: float  # can the factors be predicted?
    importance: Array  # [k, f], of each code for predicting each factor
    per_factor: Array  # [f], informativeness


def mig(codes: ArrayLike, factors: ArrayLike, *, bins: int = 20, discrete: Sequence[bool] | None = None) -> float:
    """Mutual information gap: mean over factors of (I(v; best code) − I(v; second best code)) / H(v).

    Chen et al. 2018. Codes, and continuous factors, are cut into `bins` equal-width bins between their least
    and largest value. Range [0, 1], higher is better: is each factor in one code only? 1 for permuted factors (less
    the bias of the second best, about bins² / 2n nats); 0 for duplicated and constant codes. With a single code the
    second is 0.
    """
    information, entropies = _information(codes, factors, bins, discrete)
    return float(np.mean(_gap(information) / entropies))


def modularity(
    codes: ArrayLike, factors: ArrayLike, *, bins: int = 20, discrete: Sequence[bool] | None = None
) -> float:
    """Mean over codes i of 1 − Σ_{j ≠ j*} I_ij² / ((f − 1) I_ij*²), where j* is the factor code i tells most about.

    Ridgeway and Mozer 2018, with I as in `mig`. Range [0, 1], higher is better: does each code depend on one
    factor only? A code that depends on two of f factors equally loses only 1 / (f − 1), so that values are high in
    general. A code without information (a constant one) counts as 0, as in Locatello et al. 2019: dead dimensions
    lower the mean. Duplicated codes cost nothing. With a single factor, any code with information has 1.
    """
    squares = _information(codes, factors, bins, discrete)[0] ** 2
    best = squares.max(axis=1)
    others = (squares.sum(axis=1) - best) / max(squares.shape[1] - 1, 1)
    return float(np.mean(np.where(best > 0, 1.0 - np.maximum(others, 0.0) / np.where(best > 0, best, 1.0), 0.0)))


def sap(
    codes: ArrayLike,
    factors: ArrayLike,
    *,
    discrete: Sequence[bool] | None = None,
    test: Pair | None = None,
    test_size: float = 1 / 3,
    seed: int = 0,
) -> float:
    """Separated attribute predictability: mean over factors of best minus second best score of a single code.

    Kumar et al. 2018. The score of a code for a continuous factor is their squared correlation; for a discrete factor
    it is the accuracy of a linear support vector machine (one class against the rest, squared hinge loss, C = 0.01,
    classes weighted by 1 / size), fitted on the training rows. Scores are taken on the test rows: those of `test`,
    else a share `test_size` drawn by the seed. Range [0, 1], higher is better: is each factor linear in one code
    only?

    1 for permuted continuous factors. Of a discrete factor the second best code still guesses the largest class, so
    that 1 − its share is the most there is: the identity has it for two and three evenly spaced values, and only 0.1
    to 0.2 for ten, as a line cannot part a class from those on both of its sides. 0 for duplicated and constant
    codes. A single code is compared with a constant one. C makes it depend, weakly, on scale and offset of the codes.
    """
    split = held_out(codes, factors, test, test_size, seed, "factors")
    flags = _flags(split, discrete)
    if split.codes.shape[1] == 1:
        split = split._replace(codes=_with_constant(split.codes), test_codes=_with_constant(split.test_codes))
    scores = np.empty((split.codes.shape[1], len(flags)))
    scores[:, ~flags] = _squared_correlations(split.test_codes, split.test_targets[:, ~flags])
    for j in map(int, np.flatnonzero(flags)):
        scores[:, j] = _single_code_accuracies(split, j)
    return float(np.mean(_gap(scores)))


def dci(
    codes: ArrayLike,
    factors: ArrayLike,
    *,
    model: Model = "forest",
    trees: int | None = None,
    discrete: Sequence[bool] | None = None,
    test: Pair | None = None,
    test_size: float = 1 / 3,
    seed: int = 0,
) -> DCI:
    """Disentanglement, completeness and informativeness, from the importance R_ij of code i for predicting factor j.

    Eastwood and Williams 2018. Disentanglement = Σ_i ρ_i (1 − H_f(R_i· / Σ_j R_ij)), with entropy in base f and ρ_i =
    the share of row i in all of R; completeness the same for columns, in base k; informativeness the mean over
    factors of the held-out score of the prediction (accuracy of a discrete factor, R² of a continuous one, which can
    be negative). The first two lie in [0, 1], higher is better: 1 if each code serves one factor, and one code serves
    each factor. Dead dimensions weigh nothing. Without any importance (a constant code) both are 0, and
    informativeness is chance. Trees share out an importance of one for every factor, also for one that no code tells
    of: such factors lower disentanglement.

    `model` is what predicts each factor from all codes on the training rows:
    - "forest", the default: 10 trees, leaves of at least 1% of the rows. R is the share of the impurity that a code's
      splits remove, as for
    - "boosting": 100 rounds of trees of depth 3, as in Locatello et al. 2019; an estimated four minutes for
      ten factors of ten values and 10,000 rows, where the forest takes four seconds.
    - "lasso": R is the absolute weight, codes and factors standardised, penalty 0.01; every factor counts as a
      number, and informativeness is R².

    `trees` is the number of trees, or of rounds. Rows are held out as in `sap`.
    """
    if model not in ("forest", "boosting", "lasso"):
        raise InputError(f"model must be 'forest', 'boosting' or 'lasso', not {model!r}")
    count = whole({"forest": 10, "boosting": 100}.get(model, 1) if trees is None else trees, "trees", 1)
    split = held_out(codes, factors, test, test_size, whole(seed, "seed", 0), "factors")
    flags = _flags(split, discrete)
    if model == "lasso":
        importance, scores = _lasso(split)
    else:
        importance, scores = np.empty((split.codes.shape[1], len(flags))), np.empty(len(flags))
        for j, flag in enumerate(flags):
            fitted = _trees(model, bool(flag), count, seed).fit(split.codes, split.targets[:, j])
            importance[:, j] = fitted.feature_importances_
            scores[j] = _score(split.test_targets[:, j], fitted.predict(split.test_codes), bool(flag))
    return DCI(_concentrated(importance), _concentrated(importance.T), float(scores.mean()), importance, scores)


def _information(
    codes: ArrayLike, factors: ArrayLike, bins: int, discrete: Sequence[bool] | None
) -> tuple[Array, Array]:
    a, b = paired(codes, factors, "factors")
    must_vary(b)
    whole(bins, "bins", 2)
    return mutual_information(binned(a, bins), factor_levels(b, which_discrete(b, discrete), bins))


def _flags(split: Split, discrete: Sequence[bool] | None) -> Flags:
    must_vary(split.targets)
    return which_discrete(np.concatenate([split.targets, split.test_targets]), discrete)


def _gap(scores: Array) -> Array:
    """Largest minus second largest entry of each column of [k, f]; a single row is compared with 0."""
    if len(scores) == 1:
        return scores[0]
    top = np.partition(scores, len(scores) - 2, axis=0)
    return top[-1] - top[-2]


def _with_constant(codes: Array) -> Array:
    return np.hstack([codes, np.zeros((len(codes), 1))])


def _squared_correlations(codes: Array, factors: Array) -> Array:
    """[k, f]; 0 where either is constant."""
    a, b = centred(codes), centred(factors)
    a, b = (x / np.where(np.abs(x).max(axis=0) > 0, np.abs(x).max(axis=0), 1.0) for x in (a, b))
    both = np.sum(a**2, axis=0)[:, None] * np.sum(b**2, axis=0)
    return np.where(both > 0, (a.T @ b) ** 2 / np.where(both > 0, both, 1.0), 0.0)


def _single_code_accuracies(split: Split, factor: int) -> Array:
    """Held-out accuracy of predicting one discrete factor from each code alone, [k]."""
    from sklearn.svm import LinearSVC

    truth, test_truth = split.targets[:, factor], split.test_targets[:, factor]
    scores = np.empty(split.codes.shape[1])
    for i in range(len(scores)):
        machine = LinearSVC(C=_PENALTY, class_weight="balanced", dual=False)
        machine.fit(split.codes[:, i : i + 1], truth)
        scores[i] = np.mean(machine.predict(split.test_codes[:, i : i + 1]) == test_truth)
    return scores


def _trees(model: Model, discrete: bool, count: int, seed: int) -> Any:
    from sklearn import ensemble

    if model == "boosting":
        boosting = ensemble.GradientBoostingClassifier if discrete else ensemble.GradientBoostingRegressor
        return boosting(n_estimators=count, random_state=seed)
    # every code may split every node: a random choice among few would give importance to what is irrelevant
    forest = ensemble.RandomForestClassifier if discrete else ensemble.RandomForestRegressor
    return forest(n_estimators=count, max_features=None, min_samples_leaf=_LEAF, random_state=seed)


def _lasso(split: Split) -> tuple[Array, Array]:
    """Absolute weights [k, f] and held-out R² [f] of sparse linear fits in units of the training rows' deviations."""
    from sklearn.linear_model import Lasso

    x, new = _standardised(split.codes, split.test_codes)
    y, truth = _standardised(split.targets, split.test_targets)
    fits = [Lasso(alpha=_PENALTY).fit(x, column) for column in y.T]
    predicted = np.stack([fit.predict(new) for fit in fits], axis=1)
    return np.abs(np.stack([fit.coef_ for fit in fits], axis=1)), held_out_r2(truth, predicted)


def _standardised(train: Array, test: Array) -> tuple[Array, Array]:
    mean, deviation = train.mean(axis=0), np.sqrt(np.mean(centred(train) ** 2, axis=0))
    scale = np.where(deviation > 0, deviation, np.inf)  # constant on the training rows: nothing to learn from
    return (train - mean) / scale, (test - mean) / scale


def _score(truth: Array, predicted: Array, discrete: bool) -> float:
    if discrete:
        return float(np.mean(truth == predicted))
    return float(held_out_r2(truth[:, None], predicted[:, None])[0])


def _concentrated(importance: Array) -> float:
    """Mean over rows, weighted by their sums, of 1 − entropy of the normalised row in base of its length."""
    sums = importance.sum(axis=1)
    total = float(sums.sum())
    if total <= 0:
        return 0.0
    share = importance / np.where(sums > 0, sums, 1.0)[:, None]
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=1)
    base = np.log(importance.shape[1]) if importance.shape[1] > 1 else 1.0
    return float(np.clip(sums @ (1.0 - entropy / base) / total, 0.0, 1.0))
