"""The data directory: where named data sets are looked for, and where downloads are kept."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from probssl.errors import InputError

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes fetched so far and the bytes in all, where the server says."""

TIMEOUT = 30.0
_PIECE = 1 << 16


def cache_directory() -> Path:
    """The user's cache directory for probssl, by the custom of the platform; it need not exist yet."""
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif os.environ.get("XDG_CACHE_HOME"):
            base = Path(os.environ["XDG_CACHE_HOME"])
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path.home() / ".cache"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"probssl-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    return base / "probssl"


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with a leading `~` replaced by the user's home; as it is where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def data_directory() -> Path:
    """`$PROBSSL_DATA` where it is set, else the cache directory."""
    chosen = os.environ.get("PROBSSL_DATA")
    return expanded(chosen) if chosen else cache_directory()


def find(relative: str, *, folder: bool = False) -> Path | None:
    """The file (or folder) of that path in the data directory, else in the cache directory, else None."""
    for base in (data_directory(), cache_directory()):
        path = base / relative
        if path.is_dir() if folder else path.is_file():
            return path
    return None


class NotOnServer(InputError):
    """The server answers, and has no such file."""


def check_gzip(path: Path) -> None:
    """A login page or half a file must not end up in the cache."""
    with gzip.open(path, "rb") as stream:
        while stream.read(1 << 20):
            pass


def check_matlab(path: Path) -> None:
    """The same for files of MATLAB, which say what they are and not how long."""
    with path.open("rb") as stream:
        if not stream.read(128).startswith(b"MATLAB 5.0 MAT-file"):
            raise OSError("it is not a MATLAB file")


def download(
    url: str, relative: str, progress: Progress | None = None, *, check: Callable[[Path], None] = check_gzip
) -> Path:
    """Fetch a file into the cache directory; it appears there whole, as far as `check` can tell, or not at all."""
    import http.client
    import urllib.error
    import urllib.request

    target = cache_directory() / relative
    by_hand = data_directory() / relative
    temporary: Path | None = None
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "probssl"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            temporary = _temporary_beside(target)
            _copy(response, temporary, progress)
        check(temporary)
        _move(temporary, target)
    except InputError:
        raise
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise NotOnServer(f"{url} is not there (the server answers 404)") from error
        raise InputError(_by_hand(url, by_hand, f"the server answers {error.code}")) from error
    except (OSError, http.client.HTTPException, EOFError, zlib.error) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(_by_hand(url, by_hand, " ".join(str(reason).split()) or type(error).__name__)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return target


def _by_hand(url: str, path: Path, reason: str) -> str:
    return f"{url} could not be downloaded ({reason}): try again with a network, or put the file at {path} by hand"


def _temporary_beside(target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
    except OSError as error:
        raise InputError(
            f"{target.parent} cannot be written to ({error.strerror}): set XDG_CACHE_HOME to a folder that can"
        ) from error
    return Path(name)


def _move(temporary: Path, target: Path) -> None:
    try:
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"{target} cannot be written ({error.strerror})") from error


def _copy(response: object, path: Path, progress: Progress | None) -> None:
    read = response.read  # type: ignore[attr-defined]
    length = response.headers.get("Content-Length")  # type: ignore[attr-defined]
    total = int(length) if length and length.isdigit() else None
    done = 0
    with path.open("wb") as stream:
        while piece := read(_PIECE):
            stream.write(piece)
            done += len(piece)
            if progress is not None:
                progress(done, total)
    if total is not None and done != total:
        raise OSError(f"the connection broke off after {done:,} of {total:,} bytes")
