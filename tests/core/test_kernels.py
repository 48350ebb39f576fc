"""Compiled kernels: built once, done without where they cannot be, with the same results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probssl import kernels
from probssl.kernels import build

TRAIN = """
import torch
from probssl import Recipe
from probssl.training import Trial, fit_many
torch.set_num_threads(1)
x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
trials = []
for objective in ("infonce", "nce", "snl", "simclr", "spectral", "fisher"):
    recipe = Recipe(objective=objective, steps=20, batch_size=32)
    encoder, loss = recipe.build_encoder(6), recipe.build_objective(6)
    trials.append(Trial(encoder, loss, recipe.build_pairing(), x, recipe.plan(), 0))
print(*[f"{fitted.history[-1]['loss']:.5f}" for fitted in fit_many(trials)])
"""


def found(patch: pytest.MonkeyPatch, cache: Path, **variables: str) -> bool:
    """Whether there are kernels for a program that begins with such a cache and environment."""
    for name, value in {"XDG_CACHE_HOME": str(cache), **variables}.items():
        patch.setenv(name, value)
    return kernels.library.__wrapped__() is not None  # without the answer that this process remembers


@pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")
def test_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FLAGS", ("-O0", *build.FLAGS[1:]))  # the compiler's work is not what is tested
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


def test_the_same_results_without() -> None:
    """In programs of their own, for a process asks for its kernels once."""
    with_kernels, without = (losses_of_a_program(PROBSSL_KERNEL=switch) for switch in ("1", "0"))
    assert with_kernels == pytest.approx(without, rel=1e-3)


def losses_of_a_program(**variables: str) -> list[float]:
    command, environment = [sys.executable, "-c", TRAIN], {**os.environ, **variables}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return [float(loss) for loss in said.split()]
