"""The folder of a comparison: the store of trainings, the leaderboard, and the winner's run."""

from __future__ import annotations

import csv
import dataclasses
import io
import shutil
from pathlib import Path

import numpy as np

from probssl.comparing.result import BEST, PAGE, CompareResult
from probssl.comparing.work import Outcome
from probssl.data import Dataset
from probssl.errors import InputError
from probssl.files import write_json, write_text
from probssl.model import Model
from probssl.parts.recipe import Recipe
from probssl.runs import Source
from probssl.runs import folder as folders
from probssl.runs.workflow import judge
from probssl.training.log import RunLog

STORE, BOARD = "store.sqlite", "leaderboard"


def prepare(folder: Path, *, overwrite: bool, resume: bool) -> None:
    """Make the folder, or refuse one that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, and a comparison needs a folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / STORE).is_file():
            raise InputError(f"{folder} holds other files: choose another --out")
        if not (overwrite or resume):
            raise InputError(f"{folder} already holds a comparison: choose another --out, --resume or --overwrite it")
        _clear(folder, everything=overwrite)
    folder.mkdir(parents=True, exist_ok=True)


def _clear(folder: Path, *, everything: bool) -> None:
    """Remove what a comparison wrote at its end, or all of it, and nothing else."""
    stored = [f"{STORE}{ending}" for ending in ("", "-wal", "-shm")] if everything else []
    for name in (f"{BOARD}.csv", f"{BOARD}.json", PAGE, *stored):
        (folder / name).unlink(missing_ok=True)
    if (folder / BEST / folders.RECIPE).is_file():
        shutil.rmtree(folder / BEST)


def write_run(outcome: Outcome, recipe: Recipe, data: Dataset, source: Source, folder: Path) -> Model:
    """The winner as a run's folder: recipe, source, log and model. `data` has its test rows set aside."""
    model = Model.untrained(recipe, data)
    outcome.put_into(model)
    source = dataclasses.replace(source, fingerprint=data.fingerprint, facts=model.facts)
    with folders.claimed(folder):
        folders.begin(folder, model.recipe, source, fresh=True)
        log = RunLog(folder / "log.jsonl")
        for row in outcome.history:
            log.append(row)
        model.save(folder / folders.MODEL)
    return model


def assess_run(model: Model, data: Dataset, rows: int, seed: int, folder: Path) -> None:
    """The metrics and the page that `fit` would have written, on at most so many rows of the data."""
    chosen = np.random.default_rng(seed).permutation(len(data))[:rows]
    judge(model, data.take(np.sort(chosen)), folder, "quick")


def write_board(result: CompareResult) -> None:
    """The leaderboard as CSV, and with everything else as JSON."""
    rows = [standing.as_dict(result.scores) for standing in result.leaderboard]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(result.folder / f"{BOARD}.csv", text.getvalue())
    write_json(result.folder / f"{BOARD}.json", result.as_dict())
