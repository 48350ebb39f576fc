"""The sets of images that studies train on."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from probssl.data import ImageSet, load_images


@functools.cache
def images_of(name: str) -> ImageSet:
    """A set of images, read once a process."""
    return load_images(name)


class Half(NamedTuple):
    """Images, and the class of each."""

    images: np.ndarray
    labels: np.ndarray

    def first(self, count: int) -> Half:
        """The first so many of both."""
        return Half(self.images[:count], self.labels[:count])


def halves(found: ImageSet) -> tuple[Half, Half]:
    """Images and labels for training and for the test, of a set that has labels."""
    assert found.train_labels is not None
    assert found.test_labels is not None
    return Half(found.train_images, found.train_labels), Half(found.test_images, found.test_labels)
