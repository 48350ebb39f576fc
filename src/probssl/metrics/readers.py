"""Readers with an honest penalty: of labels where few rows have one, and of numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, whole
from probssl.metrics._neighbours import nearest
from probssl.metrics._ridge import fit_ridge
from probssl.metrics._splits import FittedOn, Fold, Folds, Probe, check_lengths, folds, validation

DRAWS = 20
"""Times that rows with a label are drawn."""

MOST_LEVELS = 255
"""Most levels that gradient boosting takes for categories; the codes of more are numbers to it."""

_PENALTY = "penalty by leave-one-out"


@dataclass(frozen=True)
class NumberProbe:
    """How well numbers are predicted: `r2`, 1 − Σ(y − ŷ)²/Σ(y − ȳ)², and `error`, the mean of |y − ŷ|."""

    r2: Probe
    error: Probe


def few_probe(
    representations: ArrayLike,
    labels: ArrayLike,
    *,
    labelled: int = 60,
    draws: int = DRAWS,
    fitted_on: FittedOn | None = None,
    test_size: float = 0.2,
    seed: int = 0,
) -> Probe:
    """Held-out accuracy of a linear classifier that has seen the labels of a few rows.

    `labelled` of the rows to fit on are drawn, of every class its share to within one row, `draws` times; each draw has
    a split of its own, or with `fitted_on` draws from those rows and is judged by all of these. The classifier is the
    largest output of a ridge regression on indicators of the classes, whose penalty leave-one-out chooses on the
    labelled rows, in closed form. Higher is better; range [0, 1]. Unchanged by rotation, translation and a common scale
    of the representations.
    """
    found = folds(representations, labels, fitted_on, whole(draws, "draws", 1), test_size, False, seed)

    def right(fold: Fold) -> NDArray[np.bool_]:
        classes, codes = np.unique(fold.y, return_inverse=True)
        outputs = fit_ridge(fold.x, np.eye(len(classes))[codes]).predict(fold.judged)
        return classes[outputs.argmax(axis=1)] == fold.truth

    each = found.gathered([(fold, right(fold)) for fold in _drawn(found, labelled, draws, seed)])
    how = f"ridge classifier of {labelled} stratified labels, {draws} draws, {_PENALTY}, accuracy, {found.protocol}"
    return Probe.of_rows(each, how)


def number_probe(
    representations: ArrayLike,
    numbers: ArrayLike,
    *,
    neighbours: int | None = None,
    labelled: int | None = None,
    draws: int = DRAWS,
    fitted_on: FittedOn | None = None,
    splits: int = 5,
    test_size: float = 0.2,
    seed: int = 0,
) -> NumberProbe:
    """How well a ridge regression predicts a number from frozen representations, on held-out rows.

    Its penalty is chosen by leave-one-out on the rows it is fitted on. With `neighbours` the mean of the nearest rows,
    Euclidean, predicts instead; with `labelled` only so many rows have their number, drawn as in `few_probe`. Splits
    and `fitted_on` are those of `linear_probe`, but not stratified. R² lies in (−∞, 1], and the mean is 0.
    """
    count = splits if labelled is None else whole(draws, "draws", 1)
    found = folds(representations, numbers, fitted_on, count, test_size, False, seed, numbers=True)
    if neighbours is not None and whole(neighbours, "neighbours", 1) > (labelled or found.fitting):
        raise InputError(f"{neighbours} neighbours are more than the {labelled or found.fitting} rows to look among")

    def predict(fold: Fold) -> Array:
        if neighbours is None:
            return fit_ridge(fold.x, fold.y[:, None]).predict(fold.judged)[:, 0]
        near = nearest(fold.x, fold.judged, neighbours).reshape(len(fold.judged), -1)
        means: Array = fold.y[near].mean(axis=1)
        return means

    reader = f"ridge regression, {_PENALTY}" if neighbours is None else f"mean of {neighbours} nearest neighbours"
    each: Iterator[Fold] = iter(found)
    if labelled is not None:
        each, reader = _drawn(found, labelled, draws, seed), f"{reader}, {labelled} known numbers, {draws} draws"
    return _number_probe(found, [(fold, predict(fold)) for fold in each], reader)


def _number_probe(found: Folds, predicted: list[tuple[Fold, Array]], reader: str) -> NumberProbe:
    explained, missed = [], []
    for fold, said in predicted:
        variance = float(fold.truth.var())
        if not variance > 0:
            raise InputError("the numbers to predict are all equal")
        errors = fold.truth - said
        explained.append((fold, 1 - np.square(errors) / variance))
        missed.append((fold, np.abs(errors)))
    return NumberProbe(
        Probe.of_rows(found.gathered(explained), f"{reader}, R², {found.protocol}"),
        Probe.of_rows(found.gathered(missed), f"{reader}, mean absolute error, {found.protocol}"),
    )


def _drawn(found: Folds, labelled: int, draws: int, seed: int) -> Iterator[Fold]:
    """Folds of which a few rows have their target: a draw from each, or all draws from the only one."""
    if whole(labelled, "labelled", 2) > found.fitting - 2:
        raise InputError(f"{labelled} labels are too many to draw from {found.fitting} rows")
    each = found if len(found.pairs) > 1 else itertools.repeat(next(iter(found)), draws)
    for number, fold in enumerate(each):
        codes = fold.y if found.classes else np.zeros(len(fold.y), dtype=np.intp)
        _, chosen = validation(codes, seed + number, labelled / len(codes))
        yield dataclasses.replace(fold, x=fold.x[chosen], y=fold.y[chosen])


def boosting_probe(
    rows: ArrayLike,
    targets: ArrayLike,
    *,
    categorical: Sequence[int] = (),
    numbers: bool = False,
    fitted_on: FittedOn | None = None,
    test_size: float = 0.2,
    seed: int = 0,
) -> Probe | NumberProbe:
    """What gradient boosting reaches on rows as they are, gaps (NaN) and codes of levels among them: a ceiling.

    scikit-learn's HistGradientBoosting at its defaults, of labels or with `numbers` of numbers; the columns of
    `categorical` are categories. One split, or as in `linear_probe` the rows of `fitted_on`.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    judged = np.asarray(rows, dtype=np.float64)
    fitting = judged if fitted_on is None else np.asarray(fitted_on[0], dtype=np.float64)
    numbered = [np.arange(len(side), dtype=np.float64)[:, None] for side in (judged, fitting)]  # folds want finite rows
    apart = None if fitted_on is None else (numbered[1], fitted_on[1])
    check_lengths((targets, len(judged)))
    found = folds(numbered[0], targets, apart, 1, test_size, False, seed, numbers=numbers)
    few = [place for place in categorical if not np.nanmax(fitting[:, place], initial=0) >= MOST_LEVELS]
    kind: Callable[..., Any] = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
    fold = next(iter(found))
    model = kind(categorical_features=few or None, random_state=seed)
    model.fit(fitting[fold.x[:, 0].astype(np.intp)], fold.y)
    said = model.predict(judged[fold.judged[:, 0].astype(np.intp)])
    reader = "gradient boosting on the rows as they are"
    if numbers:
        return _number_probe(found, [(fold, said)], reader)
    return Probe.of_rows(found.gathered([(fold, said == fold.truth)]), f"{reader}, accuracy, {found.protocol}")
