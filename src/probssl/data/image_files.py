"""Folders and archives of PNG and JPEG images: one sub-folder a class, or none; halves `train` and `test`, or none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, cast

import numpy as np

from probssl.data.directory import Progress
from probssl.data.image_set import Bytes, ImageSet, Labels
from probssl.data.wording import quoted
from probssl.errors import InputError, MissingExtra

SUFFIXES = (".png", ".jpg", ".jpeg")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
HALVES = ("train", "test")

LARGEST_FILE = 2**26
"""Bytes of one file in an archive: more is no image that anyone trains on, but may well be a bomb."""
LARGEST_ARCHIVE = 2**34
"""Bytes of all files in an archive."""
LARGEST_IMAGE = 2**24
"""Pixels."""

Corrupt = Literal["refuse", "skip"]
Size = tuple[int, int]
_GREY = ("1", "L", "LA")
_COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")


class _Damaged(Exception):
    """An image that is not whole."""


def read_folder(
    path: Path, name: str, *, size: Size | None, corrupt: Corrupt, progress: Progress | None = None
) -> ImageSet:
    """All images below a folder, sorted by their names."""
    files = sorted(file for file in path.rglob("*") if _is_image(file.relative_to(path).as_posix()) and file.is_file())
    return _read(_contents(path, files, progress), name, size, corrupt)


def read_archive(
    path: Path, name: str, *, size: Size | None, corrupt: Corrupt, progress: Progress | None = None
) -> ImageSet:
    """All images in a tar archive, sorted by their names. Members are read where they are; nothing is unpacked."""
    return _read(members(path, _is_image, progress), name, size, corrupt)


def members(path: Path, wanted: Callable[[str], bool], progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files in a tar archive, in its order."""
    total, held = path.stat().st_size, 0
    try:
        with path.open("rb") as raw, _unpressed(raw) as plain, tarfile.open(fileobj=plain, mode="r|") as archive:
            for member in archive:
                held += member.size
                if member.size > LARGEST_FILE or held > LARGEST_ARCHIVE:
                    raise InputError(
                        f"{path} holds {held:,} bytes up to {quoted(member.name)}, more than archives of images do: "
                        "unpack it and name the folder"
                    )
                if member.isreg() and wanted(member.name):
                    yield member.name, _content(archive, member)
                if progress is not None:
                    progress(raw.tell(), total)
            plain.read(LARGEST_FILE)  # to the end, where checksums are
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is not a whole tar archive ({reason}): fetch it anew") from error


def _unpressed(raw: BinaryIO) -> BinaryIO:
    """The stream without its compression. Unlike tarfile's own, these readers say when a file breaks off."""
    start = raw.read(6)
    raw.seek(0)
    for magic, opened in ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\0", lzma.open), (b"BZh", bz2.open)):
        if start.startswith(magic):
            return cast(BinaryIO, opened(raw, "rb"))
    return raw


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a regular file
    return stream.read()


def _contents(path: Path, files: list[Path], progress: Progress | None) -> Iterator[tuple[str, bytes]]:
    sizes = [file.stat().st_size for file in files]
    total, done = sum(sizes), 0
    for file, size in zip(files, sizes, strict=True):
        if size > LARGEST_FILE:
            raise InputError(f"{file} is no image that can be read: it has {size:,} bytes")
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        yield file.relative_to(path).as_posix(), content
        done += size
        if progress is not None:
            progress(done, total)


def _is_image(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts)  # and so is what leads outside, by ".."
    return not hidden and name.lower().endswith(SUFFIXES)


def _read(files: Iterable[tuple[str, bytes]], name: str, size: Size | None, corrupt: Corrupt) -> ImageSet:
    if corrupt not in ("refuse", "skip"):
        raise InputError(f"what to do with a corrupt image is refuse or skip, not {corrupt!r}")
    images: dict[str, Bytes] = {}
    skipped = []
    first: tuple[str, Size] | None = None
    for file, content in files:
        try:
            image = decode(content, f"{name}: {file}", size)
        except _Damaged as error:
            if corrupt == "refuse":
                raise InputError(
                    f"{name}: {file} is not a whole image ({error}): replace it, or pass over such files with "
                    "corrupt='skip' (--corrupt skip)"
                ) from error
            skipped.append(file)
            continue
        shape = image.shape[0], image.shape[1]
        first = first or (file, shape)
        if shape != first[1]:
            raise InputError(
                f"{name}: {file} has {shape[0]} × {shape[1]} pixels, where {first[0]} has {first[1][0]} × "
                f"{first[1][1]}: ask for one size with size=(height, width)"
            )
        images[file] = image
    if not images:
        told = f", only damaged ones, the first {quoted(skipped[0])}" if skipped else ""
        raise InputError(f"{name} holds no PNG or JPEG images{told}")
    return _arranged(images, name, tuple(sorted(skipped)))


