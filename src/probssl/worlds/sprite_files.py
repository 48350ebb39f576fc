"""The published files: dSprites (Matthey et al. 2017) and KITTI Masks (Klindt et al. 2021), read from where they are.

Both hold binary images, kept here at one bit a pixel: 377 MB for all 737,280 of dSprites, instead of 3 GB. Nothing in
either file is executed: the pickled metadata of dSprites is not read, and the pickle of KITTI Masks goes through a
reader that knows lists, dictionaries and arrays of numbers, and refuses everything else.
"""

from __future__ import annotations

import contextlib
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from probssl import memory
from probssl.errors import InputError
from probssl.worlds.sprites import Sprites

_ROWS = 4096
"""Images unpacked at a time while a file is read: 16 MB."""


@dataclass(frozen=True)
class BinaryImages:
    """n images of height × width pixels, one bit each; `packed` is uint8 [n, ⌈height · width / 8⌉]."""

    packed: np.ndarray
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.packed)

    def images(self, rows: Tensor) -> Tensor:
        """float32 [m, 1, height, width] of zeros and ones: the images at these rows, in this order."""
        chosen = self.packed[_rows_within(rows, len(self))]
        bits = np.unpackbits(chosen, axis=1, count=self.height * self.width)
        return torch.from_numpy(bits).float().unflatten(1, (1, self.height, self.width))


@dataclass(frozen=True)
class PublishedSprites:
    """The published images of dSprites, with the interface of `Sprites` for indices.

    `factors` is int64 [n, 5], indices in the order of `Sprites.names`; the colour, which is always white, is left out.
    """

    pixels: BinaryImages
    factors: Tensor
    _row_of: Tensor  # int32, row of the file for each combination of the grids; −1 where the file has none

    def __len__(self) -> int:
        return len(self.pixels)

    def images(self, rows: Tensor) -> Tensor:
        """float32 [m, 1, 64, 64] of zeros and ones: rows of the file."""
        return self.pixels.images(rows)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Indices of images of the file, uniformly, with replacement: int64 [count, 5]."""
        return self.factors[torch.randint(len(self), (count,), generator=generator)]

    def render(self, factors: Tensor) -> Tensor:
        """float32 [n, 1, 64, 64]: the published images of these indices; there are none of values between."""
        if factors.is_floating_point():
            raise InputError("the published sprites have images of grid indices only: draw values with Sprites instead")
        rows = self._row_of[Sprites().rows(factors)].long()
        if bool((rows < 0).any()):
            raise InputError(f"the file has no image of the factors {factors[rows < 0][0].tolist()}")
        return self.images(rows)


def load_dsprites(path: str | Path) -> PublishedSprites:
    """Read dSprites' `.npz`: `imgs` uint8 [n, 64, 64] of zeros and ones, `latents_classes` and `latents_values` [n, 6].

    The images are read and packed in pieces, so that memory stays below 0.7 GB, by an estimate from an eighth of the
    rows. The classes must be those of the grids of `Sprites`, with the values that belong to them; the rows may be all
    of them or some, in any order.
    """
    path = Path(path)
    with _reading(path):
        with zipfile.ZipFile(path) as archive, archive.open("imgs.npy") as stream:
            others = sum(member.file_size for member in archive.infolist() if member.filename != stream.name)
            memory.require(others, f"unpacking {path}", "download it again")
            pixels = _pack_stream(stream, path)
        with np.load(path, allow_pickle=False) as arrays:
            classes, values = arrays["latents_classes"], arrays["latents_values"]
    if classes.shape != (len(pixels), 6) or values.shape != classes.shape or classes.dtype.kind not in "iu":
        raise InputError(f"{path} must have six latent classes and values for each of its {len(pixels):,} images")
    factors = torch.from_numpy(classes[:, 1:].astype(np.int64))
    sprites = Sprites()
    if not np.allclose(sprites.values(factors), values[:, 1:], atol=1e-4):
        raise InputError(f"{path} has latent values that are not those of its classes on the grids of dSprites")
    row_of = torch.full((len(sprites),), -1, dtype=torch.int32)
    row_of[sprites.rows(factors)] = torch.arange(len(factors), dtype=torch.int32)
    return PublishedSprites(pixels, factors, row_of)


@dataclass(frozen=True)
class KittiMasks:
    """Masks of pedestrians, frame by frame, in sequences. Latents: vertical and horizontal centre, and area, in pixels.

    `latents` is float32 [n, 3], `last` int64 [n]: the last frame of the sequence that a frame belongs to.
    """

    pixels: BinaryImages
    latents: Tensor
    last: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def images(self, rows: Tensor) -> Tensor:
        """float32 [m, 1, height, width] of zeros and ones: these frames."""
        return self.pixels.images(rows)

    def draw_pairs(
        self, count: int, generator: torch.Generator | None = None, *, separation: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Rows of first and second frames, int64 [count] each, as CL-ICA Table 5 pairs them.

        The first is uniform over all frames that have a next one; the second comes U{1, …, separation} frames later, or
        is the last of the sequence where that is sooner, as in SlowVAE's released sampler.
        """
        if separation < 1:
            raise InputError(f"the frames of a pair are 1 or more apart, not {separation}")
        starts = (torch.arange(len(self)) < self.last).nonzero().squeeze(1)
        first = starts[torch.randint(len(starts), (count,), generator=generator)]
        later = first + torch.randint(1, separation + 1, (count,), generator=generator)
        return first, later.minimum(self.last[first])


