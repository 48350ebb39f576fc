"""Frames of pandas, polars and Arrow, and Parquet files: columns with types of their own, by way of narwhals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probssl.data.columns import Columns
from probssl.data.faults import Faults
from probssl.data.text import parse_numbers
from probssl.data.wording import quoted
from probssl.errors import InputError


def open_any_frame(source: object, where: str) -> Columns | None:
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
    return open_frame(names, lambda wanted: frame[:, wanted], where, ids)


def open_frame(
    names: Sequence[str], columns: Callable[[list[int]], Any], where: str, ids: np.ndarray | None = None
) -> Columns:
    """Columns of these names, of which `columns` gives those at some positions as a frame."""

    def read(chosen: Sequence[int], beside: Sequence[int], faults: Faults) -> tuple[np.ndarray, list[list[str]]]:
        import narwhals as nw

        wanted = list(dict.fromkeys((*chosen, *beside)))
        frame = nw.from_native(columns(wanted), eager_only=True, pass_through=True)
        series = {index: frame[:, place] for place, index in enumerate(wanted)}
        if not len(frame):
            raise InputError(f"{where} has column names ({quoted(names[0])}, …) but no rows: add some data")
        block = np.empty((len(frame), len(chosen)))
        for position, index in enumerate(chosen):
            block[:, position] = _numbers(series[index], names[index], faults)
        faults.settle_booleans(len(frame))
        beside_cells = [_cells(series[index]) for index in beside]
        for cells, index in zip(beside_cells, beside, strict=True):
            faults.note_missing(cells, range(1, len(cells) + 1), names[index])
        return block, beside_cells

    return Columns(where, tuple(names), read, ids=ids)


def _numbers(series: Any, name: str, faults: Faults) -> np.ndarray:
    """A column as float64; what is not a finite number is noted."""
    import narwhals as nw

    from probssl.data.files import note_not_finite

    kind = series.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        values = np.asarray(series.cast(nw.Float64).fill_null(float("nan")).to_numpy(), np.float64)
        note_not_finite(values[:, None], [name], faults)
        return values
    if isinstance(kind, (nw.String, nw.Categorical, nw.Enum, nw.Object)) or series.is_null().all():
        return parse_numbers(_cells(series), range(1, len(series) + 1), name, faults)
    faults.add("type", name, 1, f"{series[0]} ({type(kind).__name__.lower()})", len(series))
    return np.full(len(series), np.nan)


def _cells(series: Any) -> list[str]:
    """The values of a column as text; a gap becomes an empty cell."""
    values, gaps = series.to_list(), series.is_null().to_list()
    return ["" if gap else str(value).strip() for value, gap in zip(values, gaps, strict=True)]
