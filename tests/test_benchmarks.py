"""Benchmarks show and keep what they find as they go, and end at once when told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
HELPERS = {"running.py", "bare_loops.py"}

BENCHMARK = """
import argparse, subprocess, threading
from running import CHILDREN, begin, keep
from probssl.training.surroundings import interruptible

options = begin(argparse.ArgumentParser())
CHILDREN.append(subprocess.Popen(["sleep", "1000"], text=True))
keep(options.out, {"first": 1})
with interruptible():  # as in a training, which would end at the next step
    print("training")
    threading.Event().wait()
"""


@pytest.mark.parametrize("name", sorted({path.name for path in FOLDER.glob("*.py")} - HELPERS))
def test_every_benchmark_runs_alike(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert "begin(" in text
    assert "keep(options.out, " in text


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to handle")
def test_sigterm_ends_a_benchmark_within_a_training(tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "out.json"
    script.write_text(f"import sys; sys.path.insert(0, {str(FOLDER)!r}){BENCHMARK}")
    run = subprocess.Popen([sys.executable, script, "--out", out], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    run.terminate()
    run.communicate(timeout=60)  # until the child too has closed its output
    assert run.returncode == 128 + signal.SIGTERM
    assert json.loads(out.read_text()) == {"first": 1}
