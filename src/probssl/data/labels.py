"""Labels: from the cells of a column to integer codes and the names of classes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from probssl.data.wording import plural, quoted
from probssl.errors import InputError

MOST_CLASSES = 50
"""A label with at most this many distinct values is always taken as classes."""


def encode(cells: Sequence[str], name: str, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes int64 [n] into the sorted classes, and the classes.

    Classes that are all numbers sort as numbers and are named in their shortest form, so that `1`, `1.0` and
    `1e0` are one class whatever the file format; zero-padded codes such as `007` stay text.
    """
    distinct = list(dict.fromkeys(cells))
    numbers = _as_numbers(distinct)
    if numbers is None:
        classes = tuple(sorted(distinct))
        rank = {text: code for code, text in enumerate(classes)}
    else:
        values = sorted(set(numbers))
        order = {value: code for code, value in enumerate(values)}
        classes = tuple(_shortest(value) for value in values)
        rank = {text: order[value] for text, value in zip(distinct, numbers, strict=True)}
    fractional = numbers is not None and any(value != int(value) for value in numbers)
    limit = MOST_CLASSES if fractional else max(MOST_CLASSES, len(cells) // 2)
    if len(classes) > limit:
        raise InputError(
            f"{where}: label column {quoted(name)} has {len(classes):,} distinct values in "
            f"{plural(len(cells), 'row')}, so it looks continuous or like an identifier rather than a class: "
            "group its values into classes first, or name another column"
        )
    return np.fromiter(map(rank.__getitem__, cells), np.int64, len(cells)), classes


def _as_numbers(texts: Sequence[str]) -> list[int | float] | None:
    """The texts as finite numbers, or None when one of them is not."""
    numbers: list[int | float] = []
    for text in texts:
        if "_" in text or re.match(r"[+-]?0\d", text):
            return None
        try:
            numbers.append(int(text))
        except ValueError:
            try:
                number = float(text)
            except ValueError:
                return None
            if not np.isfinite(number):
                return None
            numbers.append(number)
    return numbers


def _shortest(value: int | float) -> str:
    return str(int(value)) if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15) else repr(value)
