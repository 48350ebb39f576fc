"""The race: rounds of training on the engine of grids, the better quarter going on to the next."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from probssl.comparing.grid import Candidate
from probssl.comparing.schedule import COHORT, Clock, Round, rounds_of, survivors
from probssl.comparing.work import Contest, Job, Outcome, OutOfTime
from probssl.grids.database import WAY_OUT
from probssl.grids.engine import Engine, Progress, watched
from probssl.grids.grid import Grid, even_parts
from probssl.grids.workers import Here, WorkerDied
from probssl.schema import intact


@dataclass
class Race:
    """What is being compared, and what is known so far."""

    candidates: list[Candidate]
    contest: Contest
    engine: Engine
    clock: Clock
    code: str
    """The version of the code and of the data."""
    seed: int
    steps: int
    """What a training of such data usually takes."""
    progress: Progress | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    broken: bool = False
    """Whether a process died."""
    _known_of: dict[tuple[str, str, str], tuple[str, bool]] = field(default_factory=dict)

    def run(self) -> None:
        """All rounds for which there is time; `KeyboardInterrupt` leaves what is finished in `outcomes`."""
        entrants = list(self.candidates)
        for planned in rounds_of(len(entrants), self.clock.minutes, self.steps):
            grid = self._grid(cohorts_of(planned, entrants, self.seed, lambda entrant: self._about(entrant)[1]))
            outcomes: list[Outcome] = []
            try:
                self._train(planned, grid)
            except OutOfTime:
                pass
            except WorkerDied:
                self.broken = True
            finally:
                outcomes += self._known(grid)
                if outcomes:
                    trained = len({outcome.job.candidate for outcome in outcomes})
                    self.rounds.append(replace(planned, configurations=trained))
                    self.outcomes += outcomes
            ranked = best_first(outcomes, self.contest.criterion)
            if self.broken or not ranked:
                return
            entrants = ranked[: survivors(planned.number, len(ranked))]

    def _train(self, planned: Round, grid: Grid) -> None:
        """As far as there is time; the very first cohort is trained in any case."""
        with watched(grid, self.engine.store, self.progress, f"round {planned.number}, {planned.steps} steps"):
            if not self.outcomes:
                self.engine.finish(replace(grid, cohorts=grid.cohorts[:1]))
            if isinstance(self.engine.workers, Here):
                self.contest.until = self.clock.training_ends
            begin_until = self.clock.begin_until(planned.number)
            self.engine.finish(grid, begin_until=begin_until, until=self.clock.training_ends)

    def _grid(self, cohorts: Sequence[Sequence[Job]]) -> Grid:
        configs = [[job.as_config() for job in jobs] for jobs in cohorts]
        return Grid.of(self.contest, self.code, configs, parts=lambda config: self._about(Job.of(config).candidate)[0])

    def _about(self, candidate: Candidate) -> tuple[str, bool]:
        """The version of the parts of a configuration, and whether it stacks."""
        parts = candidate.objective, candidate.energy, candidate.pairing
        if parts not in self._known_of:
            self._known_of[parts] = self.contest.parts.version(candidate), self.contest.stacks(candidate)
        return self._known_of[parts]

    def _known(self, grid: Grid) -> list[Outcome]:
        """What the store has of a grid."""
        store = self.engine.store
        found, failures = store.results(grid.trials), store.failures(grid.trials)
        with intact(store.path, WAY_OUT):
            finished = [
                Outcome.of(grid.trials[key], found[key], store.weights(key)) for key in grid.trials if key in found
            ]
        failed = [Outcome(Job.of(grid.trials[key]), {}, failure=why) for key, why in failures.items()]
        return [*finished, *failed]


def cohorts_of(
    planned: Round, entrants: Sequence[Candidate], seed: int, stacks: Callable[[Candidate], bool]
) -> list[list[Job]]:
    """The cohorts of a round: configurations of one dimension, alike ones side by side; what comes first, first.

    What cannot be stacked is a cohort of its own, so that as little as possible is lost when it ends early.
    """
    place = {candidate: number for number, candidate in enumerate(entrants)}
    alike = sorted(filter(stacks, entrants), key=lambda c: (c.level, c.dim, c.objective, c.energy, place[c]))
    groups = [list(group) for _, group in itertools.groupby(alike, key=lambda c: (c.level, c.dim))]
    parts = [part for group in groups for part in even_parts(group, -(-len(group) // COHORT))]
    parts += [[candidate] for candidate in entrants if not stacks(candidate)]
    parts.sort(key=lambda part: min(place[candidate] for candidate in part))
    return [
        [Job(candidate, steps, seed + number, planned.number, planned.final) for candidate in part]
        for steps in planned.lengths
        for number in range(planned.seeds)
        for part in parts
    ]


def best_first(outcomes: Sequence[Outcome], criterion: str) -> list[Candidate]:
    """Configurations by their mean criterion over seeds, the best first; what failed is left out."""
    values: dict[Candidate, list[float]] = {}
    for outcome in outcomes:
        if np.isfinite(outcome.value(criterion)):
            values.setdefault(outcome.job.candidate, []).append(outcome.value(criterion))
    return sorted(values, key=lambda candidate: -float(np.mean(values[candidate])))
