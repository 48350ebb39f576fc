"""A set of images: what a name, a folder or an archive becomes once it has been read and found whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from probssl.data.wording import plural
from probssl.errors import InputError

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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width


def unit_floats(images: Bytes) -> NDArray[np.float32]:
    """Values from 0 to 255 as numbers from 0 to 1, which encoders and augmentations take."""
    return np.multiply(images, np.float32(1 / 255), dtype=np.float32)
