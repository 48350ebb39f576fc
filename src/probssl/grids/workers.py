"""Where cohorts are computed: in this process, in processes of this machine, or on a Dask or Ray cluster."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import IO, Any, Protocol

from probssl.errors import ProbsslError
from probssl.grids.grid import Cohort, Computation, Outcome, compute

Done = tuple[Cohort, list[Outcome]]


class WorkerDied(ProbsslError):
    """A process that computed trials was ended from outside."""

    def __init__(self) -> None:
        super().__init__(
            "a process that ran trials was ended from outside, perhaps because memory ran out: what is finished is "
            "kept, and fewer --jobs need less"
        )


class Workers(Protocol):
    """Computes cohorts, several at a time, each taken from the iterator when a worker is free for it."""

    jobs: int

    def run(self, cohorts: Iterator[Cohort], over: Callable[[], bool]) -> Iterator[Done]:
        """What comes of each, in the order in which they end; when all is `over`, what is under way is given up."""

    def close(self) -> None:
        """End what is running."""


class Here:
    """This process: one cohort after another."""

    jobs = 1

    def __init__(self, computation: Computation) -> None:
        self.computation = computation

    def run(self, cohorts: Iterator[Cohort], over: Callable[[], bool]) -> Iterator[Done]:
        """What comes of each cohort."""
        for cohort in cohorts:
            yield cohort, compute(self.computation, list(cohort.values()))

    def close(self) -> None:
        """Nothing is running."""


class Processes:
    """Processes of this machine, which end with this one."""

    def __init__(self, computation: Computation, jobs: int) -> None:
        import cloudpickle

        self.jobs = jobs
        self._computation = cloudpickle.dumps(computation)
        self._threads = ThreadPoolExecutor(jobs)
        self._free: SimpleQueue[_Process | None] = SimpleQueue()
        self._all: list[_Process] = []
        for _ in range(jobs):
            self._free.put(None)

    def run(self, cohorts: Iterator[Cohort], over: Callable[[], bool]) -> Iterator[Done]:
        """What comes of each cohort; `WorkerDied` where a process was killed."""
        running: dict[Future[list[Outcome]], Cohort] = {}
        waiting = True
        while waiting or running:
            while waiting and len(running) < self.jobs:
                cohort = next(cohorts, None)
                waiting = cohort is not None
                if cohort is not None:
                    running[self._threads.submit(self._compute, list(cohort.values()))] = cohort
            done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
            if running and over():
                self._kill()
                return

    def _compute(self, configs: list[dict[str, Any]]) -> list[Outcome]:
        process = self._free.get()
        if process is None:
            process = _Process(self._computation)
            self._all.append(process)
        usable = None
        try:
            outcomes = process.compute(configs)
            usable = process
        finally:
            self._free.put(usable)
        return outcomes

    def _kill(self) -> None:
        while self._all:
            self._all.pop().kill()

    def close(self) -> None:
        """Kill them, whatever they are doing."""
        self._kill()
        self._threads.shutdown(cancel_futures=True)


START = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; main()"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class _Process:
    """The parent's end of a worker, which imports from where the parent does, never from the current folder.

    It is a program of its own, so that scripts need no guard of their main module, in a session of its own, so that
    Ctrl-C reaches the parent alone.
    """

    def __init__(self, computation: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        self._computation: bytes | None = computation

    def compute(self, configs: list[dict[str, Any]]) -> list[Outcome]:
        """`grid.compute` over there."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            if self._computation is not None:
                pickle.dump((os.getpid(), self._computation), requests)
                self._computation = None
            pickle.dump(configs, requests)
            requests.flush()
            answer: list[Outcome] | BaseException = pickle.load(answers)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            raise WorkerDied from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    """The program of a worker: reads cohorts from its standard input and answers on its standard output."""
    parent_is_gone = EOFError, BrokenPipeError
    with contextlib.suppress(*parent_is_gone), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not come between the answers
        _serve(sys.stdin.buffer, answers)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    parent, pickled = pickle.load(requests)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    computation: Computation | None = None
    while True:
        configs = pickle.load(requests)
        try:
            computation = pickle.loads(pickled) if computation is None else computation
            answer: list[Outcome] | Exception = compute(computation, configs)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process with its parent: a grid that was killed must not go on in the dark."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class Cluster:
    """The workers of a Dask or Ray cluster, which joblib is set to."""

    def __init__(self, computation: Computation, jobs: int) -> None:
        self.computation, self.jobs = computation, jobs

    def run(self, cohorts: Iterator[Cohort], over: Callable[[], bool]) -> Iterator[Done]:
        """What comes of each cohort; `WorkerDied` where the cluster fails."""
        import joblib

        parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        done = parallel(joblib.delayed(_on_cluster)(self.computation, cohort) for cohort in cohorts)
        try:
            for found in done:
                yield found
                if over():
                    return
        except ProbsslError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            raise ClusterFailed(reason) from error
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that tasks were cancelled is what closing is for
                done.close()

    def close(self) -> None:
        """The block that set joblib to the cluster ends it."""


class ClusterFailed(ProbsslError):
    """A cluster gave up."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the cluster failed, and what is finished is kept ({reason})")


def _on_cluster(computation: Computation, cohort: Cohort) -> Done:
    return cohort, compute(computation, list(cohort.values()))
