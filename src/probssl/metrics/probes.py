"""Probes: how much of the labels a simple classifier reads off frozen representations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, label_codes, whole
from probssl.metrics._inputs import representations as checked
from probssl.metrics._neighbours import vote

Predict = Callable[[Array, NDArray[np.intp], Array], NDArray[np.intp]]
FittedOn = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True)
class Probe:
    """Held-out accuracy of a probe over several splits, with the protocol that produced it."""

    mean: float
    spread: float | None  # standard deviation over the splits (divided by their number); None where there is one
    scores: tuple[float, ...]
    protocol: str
    converged: bool = True


def linear_probe(
    representations: ArrayLike,
    labels: ArrayLike,
    *,
    fitted_on: FittedOn | None = None,
    splits: int = 5,
    test_size: float = 0.2,
    standardise: bool = False,
    iterations: int = 1000,
    solver: str = "lbfgs",
    seed: int = 0,
) -> Probe:
    """Held-out accuracy of a logistic regression on frozen representations.

    scikit-learn's LogisticRegression (L2 penalty, C = 1) with max_iter=iterations, otherwise its defaults,
    fitted on a stratified 80% and scored on the other 20%, over several seeded splits. Higher is better;
    range [0, 1], where the share of the largest class is what a constant code reaches.

    The default solver, L-BFGS, often runs out of iterations on badly scaled representations, and the
    accuracy then depends on their scale and offset: the protocol says in how many splits that happened.
    `standardise` scales each feature to mean 0 and variance 1 by the training rows (a slightly different
    penalty, many times faster); `solver="newton-cholesky"` reaches the optimum of the same loss when
    features times classes are few. `solver="whitened"` is L-BFGS on the same loss in coordinates that undo the
    covariance of the features: its result does not depend on their scale, and 200 iterations come nearer to the
    optimum than 1,000 of the default on badly scaled representations.

    Rows of a class with one member cannot be stratified: they join the training side of every split.
    With `fitted_on`, representations and labels of other rows, there are no splits: it is fitted on those and scored
    on all of these.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    whole(iterations, "iterations", 1)
    if solver not in ("lbfgs", "newton-cholesky", "whitened"):
        raise InputError(f"solver must be 'lbfgs', 'newton-cholesky' or 'whitened', not {solver!r}.")
    unfinished: list[object] = []

    def predict(x: Array, y: NDArray[np.intp], query: Array) -> NDArray[np.intp]:
        if solver == "whitened":
            from probssl.metrics._logistic import fit_whitened  # torch, which the other solvers do without

            fitted = fit_whitened(x, y, iterations)
            unfinished.extend([] if fitted.converged else [fitted])
            return fitted.predict(query)
        model = LogisticRegression(max_iter=iterations, solver=solver)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(x, y)
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            unfinished.append(model)
        return np.asarray(model.predict(query))

    scores, protocol = _scores(representations, labels, predict, fitted_on, splits, test_size, standardise, seed)
    how = f"logistic regression ({solver}, at most {iterations} iterations, C=1), {protocol}; "
    how += f"{len(unfinished)} of {len(scores)} fits stopped before converging" if unfinished else "all fits converged"
    return _probe(scores, how, not unfinished)


def knn_probe(
    representations: ArrayLike,
    labels: ArrayLike,
    *,
    neighbours: int = 5,
    fitted_on: FittedOn | None = None,
    splits: int = 5,
    test_size: float = 0.2,
    standardise: bool = False,
    seed: int = 0,
) -> Probe:
    """Held-out accuracy of a k-nearest-neighbour vote on frozen representations.

    Euclidean distance, equal votes, the splits of `linear_probe`, or as there the rows of `fitted_on`.
    Higher is better; range [0, 1]. Unchanged by rotation, translation and a common scale of the
    representations.
    """
    whole(neighbours, "neighbours", 1)

    def predict(x: Array, y: NDArray[np.intp], query: Array) -> NDArray[np.intp]:
        if neighbours > len(x):
            raise InputError(f"{neighbours} neighbours are more than the {len(x)} training rows of a split.")
        return vote(x, y, query, neighbours)

    scores, protocol = _scores(representations, labels, predict, fitted_on, splits, test_size, standardise, seed)
    return _probe(scores, f"{neighbours} nearest neighbours (Euclidean, equal votes), {protocol}", True)


