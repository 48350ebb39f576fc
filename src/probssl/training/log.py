"""The JSONL log of a run: one object a line, rows of numbers and named events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from probssl.errors import DamagedFile, InputError
from probssl.files import write_text
from probssl.schema import Mismatch, conform, from_json, intact

PROGRESS = ("step", "seconds", "loss", "lr")
"""Columns of a row about the training itself."""

LOOKED_AT = ("rankme", "effective_rank", "numerical_rank", "spread", "contrast")
"""What a look at the representation measures."""

OF_CLUSTERS = (
    "largest_cluster",
    "clusters_used",
    "label_agreement",
    "label_certainty",
    "invariance_term",
    "prior_term",
    "prior_minimum",
)
"""What a look at clusters measures, where there are any."""

OF_EVENTS = ("event", "kind", "message")
"""Columns of a named event."""

Collapse = Literal["representation", "dimension", "cluster", "label"]
"""What goes wrong with representations and clusters."""

WAY_OUT = "copy it back, or delete it and do without"

COLUMNS = (*PROGRESS, *LOOKED_AT, *OF_CLUSTERS, *OF_EVENTS)
"""Every column but the terms of the loss, which have the names that the objective gives them."""


def term_names(row: dict[str, Any]) -> list[str]:
    """The terms of the loss among the entries of a row of the log."""
    return [name for name in row if name not in COLUMNS]


def check_terms(names: Iterable[str]) -> None:
    """Refuse terms of a loss that are called like another column."""
    taken = sorted(set(names) & set(COLUMNS))
    if taken:
        raise InputError(f"a term of a loss cannot be called {', '.join(taken)}, which is a column of the log")


class RunLog:
    """Appends to a JSONL file and keeps the rows in memory; a resumed run drops what came after its checkpoint."""

    def __init__(self, path: Path | None, *, resume_at: int | None = None) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path is None:
            return
        if resume_at is not None and path.is_file():
            # A failure is not carried over: if it happens again it is logged again.
            kept = (row for row in read_log(path) if row["step"] <= resume_at)
            self.rows = [row for row in kept if row.get("event") != "failure"]
        write_text(path, "".join(_line(row) for row in self.rows))

    def append(self, row: dict[str, Any]) -> None:
        """Add a row; it is on disk when this returns."""
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(row))


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; an incomplete last line, as a killed run leaves it, is left out."""
    rows: list[dict[str, Any]] = []
    with intact(path, WAY_OUT):
        lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            rows.append(_checked(from_json(line), rows))
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise DamagedFile(f"{path} is damaged (line {number} is not a row of a log): {WAY_OUT}") from error
    return rows


def _checked(row: Any, before: list[dict[str, Any]]) -> dict[str, Any]:
    """A row as it is written: a step that is not before the last one, and numbers or, of an event, words."""
    event = isinstance(row, dict) and "event" in row
    known = conform(row, dict[str, int | str] if event else dict[str, float | None])
    step = conform(known.get("step"), int)
    if event:
        conform(known.get("message"), str)
        if known["event"] in ("collapse", "recovery"):
            conform(known.get("kind"), Collapse)
    else:
        conform(known.get("seconds"), float)
        needed = (*LOOKED_AT, *(("loss",) if step else ()))
        if not known.keys() >= set(needed):
            raise Mismatch("it lacks a column")
    if step < (before[-1]["step"] if before else 0):
        raise Mismatch("it is of an earlier step than the row before")
    return known


def _line(row: dict[str, Any]) -> str:
    """One line of strict JSON: numbers that are not finite become null."""
    clean = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    return json.dumps(clean) + "\n"
