"""Sets of images by name, folder or archive: `mnist`, `cifar10`, `./photographs`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path

import numpy as np

from probssl.data.celeba import is_celeba, read_celeba
from probssl.data.cifar import CIFAR10_CLASSES, LAYOUTS, read_cifar
from probssl.data.directory import Progress, data_directory, download, expanded, find
from probssl.data.image_cache import cached
from probssl.data.image_files import ARCHIVES, Corrupt, read_archive, read_folder
from probssl.data.image_set import ImageSet
from probssl.data.mnist import FILES as IDX_FILES
from probssl.data.mnist import URLS as IDX_URLS
from probssl.data.mnist import mnist
from probssl.data.svhn import FILES as SVHN_FILES
from probssl.data.svhn import read_svhn
from probssl.data.wording import did_you_mean, quoted
from probssl.errors import InputError

CIFAR_URL = "https://www.cs.toronto.edu/~kriz/{file}"
SVHN_URL = "https://ufldl.stanford.edu/housenumbers/{file}"
JPEG_ARCHIVE = "cifar10-jpeg.tar.xz"

KEPT_FROM = 2**24
"""Bytes of pixels from which on folders and archives are kept decoded: fewer are decoded in a second or two."""


@dataclass(frozen=True)
class NamedImages:
    """A published set: what it is, where it may be found, and where it can be had."""

    about: str
    rows: int
    """Images for training and for testing."""
    dimensions: int
    classes: int
    downloads: dict[str, str]
    """Path in the cache -> address, of all its files."""
    by_hand: str | None = None
    """Where it can be had by those who agree to its terms, and what to put into the data directory: no download."""
    size: int | None = None
    """Pixels to a side unless asked otherwise, of sets whose images are of many sizes."""

    @property
    def where(self) -> str:
        """Where to get it."""
        return self.by_hand or next(iter(self.downloads.values()))


def _downloads(name: str, url: str, *files: str) -> dict[str, str]:
    return {f"{name}/{file}": url.format(file=file) for file in files}


NAMED: dict[str, NamedImages] = {
    "mnist": NamedImages(
        "handwritten digits in grey, 28 × 28, 10,000 for tests",
        *(70_000, 784, 10),
        _downloads("mnist", IDX_URLS["mnist"], *IDX_FILES),
    ),
    "fashion-mnist": NamedImages(
        "clothes and shoes in grey, 28 × 28, 10,000 for tests",
        *(70_000, 784, 10),
        _downloads("fashion-mnist", IDX_URLS["fashion-mnist"], *IDX_FILES),
    ),
    "cifar10": NamedImages(
        "animals and vehicles, 32 × 32, 10,000 for tests",
        *(60_000, 3072, 10),
        _downloads("cifar10", CIFAR_URL, "cifar-10-binary.tar.gz"),
    ),
    "cifar100": NamedImages(
        "things of a hundred kinds, 32 × 32, 10,000 for tests",
        *(60_000, 3072, 100),
        _downloads("cifar100", CIFAR_URL, "cifar-100-binary.tar.gz"),
    ),
    "svhn": NamedImages(
        "digits of house numbers, 32 × 32, 26,032 for tests",
        *(99_289, 3072, 10),
        _downloads("svhn", SVHN_URL, *SVHN_FILES),
    ),
    "celeba": NamedImages(
        "faces, 64 × 64, female or male, 19,962 for tests",
        *(182_732, 12_288, 2),
        {},
        by_hand="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        size=64,
    ),
    "imagenet": NamedImages(
        "things of a thousand kinds, 64 × 64, 50,000 for tests",
        *(1_331_167, 12_288, 1_000),
        {},
        by_hand="https://image-net.org/download.php",
        size=64,
    ),
}

BY_HAND = {
    "celeba": "img_align_celeba/, list_attr_celeba.txt and list_eval_partition.txt",
    "imagenet": "train/ and val/, each with one folder a class",
}
"""What a folder in the data directory, of the name of the set, has to hold."""


def load_images(
    source: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    corrupt: Corrupt = "refuse",
    progress: Progress | None = None,
) -> ImageSet:
    """A named set, or the images of a folder or tar archive; `InputError` when it cannot be used.

    A folder has one sub-folder a class, or none, and may have these in two halves, `train` and `test`. Its images are
    sorted by name. Write `./mnist` for a folder that bears the name of a set. Sets of 16 MB of pixels and more are
    decoded once, into the cache, and mapped into memory from then on, until a file changes.

    size: height and width, or both in one. The largest box of that shape in the middle of every image is resized to
    it. Without a size, all images of a folder must be of one; of named sets only CelebA and ImageNet take one.
    corrupt: "refuse" a folder with a damaged image, or "skip" such images and list them in `left_out`.
    progress: called with the bytes fetched or read so far, and the bytes in all.
    """
    if isinstance(source, str) and source in NAMED:
        own = NAMED[source].size
        if size is not None and own is None:
            raise InputError(f"{source} has images of one size: leave out size")
        return _load_named(source, _sides(own if size is None else size), corrupt, progress)
    path, written, asked = expanded(source), os.fspath(source), _sides(size)
    if path.is_dir():
        build = functools.partial(read_folder, path, written, size=asked, corrupt=corrupt, progress=progress)
        return cached(written, [path], build, str(asked), corrupt, least=KEPT_FROM)
    if not path.exists():
        raise InputError(f"there is no folder or set of images {quoted(written)}{did_you_mean(written, NAMED)}")
    if not path.name.lower().endswith(ARCHIVES):
        raise InputError(f"{path} is neither a folder of images nor an archive of one ({', '.join(ARCHIVES)})")
    build = functools.partial(read_archive, path, written, size=asked, corrupt=corrupt, progress=progress)
    return cached(written, [path], build, str(asked), corrupt, least=KEPT_FROM)


def _sides(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    asked = size if isinstance(size, Sequence) else (size, size)
    if len(asked) != 2 or not all(isinstance(side, Integral) and side >= 1 for side in asked):
        raise InputError(f"a size is a height and a width of at least one pixel, in whole ones, not {size}")
    return int(asked[0]), int(asked[1])


def images_of(source: object) -> str | None:
    """What a set of images is called, by its name, folder or archive, or as an array; None of any other source."""
    if isinstance(source, np.ndarray):
        return "array" if source.ndim == 4 else None
    if not isinstance(source, (str, os.PathLike)):
        return None
    if isinstance(source, str) and source in NAMED:
        return source
    path = expanded(source)
    archive = next((end for end in ARCHIVES if path.name.lower().endswith(end)), None)
    if path.is_dir():
        return path.resolve().name
    return path.name[: -len(archive)] if archive else None


def fetch_images(name: str, progress: Progress | None = None) -> list[Path]:
    """The files or the folder of a named set, downloaded into the cache unless they are there already."""
    found = find_images(name)
    if found:
        return found
    known = NAMED[name]
    if known.by_hand is not None:
        raise InputError(
            f"{name} is not here, and cannot be downloaded: get it from {known.by_hand} and put {BY_HAND[name]} into "
            f"{data_directory() / name}"
        )
    try:
        return [find(relative) or download(url, relative, progress) for relative, url in known.downloads.items()]
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def find_images(name: str) -> list[Path]:
    """The files or the folder of a named set in the data directory or the cache; none where it is not there whole.

    Of CIFAR-10, exact pixels are taken before those that JPEG has changed.
    """
    if name in BY_HAND:
        whole = is_celeba if name == "celeba" else functools.partial(_has_halves, test="val")
        place = find(name, folder=True)
        return [place] if place is not None and whole(place) else []
    if name not in LAYOUTS:
        files = [path for relative in NAMED[name].downloads if (path := find(relative)) is not None]
        return files if len(files) == len(NAMED[name].downloads) else []
    folder, relative = LAYOUTS[name].folder, next(iter(NAMED[name].downloads))
    places = [find(place, folder=True) for place in (folder, f"{name}/{folder}")]
    places += [find(place) for place in (Path(relative).name, relative)]
    if name == "cifar10":
        places += [find(place) for place in (JPEG_ARCHIVE, f"{name}/{JPEG_ARCHIVE}")]
        images = find(name, folder=True)
        places.append(images if images and _has_halves(images) else None)
    return next(([path] for path in places if path is not None), [])


def _has_halves(path: Path, test: str = "test") -> bool:
    return all((path / half).is_dir() for half in ("train", test))


def _load_named(name: str, size: tuple[int, int] | None, corrupt: Corrupt, progress: Progress | None) -> ImageSet:
    if name in IDX_URLS:
        return mnist(name, progress)
    paths = fetch_images(name, progress)
    build: Callable[[], ImageSet]
    if name == "svhn":
        build = functools.partial(read_svhn, *paths)
    elif name == "celeba":
        assert size is not None
        build = functools.partial(read_celeba, paths[0], size, corrupt, progress)
    elif name == "imagenet":
        build = functools.partial(read_folder, paths[0], name, size=size, corrupt=corrupt, progress=progress)
    elif paths[0].name == JPEG_ARCHIVE or _has_halves(paths[0]):
        build = functools.partial(_decoded_cifar10, paths[0], corrupt, progress)
    else:
        build = functools.partial(read_cifar, paths[0], name, progress)
    return cached(name, paths, build, str(size), corrupt)


def _decoded_cifar10(path: Path, corrupt: Corrupt, progress: Progress | None) -> ImageSet:
    """CIFAR-10 as images, in an order drawn once and for all, so that its first thousand hold every class."""
    read = read_folder if path.is_dir() else read_archive
    found = read(path, str(path), size=None, corrupt=corrupt, progress=progress)
    if found.classes != CIFAR10_CLASSES or found.shape != (3, 32, 32):
        raise InputError(
            f"{path} is not CIFAR-10: it has {len(found.classes)} classes and images of {found.shape[1]} × "
            f"{found.shape[2]} in {found.shape[0]} channels"
        )
    random = np.random.default_rng(10)
    halves = [found.rows("train"), found.rows("test")]
    shuffled = [rows[random.permutation(len(rows))] for rows in halves]
    return replace(found.take(np.concatenate(shuffled)), source="cifar10", ids=None)
