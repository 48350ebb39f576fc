"""Data: tables and sets of images from files, arrays and names, found whole or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from probssl.data.columns import Columns, choose
from probssl.data.directory import Progress, cache_directory, data_directory
from probssl.data.faults import Faults
from probssl.data.files import FORMATS, open_array, open_file
from probssl.data.image_files import Corrupt
from probssl.data.image_set import ImageSet, Part, check_images, unit_floats
from probssl.data.images import NAMED as IMAGES
from probssl.data.images import images_of, load_images
from probssl.data.labels import encode
from probssl.data.names import DataSet, catalogue, fetch, is_name, open_named, suggestion, world_of
from probssl.data.standardise import Standardiser
from probssl.data.table import Table, check_trainable, select_features
from probssl.errors import InputError

__all__ = [
    "FORMATS",
    "IMAGES",
    "Corrupt",
    "DataSet",
    "ImageSet",
    "Part",
    "Progress",
    "Standardiser",
    "Table",
    "cache_directory",
    "catalogue",
    "check_images",
    "check_trainable",
    "data_directory",
    "fetch",
    "images_of",
    "load",
    "load_images",
    "read",
    "select_features",
    "unit_floats",
    "world_of",
]


def load(
    source: str | os.PathLike[str] | np.ndarray,
    *,
    label: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Table:
    """Read a file, a 2-D array or a named data set; raise `InputError` when anything in it cannot be used.

    label: the column (or array of an NPZ file) that holds the classes. Without it a file has no labels, save
        for an NPZ file's array `y`; a named data set has its own.
    drop: columns to leave out.
    features: the columns a trained model expects, in its order. Other columns are then ignored, whatever they
        hold. Sources without column names need as many columns as the model expects.
    seed: of the data sets that are drawn (`toy:`, `world:`).
    progress: called with the bytes fetched so far and the bytes in all, should a download be needed.
    """
    columns = _open(source, label, seed, progress)
    drop = [drop] if isinstance(drop, str) else list(drop)
    if columns.latents is not None and (label is not None or drop):
        raise InputError(f"{columns.where} has no label and is observed whole: leave out --label and --drop")
    choice = choose(columns, label, drop, features)
    faults = Faults(columns.where, columns.unit, droppable=features is None)
    values, cells = columns.read(choice.features, choice.label, faults)
    faults.raise_any()
    written = "array" if isinstance(source, np.ndarray) else os.fspath(source)
    if cells is None or choice.label is None:
        return Table(written, values, choice.names, trusted=columns.trusted, latents=columns.latents)
    name = columns.names[choice.label]
    codes, classes = encode(cells, name, columns.where)
    return Table(written, values, choice.names, codes, classes, name, columns.trusted)


def read(
    source: str | os.PathLike[str] | np.ndarray,
    *,
    label: str | None = None,
    drop: Sequence[str] = (),
    size: tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
    seed: int = 0,
    progress: Progress | None = None,
) -> Table | ImageSet:
    """A table, or a set of images where the source is the name, the folder or the archive of one, or an array [n, c,
    h, w]. The options of tables are those of `load`, `size` and `corrupt` those of `load_images`; what does not apply
    is refused.
    """
    name = images_of(source)
    if name is None:
        if size is not None:
            raise InputError(f"{_written(source)} is a table: a size is for images")
        if corrupt != "refuse":
            raise InputError(f"{_written(source)} is a table: corrupt is for images")
        return load(source, label=label, drop=drop, seed=seed, progress=progress)
    for option, given in (("label", label), ("drop", drop)):
        if given:
            raise InputError(
                f"{_written(source)} is a set of images, which has no columns and knows its own classes: leave out "
                f"--{option}"
            )
    if isinstance(source, np.ndarray):
        return ImageSet.of_array(source)
    return load_images(source, size=size, corrupt=corrupt, progress=progress)


def _written(source: str | os.PathLike[str] | np.ndarray) -> str:
    return "the array" if isinstance(source, np.ndarray) else os.fspath(source)


def _open(
    source: str | os.PathLike[str] | np.ndarray, label: str | None, seed: int, progress: Progress | None
) -> Columns:
    if isinstance(source, np.ndarray):
        return open_array(source, "the array")
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"data is a file, a name or a 2-D NumPy array, not {type(source).__name__}")
    if isinstance(source, str) and is_name(source):
        return open_named(source, seed, progress)
    if isinstance(source, str) and source in IMAGES:
        raise InputError(
            f"{source} is a set of images and not a table, whose columns would forget what is beside what: "
            f"read it with probssl.data.load_images({source!r})"
        )
    path = Path(source).expanduser()
    if isinstance(source, str) and not path.exists() and not source.lower().endswith(FORMATS):
        raise InputError(f"there is no file or data set {source!r}{suggestion(source)}")
    return open_file(path, label)