def load_kitti_masks(path: str | Path) -> KittiMasks:
    """Read `kitti_peds_v2.pickle`: `pedestrians`, a list of bool [frames, 64, 64], and `pedestrians_latents`.

    A pickle can name any function to be called. Here names are looked up in a list of four, which stand for an array of
    booleans, integers or floating numbers, and none of which is numpy's own code; any other name is refused.
    """
    path = Path(path)
    with _reading(path), path.open("rb") as stream:
        found = _ArraysOnly(stream).load()
    if not isinstance(found, dict) or not {"pedestrians", "pedestrians_latents"} <= found.keys():
        raise InputError(f"{path} must hold a dictionary with pedestrians and pedestrians_latents")
    masks, latents = (_arrays(found[key], key, path) for key in ("pedestrians", "pedestrians_latents"))
    sizes = [len(sequence) for sequence in masks]
    fit = len({mask.shape[1:] for mask in masks}) == 1 and all(m.ndim == 3 and m.dtype == bool for m in masks)
    if not fit or [each.shape for each in latents] != [(size, 3) for size in sizes]:
        raise InputError(f"{path} must hold boolean masks of one size, and three latents for each")
    if max(sizes) < 2:
        raise InputError(f"{path} has no sequence of two frames or more")
    _, height, width = masks[0].shape
    packed = np.concatenate([np.packbits(mask.reshape(len(mask), -1), axis=1) for mask in masks])
    last = np.repeat(np.cumsum(sizes) - 1, sizes)
    together = np.concatenate(latents).astype(np.float32)
    return KittiMasks(BinaryImages(packed, height, width), torch.from_numpy(together), torch.from_numpy(last))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file makes its readers raise into one sentence that names it."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be read: {reason}") from error


def _rows_within(rows: Tensor, count: int) -> np.ndarray:
    if rows.is_floating_point() or rows.ndim != 1 or bool(((rows < 0) | (rows >= count)).any()):
        raise InputError(f"rows must be a list of integers from 0 to {count - 1:,}")
    return rows.cpu().numpy()


def _pack_stream(stream: IO[bytes], path: Path) -> BinaryImages:
    """One array of a `.npz`, packed as it is decompressed."""
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise InputError(f"{path} has images in version {version} of numpy's format, which is not known here")
    shape, fortran, dtype = read(stream)
    if len(shape) != 3 or fortran or dtype != np.uint8:
        raise InputError(f"{path} must have images as bytes, [n, height, width]")
    count, height, width = shape
    packed = np.empty((count, -(-height * width // 8)), dtype=np.uint8)
    for start in range(0, count, _ROWS):
        rows = min(_ROWS, count - start)
        piece = stream.read(rows * height * width)
        if len(piece) != rows * height * width:
            raise InputError(f"{path} ends before its images do")
        pixels = np.frombuffer(piece, dtype=np.uint8).reshape(rows, height * width)
        if pixels.max(initial=0) > 1:
            raise InputError(f"{path} has pixels that are neither 0 nor 1")
        packed[start : start + rows] = np.packbits(pixels, axis=1)
    return BinaryImages(packed, height, width)


class _Dtype:
    """Stands for `numpy.dtype` in a pickle: a kind and a size, of numbers only."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("b1", "u1", "i4", "i8", "f4", "f8"):
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}, and only numbers are read from pickles")
        self.dtype = np.dtype(str(code))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """Stands for `numpy.ndarray` in a pickle: shape, type, order and bytes."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if fortran else "C")


class _Buffer(_Array):
    """An array as version 5 of pickles writes it, all in one call."""

    def __init__(self, content: bytes, kind: _Dtype, shape: tuple[int, ...], order: str) -> None:
        self.__setstate__((1, shape, kind, order == "F", content))


class _ArraysOnly(pickle.Unpickler):
    """Reads pickles of lists, dictionaries and arrays of numbers; names in the file lead to the classes above only.

    All of those take their state themselves, because to an object that does not, a pickle may set any attribute.
    """

    known: ClassVar[dict[tuple[str, str], type]] = {
        ("multiarray", "_reconstruct"): _Array,
        ("numeric", "_frombuffer"): _Buffer,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        short = module.removeprefix("numpy.core.").removeprefix("numpy._core.")
        if (short, name) not in self.known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays are read from pickles")
        return self.known[short, name]


def _arrays(found: object, key: str, path: Path) -> list[np.ndarray]:
    if not isinstance(found, list) or not found or not all(isinstance(each, _Array) for each in found):
        raise InputError(f"{path} must hold a list of arrays under {key}")
    return [each.array for each in found]
