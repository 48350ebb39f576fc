"""What runs in the processes that do the work: batches of trials, of which a bad one does not spoil the others."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from probssl.errors import InputError
from probssl.studies.base import Config, Result, Study
from probssl.studies.keys import key_of, plain
from probssl.studies.leases import Lease
from probssl.studies.store import Store
from probssl.studies.versions import environment


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
class Outcome:
    """One trial that ended: with a result, or with the reason why there is none."""

    config: Config
    result: Result | None
    message: str
    seconds: float  # since the one before in its batch, so that the sum is what the study cost
    environment: str


def work(study: Study, code: str, path: str, batch: list[Config], parent: int) -> list[Outcome] | None:
    """Run what of a batch is free, and commit each trial to the store; nothing is left to return."""
    part = Grid(study, code, {key_of(study.name, config, code): config for config in batch})
    try:
        with Store(path) as store, Lease(store) as lease:
            for outcome in _outcomes(study, [part.configs[key] for key in lease.take(part.configs)]):
                keep(store, part, outcome)
    except KeyboardInterrupt:
        if os.getpid() == parent:
            raise
        return None  # an exception of this kind would end the worker and not reach the parent
    return []


def compute(study: Study, batch: list[Config]) -> list[Outcome]:
    """Run a batch and return what came of it."""
    return list(_outcomes(study, batch))


def keep(store: Store, todo: Grid, outcome: Outcome) -> None:
    """Commit what came of a trial."""
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
    torch = sys.modules.get("torch")
    if torch is not None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
        return
    name = "OMP_NUM_THREADS"  # should a trial be the first to import it
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
