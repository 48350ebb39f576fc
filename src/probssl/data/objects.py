"""Data that a program has at hand: arrays, tensors, and torch data sets, as arrays and labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from probssl.data.directory import Progress
from probssl.errors import InputError


class Held(NamedTuple):
    """Rows [n, …] and, where they come with any, labels [n] and the names of classes that these are codes of."""

    name: str
    values: Any
    """An array, columns, or what `frames` reads."""
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    place: str = ""

    @property
    def where(self) -> str:
        """How errors speak of it."""
        return self.place or f"the {self.name}"


def hold(source: object, progress: Progress | None = None) -> Held:
    """An object as rows and labels; a frame stays what it is."""
    if isinstance(source, np.ndarray):
        return Held("array", source)
    if isinstance(source, list):
        try:
            return Held("array", np.asarray(source))
        except ValueError:
            raise InputError(
                "the rows of the list are not of one length: give every row the same number of values"
            ) from None
    if type(source).__module__.startswith("scipy.sparse"):
        raise InputError(f"the data is sparse ({type(source).__name__}): make it dense first, with .toarray()")
    if isinstance(source, tuple):
        if len(source) != 2:
            raise InputError(f"a tuple of data is (rows, labels), and this one has {len(source)} entries")
        rows = hold(source[0], progress)
        labels = _array(source[1])
        if labels.ndim != 1:
            raise InputError(f"the labels of the {rows.name} are of shape {labels.shape}: give one for every row")
        return rows._replace(labels=labels)
    torch = sys.modules.get("torch")
    if torch is not None:  # without it nothing can be a tensor
        if isinstance(source, torch.Tensor):
            return Held("tensor", _array(source))
        if isinstance(source, torch.utils.data.IterableDataset):
            raise InputError(
                f"{type(source).__name__} is an iterable data set, whose rows have no numbers: give a data set with "
                "__getitem__ and __len__, or an array of its rows"
            )
        if isinstance(source, torch.utils.data.Dataset):
            return _of_dataset(source, progress)
    return Held("frame", source)


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)


def _of_dataset(source: Any, progress: Progress | None) -> Held:
    """Every row of a map-style data set, one after the other, into one array."""
    called = type(source).__name__
    try:
        count = len(source)
    except TypeError:
        raise InputError(f"{called} has no length: give a data set with __getitem__ and __len__") from None
    if not count:
        raise InputError(f"{called} holds no rows: add some data")
    rows: np.ndarray | None = None
    labels: list[Any] = []
    for number in range(count):
        item = source[number]
        parts = tuple(item) if isinstance(item, (tuple, list)) else (item,)
        row = _pixels(parts[0]) if hasattr(parts[0], "convert") else _row(parts[0])
        if row is None or len(parts) > 2:
            raise InputError(f"row {number} of {called} should be x or (x, y) with x an array, a tensor or an image")
        if rows is None:
            rows = np.empty((count, *row.shape), row.dtype)
        elif row.shape != rows.shape[1:]:
            raise InputError(
                f"row {number} of {called} is of shape {row.shape} and row 0 of shape {rows.shape[1:]}: give rows of "
                "one shape"
            )
        rows[number] = row
        labels += [part.item() if hasattr(part, "item") else part for part in parts[1:]]
        if progress is not None:
            progress(number + 1, count)
    assert rows is not None
    if len(labels) not in (0, count):
        raise InputError(
            f"{called} has labels in {len(labels)} of its {count} rows: give one for every row or for none"
        )
    known = getattr(source, "classes", ())
    classes = tuple(map(str, known)) if isinstance(known, Sequence) and not isinstance(known, str) else ()
    return Held("dataset", rows, np.array(labels) if labels else None, classes)


def _row(x: Any) -> np.ndarray | None:
    try:
        row = _array(x)
    except (TypeError, ValueError):
        return None
    return row if row.dtype.kind in "biuf" and row.ndim else None


def _pixels(image: Any) -> np.ndarray:
    """An image of Pillow, as [channels, height, width]."""
    pixels = np.asarray(image if image.mode == "L" else image.convert("RGB"), np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