def decode(content: bytes, where: str, size: Size | None = None) -> Bytes:
    """A PNG or JPEG file as bytes, [h, w] where it is grey and [h, w, 3] where it is not; resized to a size."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("reading PNG and JPEG images", "images") from None

    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > LARGEST_IMAGE:
                raise InputError(f"{where} has {image.width:,} × {image.height:,} pixels: make it smaller first")
            if image.mode not in _GREY + _COLOUR:
                raise InputError(f"{where} has pixels of kind {image.mode}: save it with 8 bits a channel")
            plain: Any = image.convert("L" if image.mode in _GREY else "RGB")
            if size is not None and (image.height, image.width) != size:
                plain = plain.resize(size[::-1], Image.Resampling.BILINEAR)
            return np.asarray(plain, dtype=np.uint8)
    except InputError:
        raise
    except Exception as error:  # a damaged file can make Pillow raise nearly anything
        raise _Damaged(" ".join(str(error).split()) or type(error).__name__) from error


def _arranged(images: dict[str, Bytes], name: str, skipped: tuple[str, ...]) -> ImageSet:
    """Halves, classes and arrays from decoded images by file name."""
    files = sorted(images)
    outer = _shared_folders(files)
    places = {file: _place(file, outer) for file in files}
    halves = {half for half, _ in places.values()}
    if None in halves and len(halves) > 1:
        odd = next(file for file, (half, _) in places.items() if half is None)
        raise InputError(f"{name} has a folder {max(map(str, halves))!r} of images and, outside of it, {quoted(odd)}")
    labelled = {label is not None for _, label in places.values()}
    if len(labelled) > 1:
        odd = next(file for file, (_, label) in places.items() if label is None)
        raise InputError(f"{name} has sub-folders, one a class, and an image outside of them, {quoted(odd)}")
    classes = sorted({label for _, label in places.values() if label is not None})
    codes = {label: code for code, label in enumerate(classes)}
    coloured, size = any(image.ndim == 3 for image in images.values()), images[files[0]].shape[:2]

    def half(wanted: tuple[str | None, ...]) -> tuple[Bytes, Labels | None]:
        chosen = [file for file, (half, _) in places.items() if half in wanted]
        labels = np.array([codes[str(places[file][1])] for file in chosen], np.int64) if classes else None
        return _stacked([images[file] for file in chosen], coloured, size), labels

    return ImageSet(name, *half((None, "train")), *half(("test",)), tuple(classes), skipped)


def _stacked(images: list[Bytes], coloured: bool, size: tuple[int, ...]) -> Bytes:
    """[n, channels, h, w]; grey images among coloured ones have three equal channels."""
    found = np.empty((len(images), 3 if coloured else 1, *size), np.uint8)
    for row, image in zip(found, images, strict=True):
        row[:] = image.transpose(2, 0, 1) if image.ndim == 3 else image
    return found


def _shared_folders(files: list[str]) -> int:
    """How many folders all files are in that are neither halves nor classes, as one that was packed whole is."""
    folders = [PurePosixPath(file).parts[:-1] for file in files]
    outer = 0
    while all(len(parts) > outer + 1 and parts[outer] == folders[0][outer] for parts in folders):
        if folders[0][outer] in HALVES:
            break
        outer += 1
    return outer


def _place(file: str, outer: int) -> tuple[str | None, str | None]:
    """The half and the class that the folders of a file, but for the outer ones, say it belongs to."""
    folders = list(PurePosixPath(file).parts[outer:-1])
    half = folders.pop(0) if folders and folders[0] in HALVES else None
    return half, folders[0] if folders else None
