"""Files and arrays: which reader opens what, and NumPy and Parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probssl import memory
from probssl.data.columns import Columns, generated_names
from probssl.data.faults import Faults
from probssl.data.frames import open_frame
from probssl.data.text import open_text, parse_numbers
from probssl.data.wording import did_you_mean, listed, plural, quoted
from probssl.errors import InputError, MissingExtra

FORMATS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npy", ".npz")
_FEATURE_ARRAYS = ("x", "X", "features")
_LABEL_ARRAY = "y"
ADVICE = "leave out columns, or split the file"


class Arrays(NamedTuple):
    """An array, where it is from, and what it comes with: the name and the cells of labels."""

    values: np.ndarray
    where: str
    labels: tuple[str, list[str]] | None = None


def open_file(path: Path) -> Columns:
    """The columns of a file of text or a Parquet file, by the end of its name."""
    name = path.name.lower()
    if name.endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        return open_text(path)
    if name.endswith(".parquet"):
        return _open_parquet(path)
    raise InputError(f"{path} is of no format that can be read: save it as one of {', '.join(FORMATS)}")


def check_there(path: Path) -> None:
    """Refuse a file that is not there."""
    if not path.exists():
        raise InputError(f"there is no file {path}{did_you_mean(path.name, _neighbours(path))}")


def open_numpy(path: Path, label: str | None = None) -> Arrays:
    """What an NPY or NPZ file holds; `label` may name a second array of an NPZ file."""
    if path.suffix.lower() == ".npy":
        return Arrays(_load_numpy(path, b"\x93NUMPY"), str(path))
    return _open_npz(path, label)


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

    def read(chosen: Sequence[int], beside: Sequence[int], faults: Faults) -> tuple[np.ndarray, list[list[str]]]:
        places = range(1, len(matrix) + 1)
        if all(index < width for index in chosen):
            memory.require(2.0 * 8 * len(matrix) * len(chosen), f"reading {where}", ADVICE)
            block = matrix[:, list(chosen)].astype(np.float64, copy=False)
            note_not_finite(block, [every[index] for index in chosen], faults)
        else:
            parsed = [parse_numbers(cells(index), places, every[index], faults) for index in chosen]
            block = np.stack(parsed, axis=1)
        beside_cells = [cells(index) for index in beside]
        for texts, index in zip(beside_cells, beside, strict=True):
            faults.note_missing(texts, places, every[index])
        return block, beside_cells

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


def note_not_finite(block: np.ndarray, names: Sequence[str], faults: Faults) -> None:
    """Note the gaps and infinite values of features."""
    if np.isfinite(block).all():
        return
    for kind, bad in (("missing", np.isnan(block)), ("infinite", np.isinf(block))):
        for index in np.flatnonzero(bad.any(axis=0)).tolist():
            rows = np.flatnonzero(bad[:, index])
            value = str(block[rows[0], index])
            faults.add(kind, names[index], int(rows[0]) + 1, value, len(rows))


def _open_npz(path: Path, label: str | None) -> Arrays:
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
    columns = generated_names(matrix.shape[1]) if matrix.ndim == 2 else ()
    if label is not None and label != second and label not in columns:
        others = [array for array in arrays if array != name]
        raise InputError(
            f"{path} has no array {quoted(label)} to use as the label: besides the features it has "
            f"{listed(others, 8) or 'none'}{did_you_mean(label, others)}"
        )
    return Arrays(matrix, f"{path} (array {quoted(name)})", labels)


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
        # of an NPY file a map, which copies what is written to: images may be larger than the memory
        return np.load(path, allow_pickle=False, mmap_mode="c" if magic.endswith(b"NUMPY") else None)
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged header can make NumPy raise nearly anything
        raise InputError(_numpy_sentence(str(path), error)) from error


def _member(path: Path, archive: Any, name: str) -> np.ndarray:
    size = max(info.file_size for info in archive.zip.infolist() if info.filename in (name, f"{name}.npy"))
    memory.require(size, f"unpacking {path} (array {quoted(name)})", ADVICE)
    try:
        return np.asarray(archive[name])
    except Exception as error:
        raise InputError(_numpy_sentence(f"{path} (array {quoted(name)})", error)) from error


def _numpy_sentence(where: str, error: Exception) -> str:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return (
            f"{where} holds Python objects, which are never loaded because they can run code: "
            "save the array as floating point numbers"
        )
    return f"{where} is damaged and cannot be read ({type(error).__name__}): write it again"


def _open_parquet(path: Path) -> Columns:
    try:
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

    schema, rows = attempt(lambda file: (file.schema_arrow, file.metadata.num_rows))
    # pandas saves the index of a table under such names: a row number is not a feature
    names = tuple(name for name in schema.names if not name.startswith("__index_level_"))
    if not names:
        raise InputError(f"{path} has no columns: add some data")

    def read(wanted: Sequence[int]) -> Any:
        memory.require(3.0 * 8 * rows * len(wanted), f"unpacking {path}", ADVICE)
        return attempt(lambda file: file.read(columns=[names[index] for index in wanted]))

    return open_frame(names, read, str(path))
