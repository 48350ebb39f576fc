"""A set of images: what a name, a folder or an archive becomes once it has been read and found whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from probssl.data.dataset import Dataset, Rows
from probssl.data.wording import plural
from probssl.errors import InputError
from probssl.layout import Layout

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageSet(Rows):
    """Images of one size, and a class for each where there are labels. Of published sets, `test` is their test half."""

    images: np.ndarray = field(repr=False)
    """uint8 [n, channels, height, width] from 0 (black) to 255, or float32 from 0 to 1; one channel is grey, three are
    red, green and blue."""
    left_out: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Files of a folder or archive that are not in the set, and why."""

    @property
    def values_field(self) -> Literal["images"]:
        """The name of the field that holds the rows."""
        return "images"

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype not in (np.uint8, np.float32):
            raise InputError(
                f"{self.source} should be bytes or single-precision numbers [n, channels, height, width], and is an "
                f"array of type {self.images.dtype} and shape {self.images.shape}"
            )
        super().__post_init__()

    @classmethod
    def of_halves(
        cls,
        source: str,
        train: Bytes,
        train_labels: Labels | None,
        test: Bytes,
        test_labels: Labels | None,
        classes: tuple[str, ...] = (),
    ) -> ImageSet:
        """A set that comes as two arrays, one for training and one for the test."""
        for half, images, labels in (("training", train, train_labels), ("test", test, test_labels)):
            where = f"the {half} half of {source}"
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != train.shape[1:]:
                raise InputError(
                    f"{where} should be bytes [n, channels, height, width] of one size, and is an array of type "
                    f"{images.dtype} and shape {images.shape}"
                )
            if (labels is None) != (train_labels is None) or (labels is not None and len(labels) != len(images)):
                others = "no labels" if labels is None else plural(len(labels), "label")
                raise InputError(f"{where} has {plural(len(images), 'image')} and {others}: download both again")
        return cls(
            source,
            np.concatenate([train, test]) if len(test) else train,
            labels=None if train_labels is None or test_labels is None else np.concatenate([train_labels, test_labels]),
            classes=classes,
            test=np.repeat([False, True], [len(train), len(test)]),
        )

    @classmethod
    def of_array(cls, images: np.ndarray, source: str = "array", where: str = "the array") -> ImageSet:
        """Images [n, channels, height, width] without labels: bytes, or numbers from 0 to 1."""
        return cls(source, check_images(images, where))

    @property
    def layout(self) -> Layout:
        """What one row is."""
        return Layout("images", self.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def train_images(self) -> np.ndarray:
        """The images that training may see, in the memory of the set where they follow each other."""
        return self.take(self.rows("train")).images

    @property
    def test_images(self) -> np.ndarray:
        """The images set aside for the test."""
        return self.take(self.rows("test")).images

    @property
    def train_labels(self) -> Labels | None:
        """Labels of `train_images`."""
        return None if self.labels is None else self.labels[self.rows("train")]

    @property
    def test_labels(self) -> Labels | None:
        """Labels of `test_images`."""
        return None if self.labels is None else self.labels[self.rows("test")]

    def read_alike(self, source: str) -> Dataset:
        from probssl.data.images import NAMED, load_images

        fixed = source in NAMED and NAMED[source].size is None
        return load_images(source, size=None if fixed else self.shape[1:])


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
