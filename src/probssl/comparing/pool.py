"""Several workers at once, stopped at a time or by a signal."""

from __future__ import annotations

import math
import pickle
import queue
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any

from probssl.comparing.work import Batch, Job, Trainer
from probssl.comparing.worker import Worker
from probssl.training.surroundings import one_thread

MOST_PROCESSES = 8
WORTH_STARTING = 45.0
"""Seconds below which this process works alone: starting others would take most of them."""


def processes(seconds: float) -> int:
    """How many processes to use in so many seconds: one a core, at most eight."""
    import joblib

    return 1 if seconds < WORTH_STARTING else max(1, min(int(joblib.cpu_count()), MOST_PROCESSES))


class StopSignal:
    """Set by the first Ctrl-C or SIGTERM; a second one interrupts at once. A file tells the worker processes."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="probssl-"))
        self.file = self.folder / "stop"
        self.given = False
        self._previous: dict[int, Any] = {}

    def give(self) -> None:
        """Tell everyone to stop."""
        self.given = True
        self.file.touch()

    def __enter__(self) -> StopSignal:
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
    """Hands batches of jobs to workers as they become free; a single one is a thread of this process."""

    def __init__(self, trainer: Trainer, processes: int, stop: StopSignal) -> None:
        self.processes = processes
        self.stop = stop
        self.broken = False  # a process died
        self.late = False  # one did not stop in time
        self.abandon_at = math.inf  # of `time.monotonic`: when to wait no longer for what is running
        pickled = pickle.dumps(trainer) if processes > 1 else b""
        self._workers = [Worker(pickled) for _ in range(processes)] if processes > 1 else []
        able: Sequence[Worker | Trainer] = self._workers or [trainer]
        self._free: queue.SimpleQueue[Worker | Trainer] = queue.SimpleQueue()
        for worker in able:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(processes)

    @property
    def over(self) -> bool:
        """Whether nothing more can be done."""
        return self.stop.given or self.broken or self.late

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=not self.late, cancel_futures=True)

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
            if self.over or time.monotonic() > begin_until:
                waiting.clear()
            while waiting and len(running) < self.processes:
                jobs = waiting.pop(0)
                running.add(self.submit(jobs, options(jobs)))
            done, running = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            tick()
            for future in done:
                try:
                    yield future.result()
                except BrokenExecutor:  # a process was killed, most likely because memory ran out
                    self.broken = True
            if running and time.monotonic() > self.abandon_at:
                self.late = True
                return

    def submit(self, jobs: list[Job], options: dict[str, Any]) -> Future[Batch]:
        """Hand one batch of jobs to a worker; `options` are those of `Trainer.train`."""
        return self._threads.submit(self._train, jobs, options)

    def _train(self, jobs: list[Job], options: dict[str, Any]) -> Batch:
        worker = self._free.get()
        try:
            with one_thread():
                return worker.train(jobs, **options)
        finally:
            self._free.put(worker)
