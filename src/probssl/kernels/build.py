"""C sources to functions: built once for this machine by whatever C compiler is there, and done without otherwise.

The library goes to the user's cache folder under a name that tells its source, compiler and processor.
`PROBSSL_KERNEL=0` keeps to plain torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

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
        loaded = ctypes.CDLL(str(_built(compiler)))
        whole, number, pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
        loaded.pair_sums.argtypes = [*[whole] * 6, *[pointer] * 7]
        loaded.mlp_steps.argtypes = [*[whole] * 3, pointer, whole, whole, pointer, number, whole, *[pointer] * 12]
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        logger.info("the compiled kernels are not used: %s", error)
        return None
    return loaded


def _built(compiler: str) -> Path:
    """The shared library, compiled unless it is in the cache already."""
    folder_of_sources = resources.files("probssl.kernels")
    source = b"\n".join((folder_of_sources / name).read_bytes() for name in SOURCES)
    name = hashlib.sha256(b"\0".join([source, compiler.encode(), " ".join(FLAGS).encode(), _processor()])).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    folder = Path(home) / "probssl" / "kernels"
    path = folder / f"kernels-{name[:20]}.so"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        file, made = Path(temporary) / "kernels.c", Path(temporary) / path.name
        file.write_bytes(source)
        command = [*compiler.split(), *FLAGS, "-o", str(made), str(file), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        made.replace(path)  # at once, should several processes build it
    return path


def _processor() -> bytes:
    """What tells processors apart for which the compiler would write different code."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}".encode()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})).encode()
