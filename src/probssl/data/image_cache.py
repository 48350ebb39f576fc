"""Decoded images on disk: what takes seconds to decode is decoded once, and mapped into memory from then on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from probssl.data.directory import cache_directory
from probssl.data.image_set import ImageSet
from probssl.errors import InputError
from probssl.files import temporary_beside

_VERSION = "4"
_ARRAYS = ("images", "labels", "ids", "test")


def cached(
    name: str, sources: Sequence[Path], build: Callable[[], ImageSet], *choices: str, least: int = 0
) -> ImageSet:
    """What `build` makes of files or folders, from the cache while these and the choices are the same.

    What was made of the same files before they changed is removed. Without a cache directory that can be written to, it
    is built anew every time, and so are sets of fewer than `least` bytes. `name` is what the set is called.
    """
    places = [source.resolve() for source in sources]
    whose = _short(*map(str, places), *choices)
    label = name if name == Path(name).name else places[0].name
    folder = cache_directory() / "images" / f"{label}-{whose}-{_short(_VERSION, *map(_stamp, places))}"
    found = _read(folder, name)
    if found is not None:
        return found
    built = build()
    if built.images.nbytes < least:
        return built
    with contextlib.suppress(OSError):
        _write(folder, built)
        for other in folder.parent.glob(f"*-{whose}-*"):
            if other.name != folder.name:
                shutil.rmtree(other, ignore_errors=True)
        return _read(folder, name) or built
    return built


def _short(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _stamp(source: Path) -> str:
    """What changes when the files of a source do."""
    entries = sorted(_entries(source)) if source.is_dir() else [_of_file(str(source), source.stat())]
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()


def _entries(folder: Path | str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """A line each file below a folder, or a link to one, without a second look at any: sets have a million."""
    places = (*above, os.path.realpath(folder))
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if not entry.is_symlink() or os.path.realpath(entry.path) not in places:
                    yield from _entries(entry.path, places)
            elif entry.is_file():
                yield _of_file(entry.path, entry.stat())


def _of_file(path: str, status: os.stat_result) -> str:
    return f"{path}\0{status.st_size}\0{status.st_mtime_ns}"


def _read(folder: Path, name: str) -> ImageSet | None:
    """The set in a folder of the cache; None where there is none, or none that is whole."""
    try:
        stored = json.loads((folder / "set.json").read_text(encoding="utf-8"))
        # copies what is written to, so that torch may share its memory and the file stays as it is
        arrays = {part: np.load(folder / f"{part}.npy", mmap_mode="c", allow_pickle=False) for part in stored["arrays"]}
        classes, label_name = tuple(stored["classes"]), stored["label_name"]
        return ImageSet(name, **arrays, classes=classes, label_name=label_name, left_out=stored["left_out"])
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None


def _write(folder: Path, images: ImageSet) -> None:
    """The whole folder or nothing, whoever else writes it at the same time."""
    with temporary_beside(folder, folder=True) as temporary:
        arrays = [part for part in _ARRAYS if getattr(images, part) is not None]  # a folder may have no classes
        for part in arrays:
            np.save(temporary / f"{part}.npy", getattr(images, part), allow_pickle=False)
        stored = {"classes": images.classes, "label_name": images.label_name, "left_out": dict(images.left_out)}
        (temporary / "set.json").write_text(json.dumps({**stored, "arrays": arrays}), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)  # damaged, or it would have been read
        os.replace(temporary, folder)
