"""Disentanglement by intervention: fix one factor, vary the others, and ask the codes which one it was.

Sources: Higgins et al. 2017 (BetaVAE), Kim and Mnih 2018 (FactorVAE); constants of Locatello et al. 2019. A world is
two functions: `draw(count, rng)` gives factors [count, f], `encode(factors)` their codes [count, k]. A factor is
fixed by overwriting its column, which leaves the others as they should be only where the factors are independent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, label_codes, representations, whole

Draw = Callable[[int, np.random.Generator], ArrayLike]
Encode = Callable[[NDArray[Any]], ArrayLike]
Indices = NDArray[np.intp]

_ROWS = 65_536  # codes made at a time


def beta_vae(
    draw: Draw, encode: Encode, *, train: int = 10_000, test: int = 5_000, batch: int = 64, seed: int = 0
) -> float:
    """BetaVAE score: held-out accuracy of a linear classifier that tells which factor two groups of rows share.

    Higgins et al. 2017. One point: draw a factor j, then `batch` pairs of rows that agree in factor j
    and are otherwise independent; the feature is the mean over pairs of |code − code'| [k], the label j. Multinomial
    logistic regression (C = 1) on `train` points, accuracy on `test` further ones. Range [0, 1], chance is 1/f; 1 for
    permuted, duplicated and dead dimensions. It asks little: a generic rotation also scores high, as its differences
    still show which factor is fixed; only one that mixes all factors equally, or a constant code, is at chance. C
    makes it depend, weakly, on the scale of codes.
    """
    rng = np.random.default_rng(whole(seed, "seed", 0))
    whole(batch, "batch", 1)
    points = [_differences(draw, encode, whole(count, "points", 1), batch, rng) for count in (train, test)]
    return beta_vae_accuracy(*points[0], *points[1])


def factor_vae(
    draw: Draw,
    encode: Encode,
    *,
    train: int = 10_000,
    test: int = 5_000,
    batch: int = 64,
    scale_rows: int = 10_000,
    least_deviation: float = 0.0,
    seed: int = 0,
) -> float:
    """FactorVAE score: held-out accuracy of a majority vote on which factor the least varying code stands for.

    Kim and Mnih 2018. One point: draw a factor j and one value of it, then `batch` rows with that value;
    the code whose variance over them is the smallest share of its variance over `scale_rows` free rows votes for j.
    Each code stands for the factor it was most often paired with on `train` points; the score is the accuracy of that
    on `test` further ones. Codes whose deviation over free rows is not above `least_deviation` are left out (constant
    ones always).

    Range [0, 1]; 1 for permuted, duplicated and dead dimensions, about 1/f for unrelated codes and for rotations that
    mix all factors equally, 0 by convention if every code is left out. Unchanged by the scale of each code if
    `least_deviation` is 0.
    """
    rng = np.random.default_rng(whole(seed, "seed", 0))
    rows = drawn(draw, whole(scale_rows, "scale_rows", 2), rng)
    variances = variance(encoded(encode, rows)[None])[0]
    return factor_vae_at_scale(draw, encode, variances, train, test, batch, least_deviation, rng)


def factor_vae_at_scale(
    draw: Draw,
    encode: Encode,
    scale: Array,
    train: int,
    test: int,
    batch: int,
    least_deviation: float,
    rng: np.random.Generator,
) -> float:
    """`factor_vae` where the variances [k] of the codes over free rows are known."""
    whole(batch, "batch", 2)
    points = [_variances(draw, encode, whole(count, "points", 1), batch, rng) for count in (train, test)]
    return factor_vae_accuracy(*points[0], *points[1], scale, least_deviation=least_deviation)


def beta_vae_accuracy(
    differences: ArrayLike, fixed: ArrayLike, test_differences: ArrayLike, test_fixed: ArrayLike
) -> float:
    """The classifier of `beta_vae` on given points: mean differences [n, k], and which factor was fixed [n]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x, new = representations(differences, "differences"), representations(test_differences, "test differences")
    label_codes(fixed, len(x))
    label_codes(test_fixed, len(new))
    y, truth = np.asarray(fixed), np.asarray(test_fixed)
    if len(np.unique(y)) < 2:
        raise InputError("only one factor was ever fixed: the score needs two factors and enough points to see both")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable points: the accuracy is settled long before
        model = LogisticRegression(max_iter=1000).fit(x, y)
    return float(np.mean(model.predict(new) == truth))


