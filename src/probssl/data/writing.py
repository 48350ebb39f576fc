"""Write an array with named columns to a file: NPY, CSV, TSV or Parquet, whole or not at all."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from probssl.errors import InputError
from probssl.files import atomic_path

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


def write(path: Path, array: np.ndarray, names: Sequence[str], ids: np.ndarray | None = None, called: str = ID) -> None:
    """Write array [n, m] with its column names; the file appears complete or not at all.

    With `ids` [n] a first column, `called` as they are, names the rows; an NPY file has neither that nor column names.
    """
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, array)
        elif path.suffix == ".parquet":
            import pyarrow
            import pyarrow.parquet

            columns = {} if ids is None else {called: ids.tolist()}
            columns |= {column: array[:, i] for i, column in enumerate(names)}
            pyarrow.parquet.write_table(pyarrow.table(columns), file)
        else:
            separator = "\t" if path.suffix == ".tsv" else ","
            head = io.StringIO()
            rows = csv.writer(head, delimiter=separator, lineterminator="\n")  # quotes what needs it
            rows.writerow(names if ids is None else [called, *names])
            if ids is not None:
                rows.writerows([name, *(f"{value:.9g}" for value in row)] for name, row in zip(ids, array, strict=True))
            file.write(head.getvalue().encode())
            if ids is None:  # nine significant digits bring every single-precision number back exactly
                np.savetxt(file, array, "%.9g", separator, encoding="utf-8")
