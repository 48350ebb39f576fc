"""The engine: runs what of a study's grid is not yet in its store, wherever there are processors, and loses nothing.

Every process that runs a study cuts what is left into batches and goes through them. A batch begins by claiming its
trials, so that what another process has done or is doing is passed over, and each trial is committed as it ends. On
this machine the workers write to the store themselves; of a cluster's workers, which may see another disk, the results
come back here batch by batch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probssl.errors import InputError, ProbsslError
from probssl.studies import backends
from probssl.studies.base import Budget, Config, Result, Results, Study
from probssl.studies.keys import key_of, plain
from probssl.studies.leases import Lease
from probssl.studies.store import Store
from probssl.studies.versions import code_version, environment

check_backend = backends.check


class AllFailed(ProbsslError):
    """No trial of a study came to its end."""

    def __init__(self, study: str, failures: list[tuple[Config, str]]) -> None:
        super().__init__(f"every trial of {study} failed, the first with: {failures[0][1]}")


class WorkerDied(ProbsslError):
    """A process that ran trials was ended from outside."""


@dataclass(frozen=True)
class Grid:
    """The trials of a study at a budget: key -> configuration, in order."""

    study: Study
    code: str
    configs: dict[str, Config]

    def key(self, config: Config) -> str:
        """The key of one of its trials."""
        return key_of(self.study.name, config, self.code)


@dataclass(frozen=True)
class Finished:
    """What came of a grid."""

    results: Results
    failures: list[tuple[Config, str]]


def grid(study: Study, budget: Budget) -> Grid:
    """The study's grid with the keys under which its trials are stored."""
    code = code_version(study)
    configs = [plain(config) for config in study.configs(budget)]
    keyed = {key_of(study.name, config, code): config for config in configs}
    if len(keyed) < len(configs):
        raise InputError(f"the grid of {study.name} names {len(configs) - len(keyed)} of its trials twice")
    return Grid(study, code, keyed)


def run(
    study: Study,
    budget: Budget,
    path: Path,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    address: str | None = None,
    quiet: bool = True,
) -> Finished:
    """Finish the study's grid in the store at `path`, and return everything that is known of it.

    `KeyboardInterrupt` (Ctrl-C, SIGTERM) leaves what is finished in the store; the same call goes on from there.
    """
    check_backend(backend, jobs, address)
    todo = grid(study, budget)
    keys = list(todo.configs)
    since = time.time()
    with Store(path) as store, _watched(todo, store, quiet):
        if len(store.finished(keys)) < len(keys):
            with _terminable(), backends.started(backend, jobs, address) as count:
                while left := _left(store, keys, since):
                    claimed = store.claimed(left)
                    if free := [key for key in left if key not in claimed]:
                        _pass(todo, free, store, count, remote=backend in backends.CLUSTERS)
                    else:
                        time.sleep(0.2)  # another process is at work on all that is left: wait for it, or for its end
        found, why = store.results(keys), store.failures(keys)
    return Finished(
        [(config, found[key]) for key, config in todo.configs.items() if key in found],
        [(config, why.get(key, "")) for key, config in todo.configs.items() if key not in found],
    )


def _left(store: Store, keys: list[str], since: float) -> list[str]:
    """What neither is finished nor failed while we have been here."""
    over = store.finished(keys) | set(store.failures(keys, since))
    return [key for key in keys if key not in over]


def _pass(todo: Grid, free: list[str], store: Store, jobs: int, *, remote: bool) -> None:
    """Go once through what is free, in batches."""
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    batches = todo.study.batches([todo.configs[key] for key in free], jobs)
    if sorted(todo.key(config) for batch in batches for config in batch) != sorted(free):
        raise InputError(f"the batches of {todo.study.name} do not hold each trial once")
    with _sent_here(todo, batches, store) if remote else _sent_to_the_store(todo, batches, store) as tasks:
        parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        work = parallel(tasks)
        try:
            for outcomes in work:
                if outcomes is None:  # a worker was told to stop, and so are we
                    raise KeyboardInterrupt
                for outcome in outcomes:
                    _keep(store, todo, outcome)
        except TerminatedWorkerError:
            raise WorkerDied(
                "a process that ran trials was ended from outside, perhaps for want of memory: what is finished is "
                "kept, and fewer --jobs need less"
            ) from None
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that tasks were cancelled is what closing is for
                work.close()


