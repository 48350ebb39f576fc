"""Writing that never leaves half a file: what is written appears whole or not at all, also when a disk is full.

What is under way has a name of its own beside its place, `.NAME.….partial`, and a lock that ends with its process. The
first time that a process writes into a folder it removes what nobody holds: debris of processes that were killed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: there nobody knows whether a process is still at it, and debris stays
    fcntl = None  # type: ignore[assignment]

from probssl.errors import DiskFull

DEBRIS = re.compile(r"\..*\.[0-9a-f]{12}\.partial", re.DOTALL)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""How a disk, a quota and a limit of this process say that there is no more room."""


@contextlib.contextmanager
def atomic_path(path: Path, size: int | None = None) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place, synced to disk, when the block ends without an error.

    `DiskFull` where there is no room for it; it tells the `size` in bytes, where that is known.
    """
    try:
        with temporary_beside(path) as temporary:
            permissions = temporary.stat().st_mode  # as the user's umask has them, whatever the writer makes of it
            yield temporary
            with temporary.open("r+b") as written:
                os.fsync(written.fileno())
            os.chmod(temporary, permissions)
            os.replace(temporary, path)
    except Exception as error:
        if not _tells_of_no_room(error):
            raise
        needed = f", which takes {_bytes(size)}" if size is not None else ""
        left = _bytes(shutil.disk_usage(path.parent).free)
        what = f"{path.parent} has no room for {path.name}{needed} ({left} are free)"
        raise DiskFull(f"{what}: make room and try again") from error


@contextlib.contextmanager
def temporary_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """An empty file or folder beside `path`, removed when the block ends, or later if this process is killed in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent.resolve())
    temporary, held = _held(path, folder)
    try:
        yield temporary
    finally:
        _remove(temporary)
        if held is not None:
            os.close(held)


def _held(path: Path, folder: bool) -> tuple[Path, int | None]:
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
        temporary.mkdir(mode=0o700) if folder else temporary.touch(exist_ok=False)
        if fcntl is None:
            return temporary, None
        with contextlib.suppress(FileNotFoundError):  # swept by another process before it was held
            handle = os.open(temporary, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if temporary.exists():
                return temporary, handle
            os.close(handle)


@functools.cache
def sweep(folder: Path) -> None:
    """Remove what killed processes left half written in a folder, once in each process."""
    for path in folder.iterdir() if fcntl is not None else ():
        if not DEBRIS.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError):  # somebody holds it, or it is not ours to remove
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _tells_of_no_room(error: Exception) -> bool:
    """Whether an error is of the disk, also where safetensors or Arrow wrote and only its text tells."""
    number = error.errno if isinstance(error, OSError) and error.errno else None
    return number in NO_ROOM if number else any(f"os error {known})" in str(error) for known in NO_ROOM)


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} bytes"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path, len(text)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: dict[str, Any]) -> None:
    """A document that any JSON reader takes, atomically."""
    write_text(path, json_text(document))


def json_text(document: dict[str, Any]) -> str:
    """A document as strict JSON: numbers that JSON cannot hold become null."""
    return json.dumps(_strict(document), indent=2, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
