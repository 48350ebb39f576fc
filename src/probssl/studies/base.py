"""What a study is: an experiment of a paper, its rows beside published numbers, and the rule that compares them."""

from __future__ import annotations

import importlib
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from probssl.errors import InputError
from probssl.studies.comparison import Verdict
from probssl.training.files import write_text

Budget = Literal["smoke", "laptop", "full"]
BUDGETS: tuple[Budget, ...] = ("smoke", "laptop", "full")


@dataclass(frozen=True)
class Study:
    """One experiment: its name, where it comes from, what it claims, and the module that runs it."""

    name: str
    paper: str
    claim: str
    laptop: str  # how long the default budget takes on two cores
    module: str
    reference: str = "published"  # what its numbers stand beside: published ones, or predicted by theory

    def as_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return {"name": self.name, "paper": self.paper, "claim": self.claim, "laptop": self.laptop}


@dataclass(frozen=True)
class Row:
    """One number of a study: mean over repetitions, their standard deviation, and the published or predicted value."""

    setting: str
    metric: str
    value: float | None
    spread: float | None
    published: float | None
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, where a number that is not finite is null."""
        numbers = {"value": self.value, "spread": self.spread, "published": self.published}
        finite = {name: number if number is None or math.isfinite(number) else None for name, number in numbers.items()}
        return {"setting": self.setting, "metric": self.metric, **finite, "verdict": self.verdict}


@dataclass(frozen=True)
class StudyResult:
    """What a study found, and the page that shows it."""

    experiment: str
    budget: Budget
    seconds: float
    rows: list[Row]
    page: Path
    reference: str = "published"

    def as_dict(self) -> dict[str, Any]:
        """The document that `reproduce --json` prints."""
        return {
            "experiment": self.experiment,
            "budget": self.budget,
            "seconds": round(self.seconds, 2),
            "reference": self.reference,
            "rows": [row.as_dict() for row in self.rows],
            "page": str(self.page),
        }


class StudyModule(Protocol):
    """What the module of a study provides."""

    def run(self, budget: Budget, out: Path, *, quiet: bool) -> tuple[list[Row], Path]:
        """Do the work, write figures and a page into `out`, and return the rows and the page."""


CATALOGUE = (
    Study(
        "siamese/circles",
        "Siamese-EBM, §3 and D",
        "KL, SNL, NCE and Fisher all separate two circles",
        "1 to 2 min",
        "probssl.studies.circles",
    ),
    Study(
        "siamese/linear-theory",
        "Siamese-EBM, §2.3 and B; CL-ICA, Prop. 1",
        "trained linear encoders are what the theorems, corrected, say",
        "2 to 4 min",
        "probssl.studies.linear_theory",
        "predicted",
    ),
    Study(
        "siamese/deaugmenting",
        "Siamese-EBM, A.3",
        "a metric for undoing augmentations, and whether it predicts the probe",
        "12 to 15 min",
        "probssl.studies.deaugmenting",
    ),
)


def catalogue() -> tuple[Study, ...]:
    """Every experiment that can be reproduced."""
    return CATALOGUE


def run(name: str, budget: str, out: Path, *, quiet: bool = False) -> StudyResult:
    """Run an experiment at a budget into a folder; also writes `result.json` there."""
    study = next((study for study in CATALOGUE if study.name == name), None)
    if study is None:
        raise InputError(f"there is no experiment {name!r}: choose one of {', '.join(s.name for s in CATALOGUE)}")
    if budget not in BUDGETS:
        raise InputError(f"the budget is smoke, laptop or full, not {budget!r}")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, and a study needs a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / "result.json").is_file():
        raise InputError(f"{out} holds other files: choose another --out")
    out.mkdir(parents=True, exist_ok=True)  # before any work, should it not be possible
    module: StudyModule = importlib.import_module(study.module)
    started = time.perf_counter()
    rows, page = module.run(budget, out, quiet=quiet)
    result = StudyResult(name, budget, time.perf_counter() - started, rows, page, study.reference)
    write_text(out / "result.json", json.dumps(result.as_dict(), indent=2) + "\n")
    return result
