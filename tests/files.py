"""Where data come from, for tests that read them: folders of their own, no network, and sets in published layouts."""

from __future__ import annotations

import gzip
import pickle
import struct
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest


def unplug(monkeypatch: pytest.MonkeyPatch, data: Path, cache: Path) -> None:
    """A data directory and a cache of one's own, without a network."""

    def unplugged(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setenv("PROBSSL_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("LOCALAPPDATA", str(cache))
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", unplugged)


def idx(array: np.ndarray) -> bytes:
    """An array of bytes as the contents of an idx file."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_half(folder: Path, half: str, images: np.ndarray, labels: np.ndarray) -> None:
    """The two files of one half, `train` or `t10k`."""
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        (folder / f"{half}-{name}-ubyte.gz").write_bytes(gzip.compress(idx(array), 1))


def write_bars(folder: Path, train: int, test: int, *, standing: bool = False) -> None:
    """Noise with a lying or standing bar whose place is the label, which begins and ends anywhere."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(int(standing))
    for half, count in (("train", train), ("t10k", test)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = rng.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label + 4 : 2 * label + 7, rng.integers(2, 9) : rng.integers(18, 26)] = 250
        write_half(folder, half, images.swapaxes(1, 2) if standing else images, labels)


def write_kitti(path: Path) -> None:
    """Squares that drift, in the layout of KITTI Masks: their masks, and their place and size as latents."""
    rng, masks, latents = np.random.default_rng(0), [], []
    for _ in range(12):
        places = np.clip(np.cumsum(rng.normal(0, 3, (9, 2)), axis=0) + rng.uniform(16, 48, 2), 12, 52)
        half = rng.uniform(4, 12) + np.zeros(9)
        near = [np.abs(np.arange(64) - places[:, axis, None]) < half[:, None] for axis in (0, 1)]
        masks.append(near[0][:, :, None] & near[1][:, None, :])
        latents.append(np.column_stack([places, half**2]))
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps({"pedestrians": masks, "pedestrians_latents": latents}, protocol=4))
