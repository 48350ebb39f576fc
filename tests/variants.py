"""The kernels as each compiler makes them for each kind of vectors that this machine can run."""

from __future__ import annotations

import ctypes
import functools
import platform
import shutil
from pathlib import Path

import pytest

from probssl.kernels import build

LEVELS = {
    "SSE": ("-march=x86-64-v2", {"sse4_2", "ssse3", "popcnt"}),
    "AVX": ("-march=x86-64-v2 -mavx", {"avx"}),
    "AVX2": ("-march=x86-64-v3", {"avx2", "fma", "bmi2"}),
    "AVX-512": ("-march=x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    "NEON": ("", set()),
}
every_variant = pytest.mark.parametrize(
    ("compiler", "variant"), [(compiler, variant) for compiler in ("gcc", "clang") for variant in LEVELS]
)


def use(patch: pytest.MonkeyPatch, compiler: str, variant: str) -> ctypes.CDLL:
    """Let all kernels be those of a compiler and variant for the rest of a test, which is skipped without them."""
    option, needed = LEVELS[variant]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    machine, info = platform.machine(), Path("/proc/cpuinfo")
    if machine not in (("aarch64", "arm64") if variant == "NEON" else ("x86_64",)):
        pytest.skip(f"{machine} has no {variant}")
    if needed and not (info.exists() and needed <= set(info.read_text().split())):
        pytest.skip(f"this processor has no {variant}")
    loaded = _built(f"{compiler} -O2 {option}")  # what is tested is the same with -O3, which gcc takes long over
    for where in ("probssl.kernels", "probssl.kernels.build", "probssl.kernels.pairs"):
        patch.setattr(f"{where}.library", lambda: loaded)
        patch.setattr(f"{where}.variant", lambda: loaded.kernel_variant().decode())
    return loaded


_built = functools.cache(build.load)
