"""Folders and archives of images: one sub-folder a class, or none; halves `train` and `test`, or none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Literal, cast

import numpy as np

from probssl.data.directory import Progress, cache_directory
from probssl.data.image_set import Bytes, ImageSet
from probssl.data.wording import quoted
from probssl.errors import InputError, MissingExtra

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
"""Of the files with these suffixes, as Pillow calls them."""
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
HALVES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "val", "valid", "validation"), "test"),
}
"""Folders that are not classes, in lower case, and the half they hold. Nothing is chosen on images for validation, so
they are for testing: ImageNet has no others."""

LARGEST_FILE = 2**26
"""Bytes of one file in an archive: more is not an image that anyone trains on, but may well be a bomb."""
LARGEST_ARCHIVE = 2**34
"""Bytes of all files in an archive."""
LARGEST_IMAGE = 2**24
"""Pixels."""

IN_MEMORY = 2**24
"""Bytes of decoded images above which they go to disk."""
LARGEST_HEADER = 2**20
"""Bytes of an archive that come before the contents of a file: its name, in one format or another."""
AT_ONCE = 16
"""Files that are read ahead of the threads that decode them."""

Corrupt = Literal["refuse", "skip"]
Size = tuple[int, int]
_GREY = ("1", "L", "LA")
_COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")


class _Damaged(Exception):
    """An image that cannot be read, and why."""


def read_folder(
    path: Path,
    name: str,
    *,
    size: Size | None,
    corrupt: Corrupt,
    progress: Progress | None = None,
    wanted: Callable[[str], bool] = lambda file: True,
) -> ImageSet:
    """All wanted images below a folder, sorted by their names, those for the test after those for training."""
    found = [Path(folder, file).relative_to(path).as_posix() for folder, files in _folders(path) for file in files]
    found.sort()
    left_out = {file: reason for file in found if (reason := _no_image(file, path))}
    files = [file for file in found if file not in left_out and wanted(file)]
    return _read(_contents(path, _ordered(files), progress), name, size, corrupt, left_out)


def _folders(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Folders below one, links among them, with the names of their files; none of them twice on the way down to it."""
    for folder, inner, names in os.walk(path, followlinks=True):
        above = {os.path.realpath(place) for place in (Path(folder), *Path(folder).parents)}
        inner[:] = [name for name in inner if os.path.realpath(os.path.join(folder, name)) not in above]
        yield folder, names


def read_archive(
    path: Path, name: str, *, size: Size | None, corrupt: Corrupt, progress: Progress | None = None
) -> ImageSet:
    """All images in a tar archive, sorted by their names. Members are read where they are; nothing is unpacked."""
    left_out: dict[str, str] = {}

    def wanted(file: str) -> bool:
        reason = _no_image(file)
        if reason:
            left_out[file] = reason
        return not reason

    return _read(members(path, wanted, progress), name, size, corrupt, left_out)


def members(path: Path, wanted: Callable[[str], bool], progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files in a tar archive, in its order."""
    total, held = path.stat().st_size, 0
    try:
        with path.open("rb") as raw, _unpressed(raw) as plain:
            bounded = _Bounded(plain, path)
            with tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r|") as archive:
                for member in archive:
                    bounded.left = LARGEST_FILE + LARGEST_HEADER
                    held += member.size
                    if member.size > LARGEST_FILE or held > LARGEST_ARCHIVE:
                        raise InputError(
                            f"{path} holds {held:,} bytes up to {quoted(member.name)}, more than archives of images "
                            "do: unpack it and name the folder"
                        )
                    if member.isreg() and wanted(member.name):
                        yield member.name, _content(archive, member)
                    if progress is not None:
                        progress(raw.tell(), total)
            plain.read(LARGEST_FILE)  # to the end, where checksums are
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is not a whole tar archive ({reason}): download it again") from error


class _Bounded:
    """A stream of which only so much is unpacked until more is allowed: headers of archives may be bombs as well."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self.stream, self.path, self.left = stream, path, LARGEST_HEADER

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise InputError(f"{self.path} has more between two files than archives of images do: pack it again")
        return self.stream.read(size)


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


def _contents(path: Path, names: list[str], progress: Progress | None) -> Iterator[tuple[str, bytes]]:
    files = [path / name for name in names]
    sizes = [file.stat().st_size for file in files]
    total, done = sum(sizes), 0
    for name, file, size in zip(names, files, sizes, strict=True):
        if size > LARGEST_FILE:
            raise InputError(f"{file} is not an image that can be read: it has {size:,} bytes")
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        yield name, content
        done += size
        if progress is not None:
            progress(done, total)


def _no_image(name: str, base: Path | None = None) -> str | None:
    """Why a file is not read as an image; None of one that is."""
    if any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts):
        return "it is hidden"  # and so is what leads outside, by ".."
    if not name.lower().endswith(SUFFIXES):
        return f"its name ends in none of {', '.join(SUFFIXES)}"
    return None if base is None or (base / name).is_file() else "it is a broken link or no regular file"


