"""Files and arrays: which reader opens what, and NumPy, Parquet, Feather and JSON lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from probssl import memory
from probssl.data.columns import ADVICE, Columns, generated_names
from probssl.data.text import BLOCK, one_line, open_text, unpacked
from probssl.data.wording import did_you_mean, listed, plural, quoted
from probssl.errors import InputError

if TYPE_CHECKING:
    import pyarrow

_PACKED = ("", ".gz", ".zst")
_TEXT = tuple(ending + packed for ending in (".csv", ".tsv") for packed in _PACKED)
_JSON = tuple(ending + packed for ending in (".jsonl", ".ndjson") for packed in _PACKED)
_FEATHER = (".feather", ".arrow")
FORMATS = (*_TEXT, *_JSON, ".parquet", *_FEATHER, ".npy", ".npz")
_FEATURE_ARRAYS = ("x", "X", "features")
_LABEL_ARRAY = "y"


class Arrays(NamedTuple):
    """An array, where it is from, and what it comes with: the name and the values of labels."""

    values: np.ndarray
    where: str
    labels: tuple[str, np.ndarray] | None = None


def open_file(path: Path, missing: Collection[str] = (), encoding: str | None = None) -> Columns:
    """The columns of a file, by the end of its name."""
    name = path.name.lower()
    if name.endswith(_TEXT):
        return open_text(path, missing, encoding)
    if encoding is not None:
        raise InputError(f"{path} is no delimited text: leave out --encoding")
    if name.endswith(_JSON):
        return _open_json(path)
    if name.endswith(_FEATHER):
        return _open_feather(path)
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
    labels: tuple[str, np.ndarray] | None = None,
    trusted: bool = False,
) -> Columns:
    """The columns of a 2-D array; `labels` adds a last column of that name."""
    matrix = _numeric_matrix(array, where)
    width = matrix.shape[1]
    every = generated_names(width) if names is None else tuple(names)
    if labels is not None:
        every += (labels[0],)

    def read(chosen: Sequence[int], as_text: Collection[int]) -> list[pyarrow.ChunkedArray]:
        beside = {width: labels[1]} if labels is not None else {}
        return [arrow_of(beside[index] if index in beside else matrix[:, index]) for index in chosen]

    def numbers(chosen: list[int]) -> np.ndarray:
        memory.require(2.0 * 8 * len(matrix) * len(chosen), f"reading {where}", ADVICE)
        if width in chosen:
            raise InputError(f"{where}: {quoted(every[width])} holds labels, which are no feature")
        return matrix[:, chosen].astype(np.float64, copy=False)

    default = None if labels is None else labels[0]
    return Columns(where, every, read, names is not None, default, trusted, numbers=numbers)


def arrow_of(values: Any) -> pyarrow.ChunkedArray:
    """Values of one column, which may be Python objects of several types: then as text."""
    import pyarrow as pa

    try:
        made = pa.array(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        cells = values.tolist() if isinstance(values, np.ndarray) else list(values)
        gap = [cell is None or cell != cell for cell in cells]
        texts = [cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
        made = pa.array([None if none else text for none, text in zip(gap, texts, strict=True)], pa.string())
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


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
            labels = (second, values)
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


@contextmanager
def _whole(path: Path, called: str) -> Iterator[None]:
    """What can go wrong in reading a file of Arrow's becomes one sentence."""
    import pyarrow as pa

    try:
        yield
    except (InputError, MemoryError):
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"{path} is not a whole {called} file ({type(error).__name__}): write it again") from error


def _of_table(path: Path, names: Sequence[str], columns: Callable[[list[str]], Any]) -> Columns:
    """Columns of these names, which `columns` reads as an Arrow table."""
    # pandas saves the index of a table under such names: a row number is not a feature
    names = tuple(name for name in names if not name.startswith("__index_level_"))
    if not names:
        raise InputError(f"{path} has no columns: add some data")

    def read(chosen: Sequence[int], as_text: Collection[int]) -> list[pyarrow.ChunkedArray]:
        table = columns(list(dict.fromkeys(names[index] for index in chosen)))
        if not len(table):
            raise InputError(f"{path} has column names ({quoted(names[0])}, …) but no rows: add some data")
        return [table.column(names[index]) for index in chosen]

    return Columns(str(path), names, read)


def _open_parquet(path: Path) -> Columns:
    from pyarrow import parquet

    with _whole(path, "Parquet"), parquet.ParquetFile(path) as file:
        names, rows = file.schema_arrow.names, file.metadata.num_rows

    def read(wanted: list[str]) -> Any:
        memory.require(3.0 * 8 * rows * len(wanted), f"unpacking {path}", ADVICE)
        with _whole(path, "Parquet"), parquet.ParquetFile(path) as file:
            return file.read(columns=wanted)

    return _of_table(path, names, read)


def _open_feather(path: Path) -> Columns:
    import pyarrow as pa

    with _whole(path, "Feather"), pa.memory_map(str(path)) as source:
        names = pa.ipc.open_file(source).schema.names

    def read(wanted: list[str]) -> Any:
        batches: list[Any] = []
        with _whole(path, "Feather"), pa.OSFile(str(path)) as source:
            file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=places(wanted)))
            for batch in range(file.num_record_batches):
                batches.append(file.get_batch(batch))
                batches[-1].validate(full=True)
                memory.require(2.0 * sum(one.nbytes for one in batches), f"unpacking {path}", ADVICE)
            return pa.Table.from_batches(batches, file.schema if not batches else None)

    def places(wanted: list[str]) -> list[int]:
        return [names.index(name) for name in wanted]

    return _of_table(path, names, read)


def _open_json(path: Path) -> Columns:
    """Objects, one to a line. A field that a line leaves out is a gap."""
    import pyarrow as pa
    from pyarrow import json

    batches: list[Any] = []
    try:
        with unpacked(path) as stream:
            size = 0
            for batch in json.open_json(stream, json.ReadOptions(block_size=BLOCK)):
                batches.append(batch)
                size += batch.nbytes
                memory.require(2.0 * size, f"reading {path}", ADVICE)
    except pa.ArrowInvalid as error:
        said = one_line(error)
        raise InputError(f"{path} is not a file of JSON objects, one per line ({said}): mend it, or save CSV") from None
    table = pa.Table.from_batches(batches)
    return _of_table(path, table.schema.names, table.select)
