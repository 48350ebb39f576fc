"""The data directory: where named data sets are looked for, and where downloads are kept."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from probssl.data.checksums import CHECKSUMS
from probssl.errors import InputError
from probssl.files import atomic_path

if TYPE_CHECKING:
    import urllib.request

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


def download(url: str, relative: str, progress: Progress | None = None) -> Path:
    """Fetch a file into the cache directory; it appears there whole and with the checksum that is known, or not at all.

    Of a file of which none is known the first is trusted: its checksum is kept beside it, and later ones must agree.
    """
    import http.client
    import urllib.error
    import urllib.request

    target = cache_directory() / relative
    by_hand = data_directory() / relative
    try:
        request = urllib.request.Request(_secure(url), headers={"User-Agent": "probssl"})
        opener = urllib.request.build_opener(_secure_redirects())
        with opener.open(request, timeout=TIMEOUT) as response, _arriving(target) as temporary:
            _copy(response, temporary, progress)
            checksum = _verified(temporary, target, url, CHECKSUMS.get(relative))
        if checksum is not None:
            _record(target).write_text(f"{checksum}  {target.name}\n")
    except InputError:
        raise
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise NotOnServer(f"{url} is not there (the server answers 404)") from error
        raise InputError(_by_hand(url, by_hand, f"the server answers {error.code}")) from error
    except (OSError, http.client.HTTPException, EOFError, zlib.error) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(_by_hand(url, by_hand, " ".join(str(reason).split()) or type(error).__name__)) from error
    return target


def _secure(url: str) -> str:
    """An address that nobody on the way can answer for: https, or a server on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "::1", "localhost")):
        raise OSError(f"{url} is not an https address")
    return url


def _secure_redirects() -> urllib.request.BaseHandler:
    """Follows a server that names another address, to addresses that are secure."""
    import urllib.request

    class Redirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, request: Any, stream: Any, code: Any, message: Any, headers: Any, url: str) -> Any:
            return super().redirect_request(request, stream, code, message, headers, _secure(url))

    return Redirects()


def _record(target: Path) -> Path:
    """Where the checksum of a file is kept that was trusted when it first came; `sha256sum -c` reads it."""
    return target.with_name(f"{target.name}.sha256")


def _verified(path: Path, target: Path, url: str, known: str | None) -> str | None:
    """The checksum to be recorded of a file of which none is known; a file that does not match is refused."""
    if known is None and target.name.endswith(".gz"):
        checksum_of(path, "gz-sha256")  # a login page or half a file must not be trusted
    kind, _, expected = (known or "sha256:").partition(":")
    found = checksum_of(path, kind)
    if known is not None and found != expected:
        raise InputError(
            f"{url} is not the file that was published ({kind} {found}, not {expected}), and nothing of it was kept: "
            f"try again later, or put the published file at {data_directory() / target.relative_to(cache_directory())}"
        )
    record = _record(target)
    first = record.read_text(errors="replace").split() if known is None and record.is_file() else []
    if first and first[0] != found:
        raise InputError(
            f"{url} has changed since it was first downloaded ({kind} {found}, not {first[0]}), and nothing of it was "
            f"kept: remove {record} if you trust the new file"
        )
    return found if known is None else None


def checksum_of(path: Path, kind: str) -> str:
    """The checksum of a file in hexadecimal digits: `sha256`, `md5`, or `gz-sha256` of what a gzip file holds."""
    packed = kind.startswith("gz-")
    digest = hashlib.new(kind.removeprefix("gz-"), usedforsecurity=False)
    with gzip.open(path, "rb") if packed else path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _by_hand(url: str, path: Path, reason: str) -> str:
    return f"{url} could not be downloaded ({reason}): try again with a network, or put the file at {path} by hand"


@contextlib.contextmanager
def _arriving(target: Path) -> Iterator[Path]:
    """`atomic_path`, where a file may be written at all."""
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(atomic_path(target))
        except OSError as error:
            raise InputError(
                f"{target.parent} cannot be written to ({error.strerror}): set XDG_CACHE_HOME to a folder that can"
            ) from error
        yield temporary


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
