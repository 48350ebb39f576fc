"""CIFAR-10 and CIFAR-100 in the binary format of their authors: a folder of `.bin` files, or the archive of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from probssl.data.directory import Progress
from probssl.data.image_files import LARGEST_FILE, members
from probssl.data.image_set import Bytes, ImageSet, Labels
from probssl.errors import InputError

SIDE = 32
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Files:
    """Files of a set. Every image in them is some labels, of which the last one counts, and 3 × 32 × 32 values."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: int
    classes: tuple[str, ...]
    class_names: str | None = None
    """The file that names the classes, a line each."""


LAYOUTS = {
    "cifar10": Files(
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test=("test_batch.bin",),
        labels=1,
        classes=CIFAR10_CLASSES,
    ),
    "cifar100": Files(
        folder="cifar-100-binary",
        train=("train.bin",),
        test=("test.bin",),
        labels=2,
        classes=tuple(map(str, range(100))),
        class_names="fine_label_names.txt",
    ),
}


def read_cifar(path: Path, name: str, progress: Progress | None = None) -> ImageSet:
    """`cifar10` or `cifar100` from its folder or its tar archive."""
    layout = LAYOUTS[name]
    files = _from_folder(path, layout) if path.is_dir() else _from_archive(path, layout, progress)
    missing = [file for file in (*layout.train, *layout.test) if file not in files]
    if missing:
        raise InputError(f"{path} has no file {missing[0]}, which {name} is made of: download it again")
    halves = [_images(files, half, layout, path) for half in (layout.train, layout.test)]
    classes = layout.classes
    if layout.class_names in files:
        listed = files[str(layout.class_names)].decode("utf-8", errors="replace").split()
        classes = tuple(listed) if len(listed) == len(classes) else classes
    return ImageSet.of_halves(name, *halves[0], *halves[1], classes)


def _from_folder(path: Path, layout: Files) -> dict[str, bytes]:
    found = {}
    for file in (*layout.train, *layout.test, layout.class_names):
        if file is None or not (path / file).is_file():
            continue
        if (path / file).stat().st_size > LARGEST_FILE:
            raise InputError(f"{path / file} is larger than any file of CIFAR: download it again")
        found[file] = (path / file).read_bytes()
    return found


def _from_archive(path: Path, layout: Files, progress: Progress | None) -> dict[str, bytes]:
    wanted = {*layout.train, *layout.test, layout.class_names}
    found = members(path, lambda member: PurePosixPath(member).name in wanted, progress)
    return {PurePosixPath(member).name: content for member, content in found}


def _images(files: dict[str, bytes], half: tuple[str, ...], layout: Files, path: Path) -> tuple[Bytes, Labels]:
    length, pieces = layout.labels + 3 * SIDE**2, []
    for file in half:
        count, rest = divmod(len(files[file]), length)
        if rest or not count:
            raise InputError(
                f"{path}: {file} has {len(files[file]):,} bytes, which is not a whole number of images of {length:,}: "
                "download it again"
            )
        pieces.append(np.frombuffer(files[file], np.uint8).reshape(count, length))
    rows = np.concatenate(pieces)
    images = np.ascontiguousarray(rows[:, layout.labels :]).reshape(-1, 3, SIDE, SIDE)
    return images, rows[:, layout.labels - 1].astype(np.int64)
