"""Factors of variation of three kinds, and what a reader of each has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probssl.errors import InputError
from probssl.metrics._inputs import Array, label_codes, positive

Kind = Literal["continuous", "periodic", "categorical"]


@dataclass(frozen=True, eq=False)
class Factor:
    """Values of a factor of variation, one a row, and their kind.

    `continuous` numbers; `periodic` ones, such as angles, that come back to themselves after a `period`; `categorical`
    ones, numbers or names. Where nothing is said, real numbers are continuous; whole numbers, truth values and names
    are categorical.
    """

    values: ArrayLike
    kind: Kind | None = None
    period: float = 2 * np.pi


Factors = Mapping[str, "ArrayLike | Factor"]


@dataclass(frozen=True, eq=False)
class Checked:
    """A factor ready to be read: [n] codes of categories, or [n, 1] numbers, or [n, 2] cosines and sines."""

    kind: Kind
    targets: NDArray[Any]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Checked:
        return Checked(self.kind, self.targets[rows])


def checked_factor(name: str, factor: ArrayLike | Factor, rows: int) -> Checked:
    """The factor, or an InputError that names it and says what is wrong."""
    given = factor if isinstance(factor, Factor) else Factor(factor)
    values = np.asarray(given.values)
    kind = given.kind or ("continuous" if values.dtype.kind == "f" else "categorical")
    if kind not in get_args(Kind):
        raise InputError(f"factor {name!r} must be continuous, periodic or categorical, not {kind!r}")
    if kind == "categorical":
        try:
            codes, counts = label_codes(values, rows)
        except InputError as error:
            raise InputError(f"factor {name!r}: {error}") from None
        varies = len(counts) > 1
        targets: NDArray[Any] = codes
    else:
        if values.shape != (rows,):
            raise InputError(f"factor {name!r} must have one value for each of {rows} rows, not shape {values.shape}")
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InputError(f"factor {name!r} is {kind} and must hold finite numbers")
        numbers: Array = values.astype(np.float64)[:, None]
        if kind == "periodic":
            angle = 2 * np.pi / positive(given.period, f"the period of {name!r}") * numbers
            numbers = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        varies, targets = bool(np.ptp(numbers, axis=0).any()), numbers
    if not varies:
        raise InputError(f"factor {name!r} is constant, so nothing can be learnt about it: leave it out")
    return Checked(kind, targets)


def alike(name: str, first: ArrayLike | Factor, second: ArrayLike | Factor) -> tuple[Factor, Factor]:
    """Both as factors of one kind, which either may say; an InputError where they say different ones."""
    sides = [side if isinstance(side, Factor) else Factor(side) for side in (first, second)]
    saying = [side for side in sides if side.kind is not None] or sides
    given = {f"{side.kind}{f' of {side.period:g}' if side.kind == 'periodic' else ''}" for side in saying}
    if len(given) > 1:
        kinds = " and ".join(sorted(given))
        raise InputError(f"factor {name!r} is {kinds}: say the same of the rows fitted on and of those judged")
    one, other = (Factor(side.values, saying[0].kind, saying[0].period) for side in sides)
    return one, other


def joined(first: Factor, second: Factor) -> Factor:
    """The values of the first and then those of the second, as one factor of the first's kind."""
    values = np.concatenate([np.asarray(first.values), np.asarray(second.values)])
    return Factor(values, first.kind, first.period)
