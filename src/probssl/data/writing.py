"""Write an array with named columns to a file: NPY, CSV, TSV or Parquet, whole or not at all."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from probssl.errors import InputError
from probssl.files import atomic_path
from probssl.layout import Column

ID = "id"
"""What the column of names of rows is called."""

WRITABLE = (".npy", ".csv", ".tsv", ".parquet")


def check_writable(path: Path, overwrite: bool, formats: Sequence[str] = WRITABLE) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    if path.suffix not in formats:
        raise InputError(f"{path} must end in {', '.join(formats[:-1])} or {formats[-1]}")
    if path.is_dir():
        raise InputError(f"{path} is a folder")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists: choose another --out or --overwrite it")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"{path} cannot be written: {above} is not a folder that you may write to")


def cells(values: np.ndarray, column: Column) -> np.ndarray:
    """Values of a column [n] as people write them: the texts of levels, times of dates, None and NaT where missing."""
    missing = np.isnan(values)
    if column.coded:
        texts = np.array([*column.levels, None], dtype=object)
        return texts[np.where(missing, len(column.levels), values).astype(int)]
    if column.kind == "date":
        return np.where(missing, np.datetime64("NaT", "s"), np.where(missing, 0, values).astype("datetime64[s]"))
    return values


def write(
    path: Path,
    array: np.ndarray,
    columns: Sequence[str | Column],
    ids: np.ndarray | None = None,
    called: str = ID,
) -> None:
    """Write array [n, m] with its columns, names alone being those of numbers; the file appears complete or not at all.

    With `ids` [n] a first column, `called` as they are, names the rows; an NPY file has neither that nor column names.
    """
    made = [Column(column) if isinstance(column, str) else column for column in columns]
    shown = [cells(array[:, place], column) for place, column in enumerate(made)]
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, array)
        elif path.suffix == ".parquet":
            import pyarrow
            import pyarrow.parquet

            table = {} if ids is None else {called: ids.tolist()}
            for column, values in zip(made, shown, strict=True):
                table[column.name] = pyarrow.array(values, from_pandas=True)
            pyarrow.parquet.write_table(pyarrow.table(table), file)
        else:
            separator = "\t" if path.suffix == ".tsv" else ","
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            rows = csv.writer(text, delimiter=separator, lineterminator="\n")  # quotes what needs it
            rows.writerow([*([] if ids is None else [called]), *(column.name for column in made)])
            if ids is None and all(values.dtype.kind == "f" for values in shown) and not np.isnan(array).any():
                np.savetxt(file, array, _digits(array), separator, encoding="utf-8")
            else:
                rows.writerows(zip(*([] if ids is None else [ids]), *map(_written, shown), strict=True))
            text.detach()


def _digits(values: np.ndarray) -> str:
    """Nine digits bring every single-precision number back exactly, fifteen every decimal of a file that was read."""
    return "%.9g" if values.dtype == np.float32 else "%.15g"


def _written(values: np.ndarray) -> list[str]:
    """As text, nothing where missing."""
    if values.dtype == object:
        return ["" if value is None else value for value in values]
    if values.dtype.kind == "M":
        whole = not (values[~np.isnat(values)].astype(np.int64) % 86_400).any()
        return ["" if text == "NaT" else text for text in np.datetime_as_string(values, "D" if whole else "s")]
    digits = _digits(values)
    return ["" if math.isnan(value) else digits % value for value in values]
