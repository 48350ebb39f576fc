"""What computes a comparison: a cohort of configurations is trained as one stack, and each is measured."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from probssl.comparing.grid import Candidate, Parts
from probssl.comparing.setup import Bench
from probssl.grids.keys import Config, Result
from probssl.model import Model
from probssl.model.model import world_of
from probssl.parts.resolve import Bound, Resolved
from probssl.schema import conform
from probssl.training import Fitted, TrainingPlan, Trial, fit, fit_many
from probssl.training.checkpoints import pack, unpack
from probssl.training.stacked.many import stack_key

LOOKS = 5
"""Rows of the log of a training in an early round; two looks in a row tell a collapse."""


@dataclass(frozen=True)
class Job:
    """One training: a configuration, how long, from which seed, in which round."""

    candidate: Candidate
    steps: int
    seed: int
    round: int
    final: bool = False
    """Whether it is measured on more rows, and its weights are kept whatever it is worth."""

    def as_config(self) -> Config:
        """The configuration of its trial."""
        return {**vars(self.candidate), **{name: value for name, value in vars(self).items() if name != "candidate"}}

    @classmethod
    def of(cls, config: Config) -> Job:
        """The inverse of `as_config`."""
        candidate = Candidate(**{name: config[name] for name in Candidate.__dataclass_fields__})
        return cls(candidate, config["steps"], config["seed"], config["round"], config["final"])


@dataclass(frozen=True)
class Outcome:
    """Results of a job. `scores` is empty where training failed."""

    job: Job
    scores: dict[str, float]
    collapsed: tuple[str, ...] = ()
    failure: str | None = None
    kept: bytes | None = field(default=None, repr=False)
    """The rows of its log and the weights of encoder and objective, where they are kept."""

    @classmethod
    def of(cls, config: Config, result: Result, kept: bytes | None) -> Outcome:
        """What a store has of a trial."""
        scores = {name: float(score) for name, score in conform(result["scores"], dict).items()}
        collapsed = conform(result["collapsed"], tuple[str, ...])
        return cls(Job.of(config), scores, collapsed, conform(result["failure"], str | None), kept)

    def value(self, name: str) -> float:
        """A score, or not a number."""
        return self.scores.get(name, math.nan)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of its log."""
        assert self.kept is not None
        rows: list[dict[str, Any]] = json.loads(self.kept.partition(b"\n")[0])["log"]
        return rows

    def put_into(self, model: Model) -> None:
        """Give a model of the same recipe the weights that were trained."""
        assert self.kept is not None
        unpack({"encoder": model.encoder, "objective": model.objective}, self.kept)


class OutOfTime(KeyboardInterrupt):
    """Training in this process ran into the end of its time."""


@dataclass(eq=False)
class Contest:
    """What a process needs to do its jobs: the parts, the rows to train on, and how to measure."""

    name: ClassVar[str] = "compare"
    parts: Parts
    benches: dict[int, Bench]
    """By the seed of a training."""
    criterion: str
    until: float = math.inf
    """When to give up, of `time.monotonic`, in a process that nobody can end."""

    def run_batch(self, configs: list[Config]) -> Iterator[tuple[Config, Result, bytes | None]]:
        """Train a cohort, measure each, and keep the best, or all in the final."""
        jobs = [Job.of(config) for config in configs]
        with self._stopping() as stop:
            trained = self._train(jobs, stop)
        found: list[tuple[Config, Result]] = []
        for config, job, (parts, one) in zip(configs, jobs, trained, strict=True):
            if one.interrupted or time.monotonic() > self.until:
                raise OutOfTime if time.monotonic() > self.until else KeyboardInterrupt
            bench = self.benches[job.seed]
            measurer = bench.final if job.final else bench.screening
            scores = {} if one.failure else measurer.measure(parts.encoder, parts.objective.energy)
            failure = None if scores else one.failure or "the representation is not finite"
            found.append((config, {"scores": scores, "collapsed": list(one.collapsed), "failure": failure}))
        values = [result["scores"].get(self.criterion, -math.inf) for _, result in found]
        best = values.index(max(values, key=lambda value: -math.inf if math.isnan(value) else value))
        for number, ((config, result), job, (parts, one)) in enumerate(zip(found, jobs, trained, strict=True)):
            keep = result["scores"] and (job.final or number == best)
            modules = {"encoder": parts.encoder, "objective": parts.objective}
            yield config, result, pack(modules, {"log": one.history}) if keep else None

    def stacks(self, candidate: Candidate) -> bool:
        """Whether a configuration can train as one of a stack."""
        job = Job(candidate, 1, min(self.benches), 1)
        return self.parts.facts.kind != "world" and stack_key(self._trial(job, *self._bound(job)))[0] is not None

    def _train(self, jobs: list[Job], stop: threading.Event) -> list[tuple[Bound, Fitted]]:
        """The parts of each as trained; on a world, which makes every batch afresh, one after the other."""
        made = [self._bound(job) for job in jobs]
        if self.parts.facts.kind == "world":
            fitted = [
                fit(parts.encoder, parts.objective, world_of(resolved), None, plan, seed=resolved.seed, stop=stop)
                for parts, plan, resolved in made
            ]
        else:
            fitted = fit_many([self._trial(job, *each) for job, each in zip(jobs, made, strict=True)], stop=stop)
        return [(parts, one) for (parts, *_), one in zip(made, fitted, strict=True)]

    def _bound(self, job: Job) -> tuple[Bound, TrainingPlan, Resolved]:
        resolved = self.parts.resolve(job.candidate, job.steps, job.seed)
        plan = resolved.plan if job.final else dataclasses.replace(resolved.plan, log_every=-(-job.steps // LOOKS))
        return resolved.bind(self.benches[job.seed].sample), plan, resolved

    def _trial(self, job: Job, parts: Bound, plan: TrainingPlan, resolved: Resolved) -> Trial:
        assert parts.pairing is not None
        return Trial(parts.encoder, parts.objective, parts.pairing, self.benches[job.seed].x, plan, job.seed)

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[threading.Event]:
        """An event that is set when time is up."""
        stop = threading.Event()
        if math.isinf(self.until):
            yield stop
            return
        timer = threading.Timer(max(0.0, self.until - time.monotonic()), stop.set)
        timer.daemon = True
        timer.start()
        try:
            yield stop
        finally:
            timer.cancel()
