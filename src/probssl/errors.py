"""The errors probssl raises on purpose. Each message is one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

from pathlib import Path


class ProbsslError(Exception):
    """Base of every error raised on purpose."""


class InputError(ProbsslError, ValueError):
    """Something the caller gave (a file, a column, an option) cannot be used; the command line exits with 2."""


class UnknownPart(InputError):
    """A part is named that is not here: a slip of the pen, or of a package that is not installed."""


class CheckpointError(InputError):
    """A model or checkpoint file is missing, damaged, or belongs to another run."""


class DamagedFile(CheckpointError):
    """A file that we wrote does not hold what we write: it was damaged, or changed by hand."""


class DiskFull(InputError):
    """There is no room on a disk; what was there before is unharmed."""


class MissingExtra(InputError, ImportError):
    """An optional dependency is needed; the message names the extra that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'probssl[{extra}]'")


class NonFiniteLoss(ProbsslError, ArithmeticError):
    """A term of the loss became infinite or not a number; training stops before the weights are touched."""

    def __init__(self, message: str, folder: Path | None = None) -> None:
        super().__init__(message)
        self.folder = folder


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped between two steps, with a checkpoint to resume from."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped at step {step}; resume with out={str(folder)!r}, resume=True")
        self.folder, self.step = folder, step


class DataWarning(UserWarning):
    """Data holds something that a model was not trained on, and can do little with."""


class CollapseWarning(UserWarning):
    """Training ended with a collapsed representation."""
