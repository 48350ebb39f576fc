"""The sets of images that studies train on."""

from __future__ import annotations

import functools

from probssl.data import ImageSet, load_images


@functools.cache
def images_of(name: str) -> ImageSet:
    """A set of images, read once a process."""
    return load_images(name)
