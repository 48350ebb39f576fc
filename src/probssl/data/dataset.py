"""One kind of data: rows by number, what one row looks like, and what is known beside the rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Union, get_args

import numpy as np

from probssl.data.wording import listed, plural, quoted
from probssl.errors import InputError
from probssl.layout import Layout

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["train", "test", "all"]
Index = Union["Tensor", np.ndarray, Sequence[int], slice]
"""Row numbers, a mask of rows, or a slice."""

HASHED_WHOLE = 2**26
"""Bytes up to which all of an array goes into the fingerprint; of larger ones, `HASHED_ROWS` evenly spaced rows do."""
HASHED_ROWS = 4096

_LABELS = ("labels", "classes", "label_name")
_BESIDE = ("labels", "latents", "ids", "groups", "test")
_WORDS = {"train": False, "test": True, "0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True, eq=False)
class Target:
    """What is known of rows beside their features, to judge representations by: classes, or numbers."""

    name: str
    values: np.ndarray = field(repr=False)
    """float64 [n]: numbers, or codes of `classes`; NaN where nobody knows."""
    classes: tuple[str, ...] = ()
    """Their names; none of numbers."""

    def take(self, rows: Any) -> Target:
        """Of these rows."""
        return replace(self, values=self.values[rows])


class Dataset(Protocol):
    """What everything downstream takes, whether its rows come from a table, images, series or a world."""

    @property
    def source(self) -> str:
        """What the user wrote; "array", "tensor", "frame" or "dataset" for objects."""

    @property
    def layout(self) -> Layout:
        """What one row is."""

    @property
    def labels(self) -> np.ndarray | None:
        """int64 [n], codes into `classes`, −1 where nobody knows: the first target of classes; None without one."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""

    @property
    def label_name(self) -> str | None:
        """What the labels are called."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """All that representations are judged by."""

    @property
    def latents(self) -> np.ndarray | None:
        """float64 [n, k], what each row was made from, where that is known."""

    @property
    def ids(self) -> np.ndarray | None:
        """[n], what each row is called; never a feature."""

    @property
    def groups(self) -> np.ndarray | None:
        """int64 [n], equal for rows that belong together."""

    @property
    def test(self) -> np.ndarray | None:
        """bool [n], the rows that training never sees; None if it may see all."""

    @property
    def fingerprint(self) -> str:
        """Equal for data sets of equal content, wherever they were read from."""

    def __len__(self) -> int: ...

    def batch(self, index: Index) -> Tensor:
        """Rows as they are: float64 [n, columns] of a table, with codes for levels and NaN for gaps; else pixels or
        values."""

    def rows(self, part: Part = "all") -> np.ndarray:
        """The numbers of all rows, of those for training, or of those for the test."""

    def take(self, rows: Index) -> Dataset:
        """The data set of these rows, in this order."""

    def with_test(self, test: float | str | os.PathLike[str] | Dataset | None, seed: int = 0) -> Dataset:
        """The data set with these rows set aside for the test."""


def is_dataset(data: object) -> bool:
    """Whether an object is a `Dataset`, by its layout."""
    return isinstance(getattr(data, "layout", None), Layout)


Self = TypeVar("Self", bound="Rows")


@dataclass(frozen=True, eq=False)
class Rows:
    """A `Dataset` whose rows lie in one array: a subclass adds the array as a field and overrides `values_field`."""

    source: str
    """What the user wrote."""
    _: KW_ONLY
    labels: np.ndarray | None = field(default=None, repr=False)
    """int64 [n], codes into `classes`, −1 where nobody knows: the first target of classes; None without one."""
    classes: tuple[str, ...] = ()
    """The names of the classes."""
    label_name: str | None = None
    """What the labels are called."""
    targets: tuple[Target, ...] = field(default=(), repr=False)
    """All that representations are judged by; the labels unless given, which they are unless those are given."""
    latents: np.ndarray | None = field(default=None, repr=False)
    """float64 [n, k], what each row was made from, where that is known: the truth that metrics compare with."""
    ids: np.ndarray | None = field(default=None, repr=False)
    """[n], what each row is called: an index, a column of identifiers, the names of files."""
    groups: np.ndarray | None = field(default=None, repr=False)
    """int64 [n], equal for rows that belong together."""
    test: np.ndarray | None = field(default=None, repr=False)
    """bool [n], the rows that training never sees; None if it may see all."""

    @property
    def values_field(self) -> str:
        """The name of the field that holds the rows."""
        raise NotImplementedError

    @property
    def layout(self) -> Layout:
        """What one row is."""
        raise NotImplementedError

    @property
    def values(self) -> np.ndarray:
        """The array of the rows."""
        return getattr(self, self.values_field)

    def __post_init__(self) -> None:
        of_classes = next((target for target in self.targets if target.classes), None)
        if self.targets and self.labels is None and of_classes is not None:
            codes = np.nan_to_num(of_classes.values, nan=-1).astype(np.int64)
            for name, value in zip(_LABELS, (codes, of_classes.classes, of_classes.name), strict=True):
                object.__setattr__(self, name, value)
        for name in _BESIDE:
            known = getattr(self, name)
            if known is not None and (known.ndim != 1 + (name == "latents") or len(known) != len(self)):
                raise InputError(
                    f"{self.source} has {name} of shape {known.shape} for {plural(len(self), 'row')}: "
                    "there must be one for every row"
                )
        if self.labels is not None and len(self.labels):
            low, high = int(self.labels.min()), int(self.labels.max())
            if not -1 <= low <= high < len(self.classes):
                wrong = low if low < -1 else high
                raise InputError(
                    f"{self.source} has a label {wrong}, where labels run from 0 to {len(self.classes) - 1}"
                )
        if self.labels is not None and not self.targets:
            values = np.where(self.labels < 0, np.nan, self.labels)
            object.__setattr__(self, "targets", (Target(self.label_name or "label", values, self.classes),))
        if any(len(target.values) != len(self) for target in self.targets):
            raise InputError(f"{self.source} needs one value of every target for each of {plural(len(self), 'row')}")
        if self.test is not None:
            mask = np.asarray(self.test, bool)
            object.__setattr__(self, "test", mask if mask.any() else None)

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, index: Index) -> Tensor:
        """Rows as they are; consecutive ones share the memory, or the mapped file, of the data set."""
        import torch

        chosen = self.values[_index(index)]
        return torch.from_numpy(chosen if chosen.flags.writeable else chosen.copy())

    def rows(self, part: Part = "all") -> np.ndarray:
        """The numbers of all rows, of those for training, or of those for the test, of which there may be none."""
        if part not in get_args(Part):
            raise InputError(f"the parts of {self.source} are {', '.join(get_args(Part))}, not {part!r}")
        if part == "all" or self.test is None:
            return np.arange(0 if part == "test" else len(self))
        return np.flatnonzero(self.test if part == "test" else ~self.test)

    def take(self: Self, rows: Index) -> Self:
        """The data set of these rows, in this order; consecutive ones share the memory of the data set."""
        chosen = _index(rows)
        known = {name: getattr(self, name) for name in (self.values_field, *_BESIDE)}
        beside: dict[str, Any] = {name: array[chosen] for name, array in known.items() if array is not None}
        return replace(self, **beside, targets=tuple(target.take(chosen) for target in self.targets))

    @cached_property
    def fingerprint(self) -> str:
        """Equal for data sets of equal content, wherever they were read from; names of rows do not count."""
        digest = hashlib.sha256(repr((self.layout, [target.classes for target in self.targets])).encode())
        beside = (*(target.values for target in self.targets), self.latents, self.groups, self.test)
        for array in (self.values, *beside):
            digest.update(repr(None if array is None else (array.dtype.str, array.shape)).encode())
            if array is not None:
                every = 1 if array.nbytes <= HASHED_WHOLE else max(1, len(array) // HASHED_ROWS)
                digest.update(np.ascontiguousarray(array[::every]).data)
        return digest.hexdigest()[:32]

    def with_test(self: Self, test: float | str | os.PathLike[str] | Dataset | None, seed: int = 0) -> Self:
        """The data set with these rows set aside for the test.

        test: a share of the rows, drawn from the seed: of every class alike where there are labels, and of whole
            groups where there are groups; 0 sets none aside. Or the name of a column, which says `test`, `true` or 1
            of the rows set aside and `train`, `false` or 0 of the others, and is a feature no longer. Or a second file
            or data set of the same columns or shape, whose rows are added; a test half that was there before is left
            out then. None changes nothing.
        """
        if test is None:
            return self
        share = share_of(test)
        if share is not None:
            return replace(self, test=self._drawn(share, seed))
        if isinstance(test, (str, os.PathLike)):
            test = self.read_alike(os.fspath(test))
        if isinstance(test, float) or not is_dataset(test):
            raise InputError(
                f"the test rows of {self.source} are a share of its rows, a column, a file or a data set, not "
                f"{type(test).__name__}"
            )
        return self._joined(test)

    def _drawn(self, share: float, seed: int) -> np.ndarray | None:
        if share == 0:
            return None
        if not 0 < share < 1:
            raise InputError(f"the share of test rows is at least 0 and less than 1, not {share:g}")
        generator, count = np.random.default_rng(seed), round(share * len(self))
        mask = np.zeros(len(self), bool)
        if self.groups is not None:
            sizes = np.unique(self.groups, return_counts=True)
            order = generator.permutation(len(sizes[0]))
            ends = np.cumsum(sizes[1][order])
            mask = np.isin(self.groups, sizes[0][order[: 1 + int(np.argmin(np.abs(ends - count)))]])
        else:
            mask[_spread(self.labels, len(self), count, generator)] = True
        if not 0 < mask.sum() < len(self):
            what = "" if self.groups is None else " of whole groups"
            raise InputError(
                f"{self.source} has {plural(len(self), 'row')}, of which no share of {share:g}{what} leaves rows for "
                "both training and test"
            )
        return mask

    def read_alike(self, source: str) -> Dataset:
        """A second file, read as this one was."""
        raise InputError(f"the test rows of {self.source} cannot be a file: give a share, a column or a data set")

    def _matched(self: Self, other: Dataset) -> Self:
        """Another data set in the layout of this one."""
        if not isinstance(other, type(self)) or other.layout != self.layout:
            raise InputError(
                f"{other.source} cannot be the test rows of {self.source}: it holds {other.layout.kind} of shape "
                f"{other.layout.shape}, not {self.layout.kind} of shape {self.layout.shape}"
            )
        return other

    def _joined(self: Self, other: Dataset) -> Self:
        mine, theirs = self.take(self.rows("train")), self._matched(other)
        targets = tuple(_both(one, theirs) for one in mine.targets)
        both: dict[str, Any] = {self.values_field: np.concatenate([mine.values, theirs.values])}
        for name in ("latents", "ids", "groups"):
            first, second = getattr(mine, name), getattr(theirs, name)
            if name == "groups" and first is not None and second is not None:
                second = second + first.max() + 1  # equal numbers in two files do not mean the same
            both[name] = None if first is None or second is None else np.concatenate([first, second])
        return replace(
            mine,
            labels=None,
            classes=(),
            label_name=None,
            targets=targets,
            test=np.repeat([False, True], [len(mine), len(theirs)]),
            **both,
        )


def _both(mine: Target, other: Dataset) -> Target:
    """A target of rows with that of others behind it, whose classes may be new."""
    theirs = next((target for target in other.targets if target.name == mine.name), None)
    if theirs is None and len(other.targets) == 1:
        theirs = other.targets[0]
    if theirs is None or bool(theirs.classes) != bool(mine.classes):
        kind = "classes" if mine.classes else "numbers"
        raise InputError(f"{other.source} has no {kind} {quoted(mine.name)} to test on: name them, or leave them out")
    classes, values = mine.classes, theirs.values
    if classes:
        classes += tuple(name for name in theirs.classes if name not in classes)
        codes = np.array([*(classes.index(name) for name in theirs.classes), np.nan])
        values = codes[np.nan_to_num(values, nan=-1).astype(np.int64)]
    return Target(mine.name, np.concatenate([mine.values, values]), classes)


def test_mask(cells: Sequence[str], name: str, where: str) -> np.ndarray:
    """The rows for the test, of a column that says so of each row."""
    said = [_WORDS.get(cell.strip().lower().removesuffix(".0")) for cell in cells]
    if None in said:
        wrong = cells[said.index(None)]
        raise InputError(
            f"{where}: column {quoted(name)} says {quoted(wrong)} in row {said.index(None) + 1}, where a column of "
            "test rows says train or test, false or true, or 0 or 1"
        )
    mask = np.array(said, bool)
    if mask.all() or not mask.any():
        raise InputError(f"{where}: column {quoted(name)} has no rows for {'training' if mask.all() else 'the test'}")
    return mask


test_mask.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for a test


def share_of(test: object) -> float | None:
    """A share of test rows; None of anything else."""
    if isinstance(test, Real) and not isinstance(test, bool):
        return float(test)
    try:
        return float(test) if isinstance(test, str) else None  # as a command line has it
    except ValueError:
        return None


def _index(index: Index) -> Any:
    """Row numbers, as a slice where they follow each other."""
    if isinstance(index, slice):
        return index
    rows = np.asarray(index.cpu() if hasattr(index, "cpu") else index)
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if rows.size == 0:
        return slice(0, 0)
    if rows[0] >= 0 and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _spread(labels: np.ndarray | None, rows: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """`count` rows, of every class about the same share where every class has two rows or more."""
    order = generator.permutation(rows)
    if labels is None:
        return order[:count]
    labels = labels - labels.min()  # rows without a label are a class of their own here
    sizes = np.bincount(labels)
    if sizes[sizes > 0].min() < 2:
        return order[:count]
    exact = count * sizes / rows
    taken = np.floor(exact).astype(int)
    taken[np.argsort(taken - exact, kind="stable")[: count - taken.sum()]] += 1
    return np.concatenate([order[labels[order] == code][:number] for code, number in enumerate(taken)])


def no_such_test(source: str, test: str, names: Sequence[str], hint: str) -> InputError:
    """What to say of test rows that are neither a column nor a file."""
    columns = f" no column {quoted(test)}, and there is" if names else ""
    known = f": its columns are {listed(list(names), 8)}" if names else ""
    return InputError(f"{source} has{columns} no file or data set {quoted(test)} to test on{known}{hint}")