def _probe(scores: list[float], protocol: str, converged: bool) -> Probe:
    spread = float(np.std(scores)) if len(scores) > 1 else None
    return Probe(float(np.mean(scores)), spread, tuple(scores), protocol, converged)


def _scores(
    representations: ArrayLike,
    labels: ArrayLike,
    predict: Predict,
    fitted_on: FittedOn | None,
    splits: int,
    test_size: float,
    standardise: bool,
    seed: int,
) -> tuple[list[float], str]:
    if fitted_on is None:
        return _held_out(representations, labels, predict, splits, test_size, standardise, seed)
    x, fitting = checked(representations), checked(fitted_on[0])
    if x.shape[1] != fitting.shape[1]:
        raise InputError(f"a probe needs the dimensions it was fitted in, {fitting.shape[1]}, not {x.shape[1]}.")
    y, _ = label_codes(np.concatenate([np.asarray(fitted_on[1]), np.asarray(labels)]), len(fitting) + len(x))
    fitted, judged = y[: len(fitting)], y[len(fitting) :]
    if len(np.unique(fitted)) < 2:
        raise InputError("a probe needs two classes among the rows that it is fitted on.")
    if standardise:
        fitting, x = _standardised(fitting, x)
    protocol = f"fitted on {len(fitting)} rows kept for it, accuracy on {len(x)} others"
    return [float(np.mean(predict(fitting, fitted, x) == judged))], protocol


def _standardised(train: Array, test: Array) -> tuple[Array, Array]:
    """Both with mean 0 and variance 1 by the training rows; what is constant there is only shifted."""
    constant = train.max(axis=0) == train.min(axis=0)
    mean, deviation = train.mean(axis=0), np.where(constant, 1.0, train.std(axis=0))
    return (train - mean) / deviation, (test - mean) / deviation


def _held_out(
    representations: ArrayLike,
    labels: ArrayLike,
    predict: Predict,
    splits: int,
    test_size: float,
    standardise: bool,
    seed: int,
) -> tuple[list[float], str]:
    """Accuracy on each held-out split, and the half of the protocol that both probes share."""
    from sklearn.model_selection import StratifiedShuffleSplit

    x = checked(representations)
    y, counts = label_codes(labels, len(x))
    whole(splits, "splits", 1)
    if not isinstance(test_size, int | float) or not 0 < test_size < 1:
        raise InputError(f"test_size must lie between 0 and 1, not {test_size!r}.")
    if np.sum(counts >= 2) < 2:
        raise InputError(f"a probe needs two classes with two or more rows each; class sizes are {_brief(counts)}.")
    alone = np.flatnonzero(counts[y] == 1)
    many = np.flatnonzero(counts[y] > 1)
    splitter = StratifiedShuffleSplit(splits, test_size=test_size, random_state=seed)
    scores = []
    try:
        pairs = list(splitter.split(many, y[many]))
    except ValueError:
        raise InputError(
            f"{len(many)} rows are too few for a stratified {_percent(test_size)} test split of "
            f"{int(np.sum(counts > 1))} classes."
        ) from None
    for inside, outside in pairs:
        train, test = np.concatenate([many[inside], alone]), many[outside]
        a, b = x[train], x[test]
        if standardise:
            a, b = _standardised(a, b)
        scores.append(float(np.mean(predict(a, y[train], b) == y[test])))
    protocol = (
        f"mean accuracy over {splits} stratified shuffle splits, "
        f"{_percent(1 - test_size)} train / {_percent(test_size)} test, {len(x)} rows in {len(counts)} classes, "
        f"{'standardised by the training rows' if standardise else 'features as given'}, seed {seed}"
    )
    if len(alone):
        protocol += f"; {len(alone)} single-member classes in training only"
    return scores, protocol


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _brief(counts: NDArray[np.intp]) -> str:
    shown = ", ".join(str(c) for c in counts[:5])
    return shown + (", ..." if len(counts) > 5 else "")
