"""A table: what a source becomes once it has been read and found whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from probssl.data.columns import generated_names, pick
from probssl.data.wording import listed, option, plural
from probssl.errors import InputError


@dataclass(frozen=True, eq=False)
class Table:
    """Observations in rows, real features in columns, and a class for every row where there are labels."""

    source: str
    """What the user wrote."""
    features: np.ndarray = field(repr=False)
    """float64 [n, d], finite."""
    feature_names: tuple[str, ...]
    labels: np.ndarray | None = field(default=None, repr=False)
    """int64 [n], codes into `classes`; None without labels."""
    classes: tuple[str, ...] = ()
    label_name: str | None = None
    trusted: bool = False
    """A published data set, used as it was published: constant columns included."""
    latents: np.ndarray | None = field(default=None, repr=False)
    """float64 [n, k], what each row was made from, where that is known: the truth that metrics compare with."""

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.shape[1] != len(self.feature_names):
            raise InputError(
                f"{self.source} has {plural(len(self.feature_names), 'feature name')} "
                f"for features of shape {self.features.shape}"
            )
        if self.labels is not None and self.labels.shape != (len(self.features),):
            raise InputError(
                f"{self.source} has labels of shape {self.labels.shape} for {plural(len(self.features), 'row')}"
            )
        if self.latents is not None and (self.latents.ndim != 2 or len(self.latents) != len(self.features)):
            raise InputError(
                f"{self.source} has latents of shape {self.latents.shape} for {plural(len(self.features), 'row')}"
            )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def n_features(self) -> int:
        """Number of feature columns, d."""
        return self.features.shape[1]


def select_features(table: Table, names: Sequence[str]) -> Table:
    """The table with these feature columns in this order: the columns a trained model expects.

    A table whose columns are called x0, x1, … for want of names needs only the right number of them.
    """
    named = table.feature_names != generated_names(table.n_features)
    chosen = pick(table.source, table.feature_names, names, named=named, rest=range(table.n_features))
    return replace(table, features=table.features[:, chosen], feature_names=tuple(names))


def check_trainable(table: Table, *, keep_constant: bool = False) -> None:
    """Raise `InputError` when nothing can be learnt from the table.

    It needs two rows and a feature. A constant column tells observations apart in no way and is most often a
    mistake, so it is refused unless `keep_constant` is set or the table is a published data set.
    """
    if table.n_features < 1:
        raise InputError(f"{table.source} has no feature left to train on: leave out fewer columns")
    if len(table) < 2:
        raise InputError(f"{table.source} has {plural(len(table), 'row')}, and training needs at least 2: add data")
    if keep_constant or table.trusted:
        return
    constant = np.flatnonzero(table.features.min(axis=0) == table.features.max(axis=0))
    if constant.size:
        names = [table.feature_names[index] for index in constant]
        raise InputError(
            f"{table.source} has {plural(len(names), 'column')} with one and the same value in every row, "
            f"{listed(names)}: leave such columns out with {option('--drop', names[0])}, "
            "or keep them with --keep-constant"
        )
