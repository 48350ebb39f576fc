"""Compiled kernels: built once, done without where they cannot be, with the same results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probssl import kernels

BUILD = "from probssl import kernels; print(kernels.library() is not None)"
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


def told(script: str, cache: Path, **variables: str) -> list[str]:
    """What a script prints in a process with a cache of its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(kernels.library() is None, reason="there is no C compiler")
def test_built_once(tmp_path: Path) -> None:
    assert told(BUILD, tmp_path) == ["True"]
    (library,) = (tmp_path / "probssl" / "kernels").iterdir()
    built = library.stat().st_mtime_ns
    assert told(BUILD, tmp_path) == ["True"]
    assert [path.stat().st_mtime_ns for path in library.parent.iterdir()] == [built]


def test_done_without(tmp_path: Path) -> None:
    failing = shutil.which("false")
    assert failing is not None
    assert told(BUILD, tmp_path, CC=failing) == ["False"]
    assert told(BUILD, tmp_path, CC="no-such-compiler") == ["False"]
    assert told(BUILD, tmp_path, PROBSSL_KERNEL="0") == ["False"]
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    assert told(BUILD, blocked) == ["False"]


def test_the_same_results_without(tmp_path: Path) -> None:
    with_kernels, without = told(TRAIN, tmp_path), told(TRAIN, tmp_path, PROBSSL_KERNEL="0")
    assert [float(loss) for loss in with_kernels] == pytest.approx([float(loss) for loss in without], rel=1e-3)
