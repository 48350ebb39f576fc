"""Rows to fit on and rows to judge by, with labels: the splits that all probes share, and who chooses on which rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, label_codes, whole
from probssl.metrics._inputs import representations as checked

FittedOn = tuple[ArrayLike, ArrayLike]

Selection = Literal["honest", "published"]
"""On which rows a probe makes its choices: `honest`, on a part of the rows it is fitted on; `published`, on the rows it
is judged by, as papers do, so that its number is a little too good."""

VALIDATION = 0.2
"""Share of the fitting rows on which an honest probe makes its choices."""


@dataclass(frozen=True)
class Probe:
    """A held-out score of a probe over several splits, an accuracy unless said otherwise, and how it came about.

    `mean` is over the splits' `scores`; `protocol` and `selection` say how it was fitted, and `converged` whether
    it was to the end.
    """

    mean: float
    spread: float | None  # standard deviation over the splits (divided by their number); None where there is one
    scores: tuple[float, ...]
    protocol: str
    converged: bool = True
    selection: Selection = "honest"
    chosen: tuple[int, ...] = ()  # what was chosen in each split (neighbours, epochs), where anything was
    each: Array | None = field(default=None, compare=False, repr=False)
    """[splits, rows]: what each row adds to the score of a split, which is their mean; NaN of rows not judged by."""

    @classmethod
    def of(
        cls,
        scores: list[float],
        protocol: str,
        *,
        converged: bool = True,
        selection: Selection = "honest",
        chosen: list[int] | None = None,
        each: Array | None = None,
    ) -> Probe:
        """Mean and spread of scores."""
        spread = float(np.std(scores)) if len(scores) > 1 else None
        picked = tuple(chosen or ())
        return cls(float(np.mean(scores)), spread, tuple(scores), protocol, converged, selection, picked, each)

    @classmethod
    def of_rows(cls, each: Array, protocol: str, **known: Any) -> Probe:
        """Of what each row adds in each split."""
        return cls.of([float(score) for score in np.nanmean(each, axis=1)], protocol, each=each, **known)


@dataclass(frozen=True, eq=False)
class Fold:
    """One split: representations and targets (codes of labels, or numbers) of the rows fitted on and judged by."""

    x: Array
    y: NDArray[Any]
    judged: Array
    truth: NDArray[Any]
    rows: NDArray[np.intp]
    """The places of the rows judged among all that are, in one split or another."""


@dataclass(frozen=True, eq=False)
class Folds:
    """All splits, each made when it is asked for, and the half of the protocol that says which rows they are."""

    x: Array
    y: NDArray[Any]
    pairs: list[tuple[NDArray[np.intp], NDArray[np.intp]]]
    standardise: bool
    protocol: str
    classes: int
    """How many there are; none of numbers."""
    apart: int = 0
    """How many rows come first that are only fitted on."""

    @property
    def fitting(self) -> int:
        """How many rows each is fitted on."""
        return len(self.pairs[0][0])

    def __iter__(self) -> Iterator[Fold]:
        for inside, outside in self.pairs:
            fitting, judged = self.x[inside], self.x[outside]
            if self.standardise:
                fitting, judged = standardised(fitting, judged)
            yield Fold(fitting, self.y[inside], judged, self.y[outside], outside - self.apart)

    def gathered(self, each: list[tuple[Fold, NDArray[Any]]]) -> Array:
        """What each row judged in each fold adds, as `Probe.each` has it."""
        found = np.full((len(each), len(self.x) - self.apart), np.nan)
        for place, (fold, values) in enumerate(each):
            found[place, fold.rows] = values
        return found


def folds(
    representations: ArrayLike,
    targets: ArrayLike,
    fitted_on: FittedOn | None,
    splits: int,
    test_size: float,
    standardise: bool,
    seed: int,
    *,
    numbers: bool = False,
) -> Folds:
    """Shuffle splits of the rows; with `fitted_on`, one split: those rows, and all of these to judge by.

    The targets are labels, and splits are stratified by them, or numbers.
    """
    if fitted_on is None:
        return _shuffled(representations, targets, splits, test_size, standardise, seed, numbers)
    x, fitting = checked(representations), checked(fitted_on[0])
    if x.shape[1] != fitting.shape[1]:
        raise InputError(f"a probe needs the dimensions it was fitted in, {fitting.shape[1]}, not {x.shape[1]}")
    rows = len(fitting) + len(x)
    check_lengths((fitted_on[1], len(fitting)), (targets, len(x)))
    y, counts = _codes(np.concatenate([np.asarray(fitted_on[1]), np.asarray(targets)]), rows, numbers)
    if not numbers and len(np.unique(y[: len(fitting)])) < 2:
        raise InputError("a probe needs two classes among the rows that it is fitted on")
    pairs = [(np.arange(len(fitting)), np.arange(len(fitting), rows))]
    scaled = ", standardised by the former" if standardise else ""
    protocol = f"fitted on {len(fitting)} rows kept for it, judged by {len(x)} others{scaled}"
    return Folds(np.concatenate([fitting, x]), y, pairs, standardise, protocol, len(counts), len(fitting))


def _codes(targets: ArrayLike, rows: int, numbers: bool) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Codes of labels and sizes of classes; of numbers, the numbers, which have no classes."""
    if not numbers:
        return label_codes(targets, rows)
    check_lengths((targets, rows))
    return checked(np.reshape(targets, (rows, 1)), "the numbers to predict")[:, 0], np.zeros(0, dtype=np.intp)


