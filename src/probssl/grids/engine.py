"""The engine: computes what of a grid is not yet in its store, wherever there are processors, and loses nothing.

Whoever runs a grid goes through the cohorts that are left. Each is claimed at the moment it is handed to a worker, so
that what another process has done or is doing is passed over, and its trials are committed in one transaction when it
ends. What a trial comes to does not depend on how many workers there are, on what else is left, or on kills.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probssl.errors import InputError, ProbsslError
from probssl.grids import backends
from probssl.grids.grid import Cohort, Computation, Grid
from probssl.grids.keys import Config, Results
from probssl.grids.leases import Lease
from probssl.grids.store import Store
from probssl.grids.workers import Workers

Progress = Callable[[str, int], contextlib.AbstractContextManager[Callable[[int], None]]]
"""From a grid's name and size to a bar, whose block gets a function of how many trials are finished."""


class AllFailed(ProbsslError):
    """No trial of a grid came to its end."""

    def __init__(self, name: str, failures: list[tuple[Config, str]]) -> None:
        super().__init__(f"every trial of {name} failed, the first with: {failures[0][1]}")


@dataclass(frozen=True)
class Finished:
    """Results of a grid."""

    results: Results
    failures: list[tuple[Config, str]]


class Engine:
    """A store and the workers that fill it, for one grid after another of the same computation."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self.store, self.workers = store, workers

    def finish(self, grid: Grid, *, begin_until: float = math.inf, until: float = math.inf) -> None:
        """Compute what is left of a grid, waiting for what others are at work on.

        No cohort is begun after `begin_until`, and what has not ended at `until` is given up, both of `time.monotonic`.
        """
        before = self.store.attempts(grid.trials)

        def over() -> bool:
            return time.monotonic() > until

        def claimed(free: list[Cohort], lease: Lease) -> Iterator[Cohort]:
            for cohort in free:
                if time.monotonic() > min(begin_until, until):
                    return
                if lease.take(cohort):
                    yield cohort

        while (left := self._left(grid, before)) and time.monotonic() <= min(begin_until, until):
            free = [cohort for cohort in left if not self.store.claimed(cohort)]
            if not free:
                time.sleep(0.2)
            with Lease(self.store) as lease:
                for cohort, outcomes in self.workers.run(claimed(free, lease), over):
                    self.store.put(grid.computation.name, grid.code, cohort, outcomes)

    def _left(self, grid: Grid, before: dict[str, int]) -> list[Cohort]:
        """Cohorts with a trial that is not finished and has not failed since."""
        finished, attempts = self.store.finished(grid.trials), self.store.attempts(grid.trials)
        done = finished | {key for key, count in attempts.items() if count > before.get(key, 0)}
        return [cohort for cohort in grid.cohorts if not cohort.keys() <= done]


def run(
    grid: Grid,
    path: Path,
    *,
    jobs: int | None = None,
    backend: str = backends.PROCESSES,
    address: str | None = None,
    progress: Progress | None = None,
) -> Finished:
    """Finish a grid in the store at `path`, and return everything that is known of it.

    `KeyboardInterrupt` (Ctrl-C, SIGTERM) leaves what is finished in the store; the same call resumes.
    """
    backends.check(backend, jobs, address)
    with Store(path) as store, _watched(grid, store, progress):
        if len(store.finished(grid.trials)) < len(grid.trials):
            with started(grid.computation, store, jobs=jobs, backend=backend, address=address) as engine:
                engine.finish(grid)
        found, why = store.results(grid.trials), store.failures(grid.trials)
    return Finished(
        [(config, found[key]) for key, config in grid.trials.items() if key in found],
        [(config, why.get(key, "")) for key, config in grid.trials.items() if key not in found],
    )


@contextlib.contextmanager
def started(
    computation: Computation,
    store: Store,
    *,
    jobs: int | None = None,
    backend: str = backends.PROCESSES,
    address: str | None = None,
) -> Iterator[Engine]:
    """An engine whose workers end with the block, at SIGTERM as at Ctrl-C."""
    with _terminable(), backends.workers(computation, backend, jobs, address) as workers:
        yield Engine(store, workers)


@contextlib.contextmanager
def _watched(grid: Grid, store: Store, progress: Progress | None) -> Iterator[None]:
    """One bar for the whole grid, which counts what is in the store, whoever put it there."""
    if progress is None:
        yield
        return
    over = threading.Event()
    with progress(grid.computation.name, len(grid.trials)) as show:

        def watch() -> None:
            with contextlib.suppress(InputError):  # the engine meets the same error and reports it
                while not over.wait(0.5):
                    show(len(store.finished(grid.trials)))

        show(len(store.finished(grid.trials)))
        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            show(len(store.finished(grid.trials)))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM as Ctrl-C, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
