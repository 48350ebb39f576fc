"""CelebA as its authors pack it: faces in one folder, and tables of what is seen in them (Liu et al., 2015)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from probssl.data.directory import Progress
from probssl.data.image_files import Corrupt, Size, read_folder
from probssl.data.image_set import ImageSet
from probssl.errors import InputError

FACES = "img_align_celeba"
ATTRIBUTES = ("list_attr_celeba.txt", "list_attr_celeba.csv")
PARTITION = ("list_eval_partition.txt", "list_eval_partition.csv")
LABEL = "Male"
CLASSES = ("female", "male")
TRAIN, TEST = 0, 2
"""Of the authors' partition; 1 is for validation, and left out."""


def is_celeba(folder: Path) -> bool:
    """Whether a folder holds the faces, and both tables."""
    return (folder / FACES).is_dir() and all(_one_of(folder, names) for names in (ATTRIBUTES, PARTITION))


def read_celeba(folder: Path, size: Size, corrupt: Corrupt, progress: Progress | None) -> ImageSet:
    """The training and test faces of the authors' partition, labelled female and male as in SimVAE's Table 1."""
    faces = folder / FACES
    halves, male = _column(folder, PARTITION, 0), _column(folder, ATTRIBUTES, LABEL)

    def wanted(file: str) -> bool:
        name = PurePosixPath(file).name
        if name not in halves or name not in male:
            raise InputError(f"{folder} is not CelebA: {name} is not in its tables")
        return halves[name] in (TRAIN, TEST)

    found = read_folder(faces, str(faces), size=size, corrupt=corrupt, progress=progress, wanted=wanted)
    assert found.ids is not None
    files = [PurePosixPath(str(file)).name for file in found.ids]
    labels = np.array([male[name] == 1 for name in files], np.int64)
    test = np.array([halves[name] == TEST for name in files])
    return replace(found, source="celeba", labels=labels, classes=CLASSES, label_name=LABEL, test=test)


def _one_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _column(folder: Path, names: tuple[str, ...], column: str | int) -> dict[str, int]:
    """File -> number, of a column by its name or place, in a table of words or one with commas (Kaggle's)."""
    path = _one_of(folder, names)
    assert path is not None  # `is_celeba`
    lines = [line.replace(",", " ").split() for line in path.read_text(encoding="utf-8").splitlines()]
    try:
        if isinstance(column, str):
            head = next(number for number, words in enumerate(lines) if column in words)
            column = [word for word in lines[head] if word != "image_id"].index(column)
        return {words[0]: int(words[1 + column]) for words in lines if words and words[0].endswith(".jpg")}
    except (StopIteration, IndexError, ValueError) as error:
        raise InputError(f"{path} is not the table of CelebA: {error or 'no such column'}") from error
