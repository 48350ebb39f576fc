"""Data from anywhere: a file, a folder, a name or an object, as one kind of data set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probssl.data.columns import Columns, choose, split_names
from probssl.data.dataset import Dataset, Rows, is_dataset, test_mask
from probssl.data.directory import Progress, expanded
from probssl.data.faults import Faults
from probssl.data.files import FORMATS, as_cells, check_there, open_array, open_file, open_numpy
from probssl.data.frames import open_any_frame
from probssl.data.image_files import Corrupt
from probssl.data.image_set import ImageSet
from probssl.data.images import images_of, load_images
from probssl.data.labels import encode
from probssl.data.names import is_name, open_named, suggestion
from probssl.data.objects import Held, hold
from probssl.data.table import Table, identifier_notes, select_features
from probssl.data.wording import plural
from probssl.errors import InputError
from probssl.layout import Column

Names = str | Sequence[str]
Test = float | str | os.PathLike[str] | Dataset | None


def load(
    source: Any,
    *,
    label: str | None = None,
    drop: Names = (),
    features: Sequence[str] | None = None,
    size: int | tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
    ids: str | None = None,
    groups: str | None = None,
    test: Test = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Dataset:
    """Make a data set of a file, a folder, a name or an object; raise `InputError` when anything in it cannot be used.

    source: a table (CSV, TSV, Parquet, NPY, NPZ), a folder or a tar archive of images, the name of a data set, a NumPy
        array or a torch tensor (rows [n, d], or images [n, channels, height, width], as in NPY and NPZ files), a frame
        of pandas, polars or Arrow, a map-style torch data set of x or (x, y), or a tuple (rows, labels) of any of
        these objects. A data set is returned as it is.
    label: the column (or array of an NPZ file) that holds the classes. Without it a file has no labels, save for an
        NPZ file's array `y`; a named data set has its own.
    drop: columns to leave out, as a sequence or as one text `a,b`.
    features: the columns a trained model expects, in its order. Other columns are then ignored, whatever they hold.
        Sources without column names need as many columns as the model expects.
    size: height and width, or both in one, to which images of a folder or an archive are resized.
    corrupt: "refuse" a folder with a damaged image, or "skip" such images and list them in `left_out`.
    ids: the column that names the rows. Frames with an index of their own and image files need none.
    groups: the column whose equal values mark rows that belong together.
    test: rows to set aside for the test: a share of them, a column that says so, or a second source (`with_test`).
    seed: of the data sets that are drawn (`toy:`, `world:`) and of a share of test rows.
    progress: called with the bytes fetched or read so far and the bytes in all, or with the rows of a torch data set.
    """
    for option, value in {"label": label, "ids": ids, "groups": groups}.items():
        if value is not None and not isinstance(value, str):
            beside = ": give rows and labels together, as (X, y)" if option == "label" else ""
            raise InputError(f"{option} names a column, and is {type(value).__name__}{beside}")
    of_tables = {"label": label, "drop": drop, "features": features, "ids": ids, "groups": groups}
    of_images = {"size": size, "corrupt": corrupt != "refuse"}
    found: Any
    if is_dataset(source):
        _refuse(source.source, "a data set already", {**of_tables, **of_images, "features": None})
        found = select_features(source, features) if features is not None and isinstance(source, Table) else source
        return found.with_test(test, seed)
    if isinstance(source, (str, os.PathLike)) and images_of(source) is not None:
        _refuse(os.fspath(source), "a set of images, which has no columns and knows its own classes", of_tables)
        return load_images(source, size=size, corrupt=corrupt, progress=progress).with_test(test, seed)
    held = _held(source, label, seed, progress)
    if isinstance(held.values, Columns):
        _refuse(held.values.where, "a table and not images", of_images)
        column = test if isinstance(test, str) and test in held.values.names else None
        beside = {"label": label, "ids": ids, "groups": groups, "test": column}
        found, test = _table(held.name, held.values, beside, drop, features), None if column else test
    else:
        _refuse(
            held.where,
            "an array of images, which has no columns",
            {**of_tables, "label": label if held.labels is None else None, **of_images},
        )
        found = ImageSet.of_array(held.values, held.name, held.where)
    if held.labels is not None:
        found = _labelled(found, held)
    return found.with_test(test, seed)


def load_table(
    source: str | os.PathLike[str] | np.ndarray,
    *,
    label: str | None = None,
    drop: Names = (),
    features: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Table:
    """`load`, of what is known to be a table."""
    found = load(source, label=label, drop=drop, features=features, seed=seed, progress=progress)
    if not isinstance(found, Table):
        raise InputError(f"{found.source} is not a table: it holds {found.layout.kind}")
    return found


def _held(source: object, label: str | None, seed: int, progress: Progress | None) -> Held:
    """What is not a set of images by its name: columns of a table, or an array of images."""
    if not isinstance(source, (str, os.PathLike)):
        held = hold(source, progress)
        if isinstance(held.values, np.ndarray):
            return held if held.values.ndim == 4 else held._replace(values=open_array(held.values, held.where))
        columns = open_any_frame(held.values, held.where)
        if columns is None:
            raise InputError(
                "data is a file, a folder, a name, an array, a tensor, a frame, a torch data set or a tuple (rows, "
                f"labels), not {type(held.values).__name__}"
            )
        return held._replace(values=columns)
    written = os.fspath(source)
    if isinstance(source, str) and is_name(source):
        return Held(written, open_named(source, seed, progress))
    path = expanded(source)
    if isinstance(source, str) and not path.exists() and not source.lower().endswith(FORMATS):
        raise InputError(f"there is no file or data set {source!r}{suggestion(source)}")
    check_there(path)
    if path.suffix.lower() not in (".npy", ".npz"):
        return Held(written, open_file(path))
    values, where, labels = open_numpy(path, label)
    if values.ndim != 4:
        return Held(written, open_array(values, where, labels=labels))
    return Held(written, values, None if labels is None else np.array(labels[1]), place=where)


def _table(
    written: str, columns: Columns, beside: dict[str, str | None], drop: Names, features: Sequence[str] | None
) -> Table:
    dropped = split_names(drop, columns.names)
    if columns.latents is not None and (dropped or any(beside.values())):
        raise InputError(f"{columns.where} has no label and is observed whole: leave out --label and --drop")
    choice = choose(columns, beside, dropped, features)
    label = columns.names[choice.beside["label"]] if "label" in choice.beside else None
    faults = Faults(columns.where, columns.unit, label=label, droppable=features is None)
    values, cells = columns.read(choice.features, list(choice.beside.values()), faults)
    faults.raise_any()
    texts = dict(zip(choice.beside, cells, strict=True))
    codes, classes = (None, ()) if label is None else encode(texts["label"], label, columns.where)
    return Table(
        written,
        values,
        tuple(map(Column, choice.names)),
        labels=codes,
        classes=classes,
        label_name=label,
        latents=columns.latents,
        ids=np.array(texts["ids"]) if "ids" in texts else columns.ids,
        groups=np.unique(texts["groups"], return_inverse=True)[1] if "groups" in texts else None,
        test=test_mask(texts["test"], str(beside["test"]), columns.where) if "test" in texts else None,
        trusted=columns.trusted,
        notes=() if columns.trusted or features is not None else identifier_notes(values, choice.names),
    )


def _labelled(found: Rows, held: Held) -> Rows:
    """The rows with labels that came beside them: codes of classes that are known, or cells."""
    labels = held.labels
    assert labels is not None
    if len(labels) != len(found):
        raise InputError(
            f"{held.where} has {plural(len(labels), 'label')} for {plural(len(found), 'row')}: give one for every row"
        )
    if held.classes and labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() < len(held.classes):
        return replace(found, labels=labels.astype(np.int64), classes=held.classes, label_name="label")
    cells, faults = as_cells(labels), Faults(held.where, "row", label="label")
    faults.note_missing(cells, range(1, len(cells) + 1), "label")
    faults.raise_any()
    codes, classes = encode(cells, "label", held.where)
    return replace(found, labels=codes, classes=classes, label_name="label")


def _refuse(source: str, what: str, given: dict[str, Any]) -> None:
    """Refuse options that have no meaning for a source."""
    for option, value in given.items():
        if value is not None and value is not False and value != ():
            raise InputError(f"{source} is {what}: leave out --{option}")
