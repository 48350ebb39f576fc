"""Data from anywhere: a file, a folder, a name or an object, as one kind of data set."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probssl import memory
from probssl.data.columns import ADVICE, ALL, Choice, Columns, choose, split_names
from probssl.data.dataset import Dataset, Rows, Target, is_dataset, share_of, test_mask
from probssl.data.directory import Progress, expanded
from probssl.data.files import FORMATS, arrow_of, check_there, open_array, open_file, open_numpy
from probssl.data.frames import open_frame
from probssl.data.image_files import Corrupt
from probssl.data.image_set import ImageSet
from probssl.data.images import images_of, load_images
from probssl.data.kinds import Typed, Use, kinds_by_name, missing_words, typed
from probssl.data.labels import target
from probssl.data.names import is_name, open_named, suggestion
from probssl.data.objects import Held, hold
from probssl.data.table import Table, in_layout
from probssl.data.wording import listed, options, plural, quoted
from probssl.errors import InputError
from probssl.layout import Column, Layout

Names = str | Sequence[str]
Test = float | str | os.PathLike[str] | Dataset | None


def load(
    source: Any,
    *,
    label: str | Sequence[str] | None = None,
    drop: Names = (),
    kinds: Mapping[str, str] | None = None,
    missing: Names = (),
    encoding: str | None = None,
    layout: Layout | None = None,
    size: int | tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
    ids: str | None = None,
    groups: str | None = None,
    test: Test = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Dataset:
    """Make a data set of a file, a folder, a name or an object; raise `InputError` when it cannot be used.

    source: a table (CSV, TSV, JSON lines, Parquet, Feather, NPY, NPZ), a folder or a tar archive of images, the name of
        a data set, a NumPy array or a torch tensor (rows [n, d], or images [n, channels, height, width], as in NPY and
        NPZ files), a frame of pandas, polars or Arrow, a map-style torch data set of x or (x, y), or a tuple (rows,
        labels) of any of these objects. A data set is returned as it is.
    label: the column (or array of an NPZ file) that representations are judged by, or several: classes, or numbers.
        Without it a file has no labels, save for an NPZ file's array `y`; a named data set has its own.
    drop: columns to leave out, as a sequence or as one text `a,b`.
    kinds: of columns, where what is inferred is not what is meant: number, category, yes/no, date, text or id.
    missing: words that stand for a gap, besides the usual ones.
    encoding: of a text file that is not UTF-8.
    layout: the columns a trained model expects, in its order and kinds. Other columns are ignored, whatever they hold.
        Sources without column names need as many columns as the model expects.
    size: height and width, or both in one, to which images of a folder or an archive are resized.
    corrupt: "refuse" a folder with a damaged image, or "skip" such images and list them in `left_out`.
    ids: the column that names the rows. Frames with an index of their own and image files need none.
    groups: the column whose equal values mark rows that belong together.
    test: rows to set aside for the test: a share of them, a column that says so, or a second source (`with_test`).
    seed: of the data sets that are drawn (`toy:`, `world:`) and of a share of test rows.
    progress: called with the bytes fetched or read so far and the bytes in all, or with the rows of a torch data set.
    """
    asked = Asked.of(label, drop, kinds, missing, encoding, layout, ids, groups)
    of_tables = {
        "label": asked.labels,
        "drop": drop,
        "kind": kinds or None,
        "missing": missing,
        "encoding": encoding,
        "layout": layout,
        "ids": ids,
        "groups": groups,
    }
    of_images = {"size": size, "corrupt": corrupt != "refuse"}
    found: Any
    if is_dataset(source):
        _refuse(source.source, "a data set already", {**of_tables, **of_images, "layout": None})
        found = in_layout(source, layout) if layout is not None and isinstance(source, Table) else source
        return found.with_test(test, seed)
    if isinstance(source, (str, os.PathLike)) and images_of(source) is not None:
        _refuse(os.fspath(source), "a set of images, which has no columns and knows its own classes", of_tables)
        return load_images(source, size=size, corrupt=corrupt, progress=progress).with_test(test, seed)
    held = held_by(source, asked, seed, progress)
    if isinstance(held.values, Columns):
        columns = held.values
        _refuse(columns.where, "a table and not images", of_images)
        column = test if isinstance(test, str) and test in columns.names else None
        table = _table(held.name, columns, asked, column)
        if column is not None:
            test = None
        elif isinstance(test, (str, os.PathLike)) and share_of(test) is None:
            test = table.read_alike(os.fspath(test), missing=missing, encoding=encoding)
        found = table
    else:
        _refuse(
            held.where,
            "an array of images, which has no columns",
            {**of_tables, "label": asked.labels if held.labels is None else None, **of_images},
        )
        found = ImageSet.of_array(held.values, held.name, held.where)
    if held.labels is not None:
        found = _labelled(found, held, asked)
    return found.with_test(test, seed)


def load_table(source: str | os.PathLike[str] | np.ndarray, **options: Any) -> Table:
    """`load`, of what is known to be a table."""
    found = load(source, **options)
    if not isinstance(found, Table):
        raise InputError(f"{found.source} is not a table: it holds {found.layout.kind}")
    return found


@dataclass(frozen=True)
class Asked:
    """How a person wants a table to be read."""

    labels: tuple[str, ...]
    drop: Names
    kinds: Mapping[str, str]
    missing: tuple[str, ...]
    encoding: str | None
    layout: Layout | None
    ids: str | None
    groups: str | None

    @classmethod
    def of(
        cls,
        label: str | Sequence[str] | None,
        drop: Names,
        kinds: Mapping[str, str] | None,
        missing: Names,
        encoding: str | None,
        layout: Layout | None = None,
        ids: str | None = None,
        groups: str | None = None,
    ) -> Asked:
        """What was asked for, refused where it is of another type."""
        for option, value in {"ids": ids, "groups": groups}.items():
            if value is not None and not isinstance(value, str):
                raise InputError(f"{option} names a column, and is {type(value).__name__}")
        labels = () if label is None else (label,) if isinstance(label, str) else label
        if not isinstance(labels, (tuple, list)) or not all(isinstance(name, str) for name in labels):
            raise InputError(
                f"label names a column or several, and is {type(label).__name__}: give rows and labels together, as "
                "(X, y)"
            )
        if kinds is not None and not isinstance(kinds, Mapping):
            raise InputError(f'kinds is a dict by column, {{"zip": "category"}} for example, not {kinds!r}')
        words = (missing,) if isinstance(missing, str) else tuple(missing)
        return cls(tuple(dict.fromkeys(labels)), drop, kinds or {}, words, encoding, layout, ids, groups)


def held_by(source: object, asked: Asked, seed: int, progress: Progress | None) -> Held:
    """What is not a set of images by its name: columns of a table, or an array of images."""
    if not isinstance(source, (str, os.PathLike)):
        held = hold(source, progress)
        if isinstance(held.values, np.ndarray):
            return held if held.values.ndim == 4 else held._replace(values=open_array(held.values, held.where))
        columns = open_frame(held.values, held.where)
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
        return Held(written, open_file(path, asked.missing, asked.encoding))
    values, where, labels = open_numpy(path, next(iter(asked.labels), None))
    if values.ndim != 4:
        return Held(written, open_array(values, where, labels=labels))
    return Held(written, values, None if labels is None else labels[1], place=where)


@dataclass(frozen=True)
class Understood:
    """All columns of a source that something is done with, read and understood."""

    features: Iterator[Typed]
    """One after the other, so that none is kept longer than it is needed."""
    targets: list[Target]
    beside: dict[str, np.ndarray]
    """Texts, of columns that name rows, group them or say which are for the test."""


def understand(columns: Columns, asked: Asked, choice: Choice, kinds: list[Use | None]) -> Understood:
    """Read the chosen columns; refuse them, all at once, where they cannot be what is asked of them."""
    missing = missing_words(asked.missing)
    beside_kinds = _kinds(columns.names, asked)
    texts = {index for index, kind in zip(choice.features, kinds, strict=True) if kind not in (None, "number")}
    texts |= {index for index in choice.labels if columns.names[index] in beside_kinds} | set(choice.beside.values())
    places = [*choice.features, *choice.labels, *choice.beside.values()]
    cells = dict(zip(places, columns.read(places, texts), strict=True))
    targets = [
        target(
            columns.names[index],
            cells[index],
            columns.where,
            asked=beside_kinds.get(columns.names[index]),
            codes=columns.trusted or columns.numbers is not None,
            missing=missing,
            comma=columns.comma,
        )
        for index in choice.labels
    ]
    beside = {}
    for purpose, index in choice.beside.items():
        found = typed(columns.names[index], cells[index], "category", missing=missing)
        refuse_faults(columns.where, [found], own=False)
        beside[purpose] = found.cells()
    features = (
        typed(name, cells.pop(index), kind, missing=missing, comma=columns.comma)
        for index, name, kind in zip(choice.features, choice.names, kinds, strict=True)
    )
    return Understood(features, targets, beside)


def chosen(columns: Columns, asked: Asked, test: str | None = None) -> tuple[Choice, list[Use | None]]:
    """What every column is for, and the kinds of the features that are known beforehand."""
    dropped = split_names(asked.drop, columns.names)
    beside = {"ids": asked.ids, "groups": asked.groups, "test": test}
    if columns.latents is not None and (dropped or asked.labels or any(beside.values())):
        raise InputError(f"{columns.where} has no label and is observed whole: leave out --label and --drop")
    choice = choose(columns, asked.labels, beside, dropped, None if asked.layout is None else asked.layout.names)
    if asked.layout is not None:
        return choice, [column.kind for column in asked.layout.columns]
    named = _kinds(columns.names, asked)
    usual: Use | None = "number" if columns.trusted or columns.numbers is not None else None
    return choice, [named.get(name, usual) for name in choice.names]


def _kinds(names: Sequence[str], asked: Asked) -> dict[str, Use]:
    found = kinds_by_name(asked.kinds, names)
    absent = [name for name in found if name not in (*names, "label")]
    if absent:
        raise InputError(f"there is no column {listed(absent, ALL)} to give a kind: the columns are {listed(names, 8)}")
    return found


def _table(written: str, columns: Columns, asked: Asked, test: str | None) -> Table:
    choice, kinds = chosen(columns, asked, test)
    ids: np.ndarray | None = columns.ids
    notes: tuple[str, ...]
    if columns.numbers is not None and all(kind == "number" for kind in kinds):
        found = understand(columns, asked, replace(choice, features=[], names=()), [])
        values, notes = _finite(columns.numbers(choice.features), choice.names)
        gaps = np.isnan(values.sum(axis=0))
        features = tuple(Column(name, gaps=bool(gap)) for name, gap in zip(choice.names, gaps, strict=True))
    else:
        found = understand(columns, asked, choice, kinds)
        values, features, notes, naming = _stacked(columns.where, found, len(choice.features), asked)
        if ids is None and len(naming) == 1:
            ids = naming[0]
    groups = found.beside.get("groups")
    return Table(
        written,
        values,
        features,
        targets=tuple(found.targets),
        latents=columns.latents,
        ids=found.beside.get("ids", ids),
        groups=None if groups is None else np.unique(groups, return_inverse=True)[1],
        test=test_mask(found.beside["test"].tolist(), str(test), columns.where) if "test" in found.beside else None,
        trusted=columns.trusted,
        notes=notes,
    )


def _stacked(
    where: str, found: Understood, count: int, asked: Asked
) -> tuple[np.ndarray, tuple[Column, ...], tuple[str, ...], list[np.ndarray]]:
    """The features beside each other and their columns, sentences about all columns, and cells of those of ids."""
    beside = [*(one.values for one in found.targets), *found.beside.values()]
    values = np.empty((len(beside[0]) if beside else 0, 0))
    columns: list[Column] = []
    notes: list[str] = []
    naming, wrong = [], []
    for one in found.features:
        if not values.shape[1]:
            memory.require(8.0 * len(one.values) * count, f"reading {where}", ADVICE)
            values = np.empty((len(one.values), count))
        notes += [f"column {quoted(one.name)} {note}" for note in one.notes]
        if one.fault:
            wrong.append(one)
        elif one.kind == "id":
            naming.append(one.cells())
        elif one.kind != "constant":
            values[:, len(columns)] = one.values
            columns.append(one.column)
    refuse_faults(where, wrong, own=asked.layout is not None)
    if len(columns) < values.shape[1]:
        values = np.ascontiguousarray(values[:, : len(columns)])
    return values, tuple(columns), tuple(notes), naming


def _finite(values: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of an array, infinite ones as gaps, and a sentence about the columns that have some."""
    infinite = np.isinf(values)
    if not infinite.any():
        return values, ()
    columns = [name for name, some in zip(names, infinite.any(axis=0), strict=True) if some]
    what = f"{plural(int(infinite.sum()), 'infinite value')} of {listed(columns, ALL)}"
    return np.where(infinite, np.nan, values), (f"{what} are taken for gaps",)


