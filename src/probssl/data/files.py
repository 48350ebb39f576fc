"""Files and arrays: which reader opens what, and NumPy and Parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probssl.data.columns import Columns, generated_names
from probssl.data.faults import Faults
from probssl.data.labels import note_missing
from probssl.data.text import open_text, parse_numbers
from probssl.data.wording import did_you_mean, listed, option, plural, quoted
from probssl.errors import InputError, MissingExtra

FORMATS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npy", ".npz")
_FEATURE_ARRAYS = ("x", "X", "features")
_LABEL_ARRAY = "y"


def open_file(path: Path, label: str | None = None) -> Columns:
    """The columns of a file, by the end of its name. `label` may name a second array of an NPZ file."""
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, not a table: name one file in it ({', '.join(FORMATS)}), or read the images in it "
            "with probssl.data.load_images"
        )
    if not path.exists():
        raise InputError(f"there is no file {path}{did_you_mean(path.name, _neighbours(path))}")
    name = path.name.lower()
    if name.endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        return open_text(path)
    if name.endswith(".parquet"):
        return _open_parquet(path)
    if name.endswith(".npy"):
        return _open_npy(path)
    if name.endswith(".npz"):
        return _open_npz(path, label)
    raise InputError(f"{path} is of no format that can be read: save it as one of {', '.join(FORMATS)}")


def open_array(
    array: np.ndarray,
    where: str,
    *,
    names: Sequence[str] | None = None,
    labels: tuple[str, Sequence[str]] | None = None,
    trusted: bool = False,
) -> Columns:
    """The columns of a 2-D array; `labels` adds a last column of that name with these cells."""
    matrix = _numeric_matrix(array, where)
    width = matrix.shape[1]
    every = generated_names(width) if names is None else tuple(names)
    if labels is not None:
        every += (labels[0],)

    def cells(index: int) -> list[str]:
        return list(labels[1]) if labels is not None and index == width else as_cells(matrix[:, index])

    def read(chosen: Sequence[int], label: int | None, faults: Faults) -> tuple[np.ndarray, list[str] | None]:
        places = range(1, len(matrix) + 1)
        if all(index < width for index in chosen):
            block = matrix[:, list(chosen)].astype(np.float64)
            _note_not_finite(block, [every[index] for index in chosen], faults)
        else:
            parsed = [parse_numbers(cells(index), places, every[index], faults) for index in chosen]
            block = np.stack(parsed, axis=1)
        if label is None:
            return block, None
        texts = cells(label)
        note_missing(texts, places, every[label], faults)
        return block, texts

    default = None if labels is None else labels[0]
    return Columns(where, every, read, named=names is not None, label=default, trusted=trusted)


def as_cells(values: np.ndarray) -> list[str]:
    """The values of one column as text; None becomes an empty cell."""
    return [
        "" if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value).strip()
        for value in values.tolist()
    ]


def _neighbours(path: Path) -> list[str]:
    try:
        return [entry for entry in os.listdir(path.parent) if entry.lower().endswith(FORMATS)]
    except OSError:
        return []


def _numeric_matrix(array: np.ndarray, where: str) -> np.ndarray:
    if array.dtype.names is not None or array.dtype.kind not in "biuf":
        kind = {"O": "Python objects", "c": "complex numbers", "U": "text", "S": "text"}.get(
            array.dtype.kind, f"values of type {array.dtype}"
        )
        raise InputError(f"{where} holds {kind}, not real numbers: convert the array to floating point first")
    if array.ndim != 2:
        raise InputError(
            f"{where} holds an array of {plural(array.ndim, 'dimension')}, with shape {array.shape}: "
            "reshape it to rows and columns"
        )
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(f"{where} holds an empty array, of shape {array.shape}: add some data")
    if isinstance(array, np.ma.MaskedArray):
        return np.ma.filled(array.astype(np.float64), np.nan)
    return np.asarray(array)


def _note_not_finite(block: np.ndarray, names: Sequence[str], faults: Faults) -> None:
    if np.isfinite(block).all():
        return
    for kind, bad in (("missing", np.isnan(block)), ("infinite", np.isinf(block))):
        for index in np.flatnonzero(bad.any(axis=0)).tolist():
            rows = np.flatnonzero(bad[:, index])
            value = str(block[rows[0], index])
            faults.add(kind, names[index], int(rows[0]) + 1, value, len(rows))


def _open_npy(path: Path) -> Columns:
    return open_array(_load_numpy(path, b"\x93NUMPY"), str(path))


def _open_npz(path: Path, label: str | None) -> Columns:
    archive = _load_numpy(path, b"PK")
    with archive:
        arrays: list[str] = archive.files
        second = label if label in arrays else _LABEL_ARRAY if _LABEL_ARRAY in arrays else None
        candidates = [name for name in arrays if name not in (second, _LABEL_ARRAY)]
        named = [name for name in _FEATURE_ARRAYS if name in candidates]
        if not named and len(candidates) != 1:
            raise InputError(
                f"{path} holds the arrays {listed(arrays, 8)}, of which none is plainly the features: name one 'x'"
                if arrays
                else f"{path} holds no arrays: save the features in it as 'x'"
            )
        name = named[0] if named else candidates[0]
        matrix = _member(path, archive, name)
        values = None
        if second is not None:
            try:
                values = _member(path, archive, second)
            except InputError:
                if second == label:
                    raise
    labels = None
    if second is not None and values is not None:
        problem = _label_problem(values, len(matrix) if matrix.ndim else 0)
        if problem is None:
            labels = (second, as_cells(values))
        elif second == label:
            raise InputError(f"{path}: label array {quoted(second)} {problem}")
    columns = open_array(matrix, f"{path} (array {quoted(name)})", labels=labels)
    if label is not None and label not in columns.names:
        others = [array for array in arrays if array != name]
        raise InputError(
            f"{path} has no array {quoted(label)} to use as the label: besides the features it has "
            f"{listed(others, 8) or 'none'}{did_you_mean(label, others)}"
        )
    return columns


def _label_problem(values: np.ndarray, rows: int) -> str | None:
    if values.ndim != 1:
        return f"has shape {values.shape}: give one label per row"
    if len(values) != rows:
        return f"has {plural(len(values), 'label')} for {plural(rows, 'row')}: give one label per row"
    if values.dtype.kind not in "biufUS":
        return f"is of type {values.dtype}: use whole numbers or text"
    return None


def _load_numpy(path: Path, magic: bytes) -> Any:
    try:
        with path.open("rb") as stream:
            if stream.read(len(magic)) != magic:
                raise InputError(f"{path} is not a NumPy {path.suffix} file: write it again with numpy.save or savez")
        return np.load(path, allow_pickle=False)
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged header can make NumPy raise nearly anything
        raise InputError(_numpy_sentence(str(path), error)) from error


def _member(path: Path, archive: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(archive[name])
    except Exception as error:
        raise InputError(_numpy_sentence(f"{path} (array {quoted(name)})", error)) from error


def _numpy_sentence(where: str, error: Exception) -> str:
    if "allow_pickle" in str(error):
        return (
            f"{where} holds Python objects, which are never loaded because they can run code: "
            "save the array as floating point numbers"
        )
    return f"{where} is damaged and cannot be read ({type(error).__name__}): write it again"


def _open_parquet(path: Path) -> Columns:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("reading Parquet", "parquet") from None

    def attempt(action: Any) -> Any:
        try:
            with parquet.ParquetFile(path) as file:
                return action(file)
        except PermissionError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except Exception as error:
            raise InputError(f"{path} is not a whole Parquet file ({type(error).__name__}): write it again") from error

    schema = attempt(lambda file: file.schema_arrow)
    # pandas saves the index of a table under such names: a row number is not a feature
    names = tuple(name for name in schema.names if not name.startswith("__index_level_"))
    if not names:
        raise InputError(f"{path} has no columns: add some data")

    def values(table: Any, index: int, droppable: bool) -> np.ndarray:
        column = table.column(names[index])
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if arrow.types.is_decimal(column.type):
            column = column.cast(arrow.float64())
        if not _is_plain(arrow, column.type):
            kind, name = " ".join(str(column.type).split()), names[index]
            remedy = f", or leave it out with {option('--drop', name)}" if droppable else ""
            raise InputError(
                f"{path}: column {quoted(name)} is of type {kind}, the first {quoted(str(column[0]))} in row 1 "
                f"({plural(len(column), 'such value')} in all): turn it into numbers{remedy}"
            )
        return column.to_numpy()

    def read(chosen: Sequence[int], label: int | None, faults: Faults) -> tuple[np.ndarray, list[str] | None]:
        wanted = [names[index] for index in (*chosen, *(() if label is None else (label,)))]
        table = attempt(lambda file: file.read(columns=wanted))
        rows = table.num_rows
        if not rows:
            raise InputError(f"{path} has column names ({quoted(names[0])}, …) but no rows: add some data")
        places = range(1, rows + 1)
        block = np.empty((rows, len(chosen)))
        for position, index in enumerate(chosen):
            column = values(table, index, faults.droppable)
            if column.dtype.kind in "biuf":
                block[:, position] = column
                _note_not_finite(block[:, position : position + 1], [names[index]], faults)
            else:
                block[:, position] = parse_numbers(as_cells(column), places, names[index], faults)
        faults.settle_booleans(rows)
        if label is None:
            return block, None
        texts = as_cells(values(table, label, False))
        note_missing(texts, places, names[label], faults)
        return block, texts

    return Columns(str(path), names, read)


def _is_plain(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_null(kind)
    )
