"""Compiled kernels: built once, done without where they cannot be, with the same results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from probssl import kernels
from probssl.kernels import build, pairs
from probssl.training.stacked import compiled
from tests.variants import LEVELS

from ..fitting import resolved

TRAIN = """
import torch
from probssl import Recipe
from probssl.parts.facts import Facts
from probssl.parts.resolve import resolve
from probssl.training import Trial, fit_many
torch.set_num_threads(1)
x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
trials = []
for objective in ("infonce", "nce", "snl", "simclr", "spectral", "fisher"):
    made = resolve(Recipe(objective=objective, plan={"steps": 20, "batch_size": 32}), Facts("table", (6,), 64))
    bound = made.bind()
    trials.append(Trial(bound.encoder, bound.objective, bound.pairing, x, made.plan, 0))
print(*[f"{fitted.history[-1]['loss']:.5f}" for fitted in fit_many(trials)])
"""


def found(patch: pytest.MonkeyPatch, cache: Path, **variables: str) -> bool:
    """Whether there are kernels for a program that begins with such a cache and environment."""
    for name, value in {"XDG_CACHE_HOME": str(cache), **variables}.items():
        patch.setenv(name, value)
    return kernels.library.__wrapped__() is not None  # without the answer that this process remembers


needs_compiler = pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's work is not what is tested."""
    monkeypatch.setattr(build, "FLAGS", ("-O0", *build.FLAGS[1:]))


@needs_compiler
@pytest.mark.usefixtures("hasty")
def test_a_build_that_was_killed_is_swept_at_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "probssl" / "kernels" / ".kernels-0.so.0123456789ab.partial"
    killed.mkdir(parents=True)
    (killed / "kernels.c").write_text("half of the so")
    assert found(monkeypatch, tmp_path)
    (library,) = killed.parent.iterdir()
    assert library.suffix == ".so"


@needs_compiler
@pytest.mark.usefixtures("hasty")
def test_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, tmp_path)
    (library,) = (tmp_path / "probssl" / "kernels").iterdir()
    built = library.stat().st_mtime_ns
    assert found(monkeypatch, tmp_path)
    assert [path.stat().st_mtime_ns for path in library.parent.iterdir()] == [built]


@pytest.mark.parametrize("variable", [{"CC": "false"}, {"CC": "no-such-compiler"}, {"PROBSSL_KERNEL": "0"}])
def test_done_without(variable: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shutil.which("false") is not None
    assert not found(monkeypatch, tmp_path, **variable)


def test_done_without_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    assert not found(monkeypatch, blocked)


@needs_compiler
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_library_that_others_can_write_to_is_built_again(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(monkeypatch, tmp_path)
    (library,) = (tmp_path / "probssl" / "kernels").iterdir()
    library.unlink()  # this process has it open
    library.write_text("not a library: loading it would fail")
    library.chmod(mode)
    assert found(monkeypatch, tmp_path)
    assert library.stat().st_mode & 0o777 == 0o700


@needs_compiler
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", ["folder of others", "writable folder", "writable above", "linked folder"])
def test_a_folder_that_others_can_write_to_is_not_used(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert found(monkeypatch, tmp_path)
    folder = tmp_path / "probssl" / "kernels"
    (library,) = folder.iterdir()
    library.unlink()
    library.write_text("not a library: loading it would fail")
    library.chmod(0o700)
    if fault == "folder of others":
        monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    elif fault == "linked folder":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        (folder if fault == "writable folder" else folder.parent).chmod(0o777)
    assert found(monkeypatch, tmp_path)
    assert [path.read_text() for path in folder.iterdir()] == ["not a library: loading it would fail"]
    (message,) = caplog.messages
    assert message == f"others can write to {folder}, so the compiled kernels are rebuilt for this process"


@needs_compiler
@pytest.mark.usefixtures("hasty")
def test_done_without_where_the_vectors_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undefined = " ".join(f"-U__{name}__" for name in ("SSE2", "AVX", "AVX2", "AVX512F", "ARM_NEON"))
    assert not found(monkeypatch, tmp_path, CC=f"cc {undefined}")


@pytest.mark.parametrize("variant", LEVELS)
def test_used_where_it_is_fast(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the vectors of the processor and by sizes, so that the same run computes the same wherever it is repeated."""
    monkeypatch.setattr(pairs, "variant", lambda: variant)

    def used(m: int, p: int) -> bool:
        return kernels.suits(torch.zeros(1, 1, p), torch.zeros(1, m, p))

    most, small = pairs.MOST_FACTORS[variant], pairs.SMALL[variant]
    assert used(1024, 12)
    assert used(2048, most)
    assert not used(2048, most + 1)
    assert not used(2049, 1)
    assert used(64, small // 64)
    assert not used(64, small // 64 + 1)
    assert not kernels.suits(torch.zeros(1, 1, 1).double(), torch.zeros(1, 1, 1).double())


@pytest.mark.parametrize("variant", [*LEVELS, None])
def test_steps_of_wide_encoders_need_wide_vectors(variant: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "variant", lambda: variant)

    def used(width: int) -> bool:
        bound = resolved(hidden=(width,)).bind()
        return compiled.suits(bound.encoder, bound.objective, bound.pairing, torch.zeros(1, 6))

    assert used(96) == (variant is not None)
    assert used(97) == (variant in ("AVX", "AVX2", "AVX-512"))


def test_the_same_results_without() -> None:
    """In programs of their own, for a process asks for its kernels once."""
    with_kernels, without = (losses_of_a_program(PROBSSL_KERNEL=switch) for switch in ("1", "0"))
    assert with_kernels == pytest.approx(without, rel=1e-3)


def losses_of_a_program(**variables: str) -> list[float]:
    command, environment = [sys.executable, "-c", TRAIN], {**os.environ, **variables}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return [float(loss) for loss in said.split()]
