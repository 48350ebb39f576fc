"""Probes: how much of the labels a simple classifier reads off frozen representations.

Whatever a probe chooses (how many neighbours, which epoch, which cluster is which class) it chooses by one of two
protocols, and its `Probe` says by which: `honest`, on a part of the rows that it is fitted on, so that the rows that it
is judged by are looked at once; or `published`, on the rows that it is judged by. SimVAE reports the best of 15
neighbourhoods (A.7.5) and, in its code, the best of 200 epochs on the test set: a number of that kind compares with no
other, and is here to be set beside the paper's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, positive, whole
from probssl.metrics._neighbours import votes
from probssl.metrics._splits import (
    VALIDATION,
    FittedOn,
    Fold,
    Probe,
    Selection,
    chosen_selection,
    folds,
    percent,
    validation,
)
from probssl.metrics.clusters import GMMProbe, clustering_scores, gmm_probe

__all__ = ["GMMProbe", "Probe", "Selection", "clustering_scores", "gmm_probe", "knn_probe", "linear_probe", "mlp_probe"]

Predict = Callable[[Array, NDArray[np.intp], Array], NDArray[np.intp]]

CHOOSING = 2000
"""Most rows on which a number of neighbours is chosen."""

PATIENCE = 20
"""Epochs without a smaller validation loss after which an honest network is no longer trained."""


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
    range [0, 1], where the share of the largest class is what a constant code reaches. Nothing is chosen.

    The default solver, L-BFGS, often runs out of iterations on badly scaled representations, and the
    accuracy then depends on their scale and offset: the protocol says in how many splits that happened.
    `standardise` scales each feature to mean 0 and variance 1 by the training rows (a slightly different
    penalty, many times faster); `solver="newton-cholesky"` reaches the optimum of the same loss when
    features times classes are few. `solver="whitened"` is L-BFGS on the same loss in coordinates that undo the
    covariance of the features: its result does not depend on their scale, and 200 iterations come nearer to the
    optimum than 1,000 of the default on badly scaled representations.

    Rows of a class with one member cannot be stratified: they join the training side of every split.
    With `fitted_on`, representations and labels of other rows, there are no splits: it is fitted on those and scored
    on all of these. SimVAE's linear probe, a layer trained by Adam, is `mlp_probe(..., hidden=0)`.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    whole(iterations, "iterations", 1)
    if solver not in ("lbfgs", "newton-cholesky", "whitened"):
        raise InputError(f"solver must be 'lbfgs', 'newton-cholesky' or 'whitened', not {solver!r}")
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

    found = folds(representations, labels, fitted_on, splits, test_size, standardise, seed)
    each = found.gathered([(fold, predict(fold.x, fold.y, fold.judged) == fold.truth) for fold in found])
    how = f"logistic regression ({solver}, at most {iterations} iterations, C=1), accuracy, {found.protocol}; "
    how += f"{len(unfinished)} of {len(each)} fits stopped before converging" if unfinished else "all fits converged"
    return Probe.of_rows(each, how, converged=not unfinished)


def knn_probe(
    representations: ArrayLike,
    labels: ArrayLike,
    *,
    neighbours: int | Sequence[int] = 5,
    protocol: Selection = "honest",
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

    Of several `neighbours`, such as `range(1, 16)` in SimVAE, one is chosen in each split (`Probe.chosen`; of equals
    the smallest): by the protocol `honest` that with the best accuracy on a fifth of the fitting rows, at most 2,000,
    by the vote of the rest; by `published` that with the best accuracy on the rows judged. Distances are computed once
    for all.
    """
    counts = [neighbours] if isinstance(neighbours, int | np.integer) else list(neighbours)
    if not counts:
        raise InputError("neighbours must be one number or several, and there is none")
    counts = sorted({whole(count, "neighbours", 1) for count in counts})
    selection = chosen_selection(protocol) if len(counts) > 1 else "honest"

    def tallied(x: Array, y: NDArray[np.intp], query: Array, among: list[int]) -> NDArray[np.intp]:
        if among[-1] > len(x):
            raise InputError(f"{among[-1]} neighbours are more than the {len(x)} training rows of a split")
        return votes(x, y, query, among)

    def share(rows: int) -> float:
        return min(VALIDATION, CHOOSING / rows)

    def judge(fold: Fold, index: int) -> tuple[NDArray[np.bool_], int]:
        if selection == "honest" and len(counts) > 1:
            inside, outside = validation(fold.y, seed + index, share(len(fold.y)))
            said = tallied(fold.x[inside], fold.y[inside], fold.x[outside], counts)
            count = counts[int(np.argmax((said == fold.y[outside]).mean(axis=1)))]
            return tallied(fold.x, fold.y, fold.judged, [count])[0] == fold.truth, count
        right = tallied(fold.x, fold.y, fold.judged, counts) == fold.truth
        best = int(np.argmax(right.mean(axis=1)))
        return right[best], counts[best]

    found = folds(representations, labels, fitted_on, splits, test_size, standardise, seed)
    judged = [(fold, *judge(fold, index)) for index, fold in enumerate(found)]
    how, chosen = f"{counts[0]} nearest neighbours", [count for *_, count in judged]
    if len(counts) > 1:
        where = f"{percent(share(found.fitting))} of the fitting rows" if selection == "honest" else "the rows judged"
        how = f"nearest neighbours, k = {_listed(chosen)} ({selection}: chosen of {_ranged(counts)} on {where})"
    return Probe.of_rows(
        found.gathered([(fold, right) for fold, right, _ in judged]),
        f"{how}, Euclidean, equal votes, accuracy, {found.protocol}",
        selection=selection,
        chosen=chosen if len(counts) > 1 else None,
    )