def refuse_faults(where: str, found: Sequence[Typed], *, own: bool = True) -> None:
    """One sentence about all columns that cannot be read as they should be."""
    wrong = [one for one in found if one.fault]
    if not wrong:
        return
    several = len(wrong) > 1
    said = "; ".join(f"column {quoted(one.name)} should be of kind {one.kind} and {one.fault}" for one in wrong[:ALL])
    mend = f"mend {'them' if several else 'it'}"
    if not own:
        mend += f", or leave {'them' if several else 'it'} out with {options('--drop', [one.name for one in wrong])}"
    raise InputError(f"{where}: {said}: {mend}")


def _labelled(found: Rows, held: Held, asked: Asked) -> Rows:
    """The rows with labels that came beside them: codes of classes that are known, or values."""
    labels = held.labels
    assert labels is not None
    if len(labels) != len(found):
        raise InputError(
            f"{held.where} has {plural(len(labels), 'label')} for {plural(len(found), 'row')}: give one for every row"
        )
    if held.classes and labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() < len(held.classes):
        return replace(found, labels=labels.astype(np.int64), classes=held.classes, label_name="label")
    kind = kinds_by_name(asked.kinds, ("label",)).get("label")
    beside = target("label", arrow_of(labels), held.where, asked=kind, codes=True, missing=missing_words(asked.missing))
    return replace(found, targets=(beside,))


def _refuse(source: str, what: str, given: dict[str, Any]) -> None:
    """Refuse options that have no meaning for a source."""
    for option, value in given.items():
        if value is not None and value is not False and value != ():
            raise InputError(f"{source} is {what}: leave out --{option}")
