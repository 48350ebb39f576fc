"""C sources to functions: built once for this machine by whatever C compiler is there, and done without otherwise.

The library goes to the user's cache folder under a name that tells its source, compiler and processor.
`PROBSSL_KERNEL=0` keeps to plain torch; options in `CC`, such as `CC="gcc -march=x86-64-v3"`, come last and win.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from probssl.files import temporary_beside

SOURCES = ("pair_sums.c", "mlp_steps.c")  # one translation unit
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fno-math-errno", "-fopenmp-simd", "-fPIC", "-shared")

logger = logging.getLogger("probssl")


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None without a compiler, or where they were asked to stay out."""
    compiler = os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if os.environ.get("PROBSSL_KERNEL") == "0" or compiler is None:
        return None
    try:
        return load(compiler)
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        logger.info("the compiled kernels are not used: %s", error)
        return None


@functools.cache
def variant() -> str | None:
    """Which vectors the compiled functions use: AVX-512, AVX2, AVX, SSE or NEON; None without such functions."""
    loaded = library()
    return None if loaded is None else loaded.kernel_variant().decode()


def load(compiler: str) -> ctypes.CDLL:
    """The functions as a compiler makes them, from the cache if nobody else can have put them there."""
    folder_of_sources = resources.files("probssl.kernels")
    source = b"\n".join((folder_of_sources / name).read_bytes() for name in SOURCES)
    name = hashlib.sha256(b"\0".join([source, compiler.encode(), " ".join(FLAGS).encode(), _processor()])).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    folder = Path(home).resolve() / "probssl" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, safe = folder / f"kernels-{name[:20]}.so", _out_of_reach(folder)
    if safe and path.is_file() and _ours_alone(path):
        return _functions(path)
    if not safe:
        logger.warning("others can write to %s, so the compiled kernels are rebuilt for this process", folder)
    with temporary_beside(path, folder=True) if safe else tempfile.TemporaryDirectory() as temporary:
        file, made = Path(temporary) / "kernels.c", Path(temporary) / path.name
        file.write_bytes(source)
        program, *options = compiler.split()
        command = [program, *FLAGS, *options, "-o", str(made), str(file), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        made.chmod(0o700)
        return _functions(made.replace(path) if safe else made)  # at once, should several processes build it


def _functions(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    whole, number, pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    loaded.pair_sums.argtypes = [*[whole] * 6, *[pointer] * 7]
    loaded.mlp_steps.argtypes = [*[whole] * 3, pointer, whole, whole, pointer, number, whole, *[pointer] * 12]
    loaded.kernel_variant.restype = ctypes.c_char_p
    return loaded


def _ours_alone(path: Path) -> bool:
    """Whether this user owns what is at a path, itself no link, and nobody else may write to it."""
    found = path.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _out_of_reach(folder: Path) -> bool:
    """Whether nobody else can write to a folder of this user, or put another in its place."""
    above = [place.stat() for place in folder.parents]
    return _ours_alone(folder) and all(
        found.st_uid in (0, os.getuid()) and (not found.st_mode & stat.S_IWOTH or found.st_mode & stat.S_ISVTX)
        for found in above
    )


def _processor() -> bytes:
    """What tells processors apart for which the compiler would write different code."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}".encode()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})).encode()