def factor_vae_accuracy(
    variances: ArrayLike,
    fixed: ArrayLike,
    test_variances: ArrayLike,
    test_fixed: ArrayLike,
    scale: ArrayLike,
    *,
    least_deviation: float = 0.0,
) -> float:
    """The vote of `factor_vae` on given points: variances [n, k] with one factor fixed and [k] with none."""
    local, new = representations(variances, "variances"), representations(test_variances, "test variances")
    y, truth = _numbers(fixed, len(local)), _numbers(test_fixed, len(new))
    free = representations(np.asarray(scale)[None], "scale")[0]
    if not local.shape[1] == new.shape[1] == len(free):
        raise InputError(f"variances of {local.shape[1]}, {new.shape[1]} and {len(free)} codes do not belong together")
    alive = (free > 0) & (np.sqrt(np.maximum(free, 0.0)) > least_deviation)
    if not alive.any():
        return 0.0
    factors = int(max(y.max(), truth.max())) + 1
    votes = np.zeros((int(alive.sum()), factors), dtype=np.intp)
    np.add.at(votes, (np.argmin(local[:, alive] / free[alive], axis=1), y), 1)
    stands_for = votes.argmax(axis=1)
    return float(np.mean(stands_for[np.argmin(new[:, alive] / free[alive], axis=1)] == truth))


def drawn(draw: Draw, count: int, rng: np.random.Generator) -> NDArray[Any]:
    """`count` rows of factors, checked and copied, whole numbers as they are."""
    factors = np.array(draw(count, rng))
    representations(factors, "the drawn factors")
    if len(factors) != count:
        raise InputError(f"draw was asked for {count} rows of factors and gave {len(factors)}")
    return factors


def encoded(encode: Encode, factors: NDArray[Any]) -> Array:
    """The codes of all rows, made some rows at a time."""
    parts = []
    for start in range(0, len(factors), _ROWS):
        some = factors[start : start + _ROWS]
        codes = representations(encode(some), "the codes")
        if len(codes) != len(some):
            raise InputError(f"encode was given {len(some)} rows of factors and returned {len(codes)} codes")
        parts.append(codes)
    return np.concatenate(parts)


def variance(codes: Array) -> Array:
    """Variances over the rows of codes [p, n, k] with n − 1 below: [p, k], exactly 0 for constant columns."""
    moved = codes - codes.mean(axis=1, keepdims=True)
    still = codes.max(axis=1) == codes.min(axis=1)
    return np.where(still, 0.0, np.einsum("pnk,pnk->pk", moved, moved) / max(codes.shape[1] - 1, 1))


def _differences(
    draw: Draw, encode: Encode, points: int, batch: int, rng: np.random.Generator
) -> tuple[Array, Indices]:
    features, labels = [], []
    for count in _counts(points, 2 * batch):
        rows = drawn(draw, 2 * count * batch, rng).reshape(2, count, batch, -1)
        each, fixed = np.arange(count), _which(rows.shape[-1], count, rng)
        rows[1, each, :, fixed] = rows[0, each, :, fixed]
        codes = encoded(encode, rows.reshape(-1, rows.shape[-1])).reshape(2, count, batch, -1)
        features.append(np.abs(codes[0] - codes[1]).mean(axis=1))
        labels.append(fixed)
    return np.concatenate(features), np.concatenate(labels)


def _variances(draw: Draw, encode: Encode, points: int, batch: int, rng: np.random.Generator) -> tuple[Array, Indices]:
    features, labels = [], []
    for count in _counts(points, batch):
        rows = drawn(draw, count * batch, rng).reshape(count, batch, -1)
        each, fixed = np.arange(count), _which(rows.shape[-1], count, rng)
        rows[each, :, fixed] = rows[each, 0, fixed][:, None]
        codes = encoded(encode, rows.reshape(-1, rows.shape[-1])).reshape(count, batch, -1)
        features.append(variance(codes))
        labels.append(fixed)
    return np.concatenate(features), np.concatenate(labels)


def _counts(points: int, rows_each: int) -> Iterator[int]:
    """How many points to make at a time, so that no more than _ROWS rows are made at once where that can be."""
    most = max(_ROWS // rows_each, 1)
    for start in range(0, points, most):
        yield min(most, points - start)


def _which(factors: int, count: int, rng: np.random.Generator) -> Indices:
    if factors < 2:
        raise InputError("fixing one factor and varying the others needs at least two factors")
    return rng.integers(factors, size=count)


def _numbers(fixed: ArrayLike, rows: int) -> Indices:
    label_codes(fixed, rows)
    array = np.asarray(fixed)
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise InputError("give the factor that was fixed by its number, from 0")
    return array.astype(np.intp)
