"""The race: rounds of training, each handed to the processes in batches, the better quarter going on to the next."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from probssl.comparing.grid import Candidate
from probssl.comparing.planning import (
    FINALISTS,
    LONGEST,
    SAFETY,
    SHARES,
    SHORTEST,
    Clock,
    Pace,
    Round,
    plan,
    prolonged,
    survivors,
)
from probssl.comparing.pool import Pool
from probssl.comparing.work import Batch, Job, Outcome

BATCHES = (4, 2, 4)
"""Batches that each process works through in a round: the more, the less one waits for another; the fewer, the better
models stack."""

OVERTIME = 0.25
"""Share of the time of later rounds that a batch which has begun may use up."""

MIXED = 0.7
"""Speed after the first round, as a share of it: fewer models stack less well."""

LEAST_BATCH = 4
"""Fewer models than that gain little from being trained together."""

PILOT_MODELS, PILOT_STEPS = (4, 24), (4, 44)
"""Models that the speed is measured with, fewer when time is short; two lengths of training tell what a model costs
from what a step costs."""

PILOT_SHARE = 0.1
"""Most of the time budget that measuring the speed may take."""

GUESS = 0.1
"""Seconds to measure a model, before any was measured."""


@dataclass
class Race:
    """What is being compared, and what is known so far."""

    candidates: list[Candidate]
    clock: Clock
    pool: Pool
    seed: int
    criterion: str
    keep: Callable[[Sequence[Outcome]], None] = lambda outcomes: None  # called as they come, so that none is lost
    tick: Callable[[], None] = lambda: None  # called often
    outcomes: list[Outcome] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    pace: Pace = field(default_factory=lambda: Pace(1.0, GUESS))
    final_measuring: float = 4 * GUESS  # seconds to measure a finalist, on more rows than the others
    jobs: int = 0  # of the round under way
    done: int = 0
    _batches: list[Batch] = field(default_factory=list)  # of the round under way
    _batches_of: int = 0

    def warm_up(self) -> list[Future[Batch]]:
        """Start the processes; what a process does for the first time takes longer and is not to be measured."""
        until = self.clock.training_ends
        self.pool.abandon_at = until + 0.25 * self.clock.reserve
        jobs = [job for steps in (2, 3) for job in self._pilot_jobs(0, 1, steps)]  # of two lengths, so not as a stack
        return [self.pool.submit(jobs, {"train_until": until, "until": until}) for _ in range(self.pool.processes)]

    def measure_speed(self, warming: list[Future[Batch]]) -> None:
        """Train a sample of the grid for a few steps and for some more, in every process at once, when all are warm."""
        while wait(warming, timeout=0.1).not_done and not self.pool.over and time.monotonic() < self.pool.abandon_at:
            self.tick()
        until = min(time.monotonic() + PILOT_SHARE * self.clock.budget, self.clock.training_ends)
        finals = [self._pilot_jobs(number, 1, steps=2) for number in range(self.pool.processes)]
        measured = [batch.measuring for batch in self._consume(finals, until, final=True) if batch.outcomes]
        self.final_measuring = max(measured, default=4 * GUESS)
        models = int(np.clip(self.clock.budget / 10, *PILOT_MODELS))
        few, more = (
            self._consume([self._pilot_jobs(n, models, steps) for n in range(self.pool.processes)], until, measure=4)
            for steps in PILOT_STEPS
        )
        self._update_pace(few)
        apart = sum(b.training for b in more) - sum(b.training for b in few)
        steps = sum(b.steps for b in more) - sum(b.steps for b in few)
        if few and steps > 0 and apart > 0:
            rate = steps / apart
            setting_up = sum(b.training - b.steps / rate for b in few) / sum(b.models for b in few)
            self.pace = replace(self.pace, rate=rate, setting_up=max(0.0, setting_up))

    def run(self) -> None:
        """All rounds for which there is time."""
        entrants = list(self.candidates)
        least = 0
        first = 1 if len(entrants) > FINALISTS else len(LONGEST)  # a handful needs no screening
        for number in range(first, len(LONGEST) + 1):
            until = time.monotonic() + (self.clock.training_ends - time.monotonic()) * SHARES[number - 1]
            planned = self._plan(number, len(entrants), until, least)
            if planned is None and not self.outcomes:  # it may be quicker than feared
                planned = Round(number, min(len(entrants), self.pool.processes), (SHORTEST,))
            if self.pool.over:
                return
            if planned is None:
                continue
            self.rounds.append(planned)
            before = len(self.outcomes)
            self._train(planned, entrants[: planned.configurations], until)
            if number == 1:
                self._screen_more(entrants, until)
            ranked = best_first(self.outcomes[before:], self.criterion)
            if not ranked:
                return
            least = self.rounds[-1].lengths[-1]
            entrants = ranked[: survivors(number, len(ranked))]
        self._go_on(entrants)

    def _screen_more(self, entrants: Sequence[Candidate], until: float) -> None:
        """Further configurations in the first round, as long as they fit, now that the speed is better known."""
        while self.rounds[-1].configurations < len(entrants) and not self.pool.over:
            now = self.rounds[-1]
            each = replace(now, configurations=1).seconds(self.pace, self.pool.processes)
            room = int(SAFETY * (until - time.monotonic()) / each)
            more = entrants[now.configurations : now.configurations + max(room, 0)]
            if len(more) < LEAST_BATCH:
                return
            self.rounds[-1] = replace(now, configurations=now.configurations + len(more))
            self._train(self.rounds[-1], more, until)

    def _go_on(self, finalists: Sequence[Candidate]) -> None:
        """Train finalists even longer, as long as there is time for twice the length."""
        while self.rounds[-1].final and not self.pool.over:
            last = self.rounds[-1]
            seconds = self.clock.training_ends - time.monotonic()
            steps = prolonged(last, seconds, self._foreseen(last.number), self.pool.processes)
            if steps is None:
                return
            self.rounds[-1] = replace(last, lengths=(*last.lengths, steps))
            self._train(replace(last, lengths=(steps,)), finalists, self.clock.training_ends)

    def _plan(self, number: int, configurations: int, until: float, least: int) -> Round | None:
        seconds = until - time.monotonic()
        return plan(number, configurations, seconds, self._foreseen(number), self.pool.processes, least=least)

    def describe(self) -> str:
        """What is under way, for a progress bar."""
        if not self.rounds:
            return "measuring the speed"
        best = max((o.value(self.criterion) for o in self.outcomes if o.scores), default=math.nan)
        shown = f", best {best:.3f}" if math.isfinite(best) else ""
        return f"round {self.rounds[-1].number} of {len(LONGEST)}: {self.done} of {self.jobs} models{shown}"

    def seconds_left(self) -> float:
        """How long it will take if all goes as planned."""
        end = self.clock.deadline - self.clock.training_ends
        if not self.rounds:
            return self.clock.left
        now = self.rounds[-1]
        pace = self._pace(now.final)
        expected = now.seconds(pace, self.pool.processes) * max(self.jobs - self.done, 0) / max(self.jobs, 1)
        entrants, least = now.configurations, now.lengths[-1]
        for number in range(now.number + 1, len(LONGEST) + 1):
            entrants = survivors(number - 1, entrants)
            seconds = (self.clock.training_ends - time.monotonic() - expected) * SHARES[number - 1]
            pace = self._foreseen(number)
            planned = plan(number, entrants, seconds, pace, self.pool.processes, least=least)
            if planned is None:
                break
            expected += planned.seconds(pace, self.pool.processes)
            entrants, least = planned.configurations, planned.lengths[-1]
        return expected + min(end, 10.0)

    def _train(self, planned: Round, entrants: Sequence[Candidate], until: float) -> None:
        place = {candidate: number for number, candidate in enumerate(entrants)}
        jobs = [
            Job(candidate, steps, self.seed + number, planned.number)
            for steps in reversed(planned.lengths)
            for candidate in sorted(place, key=lambda c: (c.dim, c.objective, c.energy))  # what is alike stacks best
            for number in range(planned.seeds)
        ]
        count = BATCHES[planned.number - 1] * self.pool.processes
        size = max(LEAST_BATCH, -(-len(jobs) // count))
        batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        batches.sort(key=lambda batch: min(place[job.candidate] for job in batch))  # should there be a stop
        if planned.number != self._batches_of:
            self._batches, self._batches_of = [], planned.number
            self.jobs = self.done = 0
        self.jobs += len(jobs)
        self._batches += self._consume(batches, until, final=planned.final, counted=True)
        self._update_pace(self._batches)  # over all of the round so far: a few batches say little

    def _consume(
        self,
        batches: list[list[Job]],
        until: float,
        *,
        final: bool = False,
        measure: int | None = None,
        counted: bool = False,
    ) -> list[Batch]:
        """Train batches; none begins after `until`, and one that has begun may take some time of later rounds."""
        end = until + OVERTIME * max(0.0, self.clock.training_ends - until)

        def options(jobs: list[Job]) -> dict[str, Any]:
            measuring = len(jobs) * self._pace(final).measuring
            return {"train_until": end - measuring, "until": end, "final": final, "measure": measure}

        finished = []
        for batch in self.pool.run(batches, options, self.tick, until):
            finished.append(batch)
            if counted:
                self.keep(batch.outcomes)
                self.outcomes.extend(batch.outcomes)
                self.done += len(batch.outcomes)
        return finished

    def _pace(self, final: bool) -> Pace:
        return replace(self.pace, measuring=self.final_measuring) if final else self.pace

    def _foreseen(self, number: int) -> Pace:
        """The pace that a round is planned with."""
        pace = self._pace(final=number == len(LONGEST))
        return pace if number == 1 or not self.outcomes else replace(pace, rate=MIXED * pace.rate)

    def _update_pace(self, batches: Sequence[Batch]) -> None:
        """Speed as it was in these batches; what they did not show stays as it was."""
        training, steps = sum(b.training for b in batches), sum(b.steps for b in batches)
        measured = sum(len(b.outcomes) for b in batches)
        stepping = max(training - self.pace.setting_up * sum(b.models for b in batches), 0.3 * training)
        if steps:
            self.pace = replace(self.pace, rate=steps / stepping)
        if measured and not (self.rounds and self.rounds[-1].final):
            self.pace = replace(self.pace, measuring=sum(b.measuring for b in batches) / measured)

    def _pilot_jobs(self, number: int, count: int, steps: int) -> list[Job]:
        """A sample of the grid, of a dimension for each process as in the batches of a round."""
        dims = sorted({candidate.dim for candidate in self.candidates})
        able = [c for c in self.candidates if c.dim == dims[-1 - number % len(dims)]]
        chosen = np.random.default_rng(self.seed).permutation(len(able))[:count]
        return [Job(able[index], steps, self.seed, 0) for index in sorted(chosen)]


def best_first(outcomes: Sequence[Outcome], criterion: str) -> list[Candidate]:
    """Configurations by their mean criterion over seeds, the best first; what failed is left out."""
    values: dict[Candidate, list[float]] = {}
    for outcome in outcomes:
        if np.isfinite(outcome.value(criterion)):
            values.setdefault(outcome.job.candidate, []).append(outcome.value(criterion))
    return sorted(values, key=lambda candidate: -float(np.mean(values[candidate])))
