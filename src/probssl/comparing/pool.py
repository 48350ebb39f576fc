"""Processes that train, one a core, and the thread of a single one; stopped at a time or by a signal."""

from __future__ import annotations

import math
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any

from probssl.comparing.work import Batch, Job, Workshop

MOST_PROCESSES = 8
WORTH_STARTING = 45.0
"""Seconds below which this process works alone."""

_workshop: Workshop | None = None  # of this process


def _equip(pickled: bytes) -> None:
    """Prepare a worker process: one thread, no say in Ctrl-C, and its workshop."""
    import torch

    global _workshop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _workshop = pickle.loads(pickled)


def _train(jobs: Sequence[Job], options: dict[str, Any]) -> Batch:
    assert _workshop is not None
    return _workshop.train(jobs, **options)


class StopSignal:
    """Set by the first Ctrl-C or SIGTERM; a second one interrupts at once. A file tells the worker processes."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="probssl-"))
        self.file = self.folder / "stop"
        self.given = False

    def give(self) -> None:
        """Tell everyone to stop."""
        self.given = True
        self.file.touch()

    def __enter__(self) -> StopSignal:
        self._previous: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.given:
            raise KeyboardInterrupt
        self.give()


class Pool:
    """Hands batches of jobs to worker processes as they become free."""

    def __init__(self, workshop: Workshop, processes: int, stop: StopSignal) -> None:
        self.processes = processes
        self.stop = stop
        self.broken = False
        self.abandon_at = math.inf  # of `time.monotonic`: when to wait no longer for what is running
        self._local = workshop if processes == 1 else None
        self._executor = ThreadPoolExecutor(1) if processes == 1 else _loky(workshop, processes)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        if self._local is not None:
            self._executor.shutdown(wait=not self.broken, cancel_futures=True)
        else:
            self._executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]

    def run(
        self,
        batches: Sequence[list[Job]],
        options: Callable[[list[Job]], dict[str, Any]],
        tick: Callable[[], None],
        begin_until: float,
    ) -> Iterator[Batch]:
        """The batches in the order in which they end; none begins after `begin_until` or a stop.

        `options` is asked when a batch begins, `tick` called about ten times a second. What has not ended at
        `abandon_at` is given up.
        """
        waiting = list(batches)
        running: set[Future[Batch]] = set()
        while waiting or running:
            if self.stop.given or self.broken or time.monotonic() > begin_until:
                waiting.clear()
            while waiting and len(running) < self.processes:
                jobs = waiting.pop(0)
                running.add(self.submit(jobs, options(jobs)))
            if not running:
                return
            done, running = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            tick()
            if time.monotonic() > self.abandon_at:
                self.broken = self.broken or bool(running)
                return
            for future in done:
                try:
                    yield future.result()
                except BrokenExecutor:  # a process was killed, most likely for want of memory
                    self.broken = True

    def submit(self, jobs: list[Job], options: dict[str, Any]) -> Future[Batch]:
        """Hand one batch of jobs to a process; `options` are those of `Workshop.train`."""
        if self._local is not None:
            return self._executor.submit(self._local.train, jobs, **options)
        return self._executor.submit(_train, jobs, options)


def _loky(workshop: Workshop, processes: int) -> Executor:
    """joblib's own executor: unlike the standard one it needs no `if __name__ == "__main__"` in the caller's script."""
    from joblib.externals.loky import ProcessPoolExecutor

    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    executor: Executor = ProcessPoolExecutor(
        processes, initializer=_equip, initargs=(pickle.dumps(workshop),), env=one_thread
    )
    return executor


def processes(seconds: float) -> int:
    """How many processes to use: one a core, at most eight; in a short time, starting others would take most of it."""
    import joblib

    if seconds < WORTH_STARTING:
        return 1
    return max(1, min(int(joblib.cpu_count()), MOST_PROCESSES))