def check_lengths(*sides: tuple[ArrayLike, int]) -> None:
    """Refuse labels or numbers that are not as many as their rows, before sides are joined."""
    for labels, rows in sides:
        if np.shape(labels)[:1] != (rows,):
            raise InputError(f"there must be one label for each of {rows} rows, not labels of shape {np.shape(labels)}")


def _shuffled(
    representations: ArrayLike,
    targets: ArrayLike,
    splits: int,
    test_size: float,
    standardise: bool,
    seed: int,
    numbers: bool,
) -> Folds:
    from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

    x = checked(representations)
    y, counts = _codes(targets, len(x), numbers)
    whole(splits, "splits", 1)
    whole(seed, "seed", 0)
    if not isinstance(test_size, int | float) or not 0 < test_size < 1:
        raise InputError(f"test_size must lie between 0 and 1, not {test_size!r}")
    scaled = "standardised by the training rows" if standardise else "features as given"
    sides = f"{percent(1 - test_size)} train / {percent(test_size)} test, {len(x)} rows"
    if numbers:
        if len(x) < 5:
            raise InputError(f"{len(x)} rows are too few to fit on and to judge by: there must be 5")
        pairs = list(ShuffleSplit(splits, test_size=max(2, round(test_size * len(x))), random_state=seed).split(x))
        return Folds(x, y, pairs, standardise, f"mean over {splits} shuffle splits, {sides}, {scaled}, seed {seed}", 0)
    if np.sum(counts >= 2) < 2:
        raise InputError(f"a probe needs two classes with two or more rows each; class sizes are {_brief(counts)}")
    alone = np.flatnonzero(counts[y] == 1)
    many = np.flatnonzero(counts[y] > 1)
    splitter = StratifiedShuffleSplit(splits, test_size=test_size, random_state=seed)
    try:
        found = list(splitter.split(many, y[many]))
    except ValueError:
        raise InputError(
            f"{len(many)} rows are too few for a stratified {percent(test_size)} test split of "
            f"{int(np.sum(counts > 1))} classes"
        ) from None
    pairs = [(np.concatenate([many[inside], alone]), many[outside]) for inside, outside in found]
    protocol = f"mean over {splits} stratified shuffle splits, {sides} in {len(counts)} classes, {scaled}, seed {seed}"
    if len(alone):
        protocol += f"; {len(alone)} single-member classes in training only"
    return Folds(x, y, pairs, standardise, protocol, len(counts))


def standardised(train: Array, test: Array) -> tuple[Array, Array]:
    """Both with mean 0 and variance 1 by the training rows; what is constant there is only shifted."""
    constant = train.max(axis=0) == train.min(axis=0)
    mean, deviation = train.mean(axis=0), np.where(constant, 1.0, train.std(axis=0))
    return (train - mean) / deviation, (test - mean) / deviation


def validation(y: NDArray[np.intp], seed: int, share: float = VALIDATION) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows to fit on and, as near to stratified as whole rows allow, a share of them all to choose by.

    The i-th of the n_c rows of class c, in random order, has place (i + u_c) / n_c, u_c uniform, and the rows with the
    least places are chosen: each class gives its share to within one row, and exactly round(share · n) rows go. Rows
    alone in their class go last.
    """
    count = max(1, round(share * len(y)))
    if len(y) - count < 2:
        raise InputError(f"{len(y)} rows are too few to fit on and to choose by")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(y))
    order = shuffled[np.argsort(y[shuffled], kind="stable")]  # class by class, in random order within each
    sizes = np.bincount(y)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = (np.arange(len(y)) - first + np.repeat(rng.uniform(size=len(sizes)), sizes)) / np.repeat(sizes, sizes)
    place[np.repeat(sizes, sizes) == 1] += 1.0
    order = order[np.argsort(place, kind="stable")]
    return np.sort(order[count:]), np.sort(order[:count])


def chosen_selection(protocol: object) -> Selection:
    """A name of a protocol, else an InputError."""
    if protocol not in get_args(Selection):
        raise InputError(f"the protocol must be 'honest' or 'published', not {protocol!r}")
    return protocol  # type: ignore[return-value]


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _brief(counts: NDArray[np.intp]) -> str:
    shown = ", ".join(str(c) for c in counts[:5])
    return shown + (", ..." if len(counts) > 5 else "")
