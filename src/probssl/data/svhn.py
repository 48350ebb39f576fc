"""SVHN, house numbers of 32 × 32 pixels, from the two MATLAB files of its authors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probssl import memory
from probssl.data.image_set import Bytes, ImageSet, Labels
from probssl.errors import InputError

FILES = ("train_32x32.mat", "test_32x32.mat")
SIDE, CLASSES = 32, 10
LARGEST = 1_000_000
"""Images that a file may say it holds; all that were ever published are 531,131."""


def read_svhn(train: Path, test: Path) -> ImageSet:
    """`svhn` from its two files. The label 10, which its authors give to the digit 0, becomes 0."""
    return ImageSet.of_halves("svhn", *read_mat(train), *read_mat(test), tuple(map(str, range(CLASSES))))


def read_mat(path: Path) -> tuple[Bytes, Labels]:
    """Images [n, 3, 32, 32] and digits [n] of one file, which has them as X [32, 32, 3, n] and y [n, 1]."""
    from scipy import io

    try:
        sizes = {name: (shape, kind) for name, shape, kind in io.whosmat(path)}
        shape, kind = sizes.get("X", ((), ""))
        if kind != "uint8" or len(shape) != 4 or shape[:3] != (SIDE, SIDE, 3) or not 0 < shape[3] <= LARGEST:
            found = ", ".join(f"{name} {list(of)} of {what}" for name, (of, what) in sizes.items()) or "nothing"
            raise InputError(f"{path} should hold X [32, 32, 3, n] of uint8, and holds {found}: download it again")
        if sizes.get("y", ((), ""))[0] not in ((shape[3], 1), (1, shape[3])):
            raise InputError(f"{path} should hold {shape[3]:,} labels y beside as many images: download it again")
        memory.require(3.0 * SIDE**2 * 3 * shape[3], f"unpacking {path}", "download it again")
        content = io.loadmat(path, variable_names=["X", "y"])
    except InputError:
        raise
    except Exception as error:  # a damaged file can make SciPy raise nearly anything
        raise InputError(f"{path} is not a whole MATLAB file ({type(error).__name__}): download it again") from error
    labels = content["y"].reshape(-1)
    if labels.dtype.kind not in "uif" or not np.isin(labels, np.arange(CLASSES + 1)).all():
        raise InputError(f"{path} has labels that are not digits: download it again")
    return np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1)), labels.astype(np.int64) % CLASSES