def _ordered(files: Iterable[str]) -> list[str]:
    """By name, those for the test after those for training, so that either half lies together."""
    files = list(files)
    outer = _shared_folders(files)
    return sorted(files, key=lambda file: (_place(file, outer)[0] == "test", file))


def _read(
    files: Iterable[tuple[str, bytes]], name: str, size: Size | None, corrupt: Corrupt, left_out: dict[str, str]
) -> ImageSet:
    if corrupt not in ("refuse", "skip"):
        raise InputError(f"what to do with a corrupt image is refuse or skip, not {corrupt!r}")
    damaged = None
    with ImagePile(name) as pile:
        for file, image in _decoded(files, name, size):
            if isinstance(image, _Damaged):
                if corrupt == "refuse":
                    raise InputError(
                        f"{name}: {file} {image}: replace it, or leave such files out with corrupt='skip' "
                        "(--corrupt skip)"
                    ) from image
                damaged = damaged or file
                left_out[file] = f"it {image}"
            else:
                pile.add(file, image)
        if not pile.files:
            kinds = f", only damaged ones, the first {quoted(damaged)}" if damaged else f" ({', '.join(SUFFIXES)})"
            raise InputError(f"{name} holds no images{kinds}: a table is one file, such as {name}/data.csv")
        return _arranged(pile, name, dict(sorted(left_out.items())))


def _decoded(
    files: Iterable[tuple[str, bytes]], name: str, size: Size | None
) -> Iterator[tuple[str, Bytes | _Damaged]]:
    """Files as images or as what is wrong with them, in their order, decoded by as many threads as there are cores."""

    def decoded(file: str, content: bytes) -> Bytes | _Damaged:
        try:
            return decode(content, f"{name}: {file}", size)
        except _Damaged as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        waiting: deque[tuple[str, Future[Bytes | _Damaged]]] = deque()
        try:
            for file, content in files:
                waiting.append((file, threads.submit(decoded, file, content)))
                if len(waiting) >= AT_ONCE:
                    yield waiting[0][0], waiting.popleft()[1].result()
            while waiting:
                yield waiting[0][0], waiting.popleft()[1].result()
        finally:
            for _, future in waiting:
                future.cancel()


