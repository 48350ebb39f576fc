"""What one process does: train a batch of configurations as one stack, and measure each."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from probssl.comparing.grid import Candidate
from probssl.comparing.measuring import Measurer
from probssl.model import Model
from probssl.parts.facts import Facts
from probssl.parts.recipe import Recipe
from probssl.parts.resolve import resolve
from probssl.training import Trial, fit_many
from probssl.training.checkpoints import gather, restore

LOOKS = 5
"""Rows of the log of a training in an early round; two looks in a row tell a collapse."""


@dataclass(frozen=True)
class Job:
    """One training: a configuration, how long, from which seed, in which round."""

    candidate: Candidate
    steps: int
    seed: int
    round: int

    @property
    def recipe(self) -> Recipe:
        """What is trained."""
        return self.candidate.recipe(self.steps, self.seed)


@dataclass(frozen=True)
class Outcome:
    """Results of a job. `scores` is empty where training failed."""

    job: Job
    scores: dict[str, float]
    collapsed: tuple[str, ...] = ()
    failure: str | None = None
    weights: bytes | None = field(default=None, repr=False)  # of encoder and objective, where they are kept
    history: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    def value(self, name: str) -> float:
        """A score, or not a number."""
        return self.scores.get(name, math.nan)

    def put_into(self, model: Model) -> None:
        """Give a model of the same recipe the weights that were trained."""
        assert self.weights is not None
        tensors = load(self.weights)
        restore(model.encoder, "encoder", tensors)
        restore(model.objective, "objective", tensors)


@dataclass(frozen=True)
class Batch:
    """Outcomes of the jobs that ran to their end, and what all cost."""

    outcomes: list[Outcome]
    models: int  # trained, finished or not
    steps: int  # model-steps
    training: float  # seconds
    measuring: float  # seconds


@dataclass(frozen=True, eq=False)
class Trainer:
    """What a process needs to do its jobs: the rows to train on, how to measure, and when to stop early."""

    x: Tensor  # [n, d], standardised
    facts: Facts
    measurer: Measurer
    final_measurer: Measurer
    criterion: str
    stop_file: Path  # stop when it appears

    def train(
        self, jobs: Sequence[Job], *, train_until: float, until: float, final: bool = False, measure: int | None = None
    ) -> Batch:
        """Train jobs together, measure those that ended, and keep the weights of the best, or of all in the final.

        `measure` is how many at most are measured, if not all.

        Training stops at `train_until` and measuring at `until`, both of `time.monotonic`, which all processes share.
        """
        trials = [self._trial(job, final) for job in jobs]
        started = time.monotonic()
        with self._stopping(train_until) as stop:
            fitted = fit_many(trials, stop=stop)
        trained = time.monotonic()
        measurer = self.final_measurer if final else self.measurer
        outcomes: list[Outcome] = []
        best = -1
        for job, trial, result in zip(jobs, trials, fitted, strict=True):
            if result.interrupted or time.monotonic() > until or len(outcomes) == measure:
                continue
            scores = {} if result.failure else measurer.measure(trial.encoder, trial.objective.energy)
            if not scores:
                outcomes.append(Outcome(job, {}, failure=result.failure or "the representation is not finite"))
                continue
            outcome = Outcome(job, scores, tuple(result.collapsed))
            better = best < 0 or outcome.value(self.criterion) > outcomes[best].value(self.criterion)
            if final or better:
                parts = (("encoder", trial.encoder), ("objective", trial.objective))
                tensors = {name: t for prefix, part in parts for name, t in gather(prefix, part.state_dict()).items()}
                outcome = dataclasses.replace(outcome, weights=save(tensors), history=tuple(result.history))
            if better:
                if best >= 0 and not final:
                    outcomes[best] = dataclasses.replace(outcomes[best], weights=None, history=())
                best = len(outcomes)
            outcomes.append(outcome)
        steps = sum(result.steps for result in fitted)
        return Batch(outcomes, len(jobs), steps, trained - started, time.monotonic() - trained)

    def _trial(self, job: Job, final: bool) -> Trial:
        resolved = resolve(job.recipe, self.facts)
        plan, parts = resolved.plan, resolved.bind(self.x)
        if not final:
            plan = dataclasses.replace(plan, log_every=-(-job.steps // LOOKS))
        assert parts.pairing is not None
        return Trial(parts.encoder, parts.objective, parts.pairing, self.x, plan, job.seed)

    @contextlib.contextmanager
    def _stopping(self, until: float) -> Iterator[threading.Event]:
        """An event that is set at a time, or when the comparison is called off."""
        stop, over = threading.Event(), threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                if time.monotonic() > until or self.stop_file.exists():
                    stop.set()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield stop
        finally:
            over.set()
            watcher.join()
