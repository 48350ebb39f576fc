"""The runs below a folder, a line each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probssl.errors import ProbsslError, UnknownPart
from probssl.runs.doctor import verdict
from probssl.runs.evaluation import TRAINED
from probssl.runs.folder import RECIPE, Run

SHOWN = ("linear_probe", "knn_probe", "ridge_r2", "knn_r2", "linear_r2", "rankme")
"""Metrics of a line, those that a run has."""


@dataclass(frozen=True)
class Line:
    """What a list of runs says of one."""

    folder: Path
    title: str
    state: str
    """"finished", "collapsed", "stopped", "part missing" or "unreadable"."""
    verdict: str
    """What is to be thought of it, as "healthy" or "nothing learnt"; the state where it cannot be read."""
    step: int
    seconds: float
    metrics: dict[str, float]
    size: int
    """Bytes of its checkpoints."""
    reason: str = ""
    """Why it cannot be read."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**vars(self), "folder": str(self.folder)}

    def name(self, below: Path) -> str:
        """The folder, seen from another."""
        return str(self.folder.relative_to(below)) if self.folder != below else self.folder.name

    def prune(self) -> int:
        """Delete the checkpoints of a finished run; how many bytes they took."""
        if self.state not in ("finished", "collapsed"):
            return 0
        for path in Run(self.folder).checkpoints:
            path.unlink()
        return self.size


def lines(folder: Path) -> list[Line]:
    """Runs in a folder and the folders in it, the newest first."""
    found = [path.parent for path in [folder / RECIPE, *folder.glob(f"*/{RECIPE}")] if path.is_file()]
    return [_line(path) for path in sorted(found, key=lambda path: -(path / RECIPE).stat().st_mtime)]


def _line(folder: Path) -> Line:
    run = Run(folder)
    size = sum(path.stat().st_size for path in run.checkpoints)
    try:
        state = ("collapsed" if run.collapsed else "finished") if run.finished else "stopped"
        values = run.comparison.rows.get(TRAINED, {}) if run.comparison is not None else {}
        metrics = {name: value for name in SHOWN if (value := values.get(name)) is not None}
        return Line(folder, run.recipe.title, state, verdict(run), run.step, run.seconds, metrics, size)
    except (ProbsslError, KeyError, ValueError, TypeError) as error:
        state = "part missing" if isinstance(error, UnknownPart) else "unreadable"
        return Line(folder, "", state, state, 0, 0.0, {}, size, str(error) or type(error).__name__)