@contextlib.contextmanager
def _sent_to_the_store(todo: Grid, batches: list[list[Config]], store: Store) -> Iterator[Iterator[Any]]:
    """Batches for workers that claim and commit by themselves, on the disk that they share with us."""
    import joblib

    place = str(store.path.resolve())  # a worker that is used again may be in another folder
    yield (joblib.delayed(_work)(todo.study, todo.code, place, batch, os.getpid()) for batch in batches)


@contextlib.contextmanager
def _sent_here(todo: Grid, batches: list[list[Config]], store: Store) -> Iterator[Iterator[Any]]:
    """Batches for workers that do not see the store: claimed at the moment they are sent off, committed on return."""
    import joblib

    def tasks(lease: Lease) -> Iterator[Any]:
        for batch in batches:
            keyed = {todo.key(config): config for config in batch}
            if mine := lease.take(keyed):
                yield joblib.delayed(_compute)(todo.study, [keyed[key] for key in mine])

    with Lease(store) as lease:
        yield tasks(lease)


# In the workers


@dataclass(frozen=True)
class Outcome:
    """One trial that ended: with a result, or with the reason why there is none."""

    config: Config
    result: Result | None
    message: str
    seconds: float  # since the one before in its batch, so that the sum is what the study cost
    environment: str


def _work(study: Study, code: str, path: str, batch: list[Config], parent: int) -> list[Outcome] | None:
    """Run what of a batch is free, and commit each trial to the store; nothing is left to return."""
    part = Grid(study, code, {key_of(study.name, config, code): config for config in batch})
    child = parent if os.getpid() != parent else None
    if child is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent hears it and ends its workers
    try:
        with Store(path) as store, Lease(store, parent=child) as lease:
            for outcome in _outcomes(study, [part.configs[key] for key in lease.take(part.configs)]):
                _keep(store, part, outcome)
    except KeyboardInterrupt:
        if child is None:
            raise
        return None
    return []


def _compute(study: Study, batch: list[Config]) -> list[Outcome]:
    """Run a batch and return what came of it."""
    return list(_outcomes(study, batch))


def _keep(store: Store, todo: Grid, outcome: Outcome) -> None:
    name, code = todo.study.name, todo.code
    if outcome.result is None:
        store.fail(name, outcome.config, outcome.message, code)
    else:
        store.put(name, outcome.config, outcome.result, code, outcome.seconds, outcome.environment)


def _outcomes(study: Study, configs: list[Config]) -> Iterator[Outcome]:
    """Every trial of a batch as it ends; where the batch raises, its halves are tried, down to the trial at fault."""
    if not configs:
        return
    left = {key_of("", config, ""): config for config in configs}
    before = time.perf_counter()
    message = "run_batch gave no result for it"
    try:
        with _one_thread():
            for config, result in study.run_batch(configs):
                given = plain(result)
                if left.pop(key_of("", config, ""), None) is None:
                    raise InputError(f"run_batch gave a result for a trial that it was not asked for: {config}")
                now = time.perf_counter()
                yield Outcome(config, given, "", now - before, environment())
                before = now
    except Exception as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
    rest = list(left.values())
    if len(rest) > 1:
        for part in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            yield from _outcomes(study, part)
    elif rest:
        yield Outcome(rest[0], None, message, time.perf_counter() - before, environment())


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of torch a batch: as many as there are processors are at work, and sums do not depend on how many."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# What a person sees, and how they stop it


@contextlib.contextmanager
def _watched(todo: Grid, store: Store, quiet: bool) -> Iterator[None]:
    """One bar for the whole grid, which counts what is in the store, whoever put it there."""
    from probssl.report.console import trial_progress

    keys, over = list(todo.configs), threading.Event()
    with trial_progress(todo.study.name, len(keys), quiet) as show:

        def watch() -> None:
            with contextlib.suppress(InputError):  # the worker that meets the same error reports it
                while not over.wait(0.5):
                    show(len(store.finished(keys)))

        show(len(store.finished(keys)))
        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            show(len(store.finished(keys)))


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