class ImagePile:
    """Images of one size as they come: in memory while they are few, else in a file that goes when the arrays do.

    So a set may be larger than the memory. The pile is grey until a coloured image comes; from then on grey images in
    it have three equal channels.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: list[str] = []
        self.shape: tuple[int, ...] = ()
        self._stream: IO[bytes] = io.BytesIO()

    def __enter__(self) -> ImagePile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def add(self, file: str, image: Bytes) -> None:
        """One more: [h, w] where it is grey and [h, w, 3] where it is not."""
        sides = image.shape[:2]
        if not self.files:
            self.shape = (3 if image.ndim == 3 else 1, *sides)
        elif sides != self.shape[1:]:
            raise InputError(
                f"{self.name}: {file} has {sides[0]} × {sides[1]} pixels, where {self.files[0]} has {self.shape[1]} × "
                f"{self.shape[2]}: ask for one size with size=(height, width)"
            )
        if image.ndim == 3 and self.shape[0] == 1:
            grey, self._stream, self.shape = self.images(), io.BytesIO(), (3, *sides)
            for row in grey:
                self._write(np.broadcast_to(row, self.shape))
        self._write(image.transpose(2, 0, 1) if image.ndim == 3 else np.broadcast_to(image, self.shape))
        self.files.append(file)

    def _write(self, pixels: Bytes) -> None:
        try:
            self._stream.write(np.ascontiguousarray(pixels).data)
            if isinstance(self._stream, io.BytesIO) and self._stream.tell() > IN_MEMORY:
                few, self._stream = self._stream, _temporary_file()
                self._stream.write(few.getbuffer())
        except OSError as error:
            raise InputError(f"{self.name} cannot be decoded to disk ({error.strerror})") from error

    def images(self) -> Bytes:
        """All of them [n, channels, h, w]; of a file, mapped into memory: what is written to the array stays there."""
        shape = len(self.files), *self.shape
        if isinstance(self._stream, io.BytesIO):
            return np.frombuffer(bytearray(self._stream.getbuffer()), np.uint8).reshape(shape)
        self._stream.flush()
        return np.memmap(self._stream, np.uint8, "c", shape=shape)


def _temporary_file() -> IO[bytes]:
    """In the cache, beside which it will be kept; elsewhere if that cannot be written to."""
    try:
        cache_directory().mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=cache_directory())
    except OSError:
        return tempfile.TemporaryFile()


def decode(content: bytes, where: str, size: Size | None = None) -> Bytes:
    """An image file as bytes, [h, w] where it is grey and [h, w, 3] where it is not.

    Of an image of another size than asked for, the largest box of that shape in its middle is resized to it.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("reading images", "images") from None

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > LARGEST_IMAGE:
                raise InputError(f"{where} has {image.width:,} × {image.height:,} pixels: make it smaller first")
            if image.mode not in _GREY + _COLOUR:
                raise InputError(f"{where} has pixels of kind {image.mode}: save it with 8 bits a channel")
            kind = "L" if image.mode in _GREY else "RGB"
            if size is not None:
                image.draft(kind, (2 * size[1], 2 * size[0]))  # a JPEG may come at a half, a quarter or an eighth
            plain: Any = image.convert(kind)
            if size is not None and (plain.height, plain.width) != size:
                plain = ImageOps.fit(plain, size[::-1], Image.Resampling.BILINEAR)
            return np.asarray(plain, dtype=np.uint8)
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise _Damaged("is not an image of a known format") from error
    except Exception as error:  # a damaged file can make Pillow raise nearly anything
        raise _Damaged("is damaged and cannot be decoded") from error


def _arranged(pile: ImagePile, name: str, left_out: dict[str, str]) -> ImageSet:
    """Halves, classes and arrays from decoded images by file name."""
    files = _ordered(pile.files)
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
    if not halves - {"test"}:
        raise InputError(f"{name} has no images to train on")
    rows, images = {file: row for row, file in enumerate(pile.files)}, pile.images()
    return ImageSet(
        name,
        images if files == pile.files else images[[rows[file] for file in files]],
        labels=np.array([codes[str(places[file][1])] for file in files], np.int64) if classes else None,
        classes=tuple(classes),
        label_name="class" if classes else None,
        ids=np.array([PurePosixPath(file).as_posix() for file in files]),
        test=np.array([places[file][0] == "test" for file in files]),
        left_out=left_out,
    )


def _shared_folders(files: list[str]) -> int:
    """How many folders all files are in that are neither halves nor classes, as one that was packed whole is."""
    folders = [PurePosixPath(file).parts[:-1] for file in files]
    outer = 0
    while folders and all(len(parts) > outer + 1 and parts[outer] == folders[0][outer] for parts in folders):
        if folders[0][outer].lower() in HALVES:
            break
        outer += 1
    return outer


def _place(file: str, outer: int) -> tuple[str | None, str | None]:
    """The half and the class that the folders of a file, but for the outer ones, say it belongs to."""
    folders = list(PurePosixPath(file).parts[outer:-1])
    half = HALVES[folders.pop(0).lower()] if folders and folders[0].lower() in HALVES else None
    return half, folders[0] if folders else None
