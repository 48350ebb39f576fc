"""What a study is: a declared grid, a trial, how to aggregate and draw; and the rows that it ends in."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from probssl.grids.grid import even_parts
from probssl.grids.keys import Config, Result, Results, text
from probssl.grids.store import Kept
from probssl.studies.comparison import Verdict, references, verdict
from probssl.studies.page import Page, Section, listed

LARGEST_COHORT = 72
"""Most trials of a cohort: as many as stack well, and no more, for one that is killed is redone."""

Found = tuple[Config, Result] | tuple[Config, Result, bytes | None]
"""A trial and what it found, with bytes for the store to keep where another study needs them."""

Budget = Literal["smoke", "laptop", "full"]
BUDGETS: tuple[Budget, ...] = ("smoke", "laptop", "full")


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


class Study(ABC):
    """An experiment that the engine can run, stop, resume, share between processes and set beside published numbers.

    A subclass writes `configs`, `summarise`, and `trial` or `run_batch`; the rest has defaults. It is made without
    arguments, is pickled to the processes that work, and keeps no state: everything a trial depends on is in its
    configuration. The engine stores every result under a hash of (name, configuration, code version), so

    - a trial must be a function of its configuration alone: seeds, numbers of steps and data names belong into it,
      the budget does not. Two budgets that ask for the same trial share it.
    - configurations and results pass through JSON before anyone sees them: tuples arrive as lists, NumPy numbers as
      numbers, and what `summarise` gets of a trial is the same in the run that made it and in one that finds it stored.
    - what decides the numbers must be in `code`; what only draws should not be, so that drawing anew costs nothing.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    claim: ClassVar[str] = ""
    laptop: ClassVar[str] = ""
    """How long the default budget takes on two cores."""
    reference: ClassVar[str] = "published"
    """What the numbers stand beside: published ones, or those predicted by theory."""
    code: ClassVar[tuple[str, ...]] = ()
    """Modules of the study that decide its numbers; the library's own always count. Without any: the class's module."""

    weights_from: ClassVar[str] = ""
    """The study whose trials keep the weights of the models that this one measures too."""
    kept: Kept | None = None
    """Those weights, in the store of that study, where it has one; models that are not there are trained again."""

    @abstractmethod
    def configs(self, budget: Budget) -> list[Config]:
        """The whole grid of a budget, each configuration once. Cheap: it is asked for to count, and loads no data."""

    def prepare(self, budget: Budget) -> None:  # noqa: B027 - most studies need nothing
        """Called once before any trial is run: raise `InputError` here where data are missing."""

    def trial(self, config: Config) -> Result:
        """Run one trial. Studies whose trials train together write `run_batch` instead."""
        raise NotImplementedError(f"{type(self).__name__} writes neither trial nor run_batch")

    def kept_weights(self, model: Config) -> bytes | None:
        """The weights of a model that another study has trained."""
        return None if self.kept is None else self.kept.of(model)

    def run_batch(self, configs: list[Config]) -> Iterator[Found]:
        """Run the trials of a cohort, in one thread of one process, and yield each as soon as it is finished.

        Where this raises, what was yielded is kept and the rest is halved and tried again until the trial at fault
        stands alone: it is recorded as failed, and the study goes on.
        """
        for config in configs:
            yield config, self.trial(config)

    def cohort(self, config: Config) -> Any:
        """What trials that train together have in common; here each is alone."""
        return text(config)

    def cost(self, config: Config) -> float:
        """How long a trial takes beside the others: the longest are begun first."""
        return 0.0

    def cohorts(self, configs: list[Config]) -> list[list[Config]]:
        """The units of work of a grid: trials that are computed, stored and, after a kill, redone together.

        They depend on nothing but the grid, so that neither the number of processes nor kills change a trial's numbers.
        """
        groups: dict[Any, list[Config]] = {}
        for config in configs:
            groups.setdefault(self.cohort(config), []).append(config)
        cut = [part for group in groups.values() for part in even_parts(group, -(-len(group) // LARGEST_COHORT))]
        return sorted(cut, key=lambda part: -sum(map(self.cost, part)))

    @abstractmethod
    def summarise(self, results: Results, budget: Budget) -> list[Row]:
        """The rows that are shown, from the finished trials of the budget's grid; some may be missing for failure."""

    def page(self, results: Results, rows: list[Row], budget: Budget) -> Page:
        """What is shown of the results. Here: the rows as a table."""
        return Page(self.name, self.claim, [Section(budget, listed(rows, self.reference))])

    def as_dict(self) -> dict[str, str]:
        """What the list of experiments says about it."""
        return {"name": self.name, "paper": self.paper, "claim": self.claim, "laptop": self.laptop}


def largest(setting: Any) -> int:
    """A number, or the largest of those that differ between data sets or methods."""
    return int(max(setting.values()) if isinstance(setting, dict) else setting)


def row_of(
    experiment: str,
    setting: str,
    metric: str,
    values: Sequence[float],
    budget: Budget | None = None,
    *,
    median: bool = False,
    of_one: float | None = None,
) -> Row:
    """The mean over seeds, their standard deviation, what is published, and a verdict: given a budget, in `full` alone.

    `full` is the paper's scale. A study that is about as large as the paper's in every budget gives none. The `median`
    takes the place of the mean where that is what is published, or where one seed may be infinitely far off. `of_one`
    is the spread of fewer than two values.
    """
    reference = references(experiment).get((setting, metric))
    middle = float(np.median(values) if median else np.mean(values)) if len(values) else None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else of_one
    judged = verdict(middle, spread, len(values), reference if budget in (None, "full") else None)
    return Row(setting, metric, middle, spread, None if reference is None else reference.value, judged)


def rows_of(
    experiment: str,
    setting: str,
    results: Sequence[Result],
    metrics: Sequence[str] | Mapping[str, str],
    budget: Budget | None = None,
    *,
    of_one: float | None = None,
) -> list[Row]:
    """A row for each metric of one setting, from the results of its seeds; `metrics` may be names there -> of rows."""
    titles = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
    return [
        row_of(experiment, setting, title, [result[name] for result in results], budget, of_one=of_one)
        for name, title in titles.items()
    ]


Side = float | tuple[str, str]
"""A number, or the row that has it by its setting and metric."""


@dataclass(frozen=True)
class Claim:
    """One number is above another, by a margin; a row that is not there is neither above nor below anything."""

    above: Side
    below: Side
    margin: float = 0.0

    def holds(self, rows: Sequence[Row]) -> bool:
        """Whether the rows say so."""
        known = {(row.setting, row.metric): row.value for row in rows}
        above, below = (known.get(side) if isinstance(side, tuple) else side for side in (self.above, self.below))
        return above is not None and below is not None and above - below >= self.margin


def where(results: Results, **wanted: Any) -> list[Result]:
    """Results of the trials whose configuration (or that of the model in it) has these values, in the grid's order."""
    return [
        result
        for config, result in results
        if all({**config, **config.get("model", {})}.get(name) == value for name, value in wanted.items())
    ]


def chosen(settings: Mapping[str, Any], *names: str) -> Config:
    """Settings of a budget for a data set or a method: a dict among them has a value for some names, and one `else`."""
    return {
        setting: next((value[name] for name in names if name in value), value["else"])
        if isinstance(value, dict)
        else value
        for setting, value in settings.items()
    }


def best_starts(results: Results, loss: str) -> Results:
    """Of trials whose configurations differ in `start` alone, the one whose result has the least of that loss."""
    chosen: dict[str, tuple[Config, Result]] = {}
    for config, result in results:
        key = json.dumps({name: value for name, value in config.items() if name != "start"}, sort_keys=True)
        if key not in chosen or result.get(loss, math.inf) < chosen[key][1].get(loss, math.inf):
            chosen[key] = config, result
    return list(chosen.values())


def first_starts(results: Results) -> Results:
    """The trials of start 0 of what was begun several times."""
    several = {config["setting"] for config, _ in results if config["start"]}
    return [(config, result) for config, result in results if config["setting"] in several and not config["start"]]


@dataclass(frozen=True)
class StudyResult:
    """What a study found, and the page that shows it."""

    experiment: str
    budget: Budget
    seconds: float
    rows: list[Row]
    page: Path
    reference: str = "published"
    trials: int = 0
    failures: tuple[tuple[Config, str], ...] = ()
    """Trials that failed, with why; another run tries them again."""

    def as_dict(self) -> dict[str, Any]:
        """The document that `reproduce --json` prints."""
        return {
            "experiment": self.experiment,
            "budget": self.budget,
            "seconds": round(self.seconds, 2),
            "reference": self.reference,
            "trials": self.trials,
            "failures": [{"config": config, "message": message} for config, message in self.failures],
            "rows": [row.as_dict() for row in self.rows],
            "page": str(self.page),
        }
