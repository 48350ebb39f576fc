"""MNIST and Fashion-MNIST: images of 28 × 28 grey values with labels from 0 to 9, from their idx files."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from probssl.data.directory import Progress, download, find
from probssl.data.image_set import Bytes, ImageSet
from probssl.errors import InputError

_FASHION = "b2617bb6d3ffa2e429640350f613e3291e10b141"
URLS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/{file}",
    "fashion-mnist": f"https://github.com/zalandoresearch/fashion-mnist/raw/{_FASHION}/data/fashion/{{file}}",
}
"""Name -> where its files can be had."""

CLASSES = {
    "mnist": tuple(map(str, range(10))),
    "fashion-mnist": (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}
SIDE = 28
LARGEST = 2**28
"""Bytes that a file may hold once it is unpacked; those of MNIST hold 47 million."""
_UNSIGNED_BYTES = 8  # the idx code of the type
FILES = tuple(f"{half}-{kind}-ubyte.gz" for half in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def mnist(name: str = "mnist", progress: Progress | None = None) -> ImageSet:
    """`mnist` or `fashion-mnist`: from NAME/*.gz in the data directory, else downloaded into the cache.

    `progress` is called with the bytes of a file fetched so far and the bytes in all (or None).
    """
    if name not in URLS:
        raise InputError(f"there are images named {' and '.join(URLS)}, not {name!r}")
    train, train_labels, test, test_labels = (read_idx(fetch_idx(name, file, progress)) for file in FILES)
    for images, labels, half in ((train, train_labels, "training"), (test, test_labels, "test")):
        where = f"the {half} half of {name}"
        if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE) or not len(images):
            raise InputError(f"{where} should be images of {SIDE} × {SIDE}, and is an array of shape {images.shape}")
        if labels.shape != images.shape[:1]:
            raise InputError(f"{where} has {len(images):,} images and labels {labels.shape}: download both again")
    return ImageSet.of_halves(
        name,
        train[:, None],
        train_labels.astype(np.int64),
        test[:, None],
        test_labels.astype(np.int64),
        CLASSES[name],
    )


def fetch_idx(name: str, file: str, progress: Progress | None = None) -> Path:
    """The path of one of the four files: where it is, or where it was downloaded to."""
    relative = f"{name}/{file}"
    found = find(relative)
    if found is not None:
        return found
    try:
        return download(URLS[name].format(file=file), relative, progress)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def read_idx(path: Path) -> Bytes:
    """The array of bytes in a gzipped idx file: two zeros, type, number of sides, the sides (big endian), the data."""
    try:
        with gzip.open(path, "rb") as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be read as a gzip file ({reason}): download it again") from error
    if len(content) > LARGEST:
        raise InputError(f"{path} unpacks to over {LARGEST:,} bytes, more than any file of MNIST: download it again")
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES or not content[3]:
        raise InputError(f"{path} is not an idx file of bytes: it begins with {content[:4].hex(' ') or 'nothing'}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise InputError(f"{path} breaks off within its header, after {len(content)} bytes: download it again")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path} should hold {' × '.join(map(str, shape))} = {math.prod(shape):,} bytes after its header, and "
            f"holds {len(content) - start:,}: download it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()  # so that it may be written to
