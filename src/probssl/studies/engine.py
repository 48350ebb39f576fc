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
from probssl.studies.base import Budget, Config, Results, Study
from probssl.studies.keys import key_of, plain
from probssl.studies.leases import Lease
from probssl.studies.store import Store
from probssl.studies.versions import code_version
from probssl.studies.workers import Grid, compute, keep, work

check_backend = backends.check


class AllFailed(ProbsslError):
    """No trial of a study came to its end."""

    def __init__(self, study: str, failures: list[tuple[Config, str]]) -> None:
        super().__init__(f"every trial of {study} failed, the first with: {failures[0][1]}")


class WorkerDied(ProbsslError):
    """A process that ran trials was ended from outside."""


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
        done = parallel(tasks)
        try:
            for outcomes in done:
                if outcomes is None:  # a worker was told to stop, and so are we
                    raise KeyboardInterrupt
                for outcome in outcomes:
                    keep(store, todo, outcome)
        except TerminatedWorkerError:
            raise WorkerDied(
                "a process that ran trials was ended from outside, perhaps for want of memory: what is finished is "
                "kept, and fewer --jobs need less"
            ) from None
        except Exception as error:
            if not remote or isinstance(error, ProbsslError):
                raise
            told = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            raise WorkerDied(f"the cluster failed, and what is finished is kept ({told})") from error
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that tasks were cancelled is what closing is for
                done.close()


@contextlib.contextmanager
def _sent_to_the_store(todo: Grid, batches: list[list[Config]], store: Store) -> Iterator[Iterator[Any]]:
    """Batches for workers that claim and commit by themselves, on the disk that they share with us."""
    import joblib

    place = str(store.path.resolve())  # a worker that is used again may be in another folder
    yield (joblib.delayed(work)(todo.study, todo.code, place, batch, os.getpid()) for batch in batches)


@contextlib.contextmanager
def _sent_here(todo: Grid, batches: list[list[Config]], store: Store) -> Iterator[Iterator[Any]]:
    """Batches for workers that do not see the store: claimed at the moment they are sent off, committed on return."""
    import joblib

    def tasks(lease: Lease) -> Iterator[Any]:
        for batch in batches:
            keyed = {todo.key(config): config for config in batch}
            if mine := lease.take(keyed):
                yield joblib.delayed(compute)(todo.study, [keyed[key] for key in mine])

    with Lease(store) as lease:
        yield tasks(lease)


# What a person sees, and how they stop it


@contextlib.contextmanager
def _watched(todo: Grid, store: Store, quiet: bool) -> Iterator[None]:
    """One bar for the whole grid, which counts what is in the store, whoever put it there."""
    if quiet:
        yield
        return
    from probssl.report.console import trial_progress

    keys, over = list(todo.configs), threading.Event()
    with trial_progress(todo.study.name, len(keys)) as show:

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
