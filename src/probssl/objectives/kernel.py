"""`pair_sums.c` as a function: built once for this machine by whatever C compiler is there, and done without otherwise.

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

import torch
from torch import Tensor

KINDS = ("log-sum-exp", "log-sum-exp-others", "exponential", "softplus", "square", "hinge")  # as in pair_sums.c
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fno-math-errno", "-fPIC", "-shared")
MOST_FACTORS, MOST_COLUMNS = 48, 2048
"""Beyond these, blocked matrix products are faster."""

logger = logging.getLogger("probssl")


def suits(left: Tensor, right: Tensor) -> bool:
    """Whether the kernel is there and made for these factors [K, n, p] and [K, m, p]."""
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == "cpu"
        and left.shape[-1] <= MOST_FACTORS
        and right.shape[-2] <= MOST_COLUMNS
        and library() is not None
    )


def pair_sums(left: Tensor, right: Tensor, extra: Tensor | None, kind: str, train: bool) -> tuple[Tensor, ...]:
    """The sum over all pairs of each of K models, [K], and where `train` its gradients in left, right and extra.

    left [K, n, p], right [K, m, p], extra [K, n]; the gradients have their shapes.
    """
    left, right = left.contiguous(), right.contiguous()
    extra = None if extra is None else extra.contiguous()
    (models, n, p), m = left.shape, right.shape[1]
    sums = torch.empty(models, dtype=torch.float64)
    of_left = torch.empty_like(left) if train else left.new_empty(models, 0)
    of_right = torch.empty_like(right) if train else left.new_empty(models, 0)
    of_extra = torch.empty_like(extra) if train and extra is not None else left.new_empty(models, 0)
    function = library()
    assert function is not None
    pointers = (left, right, extra, sums, of_left, of_right, of_extra)
    addresses = (None if tensor is None else tensor.data_ptr() for tensor in pointers)
    if function(KINDS.index(kind), train, models, n, m, p, *addresses) != 0:
        raise MemoryError("there is too little memory for the pairs of a batch")
    return sums.float(), of_left, of_right, of_extra


@functools.cache
def library() -> ctypes._FuncPointer | None:
    """The compiled function; None without a compiler, or where it was asked to stay out."""
    compiler = os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if os.environ.get("PROBSSL_KERNEL") == "0" or compiler is None:
        return None
    try:
        function = ctypes.CDLL(str(_built(compiler))).pair_sums
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        logger.info("the compiled kernel is not used: %s", error)
        return None
    function.argtypes = [ctypes.c_int] * 6 + [ctypes.c_void_p] * 7
    function.restype = ctypes.c_int
    return function


def _built(compiler: str) -> Path:
    """The shared library, compiled unless it is in the cache already."""
    source = (resources.files("probssl.objectives") / "pair_sums.c").read_bytes()
    name = hashlib.sha256(b"\0".join([source, compiler.encode(), " ".join(FLAGS).encode(), _processor()])).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    folder = Path(home) / "probssl" / "kernels"
    path = folder / f"pair_sums-{name[:20]}.so"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        file, made = Path(temporary) / "pair_sums.c", Path(temporary) / path.name
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
