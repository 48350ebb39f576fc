"""A set of images: what a name, a folder or an archive becomes once it has been read and found whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from probssl.data.wording import plural
from probssl.errors import InputError

Part = Literal["train", "test", "all"]
Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images for training and for testing, from 0 (black) to 255, and a class for each where there are labels."""

    name: str
    """What the user wrote."""
    train: Bytes = field(repr=False)
    """uint8 [n, channels, height, width]; one channel is grey, three are red, green and blue."""
    train_labels: Labels | None = field(repr=False)
    """int64 [n], codes into `classes`; None without labels."""
    test: Bytes = field(repr=False)
    """Of the same size; empty where the source has no test images."""
    test_labels: Labels | None = field(repr=False)
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    """Files that are no whole images, where it was asked to do without them."""

    def __post_init__(self) -> None:
        for half, images, labels in self._halves():
            where = f"the {half} half of {self.name}"
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != self.train.shape[1:]:
                raise InputError(
                    f"{where} should be bytes [n, channels, height, width] of one size, and is an array of type "
                    f"{images.dtype} and shape {images.shape}"
                )
            if (labels is None) != (self.train_labels is None) or (labels is not None and len(labels) != len(images)):
                told = "no labels" if labels is None else plural(len(labels), "label")
                raise InputError(f"{where} has {plural(len(images), 'image')} and {told}: fetch both anew")
            if labels is not None and len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
                wrong = labels.max() if labels.max() >= len(self.classes) else labels.min()
                raise InputError(f"{where} has a label {wrong}, where labels run from 0 to {len(self.classes) - 1}")
        if not len(self.train):
            raise InputError(f"{self.name} has no images to train on")

    def _halves(self) -> list[tuple[str, Bytes, Labels | None]]:
        return [("training", self.train, self.train_labels), ("test", self.test, self.test_labels)]

    @classmethod
    def of_array(cls, images: np.ndarray, name: str = "array") -> ImageSet:
        """Images [n, channels, height, width] without labels: bytes, or numbers from 0 to 1, which become bytes."""
        images = check_images(images, f"the {name}")
        if images.dtype != np.uint8:
            images = np.rint(images * 255).astype(np.uint8)
        return cls(name, images, None, images[:0], None, ())

    @property
    def source(self) -> str:
        """What the user wrote, as a table calls it."""
        return self.name

    def part(self, which: Part = "all") -> tuple[Bytes, Labels | None]:
        """Images and labels of a half, or of all: those for training first, then those for tests."""
        if which not in get_args(Part):
            raise InputError(f"the parts of {self.name} are {', '.join(get_args(Part))}, not {which!r}")
        if which == "test" and not len(self.test):
            raise InputError(f"{self.name} has no test half: leave the part out")
        if which == "train" or not len(self.test):
            return self.train, self.train_labels
        if which == "test":
            return self.test, self.test_labels
        labels = None if self.train_labels is None else np.concatenate([self.train_labels, self.test_labels])
        return np.concatenate([self.train, self.test]), labels

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width


def check_images(images: np.ndarray, where: str) -> np.ndarray:
    """An array of images [n, channels, height, width], bytes or numbers from 0 to 1; `InputError` if it is not."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.size:
        raise InputError(f"{where} should be images [n, 1 or 3, height, width], and is of shape {images.shape}")
    if not images.flags.writeable:
        images = images.copy()  # torch shares the memory of arrays and wants none that it must not write to
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise InputError(f"{where} should hold bytes, or numbers from 0 to 1, and is of type {images.dtype}")
    if not (images.min() >= 0 and images.max() <= 1):  # written so that a missing value is refused too
        raise InputError(
            f"{where} should hold numbers from 0 to 1, and holds some from {images.min():g} to {images.max():g}: "
            "bytes from 0 to 255 are of type uint8"
        )
    return images.astype(np.float32, copy=False)


def unit_floats(images: Bytes) -> NDArray[np.float32]:
    """Values from 0 to 255 as numbers from 0 to 1, which encoders and augmentations take."""
    return np.multiply(images, np.float32(1 / 255), dtype=np.float32)
