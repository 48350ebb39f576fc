"""The folder of a comparison: every finished training at once, the leaderboard, and the winner's run."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probssl.comparing.result import CompareResult
from probssl.comparing.rows import some, take
from probssl.comparing.work import Outcome
from probssl.data import Table
from probssl.errors import InputError
from probssl.model import Model
from probssl.runs import Run, Source, assess
from probssl.training.files import write_text
from probssl.training.log import RunLog

TRIALS, BOARD, PAGE, BEST = "trials.jsonl", "leaderboard", "index.html", "best"


def prepare(folder: Path, overwrite: bool) -> None:
    """Make the folder, or refuse one that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, and a comparison needs a folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / TRIALS).is_file():
            raise InputError(f"{folder} holds other files: choose another --out")
        if not overwrite and (folder / TRIALS).stat().st_size:
            raise InputError(f"{folder} already holds a comparison: choose another --out, or --overwrite it")
        _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / TRIALS, "")


def _clear(folder: Path) -> None:
    """Remove what a comparison wrote, and nothing else."""
    for name in (f"{BOARD}.csv", f"{BOARD}.json", PAGE):
        (folder / name).unlink(missing_ok=True)
    if (folder / BEST / "recipe.toml").is_file():
        shutil.rmtree(folder / BEST)


def append(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Add finished trainings to the list on disk, one JSON object a line."""
    with (folder / TRIALS).open("a", encoding="utf-8") as file:
        for outcome in outcomes:
            job = outcome.job
            row = {
                **dataclasses.asdict(job.candidate),
                "round": job.round,
                "steps": job.steps,
                "seed": job.seed,
                **outcome.scores,
                "collapsed": list(outcome.collapsed),
                "failure": outcome.failure,
            }
            file.write(json.dumps(strict(row)) + "\n")


def write_run(outcome: Outcome, table: Table, source: Source, folder: Path) -> Model:
    """The winner as a run's folder: recipe, source, log and model. `table` holds the rows that it was trained on."""
    recipe = outcome.job.recipe.for_features(table.n_features)
    model = Model.untrained(recipe, table)
    outcome.put_into(model)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "source.json", json.dumps(source.as_dict(), indent=2) + "\n")
    write_text(folder / "recipe.toml", recipe.to_toml())
    log = RunLog(folder / "log.jsonl")
    for row in outcome.history:
        log.append(row)
    model.save(folder / "model.safetensors")
    return model


def assess_run(model: Model, table: Table, rows: int, seed: int, folder: Path) -> None:
    """The metrics and the page that `fit` would have written, on at most so many rows of the whole table."""
    from probssl.report import run_page

    assess(model, take(table, some(np.arange(len(table)), rows, seed)), folder)
    run_page.write(Run(folder))


def write_board(result: CompareResult) -> None:
    """The leaderboard as CSV, and with everything else as JSON."""
    rows = [standing.as_dict() for standing in result.leaderboard]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(result.folder / f"{BOARD}.csv", text.getvalue())
    document = json.dumps(strict(result.as_dict()), indent=2, allow_nan=False)
    write_text(result.folder / f"{BOARD}.json", document + "\n")


def strict(value: Any) -> Any:
    """Numbers that JSON cannot hold become null."""
    if isinstance(value, dict):
        return {key: strict(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
