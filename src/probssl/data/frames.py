"""Frames of pandas, polars, Arrow and others, by way of narwhals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probssl.data.columns import Columns
from probssl.data.files import arrow_of
from probssl.data.wording import quoted
from probssl.errors import InputError

if TYPE_CHECKING:
    import pyarrow


def open_frame(source: object, where: str) -> Columns | None:
    """The columns of a frame of any library that narwhals knows; None of other objects."""
    import narwhals as nw

    try:
        frame: Any = nw.from_native(source, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise InputError(f"{where} has columns that share a name: give every column its own") from None
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        return None
    names = tuple(map(str, frame.columns))
    if not names:
        raise InputError(f"{where} has no columns: add some data")
    index: Any = nw.maybe_get_index(frame)
    plain = index is None or type(index).__name__ == "RangeIndex"
    ids = None if plain else np.array([str(value) if isinstance(value, tuple) else value for value in index])

    def read(chosen: Sequence[int], as_text: Collection[int]) -> list[pyarrow.ChunkedArray]:
        if not len(frame):
            raise InputError(f"{where} has column names ({quoted(names[0])}, …) but no rows: add some data")
        return [_column(frame[:, index]) for index in chosen]

    return Columns(where, names, read, ids=ids)


def _column(series: Any) -> pyarrow.ChunkedArray:
    import pyarrow as pa

    try:
        return arrow_of(series.to_arrow())
    except (pa.ArrowException, TypeError, ValueError):  # Python objects of several types
        return arrow_of(series.to_list())
