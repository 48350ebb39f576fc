"""Extremes: too little disk, too many columns, too few rows. Each ends well or in one sentence, with no traceback."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np


def probssl(*arguments: object, **environment: str | None) -> str | None:
    """Run a command; what is wrong with how it ended, if anything."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **{k: v for k, v in environment.items() if v is not None}}
    for name in [name for name, value in environment.items() if value is None]:
        env.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "probssl", *map(str, arguments)], capture_output=True, text=True, env=env, timeout=600
    )
    said = done.stderr.strip().splitlines()
    if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
        return f"exit code {done.returncode}: {' '.join(said[-2:])[-300:]}"
    errors = [line for line in said if line.startswith("error:")]
    return f"exit code {done.returncode} and no error" if done.returncode and not errors else None


def table(path: Path, rows: int, columns: int) -> Path:
    """A CSV file of random numbers."""
    values = np.random.default_rng(0).normal(size=(rows, columns)).round(3)
    head = ",".join(f"c{number}" for number in range(columns))
    np.savetxt(path, values, fmt="%.3f", delimiter=",", header=head, comments="")
    return path


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    """A file system of that size, where this may be done; `OSError` where not."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True).returncode:
        raise OSError("may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True, capture_output=True)


FIT = ("--steps", 40, "--set", "plan.checkpoint_every=2", "--evaluate", "none", "-q")


def full_disk(place: Path) -> str | None:
    """A training that fills its disk leaves a checkpoint from which it goes on when there is room."""
    data, disk = table(place / "t.csv", 60, 8), place / "disk"
    with mounted(disk, "600k"):
        wide = ("--set", "encoder.hidden=[96,96]")
        first = probssl("fit", data, *FIT, *wide, "--out", disk / "run")
        if first or not any((disk / "run" / "checkpoints").glob("step-*")):
            return first or "no checkpoint was left"
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True, capture_output=True)
        again = probssl("fit", "--resume", "--out", disk / "run", "-q")
        return again or (None if (disk / "run" / "model.safetensors").is_file() else "it did not go on")


def read_only(place: Path) -> str | None:
    """A folder that may not be written."""
    data, disk = table(place / "t.csv", 60, 4), place / "disk"
    with mounted(disk, "4m"):
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True, capture_output=True)
        return probssl("fit", data, *FIT, "--out", disk / "run")


def no_home(place: Path) -> str | None:
    """No home folder."""
    data = table(place / "t.csv", 60, 4)
    homeless = {"HOME": None, "XDG_CACHE_HOME": None}
    return probssl("fit", data, *FIT, "--out", place / "run", **homeless) or probssl("data", "list", **homeless)


def many_columns(place: Path) -> str | None:
    """20,000 columns."""
    return probssl("fit", table(place / "t.csv", 40, 20_000), "--steps", 2, "--out", place / "run", "-q")


def one_row(place: Path) -> str | None:
    """A single row, and none."""
    for rows in (1, 0):
        if wrong := probssl("fit", table(place / "t.csv", rows, 4), *FIT, "--out", place / f"run{rows}"):
            return wrong
    return None


def long_line(place: Path) -> str | None:
    """One line of 17 MB, compressed."""
    with gzip.open(place / "t.csv.gz", "wt") as file:
        file.write("a,b\n" + "1" * 17_000_000 + ",2\n")
    return probssl("fit", place / "t.csv.gz", *FIT, "--out", place / "run")


def absurd_sizes(place: Path) -> str | None:
    """A representation that no machine holds."""
    data = table(place / "t.csv", 60, 4)
    for options in (["--dim", 10**12], ["--batch-size", 10**15], ["--set", "encoder.hidden=[1000000000]"]):
        if wrong := probssl("fit", data, *FIT, *options, "--out", place / "run"):
            return wrong
    return None


EXTREMES: tuple[Callable[[Path], str | None], ...] = (
    full_disk,
    read_only,
    no_home,
    many_columns,
    one_row,
    long_line,
    absurd_sizes,
)