def mlp_probe(
    representations: ArrayLike,
    labels: ArrayLike,
    *,
    hidden: int | None = None,
    protocol: Selection = "honest",
    fitted_on: FittedOn | None = None,
    splits: int = 5,
    test_size: float = 0.2,
    standardise: bool | None = None,
    epochs: int = 200,
    lr: float | None = None,
    batch_size: int = 128,
    seed: int = 0,
) -> Probe:
    """Held-out accuracy of a network with one hidden layer of ReLUs, trained by Adam on frozen representations.

    Splits as in `linear_probe`, trained as one. Higher is better; range [0, 1]. The epoch is chosen (`Probe.chosen`).

    - `honest`: that with the least cross-entropy on a fifth of the fitting rows, 20 epochs after which training stops.
      128 units, a rate of 1e-3 and standardised features unless told otherwise: whatever the scale of a
      representation, what it holds can be read.
    - `published`: that with the best accuracy on the rows judged, of 200, as in SimVAE (A.7.5: two layers, ReLU, Adam
      at 3e-4, batches of 128; its code: as many units as features, features as given, the best epoch on the test set).

    `hidden=0` leaves the hidden layer out: SimVAE's linear probe. Batches have at most an eighth of the rows.
    """
    from probssl.metrics._networks import Schedule, fit_networks

    published = chosen_selection(protocol) == "published"
    standardise = not published if standardise is None else standardise
    rate = (3e-4 if published else 1e-3) if lr is None else positive(lr, "lr")
    found = folds(representations, labels, fitted_on, splits, test_size, standardise, seed)
    width = whole((found.x.shape[1] if published else 128) if hidden is None else hidden, "hidden", 0)
    schedule = Schedule(
        width,
        rate,
        whole(epochs, "epochs", 1),
        whole(batch_size, "batch_size", 1),
        None if published else PATIENCE,
        "errors" if published else "loss",
    )
    each = list(found)
    truth = np.stack([fold.truth for fold in each])
    judged = np.stack([fold.judged for fold in each])
    x, y, choosing = np.stack([fold.x for fold in each]), np.stack([fold.y for fold in each]), (judged, truth)
    if not published:
        rows = [validation(fold.y, seed + index) for index, fold in enumerate(each)]
        inside, outside = (np.stack(side) for side in zip(*rows, strict=True))
        at = np.arange(len(each))[:, None]
        (x, y), choosing = (x[at, inside], y[at, inside]), (x[at, outside], y[at, outside])
    fitted = fit_networks(x, y, choosing, judged, found.classes, schedule, seed)
    scores = [float(right) for right in (fitted.outputs.argmax(axis=2) == truth).mean(axis=1)]
    where = "the rows judged" if published else f"{percent(VALIDATION)} of the fitting rows"
    network = f"a hidden layer of {width}" if width else "a linear layer"
    how = (
        f"{network} (Adam at {rate:g}, batches of {batch_size}), {protocol}: epoch {_listed(fitted.epochs)} "
        f"of at most {epochs} chosen on {where}, accuracy, {found.protocol}"
    )
    return Probe.of(scores, how, converged=fitted.stopped, selection=protocol, chosen=list(fitted.epochs))


def _listed(numbers: Sequence[int]) -> str:
    """Numbers with commas between them, or the one that all are."""
    return ", ".join(str(number) for number in (numbers if len(set(numbers)) > 1 else numbers[:1]))


def _ranged(counts: list[int]) -> str:
    """1 to 15, or all of them where some between are left out."""
    gapless = counts[-1] - counts[0] == len(counts) - 1
    return f"{counts[0]} to {counts[-1]}" if gapless else _listed(counts)
