"""The data of a run: read for the first time, with test rows set aside, or again when the run is resumed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probssl.data import Corrupt, Dataset, Table, check_trainable, is_dataset, load
from probssl.errors import InputError
from probssl.runs import folder as folders
from probssl.runs.folder import Run, Source, absolute
from probssl.training.distributed import processes

TEST_SHARE = 0.2
"""Of a table's rows, or of images without a test half of their own, what training never sees unless told otherwise."""

LEAST_ROWS = 2
"""Rows that a test needs to be judged by; smaller data is trained on and judged as a whole unless told otherwise."""


@dataclass(frozen=True)
class Reading:
    """How a person asks for data to be read; the data says the rest, or the run that is resumed."""

    label: str | Sequence[str] | None = None
    drop: str | Sequence[str] = ()
    kinds: Mapping[str, str] | None = None
    missing: str | Sequence[str] = ()
    encoding: str | None = None
    ids: str | None = None
    test: Any = None
    size: int | tuple[int, int] | None = None
    corrupt: Corrupt = "refuse"

    def first(self, data: Any, seed: int, base: Run | None, announce: Announcer) -> tuple[Dataset, Source]:
        """The data of a new run, its test rows set aside, and how to find both again."""
        if data is None:
            raise InputError("give DATA to train on: a file or a name, for example sklearn:digits")
        named = isinstance(data, (str, os.PathLike))
        options: dict[str, Any] = {
            "label": self.label if self.label is None or isinstance(self.label, str) else tuple(self.label),
            "drop": _several(self.drop),
            "kinds": dict(self.kinds or {}),
            "missing": _several(self.missing),
            "encoding": self.encoding,
            "ids": self.ids,
            "size": (self.size, self.size) if isinstance(self.size, int) else self.size,
            "corrupt": self.corrupt,
        }
        layout = None if base is None else base.model.layout
        said = self.test is None or isinstance(self.test, (str, os.PathLike, int, float)) or is_dataset(self.test)
        test = self.test if said else load(self.test, **options)

        def read() -> Dataset:
            with announce.reading(os.fspath(data) if named else "object") as bytes_read:
                return load(data, **options, layout=layout, test=test, seed=seed % 2**32, progress=bytes_read)

        dataset = processes.first_then_others(read)
        if isinstance(dataset, Table):
            check_trainable(dataset)
        divided, test = _divided(dataset, test, seed)
        source = Source(
            from_anywhere(data, dataset),
            **{**options, "label": dataset.label_name if is_dataset(data) else options["label"]},
            test=test,
            seed=seed,
            fingerprint=divided.fingerprint,
        )
        return divided, source

    def again(self, before: Run, data: Any, announce: Announcer) -> tuple[Dataset, Source]:
        """The data of a run that is resumed; `data` is where it is now, if it was moved or is an object."""
        for field in dataclasses.fields(self):
            asked, stored = getattr(self, field.name), getattr(before.source, field.name)
            if (asked or None) != (field.default or None) and str(_plainly(asked)) != str(_plainly(stored)):
                option = f"--{field.name.removesuffix('s') if field.name == 'kinds' else field.name}"
                was = f"with {option} {_plainly(stored)}" if stored else f"without {option}"
                raise InputError(f"the run in {before.folder} was started {was}, and --resume cannot change it")
        place = absolute(data) if isinstance(data, (str, os.PathLike)) else data
        if place is not None and not (isinstance(place, str) and place == before.source.data):
            return before.found_at(place), before.source
        if before.source.data in folders.OBJECTS:
            raise InputError(f"the run was trained on an object in memory ({before.source.data}): pass it again")
        with announce.reading(before.source.data) as bytes_read:
            try:
                return processes.first_then_others(lambda: before.source.read(bytes_read)), before.source
            except InputError as error:
                if "there is no file" not in str(error):
                    raise
                again = f"if it has moved, give its new location: probssl fit NEW --resume --out {before.folder}"
                raise InputError(f"{error}; {again}") from error


def _divided(dataset: Dataset, test: Any, seed: int) -> tuple[Dataset, float | str | None]:
    """The data with its test rows set aside, and how a run remembers which they are."""
    kept = test
    if test is None and dataset.test is None and dataset.layout.kind != "world":
        kept = TEST_SHARE if round(TEST_SHARE * len(dataset)) >= LEAST_ROWS else None
    divided = dataset if kept is test else dataset.with_test(kept, seed % 2**32)
    for half, rows in (("training", divided.rows("train")), ("test", divided.rows("test"))):
        if len(rows) == 1:
            what = "image" if dataset.layout.kind == "images" else "row"
            raise InputError(
                f"{dataset.source} has only 1 {half} {what}, and needs two: add more, or choose another --test"
            )
    if is_dataset(kept):
        return divided, "dataset"
    if kept is None or isinstance(kept, (int, float)) or kept in dataset.layout.names:
        return divided, kept
    return divided, absolute(str(kept))


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return ((names,) if names else ()) if isinstance(names, str) else tuple(names)


def _plainly(value: Any) -> Any:
    """A way of reading data as the command line writes it."""
    if isinstance(value, Mapping):
        value = [f"{name}={kind}" for name, kind in value.items()]
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return absolute(value) if isinstance(value, str) and Path(value).exists() else value


def from_anywhere(data: Any, dataset: Dataset) -> str:
    """The full path of a file or folder, so that the run finds its data again from elsewhere; names stay names."""
    return absolute(data) if isinstance(data, (str, os.PathLike)) else dataset.source


class Announcer:
    """Says what takes long before and after training, on standard error, where progress is asked for."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown and processes.is_first()
        self._spinner: Any = None

    def reading(self, name: str) -> Any:
        from probssl.report.console import download_progress

        return download_progress(name, not self.shown)

    def __call__(self, what: str) -> None:
        if not self.shown:
            return
        from rich.console import Console

        if self._spinner is None:
            self._spinner = Console(stderr=True).status(what)
            self._spinner.start()
        self._spinner.update(what)

    def __enter__(self) -> Announcer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spinner is not None:
            self._spinner.stop()
